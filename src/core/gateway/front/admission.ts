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
import { type Refusal, refuse } from '#protocol/refusal'
import type { Address } from '#protocol/schema'
import { toHex } from '#protocol/witness'
import { isQuestionId } from '#protocol/words'
import type { Admission, Ledger, NewCandidate } from '../ledger/ledger.js'
import type { ChainView, Question } from '../view/state.js'
import { type Exchange, itemRefusal } from './answer.js'
import type { QueuedRecovery } from './line.js'

export interface AdmissionParts {
  readonly contracts: Contracts
  readonly ledger: Ledger
  readonly view: ChainView
  readonly hash: Hash
  readonly recover: QueuedRecovery
  readonly hasFilled: (proposer: Address) => boolean
}

export type Judgment =
  | { readonly kind: 'admitted' | 'replayed'; readonly candidate: Candidate }
  | { readonly kind: 'refused'; readonly refusal: Refusal }

/** `ready` has passed all but conflict and commit, which `place` makes in one step. */
type JudgedItem =
  | { readonly kind: 'refused'; readonly refusal: Refusal }
  | { readonly kind: 'known'; readonly id: string; readonly mayRevive: boolean }
  | { readonly kind: 'ready'; readonly candidate: NewCandidate }

const refused = (refusal: Refusal) => ({ kind: 'refused', refusal }) as const
const refusing = (...why: Parameters<typeof refuse>) => refused(refuse(...why))

type ProposalForm = 'single' | 'batch'

/** Waits for the chain only for a question seen for the first time (contract §2). */
export async function findQuestion(
  view: ChainView,
  identifier: string,
): Promise<Question | Refusal> {
  return (view.known(identifier) ?? (await view.question(identifier))) || questionNotFound()
}

export function questionNotFound(): Refusal {
  return refuse(
    'question_not_found',
    'no trusted requester knows this question; check the question id or slug',
  )
}

export function isQuestion(found: Question | Refusal): found is Question {
  return 'round' in found
}

export function stateFault(view: ChainView): Refusal | undefined {
  const [fault] = view.faults()
  return fault === undefined
    ? undefined
    : refuse('state_unavailable', `the chain's state is not known: ${fault}`)
}

export function takesProposals({ round }: Question): boolean {
  return round.state === 'requested' && !round.paused
}

export function notOpen({ round }: Question): Refusal {
  const about = `this round (timestamp ${round.timestamp})`
  return refuse(
    'request_not_open',
    round.paused
      ? `${about} is paused at its requester; wait until it is unpaused`
      : `${about} is ${round.state}; proposals are accepted only while it is requested; wait for a new round`,
  )
}

export function priceFault(
  { round }: Question,
  price: string,
  form: ProposalForm,
): Refusal | undefined {
  const key = outcomeOf(price)
  if (round.outcomes.some((outcome) => outcome.outcome === key && outcome.allowed)) return undefined
  const allowed = round.outcomes.filter((outcome) => outcome.allowed)
  if (form === 'single') {
    const keys = allowed.map((outcome) => outcome.outcome)
    return refuse(
      'outcome_not_allowed',
      `${key ?? 'this outcome'} is not allowed for this request; ${allowedText(keys)}`,
    )
  }
  const prices = allowed.map((outcome) => outcome.price)
  const known = outcomeKeys.map((outcome) => `${priceOf[outcome]} (${outcome})`).join(', ')
  return refuse(
    'price_not_allowed',
    key === undefined
      ? `proposed_price must be one of ${known}; ${allowedText(prices)}`
      : `proposed_price is not allowed for this request; ${allowedText(prices)}`,
  )
}

const allowedText = (names: readonly string[]) =>
  names.length === 0
    ? 'it allows no outcome; choose another question'
    : `allowed: ${names.join(', ')}`

export const permitRefusal = (
  question: Question,
  view: ChainView,
  permit: { amount: string; deadline: string },
) => permitFault(permit, question.round.totalBondRaw, view.nowSeconds())

