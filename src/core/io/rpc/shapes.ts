/** What Ethereum JSON-RPC answers look like, and how they become the `Chain` port's plain data: lowercase hex, bigints. */
import { z } from 'zod'
import type { BlockHeader, ChainCall, ChainLog, ChainReceipt, Hex } from '../../ports.js'

export const Quantity = z.string().regex(/^0x[0-9a-fA-F]{1,64}$/)
export const HexData = z.string().regex(/^0x([0-9a-fA-F]{2})*$/)
export const Bytes32 = z.string().regex(/^0x[0-9a-fA-F]{64}$/)
export const Header = z.object({
  number: Quantity,
  hash: Bytes32,
  parentHash: Bytes32,
  timestamp: Quantity,
  baseFeePerGas: Quantity.nullish(),
  /** Absent or odd on some chains: then it proves nothing. */
  logsBloom: z.string().nullish(),
})
export type Header = z.infer<typeof Header>
export const Log = z.object({
  address: HexData,
  topics: z.array(Bytes32),
  data: HexData,
  blockNumber: Quantity,
  blockHash: Bytes32,
  transactionHash: Bytes32,
  logIndex: Quantity,
})
export const Receipt = z.object({
  transactionHash: Bytes32,
  blockNumber: Quantity,
  blockHash: Bytes32,
  status: Quantity,
  gasUsed: Quantity,
  effectiveGasPrice: Quantity.nullish(),
  logs: z.array(Log),
})
export const Transaction = z.object({ hash: Bytes32, input: HexData.default('0x') })

/** Hex as the port has it: lowercase. */
export const lower = (hex: string): Hex => hex.toLowerCase() as Hex
/** The block parameter of a read: a tag, or a number as a quantity. */
export const blockTag = (at: 'latest' | 'finalized' | 'pending' | bigint): string => (typeof at === 'bigint' ? `0x${at.toString(16)}` : at)
/** The call object of eth_call and eth_estimateGas. */
export const callObject = ({ to, data, from, gas }: ChainCall) => ({
  to,
  data,
  ...(from === undefined ? {} : { from }),
  ...(gas === undefined ? {} : { gas: `0x${gas.toString(16)}` }),
})

/** A header of the port; `baseFeePerGas` in wei, 0 where the chain has none. */
export function headerOf(found: Header): BlockHeader {
  return {
    number: BigInt(found.number),
    hash: lower(found.hash),
    parentHash: lower(found.parentHash),
    timestamp: BigInt(found.timestamp),
    baseFeePerGas: BigInt(found.baseFeePerGas ?? '0x0'),
  }
}

/** A log of the port. */
export function logOf(found: z.infer<typeof Log>): ChainLog {
  return {
    address: lower(found.address),
    topics: found.topics.map(lower),
    data: lower(found.data),
    blockNumber: BigInt(found.blockNumber),
    blockHash: lower(found.blockHash),
    transactionHash: lower(found.transactionHash),
    logIndex: Number(found.logIndex),
  }
}

/** A receipt of the port; `gasUsed` in gas. */
export function receiptOf(found: z.infer<typeof Receipt>): ChainReceipt {
  return {
    transactionHash: lower(found.transactionHash),
    blockNumber: BigInt(found.blockNumber),
    blockHash: lower(found.blockHash),
    status: BigInt(found.status) === 1n ? 'success' : 'reverted',
    gasUsed: BigInt(found.gasUsed),
    ...(found.effectiveGasPrice ? { gasPriceWei: BigInt(found.effectiveGasPrice) } : {}),
    logs: found.logs.map(logOf),
  }
}
