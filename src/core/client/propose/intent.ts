/** What a user wants signed: the journal on it (R8), terms (domain §9), rules (contract §9). */
import { noRulesHash } from '#chain/constants'
import { knownAmount } from '#chain/profiles'
import { domainOf, roundRef } from '#chain/round'
import type { Rules, RulesUpdate } from '#chain/rules'
import type { Chain, Hex } from '#ports'
import { instant, type RoundRef } from '#protocol/candidate'
import { ConflictError, UsageError } from '#protocol/errors'
import { TypedData } from '#protocol/fields'
import { outcomeNamed } from '#protocol/outcome-words'
import { minimumDeadlineSeconds } from '#protocol/permit'
import { outcomeOf, priceOf } from '#protocol/proposal'
import type { Address, OutcomeKey } from '#protocol/schema'
import { counted } from '#protocol/text'
import { toHex, type WitnessTerms, witnessRound } from '#protocol/witness'
import { isClientRef, isUint256 } from '#protocol/words'
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
  openFor,
  otherGateway,
  otherTerms,
  type Recorded,
  type Wanted,
} from '../journal/authorizations.js'
import type { JournalPorts, JournalView } from '../journal/journal.js'
import {
  atRequester,
  contractsOf,
  isNamedByText,
  kindOf,
  mayBeAt,
  nothingPinned,
  pinnedQuestionId,
  type QuestionContext,
  requestOf,
  requireThat,
  sharedRound,
  type Trust,
  untrusted,
} from '../trust/trust.js'
import type { SubmitParts } from './send.js'

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

/** By itself, by a pin, or as it was once signed for. */
export const knownQuestionId = (trust: Trust, identifier: string, view: JournalView) =>
  pinnedQuestionId(trust, identifier) ??
  view.byIdentifier(identifier).findLast(({ signed }) => signed.chainId === trust.chain_id)?.signed
    .questionId

/** But for the answer. */
const wantedOf = (trust: Trust, intent: IntentInWords, questionId: Hex): Omit<Wanted, 'price'> => ({
  questionId,
  proposer: intent.proposer,
  chainId: trust.chain_id,
  mayBeAt: (record) => mayBeAt(trust, record),
  amount: intent.amountRaw?.toString(),
  nonce: intent.nonce?.toString(),
  deadline: intent.deadlineSeconds?.toString(),
})

export const isOfBatch = ({ attempts }: JournaledAuthorization, fingerprint: string | undefined) =>
  fingerprint !== undefined && attempts.some(({ start }) => start.batch === fingerprint)

/** In any round: this wallet's, the open ones, those of equal intent. */
export function oursFor({ ports, trust }: LookParts, view: JournalView, intent: IntentInWords) {
  const questionId = knownQuestionId(trust, intent.identifier, view) ?? '0x'
  const wanted = wantedOf(trust, intent, questionId)
  const all = view.byQuestion(questionId).filter(({ signed }) => isFor(wanted)(signed))
  const equal = all.filter((one) => {
    const outcome = outcomeNamed(intent.outcome, one.signed.labels)
    return outcome && equalIntent(one, { ...wanted, price: priceOf[outcome] })
  })
  return { all, open: openFor(all, wanted, ports.clock.nowMs()), equal }
}

/** Not where a later round is signed for (§3 rule 3); a replay tells if its own is over (rule 2). */
export function executedBefore(
  parts: LookParts & Pick<SubmitParts, 'gateway'>,
  view: JournalView,
  intent: IntentInWords,
  error: unknown,
) {
  const isRoundClosed = error instanceof ConflictError && error.code !== 'authorization_open'
  if (!isRoundClosed || intent.supersede !== undefined) return undefined
  const { all, equal } = oursFor(parts, view, intent)
  const found = equal.findLast(executionOf)
  if (!found || otherGateway(found, parts.gateway.origin)) return undefined
  const roundOf = ({ signed }: JournaledAuthorization) => BigInt(signed.timestamp ?? 0)
  return all.some((one) => roundOf(one) > roundOf(found)) ? undefined : found
}

