/**
 * Nonces that nothing uses, below one that a slot of ours holds: no node mines what is above them
 * (robustness §3). A node that told a count too high makes them, and so does a chain that lost
 * blocks that were final (R27).
 */
import type { Slot } from '../ledger/ledger.js'
import type { Heads } from '../view/state.js'
import type { Gathered } from './slot-facts.js'
import type { Executor } from './state.js'

/** Filled by us at most. A wider gap would cost much gas: the operator decides. */
export const mostFilled = 16

/**
 * The gap below the open slots, as far as these facts show one, with the nonces to be given back by
 * self-transfers now. It is filled once the head that first showed it is final, for a count that
 * lags or lies for a moment makes none. Source: R15, robustness §3 (nonce too high).
 */
export function findGap(
  executor: Executor,
  slots: readonly Slot[],
  gathered: ReadonlyMap<string, Gathered>,
  { latest, finalized }: Heads,
): { readonly fault: string; readonly due: readonly number[] } | undefined {
  const { address } = executor.ports.signer
  const own = slots.filter((slot) => slot.executor === address)
  // A receipt proves more than a count: the nonces up to its own are used.
  const next = Math.max(
    ...own.map(({ id, nonce }) => {
      const { nonceLatest = 0, receipts } = gathered.get(id) ?? {}
      return receipts?.size ? Math.max(nonceLatest, nonce + 1) : nonceLatest
    }),
  )
  const waiting = own.map(({ nonce }) => nonce).filter((nonce) => nonce >= next)
  const upTo = Math.max(next, ...waiting)
  const missing = Array.from({ length: upTo - next }, (_, at) => next + at).filter(
    (nonce) => !waiting.includes(nonce),
  )
  const [first] = missing
  if (first === undefined) {
    executor.gap = undefined
    return undefined
  }
  if (executor.gap?.nonce !== first) executor.gap = { nonce: first, since: latest.number }
  const fault = `nonce ${first} of the executor ${address} is used by nothing, and ${waiting.length} open transactions wait for it`
  if (missing.length > mostFilled)
    return {
      fault: `${fault}: ${missing.length} nonces are missing, use them up with transactions of that key`,
      due: [],
    }
  return {
    fault: `${fault}: it is filled by a self-transfer once that is final`,
    due: finalized.number < executor.gap.since ? [] : missing,
  }
}
