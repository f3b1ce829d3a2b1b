/** What only an execution on chain shows. */
import { candidateIn, otherPrice } from './admissions.js'
import type { Bench } from './bench.js'
import { routes } from './probe.js'
import {
  at,
  came,
  expectStatus,
  expectThat,
  Fault,
  NotSeen,
  rule,
  rulesOf,
  type Seen,
} from './rule.js'
import {
  expectMembers,
  hasLongHex,
  isGiven,
  isHash,
  isWord,
  memberOf,
  sameInstant,
  timeMs,
} from './shapes.js'

async function executed({ admissions }: Bench): Promise<Seen> {
  const { pair, seen } = await admissions.executable()
  const id = candidateIn(seen.json, seen.sent)
  const end = await admissions.ended(pair.context.question_id, id)
  const failure = at(end.json, 'failure')
  if (!isGiven(failure)) return end
  throw new NotSeen(`the candidate failed: ${String(at(failure, 'code')).slice(0, 64)}`)
}

/** A block's time is not the gateway's clock. */
const clockSkewMs = 60_000

export const executionRules = rulesOf('execute', {
  '4.1.3-unprepared': rule('no preparation is required before a submission', async (bench) =>
    expectStatus((await bench.admissions.executable()).seen, 202),
  ),
  '2.6-stages': rule(
    'receipt, validation and selection have their times, in this order',
    8,
    async (bench) => {
      const seen = await executed(bench)
      const times = [/recei/, /valid/, /select/].map((name) => timeMs(memberOf(seen.json, name)))
      const known = times.filter((time) => time !== undefined)
      expectThat(known.length === times.length, seen, 'an executed candidate lacks a timestamp')
      const isSorted = known.every((time, index) => index === 0 || time >= (known[index - 1] ?? 0))
      expectThat(isSorted, seen, 'the times are not in order')
      return 'in order'
    },
  ),
  '2.6-submission': rule(
    'submission has status, transaction_hash and three times',
    async (bench) => {
      const seen = await executed(bench)
      const submission = at(seen.json, 'submission')
      const secret = 'the status holds hex longer than a hash: executable data'
      expectThat(!hasLongHex(seen), seen, secret)
      expectMembers(seen, { 'submission.status': isWord, 'submission.transaction_hash': isHash })
      expectMembers(seen, { failure: (actual) => actual === null })
      const stages = { submission: /^submi/, confirmation: /^confirm/, indexing: /^index/ }
      let before = timeMs(memberOf(seen.json, /select/)) ?? 0
      for (const [stage, name] of Object.entries(stages)) {
        const time = timeMs(memberOf(submission, name))
        if (time === undefined)
          throw new Fault(`sent ${seen.sent}; submission has no time of ${stage}`)
        const isAfter = time >= before - clockSkewMs
        expectThat(isAfter, seen, `the time of ${stage} is before that of the stage before it`)
        before = time
      }
      return String(at(submission, 'transaction_hash'))
    },
  ),
  '6-event-index': rule('submission.proposal_event_index is a JSON number', async (bench) => {
    const seen = await executed(bench)
    const index = at(seen.json, 'submission', 'proposal_event_index')
    expectThat(Number.isInteger(index), seen, 'proposal_event_index is not a JSON number')
    return String(index)
  }),
  '2.7-batch-executed': rule(
    'a batch status of an executed candidate has its submission, and null for failure',
    async (bench) => {
      await executed(bench)
      const { seen } = await bench.admissions.executable()
      const call = routes.batch('statuses', [candidateIn(seen.json, seen.sent)])
      const batch = await bench.probe.send(call)
      expectStatus(batch, 200)
      const members = { submission: isGiven, failure: (actual: unknown) => actual === null }
      expectMembers(batch, members, at(batch.json, 'results', 0, 'candidate'))
      return 'submission, no failure'
    },
  ),
  '3.2-replay-after-execution': rule(
    'a replay in the current round returns the existing candidate',
    async (bench) => {
      const { authorization, seen: first } = await bench.admissions.executable()
      await executed(bench)
      const seen = await bench.admissions.send(authorization)
      expectStatus(seen, 200)
      const isSame = at(seen.json, 'candidate_id') === at(first.json, 'candidate_id')
      expectThat(isSame, seen, 'got another candidate')
      const isThen = sameInstant(at(seen.json, 'received_at'), at(first.json, 'received_at'))
      expectThat(isThen, seen, 'received_at differs')
      return '200, the same candidate'
    },
  ),
  '4.1.3-request-state': rule('409: a request state prevents admission', async (bench) => {
    const { pair, authorization } = await bench.admissions.executable()
    await executed(bench)
    const view = await bench.journal.load()
    // The rival of the conflict check holds the question now, where it ran.
    const holder =
      view
        .byQuestion(pair.context.question_id)
        .findLast(({ supersededBy }) => supersededBy === undefined) ?? authorization
    const changes = { price: otherPrice(authorization), supersede: holder.id }
    const seen = await bench.admissions.send(await bench.admissions.sign(pair, changes))
    expectStatus(seen, 409)
    return came(seen)
  }),
})
