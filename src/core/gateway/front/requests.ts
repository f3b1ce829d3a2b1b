/**
 * Calls that come as a `Request` and are answered with a `Response`: the gateway without a socket
 * (contract §6).
 */
import {
  type Answered,
  BodyError,
  type BodyLimits,
  type Call,
  joined,
  type Peer,
} from '../../protocol/call.js'

/** The call that a `Request` is. What `peer` tells of it comes first. */
export function callOf(request: Request, peer: Peer): Call {
  const { address, charged, method = request.method, target = targetOf(request) } = peer
  return {
    method,
    target,
    header: (name) => request.headers.get(name) ?? undefined,
    readBody: (limits) => readBody(request, limits),
    ...(address === undefined ? {} : { address }),
    ...(charged === undefined ? {} : { charged }),
  }
}

/** The answer as a `Response`. */
export function responseOf({ status, headers, body }: Answered): Response {
  return new Response(body === '' ? null : body, { status, headers })
}

/** The target as it stands in the URL: nothing is decoded (§1, exact paths). */
function targetOf(request: Request): string {
  const start = request.url.indexOf('/', request.url.indexOf('://') + 3)
  return start < 0 ? '/' : request.url.slice(start)
}

async function readBody(
  request: Request,
  { limitBytes, reserve }: BodyLimits,
): Promise<Uint8Array> {
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
      const fault =
        length > limitBytes ? 'too_large' : reserve(value.length) ? undefined : 'no_room'
      if (fault) {
        await reader.cancel()
        throw new BodyError(fault)
      }
      parts.push(value)
    }
  }
  return joined(parts, length)
}
