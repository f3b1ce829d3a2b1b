/** What is told of a candidate, by the single route and in batches. */
import { outcomeOf } from '../protocol/proposal.js'
import { candidateIn, otherPrice } from './admissions.js'
import type { Bench } from './bench.js'
import { routes } from './probe.js'
import {
  at,
  came,
  expectMembers,
  expectStatus,
  expectThat,
  expectVersion,
  Fault,
  given,
  hasLongHex,
  isFlag,
  isGiven,
  isHash,
  isInstant,
  isStructure,
  isText,
  isWord,
  listAt,
  member,
  memberOf,
  NotSeen,
  notServed,
  rule,
  rulesOf,
  type Seen,
  sameInstant,
  statusMembers,
  timeMs,
  wrongly,
} from './rule.js'
import { admitted } from './submissions.js'

async function statusOf(bench: Bench): Promise<Seen> {
  const { id, questionId } = await admitted(bench)
  return given(await bench.admissions.status(questionId, id), 200)
}

async function batchedStatus(bench: Bench): Promise<{ seen: Seen; candidate: unknown }> {
  const { id } = await admitted(bench)
  const seen = given(await bench.probe.send(routes.batch('statuses', [id])), 200)
  const [result] = listAt(seen.json, 'results')
  const code = at(result, 'status_code')
  expectThat(code === 200, seen, `got item ${String(code)}, expected 200`)
  const isNamed = at(result, 'candidate_id') === id
  expectThat(isNamed, seen, 'candidate_id is missing or different')
  const candidate = at(result, 'candidate')
  const again = at(candidate, 'candidate_id')
  expectThat(!isGiven(again) || again === id, seen, 'the candidate has another candidate_id')
  return { seen, candidate }
}

function expectNoSecret(seen: Seen): string {
  const fault = 'the status holds hex longer than a hash: a signature or executable data'
  expectThat(!hasLongHex(seen), seen, fault)
  return 'no hex longer than a hash'
}

const names = (json: unknown, id: string): boolean =>
  json === id || (isStructure(json) && Object.values(json).some((value) => names(value, id)))

