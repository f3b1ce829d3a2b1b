/**
 * A fake chain as a JSON-RPC node tells it, and what such a node may get wrong: a fuzzed answer is
 * one that no sound node could have given to that call, so that whoever believes it has made
 * something up.
 */

import { toFunctionSelector } from 'viem'
import type { RpcCall, Transport } from '#io/rpc/transport'
import {
  type BlockHeader,
  type Chain,
  ChainError,
  type ChainLog,
  type ChainReceipt,
  type Hex,
} from '#ports'
import type { Address } from '#protocol/schema'

const quantity = (value: bigint | number): string => `0x${value.toString(16)}`

const headerTold = (header: BlockHeader) => ({
  number: quantity(header.number),
  hash: header.hash,
  parentHash: header.parentHash,
  timestamp: quantity(header.timestamp),
  baseFeePerGas: quantity(header.baseFeePerGas),
})
const logTold = (log: ChainLog) => ({
  ...log,
  blockNumber: quantity(log.blockNumber),
  logIndex: quantity(log.logIndex),
})
const receiptTold = (receipt: ChainReceipt) => ({
  transactionHash: receipt.transactionHash,
  blockNumber: quantity(receipt.blockNumber),
  blockHash: receipt.blockHash,
  status: receipt.status === 'success' ? '0x1' : '0x0',
  gasUsed: quantity(receipt.gasUsed),
  logs: receipt.logs.map(logTold),
})

type At = 'latest' | 'pending' | 'finalized' | bigint
const atOf = (tag: unknown): At =>
  tag === 'latest' || tag === 'pending' || tag === 'finalized' ? tag : BigInt(String(tag))

async function told(chain: Chain, { method, params }: RpcCall): Promise<unknown> {
  const [first, second] = params
  switch (method) {
    case 'eth_chainId':
      return quantity(await chain.chainId())
    case 'eth_getBlockByNumber': {
      const header = await chain.block(atOf(first))
      return header && headerTold(header)
    }
    case 'eth_call': {
      const { to, data, from } = first as { to: Address; data: Hex; from?: Address }
      return chain.call(
        { to, data, ...(from === undefined ? {} : { from }) },
        atOf(second) as 'latest',
      )
    }
    case 'eth_estimateGas':
      return quantity(await chain.estimateGas(first as Parameters<Chain['estimateGas']>[0]))
    case 'eth_getLogs': {
      const { fromBlock, toBlock, address, topics } = first as Record<string, never>
      const filter = {
        fromBlock: BigInt(fromBlock ?? 0),
        toBlock: BigInt(toBlock ?? 0),
        addresses: address ?? [],
      }
      return (await chain.logs(topics === undefined ? filter : { ...filter, topics })).map(logTold)
    }
    case 'eth_getCode':
      return chain.code(first as Address, atOf(second) as 'latest')
    case 'eth_getStorageAt':
      return chain.storage(first as Address, second as Hex)
    case 'eth_getBalance':
      return quantity(await chain.balance(first as Address))
    case 'eth_getTransactionCount':
      return quantity(await chain.transactionCount(first as Address, atOf(second) as 'latest'))
    case 'eth_maxPriorityFeePerGas':
      return quantity(await chain.tip())
    case 'eth_sendRawTransaction':
      return chain.send(first as Hex)
    case 'eth_getTransactionReceipt': {
      const receipt = await chain.receipt(first as Hex)
      return receipt && receiptTold(receipt)
    }
    case 'eth_getTransactionByHash': {
      const input = await chain.calldata(first as Hex)
      return (await chain.hasTransaction(first as Hex))
        ? { hash: first, input: input ?? '0x' }
        : null
    }
    default:
      throw new ChainError('refused', `${method}: no such method`)
  }
}

