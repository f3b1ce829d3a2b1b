/**
 * Rules of §8, and of §7 on 429. Those that overrun the budget come last, and what they spend is
 * waited out.
 */
import { maxRetryAfterMs, rateLimitOf } from '../client/gateway/answer.js'
import type { Bench } from './bench.js'
import { type Call, type Probe, retryMs } from './probe.js'
import {
  at,
  came,
  expectStatus,
  expectThat,
  Fault,
  listAt,
  NotSeen,
  once,
  type Rule,
  rule,
  type Seen,
} from './rule.js'

const itemsInCall = 100
/** Twenty calls are twice the default global budget. */
const callsAtMost = 20
const busyTries = 10
/** A window that ended in between, or somebody else who spends, spoils a measurement. */
const measurements = 3

const statuses = ({ ports }: Bench, count: number): Call => ({
  method: 'POST',
  path: '/propose/batch/status',
  body: { candidate_ids: Array.from({ length: count }, () => ports.random.uuid()) },
  items: count,
  wrong: `${count} items`,
})
const one = ({ stranger }: Bench): Call => ({
  method: 'GET',
  path: `/v1/proposals/eligibility/${stranger}`,
})

/** What a call of each kind should be charged: its items (§8 rule 2). */
const charges: readonly (readonly [
  id: string,
  section: string,
  says: string,
  make: (bench: Bench) => Promise<Call>,
])[] = [
  ['8-shared-budget', '§8 rule 2', 'eligibility shares the budget', async (bench) => one(bench)],
  [
    '8-charged-by-item',
    '§8 rule 2',
    'a polling pass is charged by its item count',
    async (bench) => statuses(bench, 5),
  ],
  [
    '8-charged-preparation',
    '§8 rule 2',
    'batch preparation is charged by its item count',
    async (bench) => {
      const { question_id } = await bench.context()
      return {
        method: 'POST',
        path: '/propose/batch/signing-data',
        body: { identifiers: Array(4).fill(question_id) },
        items: 4,
        wrong: '4 items',
      }
    },
  ],
  [
    '8-charged-submission',
    '§8 rule 2',
    'batch submission is charged by its item count',
    async (bench) => {
      const item = await bench.unsignedItem()
      return {
        method: 'POST',
        path: '/propose/batch',
        body: { proposals: Array(4).fill(item) },
        items: 4,
        wrong: '4 items of random signatures',
      }
    },
  ],
  [
    '8-charged-signing-data',
    '§8 rule 2',
    'single preparation shares the budget',
    async (bench) => {
      const { question_id } = await bench.context()
      return {
        method: 'POST',
        path: `/v1/proposals/${question_id}/signing-data`,
        body: await bench.proposal(),
      }
    },
  ],
  [
    '8-charged-single',
    '§8 rule 2',
    'single submission shares the budget',
    async (bench) => {
      const { question_id } = await bench.context()
      return {
        method: 'POST',
        path: `/v1/proposals/${question_id}`,
        body: await bench.unsigned(),
        wrong: 'a random signature',
      }
    },
  ],
  [
    '8-charged-status',
    '§8 rule 2',
    'a single status shares the budget',
    async (bench) => {
      const { question_id } = await bench.context()
      return {
        method: 'GET',
        path: `/v1/proposals/${question_id}/status/${bench.ports.random.uuid()}`,
      }
    },
  ],
  [
    '8-charged-rejected',
    '§8 rule 4',
    'rejected attempts charge the counters',
    async (bench) => {
      const { question_id } = await bench.context()
      return {
        method: 'POST',
        path: `/v1/proposals/${question_id}`,
        body: { ...(await bench.unsigned()), outcome: 'p4' },
        wrong: 'outcome p4',
      }
    },
  ],
]

/**
 * Items that a call took of the tighter window, by what the answers before and after it tell: those
 * two are charged one item each. Others may spend too, and a sliding window gives back, so that
 * another figure is no fault unless it is the same time and again.
 */
