/** One proposal alone (R6-R9, contract §6): planned and signed as a row of many, by the single route. */
import { onChain } from '#chain/unavailable'
import type { Hex } from '#ports'
import { amountText } from '#protocol/amount'
import { UsageError } from '#protocol/errors'
import type { JournaledAuthorization, Offer } from '../journal/authorizations.js'
import { type ContextSource, contextResult } from '../trust/context.js'
import { authorizationOpen, type IntentInWords } from './intent.js'
import type { Spending } from './look.js'
import { giveOut } from './outside.js'
import {
  type AuthorizeParts,
  type PlanOptions,
  type Preview,
  type ProposeParts,
  planRows,
  type ToSign,
} from './plan.js'
import { agreed, foundAgain, prepare, signOne } from './sign-rows.js'
import { nonceReserved, nonceSpent } from './terms.js'

export interface Authorized {
  readonly authorization: JournaledAuthorization
  readonly reused: boolean
  readonly journalId: string
  readonly questionId: Hex
  /** Absent only for a payload that was signed elsewhere. */
  readonly digest: Hex | undefined
  readonly signer: Hex
  readonly body: string
}

export function authorized(authorization: JournaledAuthorization, reused: boolean): Authorized {
  const { id, signed } = authorization
  return {
    authorization,
    reused,
    journalId: id,
    questionId: signed.questionId,
    digest: signed.digest,
    signer: signed.terms.proposer,
    body: signed.body,
  }
}

/**
 * Reuses an open authorization of equal intent, else signs. One that differs in the same round is
 * `authorization_open` (exit 5) unless `supersede` names it. With `isRetry` whatever earlier
 * rounds left open is not used again (§3 rule 3).
 */
export async function authorize(
  given: AuthorizeParts,
  intent: IntentInWords,
  options: Pick<PlanOptions, 'isRetry'> = {},
): Promise<Authorized> {
  const { parts, plan } = await planOne(given, intent, options)
  if (plan.kind === 'send') return authorized(plan.authorization, true)
  const { authorization, reused } = await signOne(parts, spendingOf(parts), plan)
  return authorized(authorization, reused)
}

/** `--dry-run`: writes nothing. */
export async function preview(
  given: AuthorizeParts,
  intent: IntentInWords,
): Promise<Preview | { readonly reused: JournaledAuthorization } | { readonly resumed: Offer }> {
  const { parts, plan } = await planOne(given, intent, { look: true })
  if (plan.kind === 'send') return { reused: plan.authorization }
  return plan.offer === undefined
    ? prepare(parts, spendingOf(parts), plan)
    : { resumed: plan.offer }
}

/**
 * `sign --typed-data`: nonce and question are held until `importSignature`. An equal intent gets
 * the same document.
 */
export async function offerTypedData(
  given: AuthorizeParts,
  intent: IntentInWords,
): Promise<{ readonly offer: Offer; readonly reused: boolean }> {
  const { parts, plan } = await planOne(given, intent, { isRetry: true })
  if (plan.kind === 'send') throw authorizationOpen(plan.authorization)
  if (plan.offer !== undefined) return { offer: plan.offer, reused: true }
  const shown = await agreed(parts, spendingOf(parts), plan)
  return parts.journal.exclusive(async (view) => {
    const same = foundAgain(parts, plan, view)
    if (same.kind === 'reuse') throw authorizationOpen(same.authorization)
    return same.kind === 'resume'
      ? { offer: same.offer, reused: true }
      : { offer: await giveOut(parts, plan.intent, shown, view), reused: false }
  })
}

export const sourceOf = (
  { context }: AuthorizeParts,
  { identifier }: IntentInWords,
): ContextSource => ({
  contexts: async ([asked = identifier]) => [
    await contextResult(asked, async () => ({ context: await context(), notes: [] })),
  ],
})

/** The journal comes before any context (contract §6); a free one is examined too. */
async function planOne(given: AuthorizeParts, intent: IntentInWords, options: PlanOptions) {
  const { gateway, chain, signal } = given
  const { identifier, outcome, proposer } = intent
  const parts: ProposeParts = {
    ...given,
    alone: { ...given, intent },
    contexts: sourceOf(given, intent),
    contextsAreFree: gateway === undefined || chain !== undefined,
    keepContexts: true,
    proposer: async () => proposer,
  }
  const row = { kind: 'intent', line: 1, identifier, outcome, proposer } as const
  const [plan] = await planRows(parts, [row], { ...options, signal })
  if (plan?.kind === 'rejected') throw plan.error
  if (plan?.kind !== 'send' && plan?.kind !== 'sign')
    throw new Error('an intent was planned as something else')
  return { parts, plan }
}

/** Nonce free; balance and allowance ≥ all that is open and this (spec §5). */
const spendingOf = ({ chain, trust, journal }: ProposeParts): Spending => ({
  limits: { fit: false },
  async take({ intent: { proposer, supersede }, context: { bond } }: ToSign, amountRaw, nonce) {
    if (nonce === undefined) throw new Error('one alone is judged by the nonce it will use')
    const view = await journal.load()
    if (view.isReserved(proposer, String(nonce)))
      throw nonceReserved(`${nonce} already serves another authorization of this journal`)
    if (chain === undefined) return
    // Signing without a chain does without viem.
    const { fundsOf, pinnedHeads, spentNonces } = await import('../funds/funds.js')
    const { latest } = await pinnedHeads(chain, trust)
    const claim = { id: '', owner: proposer, nonce }
    const spent = await onChain(() => spentNonces(chain, trust.permit2, latest.number, [claim]))
    if (spent.size > 0) throw nonceSpent(nonce, proposer, '--nonce')
    const funds = await fundsOf(chain, trust, view, proposer, bond.token, { except: supersede })
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
  },
})
