/** Patience with the chain, measured on the monotonic clock (R13). */
import { ChainError, type Clock } from '../../ports.js'

/**
 * The work's result, or `ChainError` `unavailable` after `limitMs`; the work itself goes on and its
 * result is dropped.
 */
export async function within<T>(clock: Clock, limitMs: number, work: Promise<T>): Promise<T> {
  const timer = new AbortController()
  const late = clock.sleep(limitMs, timer.signal).then(() => {
    throw new ChainError('unavailable', `the chain gave no answer within ${limitMs} ms`)
  })
  try {
    // The race listens to both, so that neither the loser's failure nor the aborted sleep goes
    // unheard.
    return await Promise.race([work, late])
  } finally {
    timer.abort()
  }
}

/**
 * Resolves once `isSo`, looked at now and at each event; `ChainError` `unavailable` after
 * `limitMs`. Leaves no listener behind.
 */
export async function eventually(
  clock: Clock,
  limitMs: number,
  onEvent: (listener: () => void) => () => void,
  isSo: () => boolean,
): Promise<void> {
  if (isSo()) return
  let stop = () => {}
  const reached = new Promise<void>((resolve) => {
    stop = onEvent(() => {
      if (isSo()) resolve()
    })
  })
  await within(clock, limitMs, reached).finally(stop)
}
