/** §8, and §7 on 429. These come last, and what they spend is waited out. */
import { maxRetryAfterMs, rateLimitOf } from '../client/gateway/answer.js'
import type { Bench } from './bench.js'
import { type Probe, type ProbeCall, retryMs, routes } from './probe.js'
import {
  at,
  came,
  expectStatus,
  expectThat,
  Fault,
  listAt,
  NotSeen,
  once,
  rule,
  rulesOf,
  type Seen,
} from './rule.js'

const itemsInCall = 100
/** Twenty calls are twice the default global budget. */
const callsAtMost = 20
const busyTries = 10
const noHeaders = 'the responses carry no RateLimit headers, which the spec does not require'

function statuses({ ports }: Bench, count: number): ProbeCall {
  const ids = Array.from({ length: count }, () => ports.random.uuid())
  return routes.batch('statuses', ids, `${count} items`)
}
const oneItem = ({ stranger }: Bench): ProbeCall => routes.eligibility(stranger)

interface Overrun {
  readonly refused: Seen
  readonly after: Seen
  /** As many items of a batch submission right after that, where a question is open. */
  readonly submission: Seen | undefined
  /** Whether a few items were left when the call was refused, as far as the answers tell. */
  readonly hadRoom: boolean | undefined
  readonly letThrough: Seen | undefined
  /** What the refusal asked to wait. */
  readonly waitMs: number | undefined
}

const overruns = new WeakMap<Probe, () => Promise<Overrun>>()

function overrun(bench: Bench): Promise<Overrun> {
  const known = overruns.get(bench.probe) ?? once(() => spend(bench))
  overruns.set(bench.probe, known)
  return known()
}

async function spend(bench: Bench): Promise<Overrun> {
  if (bench.isLocal === true) throw new NotSeen('nothing is charged in process')
  let before = rateLimitOf((await bench.probe.send(oneItem(bench))).headers)
  let letThrough: Seen | undefined
  let windowsEnded = 0
  for (let call = 0; call < callsAtMost; call++) {
    // Room for one item must be left, or the call after the refusal tells nothing.
    const left = before?.remaining
    const isMultiple = left !== undefined && left > 0 && left % itemsInCall === 0
    const count = isMultiple ? itemsInCall - 1 : itemsInCall
    const isOver = left !== undefined && left < count
    const seen = await sendNow(bench, statuses(bench, count), isOver)
    const isServed = seen.status === 200 && listAt(seen.json, 'results').length === count
    if (!isServed) {
      if (call === 0 && seen.status !== 429)
        throw new NotSeen(`${seen.sent} was answered ${came(seen)}`)
      const after = await sendNow(bench, oneItem(bench), true)
      const rest = rateLimitOf(after.headers)
      // More is left than before the refusal: the window has ended between the two calls, which
      // tells nothing. A gateway with which that goes on forgets what it was asked for.
      if (windowsEnded < 2 && left !== undefined && (rest?.remaining ?? 0) > left) {
        windowsEnded += 1
        before = rest
        continue
      }
      const hadRoom = left === undefined ? undefined : left > 0
      const submission = await submissionNow(bench, count, left)
      const waitMs = retryMs(seen, bench.ports.clock)
      return { refused: seen, after, submission, hadRoom, letThrough, waitMs }
    }
    before = rateLimitOf(seen.headers)
    // More is left than before where the window has ended on the way.
    const isSameWindow = (before?.remaining ?? 0) <= (left ?? 0)
    if (isOver && isSameWindow) letThrough ??= seen
  }
  if (letThrough === undefined)
    throw new NotSeen(`the rate limit is above ${callsAtMost * itemsInCall} items, or unknown`)
  throw new Fault(
    `sent ${callsAtMost} calls of about ${itemsInCall} items at once; none returned 429`,
  )
}

/** Sends items that authorize nothing at once; `undefined` where that tells nothing. */
async function submissionNow(
  bench: Bench,
  count: number,
  left: number | undefined,
): Promise<Seen | undefined> {
  if ((await bench.unusable()) !== undefined || bench.questions.length === 0) return undefined
  const items = Array(count).fill({ ...(await bench.unsignedItem()), proposer: bench.stranger })
  const seen = await sendNow(bench, routes.batch('proposals', items, `${count} items`), true)
  const rest = rateLimitOf(seen.headers)?.remaining ?? 0
  if (left === undefined || rest <= left) return seen
  // More is left than before: the window has ended in between, which tells nothing; or it is
  // another window, while the shared one still refuses (§8 rule 2).
  const again = await sendNow(bench, oneItem(bench), true)
  return again.status === 429 ? seen : undefined
}

