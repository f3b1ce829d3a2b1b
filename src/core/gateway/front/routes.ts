/**
 * Every route goes through the same steps (§4, robustness §4): method, path, headers, body bytes,
 * strict JSON, charge, schema.
 */
import type * as z from 'zod/mini'
import type { Clock, Hash } from '#ports'
import { type Answered, BodyError, type Call, type RequestRecord } from '#protocol/call'
import type { OperationId, WireCode } from '#protocol/codes'
import { ProposerError, StorageError } from '#protocol/errors'
import { hasAncillaryKey, schemaViolation, singleFault } from '#protocol/faults'
import { readJson } from '#protocol/json'
import { judgeDigest, jwkOf, receiptHeaders } from '#protocol/receipt'
import { commonHeaders, type Refusal, refusalBody, refuse, spread } from '#protocol/refusal'
import { type Operation, operations, type ParameterName, parameters } from '#protocol/service'
import type { LedgerFacts } from '../ledger/ledger.js'
import { type Budget, budgetHeaders, type Charge } from './budget.js'
import { type Gate, tooLong } from './line.js'

export interface RouteAnswer {
  readonly status: number
  readonly body: string
  readonly headers?: Readonly<Record<string, string>>
}

export class Refused extends Error {
  constructor(readonly refusal: Refusal) {
    super(refusal.code)
    this.name = 'Refused'
  }
}

export function deny(...why: Parameters<typeof refuse>): never {
  throw new Refused(refuse(...why))
}

export const json = (status: number, body: object) => ({ status, body: JSON.stringify(body) })

export const refusalAnswer = (refusal: Refusal): RouteAnswer => ({
  status: refusal.status,
  body: refusalBody(refusal),
  ...(refusal.retryAfterSeconds !== undefined && {
    headers: { 'retry-after': String(refusal.retryAfterSeconds) },
  }),
})

function knownRefusal(error: unknown): Refusal | undefined {
  if (error instanceof Refused) return error.refusal
  if (!(error instanceof ProposerError)) return undefined
  switch (error.code) {
    case 'state_unavailable':
      return refuse('state_unavailable', `the chain's state is not known: ${error.detail}`)
    case 'slug_unavailable':
      return refuse('state_unavailable', error.detail)
    case 'store_unavailable':
    case 'store_fenced':
    case 'store_read_only':
      return refuse('store_unavailable', 'the store does not accept writes now')
    case 'server_busy':
      return refuse(
        'server_busy',
        error instanceof StorageError ? 'too many writes are waiting for the disk' : error.detail,
      )
    default:
      return undefined
  }
}

export function refusalOf(exchange: Exchange, error: unknown): Refusal {
  const refusal = knownRefusal(error)
  if (refusal !== undefined) return refusal
  // A failed sync has an unknown outcome and must not read like a 503 (R10, contract §2).
  const isFailedSync = error instanceof ProposerError && error.code === 'store_failed'
  if (!isFailedSync) exchange.bug = bugOf(error)
  // Nothing is shown but the id under which it is logged (robustness §4).
  return refuse(
    'internal_error',
    `the gateway failed and the outcome of this call is unknown; to settle a submission, replay exactly the same payload (request ${exchange.requestId})`,
  )
}

export type Exchange = ReturnType<typeof newExchange>

export const newExchange = (call: Call, requestId: string, client: string, waitedMs: number) => ({
  call,
  requestId,
  client,
  waitedMs,
  route: 'unmatched',
  items: 0,
  charge: undefined as Charge | undefined,
  code: undefined as WireCode | undefined,
  bug: undefined as RequestRecord['bug'],
  reservedBytes: 0,
  isReceipted: false,
  requestDigest: undefined as string | undefined,
})

/** The message stays out: it may quote what was sent (R5). */
function bugOf(error: unknown): RequestRecord['bug'] {
  if (!(error instanceof Error)) return { name: typeof error, frames: [] }
  const lines = (error.stack ?? '').split('\n').map((line) => line.trim())
  return { name: error.name, frames: lines.filter((line) => line.startsWith('at ')).slice(0, 6) }
}

