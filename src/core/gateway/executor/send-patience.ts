/**
 * When stored bytes are handed over again, and when a higher fee is due. Kept in memory: after a
 * restart everything is due at once, which is safe, because the same bytes can be sent any number
 * of times (R3).
 */
import type { ChainErrorKind, Clock, Hex, Random } from '../../ports.js'

/** Jittered pause between attempts to send the same bytes (robustness §3). */
const leastPauseMs = 1_000
const mostPauseMs = 30_000
/**
 * A transaction may be pending for so many blocks, or so long, with every lower nonce mined, before
 * its fee is raised.
 */
const patientBlocks = 10n
const patientMs = 30_000

export interface SendPatience {
  isDue(hash: Hex): boolean
  /**
   * Whether only the fee can be what holds it up. `isNext`: every lower nonce of the executor is
   * mined. `isHeld`: a node holds it now; one that nodes take and drop again is not held, and pays
   * too little all the same. `isFirst`: no fee was raised yet; one that was, and is refused again,
   * waits for the next head, which may tell another base fee.
   */
  wantsHigherFee(
    hash: Hex,
    headNumber: bigint,
    where: { readonly isNext: boolean; readonly isHeld: boolean; readonly isFirst: boolean },
  ): boolean
  /** It was mined: should a reorganisation undo that, the wait begins anew. */
  mined(hash: Hex): void
  sent(hash: Hex, headNumber: bigint): void
  refused(hash: Hex, headNumber: bigint, kind: ChainErrorKind): void
  /** Blocks since the first refusal in a row. */
  refusedForBlocks(hash: Hex, headNumber: bigint): bigint
  /** Whether nodes refuse it for what it is, some blocks long already. */
  isRejected(hash: Hex, headNumber: bigint): boolean
  /** The count of refusals begins anew. */
  startOver(hash: Hex): void
  forget(hash: Hex): void
}

interface Memory {
  tries: number
  dueAtMs: number
  pending: { readonly since: bigint; readonly sinceMs: number } | undefined
  refusedSince: bigint | undefined
  rejectedSince: bigint | undefined
  /** The head at which it was first refused for its fee. */
  underpricedAt: bigint | undefined
}

/** Times on the monotonic clock (R13). */
export function createSendPatience(clock: Clock, random: Random): SendPatience {
  const memories = new Map<Hex, Memory>()
  const fresh = (): Memory => ({
    tries: 0,
    dueAtMs: 0,
    pending: undefined,
    refusedSince: undefined,
    rejectedSince: undefined,
    underpricedAt: undefined,
  })
  const of = (hash: Hex) => {
    const memory = memories.get(hash) ?? fresh()
    memories.set(hash, memory)
    return memory
  }
  const postpone = (memory: Memory) => {
    const range = Math.min(mostPauseMs, leastPauseMs * 2 ** memory.tries) - leastPauseMs
    const [high = 0, low = 0] = random.bytes(2)
    memory.dueAtMs = clock.monotonicMs() + leastPauseMs + (range * (high * 256 + low)) / 65_535
    memory.tries += 1
  }
  return {
    isDue: (hash) => clock.monotonicMs() >= (memories.get(hash)?.dueAtMs ?? 0),
    wantsHigherFee(hash, headNumber, { isNext, isHeld, isFirst }) {
      const memory = of(hash)
      if (memory.underpricedAt !== undefined) return isFirst || headNumber > memory.underpricedAt
      // After a restart the wait begins anew.
      if (isHeld) memory.pending ??= { since: headNumber, sinceMs: clock.monotonicMs() }
      if (!isNext || memory.pending === undefined) return false
      const { since, sinceMs } = memory.pending
      return (
        headNumber - since >= patientBlocks ||
        (isHeld && clock.monotonicMs() - sinceMs >= patientMs)
      )
    },
    mined(hash) {
      const memory = memories.get(hash)
      if (memory) memory.pending = undefined
    },
    sent(hash, headNumber) {
      const memory = of(hash)
      memory.pending ??= { since: headNumber, sinceMs: clock.monotonicMs() }
      memory.refusedSince = undefined
      memory.rejectedSince = undefined
      memory.underpricedAt = undefined
      postpone(memory)
    },
    refused(hash, headNumber, kind) {
      const memory = of(hash)
      memory.refusedSince ??= headNumber
      memory.rejectedSince = kind === 'refused' ? (memory.rejectedSince ?? headNumber) : undefined
      if (kind === 'underpriced') memory.underpricedAt ??= headNumber
      postpone(memory)
    },
    refusedForBlocks: (hash, headNumber) =>
      headNumber - (memories.get(hash)?.refusedSince ?? headNumber),
    isRejected(hash, headNumber) {
      const since = memories.get(hash)?.rejectedSince
      return since !== undefined && headNumber - since >= patientBlocks
    },
    startOver(hash) {
      const memory = memories.get(hash)
      if (memory) memory.rejectedSince = undefined
    },
    forget: (hash) => memories.delete(hash),
  }
}
