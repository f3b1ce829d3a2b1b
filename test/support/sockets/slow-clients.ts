import { connect, type Socket } from 'node:net'
import { setTimeout as after } from 'node:timers/promises'

interface Kind {
  readonly first: string
  readonly drip?: string
  readonly isDeaf?: true
}

const head = (method: string, path: string, rest = '') =>
  `${method} ${path} HTTP/1.1\r\nHost: a\r\n${rest}`
const whole = (path: string) => `${head('GET', path)}\r\n`

export const slowKinds = {
  'slow headers': { first: head('GET', '/healthz', 'X-Slow: '), drip: 'a' },
  'slow body': {
    first: head(
      'POST',
      '/propose/batch',
      'Content-Type: application/json\r\nContent-Length: 100000\r\n\r\n{',
    ),
    drip: ' ',
  },
  'slow reader': { first: whole('/openapi.json').repeat(30), isDeaf: true },
  'silent from the start': { first: '' },
  'silent after a call': { first: whole('/healthz') },
} as const satisfies Record<string, Kind>
export type SlowKind = keyof typeof slowKinds

const atOnce = 25
const pauseMs = 20

export async function openSlowClients(port: number, counts: Readonly<Record<SlowKind, number>>) {
  const sockets = new Map<Socket, Kind>()
  const lived: Record<SlowKind, number[]> = {
    'slow headers': [],
    'slow body': [],
    'slow reader': [],
    'silent from the start': [],
    'silent after a call': [],
  }
  const returning: SlowKind[] = []
  let most = 0
  let isOn = true
  let closed = false

  const open = (name: SlowKind): void => {
    const kind: Kind = slowKinds[name]
    let startedMs = performance.now()
    const socket = connect({ host: '127.0.0.1', port })
    sockets.set(socket, kind)
    most = Math.max(most, sockets.size)
    socket.on('connect', () => {
      startedMs = performance.now()
      socket.write(kind.first)
    })
    if (kind.isDeaf) socket.pause()
    else socket.resume()
    socket.on('error', () => undefined)
    socket.on('close', () => {
      sockets.delete(socket)
      if (closed) return
      lived[name].push(performance.now() - startedMs)
      if (isOn) returning.push(name)
    })
  }
  const drip = setInterval(() => {
    for (const [socket, { drip: more }] of sockets)
      if (more !== undefined && socket.writable) socket.write(more)
  }, 1_000)

  // Hundreds that come back in one moment overflow the queue of the listening socket, and the
  // kernel then keeps some of them for seconds.
  const back = setInterval(() => {
    for (const name of returning.splice(0, atOnce)) if (isOn) open(name)
  }, pauseMs)
  const all = (Object.keys(counts) as SlowKind[]).flatMap((name) =>
    Array.from({ length: counts[name] }, () => name),
  )
  for (let at = 0; at < all.length; at += atOnce) {
    for (const name of all.slice(at, at + atOnce)) open(name)
    await after(pauseMs)
  }
  return {
    lived,
    get open() {
      return sockets.size
    },
    get most() {
      return most
    },
    letGo() {
      isOn = false
    },
    close() {
      closed = true
      clearInterval(drip)
      clearInterval(back)
      for (const socket of sockets.keys()) socket.destroy()
    },
  }
}
