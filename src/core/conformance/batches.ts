/** Batches as such: sizes, order, whole-call schema, items that fail alone. */
import { limits } from '#protocol/words'
import {
  type AnswerFacts,
  acknowledgement,
  at,
  Fault,
  is,
  malformed,
  notSeen,
  sameInstant,
} from './answer.js'
import { type Bench, candidateIn, hasEnded } from './bench.js'
import { type Batch, batches, routes } from './probe.js'
import { about, given, type Row, rulesOf, type Step } from './rule.js'

type List = (bench: Bench) => readonly unknown[]
/** A list of these; nothing of it can be admitted. */
const sends =
  (batch: Batch, list: List, wrong?: string): Step =>
  (bench) =>
    routes.batch(batch, list(bench), wrong)

const randomIds = ({ ports }: Bench, count: number) =>
  Array.from({ length: count }, () => ports.random.uuid())
const unknownQuestion = ({ stranger }: Bench, end: string) => `${stranger}${end.repeat(24)}`
const knownQuestion = ({ context }: Bench) => context().question_id
const unsigned =
  (...refs: readonly (string | undefined)[]) =>
  (bench: Bench) =>
    refs.map((ref) => bench.unsignedItem(ref))
/** Of a wallet that nobody knows: the cheapest refusal there is. */
const strangersItem = (bench: Bench) => [{ ...bench.unsignedItem(), proposer: bench.stranger }]
const random = 'random signatures'

/** As many items of a call; whatever is asked about more than 100 contexts is refused unseen. */
function listOf(bench: Bench, batch: Batch, count: number) {
  if (batch === 'statuses') return randomIds(bench, count)
  if (batch === 'proposals') return Array(count).fill(strangersItem(bench)[0])
  const isTooMany = count > limits.batchItems
  return Array(count).fill(isTooMany ? unknownQuestion(bench, 'd') : knownQuestion(bench))
}

/** No call to be refused as a whole has results (§4.2 rule 4). */
const refusedWhole: AnswerFacts = { results: undefined }

const ordered = (says: string, batch: Batch, list: List, wrong?: string): Row => [
  `results come back in input order, one for each item${says}`,
  async (bench) => {
    const asked = list(bench)
    const seen = (await bench.send(routes.batch(batch, asked, wrong))).given(200)
    const { echo } = batches[batch]
    const actual = seen.results.map((one) => at(one, echo))
    const own = asked.map((one) => (is.text(one) ? one : at(one, echo)))
    seen.holds({
      'results.length': own.length,
      [`results have no ${echo}`]: actual.every(is.text),
      [`results are not in input order, or ${echo} does not match the item`]:
        actual.join() === own.join(),
    })
    return seen
  },
  4,
]

/** An item that failed has a code and a detail, and nothing beside them (§2.7, §7 rule 4). */
const itemError = (path: string, absent: 'signing_data' | 'candidate'): AnswerFacts => ({
  [`${path}.error.code`]: is.word,
  [`${path}.error.detail`]: is.text,
  [`${path}.${absent}`]: is.absent,
})

const summary: Step = ({ seen: { codes } }) => {
  const [accepted, replayed] = [202, 200].map((own) => codes.filter((code) => code === own).length)
  const rejected = codes.length - Number(accepted) - Number(replayed)
  return {
    ...{ 'summary.accepted': accepted, 'summary.replayed': replayed },
    'summary.rejected': rejected,
  }
}

const empty = (batch: Batch): Row => [
  'each request carries 1-100 items',
  sends(batch, () => [], 'no item'),
  malformed,
  refusedWhole,
]
const full = (batch: Batch, wrong = '100 items'): Row => [
  `a batch of ${batch} holds up to 100 items`,
  sends(batch, (bench) => listOf(bench, batch, 100), wrong),
  [200],
  { 'results.length': 100 },
  100,
]
const overfull = (batch: Batch): Row => [
  `more than 100 items in ${batches[batch].field} are refused as a whole`,
  sends(batch, (bench) => listOf(bench, batch, 101), '101 items'),
  [400, 413, 422],
  refusedWhole,
  101,
]
const whole = (says: string, batch: Batch, list: List, wrong: string): Row => [
  `schema validation applies to the whole request${says}`,
  sends(batch, list, wrong),
  malformed,
  refusedWhole,
  2,
]

