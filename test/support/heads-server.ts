/** A node that speaks JSON-RPC by WebSocket on loopback and announces blocks, or whatever it is told. */
import { createHash } from 'node:crypto'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import type { Duplex } from 'node:stream'

interface Asked {
  readonly id: number
  readonly method: string
}

export interface HeadsServerOptions {
  readonly chainId: number
  /** What becomes of a call; by default chain and subscription are given. */
  readonly answer?: (call: Asked) => unknown
}

export interface HeadsServer {
  readonly url: string
  /** What was asked, and by which path and credentials, in order. */
  readonly asked: readonly string[]
  readonly opened: readonly { readonly path: string; readonly authorization: string | undefined }[]
  readonly open: () => number
  /** Resolves when so many subscriptions have been taken since the start. */
  subscribed(count: number): Promise<void>
  /** A text to all who are connected. */
  say(text: string): void
  announce(number: bigint): void
  /** Ends all connections without a word. */
  cut(): void
  close(): Promise<void>
}

/** The GUID of RFC 6455. */
const magic = '258EAFA5-E914-47DA-95CA-C5AB0DC85B11'

function textFrame(text: string): Buffer {
  const payload = Buffer.from(text)
  const head = Buffer.alloc(10)
  head[0] = 0x81
  if (payload.length < 126) {
    head[1] = payload.length
    return Buffer.concat([head.subarray(0, 2), payload])
  }
  head[1] = 127
  head.writeBigUInt64BE(BigInt(payload.length), 2)
  return Buffer.concat([head, payload])
}

/** The texts of whole masked frames below 126 bytes, and what is left of the bytes. */
function textsIn(bytes: Buffer): { readonly texts: readonly string[]; readonly rest: Buffer } {
  const texts: string[] = []
  let rest = bytes
  for (;;) {
    const length = (rest[1] ?? 0) & 0x7f
    if (rest.length < 6 + length) return { texts, rest }
    const mask = rest.subarray(2, 6)
    const payload = rest.subarray(6, 6 + length).map((byte, at) => byte ^ (mask[at % 4] ?? 0))
    if (rest[0] === 0x81) texts.push(payload.toString())
    rest = rest.subarray(6 + length)
  }
}

export async function startHeadsServer(options: HeadsServerOptions): Promise<HeadsServer> {
  const usual = ({ method }: Asked): unknown =>
    method === 'eth_chainId' ? `0x${options.chainId.toString(16)}` : '0xf00d'
  const sockets = new Set<Duplex>()
  const asked: string[] = []
  const opened: { path: string; authorization: string | undefined }[] = []
  const waiting = new Set<() => void>()
  const say = (text: string) => {
    for (const socket of sockets) socket.write(textFrame(text))
  }
  const server = createServer((_, response) => void response.writeHead(404).end())
  server.on('upgrade', (request, socket) => {
    opened.push({ path: request.url ?? '', authorization: request.headers.authorization })
    sockets.add(socket)
    socket
      .on('end', () => socket.end())
      .on('error', () => socket.destroy())
      .on('close', () => sockets.delete(socket))
    const key = `${request.headers['sec-websocket-key']}${magic}`
    socket.write(
      `HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: Upgrade\r\nsec-websocket-accept: ${createHash('sha1').update(key).digest('base64')}\r\n\r\n`,
    )
    let held = Buffer.alloc(0)
    socket.on('data', (chunk: Buffer) => {
      const { texts, rest } = textsIn(Buffer.concat([held, chunk]))
      held = Buffer.from(rest)
      for (const text of texts) {
        const call: Asked = JSON.parse(text)
        const result = (options.answer ?? usual)(call)
        socket.write(textFrame(JSON.stringify({ jsonrpc: '2.0', id: call.id, result })))
        asked.push(call.method)
      }
      for (const wake of waiting) wake()
    })
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const { port } = server.address() as AddressInfo
  return {
    url: `ws://127.0.0.1:${port}`,
    asked,
    opened,
    open: () => sockets.size,
    async subscribed(count) {
      while (asked.filter((method) => method === 'eth_subscribe').length < count)
        await new Promise<void>((resolve) => waiting.add(resolve))
    },
    say,
    announce: (number) =>
      say(
        JSON.stringify({
          jsonrpc: '2.0',
          method: 'eth_subscription',
          params: { subscription: '0xf00d', result: { number: `0x${number.toString(16)}` } },
        }),
      ),
    cut() {
      for (const socket of sockets) socket.destroy()
    },
    async close() {
      for (const socket of sockets) socket.destroy()
      await new Promise((resolve) => server.close(resolve))
    },
  }
}
