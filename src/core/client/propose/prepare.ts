/**
 * Everything that is checked and decided before a signature (robustness §6, domain §9): terms,
 * typed data, digest.
 */
import { domainOf, roundRef } from '../../chain/round.js'
import type { Address, Chain, Hex } from '../../ports.js'
import type { RoundRef } from '../../protocol/candidate.js'
import { UsageError } from '../../protocol/errors.js'
import { minimumDeadlineSeconds, permitFault } from '../../protocol/permit.js'
import type { OutcomeKey, TypedData } from '../../protocol/schema.js'
import {
  toHex,
  typedData,
  type WitnessRequest,
  type WitnessTerms,
  witnessRound,
} from '../../protocol/witness.js'
import type { JournalView } from '../journal/journal.js'
import { type ChainCheck, chainChecks } from '../journal/records.js'
import { chainNow, confirmByChain, type QuestionContext } from '../trust/context.js'
import {
  atRequester,
  checkContext,
  checkOutcome,
  contractsOf,
  kindOf,
  mayBeAt,
  pinnedQuestionId,
  type Trust,
  untrusted,
} from '../trust/trust.js'
import type { AuthorizeParts, Intent } from './authorize.js'

/** What is about to be signed, for showing. Nothing is reserved yet. Amounts in raw token units. */
export interface Preview {
  readonly context: QuestionContext
  readonly outcome: OutcomeKey
  /** Outside text: escape before showing (R20). */
  readonly label: string
  readonly price: string
  readonly proposer: Address
  readonly amountRaw: bigint
  readonly requiredBondRaw: bigint
  readonly nonce: bigint
  readonly deadlineSeconds: bigint
  readonly digest: Hex
  readonly typedData: TypedData
  readonly round: RoundRef
  readonly notes: readonly string[]
  /** What no chain has confirmed. */
  readonly unchecked: readonly ChainCheck[]
}

/**
 * Where no chain of ours confirms the bond, a gateway names it, and a lying one would name the
 * whole balance: no more than this is authorized unless a cap is given. Raw units: 5,000 tokens of
 * six decimals, where bonds are about 750 (robustness §7, threat 1).
 */
export const unconfirmedCapRaw = 5_000_000_000n

/** What is left of a context once its text has been checked and hashed. */
export interface RoundFacts {
  readonly question_id: Hex
  readonly request: { readonly timestamp: string; readonly requester: Address }
  readonly bond: { readonly token: Address; readonly required_bond: string }
  readonly signing: { readonly chain_id: number }
  /** Absent: not known to be from a chain. */
  readonly source?: QuestionContext['source']
}

const defaultLifeSeconds = 3_600n
/** Longer only where the deadline was given (robustness §6). */
const longestLifeSeconds = 86_400n

/**
 * Checks the context (again) and the terms, with the chain where there is one, and builds the typed
 * data. Throws UsageError (exit 2) that names what is wrong: `untrusted_<field>`,
 * `outcome_not_allowed`, `amount_below_bond`, `amount_above_cap`, `deadline_too_soon`,
 * `deadline_too_far`, `nonce_reserved`, `nonce_spent`, `insufficient_balance`,
 * `insufficient_allowance`.
 */
export async function prepare(
  parts: AuthorizeParts,
  intent: Intent,
  context: QuestionContext,
  view: JournalView,
): Promise<Preview> {
  const { trust, chain, ports } = parts
  const nowSeconds =
    chain === undefined ? ports.clock.nowMs() / 1_000 : await chainNow(chain, trust, ports.clock)
  const notes = [
    ...checkContext(trust, context, await askedFor(parts, intent, context, nowSeconds)),
  ]
  const { label, price } = checkOutcome(trust, context, intent.outcome)
  checkTimeline(trust, context, view)
  const unchecked = await uncheckedByChain(chain, trust, context)
  if (chain === undefined)
    notes.push(
      'without an RPC the round, the bond, the nonce, the balance and the allowance were not checked on chain',
    )
  else if (kindOf(trust, context.request.requester) === 'direct')
    notes.push(
      'that this question id means this request is the word of the gateway or the file: no chain can confirm it (kind direct)',
    )

  const checkedTerms = checkTerms(intent, context, nowSeconds, !unchecked.includes('bond'))
  const { requiredBondRaw, amountRaw, deadlineSeconds } = checkedTerms
  notes.push(...cutNotes(intent, checkedTerms))
  const nonce = intent.nonce ?? parts.journal.nextNonce()
  if (view.isReserved(intent.proposer, String(nonce))) {
    throw new UsageError(
      'nonce_reserved',
      `nonce ${nonce} already serves another authorization of this journal`,
      {
        hint: 'leave --nonce out: a fresh one is chosen',
      },
    )
  }
  const terms = {
    price,
    amount: String(amountRaw),
    nonce: String(nonce),
    deadline: String(deadlineSeconds),
  }
  if (chain !== undefined) {
    const { checkFunds } = await import('./funds-check.js')
    await checkFunds(
      chain,
      parts,
      intent,
      { nonce, amountRaw, token: context.bond.token as Hex },
      view,
    )
  }

  const domain = domainOf(contractsOf(trust))
  const request = requestOf(context)
  const round = witnessRound(domain, request, context.bond.token as Hex)
  await compareServersTypedData(trust, context)
  return {
    context,
    outcome: intent.outcome,
    label,
    price,
    proposer: intent.proposer,
    amountRaw,
    requiredBondRaw,
    nonce,
    deadlineSeconds,
    digest: toHex(round.digest(terms)),
    typedData: typedData(domain, request, context.bond.token as Hex, terms),
    round: roundRef(contractsOf(trust), context.question_id as Hex, request, round.ancillaryHash),
    notes,
    unchecked,
  }
}

