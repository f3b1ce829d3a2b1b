/**
 * Nonces that nothing uses, below one that a slot of ours holds: no node mines what is above them
 * (robustness §3). A node that told a count too high makes them, and so does a chain that lost
 * blocks that were final (R27).
 */
import type { Address } from '../../ports.js'
import type { Slot } from '../ledger/ledger.js'
import type { Heads } from '../view/view.js'
import type { Gathered } from './slot-facts.js'

/**
 * Filled by us at most. A wider gap would cost much gas, and is no slip of a node: the operator
 * decides.
 */
export const mostFilled = 16

export interface Gap {
  readonly fault: string
  /** The nonces to be given back by self-transfers now. */
  readonly due: readonly number[]
}

export interface Gaps {
  /** The gap below the open slots, as far as these facts show one. */
  look(
    slots: readonly Slot[],
    gathered: ReadonlyMap<string, Gathered>,
    heads: Heads,
  ): Gap | undefined
}

/**
 * Remembers since which head a gap is there: it is filled once that head is final, for a count that
 * lags or lies for a moment makes none. Source: R15, robustness §3 (nonce too high).
 */
export function createGaps(executor: Address): Gaps {
  let seen: { readonly nonce: number; readonly at: bigint } | undefined
  return {
    look(slots, gathered, heads) {
      const own = slots.filter((slot) => slot.executor === executor)
      // A receipt proves more than a count: the nonces up to its own are used.
      const next = Math.max(
        ...own.map(({ id, nonce }) => {
          const { nonceLatest = 0, receipts } = gathered.get(id) ?? {}
          return receipts?.size ? Math.max(nonceLatest, nonce + 1) : nonceLatest
        }),
      )
      const waiting = own.map(({ nonce }) => nonce).filter((nonce) => nonce >= next)
      const missing = waiting.length === 0 ? 0 : Math.max(...waiting) + 1 - next - waiting.length
      if (missing === 0) {
        seen = undefined
        return undefined
      }
      let first = next
      while (waiting.includes(first)) first += 1
      if (seen?.nonce !== first) seen = { nonce: first, at: heads.latest.number }
      const fault = `nonce ${first} of the executor ${executor} is used by nothing, and ${waiting.length} open transactions wait for it`
      if (missing > mostFilled) {
        return {
          fault: `${fault}: ${missing} nonces are missing, use them up with transactions of that key`,
          due: [],
        }
      }
      const all = Array.from({ length: Math.max(...waiting) - next }, (_, at) => next + at)
      const due =
        heads.finalized.number < seen.at ? [] : all.filter((nonce) => !waiting.includes(nonce))
      return { fault: `${fault}: it is filled by a self-transfer once that is final`, due }
    },
  }
}
