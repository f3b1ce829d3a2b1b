/** Findings of a batch's rows before they are signed: shown, and where they must be good, held to it. */
import type { Checker } from '../check/checker.js'
import type { Subject } from '../check/findings.js'
import { checkRefusal, type Required } from '../check/require.js'
import type { BatchParts, Planned, PlanOptions } from './plan.js'

export interface RequiredCheck {
  readonly checker: Checker
  readonly required: Required
}

/** A row to be signed, by its place among the plans. */
export interface Judged extends Subject {
  readonly at: number
}

/** The plans with the findings of these rows, for people who only look; or their rejection. */
export async function withFindings(
  { judging }: BatchParts,
  plans: readonly Planned[],
  rows: readonly Judged[],
  { look, signal }: PlanOptions,
): Promise<readonly Planned[]> {
  if (judging === undefined || rows.length === 0) return plans
  const { checker, required } = judging
  const found = await checker.check(rows, signal)
  const byPlace = new Map(rows.map(({ at }, index) => [at, found[index] ?? []]))
  return plans.map((plan, at): Planned => {
    const findings = byPlace.get(at)
    if (findings === undefined) return plan
    const { row, title } = plan
    const told = look === true ? { findings } : {}
    const error = checkRefusal(row.identifier, findings, required)
    return error === undefined
      ? { ...plan, ...told }
      : { kind: 'rejected', row, error, title, ...told }
  })
}
