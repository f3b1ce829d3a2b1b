/** What a user wants signed, and what the journal holds for it (R8, contract §6). */
import type { Hex } from '#ports'
import type { RoundRef } from '#protocol/candidate'
import { ConflictError, type ProposerError, UsageError } from '#protocol/errors'
import { type Labels, outcomeNamed } from '#protocol/outcome-words'
import { minimumDeadlineSeconds } from '#protocol/permit'
import { outcomeOf, priceOf } from '#protocol/proposal'
import type { Address, OutcomeKey } from '#protocol/schema'
import type { IntentTerms } from '../input/input.js'
import {
  answerOf,
  equalIntent,
  isFor,
  isOfQuestion,
  isOpen,
  type JournaledAuthorization,
  nextOwner,
  type Offer,
  openFor,
  otherGateway,
  otherTerms,
  stateOf,
  type Wanted,
} from '../journal/authorizations.js'
import type { JournalPorts, JournalView } from '../journal/journal.js'
import type { Offered, Signed } from '../journal/records.js'
import {
  atRequester,
  mayBeAt,
  pinnedQuestionId,
  type QuestionContext,
  sharedRound,
  type Trust,
} from '../trust/trust.js'
import type { SubmitParts } from './attempt.js'

export interface Intent extends IntentTerms {
  readonly proposer: Address
  readonly outcome: OutcomeKey
}

/** `outcome` may be a word that only the question's labels can tell (contract §9). */
export interface IntentInWords extends Omit<Intent, 'outcome'> {
  readonly outcome: string
}

export function meantBy(
  intent: IntentInWords,
  { labels }: { readonly labels?: Labels | undefined },
): Intent | undefined {
  const outcome = outcomeNamed(intent.outcome, labels)
  return outcome && { ...intent, outcome }
}

export interface LookParts {
  readonly ports: Pick<JournalPorts, 'clock'>
  readonly trust: Trust
}

type InJournal =
  | { readonly kind: 'none' }
  | { readonly kind: 'reuse'; readonly authorization: JournaledAuthorization }
  /** Typed data of equal intent is out there unsigned. */
  | { readonly kind: 'resume'; readonly offer: Offer }
  | { readonly kind: 'refuse'; readonly error: ProposerError }

/** The id itself, the pin of a slug, or what it meant when it was signed for. */
export function knownQuestionId(
  trust: Trust,
  identifier: string,
  view: JournalView,
): Hex | undefined {
  const before = () =>
    view.byIdentifier(identifier).findLast(({ signed }) => signed.chainId === trust.chain_id)
  return pinnedQuestionId(trust, identifier) ?? before()?.signed.questionId
}

const whoseOf = (trust: Trust, { proposer }: IntentInWords, questionId: Hex) => ({
  questionId,
  proposer,
  chainId: trust.chain_id,
  mayBeAt: (record: Parameters<typeof mayBeAt>[1]) => mayBeAt(trust, record),
})

export function wantedOf(trust: Trust, intent: Intent, questionId: Hex): Wanted {
  const { amountRaw, nonce, deadlineSeconds } = intent
  return {
    ...whoseOf(trust, intent, questionId),
    price: priceOf[intent.outcome],
    amount: amountRaw?.toString(),
    nonce: nonce?.toString(),
    deadline: deadlineSeconds?.toString(),
  }
}

export function isEqualTo(
  trust: Trust,
  intent: IntentInWords,
  questionId: Hex,
): (one: JournaledAuthorization) => boolean {
  return (one) => {
    const meant = meantBy(intent, one.signed)
    return meant !== undefined && equalIntent(one, wantedOf(trust, meant, questionId))
  }
}

/** In any round; none where one is to be replaced. */
export function savedFor(
  { ports, trust }: LookParts,
  view: JournalView,
  intent: IntentInWords,
): JournaledAuthorization | undefined {
  const questionId = knownQuestionId(trust, intent.identifier, view)
  if (questionId === undefined || intent.supersede !== undefined) return undefined
  const whose = whoseOf(trust, intent, questionId)
  return openFor(view.byQuestion(questionId), whose, ports.clock.nowMs()).findLast(
    isEqualTo(trust, intent, questionId),
  )
}

/**
 * Not where this home has signed for a later round (§3 rule 3); whether its round is the current
 * one, the replay tells (§3 rule 2).
 */
export async function executedBefore(
  { ports, trust, journal, gateway }: LookParts & Pick<SubmitParts, 'journal' | 'gateway'>,
  intent: IntentInWords,
  error: unknown,
): Promise<JournaledAuthorization | undefined> {
  if (!(error instanceof ConflictError) || error.code === 'authorization_open') return undefined
  const view = await journal.load()
  const questionId = knownQuestionId(trust, intent.identifier, view)
  if (questionId === undefined || intent.supersede !== undefined) return undefined
  const isOurs = isFor(whoseOf(trust, intent, questionId))
  const ours = view.byQuestion(questionId).filter(({ signed }) => isOurs(signed))
  const roundOf = ({ signed }: JournaledAuthorization) => BigInt(signed.timestamp ?? 0)
  const found = ours.filter(isEqualTo(trust, intent, questionId)).findLast((one) => {
    const state = stateOf(one, ports.clock.nowMs())
    return state.kind === 'closed' && state.reason === 'executed'
  })
  if (found === undefined || ours.some((one) => roundOf(one) > roundOf(found))) return undefined
  return otherGateway(found, gateway.origin) === undefined ? found : undefined
}

