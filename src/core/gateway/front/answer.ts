/** What the gateway answers, as plain data. */

import type { WireCode } from '../../protocol/codes.js'
import { ProposerError, StorageError } from '../../protocol/errors.js'
import { type Refusal, refusalBody, refuse } from '../../protocol/refusal.js'
import { type Exchange, noteBug } from './exchange.js'

/** An answer before it gets its common headers. `code` is for the request log. */
export interface RouteAnswer {
  readonly status: number
  readonly body: string
  readonly code?: WireCode
  readonly headers?: Readonly<Record<string, string>>
  /** Of a refusal: what `body` and `headers` were made of. */
  readonly refusal?: Refusal
}

/** A JSON answer. */
export function json(status: number, body: object): RouteAnswer {
  return { status, body: JSON.stringify(body) }
}

/** The answer of a refusal (§7). */
export function refusalAnswer(refusal: Refusal): RouteAnswer {
  return {
    status: refusal.status,
    body: refusalBody(refusal),
    code: refusal.code,
    refusal,
    ...(refusal.retryAfterSeconds === undefined
      ? {}
      : { headers: { 'retry-after': String(refusal.retryAfterSeconds) } }),
  }
}

/**
 * A bug of ours, or a store whose last write is unknown: nothing is shown but the id under which it
 * is logged (robustness §4).
 */
function internalError(requestId: string): Refusal {
  return refuse(
    'internal_error',
    `the gateway failed and the outcome of this call is unknown; to settle a submission, replay exactly the same payload (request ${requestId})`,
  )
}

/**
 * The refusal that an error of the store or the chain view stands for, or `undefined` for anything
 * else, which is a bug. A failed sync (`store_failed`) has an unknown outcome and must not read
 * like a 503 (R10, contract §2).
 */
export function refusalOf(error: unknown, requestId: string): Refusal | undefined {
  if (!(error instanceof ProposerError)) return undefined
  switch (error.code) {
    case 'state_unavailable':
      return refuse('state_unavailable', `the chain's state is not known: ${error.detail}`)
    // Nothing is wrong with the chain: only who knows slugs does not answer.
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
    case 'store_failed':
      return internalError(requestId)
    default:
      return undefined
  }
}

/** The refusal of one item; a bug is noted, and answered as an internal error. */
export function itemRefusal(exchange: Exchange, error: unknown): Refusal {
  const refusal = refusalOf(error, exchange.requestId)
  if (refusal === undefined) noteBug(exchange, error)
  return refusal ?? internalError(exchange.requestId)
}
