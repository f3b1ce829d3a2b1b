/** Which candidates of open slots can only revert when they are mined, as one block shows it. */
import { oracleAbi, permit2Abi } from '../../chain/contracts.js'
import type { RegistryEntry, RoundReader } from '../../chain/questions.js'
import { lowercase, readContract, zeroAddress } from '../../chain/reading.js'
import type { Contracts } from '../../chain/round.js'
import { type Chain, ChainError, type Hex } from '../../ports.js'
import type { Candidate } from '../../protocol/candidate.js'
import { nonceBit, nonceUsed } from '../../protocol/permit.js'
import type { Slot } from '../ledger/ledger.js'
import { carriedBy, readProposeCalldata, readTransaction } from './transaction.js'

/**
 * The `propose` that a slot's transactions hold for a candidate; `undefined` where none was signed.
 */
export function calldataOf({ attempts }: Slot, { id }: Pick<Candidate, 'id'>): Hex | undefined {
  const attempt = attempts.find(({ candidateIds }) => candidateIds.includes(id))
  return attempt && carriedBy(readTransaction(attempt.raw).data)[attempt.candidateIds.indexOf(id)]
}

interface Ports {
  readonly chain: Chain
  readonly contracts: Contracts
}

interface RoundPorts extends Ports {
  readonly rounds: RoundReader
  entry(questionId: Hex): RegistryEntry | undefined
}

/** Whether the permit nonce is spent or invalidated at a block. Rejects with `ChainError`. */
export async function isSpentAt(
  { chain, contracts }: Ports,
  { proposer, nonce }: Candidate,
  blockNumber: bigint,
): Promise<boolean> {
  const asked = [proposer, nonceBit(BigInt(nonce)).word] as const
  return nonceUsed(
    BigInt(nonce),
    await readContract(chain, blockNumber, contracts.permit2, permit2Abi, 'nonceBitmap', asked),
  )
}

/**
 * Whether the requester is in another round by now, while the oracle would still take a proposal of
 * the candidate's.
 */
async function isReset(
  ports: RoundPorts,
  { round }: Candidate,
  blockNumber: bigint,
): Promise<boolean> {
  const { questionId, timestamp } = round
  const current = await ports.rounds
    .read(questionId, ports.entry(questionId), blockNumber)
    .catch((error: unknown) => {
      // A requester that gives no sound answer shows no other round.
      if (error instanceof ChainError && error.kind !== 'unavailable') return undefined
      throw error
    })
  return current !== undefined && current.timestamp !== timestamp
}

/**
 * Whether the permit nonce is spent, or the round gone, taken or left by its requester. A round
 * that holds the very proposal is not lost: the receipt of our own transaction lags, or is on
 * another node's branch (R14). Rejects with `ChainError`.
 */
export async function isDoomedAt(
  ports: RoundPorts,
  slot: Slot,
  candidate: Candidate,
  blockNumber: bigint,
): Promise<boolean> {
  const { proposer, price } = candidate
  const calldata = calldataOf(slot, candidate)
  const request = calldata && readProposeCalldata(calldata).request
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
  const holder = held && lowercase(held.proposer)
  if (holder === proposer && String(held?.proposedPrice) === price) return false
  const isGone = held !== undefined && lowercase(held.currency) === zeroAddress
  if (isGone || (holder !== undefined && holder !== zeroAddress) || isSpent) return true
  return isReset(ports, candidate, blockNumber)
}
