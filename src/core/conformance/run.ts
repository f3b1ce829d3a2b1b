import { Fault, isUnseen, NotSeen, Seen } from './answer.js'
import { batchRules, batchSubmissionRules } from './batches.js'
import type { Bench, Tier } from './bench.js'
import { bodyRules } from './bodies.js'
import { budgetRules } from './budgets.js'
import {
  executionRules,
  refusalRules,
  statusRules,
  submissionRules,
  unknownCandidateRules,
} from './candidates.js'
import { closingRules, conventionRules, receiptRules } from './conventions.js'
import { routes, unreachable } from './probe.js'
import type { Rule } from './rule.js'
import { contextRules, preparationRules } from './signing-data.js'

/**
 * In the order they are examined. What is refused comes before what is admitted, because a refusal
 * leaves its question free. An execution comes before the other admissions, whose amounts its wallet
 * could not hold beside its own.
 */
export const rules: readonly Rule[] = [
  ...conventionRules,
  ...receiptRules,
  ...preparationRules,
  ...contextRules,
  ...bodyRules,
  ...batchRules,
  ...refusalRules,
  ...executionRules,
  ...submissionRules,
  ...unknownCandidateRules,
  ...statusRules,
  ...batchSubmissionRules,
  ...closingRules,
  ...budgetRules,
]

/** By a rule's id, or by the section that ids begin with (`2.7`, `4.2.1`). */
export const rulesNamed = (name: string): readonly Rule[] =>
  rules.filter(({ id }) => id === name || id.startsWith(`${name}-`) || id.startsWith(`${name}.`))

export interface CheckResult {
  readonly id: string
  readonly section: string
  readonly result: 'pass' | 'fail' | 'skip'
  readonly detail: string
  /** What is no fault, but not as our own gateway does it. */
  readonly notes?: readonly string[]
}

const needs: Readonly<Record<Exclude<Tier, 'read'>, string>> = {
  admit: 'it signs and submits: omit --read-only',
  execute: 'its candidate executes on chain: add --allow-execution',
  overrun: 'it exceeds the rate limit: add --overrun-budget',
}

/**
 * UnavailableError (exit 75) where the gateway gives no application answer, UncertainError (6)
 * where a submission got lost, StorageError 74.
 */
export async function runRules(
  bench: Bench,
  chosen: readonly Rule[],
  onCheck: (check: CheckResult) => void,
): Promise<readonly CheckResult[]> {
  await requireGateway(bench)
  await bench.opened()
  const checks: CheckResult[] = []
  for (const one of chosen) {
    const check = await look(bench, one)
    checks.push(check)
    onCheck(check)
  }
  return checks
}

async function look(bench: Bench, { id, section, says, tier, run }: Rule): Promise<CheckResult> {
  const notes: string[] = []
  const check = (result: CheckResult['result'], detail: string) => {
    return { id, section, result, detail, ...(notes.length > 0 && { notes }) }
  }
  if (tier !== 'read' && !bench.may[tier]) return check('skip', needs[tier])
  try {
    return check('pass', await run({ ...bench, onNote: (text) => notes.push(text) }))
  } catch (error) {
    if (error instanceof Fault) return check('fail', `${error.message}; ${section}: ${says}`)
    if (isUnseen(error)) return check('skip', error.message)
    throw error
  }
}

/** A proxy's error page, or nothing at all, says nothing of the gateway (§7 rule 1). */
async function requireGateway({ send, stranger }: Bench) {
  const seen = await send(routes.eligibility(stranger)).catch((error: unknown) => {
    if (error instanceof NotSeen) return error
    throw error
  })
  const isOwn = seen instanceof Seen && seen.json !== undefined && ![502, 504].includes(seen.status)
  const why = seen instanceof Seen ? `it answered ${seen.came}` : seen.message
  if (!isOwn) throw unreachable(`the gateway gave no application response: ${why}`)
}
