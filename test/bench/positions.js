import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { performance } from 'node:perf_hooks'
import { runToEnd } from './children.js'
import { figure } from './measure.js'
import { servePositions, trust, wallets } from './positions-chain.js'
import { fromSources } from './sources.js'

const proposals = 10_000
const mostBlocks = 1_000
const delayMs = 80
/** Between the first run and the second. */
const newBlocks = 500

/**
 * Row `positions`: 10,000 executed proposals of five wallets, read from a node that allows 1,000
 * blocks a query and takes 80 ms to answer; the first run, beside what its calls take one after the
 * other, and the second run, which reads what is new.
 */
export async function positionsRow({ root, note }) {
  const folder = await mkdtemp(join(tmpdir(), 'proposer-bench-'))
  const { module, remove } = await fromSources(
    root,
    "export { oracleAbi } from './src/core/chain/contracts.js'",
  )
  const node = await servePositions(module.oracleAbi, { proposals, mostBlocks, delayMs })
  try {
    await writeFile(join(folder, 'trust.json'), JSON.stringify(trust))
    const env = {
      PATH: process.env.PATH,
      PROPOSER_HOME: join(folder, 'home'),
      PROPOSER_RPC_URL: node.chain.url,
      PROPOSER_TRUST: join(folder, 'trust.json'),
    }
    const bin = join(root, 'bin', 'proposer.js')
    const look = async () => {
      const before = node.chain.requests
      const args = [bin, 'positions', '--wallet', ...wallets, '--json']
      const beganMs = performance.now()
      const { positions, notes } = await runToEnd(args, env)
      const seconds = (performance.now() - beganMs) / 1000
      const settled = positions.filter(({ state }) => state === 'settled').length
      if (positions.length !== proposals || settled !== node.settled())
        throw new Error(
          `positions told of ${positions.length} proposals, ${settled} of them settled; notes: ${notes}`,
        )
      const calls = node.chain.requests - before
      note(`${figure(seconds)} s, ${calls} calls`)
      return { seconds, calls, floor: (calls * delayMs) / 1000 }
    }
    const first = await look()
    node.passBlocks(newBlocks)
    const second = await look()
    const told = ({ seconds, calls, floor }) =>
      `${figure(seconds)} s, ${calls} calls (one after the other ${figure(floor)} s)`
    return {
      id: 'positions',
      name: 'positions of 10,000, beside its calls',
      value: first.seconds / first.floor,
      unit: 'x',
      detail: `first run ${told(first)}; second run, ${newBlocks} blocks later, ${told(second)}; ${wallets.length} wallets, ${mostBlocks} blocks a query, ${delayMs} ms a call`,
    }
  } finally {
    node.close()
    await remove()
    await rm(folder, { recursive: true, force: true })
  }
}
