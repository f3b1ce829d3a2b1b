import { InterruptedError, type ProposerError, UnavailableError } from '../../protocol/errors.js'
import { certificateCode } from '../gateway/answer.js'
import { isAborted, newPatience } from '../gateway/retry.js'
import type { JournalPorts } from '../journal/journal.js'
import type { ContextResult, ContextSource } from '../trust/context.js'

interface ContextParts {
  readonly contexts: ContextSource
  readonly ports: JournalPorts
}

interface ContextOptions {
  readonly signal?: AbortSignal | undefined
  readonly onRetry?: ((event: { reason: string; waitMs: number }) => void) | undefined
}

/**
 * The contexts of a batch's rows in order, asked for again where the gateway was busy (robustness §6). Throws
 * UnavailableError, or the signal's reason.
 */
export async function contextsOf(
  { contexts, ports }: ContextParts,
  identifiers: readonly string[],
  { signal, onRetry }: ContextOptions,
): Promise<readonly ContextResult[]> {
  const patience = newPatience(ports)
  const results = new Map<string, ContextResult>()
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
  return identifiers.flatMap((one) => results.get(one) ?? [])
}

const isUnavailable = (error: ProposerError | undefined): error is UnavailableError =>
  error instanceof UnavailableError

/** Exit 75: no context until the time limit was reached, with what kept it from us. */
const outOfTime = (cause: string) =>
  new UnavailableError(
    'no_context',
    `the time limit was reached before a context was learned: ${cause}`,
    { hint: 'check the gateway address and the network, or raise --timeout' },
  )
