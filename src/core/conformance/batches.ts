/**
 * Batches as such: sizes, order, whole-call schema, items that fail alone. Nothing can be
 * admitted.
 */
import type { JournaledAuthorization } from '../client/journal/authorizations.js'
import { limits } from '../protocol/words.js'
import { candidateIn, hasEnded, places } from './admissions.js'
import type { Bench } from './bench.js'
import { type Batch, batches, routes } from './probe.js'
import {
  acknowledgement,
  at,
  codesOf,
  expectMembers,
  expectStatus,
  expectThat,
  Fault,
  given,
  isGiven,
  isNullable,
  isText,
  isThere,
  isWord,
  listAt,
  malformed,
  NotSeen,
  type Run,
  rule,
  rulesOf,
  type Seen,
  sameInstant,
  wrongly,
} from './rule.js'

const send = ({ probe }: Bench, batch: Batch, list: readonly unknown[], wrong?: string) =>
  probe.send(routes.batch(batch, list, wrong))

const randomIds = (bench: Bench, count: number): readonly string[] =>
  Array.from({ length: count }, () => bench.ports.random.uuid())
const unknownQuestion = (bench: Bench, end: string) => `${bench.stranger}${end.repeat(24)}`
const unsigned = (bench: Bench, refs: readonly string[]) =>
  Promise.all(refs.map((ref) => bench.unsignedItem(ref)))
/** Of a wallet that nobody knows: the cheapest refusal there is. */
const strangersItem = async (bench: Bench) => ({
  ...(await bench.unsignedItem()),
  proposer: bench.stranger,
})
const resultsOf = (seen: Seen) => listAt(given(seen, 200).json, 'results')

async function listOf(bench: Bench, batch: Batch, count: number): Promise<readonly unknown[]> {
  if (batch === 'statuses') return randomIds(bench, count)
  if (batch === 'proposals') return Array(count).fill(await strangersItem(bench))
  const isTooMany = count > limits.batchItems
  return Array(count).fill(
    isTooMany ? unknownQuestion(bench, 'd') : (await bench.context()).question_id,
  )
}

/** No call to be refused as a whole has results (§4.2 rule 4). */
export function refusedWhole(seen: Seen, ...allowed: readonly number[]): string {
  const actual = expectStatus(seen, ...allowed)
  const isWhole = at(seen.json, 'results') === undefined
  expectThat(isWhole, seen, 'a call refused as a whole has per-item results')
  return actual
}

function inOrder(seen: Seen, batch: Batch, asked: readonly string[]): string {
  const { echo } = batches[batch]
  const actual = resultsOf(seen).map((one) => at(one, echo))
  const { length } = asked
  expectThat(actual.length === length, seen, `got ${actual.length} results for ${length} items`)
  expectThat(actual.every(isText), seen, `results have no ${echo}`)
  const fault = `results are not in input order, or ${echo} does not match the item`
  expectThat(actual.join() === asked.join(), seen, fault)
  return `${length} in order`
}

/** An item that failed has a code and a detail, and nothing beside them (§2.7, §7 rule 4). */
function expectItemError(seen: Seen, result: unknown, absent: 'signing_data' | 'candidate'): void {
  expectMembers(seen, { 'error.code': isWord, 'error.detail': isText }, result)
  expectThat(!isGiven(at(result, absent)), seen, `a result has ${absent} beside its error`)
}

/** `summary` counts what the results say (§2.7). */
export function expectSummary(seen: Seen): string {
  const codes = codesOf(given(seen, 200))
  const count = (...wanted: readonly number[]) =>
    codes.filter((code) => wanted.some((one) => one === code)).length
  const own = {
    accepted: count(202),
    replayed: count(200),
    rejected: codes.length - count(200, 202),
  }
  for (const [name, items] of Object.entries(own)) {
    const isSame = at(seen.json, 'summary', name) === items
    expectThat(isSame, seen, `summary.${name} is not ${items}, the number in the results`)
  }
  return Object.values(own).join(', ')
}

const empty =
  (batch: Batch): Run =>
  async (bench) =>
    refusedWhole(await send(bench, batch, [], 'no item'), ...malformed)

const full =
  (batch: Batch, wrong = '100 items'): Run =>
  async (bench) => {
    const list = await listOf(bench, batch, limits.batchItems)
    const seen = await send(bench, batch, list, wrong)
    const actual = expectStatus(seen, 200)
    const { length } = listAt(seen.json, 'results')
    expectThat(length === list.length, seen, `got ${length} results for ${list.length} items`)
    return actual
  }

