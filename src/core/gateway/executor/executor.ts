/**
 * One nonce a transaction and one transaction a round (R3), every step durable before the next
 * (robustness §3, R15, R23).
 */

import type { Slot, SlotAttempt } from '../ledger/ledger.js'
import type { Heads } from '../view/state.js'
import { bindNonce, driveSlot } from './driving.js'
import type { ChainFacts } from './slot.js'
import { gather, readDoomed } from './slot-facts.js'
import { type Executor, mostFilled } from './state.js'

/** A wider gap is left to the operator: another key costs less than filling it. */
const mostMissing = 1_000
const missing = 'missing'

/** `maySend` false: receipts are followed alone. */
export async function followSlots(executor: Executor, heads: Heads, maySend: boolean) {
  const { faults, ports } = executor
  const slots = ports.ledger.slots()
  executor.reverting = new Set()
  if (slots.length === 0) return faults.drop(missing)
  const gathered = await gather(ports.chain, slots, heads, maySend)
  const reverted = new Set(
    slots.flatMap(({ id, attempts }) => {
      const isReverting = ({ hash }: SlotAttempt) => {
        const receipt = gathered.get(id)?.receipts.get(hash)
        return receipt?.status === 'reverted' && receipt.blockNumber > heads.finalized.number
      }
      return attempts.filter(isReverting).flatMap(({ candidateIds }) => candidateIds)
    }),
  )
  if (reverted.size > 0)
    executor.reverting = new Set(
      ports.ledger.active().flatMap(({ id, proposer }) => (reverted.has(id) ? [proposer] : [])),
    )
  executor.succeeded = new Set(
    [...gathered].flatMap(([id, { receipts }]) =>
      [...receipts.values()].some(({ status }) => status === 'success') ? [id] : [],
    ),
  )
  executor.doomed = await readDoomed(executor, heads)
  for (const { id } of slots) {
    const shown = gathered.get(id)
    if (shown) await driveSlot(executor, id, heads, shown)
  }
  await faults.look(missing, async () => {
    const gap = findGap(executor, slots, gathered, heads)
    if (gap === undefined) return
    faults.note(missing, gap.fault)
    // The lowest first: nodes keep few transactions that wait for others.
    if (maySend)
      for (const nonce of gap.due)
        await (await bindNonce(executor, nonce, undefined, heads, nonce)).sent
  })
}

export function executorFaults({ ports, faults }: Executor) {
  const former = ports.ledger.slots().filter(({ executor }) => executor !== ports.signer.address)
  return [
    ...faults.all(),
    ...former.map(
      ({ executor, nonce }) =>
        `nonce ${nonce} of the former executor ${executor} is not settled yet`,
    ),
  ]
}

/**
 * Nonces that nothing uses, below one of ours: no node mines what is above them. A node that
 * reported a count too high makes them, or a chain that lost final blocks (R27). Filled once the
 * head that first showed the gap is final: a count that lags or lies for a moment makes none
 * (R15).
 */
function findGap(
  executor: Executor,
  slots: readonly Slot[],
  gathered: ReadonlyMap<string, ChainFacts>,
  { latest, finalized }: Heads,
) {
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
  const last = Math.max(next, ...waiting)
  const count = waiting.length === 0 ? 0 : last + 1 - next - waiting.length
  if (count === 0) {
    executor.gap = undefined
    return undefined
  }
  let first = next
  while (waiting.includes(first)) first += 1
  const since = executor.gap && first >= executor.gap.nonce ? executor.gap.since : latest.number
  executor.gap = { nonce: first, since }
  const fault = `nonce ${first} of the executor ${address} is not used by any transaction, and ${waiting.length} open transactions wait for it: ${count} nonces are missing`
  if (count > mostMissing)
    return { fault: `${fault}, more than are filled: give the executor another key`, due: [] }
  const lowest = Array.from({ length: mostFilled }, (_, at) => next + at)
  const isSettled = finalized.number >= since
  return {
    fault: `${fault}, filled by self-transfers once that is final`,
    due: isSettled ? lowest.filter((nonce) => nonce < last && !waiting.includes(nonce)) : [],
  }
}
