/**
 * One look at some candidates: by the batch route where there are several, by the single route
 * where only that one tells enough.
 */
import pLimit from 'p-limit'
import type { ProposerError } from '../../protocol/errors.js'
import { answerError, type RateLimit, type Unaccepted } from '../gateway/answer.js'
import type { CallOptions, GatewayClient } from '../gateway/gateway-client.js'
import type { StatusItemTold } from '../gateway/reading.js'
import { type PolledStatus, type PollTarget, polled } from './status.js'

/** Single calls on their way at once. */
const callsAtOnce = 4

/**
 * No application answer, or one that says to come back later: it tells nothing about the
 * candidates.
 */
export type Trouble = Extract<Unaccepted, { kind: 'deferred' | 'uncertain' }>

export type Told =
  | { readonly kind: 'status'; readonly status: PolledStatus }
  /** For good: 404 and its kin. */
  | { readonly kind: 'refused'; readonly error: ProposerError }
  /** Asked, and the answer said nothing of use about this one. */
  | { readonly kind: 'silence'; readonly httpStatus?: number }

export interface Looked {
  readonly told: ReadonlyMap<PollTarget, Told>
  readonly rateLimit?: RateLimit
  /** What cut the look short; those without an entry in `told` were not answered. */
  readonly trouble?: Trouble
  /**
   * The gateway refused the batch route as a whole: the single one serves, where the question is
   * known.
   */
  readonly batchRefused?: ProposerError
  /** Status items asked for (§8). */
  readonly items: number
}

/** Which route serves each target: `single` needs an identifier. */
export interface Asked {
  readonly single: readonly PollTarget[]
  readonly batch: readonly PollTarget[]
}

/**
 * Looks once. Rejects with ConflictError `candidate_mismatch` where the gateway answers about
 * another candidate.
 */
export async function look(
  gateway: GatewayClient,
  asked: Asked,
  options: CallOptions,
): Promise<Looked> {
  const first: Looked =
    asked.batch.length === 0
      ? { told: new Map(), items: 0 }
      : await byBatch(gateway, asked.batch, options)
  if (first.trouble !== undefined || asked.single.length === 0) return first
  const second = await bySingle(gateway, asked.single, options)
  return {
    ...first,
    ...second,
    told: new Map([...first.told, ...second.told]),
    items: first.items + second.items,
  }
}

async function byBatch(
  gateway: GatewayClient,
  targets: readonly PollTarget[],
  options: CallOptions,
): Promise<Looked> {
  const items = targets.length
  const answer = await gateway.statuses(
    targets.map(({ candidateId }) => candidateId),
    options,
  )
  const window = answer.rateLimit === undefined ? {} : { rateLimit: answer.rateLimit }
  if (answer.kind === 'deferred' || answer.kind === 'uncertain')
    return { ...window, told: new Map(), items, trouble: answer }
  if (answer.kind !== 'accepted')
    return { ...window, told: new Map(), items, batchRefused: answerError(answer, 'read') }
  // By id, not by place: an answer that left one out must not be taken for its neighbour's.
  const byId = new Map(
    answer.value.results.map((result) => [result.candidate_id?.toLowerCase(), result]),
  )
  const told = new Map(
    targets.map((target) => [target, itemTold(target, byId.get(target.candidateId.toLowerCase()))]),
  )
  if ([...told.values()].some(({ kind }) => kind !== 'silence')) return { ...window, told, items }
  const [reason] = answer.value.results
  const trouble: Trouble = {
    kind: 'uncertain',
    code: reason?.error?.code ?? 'gateway_body',
    detail:
      reason?.error?.detail ?? 'the gateway answered about none of the candidates it was asked for',
  }
  return { ...window, told: new Map(), items, trouble }
}

function itemTold(target: PollTarget, result: StatusItemTold | undefined): Told {
  if (result === undefined) return { kind: 'silence' }
  const { status_code: httpStatus, candidate, error } = result
  if (httpStatus === 200 && candidate !== undefined)
    return { kind: 'status', status: polled(target, candidate) }
  if (httpStatus === undefined) return { kind: 'silence' }
  if (error === undefined || ![400, 403, 404, 405, 413, 422].includes(httpStatus))
    return { kind: 'silence', httpStatus }
  return { kind: 'refused', error: answerError({ kind: 'refused', httpStatus, ...error }, 'read') }
}

async function bySingle(
  gateway: GatewayClient,
  targets: readonly PollTarget[],
  options: CallOptions,
): Promise<Looked> {
  const told = new Map<PollTarget, Told>()
  let [items, rateLimit, trouble]: [number, RateLimit | undefined, Trouble | undefined] = [
    0,
    undefined,
    undefined,
  ]
  const atOnce = pLimit(callsAtOnce)
  await Promise.all(
    targets.map((target) =>
      atOnce(async () => {
        // What one call met the next would meet too.
        if (trouble !== undefined) return
        items++
        const answer = await gateway.status(target.identifier ?? '', target.candidateId, options)
        rateLimit = tighter(rateLimit, answer.rateLimit)
        if (answer.kind === 'accepted')
          told.set(target, { kind: 'status', status: polled(target, answer.value) })
        else if (answer.kind === 'refused' || answer.kind === 'reconcile')
          told.set(target, {
            kind: 'refused',
            error: answerError(answer, 'read', target.identifier),
          })
        else trouble = answer
      }),
    ),
  )
  return {
    told,
    items,
    ...(rateLimit === undefined ? {} : { rateLimit }),
    ...(trouble === undefined ? {} : { trouble }),
  }
}

/** Of several answers at once the one that leaves less. */
function tighter(one: RateLimit | undefined, other: RateLimit | undefined): RateLimit | undefined {
  if (one === undefined || other === undefined) return one ?? other
  return other.remaining < one.remaining ? other : one
}
