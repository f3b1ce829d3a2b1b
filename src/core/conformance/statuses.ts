/**
 * Rules of §2.6, §2.7, §4.1 rule 4 and §4.2 rules 6 and 7: what is told of a candidate, by the
 * single route and in batches.
 */
import { outcomeOf } from '../protocol/proposal.js'
import type { Bench } from './bench.js'
import {
  at,
  expectStatus,
  expectThat,
  given,
  listAt,
  NotSeen,
  notServed,
  type Rule,
  rule,
  type Seen,
} from './rule.js'
import {
  expectMembers,
  expectVersion,
  isGiven,
  isInstant,
  isNullable,
  isWord,
  member,
  sameInstant,
} from './shapes.js'
import { admitted, wrongly } from './submissions.js'

async function statusOf(bench: Bench): Promise<Seen> {
  const { id, questionId } = await admitted(bench)
  return given(await bench.admissions.status(questionId, id), 200)
}

const batchStatus = (bench: Bench, ids: readonly string[]) =>
  bench.probe.send({
    method: 'POST',
    path: '/propose/batch/status',
    body: { candidate_ids: ids },
    items: ids.length,
  })

/** The candidate in a batch of one, and the answer. */
async function batchedStatus(
  bench: Bench,
): Promise<{ seen: Seen; candidate: unknown; id: string }> {
  const { id } = await admitted(bench)
  const seen = given(await batchStatus(bench, [id]), 200)
  const [result] = listAt(seen.json, 'results')
  expectThat(
    at(result, 'status_code') === 200,
    seen,
    `the item came ${String(at(result, 'status_code'))}, not 200`,
  )
  expectThat(at(result, 'candidate_id') === id, seen, 'candidate_id is missing or another one')
  return { seen, candidate: at(result, 'candidate'), id }
}

/** Hex longer than a hash: a signature, or a transaction that could be sent (§2.6). */
function expectNoSecret(seen: Seen): string {
  expectThat(
    !/[0-9a-fA-F]{65,}/.test(seen.text),
    seen,
    'the status holds hex longer than a hash: a signature or executable data',
  )
  return 'no hex longer than a hash'
}

/** `identity`: whatever the member is called. */
const names = (json: unknown, id: string): boolean =>
  json === id ||
  (typeof json === 'object' &&
    json !== null &&
    Object.values(json).some((value) => names(value, id)))

const recoveryFields = ['stage', 'retryable', 'can_resubmit', 'next_action']