async function judge(
  parts: AdmissionParts,
  exchange: Exchange,
  form: ProposalForm,
  { identifier, authorizationOf }: SubmittedItem,
): Promise<JudgedItem> {
  const { ledger, view, contracts, hash } = parts
  if (ledger.failed) return refusing('store_unavailable', 'the store no longer accepts writes')
  const question = await findQuestion(view, identifier)
  if (!isQuestion(question)) return refused(question)
  const authorization = authorizationOf(question.questionId)
  const { proposer } = authorization
  const identity = identityOf(
    hash,
    { chainId: contracts.chainId, spender: contracts.signedProposer },
    authorization,
  )

  const known = ledger.byIdentity(identity)
  if (known)
    return known.roundKey === question.ref.key
      ? { kind: 'known', id: known.id, mayRevive: !parts.hasFilled(proposer) }
      : refused(roundAdvanced(known.id))

  if (!ledger.admissionEnabled)
    return refusing('admission_disabled', 'the operator has disabled admission')
  if (!ledger.eligible(proposer)) {
    return refusing(
      'proposer_not_eligible',
      'this proposer is not on the allowlist; ask the operator to add it',
    )
  }
  if (parts.hasFilled(proposer)) {
    return refusing(
      'proposer_not_eligible',
      'the failed proposals of this proposer fill what a wallet may add to the store in a day; correct what fails, and sign again after 00:00 UTC',
    )
  }
  const unknown = stateFault(view)
  if (unknown) return refused(unknown)

  // With an active payload in the round the caller has to hear of that one, once it has proved to
  // be the proposer (contract §2).
  if (!takesProposals(question) && !ledger.activeInRound(proposer, question.ref.key))
    return refused(notOpen(question))
  const value =
    priceFault(question, authorization.price, form) ?? permitRefusal(question, view, authorization)
  if (value) return refused(value)

  const digest = question.witness.digest(authorization)
  if (!(await isAuthorized(parts, exchange, digest, authorization))) {
    const moved = isQuestionId(identifier) ? undefined : await heldElsewhere(ledger, authorization)
    if (moved) return refused(moved)
    return refusing(
      'signature_not_authorized',
      'the signature does not authorize this exact proposal for this proposer; check chain, round, price and permit, and sign again',
    )
  }
  const { price, amount, nonce, deadline, signature } = authorization
  return {
    kind: 'ready',
    candidate: {
      identity,
      round: question.ref,
      proposer,
      price,
      amount,
      nonce,
      deadline,
      signature,
      digest: toHex(digest),
    },
  }
}

/**
 * Admitted under a slug which names another question by now. The sender has its signature: its id
 * is no secret.
 */
async function heldElsewhere(
  ledger: Ledger,
  { proposer, nonce, signature }: Authorization,
): Promise<Refusal | undefined> {
  const active = ledger.activeWithNonce(proposer, nonce)
  const candidate = active && (await ledger.get(active.id))
  if (candidate?.signature !== signature) return undefined
  return refuse(
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

/**
 * The place is taken before this returns: callers that need an order await later, to share one
 * sync.
 */
function place(
  { ledger, view }: AdmissionParts,
  judged: Exclude<JudgedItem, { kind: 'refused' }>,
): Promise<Judgment> {
  if (judged.kind === 'known')
    return ledger
      .replay(judged.id, judged.mayRevive)
      .then((candidate) => ({ kind: 'replayed', candidate }))
  const { candidate } = judged
  const { proposer, nonce, round } = candidate
  // A rival that is still active explains more than the nonce it has spent; the ledger names it.
  const rival = ledger.activeInRound(proposer, round.key) ?? ledger.activeWithNonce(proposer, nonce)
  if (!rival && view.nonceKnownUsed(proposer, BigInt(nonce))) {
    return Promise.resolve(
      refusing(
        'permit_nonce_used',
        'permit.nonce is already spent or invalidated in Permit2; sign again with an unused nonce',
      ),
    )
  }
  return ledger.admit(candidate).then(async (admission): Promise<Judgment> => {
    if (admission.kind === 'conflict') return refused(await conflict(ledger, round, admission))
    if (admission.candidate.round.key !== round.key)
      return refused(roundAdvanced(admission.candidate.id))
    return admission
  })
}

async function conflict(
  ledger: Ledger,
  { questionId }: Candidate['round'],
  { candidateId, reason }: Extract<Admission, { kind: 'conflict' }>,
): Promise<Refusal> {
  const where =
    reason === 'round'
      ? 'another active payload in this round'
      : 'another active payload with this permit nonce'
  const held = reason === 'round' ? (await ledger.get(candidateId))?.round.questionId : questionId
  const sharing =
    held === undefined || held === questionId
      ? ''
      : `, for question ${held}: both questions share this round, and one proposal answers both`
  return refuse(
    'candidate_conflict',
    `this proposer has ${where}, candidate ${candidateId}${sharing}; reconcile it before submitting anything else`,
  )
}

/** Whoever sends it has its signature, so its id is no secret (§3 rule 3). */
function roundAdvanced(candidateId: string): Refusal {
  return refuse(
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
 * Checks run side by side; places are taken in input order (contract §4), and commits share few
 * syncs.
 */
export async function submitAll(
  parts: AdmissionParts,
  exchange: Exchange,
  form: ProposalForm,
  items: readonly SubmittedItem[],
): Promise<readonly Judgment[]> {
  const limit =
    items.length > itemsAtOnce
      ? pLimit(itemsAtOnce)
      : (judged: () => Promise<JudgedItem>) => judged()
  const failedItem = (error: unknown) => refused(itemRefusal(exchange, error))
  const judging = items.map(async (item): Promise<JudgedItem> => {
    const judged = () => judge(parts, exchange, form, item)
    try {
      const isLimited = asksChain(parts, item.identifier, item.proposer)
      return await (isLimited ? limit(judged) : judged())
    } catch (error) {
      return failedItem(error)
    }
  })
  const placed: Promise<Judgment>[] = []
  for (const one of judging) {
    const judged = await one
    const placing =
      judged.kind === 'refused' ? Promise.resolve(judged) : place(parts, judged).catch(failedItem)
    placed.push(placing)
    if (judged.kind === 'known' && parts.ledger.byId(judged.id)?.retryable) await placing
  }
  return Promise.all(placed)
}
