/** All that is checked and decided before one signature (robustness §6, domain §9). */
import { titleOf } from '../../chain/ancillary.js'
import { domainOf } from '../../chain/round.js'
import { onChain } from '../../chain/unavailable.js'
import type { Chain, Hex, Signer } from '../../ports.js'
import { amountText } from '../../protocol/amount.js'
import type { RoundRef } from '../../protocol/candidate.js'
import { UsageError } from '../../protocol/errors.js'
import { type Labels, labelsOf } from '../../protocol/outcome-words.js'
import type { RecoverPublicKey } from '../../protocol/recovered.js'
import type { Address, OutcomeKey, TypedData } from '../../protocol/schema.js'
import { toHex, typedData, witnessRound } from '../../protocol/witness.js'
import type { GatewayClient } from '../gateway/gateway-client.js'
import type { Journal, JournalPorts, JournalView } from '../journal/journal.js'
import { type ChainCheck, chainChecks } from '../journal/records.js'
import { chainNow, confirmByChain, noNodeForRules, rulesOfRound } from '../trust/context.js'
import { nothingPinned, requireImplementations } from '../trust/implementations.js'
import {
  checkContext,
  checkOutcome,
  contractsOf,
  kindOf,
  outcomesByText,
  pinnedQuestionId,
  type QuestionContext,
  type Trust,
  untrusted,
} from '../trust/trust.js'
import type { Intent } from './intent.js'
import type { SettledEarlier } from './round-over.js'
import {
  type AskRules,
  acknowledgedOf,
  firstRulesNotes,
  type RulesStanding,
  rulesStanding,
} from './rules.js'
import type { SafeSigning } from './safe.js'
import { type CheckedTerms, checkTerms, checkTimeline, cutNotes, hashedRound } from './terms.js'

/** A nonce serves one authorization (R6). `what`: who has it. */
export const nonceReserved = (what: string, flag = '--nonce') =>
  new UsageError('nonce_reserved', `nonce ${what}`, `leave ${flag} out: a fresh one is chosen`)

export const nonceSpent = (nonce: bigint | string, proposer: string, flag = 'the nonce') =>
  new UsageError(
    'nonce_spent',
    `nonce ${nonce} of ${proposer} is already used or cancelled in Permit2`,
    `leave ${flag} out: a fresh one is chosen`,
  )

export interface AuthorizeParts {
  readonly ports: JournalPorts
  readonly journal: Journal
  readonly trust: Trust
  /** Asked for only where the journal has nothing to reuse. */
  readonly context: () => Promise<QuestionContext>
  readonly signer: () => Promise<Signer>
  /** The proposer is a Safe: its owners sign, and `signer` is not asked. */
  readonly safe?: SafeSigning | undefined
  /** Default: @noble/curves. */
  readonly recovery?: () => Promise<RecoverPublicKey>
  /** Settles earlier rounds; without it (offline) the context is at hand. */
  readonly gateway?: GatewayClient
  /** Without it a note says what was not checked. */
  readonly chain?: Chain | undefined
  /** Without it an unpinned slug is refused. */
  readonly confirmSlug?: (slug: string, questionId: string) => Promise<boolean>
  readonly confirm?: (preview: Preview) => Promise<void>
  /** Without it newer clarifications are refused. */
  readonly askRules?: AskRules | undefined
  readonly judge?: (context: QuestionContext, outcome: OutcomeKey) => Promise<void>
  readonly note?: ((text: string) => void) | undefined
  readonly onSettled?: (settled: SettledEarlier) => void
  readonly signal?: AbortSignal | undefined
}

/** Nothing is reserved yet. Raw token units. */
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
  readonly unchecked: readonly ChainCheck[]
  /** Absent where no chain told them. */
  readonly rules?: RulesStanding | undefined
}

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

/** Clarifications are read again: one may have come since. */
export async function rulesNow(
  chain: Chain,
  trust: Trust,
  intent: Intent,
  context: QuestionContext,
  view: JournalView,
): Promise<RulesStanding | undefined> {
  const rules = await rulesOfRound(chain, await confirmByChain(chain, trust, context))
  return rules && rulesStanding(rules, intent, acknowledgedOf(view, context), context)
}

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

async function confirmedSlug(
  { trust, confirmSlug }: AuthorizeParts,
  { identifier }: Intent,
  { question_id }: QuestionContext,
): Promise<string | undefined> {
  if (pinnedQuestionId(trust, identifier) !== undefined || confirmSlug === undefined)
    return undefined
  return (await confirmSlug(identifier, question_id)) ? question_id : undefined
}

/** Nonce free; balance and allowance ≥ all that is open and this (spec §5). */
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
      `fund the wallet, or ${settle}`,
    )
  if (allowanceRaw < reservedRaw + amountRaw)
    throw new UsageError(
      'insufficient_allowance',
      `${proposer} lets Permit2 move ${text(allowanceRaw)}; ${needs}`,
      `let Permit2 move more with \`proposer funds approve\`, or ${settle}`,
    )
}

/** By digest, under its own permit terms; never signed (R9). */
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
