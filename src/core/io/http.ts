import { readFileSync } from 'node:fs'
import type { Socket } from 'node:net'
import type { buildConnector, Dispatcher } from 'undici'
// Its index loads a browser's fetch too: a seventh of the time that `status` takes.
import request from 'undici/lib/api/api-request.js'
import connectorOf from 'undici/lib/core/connect.js'
import Agent from 'undici/lib/dispatcher/agent.js'
import { type Fetch, type HttpAnswer, type HttpCall, TransportError } from '#ports'
import { UsageError } from '#protocol/errors'

interface HttpOptions {
  /** In place of the system's. */
  readonly caFile?: string
  readonly attemptMs?: number
}

const connectMs = 5_000
const headersMs = 30_000
const maxHeaderBytes = 16 * 1024

/**
 * No redirect, no compression, no proxy of the environment, a fresh socket for every POST. The
 * phase of a `TransportError` tells whether a byte can have left.
 */
export function createHttp({ caFile, attemptMs = 45_000 }: HttpOptions = {}): {
  readonly fetch: Fetch
  close(): Promise<void>
} {
  const authority = caFile !== undefined && { ca: readAuthority(caFile) }
  const agentOf = (options: object) =>
    new Agent({
      connect: connector({ timeout: connectMs, ...authority }),
      headersTimeout: headersMs,
      bodyTimeout: headersMs,
      maxHeaderSize: maxHeaderBytes,
      ...options,
    })
  const shared = agentOf({ connections: 16 })

  const fetch: Fetch = async (url, call = {}) => {
    const stopped = call.signal ?? undefined
    const late = AbortSignal.timeout(attemptMs)
    const signal = stopped === undefined ? late : AbortSignal.any([stopped, late])
    signal.throwIfAborted()
    const fresh = call.method === 'POST'
    const agent = fresh ? agentOf({ pipelining: 0 }) : shared
    try {
      return await exchange(agent, new URL(url), call, signal)
    } catch (error) {
      if (error === signal.reason && !stopped?.aborted) throw transportError(error, false)
      throw error
    } finally {
      if (fresh) agent.close().catch(() => undefined)
    }
  }
  return { fetch, close: () => shared.close() }
}

function connector(options: buildConnector.BuildOptions): buildConnector.connector {
  const connect = connectorOf(options)
  return (target, callback) =>
    connect(target, (...[error, socket]) => {
      if (error !== null) callback(error, null)
      else callback(null, passOverContinue(socket))
    })
}

const none = Buffer.alloc(0)
const continues = Buffer.from('HTTP/1.1 100 ')

/** undici destroys a connection at `100 Continue`, which any server may send (RFC 9110 §15.2). */
function passOverContinue<Kind extends Socket>(socket: Kind) {
  const { read, write } = socket
  let held: Buffer | undefined = none
  socket.write = ((...call: Parameters<Socket['write']>) => {
    held ??= none
    return write.apply(socket, call)
  }) as Socket['write']
  socket.read = (size?: number) => {
    const chunk: Buffer | null = read.call(socket, size)
    if (held === undefined || chunk === null) return chunk
    held = Buffer.concat([held, chunk])
    while (held.length > 0) {
      const shared = Math.min(held.length, continues.length)
      const end = held.indexOf('\r\n\r\n')
      if (held.compare(continues, 0, shared, 0, shared) !== 0 || held.length > maxHeaderBytes) {
        const seen = held
        held = undefined
        return seen
      }
      if (end < 0) break
      held = held.subarray(end + 4)
    }
    return null
  }
  return socket
}

function exchange(
  agent: Dispatcher,
  { origin, pathname, search }: URL,
  { method = 'GET', headers, body }: HttpCall,
  signal: AbortSignal,
): Promise<HttpAnswer> {
  return new Promise((resolve, reject) => {
    // Once the socket (and TLS) stands, before the first byte.
    let started = false
    const watched = agent.compose(
      (dispatch) => (options, handler) =>
        dispatch(options, {
          onRequestStart(controller, context) {
            started = !signal.aborted
            handler.onRequestStart?.(controller, context)
          },
          onRequestUpgrade: (controller, status, headers, socket) =>
            handler.onRequestUpgrade?.(controller, status, headers, socket),
          onResponseStart: (controller, status, headers, text) =>
            handler.onResponseStart?.(controller, status, headers, text),
          onResponseData: (controller, chunk) => handler.onResponseData?.(controller, chunk),
          onResponseEnd: (controller, trailers) => handler.onResponseEnd?.(controller, trailers),
          onResponseError: (controller, error) => handler.onResponseError?.(controller, error),
        }),
    )
    // While connecting undici acts on an abort only when the socket stands.
    const aborted = () => {
      if (!started) reject(signal.reason)
    }
    signal.addEventListener('abort', aborted, { once: true })
    request
      .call(watched, {
        origin,
        path: `${pathname}${search}`,
        method: method as Dispatcher.HttpMethod,
        headers: { ...headers, 'accept-encoding': 'identity' },
        body: body ?? null,
        signal,
        reset: method === 'POST',
      })
      .then((answer) => resolve(answerOf(answer)))
      .catch((error: unknown) =>
        reject(!started && signal.aborted ? signal.reason : transportError(error, started)),
      )
      .finally(() => signal.removeEventListener('abort', aborted))
  })
}

const bodiless = new Set([204, 205, 304])

/** The globals of a `Response` load a second undici. */
function answerOf(answer: Dispatcher.ResponseData): HttpAnswer {
  const { statusCode: status, headers } = answer
  const isOdd = status < 200 || status > 599
  if (isOdd || bodiless.has(status)) drop(answer.body)
  if (isOdd) throw new RangeError(`status ${status}`)
  const get = (name: string) => {
    const value = Object.hasOwn(headers, name) ? headers[name] : undefined
    return value === undefined ? null : [value].flat().join(', ')
  }
  return {
    status,
    headers: { get: (name) => get(name.toLowerCase()) },
    body: bodiless.has(status) ? null : decoded(answer),
  }
}

/** A proxy may use one. */
function decoded({ body, headers }: Dispatcher.ResponseData) {
  const coding = /^(x-)?gzip$/i.test(String(headers['content-encoding'] ?? ''))
  return coding ? streamOf(body).pipeThrough(new DecompressionStream('gzip')) : streamOf(body)
}

/**
 * Node 20's `Readable.toWeb` throws past every handler where a body is cancelled while a chunk
 * arrives.
 */
function streamOf(body: Dispatcher.ResponseData['body']) {
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

function drop(body: Dispatcher.ResponseData['body']) {
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
