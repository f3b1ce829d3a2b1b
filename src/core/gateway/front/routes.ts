/**
 * Every route goes through the same steps in one order (§4, robustness §4): method, path, headers,
 * body bytes, strict JSON, charge, schema. Answers prove themselves where receipts are on (contract
 * §9).
 */
import type { Clock, Hash } from '#ports'
import { type Answered, BodyError } from '#protocol/call'
import type { OperationId } from '#protocol/codes'
import { hasAncillaryKey, schemaViolation, singleFault } from '#protocol/faults'
import { readJson } from '#protocol/json'
import { judgeDigest, jwkOf, receiptHeaders } from '#protocol/receipt'
import { commonHeaders, type Refusal, refuse, spread } from '#protocol/refusal'
import { type Operation, operations, type ParameterName, parameters } from '#protocol/service'
import type { LedgerFacts } from '../ledger/ledger.js'
import {
  type Exchange,
  type Handler,
  type Handlers,
  isPlainPath,
  itemRefusal,
  json,
  type RouteAnswer,
  refusalAnswer,
} from './answer.js'
import { type Budget, budgetHeaders } from './budget.js'
import { type Gate, tooLong } from './line.js'

export interface ReceiptSigner {
  current(
    nowSeconds: number,
  ): { readonly kid: string; readonly sign: (bytes: Uint8Array) => Uint8Array } | undefined
}

type ReceiptHeaders = Readonly<Record<string, string>> | undefined

/**
 * Nothing was admitted under them, and whoever floods the gateway must not make it sign (R19).
 */
const unsigned = new Set([429, 503])

export const createReceiptSigning =
  ({ hash, clock }: { hash: Hash; clock: Clock }, signer: ReceiptSigner) =>
  ({ call, requestDigest }: Exchange, { status, body }: RouteAnswer) => {
    const nowSeconds = Math.floor(clock.nowMs() / 1_000)
    const key = unsigned.has(status) ? undefined : signer.current(nowSeconds)
    if (key === undefined) return undefined
    const { method, target: path } = call
    return receiptHeaders(hash, { method, path, status, body, requestDigest }, key, nowSeconds)
  }

export function directoryAnswer({ receiptKeys }: Pick<LedgerFacts, 'receiptKeys'>): RouteAnswer {
  if (receiptKeys.size === 0)
    return refusalAnswer(refuse('route_not_found', 'this gateway signs no receipts'))
  return json(200, { keys: [...receiptKeys.values()].map(jwkOf) })
}

export interface Steps {
  readonly hash: Hash
  readonly budget: Budget
  readonly catchUp?: ((logEnd: number | undefined) => Promise<void>) | undefined
  readonly nowMs: () => number
  /** Shutting down (robustness §4). */
  readonly closed: () => Refusal | undefined
  readonly gate: Gate
  /** `undefined`: no place is left. */
  readonly inFlight: (
    exchange: Exchange,
    work: () => Promise<RouteAnswer>,
  ) => Promise<RouteAnswer> | undefined
  readonly reserve: (exchange: Exchange, bytes: number) => boolean
  readonly corsOrigins: readonly string[]
  readonly receipt?: ((exchange: Exchange, answer: RouteAnswer) => ReceiptHeaders) | undefined
}

interface Route {
  readonly operation: Operation
  readonly pattern: RegExp
  readonly run: Handler
}
interface Match {
  readonly route: Route
  readonly params: Params
}
type Params = Readonly<Record<string, string>>

export function createRoutes(
  handlers: Handlers,
  steps: Steps,
): (exchange: Exchange) => Promise<Answered> {
  const table = (Object.keys(operations) as OperationId[]).map((id) => {
    const operation = operations[id]
    const source = operation.path.replaceAll('.', '\\.').replaceAll(/\{(\w+)\}/g, '(?<$1>[^/]+)')
    return { operation, pattern: new RegExp(`^${source}$`), run: handlers[id] as Handler }
  })
  const matched = (target: string) => {
    for (const route of isPlainPath(target) ? table : []) {
      const match = route.pattern.exec(target)
      if (match) return { route, params: match.groups ?? {} }
    }
    return undefined
  }
  return async (exchange) => {
    const match = matched(exchange.call.target)
    return respond(steps, exchange, await answered(steps, match, exchange))
  }
}

function routeNotFound() {
  return refuse(
    'route_not_found',
    'route not found; paths are exact, without trailing slash, query or percent-encoding (see /openapi.json)',
  )
}

