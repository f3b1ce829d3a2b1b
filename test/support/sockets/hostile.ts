import { connect, type Socket } from 'node:net'
import { exchangeRaw } from '../raw-http.js'

const get = (path: string, rest = '') => `GET ${path} HTTP/1.1\r\nHost: a\r\n${rest}`
const post = (path: string, rest = '') =>
  `POST ${path} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n${rest}`

interface Answer {
  readonly status: number
  readonly code: string | undefined
  readonly closed: boolean
}
interface Row {
  readonly name: string
  readonly status: number
  readonly code: string | undefined
}

const batch = (rest: string) => post('/propose/batch', rest)
const chunked = (rest: string) => batch(`Transfer-Encoding: chunked\r\n${rest}`)
const health = (rest: string) => get('/healthz', rest)
const rows = (status: number, code: string, texts: Readonly<Record<string, string>>) =>
  Object.entries(texts).map(([name, text]) => ({
    ...{ name, status, code },
    bytes: Buffer.from(text, 'latin1'),
  }))

export const framingRows = [
  ...rows(400, 'bad_request', {
    'Content-Length and Transfer-Encoding': batch(
      'Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n',
    ),
    'Transfer-Encoding and Content-Length': chunked('Content-Length: 4\r\n\r\n0\r\n\r\n'),
    'two Content-Length': batch('Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}'),
    'a list as Content-Length': batch('Content-Length: 2, 2\r\n\r\n{}'),
    'a negative Content-Length': batch('Content-Length: -1\r\n\r\n'),
    'a hexadecimal Content-Length': batch('Content-Length: 0x2\r\n\r\n{}'),
    'an empty Content-Length': batch('Content-Length: \r\n\r\n{}'),
    'a Content-Length beyond 64 bits': batch(`Content-Length: ${'9'.repeat(30)}\r\n\r\n`),
    'a chunk size that is no number': chunked('\r\n-1\r\n\r\n'),
    'a chunk size beyond 64 bits': chunked(`\r\n${'f'.repeat(17)}\r\n`),
    'a chunk longer than its size': chunked('\r\n1\r\n{}\r\n0\r\n\r\n'),
    'a bare CR after a chunk size': chunked('\r\n2\r{}\r\n0\r\n\r\n'),
    'chunked twice': batch('Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n'),
    'chunked before another coding': batch('Transfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n'),
    'identity as transfer encoding': batch('Transfer-Encoding: identity\r\n\r\n'),
    'a blank before the colon': health('X-A : b\r\n\r\n'),
    'a header without a name': health(': b\r\n\r\n'),
    'a header without a colon': health('X-A\r\n\r\n'),
    'a CR within a header': health('X-A: a\rb\r\n\r\n'),
    'a NUL in a header name': health('X\0A: b\r\n\r\n'),
    'a NUL in the target': 'GET /health\0z HTTP/1.1\r\nHost: a\r\n\r\n',
    'a request line of HTTP/0.9': 'GET /healthz\r\n\r\n',
    'another version': 'GET /healthz HTTP/1.2\r\nHost: a\r\n\r\n',
    'a protocol that is not HTTP': 'SSH-2.0-OpenSSH_9.6\r\n',
    'a method that is none': 'PROPOSE /propose/batch HTTP/1.1\r\nHost: a\r\n\r\n',
    'a target that is no path': 'GET healthz HTTP/1.1\r\nHost: a\r\n\r\n',
    'an upgrade to HTTP/2': health(
      'Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n\r\n',
    ),
  }),
  ...rows(431, 'headers_too_large', {
    '65 headers': health(`${'X-A: b\r\n'.repeat(64)}\r\n`),
    '2,000 headers': health(`${'a: b\r\n'.repeat(2_000)}\r\n`),
    'a target of 20 KiB': get(`/${'a'.repeat(20_000)}`, '\r\n'),
  }),
]

