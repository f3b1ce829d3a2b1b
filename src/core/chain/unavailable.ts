/** A chain that does not answer, and a node's URL that is none, as errors with what to do next. */
import { ChainError } from '../ports.js'
import { UnavailableError, UsageError } from '../protocol/errors.js'

/** UnavailableError `chain_unavailable` (exit 75) of what a read of the chain met. */
export const chainUnavailable = (cause: ChainError): UnavailableError =>
  new UnavailableError('chain_unavailable', `the chain could not be read (${cause.kind})`, {
    hint: 'check --rpc-url, then retry',
    cause,
  })

/** Runs reads of a chain; ChainError becomes UnavailableError `chain_unavailable`. */
export async function onChain<T>(read: () => Promise<T>): Promise<T> {
  try {
    return await read()
  } catch (error) {
    throw error instanceof ChainError ? chainUnavailable(error) : error
  }
}

/**
 * The URL of a node. It is often a credential: UsageError `invalid_rpc_url` names where it came
 * `from` and does not show it (R5).
 */
export function requireRpcUrl(url: string, from: string): string {
  if (URL.canParse(url) && /^https?:$/.test(new URL(url).protocol)) return url
  throw new UsageError(
    'invalid_rpc_url',
    `${from} is not an http or https URL`,
    'give the node as --rpc-url https://…',
  )
}
