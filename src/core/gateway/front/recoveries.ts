/**
 * The public keys of signatures, which cost more than all other checks of a submission together. A
 * long queue is worked off in slices, between which other work has its turn (robustness §5).
 */
import type { Clock } from '../../ports.js'
import type { RecoverPublicKey } from '../../protocol/recovered.js'

interface Waiting {
  readonly asked: Parameters<RecoverPublicKey>
  readonly resolve: (key: Uint8Array | undefined) => void
  readonly reject: (error: unknown) => void
}

/** A dozen native recoveries, or one portable one. */
const sliceMs = 0.5

export interface RecoveryParts {
  readonly recover: RecoverPublicKey
  /** Lets other work of the process run. */
  readonly yieldToEvents: () => Promise<void>
  readonly clock: Pick<Clock, 'monotonicMs'>
}

/**
 * A recovery that answers what `recover` answers, in its turn, and rejects with what that throws.
 */
export type QueuedRecovery = (...asked: Waiting['asked']) => Promise<Uint8Array | undefined>

/** See the head of this file. */
export function createRecoveries({ recover, yieldToEvents, clock }: RecoveryParts): QueuedRecovery {
  const queue: Waiting[] = []
  let isDraining = false

  async function drain(): Promise<void> {
    isDraining = true
    // Whatever the same step asks for comes together.
    await undefined
    while (queue.length > 0) {
      const endMs = clock.monotonicMs() + sliceMs
      do {
        const next = queue.shift()
        if (next === undefined) break
        try {
          next.resolve(recover(...next.asked))
        } catch (error) {
          next.reject(error)
        }
      } while (clock.monotonicMs() < endMs)
      if (queue.length > 0) await yieldToEvents()
    }
    isDraining = false
  }

  return (...asked) =>
    new Promise((resolve, reject) => {
      queue.push({ asked, resolve, reject })
      if (!isDraining) void drain()
    })
}
