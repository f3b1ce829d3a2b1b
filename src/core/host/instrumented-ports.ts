/** Ports of a gateway that report what passes through them: no node and no disk is asked for it. */

import { type Chain, ChainError, type Clock, type Files } from '../ports.js'
import type { Address } from '../protocol/schema.js'
import type { Observation, RpcOutcome } from '../protocol/vitals.js'

/** What the gateway has read of the chain for its own ends, as of the last time. */
export interface ChainReadings {
  balanceWei: bigint | undefined
  tipWei: bigint | undefined
  /** The executor's next nonce. */
  nonceLatest: number | undefined
  nonceFinalized: number | undefined
}

type Observe = (observation: Observation) => void

const chainMethods = [
  'chainId',
  'block',
  'call',
  'logs',
  'code',
  'storage',
  'balance',
  'transactionCount',
  'estimateGas',
  'tip',
  'send',
  'receipt',
  'hasTransaction',
  'calldata',
] as const satisfies readonly (keyof Chain)[]

/** The chain, with `around` called for each of its calls. What else it has stays. */
export function wrapChain<C extends Chain>(
  chain: C,
  around: <T>(method: keyof Chain, ask: () => Promise<T>) => Promise<T>,
): C {
  const wrapped = chainMethods.map((method) => [
    method,
    (...args: unknown[]) =>
      around(method, () => (chain[method] as (...args: unknown[]) => Promise<unknown>)(...args)),
  ])
  return { ...chain, ...Object.fromEntries(wrapped) }
}

/** The chain, each call counted with how it ended, and its readings of the executor. */
export function instrumentedChain(
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
  const counted = wrapChain(chain, async (method, ask) => {
    try {
      const response = await ask()
      observe({ kind: 'rpc', method, outcome: 'ok' })
      return response
    } catch (error) {
      if (error instanceof ChainError) observe({ kind: 'rpc', method, outcome: outcomeOf(error) })
      throw error
    }
  })
  return {
    readings,
    chain: {
      ...counted,
      async balance(address) {
        const balanceWei = await counted.balance(address)
        if (address === executor) readings.balanceWei = balanceWei
        return balanceWei
      },
      async transactionCount(address, at) {
        const count = await counted.transactionCount(address, at)
        if (address === executor && at === 'latest') readings.nonceLatest = count
        if (address === executor && at === 'finalized') readings.nonceFinalized = count
        return count
      },
      async tip() {
        readings.tipWei = await counted.tip()
        return readings.tipWei
      },
    },
  }
}

function outcomeOf({ kind }: ChainError): RpcOutcome {
  if (kind === 'already_known') return 'ok'
  return kind === 'reverted' || kind === 'unavailable' ? kind : 'refused'
}

/** The files, with bytes written and the time of each sync reported. */
export const instrumentedFiles = (
  files: Files,
  clock: Pick<Clock, 'monotonicMs'>,
  observe: Observe,
): Files => ({
  ...files,
  async open(path, mode) {
    const handle = await files.open(path, mode)
    return {
      ...handle,
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
    }
  },
})

/** No transaction leaves a process that has lost its store (robustness §2, Lock). */
export const fenced = (chain: Chain, fence: () => Promise<void>): Chain => ({
  ...chain,
  async send(raw) {
    await fence()
    return chain.send(raw)
  },
})
