/**
 * `propose` on SignedProposer: its calldata, and how the chain shows that it happened (domain §2,
 * §2.1, §4).
 */
import { decodeEventLog, encodeFunctionData } from 'viem'
import {
  type Address,
  type BlockHeader,
  type Chain,
  ChainError,
  type ChainLog,
  type Hex,
} from '../ports.js'
import type { RoundRef } from '../protocol/candidate.js'
import type { WitnessRequest, WitnessTerms } from '../protocol/witness.js'
import { oracleAbi, signedProposerAbi, topics } from './contracts.js'
import { lowercase, readContract, zeroAddress } from './reading.js'
import { keccakHex } from './round.js'

/** A signed proposal with all that `propose` takes. */
export interface ProposeCall {
  readonly request: WitnessRequest
  readonly token: Address
  readonly proposer: Address
  readonly terms: WitnessTerms
  readonly signature: Hex
}

/** The exact calldata; `maxPayment` and `payment` are 0 in this service (§2.1). */
export function proposeCalldata({ request, token, proposer, terms, signature }: ProposeCall): Hex {
  const proposal = {
    oracle: request.oracle,
    requester: request.requester,
    identifier: request.identifier,
    timestamp: BigInt(request.timestamp),
    ancillaryData: request.ancillaryData,
    proposedPrice: BigInt(terms.price),
    maxPayment: 0n,
  }
  const permit = {
    permitted: { token, amount: BigInt(terms.amount) },
    nonce: BigInt(terms.nonce),
    deadline: BigInt(terms.deadline),
  }
  return encodeFunctionData({
    abi: signedProposerAbi,
    functionName: 'propose',
    args: [proposal, proposer, permit, signature, 0n],
  })
}

/** What a ProposePrice log says (domain §4). `price` is a decimal string. */
export interface ProposedPrice {
  readonly oracle: Address
  readonly requester: Address
  readonly proposer: Address
  readonly identifier: Hex
  readonly timestamp: string
  readonly ancillaryHash: Hex
  readonly price: string
  readonly log: ChainLog
}

/** The ProposePrice that a log is, or `undefined`. */
export function proposedPriceOf(log: ChainLog): ProposedPrice | undefined {
  if (log.topics[0] !== topics.proposePrice) return undefined
  try {
    const { args } = decodeEventLog({
      abi: oracleAbi,
      eventName: 'ProposePrice',
      data: log.data,
      topics: log.topics as [Hex, ...Hex[]],
    })
    return {
      oracle: log.address,
      requester: lowercase(args.requester),
      proposer: lowercase(args.proposer),
      identifier: args.identifier,
      timestamp: String(args.timestamp),
      ancillaryHash: keccakHex(args.ancillaryData),
      price: String(args.proposedPrice),
      log,
    }
  } catch {
    // Any contract may log this topic with other data; it is then not the event that was looked
    // for.
    return undefined
  }
}

/** Whether a ProposePrice belongs to a round. */
export function isOfRound(
  found: ProposedPrice,
  round: Omit<RoundRef, 'key' | 'questionId'>,
): boolean {
  return (
    found.oracle === round.oracle &&
    found.requester === round.requester &&
    found.identifier === round.identifier &&
    found.timestamp === round.timestamp &&
    found.ancillaryHash === round.ancillaryHash
  )
}

/**
 * The ProposePrice among these logs that answers a round with this proposer and price, or
 * `undefined` (contract §5, `indexed`).
 */
export function findProposed(
  logs: readonly ChainLog[],
  wanted: { readonly round: RoundRef; readonly proposer: Address; readonly price: string },
): ProposedPrice | undefined {
  for (const log of logs) {
    const found = proposedPriceOf(log)
    if (
      found &&
      isOfRound(found, wanted.round) &&
      found.proposer === wanted.proposer &&
      found.price === wanted.price
    )
      return found
  }
  return undefined
}

/**
 * Whether these logs of one transaction hold SignedProposer's own event for a proposal: it came by
 * a signature (domain §2.1).
 */
export function cameThroughSignedProposer(
  logs: readonly ChainLog[],
  signedProposer: Address,
  found: ProposedPrice,
): boolean {
  return logs.some((log) => {
    if (log.address !== signedProposer || log.topics[0] !== topics.proposalExecuted) return false
    const executed = proposalExecutedOf(log)
    return (
      executed !== undefined &&
      executed.proposer === found.proposer &&
      executed.oracle === found.oracle &&
      executed.requester === found.requester &&
      executed.identifier === found.identifier &&
      executed.timestamp === found.timestamp &&
      executed.price === found.price
    )
  })
}

/** What a ProposalExecuted log says (domain §2); it names no ancillary data. */
export function proposalExecutedOf(log: ChainLog) {
  if (log.topics[0] !== topics.proposalExecuted) return undefined
  try {
    const { args } = decodeEventLog({
      abi: signedProposerAbi,
      eventName: 'ProposalExecuted',
      data: log.data,
      topics: log.topics as [Hex, ...Hex[]],
    })
    return {
      proposer: lowercase(args.proposer),
      oracle: lowercase(args.oracle),
      requester: lowercase(args.requester),
      identifier: args.identifier,
      timestamp: String(args.timestamp),
      price: String(args.proposedPrice),
    }
  } catch {
    // As above: a log with this topic and other data is not the event.
    return undefined
  }
}

/**
 * Who is looked for: a proposer with a price, and the permit that tells one authorization of theirs
 * from another.
 */
export interface Expected {
  readonly proposer: Address
  readonly price: string
  readonly amount: string
  readonly nonce: string
  readonly deadline: string
}

/**
 * What a round holds: who proposed which price (a decimal string), and where. `bySignature`:
 * through our SignedProposer, by the very authorization that was looked for; then transaction and
 * log index (in the block) are known.
 */
