/** What may be authorized in all: the user's limit, and what each wallet covers (spec §5). */
import { knownAmount } from '#chain/profiles'
import { amountText } from '#protocol/amount'
import { UsageError } from '#protocol/errors'
import type { Address } from '#protocol/schema'
import type { Funds } from '../funds/funds.js'
import type { Offer } from '../journal/authorizations.js'
import type { ProposeParts } from './plan.js'

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

interface Spender {
  readonly intent: { readonly proposer: Address; readonly supersede?: string | undefined }
  readonly context: { readonly bond: { readonly token: Address } }
  readonly offer?: Offer | undefined
}

export type Spending = ReturnType<typeof newSpending>

/** Over all tokens. Without limits it is one alone, which the wallet has to cover. */
export function newSpending(
  { chain, trust, journal, form }: ProposeParts,
  limits: SpendingLimits = { fit: false },
) {
  const { fit, maxSpendRaw } = limits
  const wallets = new Map<string, { readonly leftRaw: bigint; readonly funds: Funds }>()
  let spentRaw = 0n
  let isOver = false

  function refusal(code: string, detail: string, what: string) {
    // With `fit` the first rows are signed, not the small ones: what was left out is easy to say.
    isOver = fit
    const hint =
      form === 'single'
        ? `${what}, or settle what is open (\`proposer journal list\`)`
        : fit
          ? `${what} or give a shorter batch`
          : `${what}, give a shorter batch, or add --fit to sign the first rows that fit`
    return new UsageError(code, detail, hint)
  }

  async function fundsOf(owner: Address, token: Address, except: string | undefined) {
    if (chain === undefined) return undefined
    // Signing without a chain does without viem.
    const funds = await import('../funds/funds.js')
    return funds.fundsOf(chain, trust, await journal.load(), owner, token, except)
  }

  function insufficient(funds: Funds, neededRaw: bigint, leftRaw: bigint) {
    const { owner, balanceRaw, allowanceRaw, reservedRaw } = funds
    const text = (raw: bigint) => amountText(raw, funds)
    const beside = `beside ${text(reservedRaw)} reserved by its open authorizations; ${text(neededRaw)} is needed`
    return allowanceRaw < balanceRaw
      ? refusal(
          'insufficient_allowance',
          `${owner} lets Permit2 move ${text(allowanceRaw)}, ${text(leftRaw)} of it ${beside}`,
          'let Permit2 move more (`proposer funds approve`)',
        )
      : refusal(
          'insufficient_balance',
          `${owner} has ${text(leftRaw)} left ${beside}`,
          'fund the wallet (`proposer funds`)',
        )
  }

  return {
    limits,
    async take({ intent: { proposer, supersede }, context, offer }: Spender, amountRaw: bigint) {
      const { token } = context.bond
      const wouldRaw = spentRaw + amountRaw
      if (isOver || (maxSpendRaw !== undefined && wouldRaw > maxSpendRaw)) {
        const text = (raw: bigint) => knownAmount(raw, trust.chain_id, token)
        const why =
          maxSpendRaw === undefined
            ? 'which the wallet does not cover'
            : `--max-spend is ${text(maxSpendRaw)}`
        const detail = `the batch would authorize ${text(wouldRaw)}, ${why}`
        throw refusal('over_max_spend', detail, 'raise --max-spend')
      }
      const known = wallets.get(`${proposer} ${token}`)
      // Of an offer they are reserved already.
      const funds = offer
        ? undefined
        : (known?.funds ?? (await fundsOf(proposer, token, supersede)))
      if (funds !== undefined) {
        const leftRaw = known?.leftRaw ?? funds.spendableRaw
        if (amountRaw > leftRaw) throw insufficient(funds, amountRaw, leftRaw)
        wallets.set(`${proposer} ${token}`, { leftRaw: leftRaw - amountRaw, funds })
      }
      spentRaw = wouldRaw
    },
  }
}