async function answered(steps: Steps, match: Match | undefined, exchange: Exchange) {
  const { method, refused } = exchange.call
  const operation = match?.route.operation
  const isOurs = operation?.method === method
  const isFree = operation?.tag === 'Gateway'
  if (operation) exchange.route = operation.path
  exchange.isReceipted = isOurs && !isFree
  try {
    const shed = steps.closed() ?? (await lateness(steps, exchange))
    if (refused && (!isOurs || isFree)) return refusalAnswer(refused)
    if (!match || !operation) return refusalAnswer(routeNotFound())
    if (!isOurs)
      return preflight(steps, exchange, operation.method) ?? wrongMethod(operation.method)
    const { route, params } = match
    if (isFree) return await route.run({ params, body: undefined, exchange })
    return withBudget(exchange, await charged(steps, route, params, exchange, shed))
  } catch (error) {
    return withBudget(exchange, refusalAnswer(itemRefusal(exchange, error)))
  }
}

function withBudget({ charge }: Exchange, answer: RouteAnswer) {
  return charge ? { ...answer, headers: { ...budgetHeaders(charge), ...answer.headers } } : answer
}

function wrongMethod(allow: string) {
  const answer = refusalAnswer(refuse('method_not_allowed', `this route accepts ${allow} only`))
  return { ...answer, headers: { allow } }
}

/** For configured origins only and free of charge (contract §2, §7). */
function preflight(steps: Steps, { call }: Exchange, allow: string) {
  const origin = call.header('origin')
  if (call.method !== 'OPTIONS' || origin === undefined || !steps.corsOrigins.includes(origin))
    return undefined
  return {
    status: 204,
    body: '',
    headers: {
      'access-control-allow-methods': allow,
      'access-control-allow-headers': 'content-type, content-digest',
      'access-control-max-age': '600',
    },
  }
}

/** Whatever refuses before the charge costs one item (contract §2). */
async function charged(
  steps: Steps,
  { operation, run }: Route,
  params: Params,
  exchange: Exchange,
  shed: Refusal | undefined,
) {
  const early =
    exchange.call.refused ?? shed ?? paramFault(params) ?? headerFault(operation, exchange)
  if (early) return chargedRefusal(steps, exchange, early)
  let body: unknown
  if (operation.body) {
    // Nothing is read for a caller whose budget is spent; the charge that follows refuses.
    if (isSpent(steps, exchange))
      return (await charge(steps, exchange, 1)) ?? refusalAnswer(overBudget(exchange))
    const bytes = await readBody(steps, operation.body.limitBytes, exchange)
    if (!(bytes instanceof Uint8Array)) return chargedRefusal(steps, exchange, bytes)
    const wrong = digestFault(steps, exchange, bytes)
    if (wrong) return chargedRefusal(steps, exchange, wrong)
    const read = readJson(bytes)
    if (!read.ok) return chargedRefusal(steps, exchange, refuse('invalid_json', read.detail))
    body = read.value
  }
  const refused = await charge(steps, exchange, itemsOf(operation, body))
  if (refused) return refused
  if (operation.body?.admission && hasAncillaryKey(body)) {
    return refusalAnswer(
      refuse(
        'ancillary_data_not_allowed',
        'ancillary data is not accepted at admission: the gateway reads it from the chain; remove every ancillary field',
      ),
    )
  }
  const running = steps.inFlight(exchange, async () => {
    const judged = judgedBody(operation, body)
    return 'refusal' in judged ? judged.refusal : run({ params, body: judged.body, exchange })
  })
  return running ?? refusalAnswer(refuse('server_busy', 'too many calls are in flight'))
}

function judgedBody({ body, tag }: Operation, input: unknown) {
  const parsed = body?.type.safeParse(input)
  if (!parsed) return { body: undefined }
  if (parsed.success) return { body: parsed.data }
  const faultOf = tag === 'Batch' ? schemaViolation : singleFault
  return { refusal: refusalAnswer(faultOf(parsed.error.issues, input)) }
}

/** Answers that are free wait too; the refusal is for charged calls alone. */
async function lateness({ gate, nowMs }: Steps, exchange: Exchange) {
  const sinceMs = nowMs() - exchange.waitedMs
  const goesOn = await gate(exchange.client, sinceMs)
  exchange.waitedMs = nowMs() - sinceMs
  return goesOn ? undefined : refuse('server_busy', tooLong)
}

async function chargedRefusal(steps: Steps, exchange: Exchange, refusal: Refusal) {
  // The refusal stands whatever the budget says: it tells more than 429 would.
  await charge(steps, exchange, 1)
  return refusalAnswer(refusal)
}

/** In process nothing is charged (contract §6). */
async function charge(steps: Steps, exchange: Exchange, items: number) {
  exchange.items = items
  if (exchange.call.charged !== false) {
    exchange.charge = await steps.budget.charge(exchange.client, items, steps.nowMs())
    if (!exchange.charge.admitted) return refusalAnswer(overBudget(exchange))
  }
  await steps.catchUp?.(exchange.charge?.logEnd)
  return undefined
}

function isSpent(steps: Steps, exchange: Exchange) {
  return exchange.call.charged !== false && steps.budget.spent(exchange.client, steps.nowMs())
}

