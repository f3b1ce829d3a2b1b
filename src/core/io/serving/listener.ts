/** The settings of robustness §5, and the rules of §4 that need what was on the wire. */
import { randomUUID } from 'node:crypto'
import {
  createServer,
  type IncomingMessage,
  type RequestListener,
  type Server,
  type ServerResponse,
  STATUS_CODES,
} from 'node:http'
import { type AddressInfo, Server as NetServer, type Socket } from 'node:net'
import { performance } from 'node:perf_hooks'
import type { Duplex } from 'node:stream'
import { type Answered, type Call, connectionPlaces, type RequestRecord } from '#protocol/call'
import { commonHeaders, type Refusal, refusalBody, refuse, spread } from '#protocol/refusal'
import { announcesBody, linger, readIncoming, restIsLarge } from './incoming-body.js'
import { yieldToEvents } from './load.js'

export const serverSettings = {
  headersTimeout: 10_000,
  requestTimeout: 30_000,
  connectionsCheckingInterval: 1_000,
  keepAliveTimeout: 5_000,
  maxHeaderSize: 16_384,
  insecureHTTPParser: false,
  requireHostHeader: false,
} as const

export const socketSettings = {
  timeoutMs: 30_000,
  maxRequestsPerSocket: 1_000,
  places: connectionPlaces,
  maxHeadersCount: 0,
  /** Node dispatches whatever a chunk of 64 KiB holds at once: 1,600 calls. */
  waitingCalls: 32,
} as const

const headerLimit = 64

type Timeouts = 'headersTimeout' | 'requestTimeout' | 'connectionsCheckingInterval'

export interface ListenOptions {
  readonly host: string
  readonly port: number
  /** `undefined` resets the connection. */
  readonly handler: (call: Call) => Promise<Answered | undefined>
  readonly onRefused?: (record: RequestRecord) => void
  readonly places?: number
  readonly perAddress?: number
  readonly addressKey?: (address: string) => string
  readonly timeouts?: { readonly [K in Timeouts]?: number }
}

export interface Listener {
  readonly url: string
  readonly port: number
  readonly server: Server
  /**
   * For `serveMs` each answer is the last of its connection; then accepted calls have `drainMs`.
   */
  close(drainMs: number, serveMs?: number): Promise<void>
}

interface CallInWork {
  readonly incoming: IncomingMessage
  readonly response: ServerResponse
}

export async function listen(options: ListenOptions): Promise<Listener> {
  const server = createServer({ ...serverSettings, ...options.timeouts })
  server.timeout = socketSettings.timeoutMs
  server.maxRequestsPerSocket = socketSettings.maxRequestsPerSocket
  server.maxHeadersCount = socketSettings.maxHeadersCount
  const newest = new WeakMap<Duplex, CallInWork>()
  let closing = false
  const most = options.places ?? socketSettings.places
  const perAddress = options.perAddress ?? most
  const refuseWaiting = keepPlaces(server, {
    places: most,
    perAddress,
    addressKey: options.addressKey ?? ((address) => address),
    refuse: refusing(options, most, perAddress),
  })

  const serve = inTurn(newest, (incoming, response, isLast) => {
    answer(options, incoming, response, () => closing && isLast()).catch((error: unknown) => {
      // A bug: the caller sees a cut connection and replays.
      response.destroy()
      throw error
    })
  })
  server.on('request', serve)
  server.on('checkContinue', serve)
  server.on('checkExpectation', serve)
  server.on('connect', (incoming: IncomingMessage, socket: Duplex) => {
    const refusal = refuse('bad_request', 'this is not a proxy; send a request with a path')
    report(options, 'CONNECT', refusal, incoming.socket.remoteAddress)
    writeRaw(socket, refusal)
  })
  server.on('clientError', (error: NodeJS.ErrnoException, socket: Duplex) =>
    onClientError(options, error, socket, newest.get(socket)),
  )

  return {
    ...(await listenOn(server, options)),
    server,
    async close(drainMs, serveMs = 0) {
      closing = true
      if (serveMs > 0) await new Promise((resolve) => setTimeout(resolve, serveMs))
      // Node's own end resets connections with calls in them that nobody has read yet.
      for (const act of [() => {}, () => NetServer.prototype.close.call(server), () => {}]) {
        await yieldToEvents()
        act()
      }
      await yieldToEvents()
      const closed = new Promise<void>((resolve) => {
        server.close(() => resolve())
      })
      refuseWaiting()
      server.closeIdleConnections()
      const cut = setTimeout(() => server.closeAllConnections(), drainMs)
      await closed
      clearTimeout(cut)
    },
  }
}

export async function listenOn(
  server: Server,
  { host, port }: Pick<ListenOptions, 'host' | 'port'>,
) {
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject)
    server.listen({ host, port }, () => {
      server.off('error', reject)
      resolve()
    })
  })
  const found = server.address() as AddressInfo
  const name = host.includes(':') ? `[${host}]` : host
  return { url: `http://${name}:${found.port}`, port: found.port }
}

