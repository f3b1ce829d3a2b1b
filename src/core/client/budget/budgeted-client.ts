/**
 * A gateway client whose every call reserves its items first (§8) and tells the planner what the
 * answer said.
 */
import { UnavailableError, UsageError } from '../../protocol/errors.js'
import { limits } from '../../protocol/schema.js'
import {
  type Answer,
  classifyFailure,
  maxRetryAfterMs,
  type Unaccepted,
} from '../gateway/answer.js'
import type { CallOptions, GatewayClient } from '../gateway/gateway-client.js'
import type { Outcome } from './model.js'
import type { Planner, Reservation, ReserveOptions } from './planner.js'

export interface BudgetedClient extends GatewayClient {
  /**
   * How many items the next call may hold, at most `wantItems` (default 100); waits until it is at
   * least one. They are kept for the call that follows, whichever it is; what it does not use is
   * given back. Rejects as `Planner.reserve` does.
   */
  chunkSize(wantItems?: number, options?: CallOptions): Promise<number>
  /** Gives back what `chunkSize` kept and no call used. */
  close(): Promise<void>
}

export interface BudgetOptions {
  /** Ends a wait for the budget beside the signal of the call, as a call that was not sent. */
  readonly signal?: AbortSignal
  /** Milliseconds that a wait may take at this moment. */
  readonly leftMs?: () => number | undefined
}

/**
 * A call that only reads is sent again after a 429, for nothing hangs on it; a submission's
 * repetition is its caller's to journal.
 */
const readTries = 3

/**
 * Wraps a client. Splits lists that are only read, so that they take what a window has left; a
 * submitted body stays whole.
 */
