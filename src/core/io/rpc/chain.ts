/**
 * The `Chain` port over several nodes: what one node may tell alone, and what needs the word of the
 * others (R14–R16, robustness §7.3).
 */
import { LRUCache } from 'lru-cache'
import * as z from 'zod/mini'
import { type BlockHeader, type Chain, ChainError, type ChainLog, type Hex } from '../../ports.js'
import { lowercase } from '../../protocol/words.js'
import { mayHold, mayMatch } from './bloom.js'
import {
  healthOf,
  type NodeHealth,
  noteHead,
  otherChainId,
  rotation,
  takeOut,
} from './node-table.js'
import {
  ask,
  askNode,
  createRouter,
  type Read,
  type Router,
  type RouterOptions,
  ready,
} from './router.js'
import { isMissingState } from './rpc-errors.js'
import { sendToAll } from './sending.js'
import {
  blockTag,
  Count,
  callObject,
  Header,
  HexData,
  headerOfBlock,
  logsWithin,
  Quantity,
  receiptFor,
  transactionWith,
  Word,
} from './shapes.js'
import type { Transport } from './transport.js'

/** A chain and the nodes that it is read from. */
export interface RpcChain extends Chain {
  /** How each node stands, in the order of the configuration. */
  nodes(): readonly NodeHealth[]
}

/** For so long another node's slightly older head does not replace the one that was given out. */
const headHoldsMs = 10_000
/** Headers whose blooms are kept; the view reads logs of few blocks at a time. */
const rememberedBlooms = 64

type LogFilter = Parameters<Chain['logs']>[0]

interface Reader {
  readonly router: Router
  readonly headers: LRUCache<bigint, { readonly hash: Hex; readonly bloom: Hex | undefined }>
  newest?: { readonly header: BlockHeader; readonly index: number; readonly seenAtMs: number }
}

/**
 * Every method rejects with `ChainError`. `close` ends the probing of nodes. Source: R16,
 * robustness §3.
 */
export function chainOver(
  transports: readonly Transport[],
  options: RouterOptions,
): RpcChain & { close(): void } {
  const router = createRouter(transports, options)
  const reader: Reader = { router, headers: new LRUCache({ max: rememberedBlooms }) }
  const one = async <T>(method: string, params: readonly unknown[], shape: Read<T>['shape']) =>
    (await ask(router, { method, params, shape })).result
  const transaction = (hash: Hex) =>
    askForAny(router, {
      method: 'eth_getTransactionByHash',
      params: [hash],
      shape: transactionWith(hash),
    })

  return {
    async chainId() {
      await ready(router)
      // All on one other chain: that is the answer, and the caller knows what it means.
      return one('eth_chainId', [], Count).catch((error: unknown) => elsewhere(router, error))
    },
    block: (at) => (typeof at === 'bigint' ? numberedBlock(reader, at) : headBlock(reader, at)),
    call: (call, at = 'latest') => one('eth_call', [callObject(call), blockTag(at)], HexData),
    logs: (filter) => logsOf(reader, filter),
    code: (address, at = 'latest') => one('eth_getCode', [address, blockTag(at)], HexData),
    storage: (address, slot, at = 'latest') =>
      one('eth_getStorageAt', [address, slot, blockTag(at)], Word),
    balance: (address) => one('eth_getBalance', [address, 'latest'], Quantity),
    async transactionCount(address, at) {
      const read = { method: 'eth_getTransactionCount', params: [address, at], shape: Count }
      const { result, index } = await ask(router, read)
      if (at === 'pending') return result
      // A count that is too high would free or skip a nonce for good (R15); one that is too low
      // only makes us wait.
      return Math.min(result, ...(await askOthers(router, index, read)))
    },
    estimateGas: (call) => one('eth_estimateGas', [callObject(call)], Quantity),
    async tip() {
      try {
        return await one('eth_maxPriorityFeePerGas', [], Quantity)
      } catch (error) {
        if (!(error instanceof ChainError) || error.kind !== 'refused') throw error
        // Not every node has that method; the legacy price is base fee and tip.
        const [price, head] = await Promise.all([
          one('eth_gasPrice', [], Quantity),
          headBlock(reader, 'latest'),
        ])
        const tip = price - (head?.baseFeePerGas ?? 0n)
        return tip > 0n ? tip : 0n
      }
    },
    receipt: (hash) =>
      askForAny(router, {
        method: 'eth_getTransactionReceipt',
        params: [hash],
        shape: receiptFor(hash),
      }),
    hasTransaction: async (hash) => (await transaction(hash)) !== null,
    calldata: async (hash) => (await transaction(hash))?.input ?? null,
    send: (raw) => sendToAll(router, raw),
    nodes: () => healthOf(router.table),
    close: () => router.closing.abort(),
  }
}

/** The one other chain that all nodes are on; without one the error goes on. */
function elsewhere({ table }: Router, error: unknown): number {
  const chainId = otherChainId(table)
  if (chainId === undefined) throw error
  return chainId
}

const othersThan = ({ table }: Router, index: number) =>
  rotation(table).filter((other) => other !== index)
const askOthers = <T>(router: Router, index: number, read: Read<T>): Promise<T[]> =>
  Promise.all(othersThan(router, index).map((other) => askNode(router, other, read)))

