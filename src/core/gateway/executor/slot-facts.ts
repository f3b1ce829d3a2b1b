/**
 * What chain and ledger show of open slots: receipts of all their hashes, the nonces of their
 * executors, and where their candidates stand (robustness §3).
 */

import { oracleAbi } from '#chain/contracts'
import { locateProposal } from '#chain/propose'
import { lowercase, readContract, unlessRefused, zeroAddress } from '#chain/reading'
import type { BlockHeader, Chain, ChainReceipt, Hex } from '#ports'
import type { Candidate } from '#protocol/candidate'
import type { WitnessRequest } from '#protocol/witness'
import type { Slot } from '../ledger/ledger.js'
import { isSpentAt } from '../validation/contract-reads.js'
import type { OwnProposal } from '../validation/round-end.js'
import { inParts } from '../validation/side-by-side.js'
import type { Heads } from '../view/state.js'
import { isRejected, isSendDue, isTooBig, needsHigherFee, noteMined } from './resending.js'
import { mayAsk, mayRaise } from './sending.js'
import { type ChainFacts, type SlotFacts, slotStateOf } from './slot.js'
import { type Executor, isDoomed, isTooLate, type SlotLook } from './state.js'
import { carriedBy, readProposeCalldata, readTransaction } from './transaction.js'

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
}: SlotLook): Pick<SlotFacts, 'hopes' | 'deadlineUnsettled' | 'expired'> {
  const state = slotStateOf(slot, shown)
  const mined = state.kind === 'mined' ? state.attempt : undefined
  const newest = slot.attempts.at(-1)
  const carriedIds = newest?.kind === 'propose' ? newest.candidateIds : slot.candidateIds
  const hopeful = alive.filter(
    (candidate) => carriedIds.includes(candidate.id) && !isDoomed(executor, candidate, heads),
  )
  const isSettled = ({ deadline }: Candidate) => heads.finalized.timestamp > BigInt(deadline)
  return {
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

function requestOf({ attempts }: Slot, { id }: Candidate): WitnessRequest | undefined {
  const attempt = attempts.find(({ candidateIds }) => candidateIds.includes(id))
  if (attempt === undefined) return undefined
  const calldata = carriedBy(readTransaction(attempt.raw).data)[attempt.candidateIds.indexOf(id)]
  return calldata && readProposeCalldata(calldata).request
}

async function proposalOf(
  { executor, slot, heads }: SlotLook,
  candidate: Candidate,
  expected: Candidate | undefined,
) {
  const { chain, contracts } = executor.ports
  const request = requestOf(slot, candidate)
  if (request === undefined) return undefined
  // An oracle that does not answer as one shows nothing.
  return unlessRefused(
    locateProposal(chain, request, contracts.signedProposer, heads.finalized, expected),
  )
}

/** Whether the candidate's round holds, in final state, a proposal of the slot's own. */
export async function isShownMined(look: SlotLook, candidate: Candidate): Promise<boolean> {
  const { executor, slot } = look
  const proposal = await proposalOf(look, candidate, undefined)
  const attempt = slot.attempts.find(({ hash }) => hash === proposal?.transactionHash)
  if (attempt === undefined) return false
  executor.faults.note(
    slot.id,
    `the node shows the proposal of transaction ${attempt.hash}, and contradicts it by the receipt`,
  )
  return true
}

/** Whether final state agrees with a receipt of success that lacks this candidate's proposal. */
export async function failsByReceipt(look: SlotLook, candidate: Candidate): Promise<boolean> {
  const { executor, slot, heads } = look
  if (await isShownMined(look, candidate)) return false
  // A real success spends the permit nonce.
  if (await isSpentAt(executor.ports, candidate, heads.finalized.number)) return true
  executor.faults.note(
    slot.id,
    `the node contradicts a success of nonce ${slot.nonce}: the permit nonce of ${candidate.id} is not spent`,
  )
  return false
}

export async function ownProposal(
  look: SlotLook,
  candidate: Candidate,
): Promise<OwnProposal | undefined> {
  const proposal = await proposalOf(look, candidate, candidate)
  return proposal?.bySignature ? proposal : undefined
}

/**
 * Candidates of open slots that can only revert when they are mined, as the head shows it. Memory
 * alone cancels nothing: what may be dead by it is read again.
 */
export async function readDoomed(
  { ports }: Executor,
  { latest }: Heads,
): Promise<ReadonlySet<string>> {
  const { ledger, turn } = ports
  const suspects = ledger.active().flatMap((candidate) => {
    const slot = ledger.slotOf(candidate.id)
    if (slot === undefined) return []
    return ports.maybeSpent(candidate) || !ports.maybeOpen(candidate) ? [{ slot, candidate }] : []
  })
  const found = await inParts(suspects, readAtOnce, turn, async ({ slot, candidate }) => {
    const request = requestOf(slot, candidate)
    return (await isDoomedAt(ports, request, candidate, latest.number)) ? [candidate.id] : []
  })
  return new Set(found.flat())
}

const readAtOnce = 8

/**
 * Whether the permit nonce is spent, or the round gone, taken or left by its requester. A round
 * that holds the very proposal is not lost: the receipt of our own transaction lags, or is on
 * another node's branch (R14).
 */
async function isDoomedAt(
  ports: Executor['ports'],
  request: WitnessRequest | undefined,
  candidate: Candidate,
  blockNumber: bigint,
) {
  const [isSpent, held] = await Promise.all([
    isSpentAt(ports, candidate, blockNumber),
    request &&
      readContract(ports.chain, blockNumber, request.oracle, oracleAbi, 'getRequest', [
        request.requester,
        request.identifier,
        BigInt(request.timestamp),
        request.ancillaryData,
      ]),
  ])
  if (held) {
    const holder = lowercase(held.proposer)
    if (holder === candidate.proposer && String(held.proposedPrice) === candidate.price)
      return false
    if (lowercase(held.currency) === zeroAddress || holder !== zeroAddress) return true
  }
  if (isSpent) return true
  // The requester may be in another round, while the oracle would still take a proposal of this one.
  const { questionId, timestamp } = candidate.round
  const current = await unlessRefused(ports.readRound(questionId, blockNumber))
  return current !== undefined && current.timestamp !== timestamp
}
