import type { Clock, Random } from '#ports'
import { chainOver, type RpcChain } from './chain.js'
import { createTransports } from './transport.js'

export type { RpcChain } from './chain.js'
export type { NodeHealth } from './node-table.js'

export interface RpcOptions {
  readonly timeoutMs?: number
  /** Default 50; 1 switches batching off. */
  readonly batchCalls?: number
  /** Default 32 MiB (R17). */
  readonly answerBytes?: number
  /** A node on another chain is not believed and gets nothing. Without it any chain will do. */
  readonly expectedChainId?: number
  readonly maxLagBlocks?: number
  readonly maxHeadAgeSeconds?: number
  readonly clock?: Pick<Clock, 'monotonicMs'>
  readonly random?: Pick<Random, 'bytes'>
}

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
