/**
 * The operator's listener: loopback only. Looking is free; what changes something needs the token
 * that lies beside the store, so that only who may read the store may act on it (contract §2, §6).
 */
import { createHash, timingSafeEqual } from 'node:crypto'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import type { Registry } from 'prom-client'
import { pageFiles } from '../../page/admin-page.js'
import {
  createPageEvents,
  mostReaders,
  type PageEvents,
  type PageSource,
} from '../../page/admin-page-events.js'
import { BodyError } from '../../protocol/call.js'
import { ProposerError } from '../../protocol/errors.js'
import { readJson } from '../../protocol/json.js'
import { commonHeaders } from '../../protocol/refusal.js'
import { createMetrics, type MetricsParts } from './admin-metrics.js'
import { linger, readIncoming, restIsLarge } from './incoming-body.js'
import { serverSettings, socketSettings } from './listener.js'

/** What there is beyond health, readiness and metrics. Bodies and answers are JSON. */
export interface AdminDesk {
  /** 64 hex digits; whoever POSTs shows it as `Authorization: Bearer`. */
  readonly token: string
  /** GET, by path. */
  readonly looks: Readonly<Record<string, () => object>>
  /**
   * POST, by path. A ProposerError is a refusal with its `httpStatus`; anything else is a bug of
   * ours and ends the process.
   */
  readonly acts: Readonly<Record<string, (body: unknown) => Promise<object>>>
}

export interface AdminOptions extends MetricsParts {
  /** 0 takes a free one. */
  readonly port: number
  /** Without one there is nothing to act on. */
  readonly desk?: AdminDesk
  /** What the operator's page shows; without it there is none. */
  readonly page?: PageSource
  /** How often the page's figures are looked at; default: once a second. */
  readonly pageEveryMs?: number
}

export interface AdminListener {
  readonly url: string
  readonly port: number
  close(): Promise<void>
}

/**
 * Any other name in Host means that a browser was led here by a foreign page's DNS (contract §6).
 */
const loopbackHost = /^(localhost|127(\.\d{1,3}){3}|\[::1\])(:\d{1,5})?$/i
/** An import of some thousand questions; more go in parts. */
const limitBytes = 1024 * 1024

interface AdminAnswer {
  readonly status: number
  readonly body: string
  readonly headers?: Readonly<Record<string, string>>
}

/** Listens on 127.0.0.1. Rejects with node's error where the port cannot be had. */
export async function listenAdmin(options: AdminOptions): Promise<AdminListener> {
  const metrics = createMetrics(options)
  const events = options.page && createPageEvents(options.page, options.pageEveryMs)
  const parts: Parts = {
    options,
    metrics,
    page: options.page && events && { source: options.page, events },
  }
  const server = createServer({ ...serverSettings }, (incoming, response) => {
    // Whoever has gone needs no answer.
    response.on('error', () => undefined)
    answer(parts, incoming, response).then(
      async (answered) => {
        if (answered === 'streaming') return
        const { status, body, headers } = answered
        const close = restIsLarge(incoming)
        response.writeHead(status, {
          ...commonHeaders,
          ...headers,
          ...(close ? { connection: 'close' } : {}),
        })
        if (close) await linger(incoming)
        response.end(body)
      },
      (error: unknown) => {
        response.destroy()
        throw error
      },
    )
  })
  server.timeout = socketSettings.timeoutMs
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject)
    server.listen({ host: '127.0.0.1', port: options.port }, () => {
      server.off('error', reject)
      resolve()
    })
  })
  const { port } = server.address() as AddressInfo
  return {
    url: `http://127.0.0.1:${port}`,
    port,
    async close() {
      await events?.end()
      await new Promise<void>((resolve) => {
        server.close(() => resolve())
        server.closeAllConnections()
      })
    },
  }
}

interface Parts {
  readonly options: AdminOptions
  readonly metrics: Registry
  readonly page: Page | undefined
}

interface Page {
  readonly source: PageSource
  readonly events: PageEvents
}

async function answer(
  parts: Parts,
  incoming: IncomingMessage,
  response: ServerResponse,
): Promise<AdminAnswer | 'streaming'> {
  const { url = '', method } = incoming
  const hosts = incoming.rawHeaders.filter(
    (_, index) => index % 2 === 0 && /^host$/i.test(incoming.rawHeaders[index] ?? ''),
  )
  const { host } = incoming.headers
  if (hosts.length !== 1 || host === undefined || !loopbackHost.test(host))
    return refused(400, 'bad_request', 'the admin listener answers to loopback names only')
  const { desk } = parts.options
  const look = lookAt(parts, url, incoming, response)
  const act = desk && Object.hasOwn(desk.acts, url) ? desk.acts[url] : undefined
  if (!look && !act)
    return refused(
      404,
      'route_not_found',
      `the admin listener has ${routesOf(parts.options).join(', ')}`,
    )
  const allowed = look ? 'GET' : 'POST'
  if (method !== allowed) {
    return {
      ...refused(405, 'method_not_allowed', `this route takes ${allowed} only`),
      headers: { allow: allowed },
    }
  }
  if (look) return look()
  if (!desk || !act) throw new RangeError('an act without a desk')
  return acted(desk, act, incoming, response)
}

const routesOf = ({ desk, page }: AdminOptions) => [
  ...(page ? ['/', eventsPath, '/operator/candidates/<candidate-id>'] : []),
  '/healthz',
  '/readyz',
  '/metrics',
  ...Object.keys(desk?.looks ?? {}),
  ...Object.keys(desk?.acts ?? {}),
]

