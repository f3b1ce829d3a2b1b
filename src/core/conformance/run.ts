import { UsageError } from '#protocol/errors'
import { zeroAddress } from '#protocol/words'
import { batchRules, batchSubmissionRules, budgetRules } from './batches.js'
import { type Bench, type BenchParts, createBench, type Rule } from './bench.js'
import { candidateRules } from './candidates.js'
import { bodyRules, closingRules, conventionRules } from './conventions.js'
import { eligibilityOf, Fault, type Probe, unreachable } from './probe.js'
import { signingDataRules } from './signing-data.js'

/** Refusals before admissions: they leave the question free. */
export const rules = [
  ...conventionRules,
  ...signingDataRules,
  ...bodyRules,
  ...batchRules,
  ...candidateRules,
  ...batchSubmissionRules,
  ...closingRules,
  ...budgetRules,
]

/** By id, or the section it begins with (`2.7`, `4.2.1`). */
export const rulesNamed = (name: string) =>
  rules.filter(({ id }) => id === name || ['-', '.'].some((end) => id.startsWith(name + end)))

export type CheckResult = Awaited<ReturnType<typeof look>>

const needs = {
  admit: 'it signs and submits: omit --read-only',
  execute: 'its candidate executes on chain: add --allow-execution',
  overrun: 'it exceeds the rate limit: add --overrun-budget',
}

/** `unusable`: why no question is. UnavailableError (75): no gateway; UncertainError (6). */
export async function runRules(
  parts: BenchParts,
  chosen: readonly Rule[],
  onCheck: (check: CheckResult) => void,
) {
  await requireGateway(parts.probe)
  const bench = await createBench(parts)
  const checks: CheckResult[] = []
  for (const rule of chosen) {
    const check = await look(bench, rule)
    checks.push(check)
    onCheck(check)
  }
  const isUnusable = parts.questions.length > 0 && bench.usable.length === 0
  return { checks, unusable: isUnusable ? bench.why : undefined }
}

async function look(bench: Bench, { id, section, says, tier, run }: Rule) {
  /** No fault, but not as our own gateway does it. */
  const notes: string[] = []
  const check = (result: 'pass' | 'fail' | 'skip', detail: string) => {
    return { id, section, result, detail, ...(notes.length > 0 && { notes }) }
  }
  if (tier !== 'read' && !bench.may[tier]) return check('skip', needs[tier])
  try {
    return check('pass', await run({ ...bench, onNote: (text) => notes.push(text) }))
  } catch (error) {
    if (error instanceof Fault) return check('fail', `${error.message}; ${section}: ${says}`)
    if (error instanceof UsageError) return check('skip', error.message)
    throw error
  }
}

/** A proxy's error page says nothing of the gateway (§7 rule 1). */
async function requireGateway({ send }: Probe) {
  try {
    const seen = await send(eligibilityOf(zeroAddress))
    if (seen.json === undefined || [502, 504].includes(seen.status)) seen.unanswered()
  } catch (error) {
    throw error instanceof UsageError ? unreachable(error.message) : error
  }
}

export const unseenRules = [
  '§1: no guarantee of execution in one chain transaction (there is nothing to break)',
  '§2.2: p3 needs support in the settlement contract (it is on chain, not in the pins)',
  '§3 rule 1: validation follows the 202 (a response does not show what came before)',
  '§3 rule 3: after its round a signature is no longer replayed (requires a dispute on chain)',
  '§4.1 rule 1: disabled wallets and admission are 200 with eligible: false (only the operator disables them)',
  '§4.1 rule 1: eligibility reserves no slot (slots are not visible)',
  '§4.1 rule 3: a candidate is accepted durably (requires a crash of the gateway)',
  '§4.2 rule 1: concurrency is bounded (the bound is not visible)',
  '§5: no API key, token or header is needed (no check sends one: all cover it)',
  '§6: no outbound events or webhooks (their absence cannot be observed)',
  '§7: 502, 504: admission may have committed (told by what is in front of the gateway)',
  '§7 rules 1-3: after an uncertain outcome (duties of the caller)',
  '§8 rule 1: defaults can be changed (the checks use the budget of the responses)',
  '§8 rules 2, 3: what each call is charged (requires a rate limit of its own)',
  '§8 rule 6: clients behind one proxy share a budget (requires a second address)',
  '§8 rule 7: size limits but for the signature (the spec gives none)',
].map((line) => {
  const [, section = '', says = '', why = ''] = /^(§[^:]+): (.+) \((.+)\)$/.exec(line) ?? []
  return { section, says, why }
})
