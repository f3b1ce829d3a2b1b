/** How long to wait before the same bytes are sent again (robustness §6). */
import type { Random } from '../ports.js'

const firstMs = 1_000
const longestMs = 30_000

/** Full jitter over 1, 2, 4 … 30 s; `tries` counts from 1. Milliseconds. */
export function backoffMs(random: Random, tries: number): number {
  const capMs = Math.min(longestMs, firstMs * 2 ** (tries - 1))
  const [high = 0, low = 0] = random.bytes(2)
  return Math.round((capMs * (high * 256 + low)) / 65_535)
}

/** Asked through a function, because the answer changes across an await. */
export const isAborted = (signal: AbortSignal | undefined): boolean => signal?.aborted === true
