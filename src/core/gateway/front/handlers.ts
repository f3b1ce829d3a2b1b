/** What the routes of the spec do, for one question and for up to a hundred items (§2, §4). */
import pLimit from 'p-limit'
import { batchSigningDataOf, type Contracts, domainOf } from '#chain/round'
import type { Hex } from '#ports'
import { type Candidate, instant, wireStatus } from '#protocol/candidate'
import { UnavailableError } from '#protocol/errors'
import { pick } from '#protocol/pick'
import { fromBatchItem, fromSingle, priceOf } from '#protocol/proposal'
import { type Refusal, wireError } from '#protocol/refusal'
import type { SigningDataRequest } from '#protocol/schema'
import { typedData } from '#protocol/witness'
import { isAddress, isQuestionId, version } from '#protocol/words'
import type { ChainView, Question } from '../view/state.js'
import {
  type AdmissionParts,
  findQuestion,
  itemsAtOnce,
  type Judgment,
  questionNotFound,
  requireOpen,
  requirePermit,
  requirePrice,
  requireState,
  submitAll,
  takesProposals,
} from './admission.js'
import {
  deny,
  type Exchange,
  type Handlers,
  itemRefusal,
  json,
  Refused,
  type RouteAnswer,
} from './answer.js'

export function singleRoutes(
  parts: AdmissionParts,
): Handlers<'eligibility' | 'signingData' | 'submit' | 'status'> {
  const { ledger, view, contracts } = parts
  return {
    eligibility: ({ params: { address = '' } }) =>
      json(200, {
        version,
        address,
        eligible: ledger.admissionEnabled && isAddress(address) && ledger.eligible(address),
      }),
    async signingData({ body, params: { identifier = '' } }) {
      const question = await findQuestion(view, identifier)
      requireState(view)
      requireOpen(question)
      requirePrice(question, priceOf[body.outcome], 'single')
      requirePermit(question, view, body.permit)
      return json(200, signingDataOf(question, contracts, body))
    },
    async submit({ body, params: { identifier = '' }, exchange }) {
      const { proposer } = body
      const authorizationOf = (id: Question['questionId']) => fromSingle(id, body)
      const item = { identifier, proposer, authorizationOf }
      const [submitted] = await submitAll(parts, exchange, 'single', [item])
      if (submitted === undefined) throw new Error('a submission has no result')
      if (submitted.kind === 'refused') throw new Refused(submitted.refusal)
      const { kind, candidate } = submitted
      const url = `/v1/proposals/${candidate.round.questionId}/status/${candidate.id}`
      return json(kind === 'admitted' ? 202 : 200, { version, ...acknowledged(candidate, url) })
    },
    status: ({ params: { identifier = '', candidate_id = '' } }) =>
      status(parts, identifier, candidate_id),
  }
}

const acknowledged = ({ id, progress, receivedAtMs }: Candidate, status_url: string) => ({
  candidate_id: id,
  status: progress.status,
  received_at: instant(receivedAtMs),
  status_url,
})

/**
 * By question id nothing but the ledger is asked, so that a candidate can be followed while the
 * chain's state is unknown (§4.1 rule 4).
 */
async function status(
  parts: AdmissionParts,
  identifier: string,
  candidateId: string,
): Promise<RouteAnswer> {
  const { ledger, view } = parts
  const candidate = await ledger.get(candidateId)
  if (candidate && isQuestionId(identifier) && candidate.round.questionId === identifier)
    return shown(parts, candidate)
  const question = await lookUp(view, identifier)
  if (question === undefined) questionNotFound()
  // What is not held under a question id is not found, whatever the chain says; a slug has to be
  // known.
  if (question instanceof UnavailableError && !isQuestionId(identifier)) throw question
  if (candidate && 'round' in question && isOfRequest(candidate, question))
    return shown(parts, candidate)
  deny(
    'candidate_not_found',
    candidate && !isQuestionId(identifier)
      ? 'this slug does not refer to the question of this candidate, and may have referred to another one at its admission; use the question id'
      : 'candidate not found for this question; check the identifier and the candidate id',
  )
}

/** Under whichever of its ids (domain §10). Rounds of kind `direct` are questions of their own. */
function isOfRequest({ round }: Candidate, { questionId, ref, round: { kind } }: Question) {
  const parts = ['oracle', 'requester', 'identifier', 'ancillaryHash'] as const
  const isShared =
    round.key === ref.key || (kind !== 'direct' && parts.every((part) => round[part] === ref[part]))
  return round.questionId === questionId || isShared
}

async function lookUp(view: ChainView, identifier: string) {
  try {
    return view.known(identifier) ?? (await view.question(identifier))
  } catch (error) {
    if (error instanceof UnavailableError) return error
    throw error
  }
}