/** An authorization for another question of the round is in the way too (R8). */
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
  const ofRound = round ? view.byRound(round) : []
  const others = ofRound.filter(({ signed }) => signed.questionId !== questionId)
  const all = [...others, ...view.byQuestion(questionId)]
  // A payload signed elsewhere tells no round and counts in every one: the safe side.
  const isHere = (one: Recorded) =>
    [undefined, request.timestamp].includes(journalRecordOf(one).timestamp)
  const open = openFor(all, wanted, nowMs)
  const here = open.filter(isHere)
  const earlier = open.filter((one) => !isHere(one))
  const offers = openFor(view.offers, wanted, nowMs).filter(isHere)
  const saved = supersede ? undefined : here.findLast((one) => equalIntent(one, wanted))
  if (saved) return { saved, earlier }
  const isNamed = ({ id }: Recorded) => id === supersede
  if (supersede !== undefined && ![...here, ...offers].some(isNamed)) {
    const gone = view.find(supersede)
    // Revoked or ended since the user named it.
    const isOurs = gone && isFor({ ...wanted, mayBeAt: undefined })(gone.signed)
    if (!isOurs || isOpen(gone, nowMs))
      throw new UsageError(
        'not_superseded',
        `${JSON.stringify(supersede)} is not an open authorization for this question and round`,
        'see `proposer journal list`',
      )
  }
  const other = here.findLast((one) => !isNamed(one))
  if (other) throw authorizationOpen(other, wanted)
  const offer = offers.findLast((one) => !isNamed(one))
  if (!offer) return { earlier }
  const { offered } = offer
  // A signature that admission would refuse for its deadline is of no use.
  const earliest = BigInt(Math.floor(nowMs / 1_000)) + minimumDeadlineSeconds
  const isInTime = BigInt(offered.terms.deadline) >= earliest
  if (!supersede && isInTime && equalIntent({ signed: offered }, wanted)) return { offer, earlier }
  throw authorizationOpen(offer, wanted)
}

export function authorizationOpen(one: Recorded, wanted?: Wanted, because?: string) {
  const { id } = one
  const record = journalRecordOf(one)
  const { questionId, identifier, terms } = record
  const answer = outcomeOf(terms.price) ?? '<answer>'
  const [what, goOn] =
    'offered' in one
      ? [
          `${id} was issued as typed data to be signed by ${terms.proposer} for question ${questionId},`,
          one.parts.length === 0
            ? `attach its signature with \`proposer sign ${identifier} --signature <hex>\``
            : `let the next owner sign with \`${nextOwner(one.offered)}\``,
        ]
      : [
          `question ${questionId} has an open authorization by ${terms.proposer}, signed for`,
          one.candidateId
            ? `follow it with \`proposer poll ${one.candidateId}\``
            : one.attempts.length === 0
              ? `send it with \`proposer submit ${identifier} --outcome ${answer}\``
              : `send it again with \`proposer replay ${id}\``,
        ]
  const differs = wanted ? otherTerms(record, wanted) : ''
  const sharing =
    wanted && questionId !== wanted.questionId
      ? `; question ${wanted.questionId} shares its round, which accepts one proposal for both`
      : ''
  const why = because ? ` (${because})` : ''
  return new ConflictError(
    'authorization_open',
    `${what} ${answerOf(record)}${differs}${sharing}${why}`,
    `${goOn}, or replace it with --supersede ${id}`,
  )
}

/** 5,000 of six decimals: a lying gateway would name the whole balance (robustness §7). */
export const unconfirmedCapRaw = 5_000_000_000n

/** Once for all its authorizations (§2.8). */
export function hashedRound(trust: Trust, context: QuestionContext) {
  const contracts = contractsOf(trust)
  const questionId = context.question_id
  const request = requestOf(context)
  const isHashed = isNamedByText(kindOf(trust, request.requester))
  const witness = witnessRound(
    domainOf(contracts),
    isHashed ? { ...request, ancillaryHash: questionId } : request,
    context.bond.token,
  )
  return { witness, ref: roundRef(contracts, questionId, request, witness.ancillaryHash) }
}

/** Rounds of a question at one requester only go forward. */
export function checkTimeline(trust: Trust, context: QuestionContext, view: JournalView) {
  const { timestamp, requester } = context.request
  const isLater = ({ signed }: JournaledAuthorization) =>
    signed.chainId === context.signing.chain_id &&
    BigInt(signed.timestamp ?? 0) > BigInt(timestamp) &&
    mayBeAt(atRequester(trust, requester), signed)
  const later = view.byQuestion(context.question_id).find(isLater)
  requireThat(
    !later,
    'timestamp',
    `request.timestamp is ${timestamp}, but this journal has signed for the later round ${later?.signed.timestamp}`,
  )
}

/** The journal reads no other (`bad_client_ref`); JavaScript may give any value. */
export function requireClientRef(given: string | undefined) {
  if (given === undefined || isClientRef(given)) return given
  throw new UsageError(
    'bad_client_ref',
    'client_ref is not text of at most 256 bytes without control characters',
    'give a shorter plain text',
  )
}

