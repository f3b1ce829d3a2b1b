/**
 * Edges of a gateway that tell what passes through them: nothing is asked of a node or the disk for
 * it.
 */
import {
  type Address,
  type Chain,
  ChainError,
  type Clock,
  type FileHandle,
  type Files,
} from '../../core/ports.js'
import type { Observation, RpcOutcome } from '../../core/protocol/vitals.js'

/** What the gateway has read of the chain for its own ends, as of the last time. */
export interface ChainReadings {
  balanceWei: bigint | undefined
  tipWei: bigint | undefined
  /** The executor's next nonce. */
  nonceLatest: number | undefined
  nonceFinalized: number | undefined
}

type Observe = (observation: Observation) => void

/**
 * The same chain; each call is counted with how it ended, and what it told of the executor is kept.
 * Rejects as the chain does.
 */
export function watchedChain(
  chain: Chain,
  executor: Address | undefined,
  observe: Observe,
): { chain: Chain; readings: ChainReadings } {
  const readings: ChainReadings = {
    balanceWei: undefined,
    tipWei: undefined,
    nonceLatest: undefined,
    nonceFinalized: undefined,
  }
  const counted = async <T>(method: keyof Chain, answer: Promise<T>): Promise<T> => {
    try {
      const told = await answer
      observe({ kind: 'rpc', method, outcome: 'ok' })
      return told
    } catch (error) {
      if (error instanceof ChainError) observe({ kind: 'rpc', method, outcome: outcomeOf(error) })
      throw error
    }
  }
  return {
    readings,
    chain: {
      chainId: () => counted('chainId', chain.chainId()),
      block: (at) => counted('block', chain.block(at)),
      call: (call, at) => counted('call', chain.call(call, at)),
      logs: (filter) => counted('logs', chain.logs(filter)),
      code: (address, at) => counted('code', chain.code(address, at)),
      async balance(address) {
        const balanceWei = await counted('balance', chain.balance(address))
        if (address === executor) readings.balanceWei = balanceWei
        return balanceWei
      },
      async transactionCount(address, at) {
        const count = await counted('transactionCount', chain.transactionCount(address, at))
        if (address === executor && at === 'latest') readings.nonceLatest = count
        if (address === executor && at === 'finalized') readings.nonceFinalized = count
        return count
      },
      estimateGas: (call) => counted('estimateGas', chain.estimateGas(call)),
      async tip() {
        const tipWei = await counted('tip', chain.tip())
        readings.tipWei = tipWei
        return tipWei
      },
      send: (raw) => counted('send', chain.send(raw)),
      receipt: (hash) => counted('receipt', chain.receipt(hash)),
      hasTransaction: (hash) => counted('hasTransaction', chain.hasTransaction(hash)),
      calldata: (hash) => counted('calldata', chain.calldata(hash)),
    },
  }
}

function outcomeOf({ kind }: ChainError): RpcOutcome {
  if (kind === 'already_known') return 'ok'
  return kind === 'reverted' || kind === 'unavailable' ? kind : 'refused'
}

/** The same files; bytes written and the time that syncs take are told. Rejects as the files do. */
export function watchedFiles(
  files: Files,
  clock: Pick<Clock, 'monotonicMs'>,
  observe: Observe,
): Files {
  const watched = (handle: FileHandle): FileHandle => ({
    async write(buffer, offset, length) {
      const bytes = await handle.write(buffer, offset, length)
      observe({ kind: 'written', bytes })
      return bytes
    },
    async datasync() {
      const startedMs = clock.monotonicMs()
      await handle.datasync()
      observe({ kind: 'synced', seconds: (clock.monotonicMs() - startedMs) / 1000 })
    },
    read: (position, length) => handle.read(position, length),
    truncate: (length) => handle.truncate(length),
    size: () => handle.size(),
    close: () => handle.close(),
  })
  return {
    open: async (path, mode) => watched(await files.open(path, mode)),
    read: (path) => files.read(path),
    rename: (from, to) => files.rename(from, to),
    link: (from, to) => files.link(from, to),
    remove: (path) => files.remove(path),
    makeDir: (path) => files.makeDir(path),
    syncDir: (path) => files.syncDir(path),
    list: (path) => files.list(path),
    exists: (path) => files.exists(path),
  }
}
