/** Two steps of a batch at once: while the caller is at the later one, the earlier one goes on. */

/**
 * What `work` makes of the groups, in order. It goes on while the caller is away, up to `most` results, and hands over all it has as soon
 * as the caller is back: how many are taken at once follows from how quick the two are. A failure comes after all that was made before it.
 * Once the caller has left, `left` fires, nothing more is begun, and what was under way has ended.
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
  const gather = async (): Promise<Gathered<Result>> => {
    const results: Result[] = []
    try {
      do {
        const { done, value } = await source.next()
        if (done === true) return { results, end: 'done' }
        results.push(...(await work(value, leaving.signal)))
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
    await source.return?.()
  }
}

type Gathered<Result> =
  | { readonly results: readonly Result[]; readonly end: 'done' | undefined }
  | { readonly results: readonly Result[]; readonly end: 'failed'; readonly error: unknown }
