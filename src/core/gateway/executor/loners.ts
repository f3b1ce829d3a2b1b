/**
 * Who goes by themselves, because a transaction with several proposals reverted on chain (domain
 * §2.2): each of its candidates, and for good the wallets whose own proposal was to blame, since a
 * replay or another authorization of theirs may do it again.
 */
import type { Address } from '../../ports.js'
import type { Candidate } from '../../protocol/candidate.js'

const remembered = 10_000

export interface Loners {
  has(candidate: Candidate): boolean
  /** `toBlame`: its own proposal reverted. */
  note(candidate: Candidate, toBlame: boolean): void
}

/** In memory only: after a restart the price of forgetting is one more reverted transaction. */
export function createLoners(): Loners {
  const candidates = new Set<string>()
  const wallets = new Set<Address>()
  const keep = <T>(set: Set<T>, one: T) => {
    set.add(one)
    const [oldest] = set
    if (set.size > remembered && oldest !== undefined) set.delete(oldest)
  }
  return {
    has: ({ id, proposer }) => candidates.has(id) || wallets.has(proposer),
    note(candidate, toBlame) {
      keep(candidates, candidate.id)
      if (toBlame) keep(wallets, candidate.proposer)
    },
  }
}
