/**
 * Rules of §4.2 and §2.7 about batches as such: sizes, order, whole-call schema, items that fail
 * alone. Nothing here can be admitted.
 */
import { limits } from '../protocol/schema.js'
import type { Bench } from './bench.js'
import {
  at,
  expectStatus,
  expectThat,
  given,
  listAt,
  malformed,
  NotSeen,
  type Rule,
  rule,
  type Seen,
} from './rule.js'
import { expectMembers, isGiven, isThere, isWord } from './shapes.js'

interface Batch {
  readonly path: string
  /** The list of a call. */
  readonly field: 'identifiers' | 'proposals' | 'candidate_ids'
  /** What a result says of its item. */
  readonly echo: 'identifier' | 'client_ref' | 'candidate_id'
}
const contexts: Batch = {
  path: '/propose/batch/signing-data',
  field: 'identifiers',
  echo: 'identifier',
}
const proposals: Batch = { path: '/propose/batch', field: 'proposals', echo: 'client_ref' }
const statuses: Batch = {
  path: '/propose/batch/status',
  field: 'candidate_ids',
  echo: 'candidate_id',
}

const send = (
  { probe }: Bench,
  { path, field }: Batch,
  list: readonly unknown[],
  wrong?: string,
): Promise<Seen> =>
  probe.send({
    method: 'POST',
    path,
    body: { [field]: list },
    items: Math.max(1, list.length),
    ...(wrong === undefined ? {} : { wrong }),
  })

const randomIds = (bench: Bench, count: number): readonly string[] =>
  Array.from({ length: count }, () => bench.ports.random.uuid())
const unknownQuestion = (bench: Bench, end: string) => `${bench.stranger}${end.repeat(24)}`
const unsigned = (bench: Bench, refs: readonly string[]) =>
  Promise.all(refs.map((ref) => bench.unsignedItem(ref)))
const resultsOf = (seen: Seen) => listAt(given(seen, 200).json, 'results')

/** No call to be refused as a whole has results (§4.2 rule 4). */
function refusedWhole(seen: Seen, ...allowed: readonly number[]): string {
  const told = expectStatus(seen, ...allowed)
  expectThat(
    at(seen.json, 'results') === undefined,
    seen,
    'a call refused as a whole has per-item results',
  )
  return told
}

/** The order of results is that of what was asked (§4.2 rule 1). */
function inOrder(seen: Seen, echo: Batch['echo'], asked: readonly string[]): string {
  const told = resultsOf(seen).map((one) => at(one, echo))
  expectThat(
    told.length === asked.length,
    seen,
    `came ${told.length} results for ${asked.length} items`,
  )
  const shown = told.filter((one) => typeof one === 'string')
  expectThat(shown.length === asked.length, seen, `results have no ${echo}`)
  expectThat(
    shown.join() === asked.join(),
    seen,
    `results are not in input order, or ${echo} is not that of the item`,
  )
  return `${asked.length} in order`
}

/** An item that failed has a code and a detail, and nothing beside them (§2.7, §7 rule 4). */
function expectItemError(seen: Seen, result: unknown, absent: 'signing_data' | 'candidate'): void {
  expectMembers(
    seen,
    { 'error.code': isWord, 'error.detail': (told) => typeof told === 'string' },
    result,
  )
  expectThat(!isGiven(at(result, absent)), seen, `a result has ${absent} beside its error`)
}

/** `summary` counts what the results say (§2.7). */
export function expectSummary(seen: Seen): string {
  const codes = resultsOf(seen).map((one) => at(one, 'status_code'))
  const count = (fits: (code: unknown) => boolean) => codes.filter(fits).length
  const own = {
    accepted: count((code) => code === 202),
    replayed: count((code) => code === 200),
    rejected: count((code) => code !== 202 && code !== 200),
  }
  for (const [name, items] of Object.entries(own)) {
    expectThat(
      at(seen.json, 'summary', name) === items,
      seen,
      `summary.${name} is not ${items}, as the results say`,
    )
  }
  return Object.values(own).join(', ')
}