/** `nowSeconds`: the later of wall clock and head time. The headroom yields to a cap. */
export function checkTerms(
  intent: Partial<Intent>,
  { bond, signing, source }: Pick<QuestionContext, 'bond' | 'signing' | 'source'>,
  nowSeconds: number,
) {
  const { headroomBasisPoints = 0n, foreign, maxAmountRaw } = intent
  requireClientRef(intent.clientRef)
  const said = (raw: bigint) => knownAmount(raw, signing.chain_id, bond.token)
  if (intent.amountTokens?.includes(bond.token) === false)
    throw new UsageError(
      'other_token',
      `the bond is paid in ${bond.token}, and the amount was given in another token`,
      'give it in raw units, such as 750000000raw',
    )
  const requiredBondRaw = BigInt(bond.required_bond)
  const isCapGiven = maxAmountRaw !== undefined
  const capRaw = maxAmountRaw ?? (source === 'chain' ? undefined : unconfirmedCapRaw)
  // Rounded up to a whole unit.
  const ownRaw = requiredBondRaw + (requiredBondRaw * headroomBasisPoints + 9_999n) / 10_000n
  const isBetween = capRaw !== undefined && requiredBondRaw <= capRaw && capRaw < ownRaw
  const amountRaw = intent.amountRaw ?? (isBetween ? capRaw : ownRaw)
  if (![amountRaw, intent.nonce ?? 0n].map(String).every(isUint256))
    throw new UsageError(
      'invalid_amount',
      'the amount or the nonce is no uint256',
      'give a whole number, the amount in raw token units',
    )
  if (capRaw !== undefined && amountRaw > capRaw)
    throw new UsageError(
      'amount_above_cap',
      `the amount would be ${said(amountRaw)} (the required bond is ${said(requiredBondRaw)}), the cap is ${said(capRaw)}${isCapGiven ? '' : ' where no RPC confirms the bond'}`,
      isCapGiven
        ? 'raise --max-amount if that bond is right'
        : 'if it is right, give --max-amount <amount>, or --rpc-url to confirm the bond',
    )
  if (foreign?.amount && !isCapGiven && amountRaw > ownRaw)
    throw new UsageError(
      'amount_above_cap',
      `the parts are for ${said(amountRaw)}; this machine would sign ${said(ownRaw)}, the bond and its headroom`,
      `if it is right, give --max-amount ${amountRaw}raw`,
    )
  const deadlineSeconds = deadlineOf(intent, BigInt(Math.floor(nowSeconds)))
  if (amountRaw < requiredBondRaw)
    throw new UsageError(
      'permit_amount_below_required_bond',
      `the amount, ${said(amountRaw)}, is less than the bond, which is ${said(requiredBondRaw)} now`,
      `give --amount ${requiredBondRaw}raw or more, or leave it out`,
    )
  const cap = isCapGiven ? '--max-amount' : 'the cap where no --rpc-url confirms the bond'
  const cut = `the headroom is cut: from ${said(ownRaw)} to ${said(amountRaw)} by ${cap}`
  const notes = isBetween && intent.amountRaw === undefined ? [cut] : []
  return { requiredBondRaw, amountRaw, deadlineSeconds, notes }
}

const dated = (seconds: bigint) =>
  `${instant(Number(seconds) * 1_000)
    .replace('T', ' ')
    .replace('.000', '')} (unix ${seconds})`

/** Of a date in JavaScript. */
const lastSecond = 8_640_000_000_000n

function deadlineOf(
  { deadlineSeconds, lifeSeconds = 3_600n, foreign }: Partial<Intent>,
  nowSeconds: bigint,
) {
  const deadline = deadlineSeconds ?? nowSeconds + lifeSeconds
  const earliest = nowSeconds + minimumDeadlineSeconds
  if (deadline < earliest)
    throw new UsageError(
      'permit_deadline_too_soon',
      `the deadline ${dated(deadline)} is less than five minutes ahead; it must be ${dated(earliest)} or later`,
      'give --deadline 6m or later, or leave it out for an hour',
    )
  const latest = nowSeconds + 86_400n
  if (foreign?.deadline && deadline > latest)
    throw new UsageError(
      'deadline_above_cap',
      `the parts are for the deadline ${deadline}, ${(deadline - nowSeconds) / 3_600n} h ahead; without a flag it may be ${dated(latest)} at most, 24 h ahead`,
      `if it is right, give --deadline ${deadline}`,
    )
  if (!isUint256(String(deadline)) || deadline > lastSecond)
    throw new UsageError(
      'invalid_deadline',
      `the deadline ${deadline} is no time in Unix seconds`,
      'give Unix seconds, not milliseconds or more',
    )
  return deadline
}

/** `what`: the nonce and who has it (R6). */
export const nonceReserved = (what: string, code = 'nonce_reserved') =>
  new UsageError(code, `nonce ${what}`, 'leave --nonce out: a fresh one is chosen')

export const nonceSpent = (nonce: bigint | string, proposer: string) =>
  nonceReserved(`${nonce} of ${proposer} is already used or cancelled in Permit2`, 'nonce_spent')

