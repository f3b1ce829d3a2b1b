import type * as z from 'zod/mini'
import type { Call, RequestRecord } from '#protocol/call'
import type { OperationId, WireCode } from '#protocol/codes'
import { ProposerError, StorageError } from '#protocol/errors'
import { type Refusal, refusalBody, refuse } from '#protocol/refusal'
import type { operations } from '#protocol/service'
import type { Charge } from './budget.js'

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

export interface Exchange {
  readonly call: Call
  readonly requestId: string
  readonly client: string
  route: string
  items: number
  charge: Charge | undefined
  code: WireCode | undefined
  bug: RequestRecord['bug']
  reservedBytes: number
  isReceipted: boolean
  requestDigest: string | undefined
  waitedMs: number
}

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

interface RouteCall<Body = unknown> {
  readonly params: Readonly<Record<string, string>>
  readonly body: Body
  readonly exchange: Exchange
}

type BodyOf<Id extends OperationId> = (typeof operations)[Id] extends {
  readonly body: { readonly type: infer Type extends z.ZodMiniType }
}
  ? z.infer<Type>
  : undefined

export type Handler<Body = unknown> = (call: RouteCall<Body>) => RouteAnswer | Promise<RouteAnswer>
export type Handlers<Ids extends OperationId = OperationId> = {
  readonly [Id in Ids]: Handler<BodyOf<Id>>
}
