/** §8, and §7 on 429. These come last, and what they spend is waited out. */
import { maxRetryAfterMs, rateLimitOf } from '#client/gateway/answer'
import { Fault, NotSeen, notSeen, type Seen } from './answer.js'
import type { Bench } from './bench.js'
import { type Probe, type ProbeCall, routes } from './probe.js'
import { about, rulesOf } from './rule.js'

/** No limit should be a multiple of it: the call after the refusal tells nothing without room. */
const itemsInCall = 97
const callsAtMost = 20

const overruns = new WeakMap<Probe, ReturnType<typeof spend>>()

function overrun(bench: Bench) {
  const known = overruns.get(bench.probe) ?? spend(bench)
  overruns.set(bench.probe, known)
  return known
}

const leftIn = ({ headers }: Seen) => rateLimitOf(headers)?.remaining
/** More is left than before: a window has ended between two calls, which then tell nothing. */
const isReset = (left: number | undefined, seen: Seen) =>
  left !== undefined && (leftIn(seen) ?? 0) > left

/** At once; one that is busy with other things (503) is asked again, one over its budget twice. */
async function sendNow({ probe, ports, signal }: Bench, call: ProbeCall, isOver: boolean) {
  for (let tried = 1; ; tried++) {
    const seen = await probe.overrun(call)
    if (seen.status !== 503 || (isOver && tried === 3)) return seen
    if (tried === 10) throw seen.unanswered(` ${tried} times`)
    await ports.clock.sleep(1_000, signal)
  }
}
const oneNow = (bench: Bench, isOver = true) =>
  sendNow(bench, routes.eligibility(bench.stranger), isOver)

async function spend(bench: Bench) {
  const { isLocal, ports, stranger, probe } = bench
  if (isLocal === true) notSeen('nothing is charged in process')
  let left = leftIn(await bench.send(routes.eligibility(stranger)))
  let letThrough: Seen | undefined
  let resets = 0
  for (let call = 0; call < callsAtMost; call++) {
    const isOver = left !== undefined && left < itemsInCall
    const ids = Array.from({ length: itemsInCall }, () => ports.random.uuid())
    const seen = await sendNow(bench, routes.batch('statuses', ids, `${ids.length} items`), isOver)
    const isServed = seen.status === 200 && seen.results.length === itemsInCall
    if (call === 0 && !isServed && seen.status !== 429) throw seen.unanswered()
    const newest = isServed ? seen : await oneNow(bench)
    if (isServed && isOver && !isReset(left, seen)) letThrough ??= seen
    // A gateway with which that goes on forgets what it was asked for.
    if (!isServed && !(isReset(left, newest) && resets++ < 2)) {
      const submission = await submissionNow(bench, left)
      return { seen, after: newest, submission, left, letThrough, waitMs: probe.retryMs(seen) }
    }
    left = leftIn(newest)
  }
  const sent = `${callsAtMost} calls of ${itemsInCall} items at once`
  throw new (letThrough === undefined ? NotSeen : Fault)(`sent ${sent}; none returned 429`)
}

/** `undefined` where it tells nothing. */
async function submissionNow(bench: Bench, left: number | undefined) {
  if (!bench.hasContext()) return undefined
  const items = Array(itemsInCall).fill({ ...bench.unsignedItem(), proposer: bench.stranger })
  const seen = await sendNow(bench, routes.batch('proposals', items, `${itemsInCall} items`), true)
  // Or it is another window than the shared one, which still refuses (§8 rule 2).
  return !isReset(left, seen) || (await oneNow(bench)).status === 429 ? seen : undefined
}

const overrunIfRefused = (bench: Bench) =>
  overrun(bench).catch((error: unknown) => {
    throw error instanceof Fault ? new NotSeen('no call hit the rate limit') : error
  })

export const budgetRules = rulesOf('overrun', {
  '8-rate-limited': [
    'a call over the budget is answered 429, without per-item results',
    overrun,
    [429],
    { results: undefined },
    200,
  ],
  ...about(overrunIfRefused, {
    '8-whole-batch-refused': [
      'a batch of more items than the budget has left is refused before admission',
      ({ letThrough, left }) => {
        if (left === undefined)
          notSeen('the responses carry no RateLimit headers, which the spec does not require')
        if (letThrough !== undefined) throw letThrough.fault(' for more than the limit had left')
      },
    ],
    '8-submission-refused': [
      'a batch submission over the budget returns 429 before admission',
      ({ submission }) => submission ?? notSeen('no question is open, or the window ended'),
      [429],
      { results: undefined },
      0,
    ],
    '7-retry-told': [
      '429 gives the delay in Retry-After, or else in the detail',
      // What words the detail uses is left open; a delay has a number.
      ({ seen, waitMs }) => waitMs !== undefined || /\d/.test(String(seen.at('error.detail'))),
    ],
    '8-refused-call-charged': [
      'rate-limited attempts also charge the counters',
      ({ after, left }) => {
        if (left !== undefined && left <= 0) notSeen('no items were left before the refusal')
        return after.as({ sent: `${after.sent} right after a refused call that left room for it` })
      },
      [429],
    ],
    '8-window-reopens': [
      'after that delay, calls are served again',
      async (bench) => {
        const { seen, after, waitMs, probe } = bench
        // Where nothing is reported the window of §8 is waited out: the run leaves none overrun.
        const resetMs = (rateLimitOf(seen.headers)?.resetSeconds ?? 60) * 1_000
        const delayMs = Math.max(waitMs ?? resetMs, probe.retryMs(after) ?? 0, 1_000)
        if (delayMs > maxRetryAfterMs) notSeen(`${seen.sent} had to wait ${delayMs / 1_000} s`)
        await bench.ports.clock.sleep(delayMs, bench.signal)
        const served = await oneNow(bench, false)
        return served.as({ sent: `${served.sent} ${Math.ceil(delayMs / 1_000)} s later` })
      },
      [200],
    ],
  }),
})
