/**
 * Rules about what is admitted: §2.1's values, §2.5, §2.6, §4.1 rules 3 and 4, and §4.2 rules 5 to 7. Nothing of it can execute but, where
 * the gateway breaks the rule of the bond, one raw unit.
 */
import { priceOf } from '../../protocol/proposal.js'
import type { Authorization } from '../journal/authorizations.js'
import type { QuestionContext } from '../signing/context.js'
import { candidateIn, leastRaw, type Sent } from './admissions.js'
import type { Bench } from './bench.js'
import {
  at,
  came,
  expectShape,
  expectStatus,
  expectThat,
  Fault,
  given,
  listAt,
  malformed,
  NotSeen,
  notServed,
  type Rule,
  rule,
  type Seen,
} from './rule.js'
import { AcknowledgementFields, BatchCandidateFields, BatchStatusFields, FailureFields, StatusFields, VersionObject } from './shapes.js'

/** The first submission and the candidate that came of it; NotSeen where none did. */
async function admitted(bench: Bench): Promise<Sent & { readonly id: string; readonly questionId: string }> {
  const first = await bench.admissions.first()
  return { ...first, id: candidateIn(first.seen.json, first.seen.sent), questionId: first.pair.context.question_id }
}

async function statusOf(bench: Bench): Promise<Seen & { readonly candidateId: string }> {
  const { id, questionId } = await admitted(bench)
  return { ...given(await bench.admissions.status(questionId, id), 200), candidateId: id }
}

const batchStatus = (bench: Bench, ids: readonly string[]) =>
  bench.probe.send({ method: 'POST', path: '/propose/batch/status', body: { candidate_ids: ids }, items: ids.length })

/** The candidates of the batch submission. */
async function batched(
  bench: Bench,
): Promise<{ seen: Seen; results: readonly unknown[]; authorizations: readonly Authorization[]; ids: readonly string[] }> {
  const { seen, authorizations } = await bench.admissions.batch()
  const results = listAt(given(seen, 200).json, 'results')
  return { seen, results, authorizations, ids: results.map((one) => candidateIn(at(one, 'candidate'), seen.sent)) }
}

/** Hex longer than a hash: a signature, or a transaction that could be sent (§2.6). */
function expectNoSecret(seen: Seen): string {
  expectThat(!/[0-9a-fA-F]{65,}/.test(seen.text), seen, 'the status holds hex longer than a hash: a signature or executable data')
  return 'no hex longer than a hash'
}

const recoveryFields = ['stage', 'retryable', 'can_resubmit', 'next_action']

/** A first payload may fail in validation before its rival comes: then there is nothing to be in conflict with. */
async function conflict(bench: Bench): Promise<string> {
  const { admissions, may } = bench
  const { authorization, pair, seen } = may.execute ? await admissions.executable() : await admissions.first()
  const id = candidateIn(seen.json, seen.sent)
  const price = authorization.signed.terms.price === priceOf.p1 ? priceOf.p2 : priceOf.p1
  const rival = await admissions.sign(pair, { price, supersede: authorization.id })
  // Active again, where it had failed (§7 rule 2: the same payload may be sent again).
  if (!may.execute) await admissions.send(authorization)
  const second = await admissions.send(rival)
  const sent = { sent: `${second.sent} with another signed price and nonce` }
  if (second.status === 409) return came(second)
  const now = at((await admissions.status(pair.context.question_id, id)).json, 'status')
  if (now === 'failed') throw new NotSeen('the first payload failed before its rival came; --allow-execution makes one that does not')
  throw new Fault(
    `sent ${sent.sent}; came ${came(second)}, not 409, while the first is ${typeof now === 'string' && /^[a-z]+$/.test(now) ? now : 'held'}`,
  )
}

