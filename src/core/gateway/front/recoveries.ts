/**
 * The public keys of signatures, which cost more than all other checks of a submission together. What one step of the gateway asks for is
 * done in slices, between which others have their turn (robustness §5), and of a long queue a second thread takes a share.
 */
import type { Clock } from '../../ports.js'
import type { RecoverLater, RecoverPublicKey } from '../../protocol/recovered.js'

interface Waiting {
  readonly asked: Parameters<RecoverPublicKey>
  readonly resolve: (key: Uint8Array | undefined) => void
  readonly reject: (error: unknown) => void
}

/** A dozen native recoveries, or one portable one. */
const sliceMs = 0.5
/** Fewer are not worth the way there and back. */
const asideAtLeast = 16
/** More at once would keep waiting what comes meanwhile. */
const asideAtMost = 64

export interface RecoveryParts {
  readonly recover: RecoverPublicKey
  /** Does the same on another thread. */
  readonly aside?: RecoverLater | undefined
  /** Lets other work of the process run. */
  readonly breathe: () => Promise<void>
  readonly clock: Pick<Clock, 'monotonicMs'>
}

/** A recovery whose callers take turns. It answers what `recover` answers, and rejects with what that throws. */
export function createRecoveries({
  recover,
  aside,
  breathe,
  clock,
}: RecoveryParts): (...asked: Waiting['asked']) => Promise<Uint8Array | undefined> {
  const queue: Waiting[] = []
  let isShared = false
  let draining = false

  /** Hands over the end of the queue: callers go on in order and wait for its beginning first. */
  async function share(other: RecoverLater): Promise<void> {
    const work = queue.splice(-Math.min(asideAtMost, Math.ceil(queue.length / 2)))
    isShared = true
    await Promise.all(
      work.map(async ({ asked, resolve, reject }) => {
        try {
          resolve(await other(...asked))
        } catch (error) {
          reject(error)
        }
      }),
    )
    isShared = false
  }

  async function drain(): Promise<void> {
    draining = true
    // Whatever the same step asks for comes together.
    await undefined
    while (queue.length > 0) {
      if (aside && !isShared && queue.length >= asideAtLeast) void share(aside)
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
      if (queue.length > 0) await breathe()
    }
    draining = false
  }

  return (...asked) =>
    new Promise((resolve, reject) => {
      queue.push({ asked, resolve, reject })
      if (!draining) void drain()
    })
}
