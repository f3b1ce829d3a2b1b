/** Connections that stay open for many calls, and raw bytes on connections of their own. */
import { connect, type Socket } from 'node:net'
import type { SeenAnswer } from './answers.js'
import type { FuzzedCall } from './calls.js'

export function wireBytes({ method, target, headers, body }: FuzzedCall): Uint8Array<ArrayBuffer> {
  const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`)
  const length = body === undefined ? '' : `Content-Length: ${body.length}\r\n`
  const head = Buffer.from(
    `${method} ${target} HTTP/1.1\r\nHost: gateway.test\r\n${lines.join('')}${length}\r\n`,
    'latin1',
  )
  return Uint8Array.from(Buffer.concat([head, body ?? new Uint8Array(0)]))
}

interface Parsed {
  readonly answer: SeenAnswer
  readonly bytes: number
  readonly closes: boolean
}

function parseAnswer(text: string, method: string): Parsed | undefined {
  const interim = /^HTTP\/1\.1 100 [^\r]*\r\n\r\n/.exec(text)?.[0] ?? ''
  const final = text.slice(interim.length)
  const headEnd = final.indexOf('\r\n\r\n')
  if (headEnd < 0) return undefined
  const [statusLine = '', ...lines] = final.slice(0, headEnd).split('\r\n')
  const headers = new Headers()
  for (const line of lines)
    headers.append(line.slice(0, line.indexOf(':')), line.slice(line.indexOf(':') + 1).trim())
  const length = method === 'HEAD' ? 0 : Number(headers.get('content-length') ?? 0)
  const end = headEnd + 4 + length
  if (final.length < end) return undefined
  const body = Buffer.from(final.slice(headEnd + 4, end), 'latin1').toString('utf8')
  const status = Number(statusLine.split(' ')[1])
  return {
    answer: { status, headers, text: body },
    bytes: interim.length + end,
    closes: headers.get('connection') === 'close',
  }
}

export function openKeptAlive(port: number) {
  let socket: Socket | undefined
  let connections = 0
  return {
    get connections() {
      return connections
    },
    async send(bytes: Uint8Array, method: string) {
      if (socket === undefined || socket.destroyed) {
        socket = connect({ host: '127.0.0.1', port })
        connections += 1
      }
      const { answer, closes } = await exchange(socket, bytes, method)
      if (closes) {
        socket.destroy()
        socket = undefined
      }
      return answer
    },
    close: () => socket?.destroy(),
  }
}

export async function sendRaw(port: number, bytes: Uint8Array): Promise<SeenAnswer | undefined> {
  const socket = connect({ host: '127.0.0.1', port })
  try {
    return (await exchange(socket, bytes, 'GET', true)).answer
  } finally {
    socket.destroy()
  }
}

function exchange(
  socket: Socket,
  bytes: Uint8Array,
  method: string,
  isLast = false,
): Promise<{ readonly answer: SeenAnswer | undefined; readonly closes: boolean }> {
  return new Promise((resolve) => {
    let text = ''
    const done = (answer: SeenAnswer | undefined, closes: boolean) => {
      socket.off('data', onData).off('close', onClose)
      resolve({ answer, closes })
    }
    const onData = (part: Buffer) => {
      text += part.toString('latin1')
      const found = parseAnswer(text, method)
      if (found) done(found.answer, found.closes || isLast)
    }
    const onClose = () => done(undefined, true)
    socket.on('data', onData).on('close', onClose)
    if (socket.listenerCount('error') === 0) socket.on('error', () => undefined)
    if (isLast) socket.end(bytes)
    else socket.write(bytes)
  })
}
