/** Commits made on what was read before an await: an operator may have rejected a candidate in the meantime. */
import type { Candidate } from '../../protocol/candidate.js'
import type { Change, Ledger } from '../ledger/ledger.js'

/**
 * Commits changes that rest on these candidates being where they were. False, with nothing written, where one of them has moved on: look
 * again. Throws what `Ledger.commit` throws.
 */
export async function commitOn(ledger: Ledger, basis: readonly Candidate[], changes: readonly Change[]): Promise<boolean> {
  const stands = () => basis.every(({ id, progress }) => ledger.byId(id)?.status === progress.status)
  if (!stands()) return false
  if (changes.length === 0) return true
  try {
    await ledger.commit(changes)
    return true
  } catch (error) {
    // Another commit was in the queue before this one; anything else that the ledger refuses is a bug.
    if (error instanceof RangeError && !stands()) return false
    throw error
  }
}
