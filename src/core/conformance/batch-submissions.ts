/**
 * Rules of §2.7, §4.1 rule 3 and §4.2 rules 2, 3 and 5 about items that are admitted, beside one
 * that is in conflict with another.
 */
import type { Authorization } from '../client/journal/authorizations.js'
import { candidateIn, hasEnded, places } from './admissions.js'
import { expectSummary } from './batches.js'
import type { Bench } from './bench.js'
import {
  at,
  expectStatus,
  expectThat,
  Fault,
  given,
  listAt,
  malformed,
  NotSeen,
  type Rule,
  rule,
  type Seen,
} from './rule.js'
import {
  expectMembers,
  isGiven,
  isInstant,
  isNullable,
  isThere,
  isUuid,
  isWord,
  sameInstant,
} from './shapes.js'
import { wrongly } from './submissions.js'

interface Batched {
  readonly seen: Seen
  readonly results: readonly unknown[]
  readonly codes: readonly unknown[]
  /** What was admitted, with its results. */
  readonly held: readonly {
    readonly authorization: Authorization
    readonly result: unknown
    readonly id: string
  }[]
}

async function batched(bench: Bench): Promise<Batched> {
  const { seen, authorizations } = await bench.admissions.batch()
  const results = listAt(given(seen, 200).json, 'results')
  const held = authorizations.flatMap((authorization, index) => {
    const result = results[index]
    return isGiven(at(result, 'candidate'))
      ? [{ authorization, result, id: candidateIn(at(result, 'candidate'), seen.sent) }]
      : []
  })
  if (held.length === 0) throw new NotSeen('no item was admitted')
  return { seen, results, codes: results.map((one) => at(one, 'status_code')), held }
}

const listed = (codes: readonly unknown[]) => codes.map(String).join(', ')

