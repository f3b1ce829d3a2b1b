/**
 * What the chain shows of open slots: receipts of all their hashes, and the nonces of their
 * executors (robustness §3).
 */
import type { BlockHeader, Chain, ChainReceipt, Hex } from '../../ports.js'
import type { Candidate } from '../../protocol/candidate.js'
import type { Slot } from '../ledger/ledger.js'
import { submissionOf } from '../pipeline/progress.js'
import type { Heads } from '../view/view.js'
import { type SlotFacts, type SubmissionState, stateOf } from './slot.js'

export interface Gathered {
  readonly heads: Heads
  readonly maySend: boolean
  /** The executor's next nonce at the head and at the finalized block. */
  readonly nonceLatest: number
  readonly nonceFinalized: number
  /** Canonical receipts of the slot's attempts. */
  readonly receipts: ReadonlyMap<Hex, ChainReceipt>
  /** Attempts that the node holds without such a receipt. */
  readonly held: ReadonlySet<Hex>
}

/** By slot id. Rejects with `ChainError`. */
export async function gather(
  chain: Chain,
  slots: readonly Slot[],
  heads: Heads,
  maySend: boolean,
): Promise<Map<string, Gathered>> {
  const executors = [...new Set(slots.map(({ executor }) => executor))]
  const headers = new Map<bigint, Promise<BlockHeader | null>>()
  const headerAt = (number: bigint) => {
    const asked = headers.get(number) ?? chain.block(number)
    headers.set(number, asked)
    return asked
  }
  const nonces = new Map(
    await Promise.all(
      executors.map(async (executor) => {
        const [latest, finalized] = await Promise.all([
          chain.transactionCount(executor, 'latest'),
          chain.transactionCount(executor, 'finalized'),
        ])
        return [executor, { latest, finalized }] as const
      }),
    ),
  )
  const gathered = slots.map(async (slot) => {
    const hashes = slot.attempts.map(({ hash }) => hash)
    const found = await Promise.all(
      hashes.map(async (hash) => {
        const receipt = await chain.receipt(hash)
        // Only canonical blocks count (R14), and none that the view has not followed yet.
        if (receipt === null || receipt.blockNumber > heads.latest.number) return undefined
        return (await headerAt(receipt.blockNumber))?.hash === receipt.blockHash
          ? receipt
          : undefined
      }),
    )
    const receipts = new Map(
      found.flatMap((receipt) => (receipt ? [[receipt.transactionHash, receipt] as const] : [])),
    )
    const seen =
      receipts.size > 0 ? [] : await Promise.all(hashes.map((hash) => chain.hasTransaction(hash)))
    const held = new Set(hashes.filter((_, index) => seen[index]))
    const nonce = nonces.get(slot.executor)
    return [
      slot.id,
      {
        heads,
        maySend,
        nonceLatest: nonce?.latest ?? 0,
        nonceFinalized: nonce?.finalized ?? 0,
        receipts,
        held,
      },
    ] as const
  })
  return new Map(await Promise.all(gathered))
}

/** States of a submission, in the order in which it moves on. */
const order: readonly SubmissionState[] = [
  null,
  'prepared',
  'dropped',
  'submitted',
  'reverted',
  'confirmed',
  'indexed',
]
const recordedOf = ({ progress }: Candidate): SubmissionState =>
  submissionOf(progress)?.status ?? null

/**
 * What the ledger says of a slot's candidates, beside what the chain shows. `alive`: those that no
 * operator has rejected. `isDoomed`: as far as the head shows, mining could only revert for this
 * one. `deadlinePassed` as of the head, with a margin.
 */
export function candidateFacts(
  slot: Slot,
  gathered: Gathered,
  alive: readonly Candidate[],
  judge: { isDoomed(candidate: Candidate): boolean; deadlinePassed(candidate: Candidate): boolean },
): Pick<SlotFacts, 'recorded' | 'strays' | 'hopes' | 'deadlineUnsettled' | 'expired'> {
  const state = stateOf(slot, gathered)
  const mined = state.kind === 'mined' ? state.attempt : undefined
  const counted = mined ? alive.filter(({ id }) => mined.candidateIds.includes(id)) : alive
  const places = counted.map((candidate) => order.indexOf(recordedOf(candidate)))
  const newest = slot.attempts.at(-1)
  const carriedIds = newest?.kind === 'propose' ? newest.candidateIds : slot.candidateIds
  const hopeful = alive.filter(
    (candidate) => carriedIds.includes(candidate.id) && !judge.isDoomed(candidate),
  )
  return {
    recorded:
      counted.length > 0
        ? { least: order[Math.min(...places)] ?? null, most: order[Math.max(...places)] ?? null }
        : // An operator has rejected all that it carries: then nothing is left to record, and the slot only waits for its end.
          { least: mined?.kind === 'propose' ? 'indexed' : null, most: null },
    strays: alive.some(
      (candidate) =>
        !counted.includes(candidate) &&
        order.indexOf(recordedOf(candidate)) >= order.indexOf('reverted'),
    ),
    hopes: hopeful.length === 0 ? 'none' : hopeful.length === carriedIds.length ? 'all' : 'some',
    expired: alive.every(
      (candidate) => gathered.heads.finalized.timestamp > BigInt(candidate.deadline),
    ),
    deadlineUnsettled: alive.some(
      (candidate) =>
        mined?.candidateIds.includes(candidate.id) !== true &&
        judge.deadlinePassed(candidate) &&
        gathered.heads.finalized.timestamp <= BigInt(candidate.deadline),
    ),
  }
}