export function withBudget(
  client: GatewayClient,
  planner: Planner,
  budget: BudgetOptions = {},
): BudgetedClient {
  let kept: Reservation | undefined

  const optionsOf = ({ signal }: CallOptions, min: number): ReserveOptions => {
    const signals = [signal, budget.signal].filter((one) => one !== undefined)
    const timeoutMs = budget.leftMs?.()
    return {
      min,
      ...(signals.length === 0 ? {} : { signal: AbortSignal.any(signals) }),
      ...(timeoutMs === undefined ? {} : { timeoutMs }),
    }
  }

  /**
   * The items of a call, or why it cannot be sent: an answer, as everything that becomes of a call
   * is.
   */
  async function reserved(
    items: number,
    min: number,
    options: CallOptions,
  ): Promise<Reservation | Unaccepted> {
    const wanted = optionsOf(options, min)
    const earlier = kept
    if (earlier !== undefined && earlier.granted >= min) {
      kept = undefined
      const granted = Math.min(items, earlier.granted)
      if (await earlier.resize(granted)) return { ...earlier, granted }
    }
    try {
      return await planner.reserve(items, wanted)
    } catch (error) {
      if (error instanceof UnavailableError && error.code === 'budget_spent') {
        const { retryAfterMs } = error.meta
        return {
          kind: 'deferred',
          code: error.code,
          detail: error.detail,
          ...(retryAfterMs === undefined ? {} : { retryAfterMs }),
        }
      }
      // Nothing was sent; a later call with fewer items may be.
      if (error instanceof UsageError)
        return { kind: 'deferred', code: error.code, detail: error.detail }
      if (wanted.signal?.aborted === true) return classifyFailure(error, wanted.signal)
      throw error
    }
  }

  async function spend<T>(
    reservation: Reservation,
    call: () => Promise<Answer<T>>,
  ): Promise<Answer<T>> {
    let answer: Answer<T>
    try {
      answer = await call()
    } catch (error) {
      // A malformed argument: the client refuses it before anything leaves.
      await reservation.release()
      throw error
    }
    const outcome = outcomeOf(answer)
    await (outcome === 'not-sent' ? reservation.release() : reservation.settle(outcome))
    return answer
  }

  async function read<T>(options: CallOptions, call: () => Promise<Answer<T>>): Promise<Answer<T>> {
    for (let tries = 1; ; tries++) {
      const reservation = await reserved(1, 1, options)
      if ('kind' in reservation) return reservation
      const answer = await spend(reservation, call)
      if (tries >= readTries || !isWorthWaiting(answer)) return answer
    }
  }

  /** Reads a list in as many calls as the budget asks for; the results are those of one. */
  async function readAll<Value extends { readonly results: readonly unknown[] }>(
    list: readonly string[],
    options: CallOptions,
    call: (part: readonly string[]) => Promise<Answer<Value>>,
  ): Promise<Answer<Value>> {
    // More than a call may hold is the client's to refuse, whole.
    if (list.length <= 1 || list.length > limits.batchItems) return read(options, () => call(list))
    const results: unknown[] = []
    let tries = 1
    for (;;) {
      const reservation = await reserved(list.length - results.length, 1, options)
      if ('kind' in reservation) return reservation
      const part = list.slice(results.length, results.length + reservation.granted)
      const answer = await spend(reservation, () => call(part))
      if (answer.kind !== 'accepted') {
        if (tries++ < readTries && isWorthWaiting(answer)) continue
        return answer
      }
      // An answer that left items out is the caller's to judge: nothing could be put in order
      // behind it.
      const isShort = answer.value.results.length !== part.length
      if (results.length === 0 && (isShort || part.length === list.length)) return answer
      results.push(...answer.value.results)
      if (isShort || results.length >= list.length)
        return { ...answer, value: { ...answer.value, results } }
    }
  }

  async function giveBack(): Promise<void> {
    const earlier = kept
    kept = undefined
    await earlier?.release()
  }

  return {
    origin: client.origin,
    eligibility: (address, options = {}) =>
      read(options, () => client.eligibility(address, options)),
    signingData: (identifier, body, options = {}) =>
      read(options, () => client.signingData(identifier, body, options)),
    status: (identifier, candidateId, options = {}) =>
      read(options, () => client.status(identifier, candidateId, options)),
    contexts: (identifiers, options = {}) =>
      readAll(identifiers, options, (part) => client.contexts(part, options)),
    statuses: (candidateIds, options = {}) =>
      readAll(candidateIds, options, (part) => client.statuses(part, options)),
    async submit(identifier, body, options = {}) {
      const reservation = await reserved(1, 1, options)
      return 'kind' in reservation
        ? reservation
        : spend(reservation, () => client.submit(identifier, body, options))
    },
    async submitBatch(body, options = {}) {
      const items = itemsIn(body)
      const reservation = await reserved(items, items, options)
      return 'kind' in reservation
        ? reservation
        : spend(reservation, () => client.submitBatch(body, options))
    },
    async chunkSize(wantItems = limits.batchItems, options = {}) {
      await giveBack()
      const reservation = await planner.reserve(
        Math.min(wantItems, limits.batchItems),
        optionsOf(options, 1),
      )
      kept = reservation
      return reservation.granted
    },
    close: giveBack,
  }
}

/** Contract §2: a batch call is charged by its entries, and 1 where they cannot be counted. */
function itemsIn(body: string): number {
  try {
    const { proposals } = JSON.parse(body)
    return Array.isArray(proposals) ? Math.max(1, proposals.length) : 1
  } catch {
    // The gateway will say what is wrong with it, and charge one item.
    return 1
  }
}

const isWorthWaiting = (answer: Answer<unknown>): boolean =>
  answer.kind !== 'accepted' &&
  answer.httpStatus === 429 &&
  'retryAfterMs' in answer &&
  (answer.retryAfterMs ?? 0) <= maxRetryAfterMs

function outcomeOf(answer: Answer<unknown>): Outcome | 'not-sent' {
  if (answer.kind === 'deferred' && answer.httpStatus === undefined) return 'not-sent'
  return {
    answered: answer.httpStatus !== undefined,
    refused: answer.httpStatus === 429,
    rateLimit: answer.rateLimit,
    retryAfterMs:
      answer.kind === 'deferred' || answer.kind === 'uncertain' ? answer.retryAfterMs : undefined,
  }
}
