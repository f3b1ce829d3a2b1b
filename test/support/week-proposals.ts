/**
 * Every proposal that the week's chain holds, read from its blocks: whose, at what price, and by
 * which signature (domain §2.1, §9).
 */

import { decodeEventLog, decodeFunctionData } from 'viem'
import { topics } from '#chain/contracts'
import type { Hex } from '#ports'
import type { Address } from '#protocol/schema'
import { contracts, type WeekChain, type WeekQuestion } from './week-chain.js'
import type { Signed } from './week-model.js'

export interface ChainProposal {
  readonly requester: Address
  readonly timestamp: bigint
  readonly ancillaryData: Hex
  readonly proposer: Address
  readonly price: bigint
  readonly block: bigint
  readonly transactionHash: Hex
  readonly logIndex: number
  readonly sender: Address
  readonly nonce: bigint | undefined
  readonly totalBondRaw: bigint
}

interface Log {
  readonly address: Address
  readonly topics: readonly Hex[]
  readonly data: Hex
  readonly transactionHash: Hex
  readonly blockNumber: Hex
  readonly logIndex: Hex
}

interface Proposed {
  readonly requester: Address
  readonly proposer: Address
  readonly timestamp: bigint
  readonly ancillaryData: Hex
  readonly proposedPrice: bigint
}

interface Executed {
  readonly proposer: Address
  readonly requester: Address
  readonly timestamp: bigint
  readonly proposedPrice: bigint
  readonly totalBond: bigint
}

const small = (text: string) => text.toLowerCase() as Address

function decode<Args>(
  log: Log,
  contract: { readonly artifact: { readonly abi: readonly unknown[] } },
  eventName: string,
): Args {
  const { args } = decodeEventLog({
    abi: contract.artifact.abi as never,
    eventName: eventName as never,
    data: log.data,
    topics: log.topics as [Hex, ...Hex[]],
  })
  return args as unknown as Args
}

export async function proposalsIn(
  chain: WeekChain,
  from: bigint,
  to: bigint,
): Promise<readonly ChainProposal[]> {
  const range = { fromBlock: `0x${from.toString(16)}`, toBlock: `0x${to.toString(16)}` }
  const address = [contracts.oracle.address, contracts.signedProposer.address]
  const logs = await chain.request<Log[]>('eth_getLogs', [
    { ...range, address, topics: [[topics.proposePrice, topics.proposalExecuted]] },
  ])
  const found: ChainProposal[] = []
  for (const [index, log] of logs.entries()) {
    if (log.topics[0] !== topics.proposePrice) continue
    const proposed = decode<Proposed>(log, contracts.oracle, 'ProposePrice')
    const sent = await chain.request<{ from: Address; input: Hex }>('eth_getTransactionByHash', [
      log.transactionHash,
    ])
    const next = logs[index + 1]
    const bySignature =
      next?.topics[0] === topics.proposalExecuted && next.transactionHash === log.transactionHash
    const executed = bySignature
      ? decode<Executed>(next, contracts.signedProposer, 'ProposalExecuted')
      : undefined
    if (
      executed &&
      (small(executed.proposer) !== small(proposed.proposer) ||
        executed.timestamp !== proposed.timestamp)
    )
      throw new Error('ProposalExecuted does not follow its ProposePrice')
    found.push({
      requester: small(proposed.requester),
      timestamp: proposed.timestamp,
      ancillaryData: proposed.ancillaryData,
      proposer: small(proposed.proposer),
      price: proposed.proposedPrice,
      block: BigInt(log.blockNumber),
      transactionHash: log.transactionHash,
      logIndex: Number(log.logIndex),
      sender: small(sent.from),
      nonce: executed && nonceOf(sent.input, proposed),
      totalBondRaw: executed?.totalBond ?? 0n,
    })
  }
  return found
}

function nonceOf(input: Hex, proposed: Proposed): bigint {
  const { abi } = contracts.signedProposer.artifact
  const { functionName, args = [] } = decodeFunctionData({ abi, data: input })
  const calls = functionName === 'multicall' ? (args[0] as readonly Hex[]) : [input]
  for (const call of calls) {
    const [proposal, proposer, permit] = (decodeFunctionData({ abi, data: call }).args ??
      []) as unknown as readonly [
      { readonly timestamp: bigint; readonly ancillaryData: Hex },
      Address,
      { readonly nonce: bigint },
    ]
    const isIt =
      small(proposer) === small(proposed.proposer) &&
      proposal.timestamp === proposed.timestamp &&
      proposal.ancillaryData === proposed.ancillaryData
    if (isIt) return permit.nonce
  }
  throw new Error('the transaction does not carry what it proposed')
}

export function ownProposal(
  proposals: readonly ChainProposal[],
  signed: Signed,
  block?: bigint,
): ChainProposal | undefined {
  return proposals.find(
    (found) =>
      found.nonce === signed.permit.nonce &&
      found.proposer === signed.wallet.address &&
      isInRound(found, signed.question, signed.proposal.timestamp) &&
      (block === undefined || found.block <= block),
  )
}

export function isInRound(
  found: ChainProposal,
  question: WeekQuestion,
  timestamp: bigint,
): boolean {
  return (
    found.requester === question.requester &&
    found.timestamp === timestamp &&
    found.ancillaryData === question.ancillaryData
  )
}
