/**
 * A proxy on loopback between clients and a PostgreSQL server. It hands everything through, message
 * by message, until a test asks for a fault: a connection cut at one message, an answer lost or
 * held back, a network that swallows everything.
 */
import { once } from 'node:events'
import { type AddressInfo, connect, createServer, type Socket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { createReader, type Message, type Place } from './wire.js'

export interface Fault {
  readonly met: Promise<Message>
  readonly isMet: boolean
}

export type PostgresProxy = Awaited<ReturnType<typeof openPostgresProxy>>

interface Rule {
  readonly place: Place
  readonly act: 'cut' | 'reset' | 'drop' | 'hold' | 'delay'
  readonly wait: () => Promise<unknown>
  readonly meet: (message: Message) => void
}

export async function openPostgresProxy(target: string) {
  let { hostname, port: targetPort } = new URL(target)
  const rules = new Set<Rule>()
  const releases = new Set<() => void>()
  const sockets = new Set<Socket>()
  const network = createGate()
  let connections = 0

  const keep = (socket: Socket) => {
    sockets.add(socket)
    socket.setNoDelay(true)
    socket.on('error', () => undefined)
    socket.on('close', () => sockets.delete(socket))
    return socket
  }
  const server = createServer((client) => {
    keep(client)
    const reader = createReader(++connections)
    void network.opened().then(() => {
      const upstream = keep(connect({ host: hostname, port: Number(targetPort) }))
      void pump('client', client, upstream, reader)
      void pump('server', upstream, client, reader)
    })
  })

  async function pump(
    from: 'client' | 'server',
    source: Socket,
    sink: Socket,
    reader: ReturnType<typeof createReader>,
  ): Promise<void> {
    let droppedUntil: string | undefined
    const write = async (parts: Buffer[]) => {
      await network.opened()
      const bytes = Buffer.concat(parts.splice(0))
      if (bytes.length > 0 && !sink.destroyed)
        await new Promise<void>((resolve) => sink.write(bytes, () => resolve()))
    }
    try {
      for await (const chunk of source) {
        const passing: Buffer[] = []
        for (const message of reader.read(from, chunk)) {
          const rule = [...rules].find(({ place }) => place(message))
          if (rule !== undefined) {
            await write(passing)
            rule.meet(message)
            await rule.wait()
            if (rule.act === 'cut' || rule.act === 'reset') {
              cut(from === 'server' ? sink : source, from === 'server' ? source : sink, rule.act)
              return
            }
            if (rule.act === 'drop') droppedUntil = from === 'server' ? 'Z' : 'QS'
          }
          if (droppedUntil === undefined) passing.push(message.bytes)
          else if (droppedUntil.includes(message.type)) droppedUntil = undefined
        }
        await write(passing)
      }
    } catch {}
    await network.opened()
    sink.end()
  }

  function cut(client: Socket, upstream: Socket, how: 'cut' | 'reset'): void {
    upstream.destroy()
    if (how === 'reset') client.resetAndDestroy()
    else client.end(() => client.destroy())
  }

  function arm(act: Rule['act'], place: Place, wait: Rule['wait'] = async () => undefined): Fault {
    let isMet = false
    const met = new Promise<Message>((resolve) => {
      const rule: Rule = {
        place,
        act,
        wait,
        meet(message) {
          rules.delete(rule)
          isMet = true
          resolve(message)
        },
      }
      rules.add(rule)
    })
    return {
      met,
      get isMet() {
        return isMet
      },
    }
  }

  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  const url = new URL(target)
  url.hostname = '127.0.0.1'
  url.port = String(port)

  const clear = () => {
    rules.clear()
    for (const release of releases) release()
  }
  const cutAll = () => {
    for (const socket of sockets) socket.destroy()
  }
  return {
    port,
    url: url.href,
    get connections() {
      return connections
    },
    cut: (place: Place, how?: 'reset') => arm(how ?? 'cut', place),
    drop: (place: Place) => arm('drop', place),
    hold(place: Place) {
      const gate = createGate()
      gate.close()
      releases.add(gate.open)
      const fault = arm('hold', place, gate.opened)
      return {
        met: fault.met,
        get isMet() {
          return fault.isMet
        },
        release() {
          releases.delete(gate.open)
          gate.open()
        },
      }
    },
    delay(place: Place, ms: number) {
      rules.add({ place, act: 'delay', wait: () => sleep(ms), meet: () => undefined })
    },
    blackHole: network.close,
    heal: network.open,
    cutAll,
    retarget(next: string) {
      ;({ hostname, port: targetPort } = new URL(next))
    },
    clear,
    async close() {
      clear()
      cutAll()
      network.open()
      await new Promise((resolve) => server.close(resolve))
    },
  }
}

function createGate(): { open(): void; close(): void; opened(): Promise<void> } {
  let waiting: Promise<void> | undefined
  let letThrough: (() => void) | undefined
  return {
    open() {
      letThrough?.()
      waiting = undefined
    },
    close() {
      waiting ??= new Promise((resolve) => {
        letThrough = resolve
      })
    },
    async opened() {
      while (waiting !== undefined) await waiting
    },
  }
}
