import { readdir, readFile, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { devRpc } from '#devchain/dev-contracts'
import type { Hex } from '#ports'
import { argvOf } from '#support/argv'
import { figures, scaled } from '#support/campaign'
import { workshop } from '#support/processes'
import { makeClient, questionOf, type ServeReady } from '#support/proposing'
import { residentMiB } from '#support/sockets/honest'

const shop = workshop()

/** A day of them at `CAMPAIGN_SCALE=11`; before 4,000 the states that are kept are not all there. */
const blocks = Math.min(43_200, Math.max(4_000, scaled(4_000)))
/** More than 128 at one look are too many for a gateway to follow; on a real chain it is one or two. */
const blocksPerLook = 125
const settledAt = 3_000
const samplesWanted = 10
const statesKept = 1_000
/** Headers and hashes of blocks are kept for ever: about 2 KB a block. */
const bytesPerBlock = 3_000
const quantity = (number: number) => `0x${number.toString(16)}`

async function mibBelow(folder: string): Promise<number> {
  const entries = await readdir(folder, { recursive: true, withFileTypes: true })
  const sizes = entries
    .filter((entry) => entry.isFile())
    .map((entry) => stat(join(entry.parentPath, entry.name)))
  const found = await Promise.allSettled(sizes)
  const sizeOf = (one: (typeof found)[number]) => (one.status === 'fulfilled' ? one.value.size : 0)
  return found.reduce((sum, one) => sum + sizeOf(one), 0) / 1_048_576
}

async function anvilBelow(parent: number): Promise<number | undefined> {
  const children = await readFile(`/proc/${parent}/task/${parent}/children`, 'utf8')
  for (const child of children.split(' ').filter(Boolean).map(Number)) {
    const name = await readFile(`/proc/${child}/comm`, 'utf8')
    const found = name.trim() === 'anvil' ? child : await anvilBelow(child)
    if (found !== undefined) return found
  }
  return undefined
}

test('contract §8, R17: devchain and a gateway on it hold no more after a day of blocks; 1,000 states, all logs and receipts stay', async () => {
  const folder = await shop.folder()
  const env = { TMPDIR: folder }
  const chain = shop.start(argvOf`devchain --port 0 --questions 12 --write ${folder}/dev --json`, {
    env,
  })
  const { dev, pid } = await chain.line<ServeReady>()
  const server = shop.start(
    argvOf`serve --config ${folder}/dev/gateway.json --port 0 --json --no-log`,
    { env },
  )
  const gateway = await server.line<ServeReady>()
  const anvil = (await anvilBelow(pid)) ?? 0
  const temporary = (await readdir(folder)).find((name) => name.startsWith('proposer-devchain-'))
  const rpc = devRpc(dev.rpc_url)
  const client = await makeClient(shop, dev, { PROPOSER_GATEWAY: gateway.url })
  const { slug } = questionOf(dev, 0)
  const { answer } = await client.ask('submit', slug, '--outcome', 'p2', '--wait')
  const told = await client.ask('status', String(answer.candidate_id))
  const [candidate] = (told.answer as { candidates: { submission: { transaction_hash: Hex } }[] })
    .candidates
  const hash = candidate?.submission.transaction_hash
  const receipt = await rpc.request('eth_getTransactionReceipt', [hash])

  const sample = async (mined: number) => ({
    blocks: mined,
    'anvil MiB': await residentMiB(anvil),
    'anvil disk MiB': await mibBelow(join(folder, temporary ?? '')),
    'devchain MiB': await residentMiB(pid),
    'gateway MiB': await residentMiB(gateway.pid),
    'store MiB': await mibBelow(join(folder, 'dev', 'gateway-store')),
  })
  const headSeen = async () => {
    const metrics = await (await fetch(`${gateway.admin_url}/metrics`)).text()
    return Number(/^proposer_chain_head_number (\S+)$/m.exec(metrics)?.[1])
  }
  const every = Math.max(blocksPerLook, Math.ceil((blocks - settledAt) / samplesWanted))
  const samples: Awaited<ReturnType<typeof sample>>[] = []
  for (let mined = 0, next = settledAt; mined < blocks; ) {
    // All with the time of the block before: the chain's clock is never ahead of the wall's, and
    // the head stays fresh.
    await rpc.request('anvil_mine', [quantity(blocksPerLook), '0x0'])
    mined += blocksPerLook
    const head = Number(await rpc.request('eth_blockNumber', []))
    // One less: the chain may have taken back a block of its own.
    while ((await headSeen()) < head - 1) await sleep(10)
    if (mined < next && mined < blocks) continue
    samples.push(await sample(mined))
    next += every
  }
  const [settled, last] = [samples[0], samples.at(-1)]
  if (settled === undefined || last === undefined) throw new Error('no samples')
  const growthMiB = {
    'anvil MiB': ((last.blocks - settled.blocks) * bytesPerBlock) / 1_048_576 + 64,
    'anvil disk MiB': 1,
    'devchain MiB': 32,
    'gateway MiB': 48,
    'store MiB': 1,
  }
  for (const [name, allowed] of Object.entries(growthMiB)) {
    const key = name as keyof typeof growthMiB
    expect(last[key], name).toBeLessThanOrEqual(settled[key] * 1.25 + allowed)
  }

  const latest = await rpc.request<{ number: Hex; timestamp: Hex }>('eth_getBlockByNumber', [
    'latest',
    false,
  ])
  const supply = { to: dev.trust.tokens[0], data: '0x18160ddd' }
  for (const back of [1, 256, statesKept])
    await rpc.request('eth_call', [supply, quantity(Number(latest.number) - back)])
  expect(await rpc.request('eth_getTransactionReceipt', [hash])).toEqual(receipt)
  const filter = { fromBlock: '0x0', toBlock: 'latest', address: dev.trust.oracles[0] }
  const logs = await rpc.request<{ transactionHash: Hex }[]>('eth_getLogs', [filter])
  expect(logs.map(({ transactionHash }) => transactionHash)).toContain(hash)
  expect(Number(latest.timestamp)).toBeLessThan(Date.now() / 1_000 + 3)
  const ready = async () => (await fetch(`${gateway.url}/readyz`)).status
  await expect.poll(ready, { timeout: 30_000, interval: 500 }).toBe(200)
  const rounded = Object.entries(last).map(([name, value]) => [name, Math.round(value)])
  figures('long-runs', Object.fromEntries(rounded))
})
