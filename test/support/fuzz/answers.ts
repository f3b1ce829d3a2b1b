/**
 * What an answer to a fuzzed call may not be, beside what the OpenAPI document says of each answer:
 * an echo, an admission that nobody signed, an item with a code of another route (robustness §4).
 */
import { type OperationId, wireFailure, wireFailures } from '#protocol/codes'
import { operations } from '#protocol/service'
import type { FuzzedCall } from './calls.js'
import { keyOf } from './fronts.js'
import { tokens } from './mutate.js'

export interface SeenAnswer {
  readonly status: number
  readonly headers: Headers
  readonly text: string
}

export interface Known {
  readonly signedKeys: ReadonlySet<string>
  readonly idOf: ReadonlyMap<string, string>
}

interface Result {
  readonly status_code: number
  readonly error?: { readonly code: string }
  readonly client_ref?: string | null
  readonly identifier?: string
  readonly candidate_id?: string
}

export function faultOf(call: FuzzedCall, answer: SeenAnswer, known: Known): string | undefined {
  const { status, headers, text } = answer
  if (status >= 500 && status !== 503) return `status ${status}`
  const echo = echoIn([...headers].join())
  if (echo !== undefined) return echo
  if (headers.get('cache-control') !== 'no-store') return 'no cache-control'
  if ((status === 503 || status === 429) && !/^[1-9]\d*$/.test(headers.get('retry-after') ?? ''))
    return `${status} without Retry-After`
  // To HEAD nothing but the status is told.
  if (call.method === 'HEAD') return status < 400 ? 'HEAD was served' : undefined
  const body = parsed(text)
  if (typeof body !== 'object' || body === null) return 'the body is not JSON'
  if ('results' in body) return itemsFault(call, body as { results: Result[] }, known)
  if (call.method === 'POST' && 'candidate_id' in body) {
    const questionId = known.idOf.get(call.target.slice('/v1/proposals/'.length))
    if (!known.signedKeys.has(keyOf(questionId, parsedBody(call) as never)))
      return 'admitted what nobody signed'
  }
  return echoIn(text)
}

function itemsFault(
  call: FuzzedCall,
  { results, ...rest }: { results: Result[] },
  known: Known,
): string | undefined {
  const [list] = Object.values(parsedBody(call) as Record<string, unknown[]>)
  if (results.length !== list?.length) return 'not one result an item'
  const id = (Object.keys(operations) as OperationId[]).find(
    (each) => operations[each].path === call.target,
  )
  for (const [at, { status_code: status, error }] of results.entries()) {
    const isOwn = (code: string) =>
      id !== undefined && code in wireFailures && isOf(code as keyof typeof wireFailures, id)
    if (error) {
      if (!isOwn(error.code)) return `item ${status} ${error.code} at ${call.target}`
    } else if (status !== 200 && !(status === 202 && call.target === '/propose/batch'))
      return `item ${status} without an error`
    else if (call.target === '/propose/batch') {
      const item = list[at] as { identifier: string }
      if (!known.signedKeys.has(keyOf(known.idOf.get(item.identifier), item as never)))
        return 'admitted an item that nobody signed'
    }
  }
  // Correlation and identifiers stand in their results by design (§2.7, contract §4).
  const bare = results.map(
    ({ client_ref: _ref, identifier: _identifier, candidate_id: _id, ...other }) => other,
  )
  return echoIn(JSON.stringify([bare, rest]))
}

const isOf = (code: keyof typeof wireFailures, id: OperationId) =>
  wireFailure(code).items?.includes(id) ?? false

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
