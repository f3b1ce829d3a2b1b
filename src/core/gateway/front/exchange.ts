/** One call on its way through the gateway. */
import { BodyError, type BodyLimits, joined, type Peer, type RequestRecord } from '../../protocol/call.js'
import type { WireCode } from '../../protocol/errors.js'
import type { Charge } from './budget.js'

/** The mutable notes of one call. */
export interface Exchange {
  readonly peer: Peer
  readonly requestId: string
  readonly client: string
  readonly method: string
  readonly target: string
  route: string
  items: number
  charge: Charge | undefined
  code: WireCode | undefined
  bug: RequestRecord['bug']
  reservedBytes: number
}

/** Notes a bug. The message stays out: it may quote what was sent (R5). */
export function noteBug(exchange: Pick<Exchange, 'bug'>, error: unknown): void {
  if (!(error instanceof Error)) {
    exchange.bug = { name: typeof error, frames: [] }
    return
  }
  const frames = (error.stack ?? '').split('\n').map((line) => line.trim())
  exchange.bug = { name: error.name, frames: frames.filter((line) => line.startsWith('at ')).slice(0, 6) }
}

/** The target as it was sent, compared raw: nothing is decoded (§1, exact paths). */
export function targetOf(request: Request, peer: Peer): string {
  if (peer.target !== undefined) return peer.target
  const start = request.url.indexOf('/', request.url.indexOf('://') + 3)
  return start < 0 ? '/' : request.url.slice(start)
}

/** No percent sign, no query, no empty or dot segment, at most 512 bytes: anything else is no path of ours (robustness §4). */
export function isPlainPath(target: string): boolean {
  return target.length <= 512 && /^(\/(?!\.{1,2}(\/|$))[A-Za-z0-9._~-]+)+$/.test(target)
}

/** Reads the body of a `Request` that carries it itself. Rejects with `BodyError`. */
export async function readRequestBody(request: Request, { limitBytes, reserve }: BodyLimits): Promise<Uint8Array> {
  const parts: Uint8Array[] = []
  let length = 0
  if (request.body) {
    const reader = request.body.getReader()
    for (;;) {
      const { done, value } = await reader.read().catch(() => {
        throw new BodyError('lost')
      })
      if (done) break
      length += value.length
      const fault = length > limitBytes ? 'too_large' : reserve(value.length) ? undefined : 'no_room'
      if (fault) {
        await reader.cancel()
        throw new BodyError(fault)
      }
      parts.push(value)
    }
  }
  return joined(parts, length)
}
