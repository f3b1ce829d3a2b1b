/**
 * An input before anything of it is signed; sums and previews are views of the plans (contract
 * §6, §9).
 */

import { knownAmount } from '#chain/profiles'
import { amountText } from '#protocol/amount'
import { type ProposerError, RejectedError, UsageError } from '#protocol/errors'
import type { Address } from '#protocol/schema'
import { limits } from '#protocol/words'
import { type Funds, fundsOf } from '../funds/funds.js'
import { needsLook } from '../input/check.js'
import type { BatchRow } from '../input/input.js'
import {
  type BatchSource,
  type InputFaults,
  inGroups,
  inputFault,
  newFaults,
} from '../input/rows.js'
import { nowOf } from '../trust/context.js'
import { requireImplementations } from '../trust/trust.js'
import { type Planned, type PlanOptions, type ProposeParts, planRows, type ToSign } from './plan.js'
import { checkTerms } from './terms.js'

/** Anything else rejects its row alone. */
const refusing: ReadonlySet<string> = new Set([
  'bad_outcome',
  'ambiguous_outcome',
  'other_question',
])

export interface Looking extends Pick<PlanOptions, 'signal' | 'resume'> {
  readonly limits: SpendingLimits
  readonly all?: boolean
  readonly faults?: InputFaults
}

export interface Looked {
  readonly plans?: readonly Planned[]
  readonly sums?: SpendingSums
  readonly refusal?: UsageError | undefined
}

/**
 * The rows that only their question can tell to be right; all where a limit or a wallet bounds
 * their sum. UsageError with the line of every row whose answer means nothing or two things, or
 * which shows another question; then also what would reject others, as far as contexts cost
 * nothing or one call.
 */
export async function lookAt(
  parts: ProposeParts,
  rows: readonly BatchRow[],
  source: Pick<BatchSource, 'name'>,
  { limits: spending, all = false, faults = newFaults(source), ...options }: Looking,
): Promise<Looked> {
  const { chain, contextsAreFree } = parts
  const isLimited = !spending.fit && (spending.maxSpendRaw !== undefined || chain !== undefined)
  const intents = rows.filter(({ kind }) => kind === 'intent').length
  const planned = new Map<BatchRow, Planned>()
  let now: Promise<number> | undefined
  const nowSeconds = () => {
    now ??= nowOf(parts)
    return now
  }
  const planning = { ...options, look: true, rounds: new Map() }
  const look = async (isWanted: (row: BatchRow) => boolean) => {
    const wanted = rows.filter(
      (row) => isWanted(row) && !planned.has(row) && !faults.isAt(row.element ?? row.line),
    )
    for (const some of inGroups(wanted, limits.batchItems))
      for (const plan of await planRows(parts, some, planning)) {
        planned.set(plan.row, plan)
        const error = await errorOf(plan, nowSeconds)
        if (error === undefined) continue
        const { code, detail, meta } = error
        const fault = inputFault(source, plan.row, code, detail, meta.hint ?? '')
        if (refusing.has(code)) faults.add(fault)
        else faults.addBeside(fault)
      }
  }
  try {
    if (!faults.refuses) await look(all || isLimited ? () => true : needsLook)
    if (faults.refuses && (contextsAreFree || intents <= limits.batchItems)) await look(() => true)
  } catch (error) {
    // What keeps from looking further is less than what is wrong with the input.
    faults.throwAny()
    throw error
  }
  faults.throwAny()
  if (!all && !isLimited) return {}
  const plans = rows.flatMap((row) => planned.get(row) ?? [])
  return { plans, ...(await sumsOf(parts, plans, spending, nowSeconds)) }
}

async function errorOf(
  plan: Planned,
  now: () => Promise<number>,
): Promise<ProposerError | undefined> {
  if (plan.kind === 'rejected')
    return plan.error instanceof UsageError || plan.error instanceof RejectedError
      ? plan.error
      : undefined
  if (plan.kind !== 'sign') return undefined
  try {
    checkTerms(plan.intent, plan.context, await now())
    return undefined
  } catch (error) {
    if (error instanceof UsageError) return error
    throw error
  }
}

