/**
 * The `Chain` port over several nodes: what one node may tell alone, and what needs the word of the
 * others (R14–R16, robustness §7.3).
 */
import type { z } from 'zod'
import { type BlockHeader, type Chain, ChainError, type ChainLog, type Hex } from '../../ports.js'
import { mayHold, mayMatch } from './bloom.js'
import type { NodeHealth } from './node-table.js'
import { type Asked, createRouter, type Router, type RouterOptions } from './router.js'
import { isMissingState } from './rpc-errors.js'
import { sendToAll } from './sending.js'
import {
  blockTag,
  Count,
  callObject,
  Header,
  HexData,
  headerOf,
  headerOfBlock,
  type Log,
  logOf,
  logsWithin,
  lower,
  Quantity,
  receiptFor,
  receiptOf,
  transactionWith,
} from './shapes.js'
import type { Transport } from './transport.js'

/** A chain and the nodes that it is read from. */
export interface RpcChain extends Chain {
  /** How each node stands, in the order of the configuration. */
  nodes(): readonly NodeHealth[]
}

/**
 * Another node that is this little behind shows no older head than the one that was given out;
 * longer, and its word counts.
 */
const headHoldsMs = 10_000
/** Headers whose blooms are kept; the view reads logs of few blocks at a time. */
const rememberedBlooms = 64

type BlockAt = Parameters<Chain['block']>[0]
type LogFilter = Parameters<Chain['logs']>[0]

/**
 * Every method rejects with `ChainError`. `close` ends the probing of nodes. Source: R16,
 * robustness §3.
 */
