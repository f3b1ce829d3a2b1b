/**
 * What a batch may authorize: a limit that the user gave, and what the wallet holds where a chain
 * can be asked (spec §5).
 */

import { knownAmount } from '../../chain/profiles.js'
import { amountText } from '../../protocol/amount.js'
import { UsageError } from '../../protocol/errors.js'
import type { Address } from '../../protocol/schema.js'
import { limits } from '../../protocol/words.js'
import { type Funds, fundsOf } from '../funds/funds.js'
import type { BatchRow } from '../input/input.js'
import { inGroups } from '../input/rows.js'
import { type ContextResult, type ContextSource, chainNow } from '../trust/context.js'
import { requireImplementations } from '../trust/implementations.js'
import type { Trust } from '../trust/trust.js'
import { type BatchParts, type PlanOptions, planRows } from './plan.js'
import { checkTerms } from './terms.js'

export interface SpendingLimits {
  /** Sum of all amounts signed by this run, raw token units. */
  readonly maxSpendRaw?: bigint | undefined
  /** Sign the first rows that fit and leave the rest, instead of refusing all. */
  readonly fit: boolean
}

/** Raw units by token. */
export type Totals = ReadonlyMap<Address, bigint>

/** What is still to be signed: rows, and raw units by token. */
export interface SpendingSums {
  readonly rows: number
  readonly totals: Totals
  /** Findings of these rows, where they were looked for. */
  readonly findings?: Readonly<Record<'ok' | 'warn' | 'unknown', number>> | undefined
}

/** Adds an amount to the sum of its token. */
export function addTotal(totals: Map<Address, bigint>, token: Address, raw: bigint): void {
  totals.set(token, (totals.get(token) ?? 0n) + raw)
}

/** Keeps the account of one run. */
export interface Spending {
  readonly limits: SpendingLimits
  /** Counts an amount that is about to be signed; UsageError as `checkSpending`. */
  take(token: Address, owner: Address, amountRaw: bigint): Promise<void>
}

/**
 * `maxSpendRaw` counts over all tokens: it is meant for batches of one. Without a chain nothing
 * else limits.
 */
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
      const isAbove = limits.maxSpendRaw !== undefined && spentRaw + amountRaw > limits.maxSpendRaw
      if (isOver || isAbove)
        throw refuse(overSpend(limits, spentRaw + amountRaw, parts.trust, token))
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

/** `undefined` without a chain. */
const readFunds = async ({ chain, trust, journal }: BatchParts, owner: Address, token: Address) =>
  chain && fundsOf(chain, trust, await journal.load(), owner, token)

const orShorter = (what: string, { fit }: SpendingLimits) => ({
  hint: fit
    ? `${what} or give a shorter batch`
    : `${what}, give a shorter batch, or add --fit to sign the first rows that fit`,
})

/** `token`: the only one, where there is one; a sum over several has no unit. */
function overSpend(
  limits: SpendingLimits,
  wouldRaw: bigint,
  { chain_id: chainId }: Trust,
  token = '',
): UsageError {
  const { maxSpendRaw } = limits
  const text = (raw: bigint) => knownAmount(raw, chainId, token)
  const why =
    maxSpendRaw === undefined
      ? 'which the wallet does not cover'
      : `--max-spend is ${text(maxSpendRaw)}`
  return new UsageError(
    'over_max_spend',
    `the batch would authorize ${text(wouldRaw)}, ${why}`,
    orShorter('raise --max-spend', limits),
  )
}