function overBudget(exchange: Exchange) {
  const seconds = exchange.charge?.retryAfterSeconds ?? 1
  const limit = exchange.charge?.limitItems ?? 0
  const split =
    exchange.items > limit ? `; a call of ${exchange.items} items never fits: split it` : ''
  return {
    ...refuse(
      'rate_limited',
      `rate limit reached: ${limit} items per window${split}; retry in ${seconds} seconds`,
    ),
    retryAfterSeconds: seconds,
  }
}

function itemsOf(operation: Operation, body: unknown) {
  const list = operation.body?.list
  if (list === undefined || typeof body !== 'object' || body === null) return 1
  const entries: unknown = (body as Record<string, unknown>)[list]
  return Array.isArray(entries) ? Math.max(1, entries.length) : 1
}

function paramFault(params: Params) {
  for (const [name, text] of Object.entries(params)) {
    const { type, form } = parameters[name as ParameterName]
    if (!type.safeParse(text).success)
      return refuse('invalid_identifier', `${name} in the path must be ${form}`)
  }
  return undefined
}

function headerFault({ body }: Operation, { call }: Exchange) {
  const expect = call.header('expect')
  if (expect !== undefined && expect.toLowerCase() !== '100-continue') {
    return refuse(
      'expectation_failed',
      'the only supported Expect is 100-continue; send the request without it',
    )
  }
  if (!body) return undefined
  if (
    !/^application\/json\s*(;\s*charset="?utf-8"?\s*)?$/i.test(call.header('content-type') ?? '')
  ) {
    return refuse(
      'unsupported_media_type',
      'the body must be JSON in UTF-8; send Content-Type: application/json',
    )
  }
  if (call.header('content-encoding') !== undefined) {
    return refuse(
      'unsupported_encoding',
      'compressed bodies are not supported; send plain JSON without Content-Encoding',
    )
  }
  const length = call.header('content-length')
  return length !== undefined && Number(length) > body.limitBytes
    ? tooLarge(body.limitBytes)
    : undefined
}

function tooLarge(limitBytes: number) {
  return refuse(
    'payload_too_large',
    `the body is larger than the ${limitBytes} bytes that this route accepts; send smaller batches`,
  )
}

function digestFault({ hash }: Steps, exchange: Exchange, bytes: Uint8Array) {
  const sent = exchange.call.header('content-digest')
  if (sent === undefined) return undefined
  const verdict = judgeDigest(hash, sent, bytes)
  if (verdict === 'same') exchange.requestDigest = sent.trim()
  if (verdict === 'differs')
    return refuse(
      'bad_digest',
      'the body is not the one that Content-Digest is of; something on the way changed it, or the header is wrong: send both again',
    )
  return verdict === 'malformed'
    ? refuse(
        'bad_digest',
        'Content-Digest must be sha-256=:<base64 of the SHA-256 of the body>: (RFC 9530); correct it, or leave it out',
      )
    : undefined
}

async function readBody(
  steps: Steps,
  limitBytes: number,
  exchange: Exchange,
): Promise<Uint8Array | Refusal> {
  try {
    return await exchange.call.readBody({
      limitBytes,
      reserve: (bytes) => steps.reserve(exchange, bytes),
    })
  } catch (error) {
    if (!(error instanceof BodyError)) throw error
    if (error.kind === 'too_large') return tooLarge(limitBytes)
    if (error.kind === 'no_room')
      return refuse('server_busy', 'the memory for request bodies is full')
    return refuse('request_timeout', 'the body is incomplete; send it again')
  }
}

function respond(steps: Steps, exchange: Exchange, given: RouteAnswer) {
  const { corsOrigins } = steps
  const answer =
    given.refusal?.status === 503 ? spreadAnswer(exchange, given, given.refusal) : given
  const receipt = exchange.isReceipted ? steps.receipt?.(exchange, answer) : undefined
  const headers: Record<string, string> = { ...commonHeaders, ...answer.headers, ...receipt }
  if (corsOrigins.length > 0) {
    headers.vary = 'Origin'
    const origin = exchange.call.header('origin')
    if (origin !== undefined && corsOrigins.includes(origin)) {
      headers['access-control-allow-origin'] = origin
      headers['access-control-expose-headers'] =
        'RateLimit-Limit, RateLimit-Remaining, RateLimit-Reset, Retry-After, Content-Digest, Signature-Input, Signature'
    }
  }
  exchange.code = answer.code
  return {
    status: answer.status,
    headers,
    body: answer.status === 204 || exchange.call.method === 'HEAD' ? '' : answer.body,
  }
}

/** With a time of its own to come back. */
function spreadAnswer({ requestId }: Exchange, { headers }: RouteAnswer, refusal: Refusal) {
  const answer = refusalAnswer(
    spread(refusal, Number.parseInt(requestId.slice(-4), 16) / 0x1_00_00),
  )
  return { ...answer, headers: { ...headers, ...answer.headers } }
}