/** In this order: a refusal frees its question again, so that one question will do for the first three. */
export const valueRules: readonly Rule[] = [
  rule('2.1-bond-minimum', '§2.1', 'admit', 'permit.amount is at least the current total bond', async (bench) =>
    expectStatus(await tooLittle(bench), ...malformed),
  ),
  rule('7-bond-code', '§7', 'admit', 'the code for an amount below the bond is permit_amount_below_required_bond', async (bench) => {
    const seen = given(await tooLittle(bench), ...malformed)
    expectThat(at(seen.json, 'error', 'code') === 'permit_amount_below_required_bond', seen, `came ${came(seen)}`)
    return came(seen)
  }),
  rule('2.1-deadline-minimum', '§2.1', 'admit', 'permit.deadline is at least five minutes beyond admission', async (bench) =>
    expectStatus(
      wrongly(await bench.admissions.sendWrong({ deadlineSeconds: bench.nowSeconds() + 120n }), 'a deadline two minutes ahead'),
      ...malformed,
    ),
  ),
  rule('2.1-outcome-allowed', '§2.1', 'admit', 'outcome must be allowed for this request', async (bench) => {
    const isRefused = ({ price }: QuestionContext) => !price.allowed_values.includes(priceOf.p3)
    if (!(await bench.open()).some(isRefused)) throw new NotSeen('every question allows every outcome')
    return expectStatus(
      wrongly(await bench.admissions.sendWrong({ price: priceOf.p3 }, isRefused), 'p3, which is not allowed'),
      ...malformed,
    )
  }),
]

const wrongly = (seen: Seen, wrong: string): Seen => ({ ...seen, sent: `${seen.sent} with ${wrong}` })

/** One raw unit, whatever the gateway says the bond is. Fault where that is admitted: it can be paid. */
async function tooLittle(bench: Bench): Promise<Seen> {
  const isBonded = ({ bond }: QuestionContext) => BigInt(bond.required_bond) > leastRaw
  if (!(await bench.open()).some(isBonded)) throw new NotSeen('no question has a bond of more than one raw unit')
  const { journalId, ...seen } = await bench.admissions.sendWrong({ amountRaw: leastRaw }, isBonded)
  const sent = wrongly(seen, 'an amount of one raw unit, which is below the bond')
  const admitted = sent.status >= 200 && sent.status < 300
  expectThat(!admitted, sent, `came ${came(sent)}: it was admitted and may execute; cancel it with \`proposer revoke ${journalId}\``)
  return sent
}

/** Before an execution is waited for: its candidate is the one that stays active. */
export const conflictRules: readonly Rule[] = [
  rule('4.1.3-conflict', '§4.1 rule 3', 'admit', '409: a conflicting active payload prevents admission', conflict),
]

