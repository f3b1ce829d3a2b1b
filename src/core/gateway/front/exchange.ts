/** One call on its way through the gateway. */
import type { Call, RequestRecord } from '../../protocol/call.js'
import type { WireCode } from '../../protocol/codes.js'
import type { Charge } from './budget.js'

/** The mutable notes of one call. */
export interface Exchange {
  readonly call: Call
  readonly requestId: string
  readonly client: string
  route: string
  items: number
  charge: Charge | undefined
  code: WireCode | undefined
  bug: RequestRecord['bug']
  reservedBytes: number
  /** The answer is one that a receipt is given for. */
  isReceipted: boolean
  /** `Content-Digest` of the request, once it was found to be that of its body. */
  requestDigest: string | undefined
  /** Milliseconds that it has waited for its turns so far, from when it could have been read. */
  waitedMs: number
}

/** Notes a bug. The message stays out: it may quote what was sent (R5). */
export function noteBug(exchange: Pick<Exchange, 'bug'>, error: unknown): void {
  if (!(error instanceof Error)) {
    exchange.bug = { name: typeof error, frames: [] }
    return
  }
  const frames = (error.stack ?? '').split('\n').map((line) => line.trim())
  exchange.bug = {
    name: error.name,
    frames: frames.filter((line) => line.startsWith('at ')).slice(0, 6),
  }
}

/**
 * At most 512 bytes of what a URI's path may hold, but no percent sign, and no empty or dot segment
 * (robustness §4). The rest is no path of ours; a malformed identifier in a known path is 400
 * (contract §9).
 */
export function isPlainPath(target: string): boolean {
  return target.length <= 512 && /^(\/(?!\.{1,2}(\/|$))[\w.~!$&'()*+,;=:@-]+)+$/.test(target)
}