async function charged(bench: Bench, call: Call): Promise<{ seen: Seen; items: number }> {
  const { probe } = bench
  const expected = call.items ?? 1
  const taken: { seen: Seen; items: number }[] = []
  for (let tried = 0; tried < 2 * measurements; tried++) {
    const before = rateLimitOf((await probe.send(one(bench))).headers)
    const seen = await probe.send(call)
    const after = rateLimitOf((await probe.send(one(bench))).headers)
    if (before === undefined || after === undefined)
      throw new NotSeen('the answers carry no RateLimit headers, which the spec does not ask for')
    // A window that has ended in between tells nothing.
    if (
      after.limit !== before.limit ||
      after.remaining > before.remaining ||
      after.resetSeconds > before.resetSeconds
    )
      continue
    // Eligibility may be what is charged wrongly.
    const items =
      call.path === one(bench).path
        ? (before.remaining - after.remaining) / 2
        : before.remaining - after.remaining - 1
    if (items === expected) return { seen, items }
    if (taken.push({ seen, items }) === measurements) break
  }
  const [first] = taken
  if (first === undefined) throw new NotSeen('the window ended each time')
  if (taken.length < measurements || taken.some(({ items }) => items !== first.items))
    throw new NotSeen(
      'the measurements differ: somebody else spends of the same budget, or its window slides',
    )
  return first
}

/** Polite: by what the answers tell, within the budget. */
export const chargeRules: readonly Rule[] = charges.map(([id, section, says, make]) =>
  rule(
    id,
    section,
    'read',
    says,
    async (bench) => {
      if (bench.isLocal === true) throw new NotSeen('in process nothing is charged')
      const call = await make(bench)
      const { seen, items } = await charged(bench, call)
      const expected = call.items ?? 1
      expectThat(
        items === expected,
        seen,
        `${expected} ${expected === 1 ? 'item was' : 'items were'} charged ${Math.max(0, items)}`,
      )
      return `${expected} for ${expected}`
    },
    6,
  ),
)

interface Overrun {
  /** The call that was refused. */
  readonly refused: Seen
  /** One item right after it. */
  readonly after: Seen
  /** Whether a few items were left when the call was refused, as far as the answers tell. */
  readonly hadRoom: boolean | undefined
  /** A call that was served although it held more items than were left. */
  readonly letThrough: Seen | undefined
  /** What the refusal asked to wait. */
  readonly waitMs: number | undefined
}

const overruns = new WeakMap<Probe, () => Promise<Overrun>>()

/** Spends until a call is refused, once a run. */
function overrun(bench: Bench): Promise<Overrun> {
  const known = overruns.get(bench.probe) ?? once(() => spend(bench))
  overruns.set(bench.probe, known)
  return known()
}

async function spend(bench: Bench): Promise<Overrun> {
  if (bench.isLocal === true) throw new NotSeen('in process nothing is charged')
  const { probe } = bench
  let before = rateLimitOf((await probe.send(one(bench))).headers)
  let letThrough: Seen | undefined
  for (let call = 0; call < callsAtMost; call++) {
    // Room for one item must be left, or the call after the refusal tells nothing.
    const count =
      before !== undefined && before.remaining > 0 && before.remaining % itemsInCall === 0
        ? itemsInCall - 1
        : itemsInCall
    const isOver = before !== undefined && before.remaining < count
    const seen = await patient(bench, statuses(bench, count), isOver)
    const isServed = seen.status === 200 && listAt(seen.json, 'results').length === count
    if (!isServed) {
      if (call === 0 && seen.status !== 429)
        throw new NotSeen(`${seen.sent} was answered ${came(seen)}`)
      const after = await patient(bench, one(bench), true)
      const hadRoom = before === undefined ? undefined : before.remaining > 0
      return { refused: seen, after, hadRoom, letThrough, waitMs: retryMs(seen, bench.ports.clock) }
    }
    if (isOver) letThrough ??= seen
    before = rateLimitOf(seen.headers)
  }
  if (letThrough === undefined)
    throw new NotSeen(`the budget is larger than ${callsAtMost * itemsInCall} items, or not told`)
  throw new Fault(`sent ${callsAtMost} calls of about ${itemsInCall} items at once; none came 429`)
}