function endlessly(head: string, part: string): (port: number) => Promise<Answer> {
  return (port) =>
    new Promise((resolve) => {
      const socket = connect({ host: '127.0.0.1', port })
      let text = ''
      const more = () => {
        while (socket.writable && text === '' && socket.write(part, 'latin1'));
      }
      socket.on('connect', () => {
        socket.write(head, 'latin1')
        more()
      })
      socket.on('drain', more)
      socket.on('data', (bytes) => {
        text += bytes.toString('latin1')
      })
      socket.on('error', () => undefined)
      socket.on('close', () => {
        const status = /^HTTP\/1\.1 (\d+)/.exec(text)?.[1]
        resolve({
          status: Number(status ?? 0),
          code: /\{"error":\{"code":"(\w+)"/.exec(text)?.[1],
          closed: true,
        })
      })
    })
}

const tooLarge = { status: 413, code: 'payload_too_large' } as const
const chunk = `4000\r\n${' '.repeat(0x4000)}\r\n`

/**
 * What never ends by itself. `mayBeCut`: a body is read on for 4 MiB or two seconds after its
 * refusal, then the connection goes; more than that may be on its way already, and whoever is still
 * writing then sees a reset in place of the answer.
 */
export const endlessAttacks: readonly (Row & {
  readonly mayBeCut?: true
  readonly run: (port: number) => Promise<Answer>
})[] = [
  {
    name: 'chunks without end',
    run: endlessly(post('/propose/batch', 'Transfer-Encoding: chunked\r\n\r\n'), chunk),
    ...tooLarge,
    mayBeCut: true,
  },
  {
    name: 'chunks without end on a small route',
    run: endlessly(post('/v1/proposals/some-slug', 'Transfer-Encoding: chunked\r\n\r\n'), chunk),
    ...tooLarge,
    mayBeCut: true,
  },
  {
    name: 'a Content-Length of a terabyte',
    run: endlessly(
      post('/propose/batch', 'Content-Length: 1000000000000\r\n\r\n'),
      ' '.repeat(0x4000),
    ),
    ...tooLarge,
    mayBeCut: true,
  },
  {
    name: 'a Content-Length of a terabyte and nothing more',
    run: (port) =>
      exchangeRaw(port, post('/propose/batch', 'Content-Length: 1000000000000\r\n\r\n')),
    ...tooLarge,
  },
  {
    name: 'one header without end',
    run: endlessly(get('/healthz', 'X-A: '), 'a'.repeat(0x4000)),
    status: 431,
    code: 'headers_too_large',
  },
  {
    name: 'headers without end',
    run: endlessly(get('/healthz'), 'X-A: b\r\n'.repeat(500)),
    status: 431,
    code: 'headers_too_large',
  },
  {
    name: 'a request line without end',
    run: endlessly('GET /', 'a'.repeat(0x4000)),
    status: 431,
    code: 'headers_too_large',
  },
  {
    name: 'a chunk extension without end',
    run: endlessly(
      post('/propose/batch', 'Transfer-Encoding: chunked\r\n\r\n1;'),
      'a'.repeat(0x4000),
    ),
    status: 400,
    code: 'bad_request',
  },
]

function hangUp(
  bytes: string,
  act: (socket: Socket) => void,
): (port: number) => Promise<number | undefined> {
  return (port) =>
    new Promise((resolve) => {
      const socket = connect({ host: '127.0.0.1', port, allowHalfOpen: true })
      let text = ''
      socket.on('connect', () => socket.write(bytes, () => act(socket)))
      socket.on('data', (part) => {
        text += part.toString('latin1')
      })
      socket.on('end', () => socket.end())
      socket.on('error', () => undefined)
      socket.on('close', () => {
        const status = /^HTTP\/1\.1 (\d+)/.exec(text)?.[1]
        resolve(status === undefined ? undefined : Number(status))
      })
    })
}

const fin = (socket: Socket) => void socket.end()
const rst = (socket: Socket) => void socket.resetAndDestroy()
const halfBody = post('/propose/batch', 'Content-Length: 100\r\n\r\n{')

export const hangUps: readonly {
  readonly name: string
  readonly run: (port: number) => Promise<number | undefined>
  readonly told: number | undefined
}[] = [
  { name: 'FIN after a whole call', run: hangUp(get('/healthz', '\r\n'), fin), told: 200 },
  { name: 'FIN within the request line', run: hangUp('GET /heal', fin), told: 400 },
  { name: 'FIN within the headers', run: hangUp(get('/healthz', 'X-A'), fin), told: 400 },
  { name: 'FIN within the body', run: hangUp(halfBody, fin), told: 400 },
  { name: 'FIN before anything', run: hangUp('', fin), told: undefined },
  { name: 'RST before anything', run: hangUp('', rst), told: undefined },
  { name: 'RST within the headers', run: hangUp(get('/healthz', 'X-A'), rst), told: undefined },
  { name: 'RST within the body', run: hangUp(halfBody, rst), told: undefined },
  {
    name: 'RST within a chunk',
    run: hangUp(post('/propose/batch', 'Transfer-Encoding: chunked\r\n\r\nff\r\n{'), rst),
    told: undefined,
  },
]

export function manyCalls(
  port: number,
  count: number,
): Promise<{ answered: number; closed: boolean }> {
  const ahead = 13
  const call = get('/healthz', '\r\n')
  return new Promise((resolve) => {
    const socket = connect({ host: '127.0.0.1', port })
    let text = ''
    let sent = 0
    let answered = 0
    const more = () => {
      const next = Math.min(ahead, count - sent)
      sent += next
      socket.write(call.repeat(next))
    }
    socket.on('connect', more)
    socket.on('data', (part) => {
      text += part.toString('latin1')
      const whole = text.split('{"status":"ok"}')
      answered += whole.length - 1
      text = whole.at(-1) ?? ''
      if (answered === count) {
        socket.destroy()
        resolve({ answered, closed: false })
      } else if (answered === sent) more()
    })
    socket.on('error', () => undefined)
    socket.on('close', () => resolve({ answered, closed: true }))
  })
}
