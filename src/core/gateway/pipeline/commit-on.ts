/**
 * Commits made on what was read before an await: an operator may have rejected a candidate in the
 * meantime.
 */
import type { Candidate } from '../../protocol/candidate.js'
import type { Change, Ledger } from '../ledger/ledger.js'

/**
 * Commits changes that rest on these candidates being where they were. False, with nothing written,
 * where one of them has moved on: look again. Throws what `Ledger.commit` throws.
 */
export const commitOn = (
  ledger: Ledger,
  basis: readonly Candidate[],
  changes: readonly Change[],
): Promise<boolean> => ledger.commit(changes, basis)
