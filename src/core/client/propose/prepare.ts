/** Everything that is checked and decided before one signature (robustness §6, domain §9). */
import { titleOf } from '../../chain/ancillary.js'
import { domainOf } from '../../chain/round.js'
import { onChain } from '../../chain/unavailable.js'
import type { Chain, Hex } from '../../ports.js'
import { amountText } from '../../protocol/amount.js'
import type { RoundRef } from '../../protocol/candidate.js'
import { UsageError } from '../../protocol/errors.js'
import { type Labels, labelsOf } from '../../protocol/outcome-words.js'
import type { Address, OutcomeKey, TypedData } from '../../protocol/schema.js'
import { toHex, typedData, witnessRound } from '../../protocol/witness.js'
import type { JournalView } from '../journal/journal.js'
import { type ChainCheck, chainChecks } from '../journal/records.js'
import { chainNow, confirmByChain, type QuestionContext, rulesOf } from '../trust/context.js'
import { nothingPinned, requireImplementations } from '../trust/implementations.js'
import { noNodeForRules } from '../trust/sources.js'
import {
  checkContext,
  checkOutcome,
  contractsOf,
  kindOf,
  outcomesByText,
  pinnedQuestionId,
  type Trust,
  untrusted,
} from '../trust/trust.js'
import type { AuthorizeParts } from './authorize.js'
import type { Intent } from './intent.js'
import { acknowledgedOf, firstRulesNotes, type RulesStanding, rulesStanding } from './rules.js'
import { nonceReserved, nonceSpent } from './sign.js'
import { type CheckedTerms, checkTerms, checkTimeline, cutNotes, hashedRound } from './terms.js'

/** What is about to be signed, for showing. Nothing is reserved yet. Amounts in raw token units. */
export interface Preview extends Omit<CheckedTerms, 'cutFromRaw'> {
  readonly context: QuestionContext
  readonly outcome: OutcomeKey
  /** Outside text: escape before showing (R20). */
  readonly label: string
  readonly labels: Labels
  readonly title?: string | undefined
  readonly price: string
  readonly proposer: Address
  readonly nonce: bigint
  readonly digest: Hex
  readonly typedData: TypedData
  readonly round: RoundRef
  readonly notes: readonly string[]
  /** What no chain has confirmed. */
  readonly unchecked: readonly ChainCheck[]
  /** Clarifications, read again; absent where no chain told them. */
  readonly rules?: RulesStanding | undefined
}

/**
 * Checks the context (again) and the terms, with the chain where there is one, and builds the typed
 * data. Throws UsageError (exit 2) that names what is wrong: `untrusted_<field>`,
 * `implementation_changed`, `outcome_not_allowed`, `nonce_reserved`, `nonce_spent`, `insufficient_balance`,
 * `insufficient_allowance`, and those of `checkTerms`.
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
  const confirmedQuestionId = await confirmedSlug(parts, intent, context)
  const notes = checkContext(trust, context, {
    identifier: intent.identifier,
    nowSeconds,
    requireSlugPin: true,
    confirmedQuestionId,
  })
  const { label, price } = checkOutcome(trust, context, intent.outcome)
  checkTimeline(trust, context, view)
  if (chain !== undefined) await requireImplementations(chain, trust)
  const rules =
    chain === undefined ? undefined : await rulesNow(chain, trust, intent, context, view)
  const checked = checkTerms(intent, context, nowSeconds, chain !== undefined)
  const { requiredBondRaw, amountRaw, deadlineSeconds } = checked
  const nonce = intent.nonce ?? parts.journal.nextNonce()
  if (view.isReserved(intent.proposer, String(nonce)))
    throw nonceReserved(`${nonce} already serves another authorization of this journal`)
  const token = context.bond.token
  if (chain !== undefined) await checkFunds(chain, trust, intent, { nonce, amountRaw, token }, view)
  const terms = {
    price,
    amount: String(amountRaw),
    nonce: String(nonce),
    deadline: String(deadlineSeconds),
  }
  const { request, witness, ref } = hashedRound(trust, context)
  await compareServersTypedData(context, (theirs) => toHex(witness.digest(theirs)))
  return {
    context,
    outcome: intent.outcome,
    label,
    labels: labelsOf(context.outcomes ?? outcomesByText(trust, context)),
    title: titleOf(context.request.ancillary_data),
    price,
    proposer: intent.proposer,
    amountRaw,
    requiredBondRaw,
    nonce,
    deadlineSeconds,
    digest: toHex(witness.digest(terms)),
    typedData: typedData(domainOf(contractsOf(trust)), request, token, terms),
    round: ref,
    notes: [
      ...notes,
      ...chainNotes(parts, context),
      ...cutNotes(intent, checked, context),
      ...firstRulesNotes(intent.identifier, rules),
    ],
    unchecked: chain === undefined ? chainChecks : [],
    rules,
  }
}

/**
 * Confirms the context by the chain, and reads the clarifications again: one may have come since.
 * `undefined` where the chain does not tell them.
 */