export const statusRules = rulesOf('admit', {
  '2.6-status-fields': rule(
    'status has identity, outcome, price, times, status, submission and failure',
    async (bench) => {
      const seen = await statusOf(bench)
      const { id, questionId, authorization, seen: first } = await admitted(bench)
      const { price, proposer } = authorization.signed.terms
      expectMembers(seen, statusMembers)
      expectThat(names(seen.json, id), seen, 'the status does not name the candidate')
      const question = at(seen.json, 'question_id')
      const isSame = question === undefined || question === questionId
      expectThat(isSame, seen, 'question_id differs')
      const actual = at(seen.json, 'proposer')
      const isOurs = !isGiven(actual) || actual === proposer
      expectThat(isOurs, seen, 'proposer is not the one that signed')
      const isOutcome = at(seen.json, 'outcome') === outcomeOf(price)
      expectThat(isOutcome, seen, 'outcome is missing, or not the signed one')
      const isPrice = at(seen.json, 'price') === price
      expectThat(isPrice, seen, 'price is missing, or not the signed decimal string')
      const [name, received] = member(seen.json, /recei/) ?? []
      expectThat(isInstant(received), seen, 'the time of receipt is missing or invalid')
      const isThen = sameInstant(received, at(first.json, 'received_at'))
      expectThat(isThen, seen, `${name} is not received_at of the acknowledgement`)
      for (const field of ['validated_at', 'selected_at']) {
        if (at(seen.json, field) === undefined)
          bench.onNote?.(
            `${field} is absent until it is reached, or has another name; §2.6 leaves that open`,
          )
      }
      return 'all named'
    },
  ),
  '9-status-version': rule('status carries the version', async (bench) =>
    expectVersion(await statusOf(bench)),
  ),
  '2.6-no-signature': rule('signatures and executable data are never returned', async (bench) =>
    expectNoSecret(await statusOf(bench)),
  ),
  '4.1.4-mismatched-pair': rule('a candidate of another question is 404', async (bench) => {
    const { id, questionId } = await admitted(bench)
    const other = (await bench.open()).find(({ question_id }) => question_id !== questionId)
    if (other === undefined) throw new NotSeen('another question is required: add --question')
    const seen = await bench.admissions.status(other.question_id, id)
    return expectStatus(wrongly(seen, "another question's candidate"), 404)
  }),
  '4.1.4-status-by-slug': rule('the identifier of a status may be the slug', async (bench) => {
    const { id, pair } = await admitted(bench)
    const { slug } = pair.context
    if (slug === undefined) throw new NotSeen('no slug is pinned for the question')
    return expectStatus(await bench.admissions.status(slug, id), 200)
  }),
  '1-candidate-uuid': rule('candidate_id is a hyphenated UUID', async (bench) => {
    const { id, questionId } = await admitted(bench)
    const seen = await bench.admissions.status(questionId, id.replaceAll('-', ''))
    return expectStatus(wrongly(seen, 'the hyphens left out'), ...notServed)
  }),
  '2.6-failure': rule(
    'failure has stage, code, detail, retryable, can_resubmit and next_action',
    5,
    async (bench) => {
      const { id, questionId } = await admitted(bench)
      const seen = await bench.admissions.ended(questionId, id)
      const failure = at(seen.json, 'failure')
      const recovery = { retryable: isFlag, can_resubmit: isFlag, next_action: isWord }
      expectMembers(seen, { stage: isWord, code: isWord, detail: isText, ...recovery }, failure)
      return String(at(failure, 'code')).slice(0, 64)
    },
  ),
  '2.7-batch-status-fields': rule(
    'a batch status has status, submission and failure',
    async (bench) => {
      const { seen, candidate } = await batchedStatus(bench)
      expectMembers(seen, statusMembers, candidate)
      const isAlone = !isGiven(at(seen.json, 'results', 0, 'error'))
      expectThat(isAlone, seen, 'a result has an error beside its candidate')
      return 'all named'
    },
  ),
  '2.6-batch-no-signature': rule(
    'signatures and executable data are never returned, in batches either',
    async (bench) => expectNoSecret((await batchedStatus(bench)).seen),
  ),
  '4.2.6-siblings': rule('an unknown candidate does not fail other look-ups', 2, async (bench) => {
    const { id } = await admitted(bench)
    const call = routes.batch('statuses', [bench.ports.random.uuid(), id])
    const seen = await bench.probe.send(call)
    expectStatus(seen, 200)
    const found = listAt(seen.json, 'results').find((one) => at(one, 'candidate_id') === id)
    const isFound = at(found, 'status_code') === 200
    expectThat(isFound, seen, 'the known candidate was not answered 200 beside an unknown one')
    return '200 beside 404'
  }),
  '4.2.7-no-next-action': rule(
    'batch status omits next_action; failure has only code and detail',
    async (bench) => {
      const { id, questionId } = await admitted(bench)
      const end = await bench.admissions.ended(questionId, id)
      if (!isGiven(at(end.json, 'failure'))) throw new NotSeen('the candidate did not fail')
      const { seen, candidate } = await batchedStatus(bench)
      const failure = at(candidate, 'failure')
      const actual = ['stage', 'retryable', 'can_resubmit', 'next_action'].filter(
        (field) => at(failure, field) !== undefined,
      )
      expectThat(actual.length === 0, seen, `failure has ${actual.join(', ')}`)
      expectMembers(seen, { code: isWord, detail: isText }, failure)
      return 'code and detail'
    },
  ),
})

export const unknownCandidateRules = rulesOf('read', {
  '4.1.4-unknown-candidate': rule('an unknown candidate is 404', async (bench) => {
    const { question_id } = await bench.context()
    const id = bench.ports.random.uuid()
    const call = routes.status(question_id, id, 'a random candidate id')
    return expectStatus(await bench.probe.send(call), 404)
  }),
})

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