/** Of the single routes. */
export const singleSubmissionRules: readonly Rule[] = [
  rule('4.1.3-new', '§4.1 rule 3', 'admit', '202: a new candidate was durably accepted', async (bench) => {
    const { seen } = await bench.admissions.first()
    return expectStatus(seen, 202)
  }),
  rule(
    '2.5-acknowledgement',
    '§2.5',
    'admit',
    'an acknowledgement has candidate_id (UUID), status, received_at and status_url',
    async (bench) => {
      const { seen } = await bench.admissions.first()
      if (seen.status >= 300) throw new NotSeen(`${seen.sent} was answered ${came(seen)}`)
      expectShape(seen, AcknowledgementFields)
      return 'all named'
    },
  ),
  rule('2.5-status-url', '§2.5', 'admit', 'status_url is relative', async (bench) => {
    const { seen, id } = await admitted(bench)
    const url = at(seen.json, 'status_url')
    expectThat(typeof url === 'string' && /^\/[^/]/.test(url) && url.endsWith(id), seen, 'status_url is no path to the candidate')
    return 'a path'
  }),
  rule('9-acknowledgement-version', '§2.5', 'admit', 'an acknowledgement carries the version', async (bench) => {
    const { seen } = await admitted(bench)
    expectShape(seen, VersionObject)
    return 'version'
  }),
  rule('4.1.3-replay', '§4.1 rule 3', 'admit', '200: an exact replay in the round returns the existing candidate', async (bench) => {
    const { authorization, id } = await admitted(bench)
    const seen = wrongly(await bench.admissions.send(authorization), 'the very same bytes again')
    expectStatus(seen, 200)
    expectThat(at(seen.json, 'candidate_id') === id, seen, 'another candidate came')
    return '200, the same candidate'
  }),
  rule(
    '2.6-status-fields',
    '§2.6',
    'admit',
    'status has identity, outcome, price, times, status, submission and failure',
    async (bench) => {
      const seen = await statusOf(bench)
      const { candidate_id, outcome, price } = expectShape(seen, StatusFields)
      expectThat(candidate_id === seen.candidateId, seen, 'the status is of another candidate')
      expectThat(priceOf[outcome] === price, seen, 'outcome and price do not belong together')
      return 'all named'
    },
  ),
  rule('9-status-version', '§9', 'admit', 'status carries the version', async (bench) => {
    expectShape(await statusOf(bench), VersionObject)
    return 'version'
  }),
  rule('2.6-no-signature', '§2.6', 'admit', 'signatures and executable data are never returned', async (bench) =>
    expectNoSecret(await statusOf(bench)),
  ),
  rule('4.1.4-mismatched-pair', '§4.1 rule 4', 'admit', 'a candidate of another question is 404', async (bench) => {
    const { id, questionId } = await admitted(bench)
    const other = (await bench.open()).find(({ question_id }) => question_id !== questionId)
    if (other === undefined) throw new NotSeen('another question would be needed: add --question')
    return expectStatus(wrongly(await bench.admissions.status(other.question_id, id), "another question's candidate"), 404)
  }),
  rule('4.1.4-status-by-slug', '§4.1 rule 4', 'admit', 'the identifier of a status may be the slug', async (bench) => {
    const { id, pair } = await admitted(bench)
    if (pair.context.slug === undefined) throw new NotSeen('no slug is pinned for the question')
    return expectStatus(await bench.admissions.status(pair.context.slug, id), 200)
  }),
  rule('1-candidate-uuid', '§1', 'admit', 'candidate_id is a hyphenated UUID', async (bench) => {
    const { id, questionId } = await admitted(bench)
    return expectStatus(wrongly(await bench.admissions.status(questionId, id.replaceAll('-', '')), 'the hyphens left out'), ...notServed)
  }),
  rule('2.6-failure', '§2.6', 'admit', 'failure has stage, code, detail, retryable, can_resubmit and next_action', async (bench) => {
    const { id, questionId } = await admitted(bench)
    const seen = await bench.admissions.until(questionId, id, 'failed')
    const { code } = expectShape(seen, FailureFields, at(seen.json, 'failure'))
    return /^[a-z0-9_]{1,64}$/.test(code) ? code : 'all named'
  }),
]