export async function rulesNow(
  chain: Chain,
  trust: Trust,
  intent: Intent,
  context: QuestionContext,
  view: JournalView,
): Promise<RulesStanding | undefined> {
  const rules = await rulesOf(chain, await confirmByChain(chain, trust, context))
  return rules && rulesStanding(rules, intent, acknowledgedOf(view, context), context)
}

/** What no chain has confirmed, for people. */
function chainNotes(
  { chain, trust }: AuthorizeParts,
  { request, source }: QuestionContext,
): string[] {
  if (chain === undefined)
    return [
      'without an RPC the round, the bond, the nonce, the balance, the allowance and the code of the contracts were not checked on chain',
      ...(source === 'file' ? [noNodeForRules] : []),
    ]
  const code = trust.implementations === undefined ? [nothingPinned] : []
  return kindOf(trust, request.requester) === 'direct'
    ? [
        'only the gateway or the file says that this question id means this request: no chain can confirm it (kind direct)',
        ...code,
      ]
    : code
}

/** The question id that the user says a slug means, where trust.json does not pin it. */
async function confirmedSlug(
  { trust, confirmSlug }: AuthorizeParts,
  { identifier }: Intent,
  { question_id }: QuestionContext,
): Promise<string | undefined> {
  if (pinnedQuestionId(trust, identifier) !== undefined || confirmSlug === undefined)
    return undefined
  return (await confirmSlug(identifier, question_id)) ? question_id : undefined
}

/**
 * Nonce free; balance and Permit2 allowance each ≥ everything open plus this (spec §5, robustness
 * §6). Raw units. UnavailableError where the chain does not answer.
 */
async function checkFunds(
  chain: Chain,
  trust: Trust,
  { proposer, supersede }: Intent,
  { nonce, amountRaw, token }: { nonce: bigint; amountRaw: bigint; token: Address },
  view: JournalView,
): Promise<void> {
  // Signing without a chain does without viem.
  const { fundsOf, pinnedHeads, spentNonces } = await import('../funds/funds.js')
  const { latest } = await pinnedHeads(chain, trust)
  const claim = { id: '', owner: proposer, nonce }
  const spent = await onChain(() => spentNonces(chain, trust.permit2, latest.number, [claim]))
  if (spent.size > 0) throw nonceSpent(nonce, proposer, '--nonce')
  const funds = await fundsOf(chain, trust, view, proposer, token, { except: supersede })
  const { balanceRaw, allowanceRaw, reservedRaw } = funds
  const text = (raw: bigint) => amountText(String(raw), funds)
  const needs = `this needs ${text(amountRaw)} beside ${text(reservedRaw)} reserved by open authorizations`
  const settle = 'settle what is open (`proposer journal list`)'
  if (balanceRaw < reservedRaw + amountRaw)
    throw new UsageError(
      'insufficient_balance',
      `${proposer} holds ${text(balanceRaw)}; ${needs}`,
      { hint: `fund the wallet, or ${settle}` },
    )
  if (allowanceRaw < reservedRaw + amountRaw)
    throw new UsageError(
      'insufficient_allowance',
      `${proposer} lets Permit2 move ${text(allowanceRaw)}; ${needs}`,
      { hint: `let Permit2 move more with \`proposer funds approve\`, or ${settle}` },
    )
}

/**
 * A server's `typed_data` is compared by digest, under its own permit terms, and never signed (R9).
 */
async function compareServersTypedData(
  { typed_data }: QuestionContext,
  digestOf: (terms: Parameters<ReturnType<typeof witnessRound>['digest']>[0]) => Hex,
): Promise<void> {
  if (typed_data === undefined) return
  const { TypedData } = await import('../../protocol/schema.js')
  const parsed = TypedData.safeParse(typed_data)
  if (!parsed.success) throw untrusted('typed_data', 'typed_data is malformed')
  const { domain, message } = parsed.data
  const { witness, permitted, nonce, deadline } = message
  const theirs = witnessRound(
    {
      chainId: Number(domain.chainId),
      permit2: domain.verifyingContract,
      signedProposer: message.spender,
    },
    {
      oracle: witness.oracle,
      requester: witness.requester,
      identifier: witness.identifier,
      timestamp: witness.timestamp,
      ancillaryData: witness.ancillaryData,
    },
    permitted.token,
    BigInt(witness.maxPayment),
  )
  const terms = { price: witness.proposedPrice, amount: permitted.amount, nonce, deadline }
  if (toHex(theirs.digest(terms)) !== digestOf(terms))
    throw untrusted(
      'typed_data',
      'the typed_data of the server does not hash to what its own signing data says',
    )
}
