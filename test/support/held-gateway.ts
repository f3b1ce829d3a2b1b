import type { BatchWorld } from './batch-world.js'
import { deferred } from './deferred.js'
import { serveHttp } from './http-server.js'

export type CallKind = 'context' | 'submit' | 'status' | 'other'

/**
 * `before`: the call has come and the gateway has not seen it; `after`: it was dealt with and no
 * answer leaves; `answered`: it left.
 */
export interface Hold {
  readonly kind: CallKind
  readonly at: 'before' | 'after' | 'answered'
  readonly nth?: number
  readonly loses?: true
}

export type HeldGateway = Awaited<ReturnType<typeof holdGateway>>

const kindOf = (method: string, path: string): CallKind => {
  if (path.includes('/signing-data')) return 'context'
  if (path.includes('/status')) return 'status'
  return method === 'POST' ? 'submit' : 'other'
}

export async function holdGateway({ front }: BatchWorld, hold: Hold) {
  Object.assign(front.clock, { nowMs: Date.now })
  front.view.nowValue = BigInt(Math.floor(Date.now() / 1000))
  let left = hold.nth ?? 1
  const { promise: reached, resolve: reach } = deferred()
  const served = await serveHttp(async ({ method = 'GET', url: target = '/' }, body, response) => {
    const isOfKind = kindOf(method, target) === hold.kind
    const isHeld = isOfKind && --left === 0
    if (isOfKind && left > 0 && hold.loses === true) return response.destroy()
    if (isHeld && hold.at === 'before') return reach()
    const answer = method === 'POST' ? await front.post(target, body) : await front.get(target)
    const text = await answer.text()
    if (isHeld && hold.at === 'after') return reach()
    return response
      .writeHead(answer.status, Object.fromEntries(answer.headers))
      .end(text, () => isHeld && reach())
  })
  return { ...served, reached }
}
