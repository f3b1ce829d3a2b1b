/** Rules that only an execution on chain shows: §2.6, §3 rule 2, §4.1 rule 3 and §6. */
import { priceOf } from '../protocol/proposal.js'
import { candidateIn } from './admissions.js'
import type { Bench } from './bench.js'
import { at, came, expectStatus, expectThat, NotSeen, type Rule, rule, type Seen } from './rule.js'
import {
  expectMembers,
  instantMs,
  isGiven,
  isHash,
  isWord,
  memberOf,
  sameInstant,
} from './shapes.js'

async function executed(bench: Bench): Promise<Seen> {
  const { pair, seen } = await bench.admissions.executable()
  const end = await bench.admissions.ended(
    pair.context.question_id,
    candidateIn(seen.json, seen.sent),
  )
  if (isGiven(at(end.json, 'failure')))
    throw new NotSeen(
      `the candidate failed: ${String(at(end.json, 'failure', 'code')).slice(0, 64)}`,
    )
  return end
}

export const executionRules: readonly Rule[] = [
  rule(
    '4.1.3-unprepared',
    '§1',
    'execute',
    'no preparation is required before a submission',
    async (bench) => expectStatus((await bench.admissions.executable()).seen, 202),
  ),
  rule(
    '2.6-stages',
    '§2.6',
    'execute',
    'receipt, validation and selection have their times, in this order',
    async (bench) => {
      const seen = await executed(bench)
      const times = [/recei/, /valid/, /select/].map((name) => instantMs(memberOf(seen.json, name)))
      const known = times.filter((time) => time !== undefined)
      expectThat(known.length === times.length, seen, 'an executed candidate lacks a time')
      expectThat(
        known.every((time, index) => index === 0 || time >= (known[index - 1] ?? 0)),
        seen,
        'the times are not in order',
      )
      return 'in order'
    },
    8,
  ),
  rule(
    '2.6-submission',
    '§2.6',
    'execute',
    'submission has status, transaction_hash and three times',
    async (bench) => {
      const seen = await executed(bench)
      const submission = at(seen.json, 'submission')
      expectThat(
        !/[0-9a-fA-F]{65,}/.test(seen.text),
        seen,
        'the status holds hex longer than a hash: executable data',
      )
      expectMembers(seen, { 'submission.status': isWord, 'submission.transaction_hash': isHash })
      for (const [stage, name] of Object.entries({
        submission: /^submi/,
        confirmation: /^confirm/,
        indexing: /^index/,
      })) {
        expectThat(
          instantMs(memberOf(submission, name)) !== undefined,
          seen,
          `submission has no time of ${stage}`,
        )
      }
      return String(at(submission, 'transaction_hash'))
    },
  ),
  rule(
    '6-event-index',
    '§6',
    'execute',
    'submission.proposal_event_index is a JSON number',
    async (bench) => {
      const seen = await executed(bench)
      const index = at(seen.json, 'submission', 'proposal_event_index')
      expectThat(Number.isInteger(index), seen, 'proposal_event_index is no JSON number')
      return String(index)
    },
  ),
  rule(
    '2.7-batch-executed',
    '§2.7',
    'execute',
    'a batch status of an executed candidate has its submission, and null for failure',
    async (bench) => {
      await executed(bench)
      const { seen } = await bench.admissions.executable()
      const body = { candidate_ids: [candidateIn(seen.json, seen.sent)] }
      const batch = await bench.probe.send({ method: 'POST', path: '/propose/batch/status', body })
      expectStatus(batch, 200)
      expectMembers(
        batch,
        { submission: isGiven, failure: (told) => told === null },
        at(batch.json, 'results', 0, 'candidate'),
      )
      return 'submission, no failure'
    },
  ),
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
      expectThat(
        at(seen.json, 'candidate_id') === at(first.json, 'candidate_id'),
        seen,
        'another candidate came',
      )
      expectThat(
        sameInstant(at(seen.json, 'received_at'), at(first.json, 'received_at')),
        seen,
        'received_at is another one',
      )
      return '200, the same candidate'
    },
  ),
  rule(
    '4.1.3-request-state',
    '§4.1 rule 3',
    'execute',
    '409: a request state prevents admission',
    async (bench) => {
      const { pair, authorization } = await bench.admissions.executable()
      await executed(bench)
      const price = authorization.signed.terms.price === priceOf.p1 ? priceOf.p2 : priceOf.p1
      const view = await bench.journal.load()
      // The rival of the conflict check holds the question now, where it ran.
      const held =
        view
          .byQuestion(pair.context.question_id)
          .findLast(({ supersededBy }) => supersededBy === undefined) ?? authorization
      const other = await bench.admissions.sign(pair, { price, supersede: held.id })
      const seen = await bench.admissions.send(other)
      expectStatus(seen, 409)
      return came(seen)
    },
  ),
]
