/**
 * The gate that every call goes through before anything is done for it (robustness §5). A
 * round of the event loop serves the connections in turn, and a call that waits here costs memory
 * that one in its socket does not. So all pass, but in a round that takes long: then the rest waits
 * here for the next rounds, clients in turn, and whatever has waited too long is refused.
 */
import type { Clock } from '../../ports.js'
import { createLine, lineLimits } from './line.js'

export const gateLimits = {
  /** A round as long as this lets no more calls pass: 2,000 looks at the state. */
  roundMs: 100,
  /** So many of those that wait go on in one round. */
  callsPerRound: 64,
} as const

export interface GateParts {
  /** Lets other work of the process run: a round of the event loop. */
  readonly yieldToEvents: () => Promise<void>
  readonly clock: Pick<Clock, 'monotonicMs'>
}

/**
 * Whether a client's call, which waits since `sinceMs`, may go on; `false` where it has waited too
 * long. Answers at once where nothing waits.
 */
export type Gate = (client: string, sinceMs: number) => boolean | Promise<boolean>

/** See the head of this file. */
export function createGate({ yieldToEvents, clock }: GateParts): Gate {
  const line = createLine<(goOn: boolean) => void>(lineLimits)
  /** When the round began, as far as calls tell; `undefined` without calls. */
  let roundMs: number | undefined

  async function followRounds(): Promise<void> {
    for (let went = 1; went > 0; ) {
      await yieldToEvents()
      const nowMs = clock.monotonicMs()
      roundMs = nowMs
      for (went = 0; went < gateLimits.callsPerRound; went += 1) {
        const turn = line.next(nowMs)
        if (turn === undefined) break
        turn.work(!turn.isLate)
      }
    }
    roundMs = undefined
  }

  return (client, sinceMs) => {
    const nowMs = clock.monotonicMs()
    if (roundMs === undefined) {
      roundMs = nowMs
      void followRounds()
    }
    if (line.length === 0 && nowMs - roundMs < gateLimits.roundMs)
      return line.pass(client, sinceMs, nowMs)
    return new Promise((resolve) => line.add(client, resolve, sinceMs))
  }
}
