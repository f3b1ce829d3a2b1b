import { ChainError, type Clock } from '#ports'
import { UnavailableError } from '#protocol/errors'

export async function pause(clock: Clock, ms: number, signal: AbortSignal) {
  try {
    await clock.sleep(ms, signal)
  } catch (error) {
    if (!signal.aborted) throw error
  }
}

/**
 * Or what `late` makes after `limitMs`. Work that takes no signal goes on, and its result is
 * dropped.
 */
export async function within<T>(
  clock: Clock,
  limitMs: number,
  work: (signal: AbortSignal) => Promise<T>,
  late: () => Error = () =>
    new ChainError('unavailable', `the node did not respond within ${limitMs} ms`),
): Promise<T> {
  const over = new AbortController()
  const overdue = clock.sleep(limitMs, over.signal).then(() => {
    throw late()
  })
  try {
    return await Promise.race([work(over.signal), overdue])
  } finally {
    over.abort()
  }
}

/** A chain that gives no answer is a reason to come back later, not a verdict (R16). */
export async function orUnavailable<T>(work: Promise<T>, what: string): Promise<T> {
  try {
    return await work
  } catch (error) {
    if (!(error instanceof ChainError)) throw error
    throw new UnavailableError('state_unavailable', `${what} cannot be read from the chain now`, {
      httpStatus: 503,
      retryAfterMs: 2_000,
      cause: error,
      hint: 'wait, then retry the same request',
    })
  }
}

export function singleFlight<K, T>(
  running: Map<K, Promise<T>>,
  key: K,
  work: () => Promise<T>,
): Promise<T> {
  const known = running.get(key)
  if (known) return known
  const begun = work().finally(() => running.delete(key))
  running.set(key, begun)
  return begun
}
