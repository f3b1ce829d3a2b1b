/** Amount, deadline, round (domain §9) and clarifications (contract §9, Rules) of what is signed. */
import { noRulesHash } from '#chain/constants'
import { knownAmount } from '#chain/profiles'
import { domainOf, roundRef } from '#chain/round'
import type { Rules, RulesUpdate } from '#chain/rules'
import type { Chain, Hex } from '#ports'
import { UsageError } from '#protocol/errors'
import { minimumDeadlineSeconds } from '#protocol/permit'
import { counted } from '#protocol/text'
import { toHex, witnessRound } from '#protocol/witness'
import type { JournalView } from '../journal/journal.js'
import {
  atRequester,
  contractsOf,
  isNamedByText,
  kindOf,
  mayBeAt,
  nothingPinned,
  type QuestionContext,
  requestOf,
  requireThat,
  type Trust,
  untrusted,
} from '../trust/trust.js'
import type { Intent } from './intent.js'

/** 5,000 tokens of six decimals: a lying gateway would name the whole balance (robustness §7). */
export const unconfirmedCapRaw = 5_000_000_000n

/** Hashed once: what differs between its authorizations is little (§2.8). */
export function hashedRound(trust: Trust, context: QuestionContext) {
  const contracts = contractsOf(trust)
  const questionId = context.question_id
  const request = requestOf(context)
  const isHashed = isNamedByText(kindOf(trust, context.request.requester))
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
  const pins = atRequester(trust, requester)
  const later = view
    .byQuestion(context.question_id)
    .find(
      ({ signed }) =>
        signed.chainId === context.signing.chain_id &&
        BigInt(signed.timestamp ?? 0) > BigInt(timestamp) &&
        mayBeAt(pins, signed),
    )
  requireThat(
    later === undefined,
    'timestamp',
    `request.timestamp is ${timestamp}, but this journal has signed for the later round ${later?.signed.timestamp}`,
  )
}

