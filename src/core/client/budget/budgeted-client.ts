/** A gateway client whose every call reserves its items first (§8). */
import { UnavailableError, UsageError } from '#protocol/errors'
import { limits } from '#protocol/words'
import {
  type Answer,
  classifyFailure,
  maxRetryAfterMs,
  type Unaccepted,
} from '../gateway/answer.js'
import type { CallOptions, GatewayClient } from '../gateway/gateway-client.js'
import type { Planner, Reservation, ReserveOptions } from './planner.js'

export interface BudgetedClient extends GatewayClient {
  /**
   * How many items the next call may hold, at most `wantItems` (default 100); waits until it is at
   * least one. They are kept for the call that follows, whichever it is; what it does not use is
   * given back. Rejects as `Planner.reserve` does.
   */
  chunkSize(wantItems?: number, options?: CallOptions): Promise<number>
  close(): Promise<void>
}

interface BudgetOptions {
  /** Ends a wait for the budget beside the signal of the call, as a call that was not sent. */
  readonly signal?: AbortSignal | undefined
  readonly leftMs?: (() => number | undefined) | undefined
}

/** A call that only reads is sent again after a 429; a submission's repetition is journaled. */
const readTries = 3

function newReservedCalls(planner: Planner, budget: BudgetOptions) {
  let kept: Reservation | undefined

  const reserveOptions = ({ signal }: CallOptions, min: number): ReserveOptions => ({
    min,
    signal: AbortSignal.any([signal, budget.signal].filter((one) => one !== undefined)),
    timeoutMs: budget.leftMs?.(),
  })

  /** With the items that `call` is given; why it cannot be sent is an answer too. */
  async function send<T>(
    items: number,
    min: number,
    options: CallOptions,
    call: (granted: number) => Promise<Answer<T>>,
  ): Promise<Answer<T>> {
    const reservation = await reserved(items, min, reserveOptions(options, min))
    if ('kind' in reservation) return reservation
    let answer: Answer<T>
    try {
      answer = await call(reservation.granted)
    } catch (error) {
      // A malformed argument: the client refuses it before anything leaves.
      await reservation.release()
      throw error
    }
    const answered = answer.httpStatus !== undefined
    if (answer.kind === 'deferred' && !answered) await reservation.release()
    else
      await reservation.settle({
        answered,
        refused: answer.httpStatus === 429,
        rateLimit: answer.rateLimit,
        retryAfterMs: 'retryAfterMs' in answer ? answer.retryAfterMs : undefined,
        detail: 'detail' in answer ? answer.detail : undefined,
      })
    return answer
  }

  async function reserved(
    items: number,
    min: number,
    options: ReserveOptions,
  ): Promise<Reservation | Unaccepted> {
    const earlier = kept
    if (earlier !== undefined && earlier.granted >= min) {
      kept = undefined
      const granted = Math.min(items, earlier.granted)
      if (await earlier.resize(granted)) return { ...earlier, granted }
    }
    try {
      return await planner.reserve(items, options)
    } catch (error) {
      const isSpent = error instanceof UnavailableError && error.code === 'budget_spent'
      // Nothing was sent; a later call, or one with fewer items, may be.
      if (isSpent || error instanceof UsageError) {
        const { code, detail, meta } = error
        const retryAfterMs = isSpent ? meta.retryAfterMs : undefined
        return { kind: 'deferred', code, detail, retryAfterMs }
      }
      if (options.signal?.aborted === true) return classifyFailure(error, options.signal)
      throw error
    }
  }

  async function keep(items: number, options: CallOptions) {
    await giveBack()
    kept = await planner.reserve(items, reserveOptions(options, 1))
    return kept.granted
  }

  async function giveBack() {
    const earlier = kept
    kept = undefined
    await earlier?.release()
  }

  return { send, keep, giveBack }
}

/**
 * Wraps a client. Splits lists that are only read, so that they take what a window has left; a
 * submitted body stays whole.
 */
export function withBudget(
  client: GatewayClient,
  planner: Planner,
  budget: BudgetOptions = {},
): BudgetedClient {
  const { send, keep, giveBack } = newReservedCalls(planner, budget)

  const read = <T>(options: CallOptions, call: () => Promise<Answer<T>>): Promise<Answer<T>> =>
    withRetries(() => send(1, 1, options, call))

  /** Reads a list in as many calls as the budget asks for; the results are those of one. */
  async function readAll<Value extends { readonly results: readonly unknown[] }>(
    list: readonly string[],
    options: CallOptions,
    call: (part: readonly string[]) => Promise<Answer<Value>>,
  ): Promise<Answer<Value>> {
    // More than a call may hold is the client's to refuse, whole.
    if (list.length <= 1 || list.length > limits.batchItems) return read(options, () => call(list))
    const results: unknown[] = []
    const tries = { left: readTries }
    let leastItems = list.length
    for (;;) {
      let part: readonly string[] = []
      const answer = await withRetries(
        () =>
          send(list.length - results.length, 1, options, (granted) => {
            // A smaller call than any before is not the same in vain.
            if (granted < leastItems) [leastItems, tries.left] = [granted, readTries]
            part = list.slice(results.length, results.length + granted)
            return call(part)
          }),
        tries,
      )
      if (answer.kind !== 'accepted') return answer
      // A response that left items out is the caller's to judge: nothing could be put in order
      // behind it.
      const isShort = answer.value.results.length !== part.length
      if (results.length === 0 && (isShort || part.length === list.length)) return answer
      results.push(...answer.value.results)
      if (isShort || results.length >= list.length)
        return { ...answer, value: { ...answer.value, results } }
    }
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
    submit: (identifier, body, options = {}) =>
      send(1, 1, options, () => client.submit(identifier, body, options)),
    submitBatch(body, options = {}) {
      const items = itemsIn(body)
      return send(items, items, options, () => client.submitBatch(body, options))
    },
    chunkSize: (wantItems = limits.batchItems, options = {}) =>
      keep(Math.min(wantItems, limits.batchItems), options),
    close: giveBack,
  }
}

async function withRetries<T>(
  call: () => Promise<Answer<T>>,
  tries = { left: readTries },
): Promise<Answer<T>> {
  for (;;) {
    const answer = await call()
    if (answer.kind === 'accepted') return answer
    const isLater =
      answer.httpStatus === 429 &&
      'retryAfterMs' in answer &&
      (answer.retryAfterMs ?? 0) <= maxRetryAfterMs
    if (--tries.left <= 0 || !isLater) return answer
  }
}

/** Contract §2: a batch call is charged by its entries, and 1 where they cannot be counted. */
function itemsIn(body: string) {
  try {
    const { proposals } = JSON.parse(body)
    return Array.isArray(proposals) ? Math.max(1, proposals.length) : 1
  } catch {
    // The gateway will say what is wrong with it, and charge one item.
    return 1
  }
}
