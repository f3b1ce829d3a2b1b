// npm run soak:blocks: a day of empty blocks (SOAK_BLOCKS, 43,200) for `devchain` and a gateway
// that follows it, mined as fast as the gateway's view keeps up. Prints what both hold at the
// start, in the middle and at the end, in memory and on disk. Exits 1 where that grows, where a
// state of the last 1,000 blocks, or the log or receipt of the proposal before the first of them,
// is gone. `--json`: the report alone.
import { execFile } from 'node:child_process'
import { mkdtemp, readdir, readFile, rm, stat } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { startServer } from './children.js'

const root = dirname(dirname(dirname(fileURLToPath(import.meta.url))))
const bin = join(root, 'bin', 'proposer.js')
const blocks = Number(process.env.SOAK_BLOCKS ?? 43_200)
if (!(blocks >= 4_000))
  throw new RangeError(
    'SOAK_BLOCKS must be at least 4000: before that the states that are kept are not all there',
  )
const questions = Number(process.env.SOAK_QUESTIONS ?? 12)
/**
 * Blocks that the gateway sees at one look: on a real chain it is one or two. More than 128 are too
 * many for it to follow.
 */
const blocksPerLook = Number(process.env.SOAK_BLOCKS_PER_LOOK ?? 25)
const settledAt = 3_000
const samplesWanted = 10
const statesKept = 1_000
/** Headers and hashes of blocks are kept for ever: about 2 KB a block. */
const bytesPerBlock = 3_000
const json = process.argv.includes('--json')
const note = (text) => process.stderr.write(`${text}\n`)

const rpcOf = (url) => async (method, params) => {
  const body = JSON.stringify({ jsonrpc: '2.0', id: 1, method, params })
  const answer = await fetch(url, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body,
  })
  const { result, error } = await answer.json()
  if (error !== undefined) throw new Error(`${method}: ${error.message}`)
  return result
}

const quantity = (number) => `0x${number.toString(16)}`

async function residentBytes(pid) {
  return Number(/^VmRSS:\s+(\d+)/m.exec(await readFile(`/proc/${pid}/status`, 'utf8'))[1]) * 1024
}

async function bytesBelow(folder) {
  const entries = await readdir(folder, { recursive: true, withFileTypes: true })
  const sizes = entries
    .filter((entry) => entry.isFile())
    .map((entry) => stat(join(entry.parentPath ?? entry.path, entry.name)))
  const found = await Promise.allSettled(sizes)
  return found.reduce((sum, each) => sum + (each.status === 'fulfilled' ? each.value.size : 0), 0)
}

async function anvilPid(parent) {
  const children = (await readFile(`/proc/${parent}/task/${parent}/children`, 'utf8'))
    .trim()
    .split(' ')
    .filter(Boolean)
  for (const child of children) {
    const name = (await readFile(`/proc/${child}/comm`, 'utf8')).trim()
    const found = name === 'anvil' ? Number(child) : await anvilPid(child)
    if (found !== undefined) return found
  }
  return undefined
}

const execute = promisify(execFile)
const deferred = 75

async function proposeOnce(folder, env, slug) {
  const command = async (...args) => {
    for (;;) {
      const told = await execute(process.execPath, [bin, ...args, '--json'], {
        cwd: folder,
        env,
      }).catch((error) => error)
      if (!(told instanceof Error)) return JSON.parse(told.stdout)
      if (told.code !== deferred) throw told
      await sleep(1_000)
    }
  }
  const { candidate_id: candidateId } = await command('submit', slug, '--outcome', 'p2', '--wait')
  return (await command('status', candidateId)).candidates[0].submission.transaction_hash
}

async function startBoth(folder, cleanUp) {
  const env = { PATH: process.env.PATH, TMPDIR: folder, NO_COLOR: '1' }
  const start = async (...args) => {
    const server = await startServer(process.execPath, [bin, ...args, '--port', '0', '--json'], {
      cwd: folder,
      env,
    })
    cleanUp.unshift(server.stop)
    return server.ready
  }
  const { dev, pid: devchainPid } = await start(
    'devchain',
    '--questions',
    String(questions),
    '--write',
    'dev',
  )
  const {
    url,
    admin_url: adminUrl,
    pid: gatewayPid,
  } = await start('serve', '--config', 'dev/gateway.json', '--no-log')
  const chainPid = await anvilPid(devchainPid)
  const chainFolder = join(
    folder,
    (await readdir(folder)).find((name) => name.startsWith('proposer-devchain-')),
  )
  const inDev = (name) => join(folder, 'dev', name)
  const client = {
    PROPOSER_GATEWAY: url,
    PROPOSER_HOME: join(folder, 'home'),
    PROPOSER_TRUST: inDev('trust.json'),
  }
  return {
    dev,
    url,
    rpc: rpcOf(dev.rpc_url),
    client: { ...env, ...client, PROPOSER_KEY_FILE: inDev('proposer-1.key') },
    headSeen: async () =>
      Number(
        /^proposer_chain_head_number (\S+)$/m.exec(
          await (await fetch(`${adminUrl}/metrics`)).text(),
        )?.[1],
      ),
    sample: async (mined) => ({
      blocks: mined,
      anvil_rss_bytes: await residentBytes(chainPid),
      anvil_disk_bytes: await bytesBelow(chainFolder),
      devchain_rss_bytes: await residentBytes(devchainPid),
      gateway_rss_bytes: await residentBytes(gatewayPid),
      store_bytes: await bytesBelow(inDev('gateway-store')),
    }),
  }
}