/** `nowSeconds`: the later of wall clock and head time. The slack on the bond yields to a cap. */
export function checkTerms(
  intent: Partial<Intent>,
  { bond, signing, source }: Pick<QuestionContext, 'bond' | 'signing' | 'source'>,
  nowSeconds: number,
) {
  const { headroomBasisPoints = 0n, foreign, maxAmountRaw } = intent
  const said = (raw: bigint) => knownAmount(raw, signing.chain_id, bond.token)
  if (intent.amountTokens?.includes(bond.token) === false)
    throw new UsageError(
      'other_token',
      `the bond is paid in the token ${bond.token}, and the amount was given in another`,
      'give the amount in raw units of that token, such as 750000000raw',
    )
  const requiredBondRaw = BigInt(bond.required_bond)
  const isCapGiven = maxAmountRaw !== undefined
  const capRaw = maxAmountRaw ?? (source === 'chain' ? undefined : unconfirmedCapRaw)
  // Rounded up to a whole unit.
  const ownRaw = requiredBondRaw + (requiredBondRaw * headroomBasisPoints + 9_999n) / 10_000n
  const isBetween = capRaw !== undefined && requiredBondRaw <= capRaw && capRaw < ownRaw
  const amountRaw = intent.amountRaw ?? (isBetween ? capRaw : ownRaw)
  if (amountRaw >= 2n ** 256n || amountRaw < 0n)
    throw new UsageError(
      'invalid_amount',
      'the amount is not an unsigned 256-bit integer',
      'give raw token units',
    )
  if (capRaw !== undefined && amountRaw > capRaw)
    throw new UsageError(
      'amount_above_cap',
      `the amount would be ${said(amountRaw)} (the required bond is ${said(requiredBondRaw)}), the cap is ${said(capRaw)}${isCapGiven ? '' : ' where no RPC confirms the bond'}`,
      isCapGiven
        ? 'raise --max-amount if that bond is right'
        : 'give --max-amount <amount> if that amount is right, or --rpc-url so that the bond is read from the chain',
    )
  if (foreign?.amount && !isCapGiven && amountRaw > ownRaw)
    throw new UsageError(
      'amount_above_cap',
      `the parts are for ${said(amountRaw)}; this machine would sign ${said(ownRaw)}, the bond and its headroom`,
      `if that amount is right, allow it with --max-amount ${amountRaw}raw`,
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

const defaultLifeSeconds = 3_600n
const longestForeignSeconds = 86_400n

const dated = (seconds: bigint) =>
  `${new Date(Number(seconds) * 1_000).toISOString().replace('T', ' ').replace('.000Z', 'Z')} (unix ${seconds})`

function deadlineOf(
  { deadlineSeconds, lifeSeconds = defaultLifeSeconds, foreign }: Partial<Intent>,
  nowSeconds: bigint,
) {
  const deadline = deadlineSeconds ?? nowSeconds + lifeSeconds
  const earliest = nowSeconds + minimumDeadlineSeconds
  if (deadline < earliest)
    throw new UsageError(
      'permit_deadline_too_soon',
      `the deadline ${dated(deadline)} is less than five minutes ahead; it must be ${dated(earliest)} or later`,
      'give a later one, such as --deadline 6m or --deadline 90m, or leave it out for an hour from now',
    )
  const latest = nowSeconds + longestForeignSeconds
  if (foreign?.deadline && deadline > latest)
    throw new UsageError(
      'deadline_above_cap',
      `the parts are for the deadline ${dated(deadline)}; without a flag it may be ${dated(latest)} at most, 24 h ahead`,
      `if that deadline is right, allow it with --deadline ${deadline}`,
    )
  if (deadline >= 2n ** 53n)
    throw new UsageError(
      'invalid_deadline',
      `the deadline ${deadline} is not a time in Unix seconds that JSON can hold`,
      'give Unix seconds, not milliseconds or more',
    )
  return deadline
}

/** `what`: who has it (R6). */
export const nonceReserved = (what: string, flag = '--nonce') =>
  new UsageError('nonce_reserved', `nonce ${what}`, `leave ${flag} out: a fresh one is chosen`)

export const nonceSpent = (nonce: bigint | string, proposer: string, flag = 'the nonce') =>
  new UsageError(
    'nonce_spent',
    `nonce ${nonce} of ${proposer} is already used or cancelled in Permit2`,
    `leave ${flag} out: a fresh one is chosen`,
  )

export function chainNotes(chain: Chain | undefined, trust: Trust, { request }: QuestionContext) {
  if (chain === undefined)
    return [
      'without an RPC the round, the bond, the nonce, the balance, the allowance and the code of the contracts were not checked on chain',
    ]
  const notes = trust.implementations === undefined ? [nothingPinned] : []
  if (kindOf(trust, request.requester) === 'direct')
    notes.unshift(
      'only the gateway or the file says that this question id means this request: no chain can confirm it (kind direct)',
    )
  return notes
}

/** By digest, under its own permit terms; never signed (R9). */
export async function compareServersTypedData(
  { typed_data }: QuestionContext,
  digestOf: (terms: Parameters<ReturnType<typeof witnessRound>['digest']>[0]) => Hex,
) {
  if (typed_data === undefined) return
  const { TypedData } = await import('#protocol/fields')
  const parsed = TypedData.safeParse(typed_data)
  if (!parsed.success) throw untrusted('typed_data', 'typed_data is malformed')
  const { domain, message } = parsed.data
  const { permitted, spender: signedProposer, nonce, deadline } = message
  const { proposedPrice: price, maxPayment, ...request } = message.witness
  const binding = { chainId: Number(domain.chainId), permit2: domain.verifyingContract }
  const { digest } = witnessRound(
    { ...binding, signedProposer },
    request,
    permitted.token,
    BigInt(maxPayment),
  )
  const terms = { price, amount: permitted.amount, nonce, deadline }
  requireThat(
    toHex(digest(terms)) === digestOf(terms),
    'typed_data',
    'the typed_data of the server does not hash to what its own signing data says',
  )
}

/** Clarifications beside what this home has acknowledged of them. */
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

function cut(text: string) {
  const [start = ''] = /^.{200}/su.exec(text) ?? []
  return start !== '' && start !== text ? `${start}… (${text.length} characters)` : text
}

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
    super(
      'rules_changed',
      `the rules of ${identifier} ${what}${unknown}; nothing was signed for it`,
      {
        hint: `read them with \`proposer context ${identifier}\`; then sign with --rules-seen ${rules.hash}, or with that hash as rules_seen of the row`,
        lines: newer.map(({ at, text }) => `${at}: ${cut(text)}`),
      },
    )
    this.rules = rules
    this.newer = newer
  }
}

/** Nobody there to ask is a no. */
export async function rulesChange(
  identifier: string,
  standing: RulesStanding | undefined,
  ask: AskRules | undefined,
) {
  if (standing?.isChanged !== true || (await ask?.(identifier, standing)) === true) return undefined
  return new RulesChangedError(identifier, standing)
}

export async function requireRules(...given: Parameters<typeof rulesChange>) {
  const error = await rulesChange(...given)
  if (error !== undefined) throw error
}

export function firstRulesNotes(identifier: string, standing: RulesStanding | undefined) {
  if (standing === undefined || !standing.isFirst || standing.rules.updates.length === 0) return []
  const { hash, updates } = standing.rules
  return [
    `${counted(updates.length, 'clarification')} of ${identifier} taken as read, for this home had acknowledged none (rules ${hash}): \`proposer context ${identifier}\``,
  ]
}
