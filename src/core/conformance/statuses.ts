/**
 * Rules of §2.6, §2.7, §4.1 rule 4 and §4.2 rules 6 and 7. What is told of a candidate, by the
 * single route and in batches. All but one look at the first submission.
 */
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
  type Runs,
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

/** The candidate in a batch of one, and the answer. */
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

/** `identity`: whatever the member is called. */
const names = (json: unknown, id: string): boolean =>
  json === id || (isStructure(json) && Object.values(json).some((value) => names(value, id)))

/** Of the single route first, then of batches. */
export const statusRuns: Runs = {
  async '2.6-status-fields'(bench) {
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
  '9-status-version': async (bench) => expectVersion(await statusOf(bench)),
  '2.6-no-signature': async (bench) => expectNoSecret(await statusOf(bench)),
  async '4.1.4-unknown-candidate'(bench) {
    const { question_id } = await bench.context()
    const id = bench.ports.random.uuid()
    const call = routes.status(question_id, id, 'a random candidate id')
    return expectStatus(await bench.probe.send(call), 404)
  },
  async '4.1.4-mismatched-pair'(bench) {
    const { id, questionId } = await admitted(bench)
    const other = (await bench.open()).find(({ question_id }) => question_id !== questionId)
    if (other === undefined) throw new NotSeen('another question is required: add --question')
    const seen = await bench.admissions.status(other.question_id, id)
    return expectStatus(wrongly(seen, "another question's candidate"), 404)
  },
  async '4.1.4-status-by-slug'(bench) {
    const { id, pair } = await admitted(bench)
    const { slug } = pair.context
    if (slug === undefined) throw new NotSeen('no slug is pinned for the question')
    return expectStatus(await bench.admissions.status(slug, id), 200)
  },
  async '1-candidate-uuid'(bench) {
    const { id, questionId } = await admitted(bench)
    const seen = await bench.admissions.status(questionId, id.replaceAll('-', ''))
    return expectStatus(wrongly(seen, 'the hyphens left out'), ...notServed)
  },
  async '2.6-failure'(bench) {
    const { id, questionId } = await admitted(bench)
    const seen = await bench.admissions.ended(questionId, id)
    const failure = at(seen.json, 'failure')
    const recovery = { retryable: isFlag, can_resubmit: isFlag, next_action: isWord }
    expectMembers(seen, { stage: isWord, code: isWord, detail: isText, ...recovery }, failure)
    return String(at(failure, 'code')).slice(0, 64)
  },
  async '2.7-batch-status-fields'(bench) {
    const { seen, candidate } = await batchedStatus(bench)
    expectMembers(seen, statusMembers, candidate)
    const isAlone = !isGiven(at(seen.json, 'results', 0, 'error'))
    expectThat(isAlone, seen, 'a result has an error beside its candidate')
    return 'all named'
  },
  '2.6-batch-no-signature': async (bench) => expectNoSecret((await batchedStatus(bench)).seen),
  async '4.2.6-siblings'(bench) {
    const { id } = await admitted(bench)
    const call = routes.batch('statuses', [bench.ports.random.uuid(), id])
    const seen = await bench.probe.send(call)
    expectStatus(seen, 200)
    const found = listAt(seen.json, 'results').find((one) => at(one, 'candidate_id') === id)
    const isFound = at(found, 'status_code') === 200
    expectThat(isFound, seen, 'the known candidate was not answered 200 beside an unknown one')
    return '200 beside 404'
  },
  async '4.2.7-no-next-action'(bench) {
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
}
