/**
 * Batches as such: sizes, order, whole-call schema, items that fail alone. Nothing can be
 * admitted.
 */
import { limits } from '../protocol/words.js'
import type { Bench } from './bench.js'
import { type Batch, batches, routes } from './probe.js'
import {
  at,
  codesOf,
  expectStatus,
  expectThat,
  given,
  listAt,
  malformed,
  NotSeen,
  type Run,
  rule,
  rulesOf,
  type Seen,
} from './rule.js'
import { expectMembers, isGiven, isText, isThere, isWord } from './shapes.js'

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