const eventsPath = '/operator/events'
/** An id needs no escapes, so the path is not decoded; beside it stand the acts on candidates. */
const candidatePath = /^\/operator\/candidates\/([0-9a-f-]{36})$/

function lookAt(
  { options, metrics, page }: Parts,
  url: string,
  incoming: IncomingMessage,
  response: ServerResponse,
): (() => Promise<AdminAnswer | 'streaming'>) | undefined {
  if (page && Object.hasOwn(pageFiles, url)) return async () => ({ status: 200, ...pageFile(url) })
  if (page && url === eventsPath) return async () => streamed(page.events, incoming, response)
  const [, id] = page ? (candidatePath.exec(url) ?? []) : []
  if (page && id !== undefined) return () => candidateAt(page.source, id)
  switch (url) {
    case '/metrics':
      return async () => ({
        status: 200,
        body: await metrics.metrics(),
        headers: { 'content-type': metrics.contentType },
      })
    case '/readyz':
      return async () => {
        const reasons = options.readiness()
        return {
          status: reasons.length === 0 ? 200 : 503,
          body: JSON.stringify({ ready: reasons.length === 0, reasons }),
        }
      }
    case '/healthz':
      return async () => ({ status: 200, body: '{"status":"ok"}' })
    default: {
      const looks = options.desk?.looks ?? {}
      const look = Object.hasOwn(looks, url) ? looks[url] : undefined
      return look && (async () => ({ status: 200, body: JSON.stringify(look()) }))
    }
  }
}

function pageFile(path: string): Pick<AdminAnswer, 'body' | 'headers'> {
  const file = pageFiles[path]
  if (file === undefined) throw new RangeError(`the page has no file ${path}`)
  return file
}

/** A page of another site gets to read nothing, but could keep the few places of readers taken. */
function streamed(
  events: PageEvents,
  incoming: IncomingMessage,
  response: ServerResponse,
): AdminAnswer | 'streaming' {
  const site = incoming.headers['sec-fetch-site']
  if (site !== undefined && site !== 'same-origin' && site !== 'none')
    return refused(403, 'bad_request', 'events are for this page only')
  const begin = () =>
    response.writeHead(200, { ...commonHeaders, 'content-type': 'text/event-stream' })
  if (events.add(response, begin)) return 'streaming'
  return {
    ...refused(503, 'server_busy', `${mostReaders} pages are open already; close one`),
    headers: { 'retry-after': '5' },
  }
}

async function candidateAt(source: PageSource, id: string): Promise<AdminAnswer> {
  try {
    const told = await source.candidate(id)
    if (told) return { status: 200, body: JSON.stringify(told) }
    return refused(404, 'candidate_not_found', 'the store has no candidate of this id')
  } catch (error) {
    if (!(error instanceof ProposerError)) throw error
    return refused(error.meta.httpStatus ?? 500, error.code, error.detail)
  }
}

async function acted(
  { token }: AdminDesk,
  act: (body: unknown) => Promise<object>,
  incoming: IncomingMessage,
  response: ServerResponse,
): Promise<AdminAnswer> {
  const { authorization, 'content-type': type, 'content-encoding': encoding } = incoming.headers
  if (!showsToken(authorization, token)) {
    const detail =
      'acting needs the token of this store: send Authorization: Bearer with the content of its admin.token'
    return { ...refused(401, 'unauthorized', detail), headers: { 'www-authenticate': 'Bearer' } }
  }
  if (
    !/^application\/json\s*(;\s*charset="?utf-8"?\s*)?$/i.test(type ?? '') ||
    encoding !== undefined
  )
    return refused(
      400,
      'unsupported_media_type',
      'the body must be plain JSON in UTF-8; send Content-Type: application/json',
    )
  if (Number(incoming.headers['content-length'] ?? 0) > limitBytes) return tooLarge()
  let bytes: Uint8Array
  try {
    bytes = await readIncoming(incoming, response, { limitBytes, reserve: () => true })
  } catch (error) {
    if (!(error instanceof BodyError)) throw error
    return error.kind === 'too_large'
      ? tooLarge()
      : refused(400, 'bad_request', 'the body did not arrive whole; send it again')
  }
  const read = readJson(bytes)
  if (!read.ok) return refused(400, 'invalid_json', read.detail)
  try {
    return { status: 200, body: JSON.stringify(await act(read.value)) }
  } catch (error) {
    if (!(error instanceof ProposerError)) throw error
    const { httpStatus = 500, hint } = error.meta
    return refused(httpStatus, error.code, error.detail, hint)
  }
}

const tooLarge = () =>
  refused(
    413,
    'payload_too_large',
    `the body is larger than ${limitBytes} bytes; split it, or stop the gateway and run the command again`,
  )

/** Both sides are hashed, so that neither length nor content shows in the time it takes. */
function showsToken(authorization: string | undefined, token: string): boolean {
  const given = /^Bearer ([!-~]{1,256})$/i.exec(authorization ?? '')?.[1] ?? ''
  const digest = (text: string) => createHash('sha256').update(text).digest()
  return timingSafeEqual(digest(given), digest(token)) && given !== ''
}

function refused(status: number, code: string, detail: string, hint?: string): AdminAnswer {
  return {
    status,
    body: JSON.stringify({ error: { code, detail, ...(hint === undefined ? {} : { hint }) } }),
  }
}
