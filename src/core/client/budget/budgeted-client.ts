/** A gateway client whose every call reserves its items first (§8). */
import { jsonOf } from '#protocol/capped'
import { UnavailableError, UsageError } from '#protocol/errors'
import { objectOf } from '#protocol/json'
import { limits } from '#protocol/words'
import {
  type Answer,
  anySignal,
  classifyFailure,
  maxRetryAfterMs,
  type Unaccepted,
} from '../gateway/answer.js'
import type { CallOptions, GatewayClient } from '../gateway/gateway-client.js'
import type { Results } from '../gateway/reading.js'
import type { Planner, Reservation } from './planner.js'

export interface BudgetedClient extends GatewayClient {
  /** How many items the next call may hold; kept until then. Rejects as `Planner.reserve` does. */
  chunkSize(wantItems: number, options?: CallOptions): Promise<number>
  close(): Promise<void>
}

interface BudgetOptions {
  /** Ends a wait for the budget, beside the signal of the call. */
  readonly signal?: AbortSignal | undefined
  readonly leftMs?: (() => number | undefined) | undefined
}

/** A call that only reads is sent again after a 429; a submission's repetition is journaled. */
const readTries = 3

type Options = CallOptions | undefined
type Call<T, Part = number> = (part: Part) => Promise<Answer<T>>

/** Is an answer too: a later call, or one with fewer items, may be sent. */
function unsent(error: unknown, signal: AbortSignal): Unaccepted {
  const isSpent = error instanceof UnavailableError && error.code === 'budget_spent'
  if (isSpent || error instanceof UsageError) {
    const { code, detail, meta } = error
    return { kind: 'deferred', code, detail, retryAfterMs: meta.retryAfterMs }
  }
  if (signal.aborted) return classifyFailure(error, signal)
  throw error
}

/** Lists that are only read are split; a submitted body stays whole. */
export function withBudget(
  client: GatewayClient,
  planner: Planner,
  budget: BudgetOptions = {},
): BudgetedClient {
  let kept: Reservation | undefined
  async function giveBack() {
    const earlier = kept
    kept = undefined
    await earlier?.release()
  }

  async function reserve(items: number, min: number, signal: AbortSignal) {
    await giveBack()
    return planner.reserve(items, { min, signal, timeoutMs: budget.leftMs?.() })
  }

  async function send<T>(items: number, options: Options, call: Call<T>, min = items) {
    const signal = anySignal(options?.signal, budget.signal)
    let reservation: Reservation
    try {
      reservation = await reserve(items, min, signal)
    } catch (error) {
      return unsent(error, signal)
    }
    try {
      const answer = await call(reservation.granted)
      const isUnsent = answer.kind === 'deferred' && answer.httpStatus === undefined
      await (isUnsent ? reservation.release() : reservation.settle(answer))
      return answer
    } catch (error) {
      await reservation.release()
      throw error
    }
  }

  async function read<T>(items: number, options: Options, call: Call<T>) {
    let [tries, leastItems] = [readTries, items]
    const counting = (granted: number) => {
      // A smaller call than any before is not the same in vain.
      if (granted < leastItems) [leastItems, tries] = [granted, readTries]
      return call(granted)
    }
    for (;;) {
      const answer = await send(items, options, counting, 1)
      const isLater = 'retryAfterMs' in answer && (answer.retryAfterMs ?? 0) <= maxRetryAfterMs
      if (--tries <= 0 || answer.httpStatus !== 429 || !isLater) return answer
    }
  }

  async function readAll<Item>(
    list: readonly string[],
    options: Options,
    call: Call<Results<Item>, readonly string[]>,
  ) {
    if (list.length === 0 || list.length > limits.batchItems) return call(list)
    const results: Item[] = []
    for (;;) {
      const rest = list.slice(results.length)
      let asked = rest
      const answer = await read(rest.length, options, (granted) => {
        asked = rest.slice(0, granted)
        return call(asked)
      })
      if (answer.kind !== 'accepted') return answer
      results.push(...answer.value.results)
      // Behind a response that left items out nothing could be put in order.
      if (answer.value.results.length !== asked.length || results.length >= list.length)
        return { ...answer, value: { results } }
    }
  }

  return {
    origin: client.origin,
    eligibility: (address, options) => read(1, options, () => client.eligibility(address, options)),
    signingData: (identifier, body, options) =>
      read(1, options, () => client.signingData(identifier, body, options)),
    status: (identifier, candidateId, options) =>
      read(1, options, () => client.status(identifier, candidateId, options)),
    contexts: (identifiers, options) =>
      readAll(identifiers, options, (part) => client.contexts(part, options)),
    statuses: (candidateIds, options) =>
      readAll(candidateIds, options, (part) => client.statuses(part, options)),
    submit: (identifier, body, options) =>
      send(1, options, () => client.submit(identifier, body, options)),
    submitBatch: (body, options) =>
      send(itemsIn(body), options, () => client.submitBatch(body, options)),
    async chunkSize(wantItems, options) {
      const signal = anySignal(options?.signal, budget.signal)
      kept = await reserve(Math.min(wantItems, limits.batchItems), 1, signal)
      return kept.granted
    },
    close: giveBack,
  }
}

/** Contract §2: a batch call is charged by its entries, and 1 where they cannot be counted. */
function itemsIn(body: string) {
  const { proposals } = objectOf(jsonOf(body)) ?? {}
  return Array.isArray(proposals) ? Math.max(1, proposals.length) : 1
}
