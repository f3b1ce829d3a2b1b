/** Batches as such: sizes, order, whole-call schema, items that fail alone. */
import type { JournaledAuthorization } from '#client/journal/authorizations'
import { limits } from '#protocol/words'
import { candidateIn, hasEnded, places } from './admissions.js'
import type { Bench } from './bench.js'
import { type Batch, batches, routes } from './probe.js'
import {
  about,
  acknowledgement,
  answers,
  at,
  codesIn,
  type Expect,
  expectAll,
  expectMembers,
  expectStatus,
  Fault,
  given,
  is,
  malformed,
  NotSeen,
  type ProbeExchange,
  type RuleRow,
  resultsIn,
  rulesOf,
  type Seen,
  sameInstant,
  wrongly,
} from './rule.js'

/** Sends a list of these; nothing of it can be admitted. */
const sends =
  (
    batch: Batch,
    list: (bench: Bench) => readonly unknown[] | Promise<readonly unknown[]>,
    wrong?: string,
  ): ProbeExchange =>
  async (bench) =>
    bench.probe.send(routes.batch(batch, await list(bench)), wrong)

const sendsGiven =
  (...sent: Parameters<typeof sends>): ProbeExchange =>
  async (bench) =>
    given(await sends(...sent)(bench), 200)

const randomIds = ({ ports }: Bench, count: number): readonly string[] =>
  Array.from({ length: count }, () => ports.random.uuid())
const unknownQuestion = ({ stranger }: Bench, end: string) => `${stranger}${end.repeat(24)}`
const unsigned =
  (...refs: readonly (string | undefined)[]) =>
  (bench: Bench) =>
    Promise.all(refs.map((ref) => bench.unsignedItem(ref)))
/** Of a wallet that nobody knows: the cheapest refusal there is. */
const strangersItem = async (bench: Bench) => [
  { ...(await bench.unsignedItem()), proposer: bench.stranger },
]
const random = 'random signatures'

/** As many items of a call; whatever is asked about more than 100 contexts is refused unseen. */
async function listOf(bench: Bench, batch: Batch, count: number): Promise<readonly unknown[]> {
  if (batch === 'statuses') return randomIds(bench, count)
  if (batch === 'proposals') return Array(count).fill((await strangersItem(bench))[0])
  const isTooMany = count > limits.batchItems
  return Array(count).fill(
    isTooMany ? unknownQuestion(bench, 'd') : (await bench.context()).question_id,
  )
}

/** No call to be refused as a whole has results (§4.2 rule 4). */
function expectWhole(seen: Seen, ...allowed: readonly number[]): string {
  const actual = expectStatus(seen, ...allowed)
  const isWhole = at(seen.json, 'results') === undefined
  expectAll(seen, { 'a call refused as a whole has per-item results': isWhole })
  return actual
}
const refusedWhole =
  (...allowed: readonly number[]): Expect =>
  (_json, _bench, seen) =>
    expectWhole(seen, ...allowed)

/** Results in the order of what was asked, one for each item. */
const inOrder =
  (batch: Batch, list: (bench: Bench) => Promise<readonly unknown[]>, wrong?: string) =>
  async (bench: Bench) => {
    const asked = await list(bench)
    const seen = given(await sends(batch, () => asked, wrong)(bench), 200)
    const { echo } = batches[batch]
    const actual = resultsIn(seen.json).map((one) => at(one, echo))
    const own = asked.map((one) => (is.text(one) ? one : at(one, echo)))
    const { length } = own
    expectAll(seen, {
      [`got ${actual.length} results for ${length} items`]: actual.length === length,
      [`results have no ${echo}`]: actual.every(is.text),
      [`results are not in input order, or ${echo} does not match the item`]:
        actual.join() === own.join(),
    })
    return `${length} in order`
  }

/** An item that failed has a code and a detail, and nothing beside them (§2.7, §7 rule 4). */
const hasItemError =
  (path: string, absent: 'signing_data' | 'candidate'): Expect =>
  (json, _bench, seen) => {
    expectMembers(seen, { 'error.code': is.word, 'error.detail': is.text }, at(json, path))
    return { [`a result has ${absent} beside its error`]: !is.given(at(json, `${path}.${absent}`)) }
  }

