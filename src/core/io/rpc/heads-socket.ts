/**
 * New blocks as nodes tell of them over WebSocket (`eth_subscribe`, `newHeads`). Nothing they say is
 * believed: a number only lets somebody look sooner. So whatever goes wrong here ends in an attempt
 * to connect again, and in nothing else. No URL and no word of a node ever appears in a message (R5).
 */
import { Agent, buildConnector, WebSocket } from 'undici'
import * as z from 'zod/mini'
import { ChainError, type Clock, type Random } from '../../ports.js'
import { jsonOf } from '../../protocol/capped.js'
import { networkFault } from '../../protocol/network-words.js'
import type { HeadsVitals } from '../../protocol/vitals.js'
import { withoutUserInfo } from './transport.js'

/** Longest message that is read; a header of Polygon has some kilobytes (R17). */
const messageBytes = 1024 * 1024
/** More messages than this in `floodMs` are no news of blocks any more (R17). */
const floodMessages = 600
const floodMs = 10_000
/** Until a node has taken the subscription. */
const openMs = 10_000
/** A subscription is silent that has told of no block for so many block times. */
const silentBlocks = 5
const leastSilenceMs = 5_000
const [leastBackOffMs, mostBackOffMs] = [1_000, 60_000]

export interface HeadsOptions {
  /** A node on another chain tells nothing here. */
  readonly chainId: number
  /** Called with the number of each block that is told of, whatever it is. */
  readonly onHead: (number: bigint) => void
  /** Without a block for this long a subscription is silent, however slow its blocks have been. */
  readonly mostSilenceMs: number
  readonly clock: Pick<Clock, 'monotonicMs'>
  readonly random: Pick<Random, 'bytes'>
  /** For tests: what 1 s of waiting, before another attempt, takes; default 1,000. */
  readonly secondMs?: number
}

/** A subscription, kept up. */
export interface HeadsSocket {
  /** How it stands now, from memory. */
  now(): HeadsVitals
  close(): void
}

const quantity = /^0x(?:0|[1-9a-f][0-9a-f]{0,15})$/
const Head = z.object({
  method: z.literal('eth_subscription'),
  params: z.object({
    subscription: z.string(),
    result: z.object({ number: z.string().check(z.regex(quantity)) }),
  }),
})
const Reply = z.object({ id: z.union([z.literal(1), z.literal(2)]), result: z.unknown() })

interface Ear {
  readonly chainId: number
  onSubscribed(): void
  onHead(number: bigint): void
  /** Called once, at the end, with what went wrong. */
  onEnd(why: string): void
}

/** One connection, until it ends or is let go of. It keeps no process alive. */
function listen(given: string, ear: Ear): { readonly end: (why: string) => void } {
  const { url, headers } = withoutUserInfo(given)
  const sockets = new Set<{ destroy(): unknown; unref(): unknown }>()
  let fault: string | undefined
  let isOver = false
  const connect = buildConnector({ timeout: openMs })
  const agent = new Agent({
    connect(target, done) {
      connect(target, (error, socket) => {
        if (error !== null) {
          fault = networkFault(error)
          return done(error, null)
        }
        sockets.add(socket)
        socket.unref()
        if (isOver) socket.destroy()
        done(null, socket)
      })
    },
    webSocket: { maxPayloadSize: messageBytes },
  })
  let [isOpen, isOnChain] = [false, false]
  let subscription: string | undefined
  let messages = 0
  let countedMs = performance.now()
  const end = (why: string) => {
    if (isOver) return
    isOver = true
    clearTimeout(opening)
    // No closing handshake: a node that does not take part in it would hold the connection.
    for (const socket of sockets) socket.destroy()
    agent.destroy().catch(() => undefined)
    ear.onEnd(why)
  }
  const opening = setTimeout(() => end(`no subscription within ${openMs / 1_000} s`), openMs)
  opening.unref()
  const socket = new WebSocket(url, { dispatcher: agent, headers })
  socket.addEventListener('open', () => {
    isOpen = true
    socket.send('{"jsonrpc":"2.0","id":1,"method":"eth_chainId","params":[]}')
    socket.send('{"jsonrpc":"2.0","id":2,"method":"eth_subscribe","params":["newHeads"]}')
  })
  socket.addEventListener('error', () => {
    end(fault ?? (isOpen ? 'connection lost' : 'it does not accept WebSocket connections'))
  })
  socket.addEventListener('close', () => end('connection closed'))
  const heard = (text: unknown) => {
    const message = typeof text === 'string' ? jsonOf(text) : undefined
    const { data: reply } = Reply.safeParse(message)
    if (reply?.id === 1) {
      if (reply.result !== `0x${ear.chainId.toString(16)}`)
        return end(`it is on another chain, not on ${ear.chainId}`)
      isOnChain = true
    }
    if (reply?.id === 2) {
      if (typeof reply.result !== 'string') return end('it refuses eth_subscribe')
      subscription = reply.result
    }
    if (!isOnChain || subscription === undefined) return
    if (reply !== undefined) {
      clearTimeout(opening)
      return ear.onSubscribed()
    }
    const { data: head } = Head.safeParse(message)
    if (head?.params.subscription === subscription) ear.onHead(BigInt(head.params.result.number))
  }
  socket.addEventListener('message', ({ data }) => {
    if (isOver) return
    const nowMs = performance.now()
    if (nowMs - countedMs > floodMs) [messages, countedMs] = [0, nowMs]
    messages += 1
    if (messages > floodMessages) return end('it sends too many messages')
    heard(data)
  })
  return { end }
}

