/**
 * Disputes and settlements that the view has followed, told once no reorganisation can undo them
 * (R14). What happened while nobody followed is not told: `operator positions` reads it.
 */
import type { StakeEvent } from '../../chain/stakes.js'

/** A dispute or a settlement; its text is known by its hash alone. */
export type StakeNews = Extract<StakeEvent, { kind: 'disputed' | 'settled' }>

/** Events that are not final yet, the oldest first, and who is told (R17). */
export interface FinalStakes {
  pending: readonly StakeNews[]
  readonly listeners: Set<(news: StakeNews) => void>
}

/** While finality stands still, more than these leave untold. */
const mostPending = 10_000

/** Nothing pending, nobody told. */
export const newFinalStakes = (): FinalStakes => ({ pending: [], listeners: new Set() })

/** Takes in what the blocks after `since` say, in place of what was said of them before. */
export function noteStakes(
  stakes: FinalStakes,
  since: bigint | undefined,
  news: readonly StakeNews[],
): void {
  const kept = since === undefined ? [] : stakes.pending.filter(({ block }) => block <= since)
  stakes.pending = [...kept, ...news].slice(-mostPending)
}

/** Tells what is final by now. */
export function tellFinal(stakes: FinalStakes, finalized: bigint): void {
  const isFinal = ({ block }: StakeNews) => block <= finalized
  const final = stakes.pending.filter(isFinal)
  if (final.length === 0) return
  stakes.pending = stakes.pending.filter((one) => !isFinal(one))
  for (const one of final) for (const listener of stakes.listeners) listener(one)
}
