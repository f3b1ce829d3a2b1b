/** Batches as such: sizes, order, whole-call schema, items that fail alone. */
import { limits } from '#protocol/words'
import { type Bench, candidateIn, hasEnded } from './admissions.js'
import {
  acknowledgement,
  at,
  eachFact,
  Fault,
  is,
  malformed,
  NotSeen,
  type Seen,
  sameInstant,
  statusMembers,
} from './answer.js'
import { type Batch, batches, routes } from './probe.js'
import { about, type Expect, type ProbeExchange, type RuleRow, rulesOf } from './rule.js'

type List = (bench: Bench) => readonly unknown[] | Promise<readonly unknown[]>
/** Sends a list of these; nothing of it can be admitted. */
const sends =
  (batch: Batch, list: List, wrong?: string): ProbeExchange =>
  async (bench) =>
    bench.batch(batch, await list(bench), wrong)
const sendsGiven =
  (...sent: Parameters<typeof sends>): ProbeExchange =>
  async (bench) =>
    (await sends(...sent)(bench)).given(200)

const randomIds = ({ ports }: Bench, count: number) =>
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
async function listOf(bench: Bench, batch: Batch, count: number) {
  if (batch === 'statuses') return randomIds(bench, count)
  if (batch === 'proposals') return Array(count).fill((await strangersItem(bench))[0])
  const isTooMany = count > limits.batchItems
  return Array(count).fill(
    isTooMany ? unknownQuestion(bench, 'd') : (await bench.context()).question_id,
  )
}

/** No call to be refused as a whole has results (§4.2 rule 4). */
const refusedWhole =
  (...allowed: readonly number[]): Expect =>
  (seen) => {
    const actual = seen.expect(...allowed)
    seen.holds({ 'a call refused as a whole has per-item results': !is.there(seen.at('results')) })
    return actual
  }

