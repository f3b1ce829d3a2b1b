/** A chain that does not answer, as an error that says what to do next. */
import { ChainError } from '../ports.js'
import { UnavailableError } from '../protocol/errors.js'

/** UnavailableError `chain_unavailable` (exit 75) of what a read of the chain met. */
export const chainUnavailable = ({ kind }: ChainError): UnavailableError =>
  new UnavailableError(
    'chain_unavailable',
    `the chain could not be read (${kind})`,
    'check --rpc-url, then run the same command again',
  )

/** Runs reads of a chain; ChainError becomes UnavailableError `chain_unavailable`. */
export async function onChain<T>(read: () => Promise<T>): Promise<T> {
  try {
    return await read()
  } catch (error) {
    throw error instanceof ChainError ? chainUnavailable(error) : error
  }
}