/** Of the batch routes. */
export const batchSubmissionRules: readonly Rule[] = [
  rule('4.2.5-new', '§4.2 rule 5', 'admit', 'item 202: a new candidate was durably accepted', async (bench) => {
    const { seen } = await bench.admissions.batch()
    expectStatus(seen, 200)
    const codes = listAt(seen.json, 'results').map((one) => at(one, 'status_code'))
    expectThat(codes.length === 2 && codes.every((code) => code === 202), seen, `items came ${codes.map(String).join(', ')}, not 202`)
    return '200 with 202 and 202'
  }),
  rule('2.7-candidate-fields', '§2.7', 'admit', 'a candidate has candidate_id, status, received_at and status_url', async (bench) => {
    const { seen } = await bench.admissions.batch()
    const held = listAt(given(seen, 200).json, 'results').filter((one) => at(one, 'error') === undefined)
    if (held.length === 0) throw new NotSeen('no item was admitted')
    for (const one of held) expectShape(seen, BatchCandidateFields, at(one, 'candidate'))
    return 'all named'
  }),
  rule('2.7-client-ref-echoed', '§2.7', 'admit', 'client_ref is echoed in the result', async (bench) => {
    const { seen, results } = await batched(bench)
    expectThat(
      results.every((one) => at(one, 'client_ref') === 'conformance'),
      seen,
      'client_ref is not echoed',
    )
    return 'echoed'
  }),
  rule('2.7-client-ref-no-key', '§2.7', 'admit', 'client_ref is no idempotency key', async (bench) => {
    const { seen, ids } = await batched(bench)
    expectThat(new Set(ids).size === ids.length, seen, 'two items with one client_ref came to one candidate')
    return 'two candidates'
  }),
  rule('2.7-summary-accepted', '§2.7', 'admit', 'summary counts accepted items', async (bench) => {
    const { seen } = await batched(bench)
    expectThat(at(seen.json, 'summary', 'accepted') === 2, seen, 'summary.accepted is not 2')
    return '2'
  }),
  rule('4.2.5-replay', '§4.2 rule 5', 'admit', 'item 200: an exact replay returns the existing candidate', async (bench) => {
    const { authorizations, ids } = await batched(bench)
    const seen = wrongly(await bench.admissions.sendBatch(authorizations), 'the very same items again')
    expectStatus(seen, 200)
    const results = listAt(seen.json, 'results')
    expectThat(results.length === 2 && results.every((one) => at(one, 'status_code') === 200), seen, 'the items are not 200')
    expectThat(
      results.every((one, index) => at(one, 'candidate', 'candidate_id') === ids[index]),
      seen,
      'other candidates came',
    )
    return '200 with 200 and 200, the same candidates'
  }),
  rule('2.7-status-url-unserved', '§2.7', 'admit', 'the batch status_url points to a route that is not exposed', async (bench) => {
    const { ids } = await batched(bench)
    // Built here, never taken from the answer (R21).
    return expectStatus(await bench.probe.send({ method: 'GET', path: `/propose/status/${ids[0]}` }), 404)
  }),
  rule('2.7-batch-status-fields', '§2.7', 'admit', 'a batch status has status, submission and failure', async (bench) => {
    const { id } = await admitted(bench)
    const seen = given(await batchStatus(bench, [id]), 200)
    expectShape(seen, BatchStatusFields, at(seen.json, 'results', 0, 'candidate'))
    return 'all named'
  }),
  rule(
    '2.6-batch-no-signature',
    '§2.6',
    'admit',
    'signatures and executable data are never returned, in batches neither',
    async (bench) => {
      const { id } = await admitted(bench)
      return expectNoSecret(given(await batchStatus(bench, [id]), 200))
    },
  ),
  rule('4.2.6-siblings', '§4.2 rule 6', 'admit', 'an unknown candidate does not fail other look-ups', async (bench) => {
    const { id } = await admitted(bench)
    const seen = await batchStatus(bench, [bench.ports.random.uuid(), id])
    expectStatus(seen, 200)
    const found = listAt(seen.json, 'results').find((one) => at(one, 'candidate_id') === id)
    expectThat(at(found, 'status_code') === 200, seen, 'the known candidate was not answered 200 beside an unknown one')
    return '200 beside 404'
  }),
  rule(
    '4.2.7-no-next-action',
    '§4.2 rule 7',
    'admit',
    'batch status omits next_action; failure has only code and detail',
    async (bench) => {
      const { id, questionId } = await admitted(bench)
      await bench.admissions.until(questionId, id, 'failed')
      const seen = given(await batchStatus(bench, [id]), 200)
      const failure = at(seen.json, 'results', 0, 'candidate', 'failure')
      const told = recoveryFields.filter((field) => at(failure, field) !== undefined)
      expectThat(told.length === 0, seen, `failure has ${told.join(', ')}`)
      expectThat(typeof at(failure, 'code') === 'string' && typeof at(failure, 'detail') === 'string', seen, 'failure lacks code or detail')
      return 'code and detail'
    },
  ),
]