/**
 * Sends at once; a gateway that is busy with other things (503) is asked again. One that is over
 * its budget should say 429.
 */
async function patient(bench: Bench, call: Call, isOver: boolean): Promise<Seen> {
  const { probe, ports, signal } = bench
  for (let tried = 1; ; tried++) {
    const seen = await probe.overrun(call)
    if (seen.status !== 503 || (isOver && tried === 3)) return seen
    if (tried === busyTries)
      throw new NotSeen(`${seen.sent} was answered ${came(seen)} ${tried} times`)
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

export const overrunRules: readonly Rule[] = [
  rule(
    '8-rate-limited',
    '§8',
    'overrun',
    'what exceeds the budget is answered 429, without per-item results',
    async (bench) => {
      const { refused } = await overrun(bench)
      expectStatus(refused, 429)
      expectThat(
        at(refused.json, 'results') === undefined,
        refused,
        'the refusal has per-item results',
      )
      return came(refused)
    },
    200,
  ),
  rule(
    '8-whole-batch-refused',
    '§8 rule 5',
    'overrun',
    'a batch of more items than the budget has left is refused before admission',
    async (bench) => {
      const { letThrough, hadRoom } = await spent(bench)
      if (hadRoom === undefined)
        throw new NotSeen('the answers carry no RateLimit headers, which the spec does not ask for')
      if (letThrough !== undefined)
        throw new Fault(
          `sent ${letThrough.sent}, more than the budget had left; came ${came(letThrough)}`,
        )
      return 'refused'
    },
  ),
  rule(
    '7-retry-told',
    '§7',
    'overrun',
    '429 tells the delay in Retry-After, or else in the detail',
    async (bench) => {
      const { refused, waitMs } = await spent(bench)
      // What words the detail uses is left open; a delay has a number.
      const isTold =
        waitMs !== undefined || /\d/.test(String(at(refused.json, 'error', 'detail') ?? ''))
      expectThat(
        isTold,
        refused,
        `came ${refused.status} without Retry-After and without a delay in the detail`,
      )
      return waitMs === undefined ? 'in words of its own' : `${waitMs / 1_000} s`
    },
  ),
  rule(
    '8-refused-call-charged',
    '§8 rule 4',
    'overrun',
    'rate-limited attempts also charge the counters',
    async (bench) => {
      const { after, hadRoom } = await spent(bench)
      if (hadRoom === false) throw new NotSeen('no item was left before the refusal')
      // Without a word of what was left the refusal may have come right at its end.
      return expectStatus(
        { ...after, sent: `${after.sent} right after a refused call that left room for it` },
        429,
      )
    },
  ),
  rule(
    '8-window-reopens',
    '§8',
    'overrun',
    'after the delay that was told calls are served again',
    async (bench) => {
      const { refused, after, waitMs } = await spent(bench)
      const { clock } = bench.ports
      // Where nothing is told the window of §8 is waited out, so that the run leaves none overrun.
      const resetMs = (rateLimitOf(refused.headers)?.resetSeconds ?? 60) * 1_000
      const toldMs = Math.max(
        waitMs ?? resetMs,
        after.status === 429 ? (retryMs(after, clock) ?? 0) : 0,
        1_000,
      )
      if (toldMs > maxRetryAfterMs)
        throw new NotSeen(`${refused.sent} was told to wait ${toldMs / 1_000} s`)
      await clock.sleep(toldMs, bench.signal)
      const seen = await patient(bench, one(bench), false)
      return expectStatus(
        { ...seen, sent: `${seen.sent} ${Math.ceil(toldMs / 1_000)} s after the refusal` },
        200,
      )
    },
  ),
]
