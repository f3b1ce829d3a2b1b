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
  executionOf,
  isFor,
  isOpen,
  type JournaledAuthorization,
  journalRecordOf,
  nextOwner,
  type Offer,
  openFor,
  otherGateway,
  otherTerms,
  type Recorded,
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
import type { SubmitParts } from './outcome.js'

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
  const found = equal.findLast((one) => executionOf(one) !== undefined)
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
  const { question_id: questionId, request } = context
  const { supersede } = intent
  // What is open at another requester is of no earlier round.
  const pins = atRequester(trust, request.requester)
  const round = sharedRound(trust, context, ref)
  const wanted = { ...wantedOf(pins, intent, questionId), price: priceOf[intent.outcome], round }
  const others = round === undefined ? [] : view.byRound(round)
  const all = [
    ...others.filter(({ signed }) => signed.questionId !== questionId),
    ...view.byQuestion(questionId),
  ]
  // A payload signed elsewhere does not tell its round: it counts in every one, the safe side.
  const isHere = (one: Recorded) =>
    [undefined, request.timestamp].includes(journalRecordOf(one).timestamp)
  const open = openFor(all, wanted, nowMs)
  const here = open.filter(isHere)
  const earlier = open.filter((one) => !isHere(one))
  const offers = openFor(view.offers, wanted, nowMs).filter(isHere)
  const saved = supersede ? undefined : here.findLast((one) => equalIntent(one, wanted))
  if (saved !== undefined) return { saved, earlier }
  const isNamed = ({ id }: { readonly id: string }) => id === supersede
  if (supersede && ![...here, ...offers].some(isNamed)) {
    const gone = view.find(supersede)
    // Revoked or ended since the user named it.
    const isOurs = gone && isFor({ ...wanted, mayBeAt: undefined })(gone.signed)
    if (!isOurs || isOpen(gone, nowMs))
      throw new UsageError(
        'not_superseded',
        `${supersede} is not an open authorization for this question and round`,
        'see `proposer journal list` for the open ones',
      )
  }
  const other = here.findLast((one) => !isNamed(one))
  if (other !== undefined) throw authorizationOpen(other, undefined, wanted)
  const offer = offers.findLast((one) => !isNamed(one))
  if (offer === undefined) return { earlier }
  const { offered } = offer
  // A signature that admission would refuse for its deadline is of no use.
  const earliest = BigInt(Math.floor(nowMs / 1_000)) + minimumDeadlineSeconds
  const isInTime = BigInt(offered.terms.deadline) >= earliest
  if (!supersede && isInTime && equalIntent({ signed: offered }, wanted)) return { offer, earlier }
  throw offerOpen(offer, wanted)
}

function differs(record: Signed | Offered, wanted: Wanted | undefined) {
  if (wanted === undefined) return ''
  const { questionId } = record
  const sharing = `; question ${wanted.questionId} shares its round, which accepts one proposal for both`
  return otherTerms(record, wanted) + (questionId === wanted.questionId ? '' : sharing)
}

export function authorizationOpen(
  { id, signed, candidateId, attempts }: JournaledAuthorization,
  because?: string,
  wanted?: Wanted,
) {
  const { questionId, identifier, terms } = signed
  const settles =
    candidateId !== undefined
      ? `follow it with \`proposer poll ${candidateId}\``
      : attempts.length === 0
        ? `send it with \`proposer submit ${identifier} --outcome ${outcomeOf(terms.price) ?? '<answer>'}\``
        : `send it again with \`proposer replay ${id}\``
  const why = because === undefined ? '' : ` (${because})`
  return new ConflictError(
    'authorization_open',
    `question ${questionId} has an open authorization by ${terms.proposer}, signed for ${answerOf(signed)}${differs(signed, wanted)}${why}`,
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