/**
 * Compares the context with the chain where there is one; what is left unconfirmed. Errors as
 * `confirmByChain`.
 */
async function uncheckedByChain(
  chain: Chain | undefined,
  trust: Trust,
  context: QuestionContext,
): Promise<readonly ChainCheck[]> {
  if (chain === undefined) return chainChecks
  await confirmByChain(chain, trust, context)
  return []
}

async function askedFor(
  parts: AuthorizeParts,
  intent: Intent,
  context: QuestionContext,
  nowSeconds: number,
) {
  const asked = { identifier: intent.identifier, nowSeconds, requireSlugPin: true }
  if (
    pinnedQuestionId(parts.trust, intent.identifier) !== undefined ||
    parts.confirmSlug === undefined
  )
    return asked
  const confirmed = await parts.confirmSlug(intent.identifier, context.question_id)
  return confirmed ? { ...asked, confirmedQuestionId: context.question_id } : asked
}

/**
 * UsageError `untrusted_timestamp`. Rounds of a question at one requester only go forward: an older
 * one than this journal has signed for is a lie or a stale file.
 */
export function checkTimeline(trust: Trust, context: RoundFacts, view: JournalView): void {
  const pins = atRequester(trust, context.request.requester)
  for (const { signed } of view.byQuestion(context.question_id)) {
    if (
      signed.chainId !== context.signing.chain_id ||
      signed.timestamp === undefined ||
      !mayBeAt(pins, signed)
    )
      continue
    if (BigInt(signed.timestamp) > BigInt(context.request.timestamp)) {
      throw untrusted(
        'timestamp',
        `request.timestamp is ${context.request.timestamp}, but this journal has signed for the later round ${signed.timestamp}`,
      )
    }
  }
}

/**
 * Amounts as they will be signed: raw units, Unix seconds. `cutFromRaw`: what would be authorized
 * if the cap left room for all the slack.
 */
export interface CheckedTerms {
  readonly requiredBondRaw: bigint
  readonly amountRaw: bigint
  readonly deadlineSeconds: bigint
  readonly cutFromRaw?: bigint
}

/** The bond and the slack on it, rounded up to a whole unit. */
const withHeadroom = (
  requiredBondRaw: bigint,
  { headroomBasisPoints = 0n }: Pick<Intent, 'headroomBasisPoints'>,
): bigint => requiredBondRaw + (requiredBondRaw * headroomBasisPoints + 9_999n) / 10_000n

/**
 * What is told before a signature where the cap has cut the slack: less than was asked for is
 * authorized.
 */
export function cutNotes(
  { maxAmountRaw }: Pick<Intent, 'maxAmountRaw'>,
  { amountRaw, cutFromRaw }: CheckedTerms,
): readonly string[] {
  if (cutFromRaw === undefined) return []
  const cap =
    maxAmountRaw === undefined ? 'the cap where no --rpc-url confirms the bond' : '--max-amount'
  return [`the headroom is cut: from ${cutFromRaw} to ${amountRaw} raw units by ${cap}`]
}

/**
 * Amount and deadline as they will be signed. UsageError as `prepare`. `nowSeconds`: the later of
 * wall clock and, where known, head time. `bondIsConfirmed`: a chain of ours has named this bond.
 */
export function checkTerms(
  intent: Pick<Intent, 'amountRaw' | 'maxAmountRaw' | 'headroomBasisPoints' | 'deadlineSeconds'>,
  context: Pick<RoundFacts, 'bond' | 'source'>,
  nowSeconds: number,
  bondIsConfirmed: boolean = context.source === 'chain',
): CheckedTerms {
  const now = BigInt(Math.floor(nowSeconds))
  const requiredBondRaw = BigInt(context.bond.required_bond)
  const maxAmountRaw = intent.maxAmountRaw ?? (bondIsConfirmed ? undefined : unconfirmedCapRaw)
  const wantedRaw = intent.amountRaw ?? withHeadroom(requiredBondRaw, intent)
  // The slack, unlike the bond or an amount that was given, yields to the cap.
  const isCut =
    intent.amountRaw === undefined &&
    maxAmountRaw !== undefined &&
    requiredBondRaw <= maxAmountRaw &&
    maxAmountRaw < wantedRaw
  const amountRaw = isCut ? maxAmountRaw : wantedRaw
  checkAmount(intent, amountRaw, requiredBondRaw, maxAmountRaw)
  const deadlineSeconds = deadlineOf(intent, now)
  const fault = permitFault(
    { amount: String(amountRaw), deadline: String(deadlineSeconds) },
    requiredBondRaw,
    now,
  )
  // The deadline has been judged: what is left is the amount.
  if (fault !== undefined)
    throw new UsageError(fault.code, fault.detail, {
      hint: `give --amount ${requiredBondRaw} or more, or leave it out`,
    })
  return {
    requiredBondRaw,
    amountRaw,
    deadlineSeconds,
    ...(isCut ? { cutFromRaw: wantedRaw } : {}),
  }
}