/** 512 bytes, no percent sign, no empty or dot segment (robustness §4). */
export function isPlainPath(target: string) {
  return target.length <= 512 && /^(\/(?!\.{1,2}(\/|$))[\w.~!$&'()*+,;=:@-]+)+$/.test(target)
}

type BodyOf<Id extends OperationId> = (typeof operations)[Id] extends {
  readonly body: { readonly type: infer Type extends z.ZodMiniType }
}
  ? z.infer<Type>
  : undefined

export type Handler<Body = unknown> = (call: {
  readonly params: Readonly<Record<string, string>>
  readonly body: Body
  readonly exchange: Exchange
}) => RouteAnswer | Promise<RouteAnswer>
export type Handlers<Ids extends OperationId = OperationId> = {
  readonly [Id in Ids]: Handler<BodyOf<Id>>
}

export interface ReceiptSigner {
  current(
    nowSeconds: number,
  ): { readonly kid: string; readonly sign: (bytes: Uint8Array) => Uint8Array } | undefined
}

/** Nothing was admitted, and whoever floods the gateway must not make it sign (R19). */
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

export function directoryAnswer({ receiptKeys }: Pick<LedgerFacts, 'receiptKeys'>) {
  if (receiptKeys.size === 0) deny('route_not_found', 'this gateway signs no receipts')
  return json(200, { keys: [...receiptKeys.values()].map(jwkOf) })
}

export interface Steps {
  readonly hash: Hash
  readonly budget: Budget
  readonly catchUp?: ((logEnd: number | undefined) => Promise<void>) | undefined
  readonly nowMs: () => number
  readonly closed: () => Refusal | undefined
  readonly gate: Gate
  readonly inFlight: <T>(exchange: Exchange, work: () => Promise<T>) => Promise<T>
  readonly reserve: (exchange: Exchange, bytes: number) => boolean
  readonly corsOrigins: readonly string[]
  readonly receipt?: ReturnType<typeof createReceiptSigning> | undefined
}

interface Match {
  readonly operation: Operation
  readonly run: Handler
  readonly params: Readonly<Record<string, string>>
}

export function createRoutes(
  handlers: Handlers,
  steps: Steps,
): (exchange: Exchange) => Promise<Answered> {
  const table = (Object.keys(operations) as OperationId[]).map((id) => {
    const operation: Operation = operations[id]
    const source = operation.path.replaceAll('.', '\\.').replaceAll(/\{(\w+)\}/g, '(?<$1>[^/]+)')
    return { operation, pattern: new RegExp(`^${source}$`), run: handlers[id] as Handler }
  })
  const matched = (target: string): Match | undefined => {
    for (const { pattern, operation, run } of isPlainPath(target) ? table : []) {
      const match = pattern.exec(target)
      if (match) return { operation, run, params: match.groups ?? {} }
    }
    return undefined
  }
  return async (exchange) => {
    const match = matched(exchange.call.target)
    return respond(steps, exchange, await answered(steps, match, exchange))
  }
}

async function answered(
  steps: Steps,
  match: Match | undefined,
  exchange: Exchange,
): Promise<RouteAnswer> {
  const { method, refused } = exchange.call
  const isOurs = match?.operation.method === method
  const isFree = match?.operation.tag === 'Gateway'
  if (match) exchange.route = match.operation.path
  exchange.isReceipted = isOurs && !isFree
  try {
    const shed = steps.closed() ?? (await lateness(steps, exchange))
    if (refused && (!isOurs || isFree)) throw new Refused(refused)
    if (!match)
      deny(
        'route_not_found',
        'route not found; paths are exact, without trailing slash, query or percent-encoding (see /openapi.json)',
      )
    if (!isOurs) return otherMethod(steps, exchange, match.operation.method)
    if (!isFree) return await charged(steps, match, exchange, refused ?? shed)
    return await match.run({ params: match.params, body: undefined, exchange })
  } catch (error) {
    const share = Number.parseInt(exchange.requestId.slice(-4), 16) / 0x1_00_00
    const refusal = spread(refusalOf(exchange, error), share)
    exchange.code = refusal.code
    return refusalAnswer(refusal)
  }
}

/** Preflight is for configured origins only and free of charge (contract §2, §7). */
function otherMethod({ corsOrigins }: Steps, exchange: Exchange, allow: string): RouteAnswer {
  const { method, header } = exchange.call
  const origin = header('origin')
  if (method !== 'OPTIONS' || origin === undefined || !corsOrigins.includes(origin)) {
    exchange.code = 'method_not_allowed'
    const refusal = refuse(exchange.code, `this route accepts ${allow} only`)
    return { ...refusalAnswer(refusal), headers: { allow } }
  }
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

async function charged(
  steps: Steps,
  { operation, run, params }: Match,
  exchange: Exchange,
  early: Refusal | undefined,
) {
  let body: unknown
  try {
    if (early) throw new Refused(early)
    requireParams(params)
    requireHeaders(operation, exchange)
    // Nothing is read for a caller whose budget is spent; the charge that follows refuses.
    if (operation.body && !isSpent(steps, exchange))
      body = await jsonBody(steps, operation.body.limitBytes, exchange)
  } catch (error) {
    // Whatever refuses before the charge costs one item (contract §2); it tells more than 429 would.
    await charge(steps, exchange, 1)
    throw error
  }
  const isAdmitted = await charge(steps, exchange, itemsOf(operation, body))
  if (!isAdmitted || (operation.body && body === undefined)) overBudget(exchange)
  if (operation.body?.admission && hasAncillaryKey(body))
    deny(
      'ancillary_data_not_allowed',
      'ancillary data is not accepted at admission: the gateway reads it from the chain; remove every ancillary field',
    )
  return steps.inFlight(exchange, async () =>
    run({ params, body: judgedBody(operation, body), exchange }),
  )
}

function judgedBody({ body, tag }: Operation, input: unknown) {
  const parsed = body?.type.safeParse(input)
  if (!parsed) return undefined
  if (parsed.success) return parsed.data
  const faultOf = tag === 'Batch' ? schemaViolation : singleFault
  throw new Refused(faultOf(parsed.error.issues, input))
}

async function lateness({ gate, nowMs }: Steps, exchange: Exchange) {
  const sinceMs = nowMs() - exchange.waitedMs
  const goesOn = await gate(exchange.client, sinceMs)
  exchange.waitedMs = nowMs() - sinceMs
  return goesOn ? undefined : refuse('server_busy', tooLong)
}

/** False where the budget refuses. In process nothing is charged (contract §6). */
async function charge(steps: Steps, exchange: Exchange, items: number) {
  exchange.items = items
  if (exchange.call.charged !== false) {
    exchange.charge = await steps.budget.charge(exchange.client, items, steps.nowMs())
    if (!exchange.charge.admitted) return false
  }
  await steps.catchUp?.(exchange.charge?.logEnd)
  return true
}

const isSpent = ({ budget, nowMs }: Steps, { call, client }: Exchange) =>
  call.charged !== false && budget.spent(client, nowMs())

function overBudget({ charge, items }: Exchange): never {
  const retryAfterSeconds = charge?.retryAfterSeconds ?? 1
  const limit = charge?.limitItems ?? 0
  const split = items > limit ? `; a call of ${items} items never fits: split it` : ''
  const detail = `rate limit reached: ${limit} items per window${split}; retry in ${retryAfterSeconds} seconds`
  throw new Refused({ ...refuse('rate_limited', detail), retryAfterSeconds })
}

function itemsOf(operation: Operation, body: unknown) {
  const list = operation.body?.list
  const entries = list && (Object(body) as Record<string, unknown>)[list]
  return Array.isArray(entries) ? Math.max(1, entries.length) : 1
}

function requireParams(params: Match['params']) {
  for (const [name, text] of Object.entries(params)) {
    const { type, form } = parameters[name as ParameterName]
    if (!type.safeParse(text).success)
      deny('invalid_identifier', `${name} in the path must be ${form}`)
  }
}

function requireHeaders({ body }: Operation, { call }: Exchange) {
  const expect = call.header('expect')
  if (expect !== undefined && expect.toLowerCase() !== '100-continue')
    deny(
      'expectation_failed',
      'the only supported Expect is 100-continue; send the request without it',
    )
  if (!body) return
  if (!/^application\/json\s*(;\s*charset="?utf-8"?\s*)?$/i.test(call.header('content-type') ?? ''))
    deny(
      'unsupported_media_type',
      'the body must be JSON in UTF-8; send Content-Type: application/json',
    )
  if (call.header('content-encoding') !== undefined)
    deny(
      'unsupported_encoding',
      'compressed bodies are not supported; send plain JSON without Content-Encoding',
    )
  if (Number(call.header('content-length') ?? 0) > body.limitBytes) tooLarge(body.limitBytes)
}

function tooLarge(limitBytes: number): never {
  deny(
    'payload_too_large',
    `the body is larger than the ${limitBytes} bytes that this route accepts; send smaller batches`,
  )
}

async function jsonBody(steps: Steps, limitBytes: number, exchange: Exchange) {
  const bytes = await readBody(steps, limitBytes, exchange)
  requireDigest(steps, exchange, bytes)
  const read = readJson(bytes)
  return read.ok ? read.value : deny('invalid_json', read.detail)
}

function requireDigest({ hash }: Steps, exchange: Exchange, bytes: Uint8Array) {
  const sent = exchange.call.header('content-digest')
  if (sent === undefined) return
  const verdict = judgeDigest(hash, sent, bytes)
  if (verdict === 'same') exchange.requestDigest = sent.trim()
  else if (verdict !== 'unknown') deny('bad_digest', digestFaults[verdict])
}

const digestFaults = {
  differs:
    'the body is not the one that Content-Digest is of; something on the way changed it, or the header is wrong: send both again',
  malformed:
    'Content-Digest must be sha-256=:<base64 of the SHA-256 of the body>: (RFC 9530); correct it, or leave it out',
}

async function readBody(steps: Steps, limitBytes: number, exchange: Exchange) {
  const reserve = (bytes: number) => steps.reserve(exchange, bytes)
  try {
    return await exchange.call.readBody({ limitBytes, reserve })
  } catch (error) {
    if (!(error instanceof BodyError)) throw error
    if (error.kind === 'too_large') tooLarge(limitBytes)
    if (error.kind === 'no_room') deny('server_busy', 'the memory for request bodies is full')
    deny('request_timeout', 'the body is incomplete; send it again')
  }
}

function respond({ corsOrigins, receipt }: Steps, exchange: Exchange, answer: RouteAnswer) {
  const { call, charge, isReceipted } = exchange
  const headers: Record<string, string> = {
    ...commonHeaders,
    ...(charge && budgetHeaders(charge)),
    ...answer.headers,
    ...(isReceipted && receipt?.(exchange, answer)),
  }
  if (corsOrigins.length > 0) {
    headers.vary = 'Origin'
    const origin = call.header('origin')
    if (origin !== undefined && corsOrigins.includes(origin)) {
      headers['access-control-allow-origin'] = origin
      headers['access-control-expose-headers'] =
        'RateLimit-Limit, RateLimit-Remaining, RateLimit-Reset, Retry-After, Content-Digest, Signature-Input, Signature'
    }
  }
  const isBare = answer.status === 204 || call.method === 'HEAD'
  return { status: answer.status, headers, body: isBare ? '' : answer.body }
}