export function chainNotes(chain: Chain | undefined, trust: Trust, { request }: QuestionContext) {
  if (!chain)
    return [
      'without an RPC the round, the bond, the nonce, the balance, the allowance and the code of the contracts were not checked on chain',
    ]
  const notes = trust.implementations ? [] : [nothingPinned]
  if (kindOf(trust, request.requester) === 'direct')
    notes.unshift('kind direct: no chain can confirm that this question id means this request')
  return notes
}

/** By digest, under its own permit terms; never signed (R9). */
export function compareServersTypedData(
  { typed_data }: QuestionContext,
  digestOf: (terms: WitnessTerms) => Hex,
) {
  if (typed_data === undefined) return
  const parsed = TypedData.safeParse(typed_data)
  if (!parsed.success) throw untrusted('typed_data', 'typed_data is malformed')
  const { domain, message } = parsed.data
  const { permitted, spender: signedProposer, nonce, deadline } = message
  const { proposedPrice: price, maxPayment, ...request } = message.witness
  const { chainId, verifyingContract: permit2 } = domain
  const binding = { chainId: Number(chainId), permit2, signedProposer }
  const { amount, token } = permitted
  const { digest } = witnessRound(binding, request, token, BigInt(maxPayment))
  const terms = { price, amount, nonce, deadline }
  requireThat(
    toHex(digest(terms)) === digestOf(terms),
    'typed_data',
    'typed_data of the server does not hash to what its signing data says',
  )
}

/** Clarifications beside what this home has acknowledged. */
export type RulesStanding = ReturnType<typeof rulesStanding>

export type AskRules = (identifier: string, standing: RulesStanding) => Promise<boolean>

/** What the intent names counts; else the newest acknowledged state; else what the context had. */
export function rulesStanding(
  rules: Rules,
  { rulesSeen }: Pick<Intent, 'rulesSeen'>,
  acknowledged: readonly Hex[],
  context: Pick<QuestionContext, 'rules' | 'rules_told'>,
) {
  // None is acknowledged yet: what is signed is.
  const isFirst = rulesSeen === undefined && acknowledged.length === 0
  const told = context.rules_told ?? context.rules?.hash
  const seen = rulesSeen !== undefined ? [rulesSeen] : isFirst ? [told ?? []].flat() : acknowledged
  const states = [noRulesHash, ...rules.updates.map(({ hash }) => hash)]
  const known = states.findLastIndex((state) => seen.includes(state))
  const isChanged = seen.length > 0 && known !== rules.updates.length
  return {
    rules,
    isFirst,
    isChanged,
    newer: isChanged ? rules.updates.slice(Math.max(0, known)) : [],
    unknownHash: known < 0 ? seen.at(-1) : undefined,
  }
}

export const acknowledgedOf = (
  view: JournalView,
  { signing, request, question_id: questionId }: QuestionContext,
) => view.acknowledgedRules({ chainId: signing.chain_id, requester: request.requester, questionId })

const cut = (text: string) =>
  text.replace(/^(.{200}).+/su, (_, start) => `${start}… (${text.length} characters)`)

export class RulesChangedError extends UsageError {
  readonly rules: Rules
  readonly newer: readonly RulesUpdate[]
  constructor(identifier: string, { rules, newer, unknownHash }: RulesStanding) {
    const last = newer.at(-1)
    const what = last
      ? `have ${counted(newer.length, 'clarification')} not acknowledged here, the last of ${last.at}`
      : 'are not those that were acknowledged'
    const unknown = unknownHash
      ? `; the acknowledged hash ${unknownHash} is of no version of these rules`
      : ''
    const detail = `the rules of ${identifier} ${what}${unknown}; nothing was signed for it`
    const hint = `read them with \`proposer context ${identifier}\`; then sign with --rules-seen ${rules.hash}, or rules_seen of the row`
    super('rules_changed', detail, {
      hint,
      lines: newer.map(({ at, text }) => `${at}: ${cut(text)}`),
    })
    this.rules = rules
    this.newer = newer
  }
}

/** Without anybody to ask it is a no. */
export async function rulesChange(
  identifier: string,
  standing: RulesStanding | undefined,
  ask: AskRules | undefined,
) {
  if (!standing?.isChanged || (await ask?.(identifier, standing)) === true) return undefined
  return new RulesChangedError(identifier, standing)
}

export async function requireRules(...given: Parameters<typeof rulesChange>) {
  const error = await rulesChange(...given)
  if (error) throw error
}

export function firstRulesNotes(identifier: string, standing: RulesStanding | undefined) {
  const { hash, updates } = standing?.rules ?? { updates: [] }
  if (!standing?.isFirst || updates.length === 0) return []
  return [
    `${counted(updates.length, 'clarification')} of ${identifier} taken as read, for this home had acknowledged none (rules ${hash}): \`proposer context ${identifier}\``,
  ]
}
