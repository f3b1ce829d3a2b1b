/** An input before anything of it is signed; its sums are views of the plans (contract §6, §9). */
import { inGroups } from '#protocol/capped'
import { RejectedError, UsageError } from '#protocol/errors'
import { once } from '#protocol/once'
import type { Address } from '#protocol/schema'
import { limits } from '#protocol/words'
import { type BatchRow, needsLook } from '../input/input.js'
import { type BatchSource, type InputFaults, newFaults } from '../input/rows.js'
import { nowOf } from '../trust/context.js'
import { requireImplementations } from '../trust/trust.js'
import { addTotal, newSpending, type SpendingLimits } from './limits.js'
import {
  orRejected,
  type Planned,
  type PlanOptions,
  type ProposeParts,
  planRows,
  type ToSign,
} from './plan.js'
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

/**
 * The rows that only their question can tell to be right; all where a limit or a wallet bounds
 * their sum. Where some are wrong, also what would reject others, as far as contexts cost nothing
 * or one call.
 */
export async function lookAt(
  parts: ProposeParts,
  rows: readonly BatchRow[],
  source: Pick<BatchSource, 'name'>,
  { limits: spending, all = false, faults = newFaults(source), ...options }: Looking,
) {
  const { chain, contextsAreFree } = parts
  const isWhole =
    all || (!spending.fit && (spending.maxSpendRaw !== undefined || chain !== undefined))
  const intents = rows.filter(({ kind }) => kind === 'intent').length
  const planned = new Map<BatchRow, Planned>()
  const amounts = new Map<Planned, bigint>()
  const now = once(() => nowOf(parts))
  const planning = { ...options, look: true, rounds: new Map() }
  const look = async (isWanted: (row: BatchRow) => boolean) => {
    const wanted = rows.filter((row) => isWanted(row) && !planned.has(row) && !faults.isAt(row))
    for (const some of inGroups(wanted, limits.batchItems))
      for (const plan of await planRows(parts, some, planning)) {
        planned.set(plan.row, plan)
        const judged = await orRejected(plan.row, async () => {
          if (plan.kind === 'sign')
            amounts.set(plan, checkTerms(plan.intent, plan.context, await now()).amountRaw)
          return plan
        })
        const error = judged.kind === 'rejected' ? judged.error : undefined
        if (error instanceof UsageError || error instanceof RejectedError)
          faults.add(error, plan.row, refusing.has(error.code))
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
  if (!isWhole) return { plans: [], sums: undefined, refusal: undefined }
  const plans = rows.flatMap((row) => planned.get(row) ?? [])
  return { plans, ...(await sumsOf(parts, plans, amounts, spending)) }
}

/** With `fit` a row counts only where it fits; what cannot be signed is told when its turn comes. */
async function sumsOf(
  parts: ProposeParts,
  plans: readonly Planned[],
  amounts: ReadonlyMap<Planned, bigint>,
  spendingLimits: SpendingLimits,
) {
  const { chain, trust } = parts
  const { fit } = spendingLimits
  const spending = newSpending(parts, spendingLimits)
  const refusalOf = (...some: Parameters<typeof spending.take>) =>
    spending.take(...some).then(
      () => undefined,
      (error: unknown) => {
        if (error instanceof UsageError) return error
        throw error
      },
    )
  const totals = new Map<Address, bigint>()
  const findings = { ok: 0, warn: 0, unknown: 0 }
  const signing: ToSign[] = []
  for (const plan of plans) {
    if (plan.kind !== 'sign') continue
    for (const { result } of plan.findings ?? []) findings[result]++
    const amountRaw = amounts.get(plan)
    if (amountRaw === undefined || (fit && (await refusalOf(plan, amountRaw)))) continue
    addTotal(totals, plan.context.bond.token, amountRaw)
    signing.push(plan)
  }
  const sums = { rows: signing.length, totals, findings: parts.judging && findings }
  const [first] = signing
  if (first !== undefined && chain !== undefined) await requireImplementations(chain, trust)
  if (first === undefined || fit) return { sums, refusal: undefined }
  // One wallet signs all rows of an input.
  const { proposer } = first.intent
  for (const [token, raw] of totals) {
    const refusal = await refusalOf({ intent: { proposer }, context: { bond: { token } } }, raw)
    if (refusal !== undefined) return { sums, refusal }
  }
  return { sums, refusal: undefined }
}