const single: readonly Rule[] = [
  rule(
    '2.6-status-fields',
    '§2.6',
    'admit',
    'status has identity, outcome, price, times, status, submission and failure',
    async (bench) => {
      const seen = await statusOf(bench)
      const { id, questionId, authorization, seen: first } = await admitted(bench)
      expectMembers(seen, { status: isWord, submission: isNullable, failure: isNullable })
      expectThat(names(seen.json, id), seen, 'the status does not name the candidate')
      const told = at(seen.json, 'question_id')
      expectThat(told === undefined || told === questionId, seen, 'question_id is another one')
      const { price } = authorization.signed.terms
      expectThat(
        at(seen.json, 'outcome') === outcomeOf(price),
        seen,
        'outcome is missing, or not the one that was signed',
      )
      expectThat(
        at(seen.json, 'price') === price,
        seen,
        'price is missing, or not the decimal string that was signed',
      )
      const [name, received] = member(seen.json, /recei/) ?? []
      expectThat(isInstant(received), seen, 'the time of receipt is missing or no time')
      expectThat(
        sameInstant(received, at(first.json, 'received_at')),
        seen,
        `${name} is not received_at of the acknowledgement`,
      )
      for (const field of ['validated_at', 'selected_at']) {
        if (at(seen.json, field) === undefined)
          bench.onNote?.(
            `${field} is not told before it is reached, or has another name; §2.6 leaves that open`,
          )
      }
      return 'all named'
    },
  ),
  rule('9-status-version', '§9', 'admit', 'status carries the version', async (bench) =>
    expectVersion(await statusOf(bench)),
  ),
  rule(
    '2.6-no-signature',
    '§2.6',
    'admit',
    'signatures and executable data are never returned',
    async (bench) => expectNoSecret(await statusOf(bench)),
  ),
  rule(
    '4.1.4-unknown-candidate',
    '§4.1 rule 4',
    'read',
    'an unknown candidate is 404',
    async (bench) => {
      const { question_id } = await bench.context()
      const path = `/v1/proposals/${question_id}/status/${bench.ports.random.uuid()}`
      const seen = await bench.probe.send({ method: 'GET', path, wrong: 'a random candidate id' })
      return expectStatus(seen, 404)
    },
  ),
  rule(
    '4.1.4-mismatched-pair',
    '§4.1 rule 4',
    'admit',
    'a candidate of another question is 404',
    async (bench) => {
      const { id, questionId } = await admitted(bench)
      const other = (await bench.open()).find(({ question_id }) => question_id !== questionId)
      if (other === undefined) throw new NotSeen('another question would be needed: add --question')
      return expectStatus(
        wrongly(
          await bench.admissions.status(other.question_id, id),
          "another question's candidate",
        ),
        404,
      )
    },
  ),
  rule(
    '4.1.4-status-by-slug',
    '§4.1 rule 4',
    'admit',
    'the identifier of a status may be the slug',
    async (bench) => {
      const { id, pair } = await admitted(bench)
      if (pair.context.slug === undefined) throw new NotSeen('no slug is pinned for the question')
      return expectStatus(await bench.admissions.status(pair.context.slug, id), 200)
    },
  ),
  rule('1-candidate-uuid', '§1', 'admit', 'candidate_id is a hyphenated UUID', async (bench) => {
    const { id, questionId } = await admitted(bench)
    return expectStatus(
      wrongly(
        await bench.admissions.status(questionId, id.replaceAll('-', '')),
        'the hyphens left out',
      ),
      ...notServed,
    )
  }),
  rule(
    '2.6-failure',
    '§2.6',
    'admit',
    'failure has stage, code, detail, retryable, can_resubmit and next_action',
    async (bench) => {
      const { id, questionId } = await admitted(bench)
      const seen = await bench.admissions.ended(questionId, id)
      const isFlag = (told: unknown) => typeof told === 'boolean'
      const isText = (told: unknown) => typeof told === 'string'
      expectMembers(
        seen,
        {
          stage: isWord,
          code: isWord,
          detail: isText,
          retryable: isFlag,
          can_resubmit: isFlag,
          next_action: isWord,
        },
        at(seen.json, 'failure'),
      )
      return String(at(seen.json, 'failure', 'code')).slice(0, 64)
    },
    5,
  ),
]

const batch: readonly Rule[] = [
  rule(
    '2.7-batch-status-fields',
    '§2.7',
    'admit',
    'a batch status has status, submission and failure',
    async (bench) => {
      const { seen, candidate } = await batchedStatus(bench)
      expectMembers(
        seen,
        { status: isWord, submission: isNullable, failure: isNullable },
        candidate,
      )
      expectThat(
        !isGiven(at(seen.json, 'results', 0, 'error')),
        seen,
        'a result has an error beside its candidate',
      )
      return 'all named'
    },
  ),
  rule(
    '2.6-batch-no-signature',
    '§2.6',
    'admit',
    'signatures and executable data are never returned, in batches neither',
    async (bench) => expectNoSecret((await batchedStatus(bench)).seen),
  ),
  rule(
    '4.2.6-siblings',
    '§4.2 rule 6',
    'admit',
    'an unknown candidate does not fail other look-ups',
    async (bench) => {
      const { id } = await admitted(bench)
      const seen = await batchStatus(bench, [bench.ports.random.uuid(), id])
      expectStatus(seen, 200)
      const found = listAt(seen.json, 'results').find((one) => at(one, 'candidate_id') === id)
      expectThat(
        at(found, 'status_code') === 200,
        seen,
        'the known candidate was not answered 200 beside an unknown one',
      )
      return '200 beside 404'
    },
    2,
  ),
  rule(
    '4.2.7-no-next-action',
    '§4.2 rule 7',
    'admit',
    'batch status omits next_action; failure has only code and detail',
    async (bench) => {
      const { id, questionId } = await admitted(bench)
      const end = await bench.admissions.ended(questionId, id)
      if (!isGiven(at(end.json, 'failure'))) throw new NotSeen('the candidate did not fail')
      const { seen, candidate } = await batchedStatus(bench)
      const failure = at(candidate, 'failure')
      const told = recoveryFields.filter((field) => at(failure, field) !== undefined)
      expectThat(told.length === 0, seen, `failure has ${told.join(', ')}`)
      expectMembers(seen, { code: isWord, detail: (text) => typeof text === 'string' }, failure)
      return 'code and detail'
    },
  ),
]

/** Of the single route first, then of batches; all but one look at the first submission. */
export const statusRules: readonly Rule[] = [...single, ...batch]
