/**
 * What one node may tell alone, and what needs the word of the others (R14–R16, robustness §7.3).
 */
import * as z from 'zod/mini'
import { type BlockHeader, type Chain, ChainError, type Clock, type Hex, type Random } from '#ports'
import type { RpcCounts } from '#protocol/vitals'
import { type BlockBlooms, logsOf, newBlockBlooms, noteBloom } from './block-logs.js'
import {
  healthOf,
  type NodeHealth,
  noteHead,
  otherChainId,
  rotation,
  takers,
  whyNone,
} from './node-table.js'
import {
  ask,
  askNode,
  blockRead,
  createRouter,
  hand,
  othersThan,
  type Read,
  type Router,
  type RouterOptions,
  ready,
} from './router.js'
import {
  blockTag,
  Count,
  callObject,
  HashHex,
  Header,
  HexData,
  headerOfBlock,
  Quantity,
  receiptFor,
  transactionWith,
  Word,
} from './shapes.js'
import { createTransports, type Transport } from './transport.js'

export type { NodeHealth } from './node-table.js'

export interface RpcOptions {
  readonly timeoutMs?: number
  readonly answerBytes?: number
  readonly expectedChainId?: number
  readonly maxHeadAgeSeconds?: number
  readonly clock?: Pick<Clock, 'monotonicMs'>
  readonly random?: Pick<Random, 'bytes'>
}

export function createChain(
  urls: readonly string[],
  options: RpcOptions = {},
): RpcChain & { close(): Promise<void> } {
  const { timeoutMs = 5_000, answerBytes = 32 * 1024 * 1024 } = options
  if (urls.length === 0) throw new RangeError('at least one RPC URL is required')
  const { transports, close } = createTransports(urls, { connectMs: timeoutMs, answerBytes })
  const chain = chainOver(transports, {
    timeoutMs,
    expectedChainId: options.expectedChainId,
    maxLagSeconds: options.maxHeadAgeSeconds,
    clock: options.clock ?? { monotonicMs: () => performance.now() },
    random: options.random ?? { bytes: (length) => crypto.getRandomValues(new Uint8Array(length)) },
  })
  return {
    ...chain,
    close() {
      chain.close()
      return close()
    },
  }
}

export interface RpcChain extends Chain {
  nodes(): readonly NodeHealth[]
  usage(): RpcCounts
}

const headHoldsMs = 10_000

interface Reader {
  readonly router: Router
  readonly blooms: BlockBlooms
  newest?: { readonly header: BlockHeader; readonly index: number; readonly seenAtMs: number }
}

export function chainOver(
  transports: readonly Transport[],
  options: RouterOptions,
): RpcChain & { close(): void } {
  const router = createRouter(transports, options)
  const reader: Reader = { router, blooms: newBlockBlooms() }
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
      // Too high would free or skip a nonce for good (R15); too low only makes us wait.
      return Math.min(result, ...(await askOthers(router, index, read)))
    },
    estimateGas: (call) => one('eth_estimateGas', [callObject(call)], Quantity),
    async tip() {
      try {
        return await one('eth_maxPriorityFeePerGas', [], Quantity)
      } catch (error) {
        if (!(error instanceof ChainError) || error.kind !== 'refused') throw error
        // Not every node has that method.
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
    usage: () => structuredClone(router.usage),
    close: () => router.closing.abort(),
  }
}

function elsewhere({ table }: Router, error: unknown) {
  const chainId = otherChainId(table)
  if (chainId === undefined) throw error
  return chainId
}

const askOthers = <T>(router: Router, index: number, read: Read<T>) =>
  Promise.all(othersThan(router, index).map((other) => askNode(router, other, read)))

/** One that lags or lies must not make a thing vanish. */
async function askForAny<T>(router: Router, read: Read<T | null>) {
  const { result, index } = await ask(router, read)
  if (result !== null) return result
  const others = await askOthers(router, index, read)
  return others.find((other) => other !== null) ?? null
}

const headerOf = ({ logsBloom: _, gasUsed: __, ...header }: Header): BlockHeader => header

async function numberedBlock({ router }: Reader, at: bigint) {
  const found = await askForAny(router, blockRead(at, headerOfBlock(at)))
  return found && headerOf(found)
}

async function headBlock(reader: Reader, at: 'latest' | 'finalized' | 'pending') {
  const { router, blooms } = reader
  await ready(router)
  const { result, index } = await ask(router, blockRead(at, z.nullable(Header))).catch((error) => {
    elsewhere(router, error)
    return { result: null, index: 0 }
  })
  if (result === null) return null
  if (at !== 'pending') noteBloom(blooms, result)
  return at === 'latest' ? neverOlder(reader, headerOf(result), index) : headerOf(result)
}

/** A slight lag must not look as if blocks had been undone (R14). */
function neverOlder(reader: Reader, header: BlockHeader, index: number) {
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

const ranks = ['already_known', 'replacement_underpriced', 'unavailable', 'nonce_too_low'] as const

/**
 * To every node (robustness §3). One acceptance is enough; else a node that holds it, then a
 * definite refusal. Of nodes out of rotation no refusal counts, nor an acceptance of a nonce that
 * the others say is used.
 */
async function sendToAll(router: Router, raw: Hex) {
  const { table } = router
  const all = takers(table)
  if (table.conflict || all.length === 0) throw new ChainError('unavailable', whyNone(table))
  const trusted = rotation(table).filter((index) => all.includes(index))
  const submit = async (index: number): Promise<Hex | ChainError> => {
    const outcome = await hand(router, index, { method: 'eth_sendRawTransaction', params: [raw] })
    if (outcome instanceof ChainError) return outcome
    const why = 'eth_sendRawTransaction: the node answered without a hash'
    return HashHex.safeParse(outcome).data ?? new ChainError('unavailable', why)
  }
  const fromTrusted = Promise.all(trusted.map(submit))
  const fromOthers = Promise.all(all.filter((index) => !trusted.includes(index)).map(submit))
  const sound = sorted(await fromTrusted)
  if (sound.hash) return sound.hash
  const error =
    ranks.map((kind) => sound.errors.find((one) => one.kind === kind)).find(Boolean) ??
    sound.errors[0]
  if (error?.kind === 'already_known' || error?.kind === 'nonce_too_low') throw error
  const late = sorted(await fromOthers)
  if (late.hash) return late.hash
  throw error ?? late.errors[0] ?? new ChainError('unavailable', whyNone(table))
}

const sorted = (outcomes: readonly (Hex | ChainError)[]) => ({
  hash: outcomes.find((one): one is Hex => typeof one === 'string'),
  errors: outcomes.filter((one) => one instanceof ChainError),
})
