/**
 * A proxy on loopback that fails submissions at one place of their exchange (robustness §8, T7);
 * everything else it hands through. It keeps what it was given, so that a test can see which bytes
 * ever left.
 */
import { connect, createServer, type Server, type Socket } from 'node:net'

export type Cut = (text: string) => number

export type ProxyFault =
  | { readonly kind: 'reset' }
  | { readonly kind: 'cut-request'; readonly at: Cut }
  | { readonly kind: 'cut-answer'; readonly at: Cut; readonly reset?: boolean }
  | { readonly kind: 'answer'; readonly text: string; readonly after: boolean }
  | { readonly kind: 'stall'; readonly after: boolean }
  | { readonly kind: 'twice' }
  /** The client is cut off; the gateway gets the request when the next one has been answered. */
  | { readonly kind: 'late' }

export type FaultProxy = Awaited<ReturnType<typeof openFaultProxy>>

const submissionPath = (head: string) =>
  /^POST (\/propose\/batch|\/v1\/proposals\/[^/ ]+) /.exec(head)?.[1]

export async function openFaultProxy(port: number) {
  const sockets = new Set<Socket>()
  const sent: { path: string; body: string }[] = []
  const delayed: string[] = []
  let fault: ProxyFault | undefined
  let times = 0
  let spared = 0

  const keep = (socket: Socket) => {
    sockets.add(socket)
    socket.setEncoding('latin1')
    socket.on('error', () => undefined)
    socket.on('close', () => sockets.delete(socket))
    return socket
  }
  const upstream = (text: string): Socket => {
    const socket = keep(connect({ host: '127.0.0.1', port }))
    socket.write(text, 'latin1')
    return socket
  }
  const exchange = (request: string): Promise<string> =>
    new Promise((resolve, reject) => {
      const socket = upstream(request)
      whole(socket, (answer) => {
        socket.destroy()
        resolve(answer)
      })
      socket.on('close', () => reject(new Error('the gateway cut the connection')))
    })

  async function serve(client: Socket, request: string): Promise<void> {
    const head = request.slice(0, request.indexOf('\r\n\r\n'))
    const path = submissionPath(head)
    const met = path !== undefined && times > 0 && fault?.kind !== 'reset' ? fault : undefined
    if (met !== undefined) times--
    if (path !== undefined)
      sent.push({ path, body: Buffer.from(request.slice(head.length + 4), 'latin1').toString() })
    if (met === undefined) {
      const answer = await exchange(request)
      if (path !== undefined) for (const one of delayed.splice(0)) await exchange(one)
      client.end(answer, 'latin1')
      return
    }
    switch (met.kind) {
      case 'cut-request': {
        const socket = upstream(request.slice(0, met.at(request)))
        await new Promise<void>((resolve) => socket.once('connect', () => socket.end(resolve)))
        client.resetAndDestroy()
        return
      }
      case 'cut-answer': {
        const answer = await exchange(request)
        const part = answer.slice(0, met.at(answer))
        if (met.reset === true) client.write(part, 'latin1', () => client.resetAndDestroy())
        else client.end(part, 'latin1')
        return
      }
      case 'answer':
        if (met.after) await exchange(request)
        client.end(met.text, 'latin1')
        return
      case 'stall':
        if (met.after) await exchange(request)
        return
      case 'twice': {
        const answers = await Promise.all([exchange(request), exchange(request)])
        client.end(answers[0], 'latin1')
        return
      }
      case 'late':
        delayed.push(request)
        client.resetAndDestroy()
    }
  }

  const server: Server = createServer((client) => {
    keep(client)
    if (fault?.kind === 'reset' && times > 0 && spared++ > 0) {
      times--
      client.resetAndDestroy()
      return
    }
    whole(client, (request) => {
      serve(client, request).catch(() => client.destroy())
    })
  })
  const listen = (at: number) =>
    new Promise<void>((resolve) => server.listen(at, '127.0.0.1', resolve))
  const shut = () => {
    for (const socket of sockets) socket.destroy()
    return new Promise<void>((resolve) => server.close(() => resolve()))
  }
  await listen(0)
  const address = server.address()
  if (address === null || typeof address === 'string') throw new Error('no port')
  return {
    url: `http://127.0.0.1:${address.port}`,
    sent,
    fail(next: ProxyFault, count: number = Number.POSITIVE_INFINITY) {
      ;[fault, times, spared] = [next, count, 0]
    },
    clear() {
      ;[fault, times] = [undefined, 0]
    },
    down: shut,
    up: () => listen(address.port),
    close: shut,
  }
}

function whole(socket: Socket, take: (message: string) => void): void {
  let text = ''
  socket.on('data', (chunk: string) => {
    text += chunk
    const end = text.indexOf('\r\n\r\n')
    const length = Number(/content-length: (\d+)/i.exec(text)?.[1] ?? 0)
    if (end < 0 || text.length < end + 4 + length) return
    const message = text
    text = ''
    take(message)
  })
}
