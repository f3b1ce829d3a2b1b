/** Whose turn it is in a queue that is longer than what one step takes. */
import type { Candidate } from '../../protocol/candidate.js'

export interface Turns {
  /**
   * The next ones, by sequence number, from where the last turn ended, round and round; at most so
   * many. `mark`: what makes another look worth while, a block's hash. `more`: some have not had
   * their turn at this mark. Candidates come in order of sequence numbers.
   */
  next(
    candidates: readonly Candidate[],
    mark: string,
  ): { readonly turn: readonly Candidate[]; readonly more: boolean }
}

/**
 * A round goes up to the highest number there was when it began, so that those who come in the
 * meantime do not keep it from beginning anew. `freshFirst`: so many places of a turn belong to
 * candidates that never had one, as long as there are any.
 */
export function createTurns(most: number, freshFirst = 0): Turns {
  let last = 0
  let end = 0
  let highestFresh = 0
  let marked: string | undefined
  let had = new Set<string>()

  const round = (candidates: readonly Candidate[], places: number): Candidate[] => {
    const turn = candidates
      .filter(({ sequence }) => sequence > last && sequence <= end)
      .slice(0, places)
    if (turn.length < places) {
      end = candidates.at(-1)?.sequence ?? 0
      const taken = new Set(turn)
      turn.push(
        ...candidates.filter((candidate) => !taken.has(candidate)).slice(0, places - turn.length),
      )
    }
    last = turn.at(-1)?.sequence ?? last
    return turn
  }

  return {
    next(candidates, mark) {
      if (marked !== mark) {
        marked = mark
        had = new Set()
      }
      const fresh = candidates
        .filter(({ sequence }) => sequence > highestFresh)
        .slice(0, freshFirst)
      highestFresh = fresh.at(-1)?.sequence ?? highestFresh
      const first = new Set(fresh)
      const rest = candidates.filter((candidate) => !first.has(candidate))
      const turn = [...fresh, ...round(rest, most - fresh.length)]
      for (const { id } of turn) had.add(id)
      return { turn, more: candidates.some(({ id }) => !had.has(id)) }
    },
  }
}
