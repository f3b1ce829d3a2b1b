import * as z from 'zod/mini'
import type { Chain, ChainCall, ChainReceipt, Hex } from '#ports'
import { lowercase } from '#protocol/words'

export type WireLogFilter = Parameters<Chain['logs']>[0]

const matching = (pattern: RegExp) => z.string().check(z.regex(pattern))
const hex = (pattern: RegExp) => z.pipe(matching(pattern), z.transform(lowercase))

/** Asking for pairs would take many times as long. */
export const HexData = z.pipe(
  matching(/^0x[0-9a-fA-F]*$/).check(z.refine(({ length }) => length % 2 === 0)),
  z.transform(lowercase),
)
export const HashHex = hex(/^0x[0-9a-fA-F]{64}$/)
/** Some nodes shorten them. */
export const Word = z.pipe(
  matching(/^0x[0-9a-fA-F]{1,64}$/),
  z.transform((text: string): Hex => `0x${lowercase(text.slice(2)).padStart(64, '0')}`),
)
export const Quantity = z.pipe(
  matching(/^0x[0-9a-fA-F]{1,64}$/),
  z.transform((text: string) => BigInt(text)),
)
/** Beyond 2^53 it would be another one (R16). */
export const Count = z.pipe(
  Quantity.check(z.refine<bigint>((value) => value <= BigInt(Number.MAX_SAFE_INTEGER))),
  z.transform((value: bigint) => Number(value)),
)

export const Header = z.object({
  number: Quantity,
  hash: HashHex,
  parentHash: HashHex,
  timestamp: Quantity,
  baseFeePerGas: z.pipe(
    z.nullish(Quantity),
    z.transform((fee) => fee ?? 0n),
  ),
  gasLimit: z.catch(z.optional(Quantity), undefined),
  /** Some chains lack it: then it proves nothing. */
  logsBloom: z.nullish(z.string()),
  gasUsed: z.catch(z.optional(Quantity), undefined),
})
export type Header = z.infer<typeof Header>

const Log = z.pipe(
  z.object({
    address: HexData,
    topics: z.array(HashHex),
    data: HexData,
    blockNumber: Quantity,
    blockHash: HashHex,
    transactionHash: HashHex,
    logIndex: Count,
    /** Of some nodes. */
    blockTimestamp: z.catch(z.optional(Quantity), undefined),
  }),
  // Some nodes say 0 for what they do not know.
  z.transform(({ blockTimestamp, ...log }) => (blockTimestamp ? { ...log, blockTimestamp } : log)),
)

const Receipt = z.pipe(
  z.object({
    transactionHash: HashHex,
    blockNumber: Quantity,
    blockHash: HashHex,
    status: matching(/^0x0*[01]$/),
    from: z.optional(HexData),
    to: z.nullish(HexData),
    gasUsed: Quantity,
    effectiveGasPrice: z.nullish(Quantity),
    logs: z.array(Log),
  }),
  z.transform(
    ({ effectiveGasPrice, status, ...rest }): ChainReceipt => ({
      ...rest,
      status: BigInt(status) === 1n ? 'success' : 'reverted',
      gasPriceWei: effectiveGasPrice ?? undefined,
    }),
  ),
)

const Transaction = z.object({ hash: HashHex, input: z._default(HexData, '0x') })

// An answer about something else than was asked for is none (R16).
export const headerOfBlock = (number: bigint) =>
  z.nullable(Header.check(z.refine((found) => found.number === number)))
export const receiptFor = (hash: Hex) =>
  z.nullable(Receipt.check(z.refine((found) => found.transactionHash === hash)))
export const transactionWith = (hash: Hex) =>
  z.nullable(Transaction.check(z.refine((found) => found.hash === hash)))
export const logsWithin = ({ fromBlock, toBlock, addresses, blockHash: only }: WireLogFilter) =>
  z.array(
    Log.check(
      z.refine(
        ({ address, blockNumber, blockHash }) =>
          blockNumber >= fromBlock &&
          blockNumber <= toBlock &&
          (only === undefined || blockHash === only) &&
          (addresses.length === 0 || addresses.includes(address)),
      ),
    ),
  )

export const blockTag = (at: 'latest' | 'finalized' | 'pending' | bigint) =>
  typeof at === 'bigint' ? `0x${at.toString(16)}` : at
export const callObject = ({ to, data, from, ...numbers }: ChainCall) => ({
  to,
  data,
  from,
  gas: quantity(numbers.gas),
  maxFeePerGas: quantity(numbers.maxFeePerGas),
  maxPriorityFeePerGas: quantity(numbers.maxPriorityFeePerGas),
})

const quantity = (value: bigint | undefined) =>
  value === undefined ? undefined : `0x${value.toString(16)}`
