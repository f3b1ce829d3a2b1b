/**
 * When stored bytes are handed over again, and when a higher fee is due. Kept in memory: after a restart everything is due at once, which
 * is safe, because the same bytes can be sent any number of times (R3).
 */
import type { ChainErrorKind, Clock, Hex, Random } from '../../ports.js'

/** Jittered pause between attempts to send the same bytes (robustness §3). */
const leastPauseMs = 1_000
const mostPauseMs = 30_000
/** Blocks a transaction may be pending, with every lower nonce mined, before its fee is raised. */
const patientBlocks = 10n

export interface SendPatience {
  isDue(hash: Hex): boolean
  /** `isNext`: every lower nonce of the executor is mined, so that only the fee can be what holds it up. */
  wantsHigherFee(hash: Hex, headNumber: bigint, isNext: boolean): boolean
  sent(hash: Hex, headNumber: bigint): void
  refused(hash: Hex, headNumber: bigint, kind: ChainErrorKind): void
  /** Blocks since the first refusal in a row. */
  refusedForBlocks(hash: Hex, headNumber: bigint): bigint
  forget(hash: Hex): void
}

interface Memory {
  tries: number
  dueAtMs: number
  pendingSince: bigint | undefined
  refusedSince: bigint | undefined
  underpriced: boolean
}

/** Times on the monotonic clock (R13). */
export function createSendPatience(clock: Clock, random: Random): SendPatience {
  const memories = new Map<Hex, Memory>()
  const fresh = (): Memory => ({ tries: 0, dueAtMs: 0, pendingSince: undefined, refusedSince: undefined, underpriced: false })
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
    wantsHigherFee(hash, headNumber, isNext) {
      const memory = of(hash)
      if (memory.underpriced) return true
      // After a restart the wait begins anew.
      memory.pendingSince ??= headNumber
      return isNext && headNumber - memory.pendingSince >= patientBlocks
    },
    sent(hash, headNumber) {
      const memory = of(hash)
      memory.pendingSince ??= headNumber
      memory.refusedSince = undefined
      memory.underpriced = false
      postpone(memory)
    },
    refused(hash, headNumber, kind) {
      const memory = of(hash)
      memory.refusedSince ??= headNumber
      memory.underpriced ||= kind === 'underpriced'
      postpone(memory)
    },
    refusedForBlocks: (hash, headNumber) => headNumber - (memories.get(hash)?.refusedSince ?? headNumber),
    forget: (hash) => memories.delete(hash),
  }
}