export const batchRules = rulesOf('read', {
  '4.2.1-empty-signing-data': empty('contexts'),
  '4.2.1-empty-submit': empty('proposals'),
  '4.2.1-empty-status': empty('statuses'),
  '4.2.1-items-100': full('statuses'),
  '4.2.1-identifiers-100': full('contexts'),
  '4.2.1-proposals-100': full('proposals', '100 items of a random wallet'),
  '4.2.1-items-101': overfull('statuses'),
  '4.2.1-identifiers-101': overfull('contexts'),
  '4.2.1-proposals-101': overfull('proposals'),
  '4.2.1-order-signing-data': ordered('', 'contexts', (bench) => {
    const known = knownQuestion(bench)
    const [a, b] = [unknownQuestion(bench, 'a'), unknownQuestion(bench, 'b')]
    return [b, known, a, known]
  }),
  '4.2.1-order-submit': ordered(
    ', with the client_ref of failed items too',
    'proposals',
    (bench) => {
      const items = unsigned('third', 'first', 'second')(bench)
      return [...items, items[0]]
    },
    random,
  ),
  '4.2.1-order-status': ordered('', 'statuses', (bench) => {
    const ids = randomIds(bench, 3)
    return [...ids, ids[0]]
  }),
  '4.2.2-schema-signing-data': whole(
    '',
    'contexts',
    (bench) => [knownQuestion(bench), 'Not_An_Identifier'],
    'one malformed identifier of two',
  ),
  '4.2.2-schema-submit': whole(
    ' before any item',
    'proposals',
    (bench) => {
      const [one, other] = unsigned(undefined, undefined)(bench)
      return [one, { ...other, proposer: 'nobody' }]
    },
    'one malformed item of two',
  ),
  '4.2.2-schema-status': [
    'schema validation applies to the whole request; a candidate id is a hyphenated UUID',
    (bench) => {
      const [one, two = ''] = randomIds(bench, 2)
      return [
        routes.batch('statuses', [one, 'nothing'], 'one malformed candidate id of two'),
        routes.batch(
          'statuses',
          [one, two.replaceAll('-', '')],
          'one candidate id without hyphens',
        ),
      ]
    },
    malformed,
    refusedWhole,
    4,
  ],
  '4.2.3-signing-data-items': [
    'a completed call answers 200 even if some items failed',
    sends('contexts', (bench) => [knownQuestion(bench), unknownQuestion(bench, 'c')]),
    [200],
    {
      'results.0.status_code': 200,
      'results.0.error': is.absent,
      'results.0.signing_data': is.there,
      'results.1.status_code': 404,
      ...itemError('results.1', 'signing_data'),
    },
    2,
  ],
  '4.2.3-submit-items': [
    'a completed call answers 200 even if all items failed',
    sends('proposals', unsigned('one', 'two'), random),
    [200],
    ({ seen: { listed } }) => ({ [`got items ${listed}, expected 403`]: listed === '403, 403' }),
    2,
  ],
  '7-item-errors': [
    'batch item errors carry error.code and error.detail',
    sends('proposals', unsigned(undefined), 'a random signature'),
    given,
    itemError('results.0', 'candidate'),
  ],
  '2.7-summary': [
    'summary counts accepted, replayed and rejected items',
    sends('proposals', unsigned('one', 'two'), random),
    given,
    summary,
    2,
  ],
  '5-batch-not-eligible': [
    'an item of an ineligible wallet is 403',
    sends('proposals', strangersItem, 'a random wallet as proposer'),
    given,
    { 'results.0.status_code': 403 },
  ],
  '4.2.6-unknown-candidate': [
    'unknown candidate ids give a per-item 404',
    sends('statuses', (bench) => randomIds(bench, 1), 'a random candidate id'),
    [200],
    ({ seen }) => (seen.results.length > 0 ? undefined : notSeen('there is no result')),
    { 'results.0.status_code': 404, ...itemError('results.0', 'candidate') },
  ],
})

/** Those of three items that have a candidate: they can be admitted, or not for each other. */
const batched = async (bench: Bench) => {
  const { seen, authorizations, questionId } = await bench.batchAdmitted()
  seen.given(200)
  const admitted = authorizations.flatMap((authorization, index) => {
    const candidate = seen.in(`results.${index}.candidate`)
    return is.given(candidate.json)
      ? [{ authorization, candidate, id: candidateIn(candidate) }]
      : []
  })
  const first = admitted[0] ?? notSeen('no item was admitted')
  return { seen, admitted, questionId, ...first }
}
type Batched = Awaited<ReturnType<typeof batched>>
/** Each of its candidates, in the results of another call. */
const candidates = ({ seen, admitted }: Batched) =>
  admitted.map((one, index) => ({ ...one, seen: seen.in(`results.${index}.candidate`) }))
