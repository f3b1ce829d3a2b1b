/**
 * What robustness §4 and contract §2 allow as an answer, written down a second time: by route,
 * status and code.
 */

import {
  type OperationId,
  type WireCode,
  wireFailure,
  wireFailures,
} from '../../../src/core/protocol/codes.js'
import { type Operation, operations } from '../../../src/core/protocol/service.js'
import type { FuzzedCall } from './calls.js'
import { keyOf } from './fronts.js'
import { tokens } from './mutate.js'

type Allowed = Readonly<Record<number, readonly string[]>>

interface RouteRule {
  readonly name: string
  readonly target: RegExp
  readonly method: 'GET' | 'POST'
  readonly refusals: Allowed
  readonly accepted: readonly number[]
  readonly items?: Allowed
}

const framing: Readonly<Record<number, string>> = { 400: 'bad_request', 431: 'headers_too_large' }

const segment = "[A-Za-z0-9._~!$&'()*+,;=:@-]+"
const never: readonly WireCode[] = ['request_timeout', 'internal_error']

function byStatus(has: (code: WireCode) => boolean): Allowed {
  const found: Record<number, string[]> = {}
  for (const code of Object.keys(wireFailures) as WireCode[]) {
    const { status } = wireFailure(code)
    if (has(code) && !never.includes(code)) found[status] = [...(found[status] ?? []), code]
  }
  return found
}

const rules = (Object.entries(operations) as [OperationId, Operation][]).map(
  ([id, { method, path, tag, word, body, answers }]): RouteRule => {
    const isFree = tag === 'Gateway'
    const refuses = { connection: !isFree, charged: !isFree, body: body !== undefined }
    return {
      name: word ?? 'own',
      target: new RegExp(`^${path.replaceAll('.', '\\.').replaceAll(/\{\w+\}/g, segment)}$`),
      method,
      accepted: Object.keys(answers).map(Number),
      refusals: byStatus((code) => {
        const { by } = wireFailure(code)
        return typeof by === 'string' ? refuses[by] : by.includes(id)
      }),
      ...(tag === 'Batch' && {
        items: byStatus((code) => wireFailure(code).items?.includes(id) ?? false),
      }),
    }
  },
)

export interface SeenAnswer {
  readonly status: number
  readonly headers: Headers
  readonly text: string
}

export interface Known {
  readonly signedKeys: ReadonlySet<string>
  readonly idOf: ReadonlyMap<string, string>
  readonly onSocket?: true
}

interface ErrorBody {
  readonly error: { readonly code: string; readonly detail: string }
  readonly errors?: readonly { readonly path: string; readonly code: string }[]
}
interface Result {
  readonly status_code: number
  readonly error?: ErrorBody['error']
  readonly client_ref?: string | null
  readonly identifier?: string
  readonly candidate_id?: string
}

const uuid = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/

function isErrorBody(value: unknown): value is ErrorBody {
  if (typeof value !== 'object' || value === null) return false
  const { error, errors, ...rest } = value as Record<string, unknown>
  if (Object.keys(rest).length > 0 || typeof error !== 'object' || error === null) return false
  const { code, detail, ...more } = error as Record<string, unknown>
  if (
    typeof code !== 'string' ||
    typeof detail !== 'string' ||
    detail === '' ||
    Object.keys(more).length > 0
  )
    return false
  return errors === undefined || Array.isArray(errors)
}