const sizeRules: readonly Rule[] = [
  ...(
    [
      ['4.2.1-empty-signing-data', contexts],
      ['4.2.1-empty-submit', proposals],
      ['4.2.1-empty-status', statuses],
    ] as const
  ).map(([id, batch]) =>
    rule(id, '§4.2 rule 1', 'read', 'each request carries 1-100 items', async (bench) =>
      refusedWhole(await send(bench, batch, [], 'no item'), ...malformed),
    ),
  ),
  rule(
    '4.2.1-items-100',
    '§4.2 rule 1',
    'read',
    'a batch of statuses holds up to 100 items',
    async (bench) =>
      expectStatus(
        await send(bench, statuses, randomIds(bench, limits.batchItems), '100 items'),
        200,
      ),
    100,
  ),
  rule(
    '4.2.1-identifiers-100',
    '§4.2 rule 1',
    'read',
    'a batch of contexts holds up to 100 items',
    async (bench) => {
      const { question_id } = await bench.context()
      return expectStatus(
        await send(bench, contexts, Array(limits.batchItems).fill(question_id), '100 items'),
        200,
      )
    },
    100,
  ),
  rule(
    '4.2.1-proposals-100',
    '§4.2 rule 1',
    'read',
    'a batch of proposals holds up to 100 items',
    async (bench) => {
      // Of a wallet that nobody knows: the cheapest refusal there is.
      const item = { ...(await bench.unsignedItem()), proposer: bench.stranger }
      return expectStatus(
        await send(
          bench,
          proposals,
          Array(limits.batchItems).fill(item),
          '100 items of a random wallet',
        ),
        200,
      )
    },
    100,
  ),
  ...(
    [
      ['4.2.1-items-101', statuses],
      ['4.2.1-identifiers-101', contexts],
      ['4.2.1-proposals-101', proposals],
    ] as const
  ).map(([id, batch]) =>
    rule(
      id,
      '§4.2 rule 4',
      'read',
      `more than 100 items in ${batch.field} are refused as a whole`,
      async (bench) => {
        const count = limits.batchItems + 1
        const item =
          batch === proposals
            ? { ...(await bench.unsignedItem()), proposer: bench.stranger }
            : unknownQuestion(bench, 'd')
        const list = batch === statuses ? randomIds(bench, count) : Array(count).fill(item)
        return refusedWhole(await send(bench, batch, list, '101 items'), 400, 413, 422)
      },
      101,
    ),
  ),
]

const orderRules: readonly Rule[] = [
  rule(
    '4.2.1-order-signing-data',
    '§4.2 rule 1',
    'read',
    'results come back in input order, one for each item',
    async (bench) => {
      const { question_id } = await bench.context()
      const asked = [
        unknownQuestion(bench, 'b'),
        question_id,
        unknownQuestion(bench, 'a'),
        question_id,
      ]
      return inOrder(await send(bench, contexts, asked), contexts.echo, asked)
    },
    4,
  ),
  rule(
    '4.2.1-order-submit',
    '§4.2 rule 1',
    'read',
    'results come back in input order, one for each item, with the client_ref of failed items too',
    async (bench) => {
      const [third, first, second] = await unsigned(bench, ['third', 'first', 'second'])
      const refs = ['third', 'first', 'second', 'third']
      return inOrder(
        await send(bench, proposals, [third, first, second, third], 'random signatures'),
        proposals.echo,
        refs,
      )
    },
    4,
  ),
  rule(
    '4.2.1-order-status',
    '§4.2 rule 1',
    'read',
    'results come back in input order, one for each item',
    async (bench) => {
      const ids = randomIds(bench, 3)
      const asked = [...ids, ...ids.slice(0, 1)]
      return inOrder(await send(bench, statuses, asked), statuses.echo, asked)
    },
    4,
  ),
]

