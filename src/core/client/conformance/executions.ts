/** Rules that only an execution on chain shows: §2.6, §3 rule 2, §4.1 rule 3 and §6. */
import { priceOf } from '../../protocol/proposal.js'
import { candidateIn } from './admissions.js'
import type { Bench } from './bench.js'
import { at, came, expectShape, expectStatus, expectThat, type Rule, rule, type Seen } from './rule.js'
import { SubmissionFields } from './shapes.js'

async function executed(bench: Bench): Promise<Seen> {
  const { pair, seen } = await bench.admissions.executable()
  return bench.admissions.until(pair.context.question_id, candidateIn(seen.json, seen.sent), 'executed')
}

export const executionRules: readonly Rule[] = [
  rule('2.6-stages', '§2.6', 'execute', 'receipt, validation and selection have their times, in this order', async (bench) => {
    const seen = await executed(bench)
    const times = ['received_at', 'validated_at', 'selected_at'].map((field) => Date.parse(String(at(seen.json, field))))
    expectThat(
      times.every((time) => !Number.isNaN(time)),
      seen,
      'an executed candidate lacks a time',
    )
    expectThat(
      times.every((time, index) => index === 0 || time >= (times[index - 1] ?? 0)),
      seen,
      'the times are not in order',
    )
    return 'in order'
  }),
  rule('2.6-submission', '§2.6', 'execute', 'submission has status, transaction_hash and three times', async (bench) => {
    const seen = await executed(bench)
    return expectShape(seen, SubmissionFields, at(seen.json, 'submission')).transaction_hash
  }),
  rule('6-event-index', '§6', 'execute', 'submission.proposal_event_index is a JSON number', async (bench) => {
    const seen = await executed(bench)
    const index = at(seen.json, 'submission', 'proposal_event_index')
    expectThat(Number.isInteger(index), seen, 'proposal_event_index is no JSON number')
    return String(index)
  }),
  rule(
    '3.2-replay-after-execution',
    '§3 rule 2',
    'execute',
    'a replay in the current round returns the existing candidate',
    async (bench) => {
      const { authorization, seen: first } = await bench.admissions.executable()
      await executed(bench)
      const seen = await bench.admissions.send(authorization)
      expectStatus(seen, 200)
      expectThat(at(seen.json, 'candidate_id') === at(first.json, 'candidate_id'), seen, 'another candidate came')
      return '200, the same candidate'
    },
  ),
  rule('4.1.3-request-state', '§4.1 rule 3', 'execute', '409: a request state prevents admission', async (bench) => {
    const { pair, authorization } = await bench.admissions.executable()
    await executed(bench)
    const price = authorization.signed.terms.price === priceOf.p1 ? priceOf.p2 : priceOf.p1
    const view = await bench.journal.load()
    // The rival of the conflict check holds the question now, where it ran.
    const held = view.byQuestion(pair.context.question_id).findLast(({ supersededBy }) => supersededBy === undefined) ?? authorization
    const other = await bench.admissions.sign(pair, { price, supersede: held.id })
    const seen = await bench.admissions.send(other)
    expectStatus(seen, 409)
    return came(seen)
  }),
]
