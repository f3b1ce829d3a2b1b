/** Rules of §8 that show only where the budget is overrun; they come last, and what they spend is waited out. */
import { maxRetryAfterMs, rateLimitOf } from '../sending/answer.js'
import type { Bench } from './bench.js'
import { retryMs } from './probe.js'
import { came, expectStatus, expectThat, Fault, NotSeen, once, type Rule, rule, type Seen } from './rule.js'

const itemsInCall = 100
/** Twenty calls are twice the default global budget. */
const callsAtMost = 20
const busyTries = 10

interface Overrun {
  /** The call that was refused. */
  readonly refused: Seen
  /** One item right after it. */
  readonly after: Seen
  /** Whether a few items were left when the call was refused, as far as the answers tell. */
  readonly hadRoom: boolean | undefined
  /** What the refusal asked to wait. */
  readonly waitMs: number | undefined
}

const calls = ({ probe, ports, stranger }: Bench) => ({
  batch: (count: number) => ({
    method: 'POST' as const,
    path: '/propose/batch/status',
    body: { candidate_ids: Array.from({ length: count }, () => ports.random.uuid()) },
    items: count,
    wrong: `${count} items`,
  }),
  single: { method: 'GET' as const, path: `/v1/proposals/eligibility/${stranger}` },
  probe,
})

const overruns = new WeakMap<Bench, () => Promise<Overrun>>()

/** Spends until a call is refused, once a run. */
function overrun(bench: Bench): Promise<Overrun> {
  const known = overruns.get(bench) ?? once(() => spend(bench))
  overruns.set(bench, known)
  return known()
}

async function spend(bench: Bench): Promise<Overrun> {
  if (bench.isLocal === true) throw new NotSeen('in process nothing is charged')
  const { batch, single, probe } = calls(bench)
  let before = rateLimitOf((await probe.send(single)).headers)
  for (let call = 0; call < callsAtMost; call++) {
    // Room for one item must be left, or the call after the refusal tells nothing.
    const count = before !== undefined && before.remaining > 0 && before.remaining % itemsInCall === 0 ? itemsInCall - 1 : itemsInCall
    const seen = await patient(bench, batch(count))
    if (seen.status === 429) {
      const after = await patient(bench, single)
      const hadRoom = before === undefined ? undefined : before.remaining > 0
      return { refused: seen, after, hadRoom, waitMs: retryMs(seen, bench.ports.clock) }
    }
    if (seen.status !== 200) throw new NotSeen(`${seen.sent} was answered ${came(seen)}`)
    before = rateLimitOf(seen.headers)
  }
  throw new Fault(`sent ${callsAtMost} calls of about ${itemsInCall} items at once; none came 429`)
}

/** Sends at once; a gateway that is busy with other things (503) is asked again. */
async function patient(bench: Bench, call: Parameters<Bench['probe']['overrun']>[0]): Promise<Seen> {
  const { probe, ports, signal } = bench
  for (let tried = 1; ; tried++) {
    const seen = await probe.overrun(call)
    if (seen.status !== 503) return seen
    if (tried === busyTries) throw new NotSeen(`${seen.sent} was answered ${came(seen)} ${tried} times`)
    await ports.clock.sleep(1_000, signal)
  }
}

async function spent(bench: Bench): Promise<Overrun> {
  try {
    return await overrun(bench)
  } catch (error) {
    if (error instanceof Fault) throw new NotSeen('no call was refused for the budget')
    throw error
  }
}

/** How many items of the tighter window a call took, by what the answers tell; others may spend too, so it is a lower bound. */
async function charged(bench: Bench, call: Parameters<Bench['probe']['send']>[0]): Promise<{ seen: Seen; items: number }> {
  const { single, probe } = calls(bench)
  for (let tried = 0; tried < 3; tried++) {
    const before = rateLimitOf((await probe.send(single)).headers)
    const seen = await probe.send(call)
    const after = rateLimitOf(seen.headers)
    if (before === undefined || after === undefined)
      throw new NotSeen('the answers carry no RateLimit headers, which the spec does not ask for')
    // A window that has ended in between tells nothing.
    if (after.limit === before.limit && after.remaining < before.remaining + 1 && after.resetSeconds <= before.resetSeconds) {
      return { seen, items: before.remaining - after.remaining }
    }
  }
  throw new NotSeen('the window ended each time')
}

/** Polite: by what the answers tell, within the budget. */
export const chargeRules: readonly Rule[] = [
  rule('8-charged-by-item', '§8 rule 2', 'read', 'a batch is charged by its item count', async (bench) => {
    const { seen, items } = await charged(bench, calls(bench).batch(5))
    expectThat(items >= 5, seen, `5 items were charged ${items}`)
    return '5 for 5'
  }),
  rule('8-shared-budget', '§8 rule 2', 'read', 'eligibility and single calls share the budget', async (bench) => {
    const { seen, items } = await charged(bench, calls(bench).single)
    expectThat(items >= 1, seen, 'the call was not charged')
    return '1 for 1'
  }),
]

export const overrunRules: readonly Rule[] = [
  rule('8-rate-limited', '§8', 'overrun', 'what exceeds the budget is answered 429 before anything is done', async (bench) => {
    const { refused } = await overrun(bench)
    expectThat(refused.json !== undefined, refused, 'came 429 without application JSON')
    return came(refused)
  }),
  rule('7-retry-told', '§7', 'overrun', '429 tells the delay in Retry-After, or else in the detail', async (bench) => {
    const { refused, waitMs } = await spent(bench)
    expectThat(waitMs !== undefined, refused, 'came 429 without Retry-After and without a delay in the detail')
    return `${(waitMs ?? 0) / 1_000} s`
  }),
  rule('8-refused-call-charged', '§8 rule 4', 'overrun', 'rate-limited attempts also charge the counters', async (bench) => {
    const { after, hadRoom } = await spent(bench)
    if (hadRoom === false) throw new NotSeen('no item was left before the refusal')
    return expectStatus({ ...after, sent: `${after.sent} right after a refused call that left room for it` }, 429)
  }),
  rule('8-window-reopens', '§8', 'overrun', 'after the delay that was told calls are served again', async (bench) => {
    const { refused, after, waitMs } = await spent(bench)
    const { clock } = bench.ports
    // Where nothing is told the window of §8 is waited out, so that the run leaves none overrun.
    const resetMs = (rateLimitOf(refused.headers)?.resetSeconds ?? 60) * 1_000
    const toldMs = Math.max(waitMs ?? resetMs, after.status === 429 ? (retryMs(after, clock) ?? 0) : 0, 1_000)
    if (toldMs > maxRetryAfterMs) throw new NotSeen(`${refused.sent} was told to wait ${toldMs / 1_000} s`)
    await clock.sleep(toldMs, bench.signal)
    const { single } = calls(bench)
    const seen = await patient(bench, single)
    return expectStatus({ ...seen, sent: `${seen.sent} ${Math.ceil(toldMs / 1_000)} s after the refusal` }, 200)
  }),
]