function checkAmount(
  intent: Pick<Intent, 'maxAmountRaw'>,
  amountRaw: bigint,
  requiredBondRaw: bigint,
  maxAmountRaw: bigint | undefined,
): void {
  if (amountRaw >= 2n ** 256n || amountRaw < 0n) {
    throw new UsageError('invalid_amount', 'the amount is not an unsigned 256-bit integer', {
      hint: 'give raw token units',
    })
  }
  if (maxAmountRaw !== undefined && amountRaw > maxAmountRaw) {
    const said = `the amount would be ${amountRaw} (the required bond is ${requiredBondRaw}), the cap is ${maxAmountRaw}`
    if (intent.maxAmountRaw !== undefined)
      throw new UsageError('amount_above_cap', said, {
        hint: 'raise --max-amount if that bond is right',
      })
    throw new UsageError('amount_above_cap', `${said} where no RPC confirms the bond`, {
      hint: 'give --max-amount <raw> if that amount is right, or --rpc-url so that the bond is read from the chain',
    })
  }
}

/**
 * Seconds that are not later than now, or hardly so, as a date too: a deadline may have been given
 * as a span.
 */
const dated = (seconds: bigint): string =>
  `${new Date(Number(seconds) * 1_000).toISOString().replace('T', ' ').replace('.000Z', 'Z')} (unix ${seconds})`

function deadlineOf(intent: Pick<Intent, 'deadlineSeconds'>, nowSeconds: bigint): bigint {
  const deadline = intent.deadlineSeconds ?? nowSeconds + defaultLifeSeconds
  if (deadline < nowSeconds + minimumDeadlineSeconds) {
    throw new UsageError(
      'permit_deadline_too_soon',
      `the deadline ${dated(deadline)} is less than five minutes ahead; it must be ${dated(nowSeconds + minimumDeadlineSeconds)} or later`,
      {
        hint: 'give a later one, such as --deadline 6m or --deadline 90m, or leave it out for an hour from now',
      },
    )
  }
  if (intent.deadlineSeconds === undefined && deadline > nowSeconds + longestLifeSeconds) {
    throw new UsageError(
      'permit_deadline_too_far',
      `the deadline ${deadline} is more than a day ahead`,
      {
        hint: 'give --deadline if it is meant',
      },
    )
  }
  if (deadline >= 2n ** 53n) {
    throw new UsageError(
      'invalid_deadline',
      `the deadline ${deadline} is no time in Unix seconds that JSON can hold`,
      {
        hint: 'give Unix seconds, not milliseconds or more',
      },
    )
  }
  return deadline
}

/** The request as the witness names it. */
export function requestOf(context: QuestionContext): WitnessRequest {
  const { request } = context
  return {
    oracle: request.oracle as Hex,
    requester: request.requester as Hex,
    identifier: request.identifier.raw as Hex,
    timestamp: request.timestamp,
    ancillaryData: request.ancillary_data as Hex,
  }
}

/**
 * A server's `typed_data` is compared by digest, under its own permit terms, and never signed (R9).
 */
async function compareServersTypedData(trust: Trust, context: QuestionContext): Promise<void> {
  if (context.typed_data === undefined) return
  const { TypedData } = await import('../../protocol/schema.js')
  const parsed = TypedData.safeParse(context.typed_data)
  if (!parsed.success) throw untrusted('typed_data', 'typed_data is malformed')
  const { domain, message } = parsed.data
  const { witness } = message
  const terms: WitnessTerms = {
    price: witness.proposedPrice,
    amount: message.permitted.amount,
    nonce: message.nonce,
    deadline: message.deadline,
  }
  const theirs = witnessRound(
    {
      chainId: Number(domain.chainId),
      permit2: domain.verifyingContract as Hex,
      signedProposer: message.spender as Hex,
    },
    {
      oracle: witness.oracle as Hex,
      requester: witness.requester as Hex,
      identifier: witness.identifier as Hex,
      timestamp: witness.timestamp,
      ancillaryData: witness.ancillaryData as Hex,
    },
    message.permitted.token as Hex,
    BigInt(witness.maxPayment),
  )
  const ours = witnessRound(
    domainOf(contractsOf(trust)),
    requestOf(context),
    context.bond.token as Hex,
  )
  if (toHex(theirs.digest(terms)) !== toHex(ours.digest(terms))) {
    throw untrusted(
      'typed_data',
      'the typed_data of the server does not hash to what its own signing data says',
    )
  }
}