export function faultOf(call: FuzzedCall, answer: SeenAnswer, known: Known): string | undefined {
  const { status, headers, text } = answer
  if (status >= 500 && status !== 503) return `status ${status}`
  for (const [name, value] of headers)
    if (tokens.some((token) => `${name} ${value}`.toLowerCase().includes(token.toLowerCase())))
      return `echo in header ${name}`
  if (headers.get('cache-control') !== 'no-store') return 'no cache-control'
  if (status === 503 || status === 429) {
    if (!/^[1-9]\d*$/.test(headers.get('retry-after') ?? '')) return `${status} without Retry-After`
  }
  // To HEAD nothing but the status is told.
  if (call.method === 'HEAD') return status < 400 ? 'HEAD was served' : undefined
  const body = parsed(text)
  if (body === undefined) return 'the body is not JSON'
  if (known.onSocket && isErrorBody(body) && framing[status] === body.error.code)
    return echoIn(text)
  const rule = ruleOf(call)
  if (rule === undefined) return foreignFault(call, status, body) ?? echoIn(text)
  if (rule.name === 'own')
    return (
      (status === 200 || (status === 503 && call.target === '/readyz')
        ? undefined
        : `status ${status}`) ?? echoIn(text)
    )
  if (!rule.accepted.includes(status)) {
    if (!isErrorBody(body)) return 'no error body'
    if (!rule.refusals[status]?.includes(body.error.code))
      return `${status} ${body.error.code} at ${rule.name}`
    if (body.errors !== undefined && body.error.code !== 'schema_violation')
      return 'errors beside another code'
    return echoIn(text)
  }
  if (rule.items) return itemsFault(call, rule, body, known)
  if (rule.name === 'submit') {
    const { candidate_id: id } = body as { candidate_id?: unknown }
    if (typeof id !== 'string' || !uuid.test(id)) return 'accepted without a candidate id'
    const questionId = known.idOf.get(call.target.slice('/v1/proposals/'.length))
    if (!known.signedKeys.has(keyOf(questionId, parsedBody(call) as never)))
      return 'admitted what nobody signed'
  }
  return echoIn(text)
}

export const ruleOf = (call: Pick<FuzzedCall, 'method' | 'target'>): RouteRule | undefined =>
  isPlain(call.target)
    ? rules.find(({ target, method }) => target.test(call.target) && method === call.method)
    : undefined

const isPlain = (target: string) =>
  target.length <= 512 && !target.split('/').some((part) => part === '.' || part === '..')

function foreignFault(call: FuzzedCall, status: number, body: unknown): string | undefined {
  if (!isErrorBody(body)) return 'no error body'
  const { code } = body.error
  const knownPath = isPlain(call.target) && rules.some(({ target }) => target.test(call.target))
  const expected = knownPath ? '405 method_not_allowed' : '404 route_not_found'
  return `${status} ${code}` === expected ? undefined : `${status} ${code} instead of ${expected}`
}

function itemsFault(
  call: FuzzedCall,
  rule: RouteRule,
  body: unknown,
  known: Known,
): string | undefined {
  const { results, ...rest } = body as { results: Result[] }
  const [list] = Object.values(parsedBody(call) as Record<string, unknown[]>)
  if (!Array.isArray(results) || results.length !== list?.length) return 'not one result an item'
  for (const [at, result] of results.entries()) {
    if (result.error) {
      if (!rule.items?.[result.status_code]?.includes(result.error.code))
        return `item ${result.status_code} ${result.error.code} at ${rule.name}`
    } else if (rule.name === 'batch submit') {
      if (result.status_code !== 200 && result.status_code !== 202)
        return `item ${result.status_code} without an error`
      const item = list[at] as { identifier: string }
      if (!known.signedKeys.has(keyOf(known.idOf.get(item.identifier), item as never)))
        return 'admitted an item that nobody signed'
    } else if (result.status_code !== 200) return `item ${result.status_code} without an error`
  }
  // Correlation and identifiers stand in their results by design (§2.7, contract §4).
  const bare = results.map(
    ({ client_ref: _ref, identifier: _identifier, candidate_id: _id, ...other }) => other,
  )
  return echoIn(JSON.stringify([bare, rest]))
}

const echoIn = (text: string): string | undefined => {
  const lower = text.toLowerCase()
  return tokens.some((token) => lower.includes(token.toLowerCase()))
    ? 'echo of the input'
    : undefined
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

const parsedBody = (call: FuzzedCall): unknown => parsed(new TextDecoder().decode(call.body))
