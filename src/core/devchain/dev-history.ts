/**
 * Keeps the memory of a dev chain bounded however long it runs (contract §8). Anvil copies its
 * whole state for every block, and that state holds one hash for each block there ever was. Going
 * back by one block makes anvil keep the newest 256 hashes alone.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { UnavailableError } from '#protocol/errors'
import { type DevRpc, DevRpcError } from './dev-contracts.js'

/** With blocks every second anvil keeps 1,500. */
export const statesKept = 1_000

/**
 * EIP-2935's contract writes a slot for each of 8,191 blocks into every state; nothing on a dev
 * chain reads it.
 */
export const blockHashContract = '0x0000f90827f1c53a10cb7a02335b175320002935'

/** As many as the EVM can read (BLOCKHASH). */
const blocksBetweenTrims = 256
const lookEveryMs = 1_000
const triesForEmptyBlock = 3

export async function boundHistory(rpc: DevRpc, ended: Promise<void>): Promise<void> {
  const over = new AbortController()
  void ended.then(() => over.abort())
  let trimmedAt = 0
  while (!over.signal.aborted) {
    // Rejects when the chain is gone, which the loop's condition sees.
    await sleep(lookEveryMs, undefined, { ref: false, signal: over.signal }).catch(() => undefined)
    try {
      const head = await headOf(rpc)
      if (head < trimmedAt + blocksBetweenTrims) continue
      if (await trim(rpc)) trimmedAt = head
    } catch (error) {
      // A chain that is busy, ending or wound back by a test: only memory hangs on it, and the next
      // look tries again.
      if (!(error instanceof UnavailableError || error instanceof DevRpcError)) throw error
    }
  }
}

const headOf = async (rpc: DevRpc): Promise<number> =>
  Number(await rpc.request<string>('eth_blockNumber', []))

/**
 * `false` where the chain does not mine by itself just now, or no block came out empty. The
 * chain's clock stays as it was: going back would set it to the last block's time.
 */
async function trim(rpc: DevRpc): Promise<boolean> {
  const interval = await rpc.request<number | null>('anvil_getIntervalMining', [])
  if (!interval) return false
  // A block mined by schedule in between would be taken back, with its transactions.
  await rpc.request('evm_setIntervalMining', [0])
  try {
    if (!(await mineEmptyBlock(rpc))) return false
    const aheadSeconds = await clockLead(rpc, 0)
    await rpc.request('anvil_rollback', [1])
    await clockLead(rpc, aheadSeconds - (await clockLead(rpc, 0)))
    return true
  } finally {
    await rpc.request('evm_setIntervalMining', [interval])
  }
}

/** A block with transactions stays: taken back, they would be lost. */
async function mineEmptyBlock(rpc: DevRpc): Promise<boolean> {
  for (let tries = 0; tries < triesForEmptyBlock; tries += 1) {
    await rpc.request('evm_mine', [])
    const { transactions } = await rpc.request<{ transactions: unknown[] }>(
      'eth_getBlockByNumber',
      ['latest', false],
    )
    if (transactions.length === 0) return true
  }
  return false
}

/** Adds seconds to the chain's clock; how far it is then ahead of this machine's. */
const clockLead = (rpc: DevRpc, moreSeconds: number): Promise<number> =>
  rpc.request<number>('evm_increaseTime', [Math.max(0, moreSeconds)])
