/**
 * Calls that come as a `Request` and are answered with a `Response`: the gateway without a socket
 * (contract §6).
 */
import {
  type Answered,
  BodyError,
  type BodyLimits,
  type Call,
  type Peer,
} from '../../protocol/call.js'
import { readBytes } from '../../protocol/capped.js'

/** The call that a `Request` is. What `peer` tells of it comes first. */
export function callFrom(request: Request, peer: Peer): Call {
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

async function readBody({ body }: Request, limits: BodyLimits): Promise<Uint8Array> {
  const read = await readBytes(body, limits).catch(() => {
    throw new BodyError('lost')
  })
  if (typeof read === 'string') throw new BodyError(read)
  return read
}
