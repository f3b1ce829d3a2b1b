/**
 * An input before anything of it is signed; sums and previews are views of the plans (contract
 * §6, §9).
 */

import { knownAmount } from '#chain/profiles'
import { inGroups } from '#protocol/capped'
import { RejectedError, UsageError } from '#protocol/errors'
import { once } from '#protocol/once'
import type { Address } from '#protocol/schema'
import { limits } from '#protocol/words'
import { type BatchRow, needsLook } from '../input/input.js'
import { type BatchSource, type InputFaults, inputFault, newFaults } from '../input/rows.js'
import { nowOf } from '../trust/context.js'
import { requireImplementations } from '../trust/trust.js'
import {
  addTotal,
  fundsToSpend,
  insufficient,
  newSpending,
  overSpend,
  type SpendingLimits,
} from './limits.js'
import { type Planned, type PlanOptions, type ProposeParts, planRows } from './plan.js'
import { checkTerms } from './terms.js'

/** Anything else rejects its row alone. */
const refusing: ReadonlySet<string> = new Set([
  'bad_outcome',
  'ambiguous_outcome',
  'other_question',
])

interface Looking extends Pick<PlanOptions, 'signal' | 'resume'> {
  readonly limits: SpendingLimits
  readonly all?: boolean
  readonly faults?: InputFaults
}

export type SpendingSums = Awaited<ReturnType<typeof sumsOf>>['sums']

interface Looked {
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
  const isWhole =
    all || (!spending.fit && (spending.maxSpendRaw !== undefined || chain !== undefined))
  const intents = rows.filter(({ kind }) => kind === 'intent').length
  const planned = new Map<BatchRow, Planned>()
  /** What would be signed. */
  const amounts = new Map<Planned, bigint>()
  const now = once(() => nowOf(parts))
  const judge = async (plan: Planned) => {
    if (plan.kind === 'rejected') return plan.error
    if (plan.kind !== 'sign') return undefined
    try {
      amounts.set(plan, checkTerms(plan.intent, plan.context, await now()).amountRaw)
      return undefined
    } catch (error) {
      if (error instanceof UsageError) return error
      throw error
    }
  }
  const planning = { ...options, look: true, rounds: new Map() }
  const look = async (isWanted: (row: BatchRow) => boolean) => {
    const isFresh = (row: BatchRow) => !planned.has(row) && !faults.isAt(row.element ?? row.line)
    const wanted = rows.filter((row) => isWanted(row) && isFresh(row))
    for (const some of inGroups(wanted, limits.batchItems))
      for (const plan of await planRows(parts, some, planning)) {
        planned.set(plan.row, plan)
        const error = await judge(plan)
        if (!(error instanceof UsageError || error instanceof RejectedError)) continue
        const { code, detail, meta } = error
        const fault = inputFault(source, plan.row, code, detail, meta.hint ?? '')
        if (refusing.has(code)) faults.add(fault)
        else faults.addBeside(fault)
      }
  }
  try {
    if (!faults.refuses) await look(isWhole ? () => true : needsLook)
    if (faults.refuses && (contextsAreFree || intents <= limits.batchItems)) await look(() => true)
  } catch (error) {
    // What keeps from looking further is less than what is wrong with the input.
    faults.throwAny()
    throw error
  }
  faults.throwAny()
  if (!isWhole) return {}
  const plans = rows.flatMap((row) => planned.get(row) ?? [])
  return { plans, ...(await sumsOf(parts, plans, amounts, spending)) }
}

/** With `fit` a row counts only where it fits; what cannot be signed is told when its turn comes. */
async function sumsOf(
  parts: ProposeParts,
  plans: readonly Planned[],
  amounts: ReadonlyMap<Planned, bigint>,
  spending: SpendingLimits,
) {
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
    const amountRaw = amounts.get(plan)
    if (amountRaw === undefined) continue
    try {
      await fitting?.take(plan, amountRaw)
    } catch (error) {
      if (error instanceof UsageError) continue
      throw error
    }
    const [owner, { token }] = [plan.intent.proposer, plan.context.bond]
    const { raw = 0n } = needed.get(`${owner} ${token}`) ?? {}
    needed.set(`${owner} ${token}`, { owner, token, raw: raw + amountRaw })
    addTotal(totals, token, amountRaw)
    totalRaw += amountRaw
    count++
  }
  if (chain !== undefined && count > 0) await requireImplementations(chain, trust)
  const sums = { rows: count, totals, findings: parts.judging && findings }
  if (fit) return { sums }
  if (maxSpendRaw !== undefined && totalRaw > maxSpendRaw) {
    const [token = '', ...others] = totals.keys()
    const text = (raw: bigint) => knownAmount(raw, trust.chain_id, others.length === 0 ? token : '')
    return { sums, refusal: overSpend(parts, spending, totalRaw, text) }
  }
  for (const { owner, token, raw } of needed.values()) {
    const funds = await fundsToSpend(parts, owner, token)
    if (funds !== undefined && raw > funds.spendableRaw)
      return { sums, refusal: insufficient(parts, spending, funds, raw, funds.spendableRaw) }
  }
  return { sums }
}
