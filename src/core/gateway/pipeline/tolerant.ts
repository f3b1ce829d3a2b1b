/** A chain that does not answer is waited for. */
import { ChainError } from '../../ports.js'
import { ProposerError } from '../../protocol/errors.js'

/**
 * `undefined` where the chain did not answer: nothing is lost, the next step asks again, and one
 * candidate that cannot be judged holds up no other. A chain that stays silent shows in the view's
 * faults (R16).
 */
export async function tolerant<T>(work: Promise<T>): Promise<T | undefined> {
  try {
    return await work
  } catch (error) {
    if (error instanceof ChainError) return undefined
    if (error instanceof ProposerError && error.code === 'state_unavailable') return undefined
    throw error
  }
}
