/**
 * `Request` in, `Response` out (§4). Every route goes through the same steps in the order of robustness §4: route, method, path
 * parameters, headers, body bytes, strict JSON, charge, schema; the rest is the route's own.
 */
import { type Context, Hono } from 'hono'
import { BodyError } from '../../protocol/call.js'
import { hasAncillaryKey } from '../../protocol/faults.js'
import { readJson } from '../../protocol/json.js'
import { commonHeaders, type Refusal, refuse } from '../../protocol/refusal.js'
import { type Answer, internalError, refusalAnswer, refusalOf } from './answer.js'
import { type Budget, budgetHeaders } from './budget.js'
import { type Exchange, isPlainPath, noteBug, readRequestBody } from './exchange.js'
import type { Route } from './route.js'

/** What the steps need beside the routes. */
export interface Steps {
  readonly budget: Budget
  readonly nowMs: () => number
  /** Why no new call is taken now, or `undefined` (robustness §4: queue full, shutting down). */
  readonly shed: () => Refusal | undefined
  /** Holds one of the places in flight while `work` runs; `undefined`: all are taken. */
  readonly inFlight: (work: () => Promise<Answer>) => Promise<Answer> | undefined
  /** Takes bytes from the memory that all bodies share. */
  readonly reserve: (exchange: Exchange, bytes: number) => boolean
  readonly corsOrigins: readonly string[]
}

interface Env {
  Bindings: Exchange
}

/** The application: `fetch(request, exchange)`. Never rejects, and never answers without a body in the documented form. */
export function createRoutes(routes: readonly Route[], steps: Steps): (request: Request, exchange: Exchange) => Promise<Response> {
  const app = new Hono<Env>({ getPath: (_, options) => options?.env?.target ?? '' })
  const byTemplate = new Map<string, Route[]>()
  for (const route of routes) byTemplate.set(route.template, [...(byTemplate.get(route.template) ?? []), route])
  for (const [template, methods] of byTemplate) {
    app.all(template.replaceAll(/\{(\w+)\}/g, ':$1'), async (context) => {
      const { exchange, answer } = await answered(steps, template, methods, context)
      return respond(steps, context.req.raw, exchange, answer)
    })
  }
  const nowhere = (request: Request, exchange: Exchange) =>
    respond(steps, request, exchange, refusalAnswer(exchange.peer.refused ?? routeNotFound()))
  app.notFound((context) => nowhere(context.req.raw, context.env))
  return async (request, exchange) => (isPlainPath(exchange.target) ? app.fetch(request, exchange) : nowhere(request, exchange))
}

function routeNotFound(): Refusal {
  return refuse(
    'route_not_found',
    'there is no such route; paths are exact, without trailing slash, query or percent-encoding (see /openapi.json)',
  )
}

async function answered(
  steps: Steps,
  template: string,
  methods: readonly Route[],
  context: Context<Env>,
): Promise<{ exchange: Exchange; answer: Answer }> {
  const exchange = context.env
  const request = context.req.raw
  exchange.route = template
  const route = methods.find(({ method }) => method === exchange.method)
  const { refused } = exchange.peer
  if (refused && (!route || route.free)) return { exchange, answer: refusalAnswer(refused) }
  if (!route) {
    const allow = methods.map(({ method }) => method).join(', ')
    return { exchange, answer: preflight(steps, request, exchange, allow) ?? wrongMethod(allow) }
  }
  const params = context.req.param() as Record<string, string>
  try {
    if (route.free) return { exchange, answer: await route.run({ params, body: undefined, exchange }) }
    const answer = await charged(steps, route, params, request, exchange)
    if (exchange.charge) return { exchange, answer: { ...answer, headers: { ...budgetHeaders(exchange.charge), ...answer.headers } } }
    return { exchange, answer }
  } catch (error) {
    const known = refusalOf(error, exchange.requestId)
    if (!known) noteBug(exchange, error)
    const answer = refusalAnswer(known ?? internalError(exchange.requestId))
    return { exchange, answer: { ...answer, headers: { ...(exchange.charge && budgetHeaders(exchange.charge)), ...answer.headers } } }
  }
}

function wrongMethod(allow: string): Answer {
  const answer = refusalAnswer(refuse('method_not_allowed', `this route takes ${allow} only`))
  return { ...answer, headers: { allow } }
}

/** CORS preflight, for configured origins only and free of charge (contract §2, §7). */
function preflight(steps: Steps, request: Request, exchange: Exchange, allow: string): Answer | undefined {
  const origin = request.headers.get('origin')
  if (exchange.method !== 'OPTIONS' || origin === null || !steps.corsOrigins.includes(origin)) return undefined
  return {
    status: 204,
    body: '',
    headers: { 'access-control-allow-methods': allow, 'access-control-allow-headers': 'content-type', 'access-control-max-age': '600' },
  }
}

/** A charged route. Whatever refuses before the charge costs one item (contract §2). */
async function charged(steps: Steps, route: Route, params: Record<string, string>, request: Request, exchange: Exchange): Promise<Answer> {
  const early = exchange.peer.refused ?? steps.shed() ?? paramFault(route, params) ?? headerFault(route, request)
  if (early) return chargedRefusal(steps, exchange, early)
  let body: unknown
  if (route.body) {
    // Nothing is read for a caller whose budget is spent; the charge that follows refuses.
    if (isSpent(steps, exchange)) return charge(steps, exchange, 1) ?? refusalAnswer(overBudget(exchange))
    const bytes = await readBody(steps, route.body.limitBytes, request, exchange)
    if (!(bytes instanceof Uint8Array)) return chargedRefusal(steps, exchange, bytes)
    const read = readJson(bytes)
    if (!read.ok) return chargedRefusal(steps, exchange, refuse('invalid_json', read.detail))
    body = read.value
  }
  const refused = charge(steps, exchange, itemsOf(route, body))
  if (refused) return refused
  if (route.body?.admission && hasAncillaryKey(body)) {
    return refusalAnswer(
      refuse(
        'ancillary_data_not_allowed',
        'ancillary data is not taken in admission, the gateway reads it from the chain; remove every ancillary field',
      ),
    )
  }
  const running = steps.inFlight(async () => route.run({ params, body, exchange }))
  return running ?? refusalAnswer(refuse('server_busy', 'too many calls are in flight'))
}