/** A conflict may be about an authorization of ours. */
export function withoutContext(
  { ports, trust }: LookParts,
  view: JournalView,
  intent: IntentInWords,
  error: ProposerError,
): ProposerError {
  const questionId = knownQuestionId(trust, intent.identifier, view)
  if (!(error instanceof ConflictError) || questionId === undefined) return error
  const whose = whoseOf(trust, intent, questionId)
  const open = openFor(view.byQuestion(questionId), whose, ports.clock.nowMs()).at(-1)
  return open === undefined || open.id === intent.supersede
    ? error
    : authorizationOpen(open, error.detail)
}

/** What is open for another question of the same round stands in the way too. */
export function byRound(
  { ports, trust }: LookParts,
  intent: Intent,
  view: JournalView,
  context: Pick<QuestionContext, 'question_id'> & {
    readonly request: Pick<QuestionContext['request'], 'timestamp' | 'requester'>
  },
  ref: () => RoundRef,
): { readonly same: InJournal; readonly earlier: readonly JournaledAuthorization[] } {
  const nowMs = ports.clock.nowMs()
  // What is open at another requester is of another round, and not of an earlier one.
  const pins = atRequester(trust, context.request.requester)
  const round = sharedRound(trust, context, ref)
  const wanted = { ...wantedOf(pins, intent, context.question_id), round }
  const isOther = ({ signed }: JournaledAuthorization) => signed.questionId !== wanted.questionId
  const others = round === undefined ? [] : view.byRound(round).filter(isOther)
  const open = openFor([...others, ...view.byQuestion(wanted.questionId)], wanted, nowMs)
  // A payload signed elsewhere does not tell its round: it counts in every one, the safe side.
  const isHere = ({ signed }: JournaledAuthorization) =>
    signed.timestamp === undefined || signed.timestamp === context.request.timestamp
  const here = open.filter(isHere)
  const offers = openFor(view.offers, wanted, nowMs).filter(
    ({ offered }) => offered.timestamp === context.request.timestamp,
  )
  return { same: sameIn(), earlier: open.filter((one) => !isHere(one)) }

  function sameIn(): InJournal {
    const { supersede } = intent
    const equal =
      supersede === undefined ? here.findLast((one) => equalIntent(one, wanted)) : undefined
    if (equal !== undefined) return { kind: 'reuse', authorization: equal }
    const isNamed = ({ id }: { readonly id: string }) => id === supersede
    if (supersede !== undefined && ![...here, ...offers].some(isNamed) && !isGone(supersede))
      return { kind: 'refuse', error: notSuperseded(supersede) }
    const other = here.findLast((one) => !isNamed(one))
    if (other !== undefined)
      return { kind: 'refuse', error: authorizationOpen(other, undefined, wanted) }
    const given = offers.findLast((one) => !isNamed(one))
    if (given === undefined) return { kind: 'none' }
    const isSame = supersede === undefined && equalIntent({ signed: given.offered }, wanted)
    return isSame && isInTime(given)
      ? { kind: 'resume', offer: given }
      : { kind: 'refuse', error: offerOpen(given, wanted) }
  }

  /** Revoked or ended since the user named it. */
  function isGone(id: string) {
    const one = view.find(id)
    return (
      one !== undefined &&
      isOfQuestion(one.signed, wanted) &&
      one.signed.terms.proposer === wanted.proposer &&
      !isOpen(one, nowMs)
    )
  }

  /** A signature that admission would refuse for its deadline is of no use. */
  function isInTime({ offered }: Offer) {
    const now = BigInt(Math.floor(nowMs / 1_000))
    return BigInt(offered.terms.deadline) >= now + minimumDeadlineSeconds
  }
}

const notSuperseded = (id: string) =>
  new UsageError(
    'not_superseded',
    `${id} is not an open authorization for this question and round`,
    'see `proposer journal list` for the open ones',
  )

function differs(record: Signed | Offered, wanted: Wanted | undefined) {
  if (wanted === undefined) return ''
  const { questionId } = wanted
  const sharing = `; question ${questionId} shares its round, which accepts one proposal for both`
  return otherTerms(record, wanted) + (questionId === record.questionId ? '' : sharing)
}

/** Exit 5, with what settles it (contract §6). */
export function authorizationOpen(
  authorization: JournaledAuthorization,
  because?: string,
  wanted?: Wanted,
): ConflictError {
  const { id, signed, candidateId, attempts } = authorization
  const outcome = outcomeOf(signed.terms.price)
  const settles =
    candidateId !== undefined
      ? `follow it with \`proposer poll ${candidateId}\``
      : attempts.length === 0
        ? `send it with \`proposer submit ${signed.identifier} --outcome ${outcome ?? '<answer>'}\``
        : `send it again with \`proposer replay ${id}\``
  const why = because === undefined ? '' : ` (${because})`
  return new ConflictError(
    'authorization_open',
    `question ${signed.questionId} has an open authorization by ${signed.terms.proposer}, signed for ${answerOf(signed)}${differs(signed, wanted)}${why}`,
    `${settles}, or replace it with --supersede ${id}`,
  )
}

/** Exit 5 (R8). */
export function offerOpen({ id, offered, parts }: Offer, wanted?: Wanted): ConflictError {
  const goOn =
    parts.length === 0
      ? `attach its signature with \`proposer sign ${offered.identifier} --signature <hex>\``
      : `let the next owner sign with \`${nextOwner(offered)}\``
  return new ConflictError(
    'authorization_open',
    `${id} was issued as typed data to be signed by ${offered.terms.proposer} for question ${offered.questionId}, ${answerOf(offered)}${differs(offered, wanted)}`,
    `${goOn}, or replace it with --supersede ${id}`,
  )
}
