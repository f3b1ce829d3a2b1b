/** Receipts of a journal, whole: read from the disk for whoever proves one. */
import type { Files, Hash } from '../../ports.js'
import type { KeptReceipt } from '../../protocol/kept-receipt.js'
import { joinPath } from '../../storage/durable.js'
import { onDisk } from './journal.js'
import { readRun } from './runs.js'

/**
 * The receipts of these attempts, by attempt; those without one are left out. Read-only (R24).
 * Rejects with StorageError 74.
 */
export function keptReceipts(
  ports: { readonly files: Files; readonly hash: Hash },
  home: string,
  attempts: readonly string[],
): Promise<ReadonlyMap<string, KeptReceipt>> {
  return onDisk(async () => {
    const found = new Map<string, KeptReceipt>()
    // An attempt is called after the run that wrote it: `<token>.<number>`.
    const runs = new Set(attempts.flatMap((attempt) => /^[0-9a-f]{12}(?=\.)/.exec(attempt) ?? []))
    for (const token of runs)
      for (const { kind, data } of await readRun(ports, joinPath(joinPath(home, 'journal'), token)))
        if (kind === 'attempt.end' && data.receipt && attempts.includes(data.attempt))
          found.set(data.attempt, data.receipt)
    return found
  })
}
