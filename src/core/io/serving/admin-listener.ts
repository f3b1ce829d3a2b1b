/** Loopback only; changing needs the token beside the store (contract §2, §6). */
import { createHash, timingSafeEqual } from 'node:crypto'
import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Registry } from 'prom-client'
import {
  createPageEvents,
  mostReaders,
  type PageEvents,
  type PageSource,
} from '#page/admin-page-events'
import { adminPage } from '#page/pages'
import { ProposerError } from '#protocol/errors'
import { commonHeaders } from '#protocol/refusal'
import { createMetrics, type MetricsParts } from './admin-metrics.js'
import { proofPath, tokenProof } from './admin-token.js'
import {
  healthLooks,
  jsonLook,
  type LookListener,
  type LookServer,
  listenForLooks,
  onlyBy,
  refused,
  withJson,
} from './looks.js'

interface OperatorRoutes {
  readonly token: string
  readonly looks: Readonly<Record<string, () => object>>
  /** By path. Anything but a ProposerError ends the process. */
  readonly acts: Readonly<Record<string, (body: unknown) => Promise<object>>>
}

interface AdminOptions extends MetricsParts {
  readonly port: number
  readonly connections?: number
  readonly operator?: OperatorRoutes
  readonly page?: PageSource
  readonly pageEveryMs?: number
}

export interface AdminListener extends LookListener {
  readonly metrics: Registry
}

/** A foreign page's DNS may lead a browser here (contract §6). */
const loopbackHost = /^(localhost|127(\.\d{1,3}){3}|\[::1\])(:\d{1,5})?$/i
const limitBytes = 1024 * 1024

type Route = LookServer['route']

export async function listenAdmin(options: AdminOptions): Promise<AdminListener> {
  const { port, connections, operator, page } = options
  const events = page && createPageEvents(page, options.pageEveryMs)
  const metrics = createMetrics(options)
  const gets = getRoutes(options, events, metrics)
  const listener = await listenForLooks({
    host: '127.0.0.1',
    port,
    connections,
    route: (incoming, response) => routeOf(gets, operator, page, incoming)(incoming, response),
  })
  return {
    ...listener,
    metrics,
    close() {
      events?.end()
      return listener.close()
    },
  }
}

const eventsPath = '/operator/events'
const candidatePath = /^\/operator\/candidates\/([0-9a-f-]{36})$/

const proofForm = new RegExp(`^${proofPath}([0-9a-f]{64})$`)

function getRoutes(options: AdminOptions, events: PageEvents | undefined, metrics: Registry) {
  const page = events === undefined ? {} : adminPage
  return new Map<string, Route>([
    ...Object.entries(page).map(
      ([name, file]) => [`/${name}`, () => ({ status: 200, ...file })] as const,
    ),
    ...(events === undefined ? [] : [[eventsPath, streamOf(events)] as const]),
    ...healthLooks(() => options.status().reasons, metrics),
    ...Object.entries(options.operator?.looks ?? {}).map(
      ([path, look]) => [path, () => jsonLook(look())] as const,
    ),
  ])
}

function routeOf(
  gets: ReadonlyMap<string, Route>,
  operator: OperatorRoutes | undefined,
  page: PageSource | undefined,
  { url = '', method, rawHeaders, headers: { host }, socket }: IncomingMessage,
): Route {
  const hosts = rawHeaders.filter((name, at) => at % 2 === 0 && /^host$/i.test(name))
  if (hosts.length !== 1 || host === undefined || !loopbackHost.test(host))
    return () => refused(400, 'bad_request', 'the admin listener accepts loopback names only')
  const [, id] = page ? (candidatePath.exec(url) ?? []) : []
  const nonce = operator && proofForm.exec(url)?.[1]
  const get =
    page && id !== undefined
      ? () => orRefusal(() => page.candidate(id))
      : operator && nonce !== undefined
        ? () => jsonLook({ proof: tokenProof(operator.token, socket.localPort ?? 0, nonce) })
        : gets.get(url)
  const act = operator && Object.hasOwn(operator.acts, url) ? operator.acts[url] : undefined
  if (get === undefined && act === undefined) {
    const paths = [...gets.keys()].filter((path) => !/\.(css|js)$/.test(path))
    const candidates = page ? ['/operator/candidates/<candidate-id>'] : []
    const all = [...paths, ...candidates, ...Object.keys(operator?.acts ?? {})].join(', ')
    return () => refused(404, 'route_not_found', `the admin listener has ${all}`)
  }
  const allowed = get ? 'GET' : 'POST'
  if (method !== allowed) return () => onlyBy(allowed)
  if (get) return get
  if (!operator || !act) throw new RangeError('an act without an operator service')
  return (incoming, response) => acted(operator, act, incoming, response)
}

/** A page of another site could keep the few readers' places taken. */
const streamOf =
  (events: PageEvents): Route =>
  (incoming, response) => {
    const site = incoming.headers['sec-fetch-site']
    if (site !== undefined && site !== 'same-origin' && site !== 'none')
      return refused(403, 'bad_request', 'events are for this page only')
    const begin = () =>
      response.writeHead(200, { ...commonHeaders, 'content-type': 'text/event-stream' })
    if (events.add(response, begin)) return 'streaming'
    return {
      ...refused(503, 'server_busy', `${mostReaders} pages are already open; close one`),
      headers: { 'retry-after': '5' },
    }
  }

async function orRefusal(work: () => Promise<object | undefined>) {
  try {
    const value = await work()
    return value === undefined
      ? refused(404, 'candidate_not_found', 'candidate not found in the store')
      : jsonLook(value)
  } catch (error) {
    if (!(error instanceof ProposerError)) throw error
    const { httpStatus = 500, hint } = error.meta
    return refused(httpStatus, error.code, error.detail, hint)
  }
}

async function acted(
  { token }: OperatorRoutes,
  act: (body: unknown) => Promise<object>,
  incoming: IncomingMessage,
  response: ServerResponse,
) {
  const { authorization, 'content-type': type, 'content-encoding': encoding } = incoming.headers
  if (!showsToken(authorization, token)) {
    const detail =
      'a change requires the token of this store: send Authorization: Bearer with the content of its admin.token'
    return { ...refused(401, 'unauthorized', detail), headers: { 'www-authenticate': 'Bearer' } }
  }
  if (!/^application\/json\s*(;\s*charset="?utf-8"?\s*)?$/i.test(type ?? '') || encoding)
    return refused(
      400,
      'unsupported_media_type',
      'the body must be plain JSON in UTF-8; send Content-Type: application/json',
    )
  const tooLarge = `the body is larger than ${limitBytes} bytes; split it, or stop the gateway and rerun the command`
  return withJson(incoming, response, limitBytes, tooLarge, (body) => orRefusal(() => act(body)))
}

function showsToken(authorization: string | undefined, token: string) {
  const given = /^Bearer ([!-~]{1,256})$/i.exec(authorization ?? '')?.[1] ?? ''
  const digest = (text: string) => createHash('sha256').update(text).digest()
  return timingSafeEqual(digest(given), digest(token)) && given !== ''
}