/** `summary` counts what the results say (§2.7). */
const hasSummary: Expect = (json) => {
  const codes = codesIn(json)
  const [accepted, replayed] = [202, 200].map((code) => codes.filter((one) => one === code).length)
  const own = { accepted, replayed, rejected: codes.length - Number(accepted) - Number(replayed) }
  return Object.fromEntries(
    Object.entries(own).map(([name, items]) => [
      `summary.${name} is not ${items}, the number in the results`,
      at(json, `summary.${name}`) === items,
    ]),
  )
}
const summary = (json: unknown) =>
  ['accepted', 'replayed', 'rejected'].map((name) => at(json, `summary.${name}`)).join(', ')

const counted = 'each request carries 1-100 items'
const empty = (batch: Batch): RuleRow => [
  counted,
  sends(batch, () => [], 'no item'),
  refusedWhole(...malformed),
]
const full = (batch: Batch, wrong = '100 items'): RuleRow => [
  `a batch of ${batch} holds up to 100 items`,
  sends(batch, (bench) => listOf(bench, batch, 100), wrong),
  answers(200),
  (json) => {
    const { length } = resultsIn(json)
    return { [`got ${length} results for 100 items`]: length === 100 }
  },
  100,
]
const overfull = (batch: Batch): RuleRow => [
  `more than 100 items in ${batches[batch].field} are refused as a whole`,
  sends(batch, (bench) => listOf(bench, batch, 101), '101 items'),
  refusedWhole(400, 413, 422),
  101,
]
const ordered = 'results come back in input order, one for each item'

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
  '4.2.1-order-signing-data': [
    ordered,
    inOrder('contexts', async (bench) => {
      const { question_id } = await bench.context()
      const [a, b] = [unknownQuestion(bench, 'a'), unknownQuestion(bench, 'b')]
      return [b, question_id, a, question_id]
    }),
    4,
  ],
  '4.2.1-order-submit': [
    `${ordered}, with the client_ref of failed items too`,
    inOrder(
      'proposals',
      async (bench) => {
        const items = await unsigned('third', 'first', 'second')(bench)
        return [...items, items[0]]
      },
      random,
    ),
    4,
  ],
  '4.2.1-order-status': [
    ordered,
    inOrder('statuses', async (bench) => {
      const ids = randomIds(bench, 3)
      return [...ids, ids[0]]
    }),
    4,
  ],
  '4.2.2-schema-signing-data': [
    'schema validation applies to the whole request',

    sends(
      'contexts',
      async (bench) => [(await bench.context()).question_id, 'Not_An_Identifier'],
      'one malformed identifier of two',
    ),
    refusedWhole(...malformed),
    2,
  ],
  '4.2.2-schema-submit': [
    'schema validation applies to the whole request before any item',

    sends(
      'proposals',
      async (bench) => {
        const broken = { ...(await bench.unsignedItem()), proposer: 'nobody' }
        return [await bench.unsignedItem(), broken]
      },
      'one malformed item of two',
    ),
    refusedWhole(...malformed),
    2,
  ],
  '4.2.2-schema-status': [
    'schema validation applies to the whole request; a candidate id is a hyphenated UUID',
    async (bench) => {
      const [one = '', two = ''] = randomIds(bench, 2)
      const wrongs = {
        'one malformed candidate id of two': 'nothing',
        'one candidate id without hyphens': two.replaceAll('-', ''),
      }
      let actual = ''
      for (const [wrong, id] of Object.entries(wrongs)) {
        const seen = await sends('statuses', () => [one, id], wrong)(bench)
        actual = expectWhole(seen, ...malformed)
      }
      return actual
    },
    4,
  ],
  '4.2.3-signing-data-items': [
    'a completed call answers 200 even if some items failed',

    sends('contexts', async (bench) => [
      (await bench.context()).question_id,
      unknownQuestion(bench, 'c'),
    ]),
    answers(200),
    (json) => {
      const [known, unknown] = resultsIn(json)
      return {
        'the known question was not answered 200 beside an unknown one':
          at(known, 'status_code') === 200,
        'the known question has an error, or no signing_data':
          !is.given(at(known, 'error')) && is.there(at(known, 'signing_data')),
        'the unknown question has no 404 of its own': at(unknown, 'status_code') === 404,
      }
    },
    hasItemError('results.1', 'signing_data'),
    '200 and 404',
    2,
  ],
  '4.2.3-submit-items': [
    'a completed call answers 200 even if all items failed',

    sends('proposals', unsigned('one', 'two'), random),
    answers(200),
    (json) => {
      const codes = listed(codesIn(json))
      return { [`got items ${codes}, expected 403`]: codes === '403, 403' }
    },
    '200 with 403 and 403',
    2,
  ],
  '7-item-errors': [
    'batch item errors carry error.code and error.detail',

    sendsGiven('proposals', unsigned(undefined), 'a random signature'),
    hasItemError('results.0', 'candidate'),
    'code and detail',
  ],
  '2.7-summary': [
    'summary counts accepted, replayed and rejected items',
    sendsGiven('proposals', unsigned('one', 'two'), random),
    hasSummary,
    summary,
    2,
  ],
  '5-batch-not-eligible': [
    'an item of an ineligible wallet is 403',

    sendsGiven('proposals', strangersItem, 'a random wallet as proposer'),
    (json) => {
      const [code] = codesIn(json)
      return { [`got item ${String(code)}, expected 403`]: code === 403 }
    },
    '403',
  ],
  '4.2.6-unknown-candidate': [
    'unknown candidate ids give a per-item 404',

    sends('statuses', (bench) => randomIds(bench, 1), 'a random candidate id'),
    answers(200),
    (json) => {
      const [result] = resultsIn(json)
      if (result === undefined) throw new NotSeen('there is no result')
      return { 'the item is not a 404': at(result, 'status_code') === 404 }
    },
    hasItemError('results.0', 'candidate'),
    '200 with 404',
  ],
})

