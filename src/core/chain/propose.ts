import { encodeFunctionData } from 'viem'
import { type BlockHeader, type Chain, ChainError, type ChainLog, type Hex } from '#ports'
import type { RoundRef } from '#protocol/candidate'
import { pick } from '#protocol/pick'
import type { Terms } from '#protocol/proposal'
import type { Address } from '#protocol/schema'
import type { WitnessRequest, WitnessTerms } from '#protocol/witness'
import { oracleAbi, signedProposerAbi, topics } from './contracts.js'
import { heldRequest, holderOf, loggedEvent, lowercase } from './reading.js'
import { keccakHex } from './round.js'

interface ProposeCall {
  readonly request: WitnessRequest
  readonly token: Address
  readonly proposer: Address
  readonly terms: WitnessTerms
  readonly signature: Hex
}

/** `maxPayment` and `payment` are 0 in this service (§2.1). */
export function proposeCalldata({ request, token, proposer, terms, signature }: ProposeCall) {
  const proposal = {
    ...pick(request, 'oracle', 'requester', 'identifier', 'ancillaryData'),
    timestamp: BigInt(request.timestamp),
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

type ProposedPrice = NonNullable<ReturnType<typeof readProposedPrice>>

const readLogs = new WeakMap<ChainLog, { readonly found: ProposedPrice | undefined }>()

function proposedPriceOf(log: ChainLog) {
  const known = readLogs.get(log) ?? { found: readProposedPrice(log) }
  readLogs.set(log, known)
  return known.found
}

function readProposedPrice(log: ChainLog) {
  const event =
    log.topics[0] === topics.proposePrice ? loggedEvent(oracleAbi, 'ProposePrice', log) : undefined
  if (event === undefined) return undefined
  const { args } = event
  return {
    ...termsIn(args),
    oracle: log.address,
    ancillaryHash: keccakHex(args.ancillaryData),
    log,
  }
}

const termsIn = (args: {
  readonly requester: Address
  readonly proposer: Address
  readonly identifier: Hex
  readonly timestamp: bigint
  readonly proposedPrice: bigint
}) => ({
  requester: lowercase(args.requester),
  proposer: lowercase(args.proposer),
  identifier: args.identifier,
  timestamp: String(args.timestamp),
  price: String(args.proposedPrice),
})

const agree = <K extends string>(
  one: Readonly<Record<K, unknown>>,
  other: Readonly<Record<K, unknown>>,
  ...names: readonly K[]
) => names.every((name) => one[name] === other[name])

export const isOfRound = (found: ProposedPrice, round: Omit<RoundRef, 'key' | 'questionId'>) =>
  agree(found, round, 'oracle', 'requester', 'identifier', 'timestamp', 'ancillaryHash')

/** The log that makes a submission `indexed` (contract §5). */
export const findProposed = (
  logs: readonly ChainLog[],
  wanted: { readonly round: RoundRef; readonly proposer: Address; readonly price: string },
) =>
  logs
    .map(proposedPriceOf)
    .find(
      (found) =>
        found && isOfRound(found, wanted.round) && agree(found, wanted, 'proposer', 'price'),
    )

/** By a signature (domain §2.1). */
export function cameThroughSignedProposer(
  logs: readonly ChainLog[],
  signedProposer: Address,
  found: ProposedPrice,
) {
  return logs.some((log) => {
    const executed = log.address === signedProposer ? proposalExecutedOf(log) : undefined
    return (
      executed !== undefined &&
      agree(executed, found, 'proposer', 'oracle', 'requester', 'identifier', 'timestamp', 'price')
    )
  })
}

function proposalExecutedOf(log: ChainLog) {
  const event =
    log.topics[0] === topics.proposalExecuted
      ? loggedEvent(signedProposerAbi, 'ProposalExecuted', log)
      : undefined
  return event && { ...termsIn(event.args), oracle: lowercase(event.args.oracle) }
}

/** `bySignature`: by the very authorization that was looked for. */
export type OnChainProposal = { readonly proposer: Address; readonly price: string } & (
  | {
      readonly bySignature: true
      readonly transactionHash: Hex
      readonly logIndex: number
    }
  | { readonly bySignature: false; readonly transactionHash: Hex | null }
)

/**
 * The oracle keeps its time but not its transaction. "Not ours" must not be concluded from a node
 * that lags: an `expected` one has to be shown (domain §9).
 */
export async function locateProposal(
  chain: Chain,
  request: WitnessRequest,
  signedProposer: Address,
  at: BlockHeader,
  expected: Terms | undefined,
): Promise<OnChainProposal | undefined> {
  const held = await heldRequest(chain, at.number, request)
  const proposer = holderOf(held.proposer)
  const price = String(held.proposedPrice)
  if (proposer === undefined) return undefined
  const found = await findLog(chain, request, held.proposalTime, at)
  const transactionHash = found?.log.transactionHash ?? null
  const other = { proposer, price, bySignature: false, transactionHash } as const
  if (proposer !== expected?.proposer || price !== expected.price) return other
  const [receipt, calldata] =
    transactionHash === null
      ? [null, null]
      : await Promise.all([chain.receipt(transactionHash), chain.calldata(transactionHash)])
  if (!found || !receipt || calldata === null) {
    throw notShownYet(proposer)
  }
  const isOwn =
    cameThroughSignedProposer(receipt.logs, signedProposer, found) &&
    carriesPermit(calldata, expected)
  if (!isOwn) return other
  return { proposer, price, bySignature: true, ...pick(found.log, 'transactionHash', 'logIndex') }
}

export const notShownYet = (proposer: Address) =>
  new ChainError(
    'unavailable',
    `the node shows a proposal by ${proposer}, and not its transaction yet`,
  )

/** No event names a permit's nonce (domain §2). */
function carriesPermit(calldata: Hex, { amount, nonce, deadline }: Terms) {
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
) {
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

export const addressTopic = (address: Address): Hex => `0x${'0'.repeat(24)}${address.slice(2)}`

export async function firstBlockFrom(chain: Chain, timestamp: bigint, last: BlockHeader) {
  if (last.timestamp < timestamp) return undefined
  const isBefore = async (number: bigint) => {
    const header = await chain.block(number)
    return header === null || header.timestamp < timestamp
  }
  let low = 0n
  let high = last.number
  // Old headers may be pruned.
  for (let step = 16n; step < last.number; step *= 4n) {
    const probe = last.number - step
    if (await isBefore(probe)) {
      low = probe + 1n
      break
    }
    high = probe
  }
  return bisect(low, high, isBefore)
}

async function bisect(low: bigint, high: bigint, isBefore: (number: bigint) => Promise<boolean>) {
  let [from, to] = [low, high]
  while (from < to) {
    const middle = (from + to) / 2n
    if (await isBefore(middle)) from = middle + 1n
    else to = middle
  }
  return from
}

const blocksOfOneTime = 256n

async function lastBlockOf(chain: Chain, timestamp: bigint, first: bigint, head: bigint) {
  const most = first + blocksOfOneTime - 1n
  const end = most < head ? most : head
  const isOfTime = async (number: bigint) => (await chain.block(number))?.timestamp === timestamp
  let last = first
  for (let step = 1n; last < end; step *= 2n) {
    const probe = last + step < end ? last + step : end
    if (!(await isOfTime(probe))) return (await bisect(last + 1n, probe, isOfTime)) - 1n
    last = probe
  }
  return last
}
