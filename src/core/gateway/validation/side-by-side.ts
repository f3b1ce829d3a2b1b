import { ChainError } from '#ports'

export type SideBySide = ReturnType<typeof sideBySide>

export function sideBySide() {
  const begun: Promise<readonly PromiseSettledResult<unknown>[]>[] = []
  return {
    add(work: Promise<unknown>) {
      begun.push(Promise.allSettled([work]))
    },
    /** When all has ended. Rejects with its first failure, a bug before those of the chain. */
    async ended() {
      const failures = (await Promise.all(begun)).flat().filter((one) => one.status === 'rejected')
      const first = failures.find(({ reason }) => !(reason instanceof ChainError)) ?? failures[0]
      if (first) throw first.reason
    },
  }
}

/** Between two parts others have their turn. Results in any order. */
export async function inParts<T, R>(
  all: readonly T[],
  most: number,
  turn: () => Promise<void>,
  work: (one: T) => Promise<R>,
): Promise<readonly R[]> {
  const begun = sideBySide()
  const results: R[] = []
  for (let at = 0; at < all.length; at += most) {
    if (at > 0) await turn()
    for (const one of all.slice(at, at + most))
      begun.add(work(one).then((result) => void results.push(result)))
  }
  await begun.ended()
  return results
}

/** Each takes a millisecond. */
export const judgedAtOnce = 4
