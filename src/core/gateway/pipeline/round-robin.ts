/** Whose turn it is in a queue that is longer than what one step takes. */
import type { Candidate } from '../../protocol/candidate.js'

export interface RoundRobin {
  /**
   * The next ones, by sequence number, from where the last turn ended. `mark`: what makes another
   * look worth while, a block's hash. `hasMore`: some have not had their turn at this mark.
   * Candidates come in order of sequence numbers.
   */
  next(
    candidates: readonly Candidate[],
    mark: string,
  ): { readonly turn: readonly Candidate[]; readonly hasMore: boolean }
}

/**
 * Turns of at most `most`. A round goes up to the highest number there was when it began. So those
 * who come in the meantime do not keep it from beginning again. `freshFirst`: so many of a turn are
 * candidates that never had one, as long as there are any.
 */
export function createRoundRobin(most: number, freshFirst = 0): RoundRobin {
  let last = 0
  let end = 0
  let highestFresh = 0
  let marked: string | undefined
  let served = new Set<string>()
  const onward = (candidates: readonly Candidate[], count: number): readonly Candidate[] => {
    const turn = candidates
      .filter(({ sequence }) => sequence > last && sequence <= end)
      .slice(0, count)
    if (turn.length < count) {
      end = candidates.at(-1)?.sequence ?? 0
      const others = candidates.filter((candidate) => !turn.includes(candidate))
      turn.push(...others.slice(0, count - turn.length))
    }
    last = turn.at(-1)?.sequence ?? last
    return turn
  }
  return {
    next(candidates, mark) {
      if (marked !== mark) served = new Set()
      marked = mark
      const fresh = candidates
        .filter(({ sequence }) => sequence > highestFresh)
        .slice(0, freshFirst)
      highestFresh = fresh.at(-1)?.sequence ?? highestFresh
      const rest = candidates.filter((candidate) => !fresh.includes(candidate))
      const turn = [...fresh, ...onward(rest, most - fresh.length)]
      for (const { id } of turn) served.add(id)
      return { turn, hasMore: candidates.some(({ id }) => !served.has(id)) }
    },
  }
}
