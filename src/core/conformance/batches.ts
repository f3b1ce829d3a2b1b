import { maxRetryAfterMs, rateLimitOf } from '#client/gateway/answer'
import {
  about,
  type Bench,
  given,
  noPair,
  noQuestion,
  onceARun,
  type Row,
  rivalTo,
  rulesOf,
  type Step,
} from './bench.js'
import { acknowledgement, hasEnded, replayOf } from './candidates.js'
import {
  absentOr,
  at,
  type Batch,
  batches,
  batchOf,
  Fault,
  get,
  is,
  listAt,
  malformed,
  notSeen,
  type Seen,
  sameInstant,
  statusOf,
} from './probe.js'

/** Nothing of it can be admitted. */
type Item = (bench: Bench, index: number) => unknown
const randomId: Item = ({ newId }) => newId()
const question: Item = ({ context }) => context().question_id
const unsigned: Item = (bench) => bench.unsignedItem()
const by =
  (proposer?: string): Item =>
  ({ unsignedItem, stranger }) =>
    unsignedItem({ proposer: proposer ?? stranger })

const sends = (batch: Batch, items: readonly Item[], wrong?: string) => (bench: Bench) =>
  batchOf(
    batch,
    items.map((make, index) => make(bench, index)),
    wrong,
  )

const cheapest = { contexts: noQuestion, proposals: by(), statuses: randomId }
const many = (batch: Batch, count: number) =>
  sends(batch, Array(count).fill(cheapest[batch]), `${count} items`)

const refusedWhole = { results: undefined }

const empty = (batch: Batch): Row => [sends(batch, []), malformed, refusedWhole]
const full = (batch: Batch): Row => [many(batch, 100), [200], { 'results.length': 100 }, 100]
const overfull = (batch: Batch): Row => [many(batch, 101), [400, 413, 422], refusedWhole, 101]
const ordered = (batch: Batch, one: Item, other = one): Row => [
  (bench) => {
    const list = [one, other, one].map((make, index) => make(bench, index))
    return batchOf(batch, [...list, list[1]])
  },
  given,
  ({ seen, body }) => {
    const { field, echo } = batches[batch]
    const own = listAt(body, field).map((one) => (is.text(one) ? one : at(one, echo)))
    return JSON.stringify(seen.results.map((one) => one.at(echo))) === JSON.stringify(own)
  },
  4,
]
const noName = () => 'Not_An_Identifier'
const whole = (batch: Batch, ...items: readonly Item[]): Row => [
  sends(batch, items, 'one malformed item of two'),
  malformed,
  refusedWhole,
  2,
]

const itemError = { 'error.code': is.word, 'error.detail': is.text }

const summary: Step = ({ seen: { codes } }) => {
  const count = (code: number) => codes.filter((one) => one === code).length
  return {
    'summary.accepted': count(202),
    'summary.replayed': count(200),
    'summary.rejected': codes.length - count(202) - count(200),
  }
}

export const batchRules = rulesOf('read', {
  '4.2.1-empty-signing-data: an empty list is refused': empty('contexts'),
  '4.2.1-empty-submit: an empty list is refused': empty('proposals'),
  '4.2.1-empty-status: an empty list is refused': empty('statuses'),
  '4.2.1-items-100: 100 candidate_ids are served': full('statuses'),
  '4.2.1-identifiers-100: 100 identifiers are served': full('contexts'),
  '4.2.1-proposals-100: 100 proposals are served': full('proposals'),
  '4.2.1-items-101 §4.2 rule 4: 101 candidate_ids are refused as a whole': overfull('statuses'),
  '4.2.1-identifiers-101 §4.2 rule 4: 101 identifiers are refused as a whole': overfull('contexts'),
  '4.2.1-proposals-101 §4.2 rule 4: 101 proposals are refused as a whole': overfull('proposals'),
  '4.2.1-order-signing-data: results are in input order': ordered('contexts', noQuestion, question),
  '4.2.1-order-submit: results are in input order, each with client_ref': ordered(
    'proposals',
    ({ unsignedItem }, index) => unsignedItem({ client_ref: ['third', 'first', 'second'][index] }),
  ),
  '4.2.1-order-status: results are in input order': ordered('statuses', randomId),
  '4.2.2-schema-signing-data: one malformed item refuses all': whole('contexts', question, noName),
  '4.2.2-schema-submit: one malformed item refuses all': whole('proposals', unsigned, by('nobody')),
  '4.2.2-schema-status: one malformed item refuses all; ids are hyphenated UUIDs': [
    ({ newId }) =>
      ['nothing', newId().replaceAll('-', '')].map((wrong) =>
        batchOf('statuses', [newId(), wrong], `the candidate id ${wrong}`),
      ),
    malformed,
    refusedWhole,
    4,
  ],
  '4.2.3-signing-data-items: a call is 200 where some items fail': [
    sends('contexts', [question, noQuestion]),
    [200],
    { 'results.0.status_code': 200, 'results.0.error': is.absent },
    { 'results.0.signing_data': is.there },
    'results.1',
    { status_code: 404, ...itemError, signing_data: is.absent },
    2,
  ],
  '4.2.3-submit-items: a call is 200 where all items fail': [
    sends('proposals', [unsigned, unsigned]),
    [200],
    { 'results.0.status_code results.1.status_code': 403, 'results.length': 2 },
    2,
  ],
  '7-item-errors §7 rule 4: failed items have error.code and error.detail': [
    sends('proposals', [unsigned]),
    given,
    'results.0',
    { ...itemError, candidate: is.absent },
  ],
  '2.7-summary: summary counts accepted, replayed, rejected': [
    sends('proposals', [unsigned, unsigned]),
    given,
    summary,
    2,
  ],
  '5-batch-not-eligible: an item of an ineligible wallet is 403': [
    sends('proposals', [by()]),
    given,
    { 'results.0.status_code': 403 },
  ],
  '4.2.6-unknown-candidate: the item of an unknown candidate is 404': [
    sends('statuses', [randomId]),
    [200],
    'results.0',
    { status_code: 404, ...itemError, candidate: is.absent },
  ],
})