async function mineAll({ rpc, headSeen, sample }) {
  const samples = [await sample(0)]
  const every = Math.max(blocksPerLook, Math.ceil((blocks - settledAt) / samplesWanted))
  let next = settledAt
  for (let mined = 0; mined < blocks; ) {
    // All with the time of the block before: the chain's clock is never ahead of the wall's, and
    // the head stays fresh.
    await rpc('anvil_mine', [quantity(blocksPerLook), '0x0'])
    mined += blocksPerLook
    const head = Number(await rpc('eth_blockNumber', []))
    // One less: the chain may have taken back a block of its own.
    while ((await headSeen()) < head - 1) await sleep(10)
    if (mined < next && mined < blocks) continue
    samples.push(await sample(mined))
    if (!json) note(JSON.stringify(samples.at(-1)))
    next += every
  }
  return samples
}

const mebibytes = 1_048_576

const allowances = (blocksBetween) => ({
  anvil_rss_bytes: blocksBetween * bytesPerBlock + 64 * mebibytes,
  anvil_disk_bytes: mebibytes,
  devchain_rss_bytes: 32 * mebibytes,
  gateway_rss_bytes: 48 * mebibytes,
  store_bytes: mebibytes,
})

function growth(settled, last) {
  return Object.entries(allowances(last.blocks - settled.blocks))
    .filter(([name, allowed]) => last[name] > settled[name] * 1.25 + allowed)
    .map(
      ([name]) =>
        `${name} grew from ${settled[name]} to ${last[name]} over ${last.blocks - settled.blocks} blocks`,
    )
}

async function losses({ rpc, dev, url }, before) {
  const faults = []
  const latest = await rpc('eth_getBlockByNumber', ['latest', false])
  const supply = { to: dev.trust.tokens[0], data: '0x18160ddd' }
  for (const back of [1, 256, statesKept]) {
    const held = await rpc('eth_call', [supply, quantity(Number(latest.number) - back)]).catch(
      (error) => error,
    )
    if (held instanceof Error) faults.push(`the state ${back} blocks back is gone: ${held.message}`)
  }
  const after = await rpc('eth_getTransactionReceipt', [before.transactionHash])
  if (JSON.stringify(after) !== JSON.stringify(before))
    faults.push('the receipt of the first proposal is not what it was')
  const logs = await rpc('eth_getLogs', [
    { fromBlock: '0x0', toBlock: 'latest', address: dev.trust.oracles[0] },
  ])
  if (!logs.some(({ transactionHash }) => transactionHash === before.transactionHash))
    faults.push('the log of the first proposal is gone')
  const ahead = Number(latest.timestamp) - Date.now() / 1000
  if (ahead > 3) faults.push(`the chain's clock is ${ahead.toFixed(1)} s ahead`)
  let ready = await fetch(`${url}/readyz`)
  for (let tries = 0; tries < 60 && ready.status !== 200; tries += 1) {
    await sleep(500)
    ready = await fetch(`${url}/readyz`)
  }
  if (ready.status !== 200) faults.push(`the gateway is not ready: ${await ready.text()}`)
  return faults
}

async function main() {
  const folder = await mkdtemp(join(tmpdir(), 'proposer-soak-blocks-'))
  const cleanUp = [() => rm(folder, { recursive: true, force: true })]
  try {
    const world = await startBoth(folder, cleanUp)
    const transaction = await proposeOnce(folder, world.client, world.dev.questions[0].slug)
    const receipt = await world.rpc('eth_getTransactionReceipt', [transaction])
    const startMs = performance.now()
    const samples = await mineAll(world)
    const [start, end] = [samples[0], samples.at(-1)]
    const settled = samples.find((each) => each.blocks >= settledAt)
    const middle = samples.find((each) => each.blocks >= end.blocks / 2)
    const faults = [...growth(settled, end), ...(await losses(world, receipt))]
    const seconds = Math.round((performance.now() - startMs) / 1000)
    const report = { blocks: end.blocks, questions, seconds, start, settled, middle, end, faults }
    process.stdout.write(`${JSON.stringify(report, null, json ? undefined : 2)}\n`)
    return faults.length === 0 ? 0 : 1
  } finally {
    for (const step of cleanUp) await step()
  }
}

process.exitCode = await main()
