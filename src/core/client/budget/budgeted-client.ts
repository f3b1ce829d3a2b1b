/** A gateway client whose every call reserves its items first (§8). */
import { UnavailableError, UsageError } from '#protocol/errors'
import { limits } from '#protocol/words'
import {
  type Answer,
  classifyFailure,
  maxRetryAfterMs,
  type Unaccepted,
} from '../gateway/answer.js'
import type { CallOptions, GatewayClient, Results } from '../gateway/gateway-client.js'
import type { Planner, Reservation } from './planner.js'

export interface BudgetedClient extends GatewayClient {
  /**
   * How many items the next call may hold, at most `wantItems` (default 100); waits until it is at
   * least one. They are kept until the next call, whichever it is. Rejects as `Planner.reserve` does.
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

type Call<T> = (items: number) => Promise<Answer<T>>

/** Why a call cannot be sent is an answer too: a later one, or one with fewer items, may be. */
function unsent(error: unknown, signal: AbortSignal): Unaccepted {
  const isSpent = error instanceof UnavailableError && error.code === 'budget_spent'
  if (isSpent || error instanceof UsageError) {
    const { code, detail, meta } = error
    return { kind: 'deferred', code, detail, retryAfterMs: meta.retryAfterMs }
  }
  if (signal.aborted) return classifyFailure(error, signal)
  throw error
}

async function settle(reservation: Reservation, answer: Answer<unknown>) {
  const answered = answer.httpStatus !== undefined
  if (answer.kind === 'deferred' && !answered) return reservation.release()
  const { rateLimit, detail, retryAfterMs } = { detail: '', retryAfterMs: undefined, ...answer }
  const refused = answer.httpStatus === 429
  return reservation.settle({ answered, refused, rateLimit, retryAfterMs, detail })
}

/** What is kept for a call goes back when that is made: it holds as many items, or fewer. */
function newReserve(planner: Planner, { leftMs }: BudgetOptions) {
  let kept: Reservation | undefined
  async function giveBack() {
    const earlier = kept
    kept = undefined
    await earlier?.release()
  }
  async function reserve(items: number, min: number, signal: AbortSignal) {
    await giveBack()
    return planner.reserve(items, { min, signal, timeoutMs: leftMs?.() })
  }
  async function keep(items: number, signal: AbortSignal) {
    kept = await reserve(items, 1, signal)
    return kept.granted
  }
  return { reserve, keep, giveBack }
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
  const { reserve, keep, giveBack } = newReserve(planner, budget)

  const either = ({ signal }: CallOptions) =>
    AbortSignal.any([signal, budget.signal].filter((one) => one !== undefined))

  async function send<T>(items: number, min: number, options: CallOptions, call: Call<T>) {
    const signal = either(options)
    let reservation: Reservation
    try {
      reservation = await reserve(items, min, signal)
    } catch (error) {
      return unsent(error, signal)
    }
    try {
      const answer = await call(reservation.granted)
      await settle(reservation, answer)
      return answer
    } catch (error) {
      // A malformed argument: the client refuses it before anything leaves.
      await reservation.release()
      throw error
    }
  }

  async function read<T>(items: number, options: CallOptions, call: Call<T>) {
    let [tries, leastItems] = [readTries, items]
    for (;;) {
      const answer = await send(items, 1, options, (granted) => {
        // A smaller call than any before is not the same in vain.
        if (granted < leastItems) [leastItems, tries] = [granted, readTries]
        return call(granted)
      })
      const isLater = 'retryAfterMs' in answer && (answer.retryAfterMs ?? 0) <= maxRetryAfterMs
      if (--tries <= 0 || answer.httpStatus !== 429 || !isLater) return answer
    }
  }

  const readOne = <T>(options: CallOptions, call: () => Promise<Answer<T>>) =>
    read(1, options, call)

  /** Reads a list in as many calls as the budget asks for; the results are those of one. */
  async function readAll<Item>(
    list: readonly string[],
    options: CallOptions,
    call: (part: readonly string[]) => Promise<Answer<Results<Item>>>,
  ): Promise<Answer<Results<Item>>> {
    // The client refuses it whole.
    if (list.length === 0 || list.length > limits.batchItems) return call(list)
    const results: Item[] = []
    for (;;) {
      let asked = 0
      const answer = await read(list.length - results.length, options, (granted) => {
        asked = granted
        return call(list.slice(results.length, results.length + granted))
      })
      if (answer.kind !== 'accepted') return answer
      results.push(...answer.value.results)
      // A response that left items out is the caller's to judge: nothing could be put in order
      // behind it.
      if (answer.value.results.length !== asked || results.length >= list.length)
        return { ...answer, value: { results } }
    }
  }

  return {
    origin: client.origin,
    eligibility: (address, options = {}) =>
      readOne(options, () => client.eligibility(address, options)),
    signingData: (identifier, body, options = {}) =>
      readOne(options, () => client.signingData(identifier, body, options)),
    status: (identifier, candidateId, options = {}) =>
      readOne(options, () => client.status(identifier, candidateId, options)),
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
      keep(Math.min(wantItems, limits.batchItems), either(options)),
    close: giveBack,
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