/** Before them `malformed`. The second is in conflict with the first. */
const three = onceARun(async ({ pairs, sign, propose, unsignedItem }) => {
  const [one = noPair(), two = noPair()] = await pairs()
  const terms = { form: 'batch', clientRef: 'conformance' } as const
  const [first, other] = [await sign(one, terms), await sign(two, terms)]
  const junk = JSON.stringify(unsignedItem({ proposer: 'nobody' }))
  const malformed = await propose([first, other], `,${junk}]}`)
  const authorizations = [first, await sign(one, { ...terms, ...rivalTo(first) }), other]
  const seen = await propose(authorizations)
  return { authorizations, questionId: one.context.question_id, seen, malformed, codes: seen.codes }
})

const admissions = async (bench: Bench) => {
  const { seen, authorizations, questionId } = await three(bench)
  seen.given(200)
  const admitted = authorizations.flatMap((authorization, index) => {
    const ack = seen.in(`results.${index}.candidate`)
    return is.given(ack.json) ? [{ authorization, ack }] : []
  })
  const [first = notSeen('no item was admitted')] = admitted
  const status = statusOf(questionId, first.ack.candidate)
  return { seen, admitted, ids: admitted.map(({ ack }) => ack.candidate), status, ...first }
}
type Admissions = Awaited<ReturnType<typeof admissions>>
const areServed = ({ seen: { codes }, ids }: Admissions) =>
  codes.length === ids.length && codes.every((code) => code === 200)
const candidates = ({ seen, admitted }: Admissions) =>
  admitted.map((one, index) => ({ ...one, seen: seen.in(`results.${index}.candidate`) }))

const ofAdmissions = about([admissions], {
  '4.2.5-conflict §4.1 rule 3: an item in conflict is 409': async ({ seen, send, status }) => {
    const two = seen.codes.slice(0, 2).toSorted().join()
    if (two === '202,202' && hasEnded(await send(status)))
      notSeen('the first payload failed before its rival was judged')
    return two === '202,409'
  },
  '4.2.3-siblings: an admitted item outlives a failed sibling': [
    ({ ids }) => batchOf('statuses', ids),
    given,
    areServed,
    candidates,
    // Of so new a candidate both are null.
    { 'submission failure': is.nullable },
    ({ ack }) => ({ received_at: absentOr(sameInstant(ack.at('received_at'))) }),
    2,
  ],
  '2.7-client-ref-echoed: client_ref is echoed': ({ seen: { results } }) =>
    results.every((one) => one.at('client_ref') === 'conformance'),
  '2.7-client-ref-no-key: client_ref is no idempotency key': ({ ids }) =>
    new Set(ids).size === ids.length,
  '2.7-summary-accepted: summary counts accepted items': summary,
  '4.2.5-replay: an exact replay is 200, with the existing candidate': [
    async ({ propose, admitted }) => {
      const again = await propose(admitted.map(({ authorization }) => authorization))
      return again.with('the very same items again')
    },
    [200],
    areServed,
    summary,
    candidates,
    acknowledgement,
    replayOf,
    2,
  ],
  '2.7-status-url-unserved: the status_url of a batch is not served': [
    // Built here, never taken from the answer (R21).
    ({ ack }) => get(`/propose/status/${ack.candidate}`),
    [404],
  ],
})

export const batchSubmissionRules = rulesOf('admit', {
  ...about([three], {
    '4.2.2-before-items: the schema applies before any item is processed': [
      ({ malformed }) => malformed.with('a malformed item behind two that can be admitted'),
      malformed,
      refusedWhole,
      // Else its last item would now be a replay.
      ({ codes }) => codes[2] !== 200,
      3,
    ],
    '4.2.5-new: a new candidate is 202, whatever its siblings are': [
      [200],
      { 'results.length': 3, 'results.2.status_code': 202 },
      ({ codes }) => codes.slice(0, 2).includes(202),
      3,
    ],
    '2.7-candidate-fields: error or candidate with candidate_id, status, received_at, status_url': [
      given,
      { 'results.length': 3 },
      ({ seen }) => seen.results,
      ({ seen }) => {
        const isTaken = [200, 202].includes(Number(seen.at('status_code')))
        if (isTaken) seen.in('candidate').must(acknowledgement)
        return isTaken ? { error: is.absent } : { candidate: is.absent, error: is.given }
      },
    ],
  }),
  ...ofAdmissions,
})

