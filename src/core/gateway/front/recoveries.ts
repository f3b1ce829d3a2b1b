/**
 * The public keys of signatures, which cost more than all other checks of a submission together. A
 * long queue is worked off in slices, between which other work has its turn: looks at the state, and
 * replays, which need no recovery, go before new admissions (robustness §5).
 */
import type { Clock } from '../../ports.js'
import { UnavailableError } from '../../protocol/errors.js'
import type { RecoverPublicKey } from '../../protocol/recovered.js'
import type { Exchange } from './exchange.js'
import { createLine, lineLimits } from './line.js'

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
 * A recovery for a call that answers what `recover` answers, in its client's turn, and rejects with
 * what that throws; with UnavailableError `server_busy` where the call has waited too long.
 */
export type QueuedRecovery = (
  call: Pick<Exchange, 'client' | 'waitedMs'>,
  ...asked: Waiting['asked']
) => Promise<Uint8Array | undefined>

/** What a call is told that has waited too long. */
export const tooLong = 'the gateway is overloaded and this call has waited too long'

/** See the head of this file. */
export function createRecoveries({ recover, yieldToEvents, clock }: RecoveryParts): QueuedRecovery {
  const line = createLine<Waiting>(lineLimits)
  let isDraining = false

  async function drain(): Promise<void> {
    isDraining = true
    // Whatever the same step asks for comes together.
    await undefined
    while (line.length > 0) {
      let nowMs = clock.monotonicMs()
      const endMs = nowMs + sliceMs
      do {
        const next = line.next(nowMs)
        if (next === undefined) break
        const { asked, resolve, reject } = next.work
        try {
          if (next.isLate) reject(new UnavailableError('server_busy', tooLong))
          else resolve(recover(...asked))
        } catch (error) {
          reject(error)
        }
        nowMs = clock.monotonicMs()
      } while (nowMs < endMs)
      if (line.length > 0) await yieldToEvents()
    }
    isDraining = false
  }

  return ({ client, waitedMs }, ...asked) =>
    new Promise((resolve, reject) => {
      line.add(client, { asked, resolve, reject }, clock.monotonicMs() - waitedMs)
      if (!isDraining) void drain()
    })
}
