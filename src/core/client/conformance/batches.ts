/** Rules of §4.2 and §2.7 about batches as such: sizes, order, whole-call schema, items that fail alone. Nothing here can be admitted. */
import { limits } from '../../protocol/schema.js'
import type { Bench } from './bench.js'
import { at, expectShape, expectStatus, expectThat, given, listAt, malformed, type Rule, rule, type Seen } from './rule.js'
import { ItemError } from './shapes.js'

const paths = { contexts: '/propose/batch/signing-data', submit: '/propose/batch', status: '/propose/batch/status' } as const

const statuses = ({ probe }: Bench, ids: readonly string[], wrong?: string): Promise<Seen> =>
  probe.send({
    method: 'POST',
    path: paths.status,
    body: { candidate_ids: ids },
    items: Math.max(1, ids.length),
    ...(wrong === undefined ? {} : { wrong }),
  })
const contexts = ({ probe }: Bench, identifiers: readonly string[], wrong?: string): Promise<Seen> =>
  probe.send({
    method: 'POST',
    path: paths.contexts,
    body: { identifiers },
    items: Math.max(1, identifiers.length),
    ...(wrong === undefined ? {} : { wrong }),
  })
const submit = ({ probe }: Bench, proposals: readonly unknown[], wrong?: string): Promise<Seen> =>
  probe.send({
    method: 'POST',
    path: paths.submit,
    body: { proposals },
    items: Math.max(1, proposals.length),
    ...(wrong === undefined ? {} : { wrong }),
  })

const randomIds = (bench: Bench, count: number) => Array.from({ length: count }, () => bench.ports.random.uuid())
const unknownQuestion = (bench: Bench, end: string) => `${bench.stranger}${end.repeat(24)}`

/** No call to be refused as a whole has results (§4.2 rule 4). */
function refusedWhole(seen: Seen, ...allowed: readonly number[]): string {
  const told = expectStatus(seen, ...allowed)
  expectThat(at(seen.json, 'results') === undefined, seen, 'a call refused as a whole has per-item results')
  return told
}

/** The order of results is that of what was asked (§4.2 rule 1). */
function inOrder(seen: Seen, field: string, asked: readonly string[]): string {
  const told = listAt(given(seen, 200).json, 'results').map((one) => at(one, field))
  // What is not told at all is another rule's.
  const shown = told.filter((one) => typeof one === 'string')
  expectThat(shown.join() === asked.filter((one) => shown.includes(one)).join(), seen, 'results are not in input order')
  expectThat(told.length === asked.length, seen, `came ${told.length} results for ${asked.length} items`)
  return `${asked.length} in order`
}