const batch: Step = async ({ batchAdmitted }) => (await batchAdmitted()).seen

export const batchSubmissionRules = rulesOf('admit', {
  '4.2.2-before-items': [
    'schema validation refuses the whole request before any item is processed',
    async ({ batchAdmitted }) =>
      (await batchAdmitted()).malformed.with('a malformed item behind two that can be admitted'),
    malformed,
    refusedWhole,
    async ({ batchAdmitted }) => ({
      'its second item had been admitted anyway: it was later answered as a replay':
        (await batchAdmitted()).seen.codes[2] !== 200,
    }),
    3,
  ],
  '4.2.5-new': [
    'item 202: a new candidate was durably accepted, whatever happened to its siblings',
    batch,
    [200],
    ({ seen: { codes, listed } }) => {
      const [first, rival, other] = codes
      const isNew = codes.length === 3 && other === 202 && [first, rival].includes(202)
      return { [`got items ${listed}, expected 202, 409, 202`]: isNew }
    },
    3,
  ],
  ...about(batched, {
    '4.2.5-conflict': [
      'an item in conflict with an active payload is 409',
      async ({ seen, status, id, questionId }) => {
        const two = seen.codes.slice(0, 2)
        if (two.includes(202) && two.includes(409)) return '409'
        const now = await status(questionId, id)
        if (two.every((code) => code === 202) && hasEnded(now))
          notSeen('the first payload failed before its rival was examined')
        const sent = `sent ${seen.sent} with two payloads of one wallet for one question`
        throw new Fault(`${sent}; got ${two.map(String).join(', ')}, expected 202 and 409`)
      },
    ],
    '4.2.3-siblings': [
      'admitted items are not rolled back when a sibling fails',
      ({ admitted }) => {
        const ids = admitted.map(({ id }) => id)
        return routes.batch('statuses', ids)
      },
      given,
      ({ seen: { codes, listed }, admitted }) => ({
        'results.length': admitted.length,
        [`the status calls for the acknowledged candidates returned ${listed}`]: codes.every(
          (code) => code === 200,
        ),
      }),
      candidates,
      // Right after they were admitted, where there is neither yet.
      { submission: is.nullable, failure: is.nullable },
      ({ seen, candidate }) => ({
        'received_at is not that of the acknowledgement':
          is.absent(seen.at('received_at')) ||
          sameInstant(candidate.at('received_at'))(seen.at('received_at')),
      }),
      2,
    ],
  }),
  '2.7-candidate-fields': [
    'a result has candidate or error; a candidate has candidate_id, status, received_at and status_url',
    batch,
    given,
    { 'results.length': 3 },
    ({ seen }) => seen.results.map((json) => seen.as({ json })),
    ({ seen }) =>
      [200, 202].includes(Number(seen.at('status_code')))
        ? { candidate: is.given, error: is.absent }
        : { candidate: is.absent, error: is.given },
    ({ seen }) => (is.given(seen.at('candidate')) ? seen.in('candidate') : 'an error'),
    acknowledgement,
  ],
  ...about(batched, {
    '2.7-client-ref-echoed': [
      'client_ref is echoed in the result',
      ({ seen: { results } }) => ({
        'client_ref is not echoed': results.every((one) => at(one, 'client_ref') === 'conformance'),
      }),
    ],
    '2.7-client-ref-no-key': [
      'client_ref is no idempotency key',
      ({ admitted }) => ({
        'two items with one client_ref became one candidate':
          new Set(admitted.map(({ id }) => id)).size === admitted.length,
      }),
    ],
    '2.7-summary-accepted': ['summary counts accepted items', summary],
    '4.2.5-replay': [
      'item 200: an exact replay returns the existing candidate',
      async ({ propose, admitted }) =>
        (await propose(...admitted.map((one) => one.authorization))).with(
          'the very same items again',
        ),
      [200],
      ({ seen: { codes }, admitted }) => ({
        'results.length': admitted.length,
        'the items are not 200': codes.every((code) => code === 200),
      }),
      summary,
      candidates,
      acknowledgement,
      ({ id, candidate }) => ({
        candidate_id: id,
        received_at: sameInstant(candidate.at('received_at')),
      }),
      2,
    ],
    '2.7-status-url-unserved': [
      'the batch status_url points to a route that is not exposed',
      // Built here, never taken from the answer (R21).
      ({ id }) => routes.get(`/propose/status/${id}`),
      [404],
    ],
  }),
})
