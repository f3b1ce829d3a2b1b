/**
 * Of one signed authorization, single or item (§4.1 rule 3): cheap before expensive (R19), the
 * look-up of a replay before all that changes with time (robustness §4).
 */
import pLimit from 'p-limit'
import type { Contracts } from '#chain/round'
import type { Hash } from '#ports'
import type { Candidate } from '#protocol/candidate'
import { permitFault } from '#protocol/permit'
import { type Authorization, identityOf, outcomeKeys, outcomeOf, priceOf } from '#protocol/proposal'
import { addressOf, splitSignature } from '#protocol/recovered'
import type { Refusal } from '#protocol/refusal'
import type { Address } from '#protocol/schema'
import { toHex } from '#protocol/witness'
import { isQuestionId } from '#protocol/words'
import type { Admission, Ledger, NewCandidate } from '../ledger/ledger.js'
import type { ChainView, Question } from '../view/state.js'
import { deny, type Exchange, itemRefusal, Refused } from './answer.js'
import type { QueuedRecovery } from './line.js'

export interface AdmissionParts {
  readonly contracts: Contracts
  readonly ledger: Ledger
  readonly view: ChainView
  readonly hash: Hash
  readonly recover: QueuedRecovery
  readonly hasFilled: (proposer: Address) => boolean
}

interface Placed {
  readonly kind: 'admitted' | 'replayed'
  readonly candidate: Candidate
}
export type Judgment = Placed | { readonly kind: 'refused'; readonly refusal: Refusal }

/** `ready` has passed all but conflict and commit, which `place` makes in one step. */
type Judged =
  | { readonly kind: 'known'; readonly id: string; readonly mayRevive: boolean }
  | { readonly kind: 'ready'; readonly candidate: NewCandidate }

type ProposalForm = 'single' | 'batch'

/** Waits for the chain only for a question seen for the first time (contract §2). */
export async function findQuestion(view: ChainView, identifier: string): Promise<Question> {
  const found = view.known(identifier) ?? (await view.question(identifier))
  return found || questionNotFound()
}

export function questionNotFound(): never {
  deny(
    'question_not_found',
    'no trusted requester knows this question; check the question id or slug',
  )
}

export function requireState(view: ChainView) {
  const [fault] = view.faults()
  if (fault !== undefined) deny('state_unavailable', `the chain's state is not known: ${fault}`)
}

export function takesProposals({ round }: Question): boolean {
  return round.state === 'requested' && !round.paused
}

export function requireOpen(question: Question) {
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

export function requirePrice({ round }: Question, price: string, form: ProposalForm) {
  const key = outcomeOf(price)
  const allowed = round.outcomes.filter((outcome) => outcome.allowed)
  if (allowed.some(({ outcome }) => outcome === key)) return
  const choices = (names: readonly string[]) =>
    names.length === 0
      ? 'it allows no outcome; choose another question'
      : `allowed: ${names.join(', ')}`
  if (form === 'single')
    deny(
      'outcome_not_allowed',
      `${key ?? 'this outcome'} is not allowed for this request; ${choices(allowed.map(({ outcome }) => outcome))}`,
    )
  const known = outcomeKeys.map((outcome) => `${priceOf[outcome]} (${outcome})`).join(', ')
  const what = key === undefined ? `must be one of ${known}` : 'is not allowed for this request'
  deny(
    'price_not_allowed',
    `proposed_price ${what}; ${choices(allowed.map((outcome) => outcome.price))}`,
  )
}

export function requirePermit(
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

/**
 * Admitted under a slug which names another question by now. The sender has its signature: its id
 * is no secret.
 */
async function refuseMoved(ledger: Ledger, { proposer, nonce, signature }: Authorization) {
  const active = ledger.activeWithNonce(proposer, nonce)
  const candidate = active && (await ledger.get(active.id))
  if (candidate?.signature === signature)
    deny(
      'candidate_conflict',
      `this payload is candidate ${candidate.id} of question ${candidate.round.questionId}, which this slug does not refer to; poll that candidate by its question id`,
    )
}

/** For what is asked of it for the first time, and for what a contract wallet says. */
function asksChain({ view }: AdmissionParts, identifier: string, proposer: Address) {
  return view.known(identifier) === undefined || view.knownCode(proposer) !== false
}

/**
 * As the chain would (domain §3.3). What memory says of the code may be a minute old: it may
 * accept, it refuses nobody.
 */
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
  // A rival that is still active explains more than the nonce it has spent; the ledger names it.
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
  const where = reason === 'round' ? 'in this round' : 'with this permit nonce'
  const held = reason === 'round' ? (await ledger.get(candidateId))?.round.questionId : questionId
  const sharing =
    held === undefined || held === questionId
      ? ''
      : `, for question ${held}: both questions share this round, and one proposal answers both`
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

export const itemsAtOnce = 8

/**
 * Checks run side by side; places are taken in input order (contract §4), at once, so that a call
 * shares one sync.
 */
export async function submitAll(
  parts: AdmissionParts,
  exchange: Exchange,
  form: ProposalForm,
  items: readonly SubmittedItem[],
): Promise<readonly Judgment[]> {
  const limit = items.length > itemsAtOnce ? pLimit(itemsAtOnce) : undefined
  const refused = (error: unknown) =>
    ({ kind: 'refused', refusal: itemRefusal(exchange, error) }) as const
  const judging = items.map((item) => {
    const judged = () => judge(parts, exchange, form, item)
    const waits = limit && asksChain(parts, item.identifier, item.proposer)
    return (waits ? limit(judged) : judged()).catch(refused)
  })
  const placed: (Judgment | Promise<Judgment>)[] = []
  for (const judged of await Promise.all(judging)) {
    const placing = judged.kind === 'refused' ? judged : place(parts, judged).catch(refused)
    placed.push(placing)
    if (judged.kind === 'known' && parts.ledger.byId(judged.id)?.retryable) await placing
  }
  return Promise.all(placed)
}