/** Names which of the two is the smaller: balance or allowance (spec §5). */
function insufficient(
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

/**
 * Before anything is signed: whether the sum of what has to be signed fits the limit and the
 * wallet; UsageError `over_max_spend`, `insufficient_balance`, `insufficient_allowance` (exit 2).
 * Looks at every row, so it is asked only where there is a limit, or a chain, which costs no
 * budget, or `always`. With `fit` each row is judged as it comes, and counts only where it fits.
 * The sums, where it looked. `resume` as of `planRows`.
 */
export async function checkSpending(
  parts: BatchParts,
  rows: readonly BatchRow[],
  spendingLimits: SpendingLimits,
  options: Pick<PlanOptions, 'signal' | 'resume'> & { readonly always?: boolean } = {},
): Promise<SpendingSums | undefined> {
  const { chain, trust, ports } = parts
  const { fit, maxSpendRaw } = spendingLimits
  const { always, ...planning } = options
  if (always !== true && (fit || (maxSpendRaw === undefined && chain === undefined)))
    return undefined
  const fitting = fit ? newSpending(parts, spendingLimits) : undefined
  const totals = new Map<Address, bigint>()
  let count = 0
  const findings = { ok: 0, warn: 0, unknown: 0 }
  const nowSeconds =
    chain === undefined ? ports.clock.nowMs() / 1_000 : await chainNow(chain, trust, ports.clock)
  const needed = new Map<string, { owner: Address; token: Address; raw: bigint }>()
  let totalRaw = 0n
  const looking = { ...planning, look: true, rounds: new Map() }
  for (const some of inGroups(rows, limits.batchItems)) {
    for (const plan of await planRows(parts, some, looking)) {
      if (plan.kind !== 'sign') continue
      for (const { result } of plan.findings ?? []) findings[result]++
      const [owner, { token }] = [plan.intent.proposer, plan.context.bond]
      const raw = await orNothing(async () => {
        const { amountRaw } = checkTerms(plan.intent, plan.context, nowSeconds)
        await fitting?.take(token, owner, amountRaw)
        return amountRaw
      })
      if (raw > 0n) count++
      const before = needed.get(`${owner} ${token}`)?.raw ?? 0n
      needed.set(`${owner} ${token}`, { owner, token, raw: before + raw })
      if (raw > 0n) addTotal(totals, token, raw)
      totalRaw += raw
    }
  }
  if (chain !== undefined && count > 0) await requireImplementations(chain, trust)
  const sums = { rows: count, totals, findings: parts.judging && findings }
  if (fit) return sums
  if (maxSpendRaw !== undefined && totalRaw > maxSpendRaw) {
    const [token, ...others] = totals.keys()
    throw overSpend(spendingLimits, totalRaw, trust, others.length === 0 ? token : undefined)
  }
  for (const { owner, token, raw } of needed.values()) {
    const funds = await readFunds(parts, owner, token)
    if (funds !== undefined && raw > funds.spendableRaw)
      throw insufficient(spendingLimits, funds, raw, funds.spendableRaw)
  }
  return sums
}

/** What cannot be signed counts nothing and is told when its turn comes. */
async function orNothing(amount: () => Promise<bigint>): Promise<bigint> {
  try {
    return await amount()
  } catch (error) {
    if (error instanceof UsageError) return 0n
    throw error
  }
}

/** So many contexts are kept between the looks at an input and its signing. */
export const keptContexts = 2_000

/** One source for the looks at an input, which keeps contexts, and one for the signing. */
export interface RememberedContexts {
  readonly looking: ContextSource
  readonly taking: ContextSource
}

/**
 * A context that was looked at is taken once without asking again: the budget of one. Errors, and
 * what is not kept, are asked for again.
 */
export function rememberedContexts(source: ContextSource): RememberedContexts {
  const kept = new Map<string, ContextResult>()
  const from = (keeps: boolean): ContextSource => ({
    async contexts(identifiers, options) {
      const asked = identifiers.filter((one) => !kept.has(one))
      const results = asked.length === 0 ? [] : await source.contexts(asked, options)
      const fresh = new Map(results.map((one) => [one.identifier, one]))
      return identifiers.flatMap((identifier) => {
        const result = kept.get(identifier) ?? fresh.get(identifier)
        if (!keeps) kept.delete(identifier)
        else if (result?.context !== undefined && kept.size < keptContexts)
          kept.set(identifier, result)
        return result ?? []
      })
    },
  })
  return { looking: from(true), taking: from(false) }
}
