/** A limit that the user gave, and what the wallet holds where a chain can be asked (spec §5). */

import { knownAmount } from '../../chain/profiles.js'
import { amountText } from '../../protocol/amount.js'
import { UsageError } from '../../protocol/errors.js'
import type { Address } from '../../protocol/schema.js'
import { type Funds, fundsOf } from '../funds/funds.js'
import type { BatchParts } from './plan.js'

export interface SpendingLimits {
  /** Sum of all amounts signed by this run, raw token units. */
  readonly maxSpendRaw?: bigint | undefined
  /** Sign the first rows that fit and leave the rest, instead of refusing all. */
  readonly fit: boolean
}

export type Totals = ReadonlyMap<Address, bigint>

/** What is still to be signed: rows, and raw units by token. */
export interface SpendingSums {
  readonly rows: number
  readonly totals: Totals
  /** Findings of these rows, where they were looked for. */
  readonly findings?: Readonly<Record<'ok' | 'warn' | 'unknown', number>> | undefined
}

export function addTotal(totals: Map<Address, bigint>, token: Address, raw: bigint): void {
  totals.set(token, (totals.get(token) ?? 0n) + raw)
}

export interface Spending {
  readonly limits: SpendingLimits
  /** Counts an amount that is about to be signed; UsageError as `Looked.refusal`. */
  take(token: Address, owner: Address, amountRaw: bigint): Promise<void>
}

/** `maxSpendRaw` counts over all tokens: it is meant for batches of one. */
export function newSpending(parts: BatchParts, limits: SpendingLimits): Spending {
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
    async take(token, owner, amountRaw) {
      const { maxSpendRaw } = limits
      const text = (raw: bigint) => knownAmount(raw, parts.trust.chain_id, token)
      const isAbove = maxSpendRaw !== undefined && spentRaw + amountRaw > maxSpendRaw
      if (isOver || isAbove)
        throw refuse(
          overSpend(
            limits,
            text(spentRaw + amountRaw),
            maxSpendRaw === undefined ? undefined : text(maxSpendRaw),
          ),
        )
      const funds =
        wallets.get(`${owner} ${token}`)?.funds ?? (await readFunds(parts, owner, token))
      if (funds !== undefined) {
        const leftRaw = wallets.get(`${owner} ${token}`)?.leftRaw ?? funds.spendableRaw
        if (amountRaw > leftRaw) throw refuse(insufficient(limits, funds, amountRaw, leftRaw))
        wallets.set(`${owner} ${token}`, { leftRaw: leftRaw - amountRaw, funds })
      }
      spentRaw += amountRaw
    },
  }
}

export const readFunds = async (
  { chain, trust, journal }: BatchParts,
  owner: Address,
  token: Address,
) => chain && fundsOf(chain, trust, await journal.load(), owner, token)

const orShorter = (what: string, { fit }: SpendingLimits) => ({
  hint: fit
    ? `${what} or give a shorter batch`
    : `${what}, give a shorter batch, or add --fit to sign the first rows that fit`,
})

/** `cap`: `--max-spend`, where that is what refuses it. */
export const overSpend = (limits: SpendingLimits, would: string, cap?: string): UsageError =>
  new UsageError(
    'over_max_spend',
    `the batch would authorize ${would}, ${cap === undefined ? 'which the wallet does not cover' : `--max-spend is ${cap}`}`,
    orShorter('raise --max-spend', limits),
  )

export function insufficient(
  limits: SpendingLimits,
  funds: Funds,
  neededRaw: bigint,
  leftRaw: bigint,
): UsageError {
  const { owner, balanceRaw, allowanceRaw } = funds
  const text = (raw: bigint) => amountText(String(raw), funds)
  return allowanceRaw < balanceRaw
    ? new UsageError(
        'insufficient_allowance',
        `${owner} lets Permit2 move ${text(allowanceRaw)}, ${text(leftRaw)} of it beside its open authorizations; ${text(neededRaw)} is needed`,
        orShorter('let Permit2 move more (`proposer funds approve`)', limits),
      )
    : new UsageError(
        'insufficient_balance',
        `${owner} has ${text(leftRaw)} left beside its open authorizations; ${text(neededRaw)} is needed`,
        orShorter('fund the wallet (`proposer funds`)', limits),
      )
}
