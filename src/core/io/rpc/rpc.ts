/**
 * The `Chain` port over Ethereum JSON-RPC. Reads made at the same moment travel as one batch and
 * fail over from node to node; a signed transaction goes to every node. Nodes are told apart by
 * their position in the configuration: no URL ever appears in a message (R5).
 */
import type { Clock, Random } from '../../ports.js'
import { chainOver, type RpcChain } from './chain.js'
import { createTransports } from './transport.js'

export type { RpcChain } from './chain.js'
export type { NodeHealth } from './node-table.js'

export interface RpcOptions {
  /** Default 5,000. */
  readonly timeoutMs?: number
  /** Most calls in one HTTP request; default 50. 1 switches batching off. */
  readonly batchCalls?: number
  /** Longest answer that is read; default 32 MiB (R17). */
  readonly answerBytes?: number
  /** A node on another chain is not believed and gets nothing. Without it any chain will do. */
  readonly expectedChainId?: number
  /** A node whose head is further behind the best one's is taken out; default 3. */
  readonly maxLagBlocks?: number
  /** So is one whose head is older than the best one's by more than this; default: no matter. */
  readonly maxHeadAgeSeconds?: number
  /** For tests. */
  readonly clock?: Pick<Clock, 'monotonicMs'>
  readonly random?: Pick<Random, 'bytes'>
}

/**
 * A chain behind one or more nodes, in order of preference: reads stay with the first that answers.
 * Every method rejects with `ChainError`. `close` lets go of the connections; idle ones keep no
 * process alive. Throws RangeError for an empty list or a URL that is none.
 */
export function createChain(
  urls: readonly string[],
  options: RpcOptions = {},
): RpcChain & { close(): Promise<void> } {
  const { timeoutMs = 5_000, batchCalls = 50, answerBytes = 32 * 1024 * 1024 } = options
  if (urls.length === 0) throw new RangeError('at least one RPC URL is required')
  const { transports, close } = createTransports(urls, {
    connectMs: timeoutMs,
    batches: batchCalls > 1,
    answerBytes,
  })
  const chain = chainOver(transports, {
    timeoutMs,
    batchCalls,
    maxLagBlocks: options.maxLagBlocks ?? 3,
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