const overfull =
  (batch: Batch): Run =>
  async (bench) => {
    const list = await listOf(bench, batch, limits.batchItems + 1)
    return refusedWhole(await send(bench, batch, list, '101 items'), 400, 413, 422)
  }

export const batchRules = rulesOf('read', {
  '4.2.1-empty-signing-data': rule('each request carries 1-100 items', empty('contexts')),
  '4.2.1-empty-submit': rule('each request carries 1-100 items', empty('proposals')),
  '4.2.1-empty-status': rule('each request carries 1-100 items', empty('statuses')),
  '4.2.1-items-100': rule('a batch of statuses holds up to 100 items', 100, full('statuses')),
  '4.2.1-identifiers-100': rule('a batch of contexts holds up to 100 items', 100, full('contexts')),
  '4.2.1-proposals-100': rule(
    'a batch of proposals holds up to 100 items',
    100,
    full('proposals', '100 items of a random wallet'),
  ),
  '4.2.1-items-101': rule(
    'more than 100 items in candidate_ids are refused as a whole',
    101,
    overfull('statuses'),
  ),
  '4.2.1-identifiers-101': rule(
    'more than 100 items in identifiers are refused as a whole',
    101,
    overfull('contexts'),
  ),
  '4.2.1-proposals-101': rule(
    'more than 100 items in proposals are refused as a whole',
    101,
    overfull('proposals'),
  ),
  '4.2.1-order-signing-data': rule(
    'results come back in input order, one for each item',
    4,
    async (bench) => {
      const { question_id } = await bench.context()
      const [a, b] = [unknownQuestion(bench, 'a'), unknownQuestion(bench, 'b')]
      const asked = [b, question_id, a, question_id]
      return inOrder(await send(bench, 'contexts', asked), 'contexts', asked)
    },
  ),
  '4.2.1-order-submit': rule(
    'results come back in input order, one for each item, with the client_ref of failed items too',
    4,
    async (bench) => {
      const refs = ['third', 'first', 'second']
      const items = await unsigned(bench, refs)
      const seen = await send(bench, 'proposals', [...items, items[0]], 'random signatures')
      return inOrder(seen, 'proposals', [...refs, 'third'])
    },
  ),
  '4.2.1-order-status': rule(
    'results come back in input order, one for each item',
    4,
    async (bench) => {
      const ids = randomIds(bench, 3)
      const asked = [...ids, ...ids.slice(0, 1)]
      return inOrder(await send(bench, 'statuses', asked), 'statuses', asked)
    },
  ),
  '4.2.2-schema-signing-data': rule(
    'schema validation applies to the whole request',
    2,
    async (bench) => {
      const { question_id } = await bench.context()
      const list = [question_id, 'Not_An_Identifier']
      const wrong = 'one malformed identifier of two'
      return refusedWhole(await send(bench, 'contexts', list, wrong), ...malformed)
    },
  ),
  '4.2.2-schema-submit': rule(
    'schema validation applies to the whole request before any item',
    2,
    async (bench) => {
      const malformedItem = { ...(await bench.unsignedItem()), proposer: 'nobody' }
      const items = [await bench.unsignedItem(), malformedItem]
      const wrong = 'one malformed item of two'
      return refusedWhole(await send(bench, 'proposals', items, wrong), ...malformed)
    },
  ),
  '4.2.2-schema-status': rule(
    'schema validation applies to the whole request; a candidate id is a hyphenated UUID',
    4,
    async (bench) => {
      const [one = '', two = ''] = randomIds(bench, 2)
      const refused = async (id: string, wrong: string) =>
        refusedWhole(await send(bench, 'statuses', [one, id], wrong), ...malformed)
      await refused('nothing', 'one malformed candidate id of two')
      return refused(two.replaceAll('-', ''), 'one candidate id without hyphens')
    },
  ),
  '4.2.3-signing-data-items': rule(
    'a completed call answers 200 even if some items failed',
    2,
    async (bench) => {
      const { question_id } = await bench.context()
      const seen = await send(bench, 'contexts', [question_id, unknownQuestion(bench, 'c')])
      expectStatus(seen, 200)
      const [known, unknown] = listAt(seen.json, 'results')
      const isKnown = at(known, 'status_code') === 200
      expectThat(isKnown, seen, 'the known question was not answered 200 beside an unknown one')
      const isWhole = !isGiven(at(known, 'error')) && isThere(at(known, 'signing_data'))
      expectThat(isWhole, seen, 'the known question has an error, or no signing_data')
      const isUnknown = at(unknown, 'status_code') === 404
      expectThat(isUnknown, seen, 'the unknown question has no 404 of its own')
      expectItemError(seen, unknown, 'signing_data')
      return '200 and 404'
    },
  ),
  '4.2.3-submit-items': rule(
    'a completed call answers 200 even if all items failed',
    2,
    async (bench) => {
      const items = await unsigned(bench, ['one', 'two'])
      const seen = await send(bench, 'proposals', items, 'random signatures')
      expectStatus(seen, 200)
      const codes = codesOf(seen)
      const areRefused = codes.length === 2 && codes.every((code) => code === 403)
      expectThat(areRefused, seen, `got items ${codes.map(String).join(', ')}, expected 403`)
      return '200 with 403 and 403'
    },
  ),
  '7-item-errors': rule('batch item errors carry error.code and error.detail', async (bench) => {
    const items = [await bench.unsignedItem()]
    const seen = await send(bench, 'proposals', items, 'a random signature')
    expectItemError(seen, resultsOf(seen)[0], 'candidate')
    return 'code and detail'
  }),
  '2.7-summary': rule('summary counts accepted, replayed and rejected items', 2, async (bench) => {
    const items = await unsigned(bench, ['one', 'two'])
    return expectSummary(await send(bench, 'proposals', items, 'random signatures'))
  }),
  '5-batch-not-eligible': rule('an item of an ineligible wallet is 403', async (bench) => {
    const wrong = 'a random wallet as proposer'
    const seen = await send(bench, 'proposals', [await strangersItem(bench)], wrong)
    const code = at(resultsOf(seen)[0], 'status_code')
    expectThat(code === 403, seen, `got item ${String(code)}, expected 403`)
    return '403'
  }),
  '4.2.6-unknown-candidate': rule('unknown candidate ids give a per-item 404', async (bench) => {
    const seen = await send(bench, 'statuses', randomIds(bench, 1), 'a random candidate id')
    expectStatus(seen, 200)
    const [result] = listAt(seen.json, 'results')
    if (result === undefined) throw new NotSeen('there is no result')
    expectThat(at(result, 'status_code') === 404, seen, 'the item is not a 404')
    expectItemError(seen, result, 'candidate')
    return '200 with 404'
  }),
})