/** `isLast`: nothing waits behind it. */
function inTurn(
  newest: WeakMap<Duplex, CallInWork>,
  begin: (incoming: IncomingMessage, response: ServerResponse, isLast: () => boolean) => void,
): RequestListener {
  const waiting = new WeakMap<Duplex, (() => void)[]>()
  const start = (incoming: IncomingMessage, response: ServerResponse) => {
    response.once('close', () => next(incoming.socket))
    begin(incoming, response, () => !waiting.get(incoming.socket)?.length)
  }
  const next = (socket: Duplex) => {
    const call = waiting.get(socket)?.shift()
    if (!call) {
      waiting.delete(socket)
      return
    }
    setImmediate(() => {
      if (socket.writable) call()
      else waiting.delete(socket)
    })
  }
  return (incoming, response) => {
    const { socket } = incoming
    newest.set(socket, { incoming, response })
    response.on('error', () => undefined)
    const behind = waiting.get(socket)
    if (!behind) {
      waiting.set(socket, [])
      start(incoming, response)
    } else if (behind.length < socketSettings.waitingCalls)
      behind.push(() => start(incoming, response))
    else socket.destroy()
  }
}

function onClientError(
  options: ListenOptions,
  error: NodeJS.ErrnoException,
  socket: Duplex,
  call: CallInWork | undefined,
) {
  const refuseCaller = () => {
    if (!socket.writable) {
      // The parser refuses each further chunk again: a reset would overtake the answer.
      if (!socket.writableEnded) socket.destroy()
      return
    }
    const refusal = parserRefusal(error.code)
    if (!call || call.incoming.complete) {
      const address = 'remoteAddress' in socket ? String(socket.remoteAddress) : undefined
      report(options, 'unparsed', refusal, address)
    }
    writeRaw(socket, refusal)
  }
  if (!call || call.response.writableFinished) {
    // Either the unread rest of a call with an answer, or the next call.
    if (call && !call.incoming.complete) socket.destroy()
    else refuseCaller()
  } else if (call.incoming.complete) {
    // An error now would read as the answer of a sound call.
    call.response.once('finish', refuseCaller)
  } else if (call.response.headersSent) socket.destroy()
  else refuseCaller()
}

async function answer(
  options: ListenOptions,
  incoming: IncomingMessage,
  response: ServerResponse,
  isLast: () => boolean,
) {
  const { socket, headers, method = '', url = '' } = incoming
  const refused = framingFault(incoming)
  // A cut connection would hide what was admitted.
  socket.setTimeout(0)
  const answered = await options.handler({
    method,
    target: url,
    address: socket.remoteAddress ?? '',
    header(name) {
      const value = headers[name]
      return value === undefined ? undefined : String(value)
    },
    readBody: (limits) => readIncoming(incoming, response, limits),
    ...(refused ? { refused } : {}),
  })
  if (answered === undefined) {
    socket.resetAndDestroy()
    return
  }
  socket.setTimeout(socketSettings.timeoutMs)
  const closes = isLast() || answered.status === 413 || refused !== undefined
  await sendAnswer(incoming, response, answered, closes)
}

function framingFault(incoming: IncomingMessage) {
  const { rawHeaders, headers, url = '', method } = incoming
  if (incoming.httpVersion !== '1.1') return refuse('bad_request', 'only HTTP/1.1 is supported')
  if (rawHeaders.length > 2 * headerLimit) {
    return refuse(
      'headers_too_large',
      `${rawHeaders.length / 2} headers were sent; at most ${headerLimit} are accepted`,
    )
  }
  const hosts = rawHeaders.filter(
    (name, at) => at % 2 === 0 && name.toLowerCase() === 'host',
  ).length
  if (hosts !== 1)
    return refuse('bad_request', `exactly one Host header is required; ${hosts} were sent`)
  if (!url.startsWith('/')) return refuse('bad_request', 'the request target must be a path')
  if (headers.upgrade !== undefined)
    return refuse('bad_request', 'protocol upgrades are not supported; send no Upgrade')
  const encoding = headers['transfer-encoding']
  if (encoding !== undefined && encoding.toLowerCase() !== 'chunked')
    return refuse('bad_request', 'the only supported transfer encoding is chunked')
  if ((method === 'GET' || method === 'HEAD') && announcesBody(incoming))
    return refuse('bad_request', `${method} accepts no body`)
  return undefined
}

/** Its message may quote the bytes. */
function parserRefusal(code: string | undefined) {
  if (code === 'ERR_HTTP_REQUEST_TIMEOUT')
    return refuse('request_timeout', 'the request did not arrive completely in time; send it again')
  if (code === 'HPE_HEADER_OVERFLOW')
    return refuse(
      'headers_too_large',
      `the header block is larger than ${serverSettings.maxHeaderSize} bytes`,
    )
  return refuse('bad_request', 'this is not a well-formed HTTP/1.1 request')
}

