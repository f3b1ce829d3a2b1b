/** Ports that report what passes through them: no node and no disk is asked for it. */

import { wrapChain } from '#chain/wrap'
import { type Chain, ChainError, type Clock, type Files } from '#ports'
import type { Address } from '#protocol/schema'
import type { Observation } from '#protocol/vitals'

export interface ChainReadings {
  balanceWei?: bigint
  tipWei?: bigint
  nonceLatest?: number
  nonceFinalized?: number
}

type Observe = (observation: Observation) => void

/** The chain, each call counted with how it ended, and its readings of the executor. */
export function instrumentedChain(chain: Chain, executor: Address | undefined, observe: Observe) {
  const readings: ChainReadings = {}
  const counted = wrapChain(chain, async (asked, ask) => {
    const { method, args } = asked
    try {
      const response = await ask()
      observe({ kind: 'rpc', method, outcome: 'ok' })
      if (method === 'tip') readings.tipWei = response as bigint
      if (args[0] !== executor) return response
      if (method === 'balance') readings.balanceWei = response as bigint
      if (method === 'transactionCount' && args[1] === 'latest')
        readings.nonceLatest = response as number
      if (method === 'transactionCount' && args[1] === 'finalized')
        readings.nonceFinalized = response as number
      return response
    } catch (error) {
      if (error instanceof ChainError) observe({ kind: 'rpc', method, outcome: outcomeOf(error) })
      throw error
    }
  })
  return { chain: counted, readings }
}

function outcomeOf({ kind }: ChainError) {
  if (kind === 'already_known') return 'ok'
  return kind === 'reverted' || kind === 'unavailable' ? kind : 'refused'
}

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
export const fenced = (chain: Chain, fence: () => Promise<void>): Chain =>
  wrapChain(chain, async ({ method }, ask) => {
    if (method === 'send') await fence()
    return ask()
  })