interface Batched {
  readonly seen: Seen
  readonly results: readonly unknown[]
  readonly codes: readonly unknown[]
  readonly admitted: readonly {
    readonly authorization: JournaledAuthorization
    readonly result: unknown
    readonly id: string
  }[]
}

async function batched(bench: Bench): Promise<Batched> {
  const { seen, authorizations } = await bench.admissions.batch()
  const results = listAt(given(seen, 200).json, 'results')
  const admitted = authorizations.flatMap((authorization, index) => {
    const result = results[index]
    const candidate = at(result, 'candidate')
    if (!isGiven(candidate)) return []
    return [{ authorization, result, id: candidateIn(candidate, seen.sent) }]
  })
  if (admitted.length === 0) throw new NotSeen('no item was admitted')
  return { seen, results, codes: codesOf(seen), admitted }
}

const listed = (codes: readonly unknown[]) => codes.map(String).join(', ')

export const batchSubmissionRules = rulesOf('admit', {
  '4.2.2-before-items': rule(
    'schema validation refuses the whole request before any item is processed',
    3,
    async (bench) => {
      const { seen, malformed: refused } = await bench.admissions.batch()
      const sent = wrongly(refused, 'a malformed item behind two that can be admitted')
      refusedWhole(sent, ...malformed)
      const fault = 'its second item had been admitted anyway: it was later answered as a replay'
      expectThat(codesOf(seen)[places.other] !== 200, sent, fault)
      return 'nothing admitted'
    },
  ),
  '4.2.5-new': rule(
    'item 202: a new candidate was durably accepted, whatever happened to its siblings',
    3,
    async (bench) => {
      const { seen } = await bench.admissions.batch()
      expectStatus(seen, 200)
      const codes = codesOf(seen)
      const isNew =
        codes[places.other] === 202 && [codes[places.first], codes[places.rival]].includes(202)
      const fault = `got items ${listed(codes)}, expected 202, 409, 202`
      expectThat(codes.length === 3 && isNew, seen, fault)
      return listed(codes)
    },
  ),
  '4.2.5-conflict': rule('an item in conflict with an active payload is 409', async (bench) => {
    const { seen, codes, admitted } = await batched(bench)
    const { pairs } = await bench.admissions.batch()
    const two = [codes[places.first], codes[places.rival]]
    if (two.includes(202) && two.includes(409)) return '409'
    const questionId = pairs[places.first]?.context.question_id ?? ''
    const now = await bench.admissions.status(questionId, admitted[0]?.id ?? '')
    if (two.every((code) => code === 202) && hasEnded(now.json))
      throw new NotSeen('the first payload failed before its rival was examined')
    const sent = `sent ${seen.sent} with two payloads of one wallet for one question`
    throw new Fault(`${sent}; got ${listed(two)}, expected 202 and 409`)
  }),
  '4.2.3-siblings': rule(
    'admitted items are not rolled back when a sibling fails',
    2,
    async (bench) => {
      const { seen, admitted } = await batched(bench)
      const ids = admitted.map(({ id }) => id)
      const status = given(await bench.probe.send(routes.batch('statuses', ids)), 200)
      const codes = codesOf(status)
      const fault = `the status calls for the acknowledged candidates returned ${listed(codes)}`
      expectThat(
        codes.every((code) => code === 200),
        seen,
        fault,
      )
      // Right after they were admitted, where there is neither yet.
      for (const [index, one] of listAt(status.json, 'results').entries()) {
        const candidate = at(one, 'candidate')
        expectMembers(status, { submission: isNullable, failure: isNullable }, candidate)
        const [then, now] = [
          at(admitted[index]?.result, 'candidate', 'received_at'),
          at(candidate, 'received_at'),
        ]
        const isThen = !isGiven(now) || sameInstant(then, now)
        expectThat(isThen, status, 'received_at is not that of the acknowledgement')
      }
      return listed(codes)
    },
  ),
  '2.7-candidate-fields': rule(
    'a result has candidate or error; a candidate has candidate_id, status, received_at and status_url',
    async (bench) => {
      const { seen } = await bench.admissions.batch()
      for (const one of listAt(given(seen, 200).json, 'results')) {
        const code = at(one, 'status_code')
        const isHeld = [200, 202].includes(Number(code))
        const result = `a result of ${String(code)}`
        const candidate = at(one, 'candidate')
        const wrongCandidate = `${result} ${isHeld ? 'lacks its' : 'has a'} candidate`
        expectThat(isGiven(candidate) === isHeld, seen, wrongCandidate)
        const wrongError = `${result} ${isHeld ? 'has an' : 'lacks its'} error`
        expectThat(isGiven(at(one, 'error')) !== isHeld, seen, wrongError)
        if (isHeld) expectMembers(seen, acknowledgement, candidate)
      }
      return 'all named'
    },
  ),
  '2.7-client-ref-echoed': rule('client_ref is echoed in the result', async (bench) => {
    const { seen, results } = await batched(bench)
    const areEchoed = results.every((one) => at(one, 'client_ref') === 'conformance')
    expectThat(areEchoed, seen, 'client_ref is not echoed')
    return 'echoed'
  }),
  '2.7-client-ref-no-key': rule('client_ref is no idempotency key', async (bench) => {
    const { seen, admitted } = await batched(bench)
    const ids = new Set(admitted.map(({ id }) => id))
    const fault = 'two items with one client_ref became one candidate'
    expectThat(ids.size === admitted.length, seen, fault)
    return `${ids.size} candidates`
  }),
  '2.7-summary-accepted': rule('summary counts accepted items', async (bench) =>
    expectSummary((await batched(bench)).seen),
  ),
  '4.2.5-replay': rule(
    'item 200: an exact replay returns the existing candidate',
    2,
    async (bench) => {
      const { admitted } = await batched(bench)
      const authorizations = admitted.map(({ authorization }) => authorization)
      const again = await bench.admissions.sendBatch(authorizations)
      const seen = wrongly(again, 'the very same items again')
      expectStatus(seen, 200)
      const codes = codesOf(seen)
      const areReplays = codes.length === admitted.length && codes.every((code) => code === 200)
      expectThat(areReplays, seen, 'the items are not 200')
      for (const [index, { id, result }] of admitted.entries()) {
        const candidate = at(seen.json, 'results', index, 'candidate')
        expectMembers(seen, acknowledgement, candidate)
        expectThat(at(candidate, 'candidate_id') === id, seen, 'got other candidates')
        const firstTime = at(result, 'candidate', 'received_at')
        const isThen = sameInstant(at(candidate, 'received_at'), firstTime)
        expectThat(isThen, seen, 'received_at differs from the first response')
      }
      return expectSummary(seen)
    },
  ),
  '2.7-status-url-unserved': rule(
    'the batch status_url points to a route that is not exposed',
    async (bench) => {
      const { admitted } = await batched(bench)
      // Built here, never taken from the answer (R21).
      const path = `/propose/status/${admitted[0]?.id}`
      return expectStatus(await bench.probe.send({ method: 'GET', path }), 404)
    },
  ),
})
