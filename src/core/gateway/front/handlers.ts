/** What the routes of the spec do, for one question and for up to a hundred items (§2, §4). */
import pLimit from 'p-limit'
import { batchSigningDataOf, type Contracts, domainOf } from '#chain/round'
import type { Hash, Hex } from '#ports'
import { type Candidate, instant, wireStatus } from '#protocol/candidate'
import { UnavailableError } from '#protocol/errors'
import { labelIn } from '#protocol/outcome-words'
import { permitFault } from '#protocol/permit'
import { pick } from '#protocol/pick'
import {
  type Authorization,
  fromBatchItem,
  fromSingle,
  identityOf,
  outcomeKeys,
  outcomeOf,
  priceOf,
} from '#protocol/proposal'
import { addressOf, splitSignature } from '#protocol/recovered'
import { type Refusal, wireError } from '#protocol/refusal'
import type { Address, SigningDataRequest } from '#protocol/schema'
import { toHex, typedData } from '#protocol/witness'
import { isAddress, isQuestionId, version } from '#protocol/words'
import type { Admission, Ledger, NewCandidate } from '../ledger/ledger.js'
import type { ChainView, Question } from '../view/state.js'
import type { createRecoveries } from './line.js'
import { deny, type Exchange, type Handlers, json, Refused, refusalOf } from './routes.js'

