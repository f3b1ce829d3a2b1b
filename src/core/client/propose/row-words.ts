/** What only its question can tell of a row, for a whole input before anything of it is signed. */

import { type ProposerError, RejectedError, UsageError } from '../../protocol/errors.js'
import { limits } from '../../protocol/words.js'
import { isInWords, needsLook } from '../input/check.js'
import { type InputFaults, newFaults } from '../input/faults.js'
import type { BatchRow } from '../input/input.js'
import { type BatchSource, inGroups, inputFault } from '../input/rows.js'
import { chainNow } from '../trust/context.js'
import { type BatchParts, type Planned, type PlanOptions, planRows } from './plan.js'
import { keptContexts } from './spending.js'
import { checkTerms } from './terms.js'

/** What refuses the whole input; anything else rejects its row alone. */
const refusing: ReadonlySet<string> = new Set([
  'bad_outcome',
  'ambiguous_outcome',
  'other_question',
])

export interface Looking extends Pick<PlanOptions, 'signal' | 'resume'> {
  /** What is wrong with the input already. */
  readonly faults?: InputFaults
}

/**
 * Throws UsageError (exit 2) with the line of every row whose answer is a word that means nothing
 * in its question, or two things, or which shows another question than it names (contract §9).
 * Where something refuses the input, what would reject its other rows is told too, as far as their
 * contexts cost nothing or one call. Asks for no other contexts. UnavailableError where none could
 * be had.
 */
export async function checkWords(
  parts: BatchParts,
  rows: readonly BatchRow[],
  source: Pick<BatchSource, 'name'>,
  { faults = newFaults(source), ...options }: Looking,
): Promise<void> {
  const now = newNow(parts)
  const toLook = rows.filter(needsLook).length
  const isCheap =
    parts.contextsAreFree ||
    rows.filter(({ kind }) => kind === 'intent').length <= limits.batchItems
  const look = async (isWanted: (row: BatchRow) => boolean) => {
    const wanted = rows.filter((row) => isWanted(row) && !faults.isAt(row.element ?? row.line))
    for (const some of inGroups(wanted, limits.batchItems))
      for (const plan of await planRows(parts, some, { ...options, look: true })) {
        const error = await errorOf(plan, now)
        if (error === undefined) continue
        const { code, detail, meta } = error
        const fault = inputFault(source, plan.row, code, detail, meta.hint ?? '')
        if (refusing.has(code)) faults.add(fault)
        else faults.addBeside(fault)
      }
  }
  // Of more than are kept, each context would be paid for twice: then each row is held by itself.
  const isLooked = toLook <= keptContexts ? needsLook : isInWords
  try {
    if (!faults.refuses && toLook > 0) await look(isLooked)
    if (faults.refuses && isCheap) await look(() => true)
  } catch (error) {
    // What keeps from looking further is less than what is wrong with the input.
    faults.throwAny()
    throw error
  }
  faults.throwAny()
}

/** What is wrong with a row by itself, whoever has proposed meanwhile, and whether anybody answers. */
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

/** Unix seconds, read once. */
function newNow({ chain, trust, ports }: BatchParts): () => Promise<number> {
  let read: Promise<number> | undefined
  return () => {
    read ??=
      chain === undefined
        ? Promise.resolve(ports.clock.nowMs() / 1_000)
        : chainNow(chain, trust, ports.clock)
    return read
  }
}