/** With `fit` a row counts only where it fits. */
async function sumsOf(
  parts: ProposeParts,
  plans: readonly Planned[],
  spending: SpendingLimits,
  nowSeconds: () => Promise<number>,
): Promise<Omit<Looked, 'plans'>> {
  const { chain, trust } = parts
  const { fit, maxSpendRaw } = spending
  const fitting = fit ? newSpending(parts, spending) : undefined
  const totals = new Map<Address, bigint>()
  const findings = { ok: 0, warn: 0, unknown: 0 }
  const needed = new Map<string, { owner: Address; token: Address; raw: bigint }>()
  let [count, totalRaw] = [0, 0n]
  for (const plan of plans) {
    if (plan.kind !== 'sign') continue
    for (const { result } of plan.findings ?? []) findings[result]++
    const [owner, { token }] = [plan.intent.proposer, plan.context.bond]
    try {
      const { amountRaw } = checkTerms(plan.intent, plan.context, await nowSeconds())
      await fitting?.take(plan, amountRaw)
      const before = needed.get(`${owner} ${token}`)?.raw ?? 0n
      needed.set(`${owner} ${token}`, { owner, token, raw: before + amountRaw })
      addTotal(totals, token, amountRaw)
      totalRaw += amountRaw
      count++
    } catch (error) {
      // What cannot be signed counts nothing and is told when its turn comes.
      if (!(error instanceof UsageError)) throw error
    }
  }
  if (chain !== undefined && count > 0) await requireImplementations(chain, trust)
  const sums = { rows: count, totals, findings: parts.judging && findings }
  if (fit) return { sums }
  if (maxSpendRaw !== undefined && totalRaw > maxSpendRaw) {
    const [token = '', ...others] = totals.keys()
    const text = (raw: bigint) => knownAmount(raw, trust.chain_id, others.length === 0 ? token : '')
    return { sums, refusal: overSpend(spending, text(totalRaw), text(maxSpendRaw)) }
  }
  for (const { owner, token, raw } of needed.values()) {
    const funds = await readFunds(parts, owner, token)
    if (funds !== undefined && raw > funds.spendableRaw)
      return { sums, refusal: insufficient(spending, funds, raw, funds.spendableRaw) }
  }
  return { sums }
}

export interface SpendingLimits {
  /** Sum of all amounts signed by this run, raw token units. */
  readonly maxSpendRaw?: bigint | undefined
  /** Sign the first rows that fit and leave the rest, instead of refusing all. */
  readonly fit: boolean
}

export type Totals = ReadonlyMap<Address, bigint>

export interface SpendingSums {
  readonly rows: number
  readonly totals: Totals
  readonly findings?: Readonly<Record<'ok' | 'warn' | 'unknown', number>> | undefined
}

export function addTotal(totals: Map<Address, bigint>, token: Address, raw: bigint): void {
  totals.set(token, (totals.get(token) ?? 0n) + raw)
}

export interface Spending {
  readonly limits: SpendingLimits
  take(row: ToSign, amountRaw: bigint, nonce?: bigint): Promise<void>
}

/** Over all tokens. */
export function newSpending(parts: ProposeParts, limits: SpendingLimits): Spending {
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
    async take({ intent: { proposer: owner }, context }, amountRaw) {
      const { token } = context.bond
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

const readFunds = async ({ chain, trust, journal }: ProposeParts, owner: Address, token: Address) =>
  chain && fundsOf(chain, trust, await journal.load(), owner, token)

const orShorter = (what: string, { fit }: SpendingLimits) => ({
  hint: fit
    ? `${what} or give a shorter batch`
    : `${what}, give a shorter batch, or add --fit to sign the first rows that fit`,
})

const overSpend = (limits: SpendingLimits, would: string, cap?: string): UsageError =>
  new UsageError(
    'over_max_spend',
    `the batch would authorize ${would}, ${cap === undefined ? 'which the wallet does not cover' : `--max-spend is ${cap}`}`,
    orShorter('raise --max-spend', limits),
  )

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