interface AdmissionParts {
  readonly contracts: Contracts
  readonly ledger: Ledger
  readonly view: ChainView
  readonly hash: Hash
  readonly recover: ReturnType<typeof createRecoveries>
  readonly hasFilled: (proposer: Address) => boolean
}

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
async function status(parts: AdmissionParts, identifier: string, candidateId: string) {
  const { ledger, view } = parts
  const candidate = await ledger.get(candidateId)
  if (candidate && isQuestionId(identifier) && candidate.round.questionId === identifier)
    return shown(parts, candidate)
  const question = await lookUp(view, identifier)
  if (question === undefined) questionNotFound()
  // What is not held under a question id is not found, whatever the chain says.
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

const lookUp = async (view: ChainView, identifier: string) =>
  view.known(identifier) ??
  view.question(identifier).catch((error: unknown) => {
    if (error instanceof UnavailableError) return error
    throw error
  })

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
  const { outcome, permit } = body
  const price = priceOf[outcome]
  return {
    version,
    question_id: question.questionId,
    request: {
      ...pick(round, 'oracle', 'requester', 'identifier', 'timestamp'),
      ancillary_data: round.ancillaryData,
    },
    proposal: {
      outcome,
      label: labelIn(round.outcomes, outcome) ?? outcome,
      price,
      max_payment: '0',
    },
    ...{ outcomes: round.outcomes, permit, token: round.token },
    economics: { total_bond: String(round.totalBondRaw), max_authorization: permit.amount },
    contracts: { permit2: contracts.permit2, signed_proposer: contracts.signedProposer },
    typed_data: typedData(domainOf(contracts), round, round.token.address, { price, ...permit }),
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
      const results = submitted.map((one, at) => ({
        client_ref: proposals[at]?.client_ref ?? null,
        ...(one.kind === 'refused' ? refusedItem(one.refusal) : submittedItem(one)),
      }))
      const [accepted, replayed] = [count('admitted'), count('replayed')]
      return json(200, { results, summary: { accepted, replayed, rejected: count('refused') } })
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

const eachItem = (
  exchange: Exchange,
  items: readonly string[],
  key: string,
  work: (item: string) => Promise<object>,
) =>
  pLimit(itemsAtOnce).map(items, (item) =>
    work(item).then(
      (found) => ({ [key]: item, status_code: 200, ...found }),
      (error: unknown) => ({ [key]: item, ...refusedItem(refusalOf(exchange, error)) }),
    ),
  )

const refusedItem = (refusal: Refusal) => ({
  status_code: refusal.status,
  error: wireError(refusal),
})

const submittedItem = ({ kind, candidate }: Placed) => ({
  status_code: kind === 'admitted' ? 202 : 200,
  // Points to a route that is not served here (§2.7); clients never follow it.
  candidate: acknowledged(candidate, `/propose/status/${candidate.id}`),
})

type Placed = Exclude<Admission, { kind: 'conflict' }>
type Judgment = Placed | { readonly kind: 'refused'; readonly refusal: Refusal }

type Judged =
  | { readonly kind: 'known'; readonly id: string; readonly mayRevive: boolean }
  | { readonly kind: 'ready'; readonly candidate: NewCandidate }

type ProposalForm = 'single' | 'batch'

async function findQuestion(view: ChainView, identifier: string) {
  const found = view.known(identifier) ?? (await view.question(identifier))
  return found || questionNotFound()
}

function questionNotFound(): never {
  deny(
    'question_not_found',
    'no trusted requester knows this question; check the question id or slug',
  )
}

function requireState(view: ChainView) {
  const [fault] = view.faults()
  if (fault !== undefined) deny('state_unavailable', `the chain's state is not known: ${fault}`)
}

const takesProposals = ({ round }: Question) => round.state === 'requested' && !round.paused

function requireOpen(question: Question) {
  if (takesProposals(question)) return
  const { paused, state, timestamp } = question.round
  const about = `this round (timestamp ${timestamp})`
  deny(
    'request_not_open',
    paused
      ? `${about} is paused at its requester; wait until it is unpaused`
      : `${about} is ${state}; proposals are accepted only while it is requested; wait for a new round`,
  )
}

function requirePrice({ round }: Question, price: string, form: ProposalForm) {
  const key = outcomeOf(price)
  const allowed = round.outcomes.filter((outcome) => outcome.allowed)
  if (allowed.some(({ outcome }) => outcome === key)) return
  const isSingle = form === 'single'
  const names = allowed.map(({ outcome, price }) => (isSingle ? outcome : price))
  const choices =
    names.length === 0
      ? 'it allows no outcome; choose another question'
      : `allowed: ${names.join(', ')}`
  const notAllowed = 'is not allowed for this request'
  if (isSingle) deny('outcome_not_allowed', `${key} ${notAllowed}; ${choices}`)
  const known = outcomeKeys.map((outcome) => `${priceOf[outcome]} (${outcome})`).join(', ')
  const what = key === undefined ? `must be one of ${known}` : notAllowed
  deny('price_not_allowed', `proposed_price ${what}; ${choices}`)
}

function requirePermit(
  { round }: Question,
  view: ChainView,
  permit: { amount: string; deadline: string },
) {
  const fault = permitFault(permit, round.totalBondRaw, view.nowSeconds())
  if (fault) throw new Refused(fault)
}

async function judge(
  parts: AdmissionParts,
  exchange: Exchange,
  form: ProposalForm,
  { identifier, authorizationOf }: SubmittedItem,
): Promise<Judged> {
  const { ledger, view, contracts, hash } = parts
  if (ledger.failed) deny('store_unavailable', 'the store no longer accepts writes')
  const question = await findQuestion(view, identifier)
  const { ref, witness } = question
  const authorization = authorizationOf(question.questionId)
  const { proposer, price, amount, nonce, deadline, signature } = authorization
  const { chainId, signedProposer: spender } = contracts
  const identity = identityOf(hash, { chainId, spender }, authorization)

  const known = ledger.byIdentity(identity)
  if (known) {
    if (known.roundKey !== ref.key) roundAdvanced(known.id)
    return { kind: 'known', id: known.id, mayRevive: !parts.hasFilled(proposer) }
  }
  if (!ledger.admissionEnabled) deny('admission_disabled', 'the operator has disabled admission')
  if (!ledger.eligible(proposer))
    deny(
      'proposer_not_eligible',
      'this proposer is not on the allowlist; ask the operator to add it',
    )
  if (parts.hasFilled(proposer))
    deny(
      'proposer_not_eligible',
      'the failed proposals of this proposer fill what a wallet may add to the store in a day; correct what fails, and sign again after 00:00 UTC',
    )
  requireState(view)
  // With an active payload in the round the caller has to hear of that one, once it has proved to
  // be the proposer (contract §2).
  if (!ledger.activeInRound(proposer, ref.key)) requireOpen(question)
  requirePrice(question, price, form)
  requirePermit(question, view, authorization)

  const digest = witness.digest(authorization)
  if (!(await isAuthorized(parts, exchange, digest, authorization))) {
    if (!isQuestionId(identifier)) await refuseMoved(ledger, authorization)
    deny(
      'signature_not_authorized',
      'the signature does not authorize this exact proposal for this proposer; check chain, round, price and permit, and sign again',
    )
  }
  const signed = { proposer, price, amount, nonce, deadline, signature, digest: toHex(digest) }
  return { kind: 'ready', candidate: { identity, round: ref, ...signed } }
}

async function refuseMoved(ledger: Ledger, { proposer, nonce, signature }: Authorization) {
  const active = ledger.activeWithNonce(proposer, nonce)
  const candidate = active && (await ledger.get(active.id))
  if (candidate?.signature === signature)
    deny(
      'candidate_conflict',
      `this payload is candidate ${candidate.id} of question ${candidate.round.questionId}, which this slug does not refer to; poll that candidate by its question id`,
    )
}

/** What memory says of the code may be a minute old: it may accept, it refuses nobody. */
async function isAuthorized(
  { view, recover }: AdmissionParts,
  exchange: Exchange,
  digest: Uint8Array,
  { proposer, signature }: Authorization,
) {
  const accepts = async (hasCode: boolean) => {
    if (hasCode) return view.authorizes(proposer, toHex(digest), signature)
    const split = splitSignature(signature)
    const key = split && (await recover(exchange, digest, ...split))
    return key !== undefined && addressOf(key) === proposer
  }
  const known = view.knownCode(proposer)
  if (known !== undefined && (await accepts(known))) return true
  const hasCode = await view.hasCode(proposer)
  return hasCode !== known && accepts(hasCode)
}

/** The place is taken before its first `await`: callers that need an order await it later. */
async function place({ ledger, view }: AdmissionParts, judged: Judged): Promise<Placed> {
  if (judged.kind === 'known') {
    const candidate = await ledger.replay(judged.id, judged.mayRevive)
    return { kind: 'replayed', candidate }
  }
  const { candidate } = judged
  const { proposer, nonce, round } = candidate
  // A rival that is still active explains more than the nonce it has spent.
  const rival = ledger.activeInRound(proposer, round.key) ?? ledger.activeWithNonce(proposer, nonce)
  if (!rival && view.nonceKnownUsed(proposer, BigInt(nonce)))
    deny(
      'permit_nonce_used',
      'permit.nonce is already spent or invalidated in Permit2; sign again with an unused nonce',
    )
  const admission = await ledger.admit(candidate)
  if (admission.kind === 'conflict') return conflict(ledger, round, admission)
  if (admission.candidate.round.key !== round.key) roundAdvanced(admission.candidate.id)
  return admission
}

async function conflict(
  ledger: Ledger,
  { questionId }: Candidate['round'],
  { candidateId, reason }: Extract<Admission, { kind: 'conflict' }>,
): Promise<never> {
  const isOfRound = reason === 'round'
  const where = isOfRound ? 'in this round' : 'with this permit nonce'
  const held = isOfRound && (await ledger.get(candidateId))?.round.questionId
  const sharing =
    held && held !== questionId
      ? `, for question ${held}: both questions share this round, and one proposal answers both`
      : ''
  deny(
    'candidate_conflict',
    `this proposer has another active payload ${where}, candidate ${candidateId}${sharing}; reconcile it before submitting anything else`,
  )
}

/** Whoever sends it has its signature, so its id is no secret (§3 rule 3). */
function roundAdvanced(candidateId: string): never {
  deny(
    'round_advanced',
    `this payload was signed for an earlier round; poll its candidate ${candidateId} until it ends, then sign for the current round`,
  )
}

interface SubmittedItem {
  readonly identifier: string
  readonly proposer: Address
  readonly authorizationOf: (questionId: Question['questionId']) => Authorization
}

const itemsAtOnce = 8

/**
 * Checks run side by side; places are taken in input order (contract §4). Where nobody asks the
 * chain, which may take seconds, they are taken at once: a call shares one sync.
 */
async function submitAll(
  parts: AdmissionParts,
  exchange: Exchange,
  form: ProposalForm,
  items: readonly SubmittedItem[],
): Promise<readonly Judgment[]> {
  const { ledger, view } = parts
  const asksChain = ({ identifier, proposer }: SubmittedItem) =>
    view.known(identifier) === undefined || view.knownCode(proposer) !== false
  const asking = new Set(items.length > 1 ? items.filter(asksChain) : [])
  const limit = asking.size > itemsAtOnce ? pLimit(itemsAtOnce) : undefined
  const refused = (error: unknown) =>
    ({ kind: 'refused', refusal: refusalOf(exchange, error) }) as const
  const judging = items.map((item) => {
    const judged = () => judge(parts, exchange, form, item)
    return (limit && asking.has(item) ? limit(judged) : judged()).catch(refused)
  })
  const placed: (Judgment | Promise<Judgment>)[] = []
  for (const one of asking.size > 0 ? judging : await Promise.all(judging)) {
    const judged = await one
    const placing = judged.kind === 'refused' ? judged : place(parts, judged).catch(refused)
    placed.push(placing)
    if (judged.kind === 'known' && ledger.byId(judged.id)?.retryable) await placing
  }
  return Promise.all(placed)
}
