import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import type { BatchWorld } from './batch-world.js'

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
  let reach = () => {}
  const reached = new Promise<void>((resolve) => {
    reach = resolve
  })
  async function serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { method = 'GET', url: target = '/' } = request
    const chunks: Buffer[] = []
    for await (const chunk of request) chunks.push(chunk as Buffer)
    const isOfKind = kindOf(method, target) === hold.kind
    const isHeld = isOfKind && --left === 0
    if (isOfKind && left > 0 && hold.loses === true) return void response.destroy()
    if (isHeld && hold.at === 'before') return reach()
    const body = Buffer.concat(chunks).toString()
    const answer = method === 'POST' ? await front.post(target, body) : await front.get(target)
    const text = await answer.text()
    if (isHeld && hold.at === 'after') return reach()
    response
      .writeHead(answer.status, Object.fromEntries(answer.headers))
      .end(text, () => isHeld && reach())
  }
  const server = createServer(
    (request, response) =>
      void serve(request, response).catch((error: Error) => response.destroy(error)),
  )
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    reached,
    async close() {
      server.closeAllConnections()
      await new Promise((resolve) => server.close(resolve))
    },
  }
}
