/**
 * What Ethereum JSON-RPC answers look like, and how they become the `Chain` port's plain data:
 * lowercase hex, bigints.
 */
import * as z from 'zod'
import type { BlockHeader, ChainCall, ChainLog, ChainReceipt, Hex } from '../../ports.js'

export const Quantity = z.string().regex(/^0x[0-9a-fA-F]{1,64}$/)
/** A quantity that becomes a number: beyond 2^53 it would be another one without a word (R16). */
export const Count = z
  .string()
  // abort: on other text the refinement would throw.
  .regex(/^0x[0-9a-fA-F]{1,64}$/, { abort: true })
  .refine((text) => BigInt(text) <= BigInt(Number.MAX_SAFE_INTEGER))
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
  logIndex: Count,
})
export const Receipt = z.object({
  transactionHash: Bytes32,
  blockNumber: Quantity,
  blockHash: Bytes32,
  status: z.string().regex(/^0x0*[01]$/),
  gasUsed: Quantity,
  effectiveGasPrice: Quantity.nullish(),
  logs: z.array(Log),
})
export const Transaction = z.object({ hash: Bytes32, input: HexData.default('0x') })

// An answer about something else than was asked for, such as a proxy that mixes up its callers
// gives, is none (R16).
/** The header of exactly this block, or `null`. */
export const headerOfBlock = (number: bigint) =>
  Header.refine((found) => isQuantity(found.number) && BigInt(found.number) === number).nullable()
/** The receipt of exactly this transaction, or `null`. */
export const receiptFor = (hash: Hex) =>
  Receipt.refine((found) => lower(found.transactionHash) === hash).nullable()
/** Exactly this transaction, or `null`. */
export const transactionWith = (hash: Hex) =>
  Transaction.refine((found) => lower(found.hash) === hash).nullable()
/** Logs of these contracts in these blocks only. */
export const logsWithin = (fromBlock: bigint, toBlock: bigint, addresses: readonly Hex[]) =>
  z.array(
    Log.refine(({ address, blockNumber }) => {
      if (!isQuantity(blockNumber) || (addresses.length > 0 && !addresses.includes(lower(address))))
        return false
      return BigInt(blockNumber) >= fromBlock && BigInt(blockNumber) <= toBlock
    }),
  )
// A refinement sees fields that have been found malformed already.
const isQuantity = (text: string) => Quantity.safeParse(text).success

/** Hex as the port has it: lowercase. */
export const lower = (hex: string): Hex => hex.toLowerCase() as Hex
/** The block parameter of a read: a tag, or a number as a quantity. */
export const blockTag = (at: 'latest' | 'finalized' | 'pending' | bigint): string =>
  typeof at === 'bigint' ? `0x${at.toString(16)}` : at
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