/**
 * Sends at once; a gateway that is busy with other things (503) is asked again. One that is over
 * its budget should say 429.
 */
async function sendNow(bench: Bench, call: ProbeCall, isOver: boolean): Promise<Seen> {
  const { probe, ports, signal } = bench
  for (let tried = 1; ; tried++) {
    const seen = await probe.overrun(call)
    if (seen.status !== 503 || (isOver && tried === 3)) return seen
    if (tried === busyTries)
      throw new NotSeen(`${seen.sent} was answered ${came(seen)} ${tried} times`)
    await ports.clock.sleep(1_000, signal)
  }
}

async function overrunIfRefused(bench: Bench): Promise<Overrun> {
  try {
    return await overrun(bench)
  } catch (error) {
    if (error instanceof Fault) throw new NotSeen('no call hit the rate limit')
    throw error
  }
}

export const budgetRules = rulesOf('overrun', {
  '8-rate-limited': rule(
    'a call over the budget is answered 429, without per-item results',
    200,
    async (bench) => {
      const { refused } = await overrun(bench)
      expectStatus(refused, 429)
      const isWhole = at(refused.json, 'results') === undefined
      expectThat(isWhole, refused, 'the refusal has per-item results')
      return came(refused)
    },
  ),
  '8-whole-batch-refused': rule(
    'a batch of more items than the budget has left is refused before admission',
    async (bench) => {
      const { letThrough, hadRoom } = await overrunIfRefused(bench)
      if (hadRoom === undefined) throw new NotSeen(noHeaders)
      if (letThrough === undefined) return 'refused'
      const sent = `sent ${letThrough.sent}, more than the rate limit had left`
      throw new Fault(`${sent}; got ${came(letThrough)}`)
    },
  ),
  '8-submission-refused': rule(
    'a batch submission over the budget returns 429 before admission',
    0,
    async (bench) => {
      const { submission } = await overrunIfRefused(bench)
      if (submission === undefined) throw new NotSeen('no question is open, or the window ended')
      expectStatus(submission, 429)
      const isWhole = at(submission.json, 'results') === undefined
      expectThat(isWhole, submission, 'the refusal has per-item results')
      return came(submission)
    },
  ),
  '7-retry-told': rule(
    '429 gives the delay in Retry-After, or else in the detail',
    async (bench) => {
      const { refused, waitMs } = await overrunIfRefused(bench)
      // What words the detail uses is left open; a delay has a number.
      const detail = String(at(refused.json, 'error', 'detail') ?? '')
      const fault = `got ${refused.status} without Retry-After and without a delay in the detail`
      expectThat(waitMs !== undefined || /\d/.test(detail), refused, fault)
      return waitMs === undefined ? 'in words of its own' : `${waitMs / 1_000} s`
    },
  ),
  '8-refused-call-charged': rule(
    'rate-limited attempts also charge the counters',
    async (bench) => {
      const { after, hadRoom } = await overrunIfRefused(bench)
      if (hadRoom === false) throw new NotSeen('no items were left before the refusal')
      // Without a word of what was left the refusal may have come right at its end.
      const sent = `${after.sent} right after a refused call that left room for it`
      return expectStatus({ ...after, sent }, 429)
    },
  ),
  '8-window-reopens': rule('after that delay, calls are served again', async (bench) => {
    const { refused, after, waitMs } = await overrunIfRefused(bench)
    const { clock } = bench.ports
    // Where nothing is reported the window of §8 is waited out, so that the run leaves none
    // overrun.
    const resetMs = (rateLimitOf(refused.headers)?.resetSeconds ?? 60) * 1_000
    const afterMs = after.status === 429 ? (retryMs(after, clock) ?? 0) : 0
    const delayMs = Math.max(waitMs ?? resetMs, afterMs, 1_000)
    if (delayMs > maxRetryAfterMs)
      throw new NotSeen(`${refused.sent} had to wait ${delayMs / 1_000} s`)
    await clock.sleep(delayMs, bench.signal)
    const seen = await sendNow(bench, oneItem(bench), false)
    const sent = `${seen.sent} ${Math.ceil(delayMs / 1_000)} s after the refusal`
    return expectStatus({ ...seen, sent }, 200)
  }),
})
