/** What a user wants signed, and what the journal holds for it (R8, contract §6). */
import type { Hex } from '#ports'
import type { RoundRef } from '#protocol/candidate'
import { ConflictError, type ProposerError, UsageError } from '#protocol/errors'
import { outcomeNamed } from '#protocol/outcome-words'
import { minimumDeadlineSeconds } from '#protocol/permit'
import { outcomeOf, priceOf } from '#protocol/proposal'
import type { Address, OutcomeKey } from '#protocol/schema'
import type { IntentTerms } from '../input/input.js'
import {
  answerOf,
  equalIntent,
  isFor,
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

interface LookParts {
  readonly ports: Pick<JournalPorts, 'clock'>
  readonly trust: Trust
}

/** The id itself, the pin of a slug, or what it meant when it was signed for. */
export function knownQuestionId(trust: Trust, identifier: string, view: JournalView) {
  const isHere = ({ signed }: JournaledAuthorization) => signed.chainId === trust.chain_id
  const before = () => view.byIdentifier(identifier).findLast(isHere)
  return pinnedQuestionId(trust, identifier) ?? before()?.signed.questionId
}

/** But for the answer. */
const wantedOf = (trust: Trust, intent: Intent | IntentInWords, questionId: Hex) => ({
  questionId,
  proposer: intent.proposer,
  chainId: trust.chain_id,
  mayBeAt: (record: Parameters<typeof mayBeAt>[1]) => mayBeAt(trust, record),
  amount: intent.amountRaw?.toString(),
  nonce: intent.nonce?.toString(),
  deadline: intent.deadlineSeconds?.toString(),
})

export const isOfBatch = ({ attempts }: JournaledAuthorization, fingerprint: string | undefined) =>
  fingerprint !== undefined && attempts.some(({ start }) => start.batch === fingerprint)

/** In any round: what is this wallet's, what of it is open, what is of equal intent. */
export function oursFor({ ports, trust }: LookParts, view: JournalView, intent: IntentInWords) {
  const questionId = knownQuestionId(trust, intent.identifier, view)
  if (questionId === undefined) return { all: [], open: [], equal: [] }
  const wanted = wantedOf(trust, intent, questionId)
  const all = view.byQuestion(questionId).filter(({ signed }) => isFor(wanted)(signed))
  const equal = all.filter((one) => {
    const outcome = outcomeNamed(intent.outcome, one.signed.labels)
    return outcome && equalIntent(one, { ...wanted, price: priceOf[outcome] })
  })
  return { all, open: openFor(all, wanted, ports.clock.nowMs()), equal }
}

/**
 * Not where this home has signed for a later round (§3 rule 3); whether its round is the current
 * one, the replay tells (§3 rule 2).
 */
export function executedBefore(
  parts: LookParts & Pick<SubmitParts, 'gateway'>,
  view: JournalView,
  intent: IntentInWords,
  error: unknown,
) {
  const isRoundClosed = error instanceof ConflictError && error.code !== 'authorization_open'
  if (!isRoundClosed || intent.supersede !== undefined) return undefined
  const { all, equal } = oursFor(parts, view, intent)
  const found = equal.findLast((one) => {
    const state = stateOf(one, parts.ports.clock.nowMs())
    return state.kind === 'closed' && state.reason === 'executed'
  })
  if (found === undefined || otherGateway(found, parts.gateway.origin)) return undefined
  const roundOf = ({ signed }: JournaledAuthorization) => BigInt(signed.timestamp ?? 0)
  return all.some((one) => roundOf(one) > roundOf(found)) ? undefined : found
}

export function withoutContext(
  parts: LookParts,
  view: JournalView,
  intent: IntentInWords,
  error: ProposerError,
) {
  if (!(error instanceof ConflictError)) return error
  const open = oursFor(parts, view, intent).open.at(-1)
  return open === undefined || open.id === intent.supersede
    ? error
    : authorizationOpen(open, error.detail)
}

/** What is open for another question of the same round stands in the way too (R8). */
export function byRound(
  { ports, trust }: LookParts,
  intent: Intent,
  view: JournalView,
  context: QuestionContext,
  ref: RoundRef,
) {
  const nowMs = ports.clock.nowMs()
  const { timestamp, requester } = context.request
  const { supersede } = intent
  // What is open at another requester is of no earlier round.
  const pins = atRequester(trust, requester)
  const round = sharedRound(trust, context, ref)
  const price = priceOf[intent.outcome]
  const wanted = { ...wantedOf(pins, intent, context.question_id), price, round }
  const isOther = ({ signed }: JournaledAuthorization) => signed.questionId !== wanted.questionId
  const others = round === undefined ? [] : view.byRound(round).filter(isOther)
  const open = openFor([...others, ...view.byQuestion(wanted.questionId)], wanted, nowMs)
  // A payload signed elsewhere does not tell its round: it counts in every one, the safe side.
  const isHere = ({ signed }: JournaledAuthorization) =>
    signed.timestamp === undefined || signed.timestamp === timestamp
  const here = open.filter(isHere)
  const offers = openFor(view.offers, wanted, nowMs).filter(
    ({ offered }) => offered.timestamp === timestamp,
  )
  const earlier = open.filter((one) => !isHere(one))
  const isNamed = ({ id }: { readonly id: string }) => id === supersede
  const saved = supersede ? undefined : here.findLast((one) => equalIntent(one, wanted))
  if (saved !== undefined) return { saved, earlier }
  if (supersede && ![...here, ...offers].some(isNamed) && !isGone(supersede))
    throw new UsageError(
      'not_superseded',
      `${supersede} is not an open authorization for this question and round`,
      'see `proposer journal list` for the open ones',
    )
  const other = here.findLast((one) => !isNamed(one))
  if (other !== undefined) throw authorizationOpen(other, undefined, wanted)
  const offer = offers.findLast((one) => !isNamed(one))
  if (offer === undefined) return { earlier }
  // A signature that admission would refuse for its deadline is of no use.
  const earliest = BigInt(Math.floor(nowMs / 1_000)) + minimumDeadlineSeconds
  const isInTime = BigInt(offer.offered.terms.deadline) >= earliest
  if (!supersede && isInTime && equalIntent({ signed: offer.offered }, wanted))
    return { offer, earlier }
  throw offerOpen(offer, wanted)

  /** Revoked or ended since the user named it. */
  function isGone(id: string) {
    const one = view.find(id)
    return one && isFor({ ...wanted, mayBeAt: undefined })(one.signed) && !isOpen(one, nowMs)
  }
}

function differs(record: Signed | Offered, wanted: Wanted | undefined) {
  if (wanted === undefined) return ''
  const { questionId } = wanted
  const sharing = `; question ${questionId} shares its round, which accepts one proposal for both`
  return otherTerms(record, wanted) + (questionId === record.questionId ? '' : sharing)
}

export function authorizationOpen(
  authorization: JournaledAuthorization,
  because?: string,
  wanted?: Wanted,
) {
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

export function offerOpen({ id, offered, parts }: Offer, wanted?: Wanted) {
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
