/** What is told of a candidate, by the single route and in batches. */
import { outcomeOf } from '../protocol/proposal.js'
import type { Bench } from './bench.js'
import { routes } from './probe.js'
import {
  at,
  expectStatus,
  expectThat,
  given,
  listAt,
  NotSeen,
  notServed,
  rule,
  rulesOf,
  type Seen,
  wrongly,
} from './rule.js'
import {
  expectMembers,
  expectVersion,
  hasLongHex,
  isFlag,
  isGiven,
  isInstant,
  isStructure,
  isText,
  isWord,
  member,
  sameInstant,
  statusMembers,
} from './shapes.js'
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