export function chainOver(
  transports: readonly Transport[],
  options: RouterOptions,
): RpcChain & { close(): void } {
  const router = createRouter(transports, options)
  const { table } = router
  const headers = new Map<bigint, { readonly hash: Hex; readonly bloom: Hex | undefined }>()
  let newest:
    | { readonly header: BlockHeader; readonly index: number; readonly toldAtMs: number }
    | undefined

  const ask = async <T>(method: string, params: readonly unknown[], shape: z.ZodType<T>) =>
    (await router.ask({ method, params, shape })).result
  const quantity = async (method: string, params: readonly unknown[] = []) =>
    BigInt(await ask(method, params, Quantity))
  const others = (index: number) => table.order().filter((other) => other !== index)

  /**
   * "There is none" counts once every healthy node says so: one that lags or lies must not make a
   * thing vanish.
   */
  const askForAny = async <T>(asked: Asked<T | null>): Promise<T | null> => {
    const { result, index } = await router.ask(asked)
    if (result !== null) return result
    const told = await Promise.all(others(index).map((other) => router.askNode(other, asked)))
    return told.find((one) => one !== null) ?? null
  }

  const remember = (found: Header) => {
    const bloom = found.logsBloom?.toLowerCase() ?? ''
    const number = BigInt(found.number)
    headers.delete(number)
    headers.set(number, {
      hash: lower(found.hash),
      bloom: /^0x[0-9a-f]{512}$/.test(bloom) ? lower(bloom) : undefined,
    })
    const [oldest] = headers.keys()
    if (headers.size > rememberedBlooms && oldest !== undefined) headers.delete(oldest)
  }

  const block = async (at: BlockAt): Promise<BlockHeader | null> => {
    const named = { method: 'eth_getBlockByNumber', params: [blockTag(at), false] }
    if (typeof at === 'bigint') {
      const found = await askForAny({ ...named, shape: headerOfBlock(at) })
      return found && headerOf(found)
    }
    const asked = { ...named, shape: Header.nullable() }
    await router.ready()
    const { result, index } = await router.ask(asked).catch((error: unknown) => {
      // All on one other chain: of ours they know no block. `chainId` says why, which closes the
      // view at once instead of by age.
      if (table.otherChainId() === undefined) throw error
      return { result: null, index: 0 }
    })
    if (result === null) return null
    if (at !== 'pending') remember(result)
    return at === 'latest' ? neverOlder(headerOf(result), index) : headerOf(result)
  }

  /**
   * After a change of nodes a slight lag must not look as if blocks had been undone. The same
   * node's own word always counts (R14).
   */
  const neverOlder = (header: BlockHeader, index: number): BlockHeader => {
    const nowMs = options.clock.monotonicMs()
    table.told(index, header)
    if (
      newest &&
      newest.index !== index &&
      header.number < newest.header.number &&
      nowMs - newest.toldAtMs < headHoldsMs
    )
      return newest.header
    newest = { header, index, toldAtMs: nowMs }
    return header
  }

  const logs = async (filter: LogFilter): Promise<readonly ChainLog[]> => {
    const { fromBlock, toBlock, addresses, topics } = filter
    const asked = {
      method: 'eth_getLogs',
      params: [
        {
          fromBlock: blockTag(fromBlock),
          toBlock: blockTag(toBlock),
          address: addresses,
          ...(topics ? { topics } : {}),
        },
      ],
      shape: logsWithin(fromBlock, toBlock, addresses),
    }
    const { result, index } = await router.ask(asked)
    if (result.length > 0 || isExcluded(filter)) return result.map(logOf)
    for (const other of others(index)) {
      const found = (await secondLook(router, other, toBlock, asked))?.map(logOf)
      if (found === undefined) continue
      if (found.length === 0) return []
      if (!found.every(mayExist)) {
        const range = `blocks ${fromBlock} to ${toBlock}`
        throw new ChainError(
          'unavailable',
          `RPC nodes ${index + 1} and ${other + 1} of ${table.count} disagree about the logs of ${range}`,
        )
      }
      table.setAside(index, 'contradicted', `it left out logs of blocks ${fromBlock} to ${toBlock}`)
      table.prefer(other)
      return found
    }
    return []
  }

  /** The blooms of all blocks of the range are known and exclude the filter: empty is right. */
  const isExcluded = ({ fromBlock, toBlock, addresses, topics = [] }: LogFilter): boolean => {
    if (toBlock - fromBlock >= BigInt(rememberedBlooms)) return false
    for (let number = fromBlock; number <= toBlock; number += 1n) {
      const bloom = headers.get(number)?.bloom
      if (bloom === undefined || mayMatch(bloom, { addresses, topics })) return false
    }
    return true
  }
  /** False for a log that the header which was read of its block excludes. */
  const mayExist = ({ blockNumber, blockHash, address, topics }: ChainLog): boolean => {
    const known = headers.get(blockNumber)
    if (known === undefined) return true
    const { bloom } = known
    return (
      known.hash === blockHash &&
      (bloom === undefined || [address, ...topics].every((one) => mayHold(bloom, one)))
    )
  }

  return {
    async chainId() {
      await router.ready()
      try {
        return Number(await ask('eth_chainId', [], Count))
      } catch (error) {
        // All on one other chain: that is the answer, and the caller knows what it means.
        const other = table.otherChainId()
        if (other === undefined) throw error
        return other
      }
    },
    block,
    call: async (call, at = 'latest') =>
      lower(await ask('eth_call', [callObject(call), blockTag(at)], HexData)),
    logs,
    code: async (address, at = 'latest') =>
      lower(await ask('eth_getCode', [address, blockTag(at)], HexData)),
    balance: (address) => quantity('eth_getBalance', [address, 'latest']),
    async transactionCount(address, at) {
      const asked = { method: 'eth_getTransactionCount', params: [address, at], shape: Count }
      const { result, index } = await router.ask(asked)
      if (at === 'pending') return Number(BigInt(result))
      // A count that is too high would free or skip a nonce for good (R15); one that is too low
      // only makes us wait.
      const told = await Promise.all(others(index).map((other) => router.askNode(other, asked)))
      return Math.min(...[result, ...told].map((count) => Number(BigInt(count))))
    },
    estimateGas: (call) => quantity('eth_estimateGas', [callObject(call)]),
    async tip() {
      try {
        return await quantity('eth_maxPriorityFeePerGas')
      } catch (error) {
        if (!(error instanceof ChainError) || error.kind !== 'refused') throw error
        // Not every node has that method; the legacy price is base fee and tip.
        const [price, head] = await Promise.all([quantity('eth_gasPrice'), block('latest')])
        const tip = price - (head?.baseFeePerGas ?? 0n)
        return tip > 0n ? tip : 0n
      }
    },
    async receipt(hash) {
      const found = await askForAny({
        method: 'eth_getTransactionReceipt',
        params: [hash],
        shape: receiptFor(hash),
      })
      return found && receiptOf(found)
    },
    async hasTransaction(hash) {
      return (
        (await askForAny({
          method: 'eth_getTransactionByHash',
          params: [hash],
          shape: transactionWith(hash),
        })) !== null
      )
    },
    async calldata(hash) {
      const found = await askForAny({
        method: 'eth_getTransactionByHash',
        params: [hash],
        shape: transactionWith(hash),
      })
      return found && lower(found.input)
    },
    send: (raw) => sendToAll(router, raw),
    nodes: table.health,
    close: router.close,
  }
}

/**
 * The logs as another node tells them; `undefined` where it does not have the block yet or cannot
 * tell so much at once.
 */
async function secondLook(
  router: Router,
  index: number,
  toBlock: bigint,
  asked: Asked<z.infer<typeof Log>[]>,
) {
  try {
    const header = {
      method: 'eth_getBlockByNumber',
      params: [blockTag(toBlock), false],
      shape: headerOfBlock(toBlock),
    }
    const [found, logs] = await Promise.all([
      router.askNode(index, header),
      router.askNode(index, asked),
    ])
    return found === null ? undefined : logs
  } catch (error) {
    if (error instanceof ChainError && (isMissingState(error) || error.kind !== 'unavailable'))
      return undefined
    throw error
  }
}
