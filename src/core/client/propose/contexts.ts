/** What is asked of a source, with patience. */
import { InterruptedError, type ProposerError, UnavailableError } from '#protocol/errors'
import { certificateCode, isAborted, newPatience } from '../gateway/answer.js'
import type { JournalPorts } from '../journal/journal.js'
import type { ContextResult, ContextSource } from '../trust/context.js'

interface Asking {
  readonly ports: JournalPorts
  readonly contexts: ContextSource
  readonly kept?: Map<string, ContextResult> | undefined
  /** Then it is the caller who has patience. */
  readonly alone?: object | undefined
}

export interface AskOptions {
  readonly signal?: AbortSignal | undefined
  /** Earlier rounds are left unsettled, nothing is noted. */
  readonly look?: boolean
  readonly onRetry?: ((event: { reason: string; waitMs: number }) => void) | undefined
}

/**
 * Asked for again where the gateway is busy (robustness §6). What was looked at is taken once:
 * the budget of one.
 */
export async function contextsOf(
  { alone, contexts, ports, kept }: Asking,
  identifiers: readonly string[],
  { look, signal, onRetry }: AskOptions,
): Promise<readonly ContextResult[]> {
  const patience = alone === undefined ? newPatience(ports) : () => undefined
  const results = new Map(
    identifiers.flatMap((one) => {
      const result = kept?.get(one)
      return result === undefined ? [] : [[one, result] as const]
    }),
  )
  let cause: string | undefined
  const isStopped = () => signal?.reason instanceof InterruptedError
  const missing = () =>
    [...new Set(identifiers)].filter((one) => {
      const result = results.get(one)
      return result === undefined || result.error instanceof UnavailableError
    })
  for (let wanted = missing(); wanted.length > 0; wanted = missing()) {
    let failure: UnavailableError | undefined
    try {
      for (const one of await contexts.contexts(wanted, signal === undefined ? {} : { signal }))
        results.set(one.identifier, one)
    } catch (error) {
      if (!(error instanceof UnavailableError)) throw error
      failure = error
    }
    const reason = failure ?? wanted.map((one) => results.get(one)?.error).find(isUnavailable)
    if (reason === undefined) break
    if (cause !== undefined && isAborted(signal) && !isStopped()) throw outOfTime(cause)
    const isLasting = reason.code === certificateCode || isAborted(signal)
    const waitMs = isLasting ? undefined : patience(reason.meta.retryAfterMs)
    if (waitMs === undefined) {
      if (failure !== undefined) throw failure
      break
    }
    // A call that was cut short tells less than the one before it.
    if (reason.code !== 'not_sent' || cause === undefined) cause = reason.detail
    onRetry?.({ reason: reason.detail, waitMs })
    try {
      await ports.clock.sleep(waitMs, signal)
    } catch (error) {
      if (!isAborted(signal) || error instanceof InterruptedError) throw error
      throw outOfTime(cause)
    }
  }
  for (const [one, result] of results) {
    if (look !== true) kept?.delete(one)
    else if (result.context !== undefined) kept?.set(one, result)
  }
  return identifiers.flatMap((one) => results.get(one) ?? [])
}

const isUnavailable = (error: ProposerError | undefined): error is UnavailableError =>
  error instanceof UnavailableError

const outOfTime = (cause: string) =>
  new UnavailableError(
    'no_context',
    `the time limit was reached before a context was learned: ${cause}`,
    'check the gateway address and the network, or raise --timeout',
  )
