/** Two steps of a batch at once: while the caller is at the later one, the earlier one goes on. */

/** Groups worked at once: while the answer for one is read, that for the next is under way. */
const groupsAtOnce = 2

/**
 * What `work` makes of the groups, in order, two groups at a time. It goes on while the caller is
 * away, up to `most` results and the groups under way. It hands over all it has as soon as the
 * caller is back. How many are taken at once follows from how quick the two are. A failure comes
 * after all that was made before it. Once the caller has left, `left` fires, nothing more is begun,
 * and what was under way has ended.
 */
export async function* workingAhead<Group, Result>(
  groups: AsyncIterable<Group>,
  work: (group: Group, left: AbortSignal) => Promise<readonly Result[]>,
  most: number,
): AsyncGenerator<readonly Result[]> {
  const leaving = new AbortController()
  const source = groups[Symbol.asyncIterator]()
  /** The caller waits for what there is, or has gone. */
  let isAwaited = false
  /** Under way, in order; `undefined`: there was no further group. */
  const begun: Promise<readonly Result[] | undefined>[] = []
  const begin = async () => {
    const { done, value } = await source.next()
    return done === true || leaving.signal.aborted ? undefined : work(value, leaving.signal)
  }
  const gather = async (): Promise<Gathered<Result>> => {
    const results: Result[] = []
    try {
      do {
        while (begun.length < groupsAtOnce) {
          const one = begin()
          // Told when its turn has come.
          one.catch(() => undefined)
          begun.push(one)
        }
        const made = await begun.shift()
        if (made === undefined) return { results, end: 'done' }
        results.push(...made)
      } while (!isAwaited && results.length < most)
      return { results, end: undefined }
    } catch (error) {
      return { results, end: 'failed', error }
    }
  }
  let coming = gather()
  try {
    for (;;) {
      isAwaited = true
      const gathered = await coming
      if (gathered.end === undefined) {
        isAwaited = false
        coming = gather()
      }
      if (gathered.results.length > 0) yield gathered.results
      if (gathered.end === 'failed') throw gathered.error
      if (gathered.end === 'done') return
    }
  } finally {
    isAwaited = true
    leaving.abort()
    await coming
    await Promise.allSettled(begun)
    await source.return?.()
  }
}

type Gathered<Result> =
  | { readonly results: readonly Result[]; readonly end: 'done' | undefined }
  | { readonly results: readonly Result[]; readonly end: 'failed'; readonly error: unknown }