/** Results in the order of what was asked, one for each item. */
const inOrder =
  (batch: Batch, list: (bench: Bench) => Promise<readonly unknown[]>, wrong?: string) =>
  async (bench: Bench) => {
    const asked = await list(bench)
    const seen = (await bench.batch(batch, asked, wrong)).given(200)
    const { echo } = batches[batch]
    const actual = seen.results.map((one) => at(one, echo))
    const own = asked.map((one) => (is.text(one) ? one : at(one, echo)))
    const { length } = own
    seen.holds({
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
  (seen) => {
    seen.has({ 'error.code': is.word, 'error.detail': is.text }, seen.at(path))
    return { [`a result has ${absent} beside its error`]: !is.given(seen.at(`${path}.${absent}`)) }
  }

const counts = ['accepted', 'replayed', 'rejected'] as const
/** `summary` counts what the results say (§2.7). */
const hasSummary: Expect = ({ codes, json }) =>
  eachFact(counts, (name) => {
    const items = codes.filter(
      (code) => name === (code === 202 ? 'accepted' : code === 200 ? 'replayed' : 'rejected'),
    ).length
    return [
      `summary.${name} is not ${items}, the number in the results`,
      at(json, `summary.${name}`) === items,
    ]
  })
const summary: Expect = (seen) => counts.map((name) => seen.at(`summary.${name}`)).join(', ')

const counted = 'each request carries 1-100 items'
const empty = (batch: Batch): RuleRow => [
  counted,
  sends(batch, () => [], 'no item'),
  refusedWhole(...malformed),
]
const full = (batch: Batch, wrong = '100 items'): RuleRow => [
  `a batch of ${batch} holds up to 100 items`,
  sends(batch, (bench) => listOf(bench, batch, 100), wrong),
  [200],
  ({ results: { length } }) => ({ [`got ${length} results for 100 items`]: length === 100 }),
  100,
]
const overfull = (batch: Batch): RuleRow => [
  `more than 100 items in ${batches[batch].field} are refused as a whole`,
  sends(batch, (bench) => listOf(bench, batch, 101), '101 items'),
  refusedWhole(400, 413, 422),
  101,
]
const ordered = 'results come back in input order, one for each item'
const whole = 'schema validation applies to the whole request'

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
    whole,
    sends(
      'contexts',
      async (bench) => [(await bench.context()).question_id, 'Not_An_Identifier'],
      'one malformed identifier of two',
    ),
    refusedWhole(...malformed),
    2,
  ],
  '4.2.2-schema-submit': [
    `${whole} before any item`,
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
    `${whole}; a candidate id is a hyphenated UUID`,
    async (bench) => {
      const [one = '', two = ''] = randomIds(bench, 2)
      const wrongs = {
        'one malformed candidate id of two': 'nothing',
        'one candidate id without hyphens': two.replaceAll('-', ''),
      }
      let actual = ''
      for (const [wrong, id] of Object.entries(wrongs))
        actual = String(
          await refusedWhole(...malformed)(await bench.batch('statuses', [one, id], wrong), bench),
        )
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
    [200],
    ({ results: [known, unknown] }) => ({
      'the known question was not answered 200 beside an unknown one':
        at(known, 'status_code') === 200,
      'the known question has an error, or no signing_data':
        !is.given(at(known, 'error')) && is.there(at(known, 'signing_data')),
      'the unknown question has no 404 of its own': at(unknown, 'status_code') === 404,
    }),
    hasItemError('results.1', 'signing_data'),
    '200 and 404',
    2,
  ],
  '4.2.3-submit-items': [
    'a completed call answers 200 even if all items failed',
    sends('proposals', unsigned('one', 'two'), random),
    [200],
    ({ listed }) => ({ [`got items ${listed}, expected 403`]: listed === '403, 403' }),
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
    ({ codes: [code] }) => ({ [`got item ${String(code)}, expected 403`]: code === 403 }),
    '403',
  ],
  '4.2.6-unknown-candidate': [
    'unknown candidate ids give a per-item 404',
    sends('statuses', (bench) => randomIds(bench, 1), 'a random candidate id'),
    [200],
    ({ results: { length }, codes: [code] }) => {
      if (length === 0) throw new NotSeen('there is no result')
      return { 'the item is not a 404': code === 404 }
    },
    hasItemError('results.0', 'candidate'),
    '200 with 404',
  ],
})

/** The three items that can be admitted, or not for each other. */
const batch: ProbeExchange = async ({ admissions }) => (await admissions.batch()).seen
const batched: ProbeExchange = async (bench) => {
  const seen = (await batch(bench)).given(200)
  if ((await admittedIn(seen, bench)).length === 0) throw new NotSeen('no item was admitted')
  return seen
}
/** Those of its items that have a candidate. */
async function admittedIn({ results, sent }: Seen, { admissions }: Bench) {
  const { authorizations } = await admissions.batch()
  return authorizations.flatMap((authorization, index) => {
    const json = at(results[index], 'candidate')
    return is.given(json) ? [{ authorization, json, id: candidateIn({ json, sent }) }] : []
  })
}

export const batchSubmissionRules = rulesOf('admit', {
  '4.2.2-before-items': [
    'schema validation refuses the whole request before any item is processed',
    async ({ admissions }) =>
      (await admissions.batch()).malformed.with('a malformed item behind two that can be admitted'),
    refusedWhole(...malformed),
    async (_seen, bench) => ({
      'its second item had been admitted anyway: it was later answered as a replay':
        (await batch(bench)).codes[2] !== 200,
    }),
    'nothing admitted',
    3,
  ],
  '4.2.5-new': [
    'item 202: a new candidate was durably accepted, whatever happened to its siblings',
    batch,
    [200],
    ({ codes, listed }) => {
      const [first, rival, other] = codes
      const isNew = codes.length === 3 && other === 202 && [first, rival].includes(202)
      return { [`got items ${listed}, expected 202, 409, 202`]: isNew }
    },
    ({ listed }) => listed,
    3,
  ],
  '4.2.5-conflict': [
    'an item in conflict with an active payload is 409',
    batched,
    async (seen, bench) => {
      const two = seen.codes.slice(0, 2)
      if (two.includes(202) && two.includes(409)) return '409'
      const { questionId } = await bench.admissions.batch()
      const [admitted] = await admittedIn(seen, bench)
      const now = await bench.admissions.status(questionId, admitted?.id ?? '')
      if (two.every((code) => code === 202) && hasEnded(now))
        throw new NotSeen('the first payload failed before its rival was examined')
      const sent = `sent ${seen.sent} with two payloads of one wallet for one question`
      throw new Fault(`${sent}; got ${two.map(String).join(', ')}, expected 202 and 409`)
    },
  ],
  '4.2.3-siblings': [
    'admitted items are not rolled back when a sibling fails',
    batched,
    async (seen, bench) => {
      const admitted = await admittedIn(seen, bench)
      const status = await sendsGiven('statuses', () => admitted.map(({ id }) => id))(bench)
      const { codes, listed } = status
      const fault = `the status calls for the acknowledged candidates returned ${listed}`
      seen.holds({ [fault]: codes.every((code) => code === 200) })
      // Right after they were admitted, where there is neither yet.
      for (const [index, one] of status.results.entries()) {
        const candidate = at(one, 'candidate')
        const { status: _any, ...own } = statusMembers
        status.has(own, candidate)
        const now = at(candidate, 'received_at')
        const then = at(admitted[index]?.json, 'received_at')
        const isThen = !is.given(now) || sameInstant(then, now)
        status.holds({ 'received_at is not that of the acknowledgement': isThen })
      }
      return listed
    },
    2,
  ],
  '2.7-candidate-fields': [
    'a result has candidate or error; a candidate has candidate_id, status, received_at and status_url',
    batch,
    (seen) => {
      for (const one of seen.given(200).results) {
        const code = at(one, 'status_code')
        const isHeld = code === 200 || code === 202
        const result = `a result of ${String(code)}`
        const candidate = at(one, 'candidate')
        seen.holds({
          [`${result} ${isHeld ? 'lacks its' : 'has a'} candidate`]: is.given(candidate) === isHeld,
          [`${result} ${isHeld ? 'has an' : 'lacks its'} error`]:
            is.given(at(one, 'error')) !== isHeld,
        })
        if (isHeld) seen.has(acknowledgement, candidate)
      }
      return 'all named'
    },
  ],
  ...about(batched, {
    '2.7-client-ref-echoed': [
      'client_ref is echoed in the result',
      ({ results }) => ({
        'client_ref is not echoed': results.every((one) => at(one, 'client_ref') === 'conformance'),
      }),
      'echoed',
    ],
    '2.7-client-ref-no-key': [
      'client_ref is no idempotency key',
      async (seen, bench) => {
        const ids = (await admittedIn(seen, bench)).map(({ id }) => id)
        const { size } = new Set(ids)
        seen.holds({ 'two items with one client_ref became one candidate': size === ids.length })
        return `${size} candidates`
      },
    ],
    '2.7-summary-accepted': ['summary counts accepted items', hasSummary, summary],
  }),
  '4.2.5-replay': [
    'item 200: an exact replay returns the existing candidate',
    async (bench) => {
      const admitted = await admittedIn(await batched(bench), bench)
      const again = await bench.admissions.send(...admitted.map((one) => one.authorization))
      return again.with('the very same items again')
    },
    [200],
    async (seen, bench) => {
      const admitted = await admittedIn(await batched(bench), bench)
      const { codes, results } = seen
      const areReplays = codes.length === admitted.length && codes.every((code) => code === 200)
      seen.holds({ 'the items are not 200': areReplays })
      for (const [index, { id, json }] of admitted.entries()) {
        const candidate = at(results[index], 'candidate')
        const [then, now] = [json, candidate].map((one) => at(one, 'received_at'))
        seen.has(acknowledgement, candidate)
        seen.holds({
          'got other candidates': at(candidate, 'candidate_id') === id,
          'received_at differs from the first response': sameInstant(now, then),
        })
      }
      return hasSummary(seen, bench)
    },
    summary,
    2,
  ],
  '2.7-status-url-unserved': [
    'the batch status_url points to a route that is not exposed',
    async (bench) => {
      const [admitted] = await admittedIn(await batched(bench), bench)
      // Built here, never taken from the answer (R21).
      return bench.send(routes.get(`/propose/status/${admitted?.id}`))
    },
    [404],
  ],
})