export function chainNode(
  chain: Chain,
  fuzz: (call: RpcCall, outcome: unknown) => unknown,
): Transport {
  // The methods as they are now: whoever puts fuzzed ones in their place must not be asked by the
  // node itself.
  const own: Chain = { ...chain }
  return {
    exchange: (calls) =>
      Promise.all(
        calls.map(async (call) => {
          const outcome = await told(own, call).catch((error: unknown) => {
            if (error instanceof ChainError) return error
            throw error
          })
          return fuzz(call, outcome)
        }),
      ),
  }
}

const pickOf = <T>(list: readonly T[], at: number): T => list[at % list.length] as T

const noValue: readonly unknown[] = [
  7,
  -1,
  1e300,
  true,
  '',
  '0X1',
  'latest',
  '12',
  '0xzz',
  ' 0x1',
  `0x${'f'.repeat(65)}`,
  `0x${'1'.repeat(4_000)}`,
  [],
  {},
  [null],
  { result: '0x1' },
  '-0x1',
  '0x1.5',
]

export function broken({ method, params }: RpcCall, outcome: unknown, pick: number): unknown {
  const kind = pick % 8
  if (kind === 0) return new ChainError('unavailable', 'HTTP 503')
  if (kind === 1 || outcome instanceof ChainError || outcome === null)
    return pickOf(noValue, pick >> 3)
  if (typeof outcome === 'string') {
    if (method === 'eth_call' && !asksList(params)) return cutShort(outcome, pick)
    if (method === 'eth_getTransactionCount' && kind === 2)
      return pickOf([`0x${'f'.repeat(64)}`, '0x20000000000000'], pick >> 3)
    if (method === 'eth_sendRawTransaction' && kind === 2) return `0x${'ab'.repeat(32)}`
    return pickOf(noValue, pick >> 3)
  }
  if (Array.isArray(outcome))
    return outcome.length === 0
      ? pickOf(
          noValue.filter((value) => !Array.isArray(value) || value.length > 0),
          pick >> 3,
        )
      : [...outcome.slice(1), without(outcome[0], pick)]
  if (kind === 2 || kind === 3) return foreign(method, params, outcome as Record<string, unknown>)
  return without(outcome, pick)
}

/**
 * Any address may be set as a request's whitelist: of these calls a short answer is a sound one,
 * and lists nobody (domain §4).
 */
const listCalls = ['isOnWhitelist(address)', 'owner()'].map((signature) =>
  toFunctionSelector(signature),
)
const asksList = (params: readonly unknown[]): boolean =>
  listCalls.some((selector) => String((params[0] as { data?: string }).data).startsWith(selector))

const cutShort = (data: string, pick: number): unknown => {
  const cut =
    data.length <= 66
      ? pickOf(['0x', data.slice(0, -2), data.slice(0, 34), 5], pick >> 3)
      : pickOf(['0x', data.slice(0, 66), data.slice(0, -2)], pick >> 3)
  return cut === data ? '0x' : cut
}

function foreign(
  method: string,
  params: readonly unknown[],
  outcome: Record<string, unknown>,
): unknown {
  const other = `0x${'cd'.repeat(32)}`
  if (method === 'eth_getTransactionReceipt') return { ...outcome, transactionHash: other }
  if (method === 'eth_getTransactionByHash') return { ...outcome, hash: other }
  if (String(params[0]).startsWith('0x'))
    return { ...outcome, number: quantity(BigInt(String(outcome.number)) + 1n), hash: other }
  return without(outcome, 0)
}

function without(outcome: unknown, pick: number): unknown {
  if (typeof outcome !== 'object' || outcome === null) return pickOf(noValue, pick)
  const fields = Object.keys(outcome).filter((name) => name !== 'baseFeePerGas' && name !== 'input')
  const field = pickOf(fields, pick >> 4)
  const { [field]: _gone, ...rest } = outcome as Record<string, unknown>
  if (pick % 2 === 0) return rest
  const odd = pickOf(
    noValue.filter((value) => !Array.isArray(value) || value.length > 0),
    pick >> 3,
  )
  return { ...rest, [field]: odd }
}