const schemaRules: readonly Rule[] = [
  rule(
    '4.2.2-schema-signing-data',
    '§4.2 rule 2',
    'read',
    'schema validation applies to the whole request',
    async (bench) => {
      const { question_id } = await bench.context()
      return refusedWhole(
        await send(
          bench,
          contexts,
          [question_id, 'Not_An_Identifier'],
          'one malformed identifier of two',
        ),
        ...malformed,
      )
    },
    2,
  ),
  rule(
    '4.2.2-schema-submit',
    '§4.2 rule 2',
    'read',
    'schema validation applies to the whole request before any item',
    async (bench) => {
      const items = [
        await bench.unsignedItem(),
        { ...(await bench.unsignedItem()), proposer: 'nobody' },
      ]
      return refusedWhole(
        await send(bench, proposals, items, 'one malformed item of two'),
        ...malformed,
      )
    },
    2,
  ),
  rule(
    '4.2.2-schema-status',
    '§4.2 rule 2',
    'read',
    'schema validation applies to the whole request; a candidate id is a hyphenated UUID',
    async (bench) => {
      const [one = '', two = ''] = randomIds(bench, 2)
      refusedWhole(
        await send(bench, statuses, [one, 'nothing'], 'one malformed candidate id of two'),
        ...malformed,
      )
      return refusedWhole(
        await send(
          bench,
          statuses,
          [one, two.replaceAll('-', '')],
          'one candidate id without hyphens',
        ),
        ...malformed,
      )
    },
    4,
  ),
]

const itemRules: readonly Rule[] = [
  rule(
    '4.2.3-signing-data-items',
    '§4.2 rule 3',
    'read',
    'a completed call answers 200 even if some items failed',
    async (bench) => {
      const { question_id } = await bench.context()
      const seen = await send(bench, contexts, [question_id, unknownQuestion(bench, 'c')])
      expectStatus(seen, 200)
      const [known, unknown] = listAt(seen.json, 'results')
      expectThat(
        at(known, 'status_code') === 200,
        seen,
        'the known question was not answered 200 beside an unknown one',
      )
      expectThat(
        !isGiven(at(known, 'error')) && isThere(at(known, 'signing_data')),
        seen,
        'the known question has an error, or no signing_data',
      )
      expectThat(
        at(unknown, 'status_code') === 404,
        seen,
        'the unknown question is not a 404 of its own',
      )
      expectItemError(seen, unknown, 'signing_data')
      return '200 and 404'
    },
    2,
  ),
  rule(
    '4.2.3-submit-items',
    '§4.2 rule 3',
    'read',
    'a completed call answers 200 even if all items failed',
    async (bench) => {
      const seen = await send(
        bench,
        proposals,
        await unsigned(bench, ['one', 'two']),
        'random signatures',
      )
      expectStatus(seen, 200)
      const codes = listAt(seen.json, 'results').map((one) => at(one, 'status_code'))
      expectThat(
        codes.length === 2 && codes.every((code) => code === 403),
        seen,
        `items came ${codes.map(String).join(', ')}, not 403`,
      )
      return '200 with 403 and 403'
    },
    2,
  ),
  rule(
    '7-item-errors',
    '§7 rule 4',
    'read',
    'batch item errors carry error.code and error.detail',
    async (bench) => {
      const seen = await send(bench, proposals, [await bench.unsignedItem()], 'a random signature')
      expectItemError(seen, resultsOf(seen)[0], 'candidate')
      return 'code and detail'
    },
  ),
  rule(
    '2.7-summary',
    '§2.7',
    'read',
    'summary counts accepted, replayed and rejected items',
    async (bench) =>
      expectSummary(
        await send(bench, proposals, await unsigned(bench, ['one', 'two']), 'random signatures'),
      ),
    2,
  ),
  rule(
    '5-batch-not-eligible',
    '§5',
    'read',
    'an item of an ineligible wallet is 403',
    async (bench) => {
      const item = { ...(await bench.unsignedItem()), proposer: bench.stranger }
      const seen = await send(bench, proposals, [item], 'a random wallet as proposer')
      const code = at(resultsOf(seen)[0], 'status_code')
      expectThat(code === 403, seen, `the item came ${String(code)}, not 403`)
      return '403'
    },
  ),
  rule(
    '4.2.6-unknown-candidate',
    '§4.2 rule 6',
    'read',
    'unknown candidate ids give a per-item 404',
    async (bench) => {
      const seen = await send(bench, statuses, randomIds(bench, 1), 'a random candidate id')
      expectStatus(seen, 200)
      const [result] = listAt(seen.json, 'results')
      if (result === undefined) throw new NotSeen('there is no result')
      expectThat(at(result, 'status_code') === 404, seen, 'the item is not a 404')
      expectItemError(seen, result, 'candidate')
      return '200 with 404'
    },
  ),
]

/** Everything about batches that needs nothing admitted. */
export const batchRules: readonly Rule[] = [
  ...sizeRules,
  ...orderRules,
  ...schemaRules,
  ...itemRules,
]