async function shown(parts: AdmissionParts, candidate: Candidate) {
  const hasFailed = candidate.progress.status === 'failed'
  return json(200, wireStatus(candidate, hasFailed ? await prospects(parts, candidate) : undefined))
}

async function prospects({ ledger, view }: AdmissionParts, { proposer, round }: Candidate) {
  const question = view.faults().length > 0 ? undefined : await lookUp(view, round.questionId)
  if (question === undefined || question instanceof UnavailableError || !takesProposals(question))
    return { canResubmit: false, roundIsOpen: false }
  const isTaking =
    ledger.admissionEnabled &&
    ledger.eligible(proposer) &&
    !ledger.failed &&
    !ledger.isFull &&
    !ledger.down
  return {
    canResubmit: isTaking && ledger.activeInRound(proposer, question.ref.key) === undefined,
    roundIsOpen: true,
  }
}

function signingDataOf(question: Question, contracts: Contracts, body: SigningDataRequest) {
  const { round } = question
  const { oracle, requester, identifier, timestamp } = round
  const { outcome } = body
  const price = priceOf[outcome]
  return {
    version,
    question_id: question.questionId,
    request: { oracle, requester, identifier, timestamp, ancillary_data: round.ancillaryData },
    proposal: {
      outcome,
      label: round.outcomes.find((one) => one.outcome === outcome)?.label ?? outcome,
      price,
      max_payment: '0',
    },
    outcomes: round.outcomes.map((outcome) => ({ ...outcome })),
    permit: { ...body.permit },
    token: { ...round.token },
    economics: { total_bond: String(round.totalBondRaw), max_authorization: body.permit.amount },
    contracts: { permit2: contracts.permit2, signed_proposer: contracts.signedProposer },
    typed_data: typedData(domainOf(contracts), round, round.token.address, {
      price,
      ...body.permit,
    }),
  }
}

export function batchRoutes(
  parts: AdmissionParts,
): Handlers<'batchSigningData' | 'batchSubmit' | 'batchStatus'> {
  return {
    async batchSigningData({ body: { identifiers }, exchange }) {
      const { view, contracts } = parts
      view.readAhead(identifiers)
      const results = await eachItem(exchange, identifiers, 'identifier', async (identifier) => {
        const question = await findQuestion(view, identifier)
        requireState(view)
        requireOpen(question)
        return { signing_data: batchSigningDataOf(question.round, contracts) }
      })
      return json(200, { results })
    },
    async batchSubmit({ body: { proposals }, exchange }) {
      const items = proposals.map((item) => ({
        identifier: item.identifier,
        proposer: item.proposer,
        authorizationOf: (id: Hex) => fromBatchItem(id, item),
      }))
      const submitted = await submitAll(parts, exchange, 'batch', items)
      const count = (kind: Judgment['kind']) => submitted.filter((one) => one.kind === kind).length
      return json(200, {
        results: submitted.map((one, at) => submitResult(proposals[at]?.client_ref ?? null, one)),
        summary: {
          accepted: count('admitted'),
          replayed: count('replayed'),
          rejected: count('refused'),
        },
      })
    },
    async batchStatus({ body: { candidate_ids }, exchange }) {
      const results = await eachItem(exchange, candidate_ids, 'candidate_id', async (id) => {
        const candidate = await parts.ledger.get(id)
        if (!candidate) deny('candidate_not_found', 'candidate not found; check the id')
        const { failure: full, ...whole } = wireStatus(candidate)
        const shown = pick(whole, 'candidate_id', 'status', 'received_at', 'submission')
        const failure = full && { code: full.code, detail: full.detail }
        return { candidate: { ...shown, failure } }
      })
      return json(200, { results })
    },
  }
}

/** An item's failure is its own (§4.2 rule 3). */
function eachItem(
  exchange: Exchange,
  items: readonly string[],
  key: string,
  work: (item: string) => Promise<object>,
) {
  const limit = pLimit(itemsAtOnce)
  return Promise.all(
    items.map((item) =>
      limit(work, item).then(
        (found) => ({ [key]: item, status_code: 200, ...found }),
        (error: unknown) => ({ [key]: item, ...refusedItem(itemRefusal(exchange, error)) }),
      ),
    ),
  )
}

const refusedItem = (refusal: Refusal) => ({
  status_code: refusal.status,
  error: wireError(refusal),
})

function submitResult(client_ref: string | null, submitted: Judgment) {
  if (submitted.kind === 'refused') return { client_ref, ...refusedItem(submitted.refusal) }
  const { kind, candidate } = submitted
  return {
    client_ref,
    status_code: kind === 'admitted' ? 202 : 200,
    // Points to a route that is not served here (§2.7); clients never follow it.
    candidate: acknowledged(candidate, `/propose/status/${candidate.id}`),
  }
}
