/** Answers in words of a whole input, before anything of it is signed (contract §9). */

import { keyNamed } from '../../protocol/outcome-words.js'
import { limits } from '../../protocol/words.js'
import { newFaults } from '../input/faults.js'
import type { BatchRow } from '../input/input.js'
import { type BatchSource, inputFault } from '../input/rows.js'
import { type BatchParts, type PlanOptions, planRows } from './plan.js'
import { inGroups } from './spending.js'

const codes: ReadonlySet<string> = new Set(['bad_outcome', 'ambiguous_outcome'])

/**
 * Throws UsageError (exit 2) with the line of every row whose answer is a word that means nothing
 * in its question, or two things. Asks for the contexts of rows in words alone; what else is wrong
 * with them is told when their turn comes. UnavailableError where no context could be had.
 */
export async function checkWords(
  parts: BatchParts,
  rows: AsyncIterable<readonly BatchRow[]>,
  source: BatchSource,
  options: Pick<PlanOptions, 'signal' | 'resume'> = {},
): Promise<void> {
  const faults = newFaults(source)
  for await (const some of inGroups(inWords(rows), limits.batchItems))
    for (const plan of await planRows(parts, some, { ...options, look: true })) {
      if (plan.kind !== 'rejected' || !codes.has(plan.error.code)) continue
      const { code, detail, meta } = plan.error
      faults.add(inputFault(source, plan.row, code, detail, meta.hint ?? ''))
    }
  faults.throwAny()
}

async function* inWords(
  rows: AsyncIterable<readonly BatchRow[]>,
): AsyncGenerator<readonly BatchRow[]> {
  for await (const some of rows)
    yield some.filter((row) => row.kind === 'intent' && keyNamed(row.outcome) === undefined)
}
