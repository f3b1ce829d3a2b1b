/**
 * The places that connections have, and what comes when all are taken (robustness §5, R17). A
 * connection without a place is answered 503 and closed, so many a second, so that whoever comes
 * again at once costs no more than that. An address that holds few is given a place of one that
 * holds many.
 */
import type { Server } from 'node:http'
import type { Socket } from 'node:net'
import { performance } from 'node:perf_hooks'

/** Connections that wait for their 503, or for a place that is theirs. More are cut. */
export const mostWithoutPlace = 3_072
/** At about 100 µs each, a twentieth of a core. */
const refusalsPerRound = 5
const roundMs = 10
/** So many at once where none came before. */
const mostSaved = 100
/** A caller that has said nothing is answered after this; he may be waiting for us. */
const silentMs = 2_000
/** Newcomers that wait for another's place, and for how long. */
const mostHopeful = 64
const hopefulMs = 1_000
/** A connection without a call for so long may be closed for another address. */
const idleMs = 1_000

export interface PlaceOptions {
  /** Connections that are served at once. */
  readonly places: number
  /** Those of one address; more of them are refused although places are free. */
  readonly perAddress: number
  /** What counts as one address: IPv6 by its /64, which is what one subscriber has. */
  readonly addressKey: (address: string) => string
  /** Answers a connection and closes it. What it sends is read and thrown away. */
  readonly refuse: (socket: Socket) => void
}

export interface Places {
  /** A connection has a call that waits for its answer, or no longer. */
  working(socket: object, isWorking: boolean): void
  /** Whether a connection keeps its place after the answer that is being sent. */
  mayStay(socket: object): boolean
  /** Refuses all that have none, at once. */
  close(): void
}

interface Placed {
  readonly socket: Socket
  /** All of its address. */
  readonly own: Set<Socket>
  /** Since when it has no call; `undefined` while it has one. */
  idleSinceMs: number | undefined
}

/** Takes the connections of a server that does not listen yet. */
export function keepPlaces(
  server: Server,
  { places, perAddress, addressKey, refuse }: PlaceOptions,
): Places {
  const listeners = server.listeners('connection')
  server.removeAllListeners('connection')
  server.maxConnections = places + mostWithoutPlace
  /** By address; the connection that has been idle for longest stands first. */
  const held = new Map<string, Set<Socket>>()
  const placed = new Map<object, Placed>()
  const hopeful = new Map<Socket, { readonly address: string; readonly timer: NodeJS.Timeout }>()
  const leaving = new Set<object>()
  const refusals = createTurnstile(refuse)

  const largest = () => {
    let most: [address: string, sockets: Set<Socket>] = ['', new Set()]
    for (const one of held) if (one[1].size > most[1].size) most = one
    return most
  }

  function place(socket: Socket, address: string): void {
    const own = held.get(address) ?? new Set()
    held.set(address, own.add(socket))
    placed.set(socket, { socket, own, idleSinceMs: performance.now() })
    socket.once('close', () => {
      own.delete(socket)
      if (own.size === 0 && held.get(address) === own) held.delete(address)
      placed.delete(socket)
      leaving.delete(socket)
      const [next] = hopeful
      if (!next) return
      giveUp(next[0])
      if (!next[0].destroyed) place(next[0], next[1].address)
    })
    for (const serve of listeners) serve.call(server, socket)
  }
  function giveUp(socket: Socket): void {
    clearTimeout(hopeful.get(socket)?.timer)
    hopeful.delete(socket)
  }
  /** Lets a newcomer wait for the place of an address that holds more than twice as many. */
  function mayHope(socket: Socket, address: string): boolean {
    const [, most] = largest()
    let own = (held.get(address)?.size ?? 0) + 1
    for (const other of hopeful.values()) if (other.address === address) own += 1
    if (hopeful.size >= mostHopeful || most.size <= 2 * own) return false
    const lost = () => giveUp(socket)
    socket.once('close', lost).on('error', () => undefined)
    const timer = setTimeout(() => {
      lost()
      refusals.add(socket)
    }, hopefulMs)
    hopeful.set(socket, { address, timer })
    for (const one of most) {
      const since = placed.get(one)?.idleSinceMs
      if (since !== undefined && performance.now() - since > idleMs && !leaving.has(one)) {
        leaving.add(one)
        one.destroy()
        break
      }
    }
    return true
  }

  server.on('connection', (socket: Socket) => {
    const address = addressKey(socket.remoteAddress ?? '')
    const isOver = (held.get(address)?.size ?? 0) >= perAddress
    if (!isOver && placed.size < places) place(socket, address)
    else if (isOver || !mayHope(socket, address)) refusals.add(socket)
  })
  return {
    working(socket, isWorking) {
      const one = placed.get(socket)
      if (!one) return
      one.idleSinceMs = isWorking ? undefined : performance.now()
      if (isWorking) return
      one.own.delete(one.socket)
      one.own.add(one.socket)
    },
    mayStay(socket) {
      if (hopeful.size <= leaving.size || placed.get(socket)?.own !== largest()[1]) return true
      leaving.add(socket)
      return false
    },
    close() {
      for (const socket of [...hopeful.keys()]) {
        giveUp(socket)
        refuse(socket)
      }
      refusals.close()
    },
  }
}

/** Refuses connections one after the other, so many a second. */
function createTurnstile(refuse: (socket: Socket) => void) {
  const waiting = new Set<Socket>()
  /** Those whose caller has said something yet, or has been silent for long. */
  const ready = new Set<Socket>()
  let saved = mostSaved
  let timer: NodeJS.Timeout | undefined

  function round(): void {
    saved = Math.min(mostSaved, saved + refusalsPerRound)
    letThrough()
    if (saved === mostSaved && waiting.size === 0) {
      clearInterval(timer)
      timer = undefined
    }
  }
  function letThrough(): void {
    for (const socket of ready) {
      if (saved === 0) return
      saved -= 1
      drop(socket)
      refuse(socket)
    }
  }
  function drop(socket: Socket): void {
    waiting.delete(socket)
    ready.delete(socket)
  }
  return {
    add(socket: Socket) {
      if (socket.destroyed) return
      waiting.add(socket)
      timer ??= setInterval(round, roundMs).unref()
      const begin = () => {
        clearTimeout(silent)
        if (!waiting.has(socket)) return
        ready.add(socket)
        letThrough()
      }
      const silent = setTimeout(begin, silentMs)
      // A call that is large is read away, so that no reset overtakes the answer.
      socket.on('error', () => undefined).on('data', begin)
      socket.on('end', begin).once('close', () => {
        clearTimeout(silent)
        drop(socket)
      })
    },
    close() {
      clearInterval(timer)
      for (const socket of waiting) {
        drop(socket)
        refuse(socket)
      }
    },
  }
}