/** Resolves once a node has taken a subscription. Rejects with ChainError `unavailable`. */
export function tryHeads(url: string, chainId: number): Promise<void> {
  return new Promise((resolve, reject) => {
    const { end } = listen(url, {
      chainId,
      onSubscribed() {
        resolve()
        end('')
      },
      onHead: () => undefined,
      onEnd: (why) => reject(new ChainError('unavailable', why)),
    })
  })
}

/**
 * Listens to one of the nodes at a time, in order of preference, until it is closed. After a failure
 * it waits between 1 and 60 s and tries the next one. Throws nothing.
 */
export function followHeads(urls: readonly string[], options: HeadsOptions): HeadsSocket {
  const { clock, random, onHead, mostSilenceMs, secondMs = 1_000 } = options
  let isClosed = false
  let failures = 0
  let node = 0
  let why: string | undefined
  let head: { readonly number: bigint; readonly atMs: number } | undefined
  let blockMs: number | undefined
  let timer: NodeJS.Timeout | undefined
  let hangUp: (reason: string) => void = () => undefined
  let isSubscribed = false

  const silenceMs = () =>
    Math.min(mostSilenceMs, Math.max(leastSilenceMs, silentBlocks * (blockMs ?? mostSilenceMs)))
  const awaitHead = () => {
    clearTimeout(timer)
    const limitMs = silenceMs()
    timer = setTimeout(() => hangUp('it tells of no block'), limitMs)
    timer.unref()
  }
  const start = () => {
    isSubscribed = false
    const { end } = listen(urls[node] ?? '', {
      chainId: options.chainId,
      onSubscribed() {
        isSubscribed = true
        awaitHead()
      },
      onHead(number) {
        const atMs = clock.monotonicMs()
        // Half of what was known stays: one block that is early or late says little.
        if (head !== undefined && number > head.number)
          blockMs = ((blockMs ?? atMs - head.atMs) + (atMs - head.atMs)) / 2
        // One that repeats itself is as silent as one that says nothing.
        if (number !== head?.number) awaitHead()
        head = { number, atMs }
        why = undefined
        failures = 0
        onHead(number)
      },
      onEnd(reason) {
        clearTimeout(timer)
        isSubscribed = false
        if (isClosed) return
        why = reason
        node = (node + 1) % urls.length
        timer = setTimeout(start, backOffMs(failures, random) * (secondMs / 1_000))
        timer.unref()
        failures += 1
      },
    })
    hangUp = end
  }
  start()
  return {
    now: () => ({
      isConnected: isSubscribed,
      ageSeconds: head && (clock.monotonicMs() - head.atMs) / 1_000,
      failure: why,
    }),
    close() {
      isClosed = true
      clearTimeout(timer)
      hangUp('closed')
    },
  }
}

/** From 1 s, twice as long after each failure, at most 60 s; less up to a half of it, by chance. */
function backOffMs(failures: number, random: Pick<Random, 'bytes'>): number {
  const wholeMs = Math.min(mostBackOffMs, leastBackOffMs * 2 ** Math.min(failures + 1, 10))
  const [byte = 0] = random.bytes(1)
  return wholeMs * (1 - byte / 512)
}