const listed = (codes: readonly unknown[]) => codes.map(String).join(', ')

/** The three items that can be admitted, or not for each other. */
const batch: ProbeExchange = async (bench) => (await bench.admissions.batch()).seen
const batched: ProbeExchange = async (bench) => {
  const seen = given(await batch(bench), 200)
  if ((await admittedIn(seen, bench)).length === 0) throw new NotSeen('no item was admitted')
  return seen
}
interface Admitted {
  readonly authorization: JournaledAuthorization
  readonly result: unknown
  readonly id: string
}
async function admittedIn(seen: Seen, bench: Bench): Promise<readonly Admitted[]> {
  const { authorizations } = await bench.admissions.batch()
  const results = resultsIn(seen.json)
  return authorizations.flatMap((authorization, index) => {
    const result = results[index]
    const candidate = at(result, 'candidate')
    return is.given(candidate)
      ? [{ authorization, result, id: candidateIn(candidate, seen.sent) }]
      : []
  })
}

export const batchSubmissionRules = rulesOf('admit', {
  '4.2.2-before-items': [
    'schema validation refuses the whole request before any item is processed',

    async (bench) => {
      const { malformed: refused } = await bench.admissions.batch()
      return wrongly(refused, 'a malformed item behind two that can be admitted')
    },
    refusedWhole(...malformed),
    async (_json, bench) => ({
      'its second item had been admitted anyway: it was later answered as a replay':
        codesIn((await batch(bench)).json)[places.other] !== 200,
    }),
    'nothing admitted',
    3,
  ],
  '4.2.5-new': [
    'item 202: a new candidate was durably accepted, whatever happened to its siblings',

    batch,
    answers(200),
    (json) => {
      const codes = codesIn(json)
      const [first, rival, other] = codes
      const isNew = codes.length === 3 && other === 202 && [first, rival].includes(202)
      return { [`got items ${listed(codes)}, expected 202, 409, 202`]: isNew }
    },
    (json) => listed(codesIn(json)),
    3,
  ],
  '4.2.5-conflict': [
    'an item in conflict with an active payload is 409',
    batched,
    async (json, bench, seen) => {
      const two = codesIn(json).slice(0, 2)
      if (two.includes(202) && two.includes(409)) return '409'
      const { pairs } = await bench.admissions.batch()
      const [admitted] = await admittedIn(seen, bench)
      const questionId = pairs[places.first]?.context.question_id ?? ''
      const now = await bench.admissions.status(questionId, admitted?.id ?? '')
      if (two.every((code) => code === 202) && hasEnded(now.json))
        throw new NotSeen('the first payload failed before its rival was examined')
      const sent = `sent ${seen.sent} with two payloads of one wallet for one question`
      throw new Fault(`${sent}; got ${listed(two)}, expected 202 and 409`)
    },
  ],
  '4.2.3-siblings': [
    'admitted items are not rolled back when a sibling fails',
    batched,
    async (_json, bench, seen) => {
      const admitted = await admittedIn(seen, bench)
      const status = await sendsGiven('statuses', () => admitted.map(({ id }) => id))(bench)
      const codes = codesIn(status.json)
      const fault = `the status calls for the acknowledged candidates returned ${listed(codes)}`
      expectAll(seen, { [fault]: codes.every((code) => code === 200) })
      // Right after they were admitted, where there is neither yet.
      for (const [index, one] of resultsIn(status.json).entries()) {
        const candidate = at(one, 'candidate')
        expectMembers(status, { submission: is.nullable, failure: is.nullable }, candidate)
        const now = at(candidate, 'received_at')
        const then = at(admitted[index]?.result, 'candidate.received_at')
        const isThen = !is.given(now) || sameInstant(then, now)
        expectAll(status, { 'received_at is not that of the acknowledgement': isThen })
      }
      return listed(codes)
    },
    2,
  ],
  '2.7-candidate-fields': [
    'a result has candidate or error; a candidate has candidate_id, status, received_at and status_url',
    batch,
    (json, _bench, seen) => {
      given(seen, 200)
      for (const one of resultsIn(json)) {
        const code = at(one, 'status_code')
        const isHeld = code === 200 || code === 202
        const result = `a result of ${String(code)}`
        const candidate = at(one, 'candidate')
        expectAll(seen, {
          [`${result} ${isHeld ? 'lacks its' : 'has a'} candidate`]: is.given(candidate) === isHeld,
          [`${result} ${isHeld ? 'has an' : 'lacks its'} error`]:
            is.given(at(one, 'error')) !== isHeld,
        })
        if (isHeld) expectMembers(seen, acknowledgement, candidate)
      }
      return 'all named'
    },
  ],
  ...about(batched, {
    '2.7-client-ref-echoed': [
      'client_ref is echoed in the result',
      (json) => ({
        'client_ref is not echoed': resultsIn(json).every(
          (one) => at(one, 'client_ref') === 'conformance',
        ),
      }),
      'echoed',
    ],
    '2.7-client-ref-no-key': [
      'client_ref is no idempotency key',
      async (_json, bench, seen) => {
        const ids = (await admittedIn(seen, bench)).map(({ id }) => id)
        const { size } = new Set(ids)
        const isEach = size === ids.length
        expectAll(seen, { 'two items with one client_ref became one candidate': isEach })
        return `${size} candidates`
      },
    ],
    '2.7-summary-accepted': ['summary counts accepted items', hasSummary, summary],
  }),
  '4.2.5-replay': [
    'item 200: an exact replay returns the existing candidate',

    async (bench) => {
      const admitted = await admittedIn(await batched(bench), bench)
      const authorizations = admitted.map(({ authorization }) => authorization)
      const again = await bench.admissions.sendBatch(authorizations)
      return wrongly(again, 'the very same items again')
    },
    answers(200),
    async (json, bench, seen) => {
      const admitted = await admittedIn(await batched(bench), bench)
      const codes = codesIn(json)
      const areReplays = codes.length === admitted.length && codes.every((code) => code === 200)
      expectAll(seen, { 'the items are not 200': areReplays })
      for (const [index, { id, result }] of admitted.entries()) {
        const candidate = at(resultsIn(json)[index], 'candidate')
        const [then, now] = [result, { candidate }].map((one) => at(one, 'candidate.received_at'))
        expectMembers(seen, acknowledgement, candidate)
        expectAll(seen, {
          'got other candidates': at(candidate, 'candidate_id') === id,
          'received_at differs from the first response': sameInstant(now, then),
        })
      }
      return hasSummary(json, bench, seen)
    },
    summary,
    2,
  ],
  '2.7-status-url-unserved': [
    'the batch status_url points to a route that is not exposed',
    async (bench) => {
      const [admitted] = await admittedIn(await batched(bench), bench)
      // Built here, never taken from the answer (R21).
      return bench.probe.send(routes.get(`/propose/status/${admitted?.id}`))
    },
    answers(404),
  ],
})