/** No limit should be a multiple: without room the call after the refusal tells nothing. */
const itemsInCall = 97

const leftIn = ({ headers }: Seen) => rateLimitOf(headers)?.remaining
/** A window has ended between: it tells nothing. */
const isReset = (left = Infinity, seen: Seen) => (leftIn(seen) ?? 0) > left

/** Busy with other things (503), it is asked again; over its budget, twice. */
async function sendNow(bench: Bench, isOver = true, batch?: Batch) {
  const call = batch ? many(batch, itemsInCall)(bench) : bench.eligibility
  for (let tried = 1; ; tried++) {
    const seen = await bench.probe.overrun(call)
    if (seen.status !== 503 || (isOver && tried === 3)) return seen
    if (tried === 10) seen.unanswered(` ${tried} times`)
    await bench.ports.clock.sleep(1_000, bench.signal)
  }
}

const overrun = onceARun(async (bench) => {
  if (bench.isLocal) notSeen('nothing is charged in process')
  let left = leftIn(await bench.send(bench.eligibility))
  let letThrough: Seen | undefined
  let resets = 0
  for (let call = 0; call < 20; call++) {
    const isOver = (left ?? Infinity) < itemsInCall
    const seen = await sendNow(bench, isOver, 'statuses')
    const isServed = seen.status === 200 && seen.results.length === itemsInCall
    if (call === 0 && !isServed) seen.given(429)
    const newest = isServed ? seen : await sendNow(bench)
    if (isServed && isOver && !isReset(left, seen)) letThrough ??= seen
    // Where that goes on, it forgets what was asked.
    if (!isServed && !(isReset(left, newest) && resets++ < 2)) {
      const submission = await submissionNow(bench, left)
      const waitMs = bench.probe.retryMs(seen)
      return { seen, after: newest, submission, left, letThrough, waitMs }
    }
    left = leftIn(newest)
  }
  const fault = `sent 20 calls of ${itemsInCall} items at once; none returned 429`
  throw letThrough ? new Fault(fault) : notSeen(fault)
})

/** `undefined` where it tells nothing. */
async function submissionNow(bench: Bench, left: number | undefined) {
  if (bench.usable.length === 0) return undefined
  const seen = await sendNow(bench, true, 'proposals')
  // Or its window is another: the shared one still refuses (§8 rule 2).
  return !isReset(left, seen) || (await sendNow(bench)).status === 429 ? seen : undefined
}

const overrunIfRefused = (bench: Bench) =>
  overrun(bench).catch((error: unknown) => {
    throw error instanceof Fault ? notSeen('no call hit the rate limit') : error
  })

const ofOverrun = about([overrunIfRefused], {
  '8-whole-batch-refused §8 rule 5: a batch over budget is refused': ({ letThrough, left }) => {
    if (left === undefined)
      notSeen('the answers have no RateLimit headers (the spec asks for none)')
    if (letThrough !== undefined) throw letThrough.fault(' for more than the limit had left')
  },
  '8-submission-refused: a batch submission over budget is 429': [
    ({ submission }) => submission ?? notSeen('no question is open, or the window ended'),
    [429],
    refusedWhole,
    0,
  ],
  '7-retry-told: 429 has its delay in Retry-After or detail': ({ seen, waitMs }) =>
    waitMs !== undefined || /\d/.test(String(seen.at('error.detail'))),
  '8-refused-call-charged §8 rule 4: refused calls are charged too': [
    ({ after, left }) => {
      if ((left ?? 1) <= 0) notSeen('no items were left before the refusal')
      return after.with('room left, right after a refused call')
    },
    [429],
  ],
  '8-window-reopens: after the delay calls are served': [
    async (bench) => {
      const { seen, after, waitMs, probe } = bench
      // No window is left overrun.
      const resetMs = (rateLimitOf(seen.headers)?.resetSeconds ?? 60) * 1_000
      const delayMs = Math.max(waitMs ?? resetMs, probe.retryMs(after) ?? 0, 1_000)
      if (delayMs > maxRetryAfterMs) notSeen(`${seen.sent} had to wait ${delayMs / 1_000} s`)
      await bench.ports.clock.sleep(delayMs, bench.signal)
      return (await sendNow(bench, false)).with(`${Math.ceil(delayMs / 1_000)} s between`)
    },
    [200],
  ],
})

export const budgetRules = rulesOf('overrun', {
  '8-rate-limited: a call over budget is 429, without results': [overrun, [429], refusedWhole, 200],
  ...ofOverrun,
})
