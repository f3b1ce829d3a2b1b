/** Which candidate a round takes (contract §5, robustness §3). Pure. */
import type { Candidate } from '../../protocol/candidate.js'

/**
 * The validated candidates that are to be selected now. Per round the lowest sequence number, where
 * the round has no selected candidate and no open slot. `busy`: keys of rounds with an open slot
 * (R3: never freed before finality). `replaced`: candidates that have just made room for another
 * one; they come after all others of their round.
 */
export function select(
  active: readonly Candidate[],
  busy: ReadonlySet<string>,
  replaced: ReadonlySet<string> = new Set(),
): readonly Candidate[] {
  const taken = new Set(busy)
  for (const { round, progress } of active)
    if (progress.status === 'selected' || progress.status === 'executed') taken.add(round.key)
  const isLate = ({ id }: Candidate) => Number(replaced.has(id))
  return active
    .filter(({ progress }) => progress.status === 'validated')
    .toSorted((one, other) => isLate(one) - isLate(other) || one.sequence - other.sequence)
    .filter(({ round }) => {
      const isFree = !taken.has(round.key)
      taken.add(round.key)
      return isFree
    })
}