function chargedRefusal(steps: Steps, exchange: Exchange, refusal: Refusal): Answer {
  // The refusal stands whatever the budget says: it tells more than 429 would.
  charge(steps, exchange, 1)
  return refusalAnswer(refusal)
}

/** Spends items; the 429 where the budget does not hold them. In process nothing is charged (contract §6). */
function charge(steps: Steps, exchange: Exchange, items: number): Answer | undefined {
  exchange.items = items
  if (exchange.peer.charged === false) return undefined
  exchange.charge = steps.budget.charge(exchange.client, items, steps.nowMs())
  return exchange.charge.admitted ? undefined : refusalAnswer(overBudget(exchange))
}

function isSpent(steps: Steps, exchange: Exchange): boolean {
  return exchange.peer.charged !== false && steps.budget.spent(exchange.client, steps.nowMs())
}

function overBudget(exchange: Exchange): Refusal {
  const seconds = exchange.charge?.retryAfterSeconds ?? 1
  const limit = exchange.charge?.limitItems ?? 0
  const split = exchange.items > limit ? `; a call of ${exchange.items} items never fits, split it` : ''
  return {
    ...refuse('rate_limited', `the budget of ${limit} items per window is spent${split}; retry in ${seconds} seconds`),
    retryAfterSeconds: seconds,
  }
}

/** The entries of a batch, one where they cannot be counted (contract §2). */
function itemsOf(route: Route, body: unknown): number {
  const list = route.body?.list
  if (list === undefined || typeof body !== 'object' || body === null) return 1
  const entries: unknown = (body as Record<string, unknown>)[list]
  return Array.isArray(entries) ? Math.max(1, entries.length) : 1
}

function paramFault(route: Route, params: Record<string, string>): Refusal | undefined {
  for (const [name, isShaped] of Object.entries(route.params)) {
    if (!isShaped(params[name] ?? ''))
      return refuse('invalid_identifier', `${name} in the path must be ${paramForms[name] ?? 'well-formed'}`)
  }
  return undefined
}

const paramForms: Record<string, string> = {
  address: 'a lowercase address, 0x and 40 hex digits',
  identifier: 'a question ID (0x and 64 lowercase hex digits) or a slug (a-z, 0-9 and hyphen, at most 200)',
  candidate_id: 'a hyphenated lowercase UUID',
}

function headerFault(route: Route, request: Request): Refusal | undefined {
  const { headers } = request
  const expect = headers.get('expect')
  if (expect !== null && expect.toLowerCase() !== '100-continue') {
    return refuse('expectation_failed', 'the only Expect that is met is 100-continue; send the call without it')
  }
  if (!route.body) return undefined
  if (!/^application\/json\s*(;\s*charset="?utf-8"?\s*)?$/i.test(headers.get('content-type') ?? '')) {
    return refuse('unsupported_media_type', 'the body must be JSON in UTF-8; send Content-Type: application/json')
  }
  if (headers.get('content-encoding') !== null) {
    return refuse('unsupported_encoding', 'compressed bodies are not read; send the JSON as it is, without Content-Encoding')
  }
  const length = headers.get('content-length')
  return length !== null && Number(length) > route.body.limitBytes ? tooLarge(route.body.limitBytes) : undefined
}

function tooLarge(limitBytes: number): Refusal {
  return refuse('payload_too_large', `the body is larger than the ${limitBytes} bytes of this route; send less, in smaller batches`)
}

async function readBody(steps: Steps, limitBytes: number, request: Request, exchange: Exchange): Promise<Uint8Array | Refusal> {
  const limits = { limitBytes, reserve: (bytes: number) => steps.reserve(exchange, bytes) }
  try {
    return await (exchange.peer.readBody ? exchange.peer.readBody(limits) : readRequestBody(request, limits))
  } catch (error) {
    if (!(error instanceof BodyError)) throw error
    if (error.kind === 'too_large') return tooLarge(limitBytes)
    if (error.kind === 'no_room') return refuse('server_busy', 'the memory for bodies is full')
    // Nobody reads this answer; the log calls it what it is.
    return { ...refuse('bad_request', 'the body did not arrive whole; send it again'), status: 408 }
  }
}

function respond(steps: Steps, request: Request, exchange: Exchange, answer: Answer): Response {
  const headers: Record<string, string> = { ...commonHeaders, ...answer.headers }
  if (steps.corsOrigins.length > 0) {
    headers.vary = 'Origin'
    const origin = request.headers.get('origin')
    if (origin !== null && steps.corsOrigins.includes(origin)) {
      headers['access-control-allow-origin'] = origin
      headers['access-control-expose-headers'] = 'RateLimit-Limit, RateLimit-Remaining, RateLimit-Reset, Retry-After'
    }
  }
  // Read back for the log, which the Response has no room for.
  exchange.code = answer.code
  return new Response(answer.status === 204 || exchange.method === 'HEAD' ? null : answer.body, { status: answer.status, headers })
}
