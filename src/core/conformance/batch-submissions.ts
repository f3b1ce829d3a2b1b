/** Items that are admitted, beside one that is in conflict with another. */
import type { JournaledAuthorization } from '../client/journal/authorizations.js'
import { candidateIn, hasEnded, places } from './admissions.js'
import { expectSummary, refusedWhole } from './batches.js'
import type { Bench } from './bench.js'
import { routes } from './probe.js'
import {
  at,
  codesOf,
  expectStatus,
  expectThat,
  Fault,
  given,
  listAt,
  malformed,
  NotSeen,
  rule,
  rulesOf,
  type Seen,
  wrongly,
} from './rule.js'
import { acknowledgement, expectMembers, isGiven, isNullable, sameInstant } from './shapes.js'

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
