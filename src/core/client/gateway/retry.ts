/** How long to wait before the same bytes are sent again (robustness §6). */
import type { Clock, Random } from '../../ports.js'
import { maxRetryAfterMs } from './answer.js'

const firstMs = 1_000
const longestMs = 30_000
const maxTries = 8
const maxReplayMs = 300_000

/** Full jitter over 1, 2, 4 … 30 s; `tries` counts from 1. Milliseconds. */
export function backoffMs(random: Random, tries: number): number {
  const capMs = Math.min(longestMs, firstMs * 2 ** (tries - 1))
  const [high = 0, low = 0] = random.bytes(2)
  return Math.round((capMs * (high * 256 + low)) / 65_535)
}

/** Asked through a function, because the answer changes across an await. */
export const isAborted = (signal: AbortSignal | undefined): boolean => signal?.aborted === true

/**
 * How long to wait before each next try of one call, in milliseconds: what the gateway reported,
 * and full jitter on top. `undefined` after 8 tries, after `limitMs` (default: 5 minutes), or where
 * the gateway reported more than two minutes.
 */
export function newPatience(
  ports: { readonly clock: Pick<Clock, 'monotonicMs'>; readonly random: Random },
  limitMs = maxReplayMs,
): (retryAfterMs: number | undefined) => number | undefined {
  const endMs = ports.clock.monotonicMs() + limitMs
  let tries = 0
  return (retryAfterMs = 0) => {
    tries++
    const waitMs = retryAfterMs + backoffMs(ports.random, tries)
    const late = ports.clock.monotonicMs() + waitMs >= endMs
    return tries >= maxTries || retryAfterMs > maxRetryAfterMs || late ? undefined : waitMs
  }
}

/** The caller's signal and the time given, in one; `clear` ends the timer. */
export function timeLimit(
  { ports }: { readonly ports: { readonly clock: Pick<Clock, 'sleep'> } },
  {
    timeoutMs,
    signal,
  }: { readonly timeoutMs?: number | undefined; signal?: AbortSignal | undefined },
): { readonly signal: AbortSignal; clear(): void } {
  const over = new AbortController()
  const done = new AbortController()
  if (timeoutMs !== undefined) {
    ports.clock.sleep(timeoutMs, done.signal).then(
      () => over.abort(new DOMException('the time limit was reached', 'TimeoutError')),
      () => undefined, // cleared: the call ended in time
    )
  }
  return {
    signal: signal === undefined ? over.signal : AbortSignal.any([signal, over.signal]),
    clear: () => done.abort(),
  }
}