/**
 * "There is none" counts once every healthy node says so: one that lags or lies must not make a
 * thing vanish.
 */
async function askForAny<T>(router: Router, read: Read<T | null>): Promise<T | null> {
  const { result, index } = await ask(router, read)
  if (result !== null) return result
  const others = await askOthers(router, index, read)
  return others.find((other) => other !== null) ?? null
}

const blockRead = <T>(at: Parameters<Chain['block']>[0], shape: Read<T>['shape']): Read<T> => ({
  method: 'eth_getBlockByNumber',
  params: [blockTag(at), false],
  shape,
})
const headerOf = ({ logsBloom: _, ...header }: Header): BlockHeader => header

async function numberedBlock({ router }: Reader, at: bigint): Promise<BlockHeader | null> {
  const found = await askForAny(router, blockRead(at, headerOfBlock(at)))
  return found && headerOf(found)
}

async function headBlock(
  reader: Reader,
  at: 'latest' | 'finalized' | 'pending',
): Promise<BlockHeader | null> {
  const { router, headers } = reader
  await ready(router)
  const { result, index } = await ask(router, blockRead(at, z.nullable(Header))).catch((error) => {
    // All on one other chain: of ours they know no block. `chainId` says why, which closes the view
    // at once instead of by age.
    elsewhere(router, error)
    return { result: null, index: 0 }
  })
  if (result === null) return null
  if (at !== 'pending') {
    const bloom = lowercase(result.logsBloom ?? '')
    headers.set(result.number, {
      hash: result.hash,
      bloom: /^0x[0-9a-f]{512}$/.test(bloom) ? bloom : undefined,
    })
  }
  return at === 'latest' ? neverOlder(reader, headerOf(result), index) : headerOf(result)
}

/**
 * After a change of nodes a slight lag must not look as if blocks had been undone. The same node's
 * own word always counts (R14).
 */
function neverOlder(reader: Reader, header: BlockHeader, index: number): BlockHeader {
  const { table } = reader.router
  const nowMs = table.clock.monotonicMs()
  noteHead(table, index, header)
  const { newest } = reader
  if (
    newest &&
    newest.index !== index &&
    header.number < newest.header.number &&
    nowMs - newest.seenAtMs < headHoldsMs
  )
    return newest.header
  reader.newest = { header, index, seenAtMs: nowMs }
  return header
}

async function logsOf(reader: Reader, filter: LogFilter): Promise<readonly ChainLog[]> {
  const { fromBlock, toBlock, addresses, topics } = filter
  const { router } = reader
  const { table } = router
  const blocks = { fromBlock: blockTag(fromBlock), toBlock: blockTag(toBlock) }
  const read: Read<ChainLog[]> = {
    method: 'eth_getLogs',
    params: [{ ...blocks, address: addresses, ...(topics && { topics }) }],
    shape: logsWithin(fromBlock, toBlock, addresses),
  }
  const { result, index } = await ask(router, read)
  if (result.length > 0 || isExcluded(reader, filter)) return result
  for (const other of othersThan(router, index)) {
    const found = await secondLook(router, other, toBlock, read)
    if (found === undefined) continue
    if (found.length === 0) return []
    const range = `blocks ${fromBlock} to ${toBlock}`
    if (!found.every((log) => mayExist(reader, log))) {
      const names = `RPC nodes ${index + 1} and ${other + 1} of ${table.nodes.length}`
      throw new ChainError('unavailable', `${names} disagree about the logs of ${range}`)
    }
    takeOut(table, index, 'contradicted', `it left out logs of ${range}`)
    table.preferred = other
    return found
  }
  return []
}

/** The blooms of all blocks of the range are known and exclude the filter: empty is right. */
function isExcluded({ headers }: Reader, { fromBlock, toBlock, ...filter }: LogFilter): boolean {
  if (toBlock - fromBlock >= BigInt(rememberedBlooms)) return false
  for (let number = fromBlock; number <= toBlock; number += 1n) {
    const bloom = headers.peek(number)?.bloom
    if (bloom === undefined || mayMatch(bloom, filter)) return false
  }
  return true
}

/** False for a log that the header which was read of its block excludes. */
function mayExist(
  { headers }: Reader,
  { blockNumber, blockHash, address, topics }: ChainLog,
): boolean {
  const known = headers.peek(blockNumber)
  if (known === undefined) return true
  const { hash, bloom } = known
  return (
    hash === blockHash &&
    (bloom === undefined || [address, ...topics].every((part) => mayHold(bloom, part)))
  )
}

/**
 * The logs as another node tells them; `undefined` where it does not have the block yet or cannot
 * tell so much at once.
 */
async function secondLook(router: Router, index: number, toBlock: bigint, read: Read<ChainLog[]>) {
  try {
    const [header, logs] = await Promise.all([
      askNode(router, index, blockRead(toBlock, headerOfBlock(toBlock))),
      askNode(router, index, read),
    ])
    return header === null ? undefined : logs
  } catch (error) {
    if (error instanceof ChainError && (isMissingState(error) || error.kind !== 'unavailable'))
      return undefined
    throw error
  }
}
