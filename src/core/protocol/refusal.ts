/** On the wire (§7, contract §2). */
import { type WireCode, wireFailure } from './codes.js'
import type { FieldFault } from './errors.js'
import { withoutNodeWords } from './node-words.js'
import type { WireError } from './schema.js'

export interface Refusal {
  readonly status: number
  readonly code: WireCode
  readonly detail: string
  readonly errors?: readonly FieldFault[]
  readonly retryAfterSeconds?: number
}

/** Who gets a 503 never reads what a node said (contract §2). */
export function refuse(
  code: WireCode,
  detail: string,
  rest: Pick<Refusal, 'errors'> = {},
): Refusal {
  const { status, retryAfterSeconds: seconds } = wireFailure(code)
  return seconds === undefined
    ? { status, code, detail, ...rest }
    : { status, code, detail: withoutNodeWords(detail), retryAfterSeconds: seconds, ...rest }
}

/** So that all who are refused at once do not return at once. */
export function spread(refusal: Refusal, share: number): Refusal {
  const { status, retryAfterSeconds: seconds } = refusal
  if (status !== 503 || seconds === undefined) return refusal
  const choices = Math.max(3, Math.ceil(seconds / 2))
  return { ...refusal, retryAfterSeconds: seconds + Math.floor(share * choices) }
}

export function wireError(refusal: Refusal): WireError {
  const { status, code, detail, retryAfterSeconds: seconds } = refusal
  return status === 503 && seconds !== undefined
    ? { code, detail: `${detail}; nothing was committed; retry in ${seconds} seconds` }
    : { code, detail }
}

export const refusalBody = (refusal: Refusal) =>
  JSON.stringify({ error: wireError(refusal), errors: refusal.errors })

/** On every answer (robustness §5). */
export const commonHeaders = {
  'content-type': 'application/json',
  'cache-control': 'no-store',
  'x-content-type-options': 'nosniff',
} as const
