/** What may be authorized in all: the user's limit, and what each wallet covers (spec §5). */
import { knownAmount } from '#chain/profiles'
import { amountText } from '#protocol/amount'
import { UsageError } from '#protocol/errors'
import type { Address } from '#protocol/schema'
import type { Funds } from '../funds/funds.js'
import type { ProposeParts, ToSign } from './plan.js'

export interface SpendingLimits {
  /** Sum of all amounts signed by this run, raw token units. */
  readonly maxSpendRaw?: bigint | undefined
  /** Sign the first rows that fit and leave the rest, instead of refusing all. */
  readonly fit: boolean
}

export type Totals = ReadonlyMap<Address, bigint>

export function addTotal(totals: Map<Address, bigint>, token: Address, raw: bigint) {
  totals.set(token, (totals.get(token) ?? 0n) + raw)
}

export type Spending = ReturnType<typeof newSpending>

/** Over all tokens. Without limits it is one alone, which the wallet has to cover. */
export function newSpending(parts: ProposeParts, limits: SpendingLimits = { fit: false }) {
  const wallets = new Map<string, { readonly leftRaw: bigint; readonly funds: Funds }>()
  let spentRaw = 0n
  let isOver = false
  // With `fit` the first rows are signed, not the small ones: what was left out is easy to say.
  const refuse = (error: UsageError) => {
    isOver = limits.fit
    return error
  }
  return {
    limits,
    async take(
      { intent: { proposer: owner, supersede }, context, offer }: ToSign,
      amountRaw: bigint,
    ) {
      const { token } = context.bond
      const { maxSpendRaw } = limits
      const text = (raw: bigint) => knownAmount(raw, parts.trust.chain_id, token)
      const isAbove = maxSpendRaw !== undefined && spentRaw + amountRaw > maxSpendRaw
      if (isOver || isAbove) throw refuse(overSpend(parts, limits, spentRaw + amountRaw, text))
      const known = wallets.get(`${owner} ${token}`)
      // Of an offer they are reserved already.
      const funds =
        offer === undefined
          ? (known?.funds ?? (await fundsToSpend(parts, owner, token, supersede)))
          : undefined
      if (funds !== undefined) {
        const leftRaw = known?.leftRaw ?? funds.spendableRaw
        if (amountRaw > leftRaw)
          throw refuse(insufficient(parts, limits, funds, amountRaw, leftRaw))
        wallets.set(`${owner} ${token}`, { leftRaw: leftRaw - amountRaw, funds })
      }
      spentRaw += amountRaw
    },
  }
}

export const fundsToSpend = async (
  { chain, trust, journal }: ProposeParts,
  owner: Address,
  token: Address,
  except?: string,
) => {
  if (chain === undefined) return undefined
  // Signing without a chain does without viem.
  const { fundsOf } = await import('../funds/funds.js')
  return fundsOf(chain, trust, await journal.load(), owner, token, { except })
}

type Form = Pick<ProposeParts, 'form'>

function orShorter(what: string, { form }: Form, { fit }: SpendingLimits) {
  if (form === 'single') return `${what}, or settle what is open (\`proposer journal list\`)`
  return fit
    ? `${what} or give a shorter batch`
    : `${what}, give a shorter batch, or add --fit to sign the first rows that fit`
}

export function overSpend(
  form: Form,
  limits: SpendingLimits,
  wouldRaw: bigint,
  text: (raw: bigint) => string,
) {
  const { maxSpendRaw: cap } = limits
  return new UsageError(
    'over_max_spend',
    `the batch would authorize ${text(wouldRaw)}, ${cap === undefined ? 'which the wallet does not cover' : `--max-spend is ${text(cap)}`}`,
    orShorter('raise --max-spend', form, limits),
  )
}

export function insufficient(
  form: Form,
  limits: SpendingLimits,
  funds: Funds,
  neededRaw: bigint,
  leftRaw: bigint,
): UsageError {
  const { owner, balanceRaw, allowanceRaw, reservedRaw } = funds
  const text = (raw: bigint) => amountText(String(raw), funds)
  const beside = `beside ${text(reservedRaw)} reserved by its open authorizations`
  return allowanceRaw < balanceRaw
    ? new UsageError(
        'insufficient_allowance',
        `${owner} lets Permit2 move ${text(allowanceRaw)}, ${text(leftRaw)} of it ${beside}; ${text(neededRaw)} is needed`,
        orShorter('let Permit2 move more (`proposer funds approve`)', form, limits),
      )
    : new UsageError(
        'insufficient_balance',
        `${owner} has ${text(leftRaw)} left ${beside}; ${text(neededRaw)} is needed`,
        orShorter('fund the wallet (`proposer funds`)', form, limits),
      )
}