export type OnChainProposal =
  | {
      readonly proposer: Address
      readonly price: string
      readonly bySignature: true
      readonly transactionHash: Hex
      readonly logIndex: number
    }
  | {
      readonly proposer: Address
      readonly price: string
      readonly bySignature: false
      readonly transactionHash: Hex | null
    }

/**
 * The proposal that a round holds as of a block, or `undefined` where it holds none. The oracle
 * keeps the time of the proposal but not its transaction, so the blocks of that time are searched.
 * Rejects with `ChainError`; so it does where the proposal is `expected`, and the node does not
 * show log, receipt and calldata: "not ours" must not be concluded from a node that lags. Source:
 * domain §4 (Request), §9.
 */
export async function locateProposal(
  chain: Chain,
  request: WitnessRequest,
  signedProposer: Address,
  at: BlockHeader,
  expected: Expected | undefined,
): Promise<OnChainProposal | undefined> {
  const key = [
    request.requester,
    request.identifier,
    BigInt(request.timestamp),
    request.ancillaryData,
  ] as const
  const held = await readContract(chain, at.number, request.oracle, oracleAbi, 'getRequest', key)
  const proposer = lowercase(held.proposer)
  const price = String(held.proposedPrice)
  if (proposer === zeroAddress) return undefined
  const found = await findLog(chain, request, held.proposalTime, at)
  const isExpected =
    expected !== undefined && proposer === expected.proposer && price === expected.price
  if (!isExpected)
    return {
      proposer,
      price,
      bySignature: false,
      transactionHash: found?.log.transactionHash ?? null,
    }
  const [receipt, calldata] = found
    ? await Promise.all([
        chain.receipt(found.log.transactionHash),
        chain.calldata(found.log.transactionHash),
      ])
    : [null, null]
  if (!found || !receipt || calldata === null) {
    throw new ChainError(
      'unavailable',
      `the node shows a proposal by ${proposer}, and not its transaction yet`,
    )
  }
  const transactionHash = found.log.transactionHash
  const isOwn =
    cameThroughSignedProposer(receipt.logs, signedProposer, found) &&
    carriesPermit(calldata, expected)
  if (!isOwn) return { proposer, price, bySignature: false, transactionHash }
  return { proposer, price, bySignature: true, transactionHash, logIndex: found.log.logIndex }
}

/**
 * Whether calldata holds this permit. No event names a permit's nonce, and a wallet may have signed
 * the same price for a round twice; the fields of a permit stand side by side in `propose`, in a
 * `multicall` and in what another relayer's contract passes on (domain §2).
 */
function carriesPermit(calldata: Hex, { amount, nonce, deadline }: Expected): boolean {
  const words = [amount, nonce, deadline].map((value) =>
    BigInt(value).toString(16).padStart(64, '0'),
  )
  return calldata.includes(words.join(''))
}

async function findLog(
  chain: Chain,
  request: WitnessRequest,
  proposalTime: bigint,
  at: BlockHeader,
): Promise<ProposedPrice | undefined> {
  const first = await firstBlockFrom(chain, proposalTime, at)
  if (first === undefined) return undefined
  const logs = await chain.logs({
    fromBlock: first,
    toBlock: await lastBlockOf(chain, proposalTime, first, at.number),
    addresses: [request.oracle],
    topics: [topics.proposePrice, addressTopic(request.requester)],
  })
  const round = { ...request, ancillaryHash: keccakHex(request.ancillaryData) }
  return logs.map(proposedPriceOf).find((price) => price !== undefined && isOfRound(price, round))
}

/** An address as an indexed event argument. */
export function addressTopic(address: Address): Hex {
  return `0x${'0'.repeat(24)}${address.slice(2)}`
}

/**
 * Number of the first block whose time is at least `timestamp`, by bisection up to a known block.
 */
async function firstBlockFrom(
  chain: Chain,
  timestamp: bigint,
  last: BlockHeader,
): Promise<bigint | undefined> {
  if (last.timestamp < timestamp) return undefined
  let low = 0n
  let high = last.number
  // Doubling steps back from the end first: proposals that are looked for are recent, and old
  // headers may be pruned.
  for (let step = 16n; step < last.number; step *= 4n) {
    const probe = await chain.block(last.number - step)
    if (probe === null || probe.timestamp < timestamp) {
      low = last.number - step + 1n
      break
    }
    high = probe.number
  }
  while (low < high) {
    const middle = (low + high) / 2n
    const header = await chain.block(middle)
    if (header === null || header.timestamp < timestamp) low = middle + 1n
    else high = middle
  }
  return low
}

/**
 * Blocks of one second that are searched at most; chains that make more in a second are none of
 * ours (domain §8).
 */
const blocksOfOneTime = 256n

/**
 * Number of the last block with this time, from the first one on; where a chain makes blocks more
 * often than once a second they share it.
 */
async function lastBlockOf(
  chain: Chain,
  timestamp: bigint,
  first: bigint,
  head: bigint,
): Promise<bigint> {
  const end = first + blocksOfOneTime - 1n < head ? first + blocksOfOneTime - 1n : head
  const isOfTime = async (number: bigint) => (await chain.block(number))?.timestamp === timestamp
  let last = first
  let beyond = end + 1n
  // Doubling steps, then half of what is left: mostly the very next block is later, and one read
  // tells.
  for (let step = 1n; last < end; step *= 2n) {
    const probe = last + step < end ? last + step : end
    if (!(await isOfTime(probe))) {
      beyond = probe
      break
    }
    last = probe
  }
  while (last + 1n < beyond) {
    const middle = (last + beyond) / 2n
    if (await isOfTime(middle)) last = middle
    else beyond = middle
  }
  return last
}