export async function sendAnswer(
  incoming: IncomingMessage,
  response: ServerResponse,
  { status, headers, body }: Answered,
  close: boolean,
) {
  if (response.destroyed || !incoming.socket.writable) return
  const largeRest = restIsLarge(incoming)
  response.writeHead(status, {
    ...headers,
    ...(status === 204 ? {} : { 'content-length': String(Buffer.byteLength(body)) }),
    ...(close || largeRest ? { connection: 'close' } : {}),
  })
  if (!largeRest) {
    incoming.resume()
    response.end(body)
    return
  }
  response.write(body)
  incoming.socket.end()
  await linger(incoming)
  incoming.socket.destroy()
}

const mostWithoutPlace = 3_072
const silentMs = 2_000
/** At about 100 µs each, a twentieth of a core. */
const [refusalsAtOnce, refusalsPerMs] = [100, 0.5]

interface PlaceOptions {
  readonly places: number
  readonly perAddress: number
  readonly addressKey: (address: string) => string
  readonly refuse: (socket: Socket) => void
}

/**
 * Of one address its own alone (R17). Others are refused, so many a second. What it returns refuses
 * all that wait.
 */
function keepPlaces(
  server: Server,
  { places, perAddress, addressKey, refuse: refuseOne }: PlaceOptions,
) {
  const listeners = server.listeners('connection')
  server.removeAllListeners('connection')
  server.maxConnections = places + mostWithoutPlace
  const held = new Map<string, number>()
  const waiting = new Set<() => void>()
  let taken = 0
  let [saved, savedAtMs] = [refusalsAtOnce, performance.now()]
  function mayRefuse() {
    const nowMs = performance.now()
    saved = Math.min(refusalsAtOnce, saved + (nowMs - savedAtMs) * refusalsPerMs)
    savedAtMs = nowMs
    if (saved < 1) return false
    saved -= 1
    return true
  }
  server.on('connection', (socket: Socket) => {
    const address = addressKey(socket.remoteAddress ?? '')
    const own = held.get(address) ?? 0
    if (own < perAddress && taken < places) {
      taken += 1
      held.set(address, own + 1)
      socket.once('close', () => {
        taken -= 1
        const left = (held.get(address) ?? 1) - 1
        if (left === 0) held.delete(address)
        else held.set(address, left)
      })
      for (const serve of listeners) serve.call(server, socket)
      return
    }
    const answer = () => {
      clearTimeout(silent)
      if (!waiting.delete(answer)) return
      if (mayRefuse()) refuseOne(socket)
      else socket.destroy()
    }
    const silent = setTimeout(answer, silentMs)
    waiting.add(answer)
    socket.on('error', () => undefined).on('data', answer)
    socket.once('end', answer).once('close', () => {
      clearTimeout(silent)
      waiting.delete(answer)
    })
  })
  return () => {
    for (const answer of [...waiting]) answer()
  }
}

function refusing(
  options: ListenOptions,
  places: number,
  perAddress: number,
): (socket: Duplex) => void {
  const own = perAddress < places ? `, or the ${perAddress} of one address` : ''
  const busy = refuse('server_busy', `all ${places} connections are taken${own}`)
  const choices = 3
  let refused = 0
  return (socket) => {
    refused += 1
    const refusal = spread(busy, (refused % choices) / choices)
    const address = 'remoteAddress' in socket ? String(socket.remoteAddress) : undefined
    report(options, 'unparsed', refusal, address)
    writeRaw(socket, refusal)
  }
}

function writeRaw(socket: Duplex, refusal: Refusal) {
  const { status, retryAfterSeconds } = refusal
  const body = refusalBody(refusal)
  const headers = {
    ...commonHeaders,
    'content-length': String(new TextEncoder().encode(body).length),
    ...(retryAfterSeconds === undefined ? {} : { 'retry-after': String(retryAfterSeconds) }),
    connection: 'close',
  }
  const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`)
  socket.on('error', () => undefined)
  socket.end(`HTTP/1.1 ${status} ${STATUS_CODES[status] ?? ''}\r\n${lines.join('')}\r\n${body}`)
  socket.resume()
  const cut = setTimeout(() => socket.destroy(), 1_000)
  socket.once('close', () => clearTimeout(cut))
}

function report(
  options: ListenOptions,
  method: string,
  { status, code }: Refusal,
  address: string | undefined,
) {
  options.onRefused?.({
    requestId: randomUUID(),
    method,
    route: 'unmatched',
    status,
    code,
    durationMs: 0,
    items: 0,
    client: address ?? '',
    bug: undefined,
  })
}
