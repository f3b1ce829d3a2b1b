import { readFileSync } from 'node:fs'
import type { Agent, ClientRequest, IncomingMessage, RequestOptions } from 'node:http'
import { type Fetch, type HttpAnswer, type HttpCall, TransportError } from '#ports'
import { UsageError } from '#protocol/errors'

interface HttpOptions {
  /** In place of the system's. */
  readonly caFile?: string
  readonly attemptMs?: number
}

const connectMs = 5_000
const silenceMs = 30_000
/** What servers keep a connection for is mostly more. */
const idleMs = 4_000
const maxHeaderSize = 16 * 1024

/**
 * No redirect, no compression, no proxy of the environment, a fresh socket for every POST. The
 * phase of a `TransportError` tells whether a byte can have left.
 */
export function createHttp({ caFile, attemptMs = 45_000 }: HttpOptions = {}): {
  readonly fetch: Fetch
  close(): Promise<void>
} {
  const authority = caFile !== undefined && { ca: readAuthority(caFile) }
  const agents = new Map<string, Agent>()

  const fetch: Fetch = async (input, call = {}) => {
    const url = new URL(input)
    // On loopback nobody waits for TLS.
    const http = await (url.protocol === 'https:' ? import('node:https') : import('node:http'))
    const shared =
      agents.get(url.protocol) ??
      new http.Agent({ keepAlive: true, maxSockets: 16, timeout: idleMs, ...authority })
    agents.set(url.protocol, shared)
    const stopped = call.signal ?? undefined
    const late = AbortSignal.timeout(attemptMs)
    const signal = stopped === undefined ? late : AbortSignal.any([stopped, late])
    signal.throwIfAborted()
    const agent = call.method !== 'POST' && shared
    const ask = (options: RequestOptions) => http.request(url, { ...options, ...authority, agent })
    try {
      return await exchange(ask, call, signal)
    } catch (error) {
      if (error === signal.reason && !stopped?.aborted) throw transportError(error, false)
      throw error
    }
  }
  return {
    fetch,
    async close() {
      for (const agent of agents.values()) {
        // What is under way comes to its end.
        agent.maxFreeSockets = 0
        for (const socket of Object.values(agent.freeSockets).flat()) socket?.destroy()
      }
    },
  }
}

async function exchange(
  ask: (options: RequestOptions) => ClientRequest,
  { method = 'GET', headers, body }: HttpCall,
  signal: AbortSignal,
) {
  // Once the socket (and TLS) stands, before the first byte.
  let started = false
  try {
    const answer = await new Promise<IncomingMessage>((resolve, reject) => {
      const request = ask({
        method,
        headers: { ...headers, 'accept-encoding': 'identity' },
        auth: null,
        maxHeaderSize,
        timeout: silenceMs,
      })
      let answer: IncomingMessage | undefined
      const end = (error: Error) => {
        reject(error)
        ;(answer ?? request).destroy(error)
      }
      const tooLate = () => end(Object.assign(new Error('no answer'), { code: 'ETIMEDOUT' }))
      const stop = () => end(signal.reason)
      signal.addEventListener('abort', stop)
      let connecting: NodeJS.Timeout | undefined
      const begin = () => {
        clearTimeout(connecting)
        started = true
        request.end(body)
      }
      request
        .on('socket', (socket) => {
          if (!socket.connecting) return begin()
          connecting = setTimeout(tooLate, connectMs)
          socket.once('encrypted' in socket ? 'secureConnect' : 'connect', begin)
        })
        .on('timeout', tooLate)
        .on('response', (response) => {
          answer = response
          resolve(response)
        })
        .on('error', reject)
        .on('close', () => {
          clearTimeout(connecting)
          signal.removeEventListener('abort', stop)
          reject(new Error('no answer'))
        })
    })
    return answerOf(answer)
  } catch (error) {
    throw !started && signal.aborted ? signal.reason : transportError(error, started)
  }
}

const bodiless = new Set([204, 205, 304])

/** The globals of a `Response` load undici. */
function answerOf(answer: IncomingMessage): HttpAnswer {
  const { statusCode: status = 0 } = answer
  const isOdd = status < 200 || status > 599
  if (isOdd || bodiless.has(status)) drop(answer)
  if (isOdd) throw new RangeError(`status ${status}`)
  return {
    status,
    headers: { get: (name) => headerOf(answer, name.toLowerCase()) },
    body: bodiless.has(status) ? null : decoded(answer),
  }
}

/** Node's own records of them throw where one is named `__proto__` or `constructor`. */
function headerOf({ rawHeaders }: IncomingMessage, name: string) {
  const isOf = (at: number) => at % 2 === 1 && rawHeaders[at - 1]?.toLowerCase() === name
  const values = rawHeaders.filter((_, at) => isOf(at))
  return values.length > 0 ? values.join(', ') : null
}

/** A proxy may use one. */
function decoded(answer: IncomingMessage) {
  const body = streamOf(answer)
  const isZipped = /^(x-)?gzip$/i.test(headerOf(answer, 'content-encoding') ?? '')
  return isZipped ? body.pipeThrough(new DecompressionStream('gzip')) : body
}

/**
 * Node 20's `Readable.toWeb` throws past every handler where a body is cancelled while a chunk
 * arrives.
 */
function streamOf(body: IncomingMessage) {
  const chunks = body[Symbol.asyncIterator]()
  return new ReadableStream<Uint8Array>({
    async pull(controller) {
      const { done, value } = await chunks.next()
      if (done === true) controller.close()
      else controller.enqueue(value)
    },
    cancel: () => drop(body),
  })
}

function drop(body: IncomingMessage) {
  body.on('error', () => undefined).destroy()
}

/** Never the message, which may name an address (R5). */
function transportError(error: unknown, started: boolean) {
  const words = error instanceof Error ? ['code' in error ? error.code : '', error.name] : []
  const isWord = (word: unknown) => typeof word === 'string' && /^[A-Za-z0-9_]{1,64}$/.test(word)
  const code = String(words.find(isWord) ?? 'UNKNOWN')
  return started
    ? new TransportError(
        'exchange',
        code,
        `the connection to the gateway failed after the request was sent (${code})`,
      )
    : new TransportError('connect', code, `no connection to the gateway (${code})`)
}

function readAuthority(path: string) {
  try {
    return readFileSync(path, 'utf8')
  } catch (cause) {
    const hint = 'give a readable PEM file'
    throw new UsageError('ca_unreadable', `the CA file ${path} cannot be read`, { hint, cause })
  }
}