/** Of the batch routes. */
export const batchSubmissionRules: readonly Rule[] = [
  rule(
    '4.2.2-before-items',
    '§4.2 rule 2',
    'admit',
    'schema validation refuses the whole request before any item is processed',
    async (bench) => {
      const { seen, malformed: refused } = await bench.admissions.batch()
      const sent = wrongly(refused, 'a malformed item behind two that can be admitted')
      expectStatus(sent, ...malformed)
      expectThat(
        at(sent.json, 'results') === undefined,
        sent,
        'a call refused as a whole has per-item results',
      )
      const other = at(seen.json, 'results', places.other, 'status_code')
      expectThat(
        other !== 200,
        sent,
        'its second item had been admitted all the same, and was answered as a replay afterwards',
      )
      return 'nothing admitted'
    },
    3,
  ),
  rule(
    '4.2.5-new',
    '§4.2 rule 5',
    'admit',
    'item 202: a new candidate was durably accepted, whatever became of a sibling',
    async (bench) => {
      const { seen } = await bench.admissions.batch()
      expectStatus(seen, 200)
      const codes = listAt(seen.json, 'results').map((one) => at(one, 'status_code'))
      const isNew =
        codes[places.other] === 202 && [codes[places.first], codes[places.rival]].includes(202)
      expectThat(
        codes.length === 3 && isNew,
        seen,
        `items came ${listed(codes)}, not 202, 409, 202`,
      )
      return listed(codes)
    },
    3,
  ),
  rule(
    '4.2.5-conflict',
    '§4.1 rule 3',
    'admit',
    'an item in conflict with an active payload is 409',
    async (bench) => {
      const { seen, codes, held } = await batched(bench)
      const { pairs } = await bench.admissions.batch()
      const two = [codes[places.first], codes[places.rival]]
      if (two.includes(202) && two.includes(409)) return '409'
      const isRefused = two.some((code) => code !== 202)
      const [first] = held
      const now = await bench.admissions.status(
        pairs[places.first]?.context.question_id ?? '',
        first?.id ?? '',
      )
      if (!isRefused && hasEnded(now.json))
        throw new NotSeen('the first payload failed before its rival was looked at')
      throw new Fault(
        `sent ${seen.sent} with two payloads of one wallet for one question; they came ${listed(two)}, not 202 and 409`,
      )
    },
  ),
  rule(
    '4.2.3-siblings',
    '§4.2 rule 3',
    'admit',
    'admitted items are not rolled back when a sibling fails',
    async (bench) => {
      const { seen, held } = await batched(bench)
      const ids = held.map(({ id }) => id)
      const call = {
        method: 'POST',
        path: '/propose/batch/status',
        body: { candidate_ids: ids },
        items: ids.length,
      } as const
      const status = given(await bench.probe.send(call), 200)
      const codes = listAt(status.json, 'results').map((one) => at(one, 'status_code'))
      expectThat(
        codes.every((code) => code === 200),
        seen,
        `of the candidates that were acknowledged the statuses came ${listed(codes)}`,
      )
      // Right after they were admitted, where there is neither yet.
      for (const one of listAt(status.json, 'results')) {
        expectMembers(status, { submission: isNullable, failure: isNullable }, at(one, 'candidate'))
      }
      return listed(codes)
    },
    2,
  ),
  rule(
    '2.7-candidate-fields',
    '§2.7',
    'admit',
    'a result has candidate or error; a candidate has candidate_id, status, received_at and status_url',
    async (bench) => {
      const { seen } = await bench.admissions.batch()
      for (const one of listAt(given(seen, 200).json, 'results')) {
        const isHeld = [200, 202].includes(Number(at(one, 'status_code')))
        expectThat(
          isGiven(at(one, 'candidate')) === isHeld,
          seen,
          `a result of ${String(at(one, 'status_code'))} ${isHeld ? 'lacks its' : 'has a'} candidate`,
        )
        expectThat(
          isGiven(at(one, 'error')) !== isHeld,
          seen,
          `a result of ${String(at(one, 'status_code'))} ${isHeld ? 'has an' : 'lacks its'} error`,
        )
        if (isHeld)
          expectMembers(
            seen,
            { candidate_id: isUuid, status: isWord, received_at: isInstant, status_url: isThere },
            at(one, 'candidate'),
          )
      }
      return 'all named'
    },
  ),
  rule(
    '2.7-client-ref-echoed',
    '§2.7',
    'admit',
    'client_ref is echoed in the result',
    async (bench) => {
      const { seen, results } = await batched(bench)
      expectThat(
        results.every((one) => at(one, 'client_ref') === 'conformance'),
        seen,
        'client_ref is not echoed',
      )
      return 'echoed'
    },
  ),
  rule(
    '2.7-client-ref-no-key',
    '§2.7',
    'admit',
    'client_ref is no idempotency key',
    async (bench) => {
      const { seen, held } = await batched(bench)
      expectThat(
        new Set(held.map(({ id }) => id)).size === held.length,
        seen,
        'two items with one client_ref came to one candidate',
      )
      return `${held.length} candidates`
    },
  ),
  rule('2.7-summary-accepted', '§2.7', 'admit', 'summary counts accepted items', async (bench) =>
    expectSummary((await batched(bench)).seen),
  ),
  rule(
    '4.2.5-replay',
    '§4.2 rule 5',
    'admit',
    'item 200: an exact replay returns the existing candidate',
    async (bench) => {
      const { held } = await batched(bench)
      const again = await bench.admissions.sendBatch(held.map(({ authorization }) => authorization))
      const seen = wrongly(again, 'the very same items again')
      expectStatus(seen, 200)
      const results = listAt(seen.json, 'results')
      expectThat(
        results.length === held.length && results.every((one) => at(one, 'status_code') === 200),
        seen,
        'the items are not 200',
      )
      for (const [index, { id, result }] of held.entries()) {
        const candidate = at(results[index], 'candidate')
        expectThat(at(candidate, 'candidate_id') === id, seen, 'other candidates came')
        const isSame = sameInstant(
          at(candidate, 'received_at'),
          at(result, 'candidate', 'received_at'),
        )
        expectThat(isSame, seen, 'received_at is not that of the first answer')
      }
      // The same answer as a rule of its own.
      return expectSummary(seen)
    },
    2,
  ),
  rule(
    '2.7-status-url-unserved',
    '§2.7',
    'admit',
    'the batch status_url points to a route that is not exposed',
    async (bench) => {
      const { held } = await batched(bench)
      // Built here, never taken from the answer (R21).
      return expectStatus(
        await bench.probe.send({ method: 'GET', path: `/propose/status/${held[0]?.id}` }),
        404,
      )
    },
  ),
]