/** Everything about batches that needs nothing admitted. */
export const batchRules: readonly Rule[] = [
  rule('4.2.1-empty-signing-data', '§4.2 rule 1', 'read', 'each request carries 1-100 items', async (bench) =>
    refusedWhole(await contexts(bench, [], 'no item'), ...malformed),
  ),
  rule('4.2.1-empty-submit', '§4.2 rule 1', 'read', 'each request carries 1-100 items', async (bench) =>
    refusedWhole(await submit(bench, [], 'no item'), ...malformed),
  ),
  rule('4.2.1-empty-status', '§4.2 rule 1', 'read', 'each request carries 1-100 items', async (bench) =>
    refusedWhole(await statuses(bench, [], 'no item'), ...malformed),
  ),
  rule('4.2.1-items-100', '§4.2 rule 1', 'read', 'a batch holds up to 100 items', async (bench) =>
    expectStatus(await statuses(bench, randomIds(bench, limits.batchItems), '100 items'), 200),
  ),
  rule('4.2.1-items-101', '§4.2 rule 4', 'read', 'more than 100 items are refused as a whole', async (bench) =>
    refusedWhole(await statuses(bench, randomIds(bench, limits.batchItems + 1), '101 items'), 400, 413, 422),
  ),
  rule('4.2.1-order-signing-data', '§4.2 rule 1', 'read', 'results come back in input order', async (bench) => {
    const { question_id } = await bench.context()
    const asked = [unknownQuestion(bench, 'b'), question_id, unknownQuestion(bench, 'a')]
    return inOrder(await contexts(bench, asked), 'identifier', asked)
  }),
  rule('4.2.1-order-submit', '§4.2 rule 1', 'read', 'results come back in input order', async (bench) => {
    const refs = ['third', 'first', 'second']
    const items = await Promise.all(refs.map((ref) => bench.unsignedItem(ref)))
    return inOrder(await submit(bench, items, 'random signatures'), 'client_ref', refs)
  }),
  rule('4.2.1-order-status', '§4.2 rule 1', 'read', 'results come back in input order', async (bench) => {
    const asked = randomIds(bench, 3)
    return inOrder(await statuses(bench, asked), 'candidate_id', asked)
  }),
  rule('4.2.2-schema-signing-data', '§4.2 rule 2', 'read', 'schema validation applies to the whole request', async (bench) => {
    const { question_id } = await bench.context()
    return refusedWhole(await contexts(bench, [question_id, 'Not_An_Identifier'], 'one malformed identifier of two'), ...malformed)
  }),
  rule('4.2.2-schema-submit', '§4.2 rule 2', 'read', 'schema validation applies to the whole request before any item', async (bench) => {
    const items = [await bench.unsignedItem(), { ...(await bench.unsignedItem()), proposer: 'nobody' }]
    return refusedWhole(await submit(bench, items, 'one malformed item of two'), ...malformed)
  }),
  rule('4.2.3-signing-data-items', '§4.2 rule 3', 'read', 'a completed call answers 200 even if some items failed', async (bench) => {
    const { question_id } = await bench.context()
    const asked = [question_id, unknownQuestion(bench, 'c')]
    const seen = await contexts(bench, asked)
    expectStatus(seen, 200)
    const code = (identifier: string) =>
      at(
        listAt(seen.json, 'results').find((one) => at(one, 'identifier') === identifier),
        'status_code',
      )
    expectThat(code(question_id) === 200, seen, 'the known question was not answered 200 beside an unknown one')
    expectThat(code(asked[1] ?? '') === 404, seen, 'the unknown question is not a 404 of its own')
    return '200 and 404'
  }),
  rule('4.2.3-submit-items', '§4.2 rule 3', 'read', 'a completed call answers 200 even if all items failed', async (bench) => {
    const seen = await submit(bench, [await bench.unsignedItem(), await bench.unsignedItem()], 'random signatures')
    expectStatus(seen, 200)
    const codes = listAt(seen.json, 'results').map((one) => at(one, 'status_code'))
    expectThat(codes.length === 2 && codes.every((code) => code === 403), seen, `items came ${codes.join(', ')}, not 403`)
    return '200 with 403 and 403'
  }),
  rule('7-item-errors', '§7 rule 4', 'read', 'batch item errors carry error.code and error.detail', async (bench) => {
    const seen = given(await submit(bench, [await bench.unsignedItem()], 'a random signature'), 200)
    const [result] = listAt(seen.json, 'results')
    expectShape(seen, ItemError, result)
    return 'code and detail'
  }),
  rule('2.7-summary', '§2.7', 'read', 'summary counts accepted, replayed and rejected items', async (bench) => {
    const seen = given(await submit(bench, [await bench.unsignedItem(), await bench.unsignedItem()], 'random signatures'), 200)
    const told = ['accepted', 'replayed', 'rejected'].map((name) => at(seen.json, 'summary', name))
    expectThat(told.join() === '0,0,2', seen, 'summary is not accepted 0, replayed 0, rejected 2')
    return '0, 0, 2'
  }),
  rule('4.2.6-unknown-candidate', '§4.2 rule 6', 'read', 'unknown candidate ids give a per-item 404', async (bench) => {
    const seen = await statuses(bench, randomIds(bench, 1), 'a random candidate id')
    expectStatus(seen, 200)
    expectThat(at(seen.json, 'results', 0, 'status_code') === 404, seen, 'the item is not a 404')
    return '200 with 404'
  }),
]
