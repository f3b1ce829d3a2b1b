/**
 * What chain and ledger show of open slots: receipts of all their hashes, the nonces of their
 * executors, and where their candidates stand (robustness §3).
 */
import type { BlockHeader, Chain, ChainReceipt, Hex } from '../../ports.js'
import type { Candidate } from '../../protocol/candidate.js'
import type { Slot } from '../ledger/ledger.js'
import { submissionOf } from '../validation/progress.js'
import type { Heads } from '../view/state.js'
import { isRejected, isSendDue, isTooBig, needsHigherFee, noteMined } from './resending.js'
import { mayAsk, mayRaise } from './sending.js'
import { type ChainFacts, type RecordedStatus, type SlotFacts, slotStateOf } from './slot.js'
import { isDoomed, isTooLate, type SlotLook } from './state.js'

/** By slot id. Rejects with `ChainError`. */
export async function gather(
  chain: Chain,
  slots: readonly Slot[],
  heads: Heads,
  maySend: boolean,
): Promise<Map<string, ChainFacts>> {
  const executors = [...new Set(slots.map(({ executor }) => executor))]
  const nonces = new Map(
    await Promise.all(
      executors.map(async (executor) => {
        const [nonceLatest, nonceFinalized] = await Promise.all([
          chain.transactionCount(executor, 'latest'),
          chain.transactionCount(executor, 'finalized'),
        ])
        return [executor, { nonceLatest, nonceFinalized }] as const
      }),
    ),
  )
  const headers = new Map<bigint, Promise<BlockHeader | null>>()
  /** Only canonical blocks count (R14), and none that the view has not followed yet. */
  const canonicalReceipt = async (hash: Hex): Promise<readonly [Hex, ChainReceipt][]> => {
    const receipt = await chain.receipt(hash)
    if (receipt === null || receipt.blockNumber > heads.latest.number) return []
    const header = headers.get(receipt.blockNumber) ?? chain.block(receipt.blockNumber)
    headers.set(receipt.blockNumber, header)
    return (await header)?.hash === receipt.blockHash ? [[receipt.transactionHash, receipt]] : []
  }
  const gathered = slots.map(async ({ id, executor, attempts }) => {
    const hashes = attempts.map(({ hash }) => hash)
    // Asked together: one after the other would cost each look another round trip.
    const [found, seen] = await Promise.all([
      Promise.all(hashes.map(canonicalReceipt)),
      Promise.all(hashes.map((hash) => chain.hasTransaction(hash))),
    ])
    const receipts = new Map(found.flat())
    const held = new Set(receipts.size > 0 ? [] : hashes.filter((_, index) => seen[index]))
    const { nonceLatest = 0, nonceFinalized = 0 } = nonces.get(executor) ?? {}
    return [id, { maySend, nonceLatest, nonceFinalized, receipts, held }] as const
  })
  return new Map(await Promise.all(gathered))
}

/** Statuses of a submission, in the order in which it moves on. */
const order: readonly RecordedStatus[] = [
  null,
  'prepared',
  'dropped',
  'submitted',
  'reverted',
  'confirmed',
  'indexed',
]
const rankOf = ({ progress }: Candidate) => order.indexOf(submissionOf(progress)?.status ?? null)

/**
 * All that a slot's next action depends on. What is seen of its transactions is noted: mined ones,
 * and that a refused one is taken.
 */
export function factsOf(look: SlotLook): SlotFacts {
  const { executor, slot, heads, shown } = look
  const { ports, faults } = executor
  const head = heads.latest.number
  const newest = slot.attempts.at(-1)
  for (const hash of shown.receipts.keys()) noteMined(executor, hash)
  const isHeld = newest !== undefined && shown.held.has(newest.hash)
  if (isHeld || shown.receipts.size > 0 || shown.nonceLatest > slot.nonce) faults.taken(slot.id)
  return {
    ...shown,
    finalizedNumber: heads.finalized.number,
    ...candidateFacts(look),
    sendDue: newest === undefined || isSendDue(executor, newest.hash),
    refitDue: newest !== undefined && isTooBig(executor, newest.hash),
    renewDue: newest !== undefined && isRejected(executor, newest.hash, head),
    bumpDue:
      newest !== undefined &&
      needsHigherFee(executor, newest.hash, head, {
        isNext: shown.nonceLatest === slot.nonce,
        isHeld,
        isFirst: slot.attempts.filter(({ kind }) => kind === newest.kind).length === 1,
      }) &&
      mayRaise(look, newest) &&
      mayAsk(executor, slot.id, heads),
    maySign: slot.executor === ports.signer.address,
  }
}

function candidateFacts({
  executor,
  slot,
  alive,
  heads,
  shown,
}: SlotLook): Pick<SlotFacts, 'recorded' | 'hopes' | 'deadlineUnsettled' | 'expired'> {
  const state = slotStateOf(slot, shown)
  const mined = state.kind === 'mined' ? state.attempt : undefined
  const carried = alive.filter(({ id }) => mined?.candidateIds.includes(id))
  const newest = slot.attempts.at(-1)
  const carriedIds = newest?.kind === 'propose' ? newest.candidateIds : slot.candidateIds
  const hopeful = alive.filter(
    (candidate) => carriedIds.includes(candidate.id) && !isDoomed(executor, candidate, heads),
  )
  const isSettled = ({ deadline }: Candidate) => heads.finalized.timestamp > BigInt(deadline)
  return {
    // Where an operator has rejected all that it carries, the slot only waits for its end.
    recorded: carried.length > 0 ? (order[Math.min(...carried.map(rankOf))] ?? null) : 'indexed',
    hopes: hopeful.length === 0 ? 'none' : hopeful.length === carriedIds.length ? 'all' : 'some',
    expired: alive.every(isSettled),
    deadlineUnsettled: alive.some(
      (candidate) =>
        mined?.candidateIds.includes(candidate.id) !== true &&
        isTooLate(executor, candidate, heads) &&
        !isSettled(candidate),
    ),
  }
}
