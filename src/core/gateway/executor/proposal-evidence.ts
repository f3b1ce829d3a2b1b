/**
 * What state shows of a slot's proposals, beside what receipts and counts say: those may be wrong,
 * or late (R14, R27). All reject with `ChainError`; a contradiction is noted of the slot.
 */
import { oracleAbi } from '../../chain/contracts.js'
import { locateProposal } from '../../chain/propose.js'
import { lowercase, readContract, unlessRefused, zeroAddress } from '../../chain/reading.js'
import type { Candidate } from '../../protocol/candidate.js'
import type { WitnessRequest } from '../../protocol/witness.js'
import type { Slot } from '../ledger/ledger.js'
import { isSpentAt } from '../validation/contract-reads.js'
import { isOwn, type OwnProposal } from '../validation/round-end.js'
import { inParts } from '../validation/side-by-side.js'
import type { Heads } from '../view/state.js'
import type { Executor, SlotLook } from './state.js'
import { carriedBy, readProposeCalldata, readTransaction } from './transaction.js'

/** The request that a slot's transactions name for a candidate; `undefined` where none was signed. */
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
  const { chain, contracts } = executor.ports.afresh
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
  if (await isSpentAt(executor.ports.afresh, candidate, heads.finalized.number)) return true
  executor.faults.note(
    slot.id,
    `the node contradicts a success of nonce ${slot.nonce}: the permit nonce of ${candidate.id} is not spent`,
  )
  return false
}

/** The candidate's own proposal in final state, whoever sent it. */
export async function ownProposal(
  look: SlotLook,
  candidate: Candidate,
): Promise<OwnProposal | undefined> {
  const proposal = await proposalOf(look, candidate, candidate)
  return proposal && isOwn(candidate, proposal) ? proposal : undefined
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

/** Requests of our own calldata that are decoded and asked about at once. */
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
): Promise<boolean> {
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
