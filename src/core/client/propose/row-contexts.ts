import { InterruptedError, type ProposerError, UnavailableError } from '../../protocol/errors.js'
import { certificateCode } from '../gateway/answer.js'
import { isAborted, newPatience } from '../gateway/retry.js'
import type { JournalPorts } from '../journal/journal.js'
import type { ContextResult, ContextSource } from '../trust/context.js'

interface ContextParts {
  readonly contexts: ContextSource
  readonly kept?: Map<string, ContextResult> | undefined
  readonly ports: JournalPorts
}

interface ContextOptions {
  readonly look?: boolean | undefined
  readonly signal?: AbortSignal | undefined
  readonly onRetry?: ((event: { reason: string; waitMs: number }) => void) | undefined
}

/**
 * In order, asked for again where the gateway was busy (robustness §6). What was looked at is
 * taken
 * once without asking again: the budget of one.
 */
export async function contextsOf(
  { contexts, ports, kept }: ContextParts,
  identifiers: readonly string[],
  { look, signal, onRetry }: ContextOptions,
): Promise<readonly ContextResult[]> {
  const patience = newPatience(ports)
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

/** Exit 75. */
const outOfTime = (cause: string) =>
  new UnavailableError(
    'no_context',
    `the time limit was reached before a context was learned: ${cause}`,
    { hint: 'check the gateway address and the network, or raise --timeout' },
  )
