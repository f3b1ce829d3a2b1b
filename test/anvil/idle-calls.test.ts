import { mkdtemp, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { wrapChain } from '#chain/wrap'
import { type DevChain, startDevChain } from '#devchain/dev-chain'
import { type DevRpc, devRpc } from '#devchain/dev-contracts'
import { loadConfig } from '#host/config-file'
import { openHostedGateway } from '#host/gateway-host'
import { createChain } from '#io/rpc/rpc'
import type { Clock } from '#ports'
import { fakeContext } from '#support/cli'
import { temporaryFolder } from '#support/folders'
import { serveHttp } from '#support/http-server'

const questions = 100
const blocks = 100
const blockMs = 2_000

let dev: DevChain
const root = temporaryFolder()
const ends: (() => Promise<unknown>)[] = []
beforeAll(async () => {
  dev = await startDevChain({ questions, proposers: 3 })
}, 60_000)
afterAll(async () => {
  for (const end of ends.reverse()) await end()
  await dev?.stop()
})

async function countingNode(upstream: string) {
  const counts = { methods: new Map<string, number>(), requests: 0 }
  const server = await serveHttp(async (_request, body, response) => {
    const calls: { method: string } | { method: string }[] = JSON.parse(body)
    counts.requests += 1
    for (const { method } of [calls].flat())
      counts.methods.set(method, (counts.methods.get(method) ?? 0) + 1)
    const headers = { 'content-type': 'application/json' }
    const told = await fetch(upstream, { method: 'POST', headers, body })
    response.end(await told.text())
  })
  ends.push(server.close)
  return { url: server.url, counts }
}

const headOf = (rpc: DevRpc) =>
  rpc.request<{ number: string; timestamp: string }>('eth_getBlockByNumber', ['latest', false])

async function minesWithin(rpc: DevRpc, ms: number): Promise<boolean> {
  const { number } = await headOf(rpc)
  await new Promise((resolve) => setTimeout(resolve, ms))
  return (await headOf(rpc)).number !== number
}

/** A clock that stands still until it is moved; who sleeps is woken in order. */
function drivenClock(startMs: number) {
  let now = 0
  const sleepers = new Set<{ readonly atMs: number; readonly wake: () => void }>()
  const clock: Clock = {
    nowMs: () => startMs + now,
    monotonicMs: () => now,
    sleep: (ms, signal) =>
      new Promise((resolve, reject) => {
        if (signal?.aborted) return reject(signal.reason)
        const sleeper = { atMs: now + ms, wake: resolve }
        sleepers.add(sleeper)
        signal?.addEventListener('abort', () => {
          if (sleepers.delete(sleeper)) reject(signal.reason)
        })
      }),
  }
  return {
    clock,
    nextMs: () => Math.min(...[...sleepers].map(({ atMs }) => atMs)),
    moveTo(ms: number) {
      now = ms
      for (const sleeper of sleepers)
        if (sleeper.atMs <= ms && sleepers.delete(sleeper)) sleeper.wake()
    },
  }
}

test(`${questions} open questions, nobody proposes: at most 2.5 methods a block over ${blocks} blocks, and no block is missed`, async () => {
  const folder = await mkdtemp(join(root, 'gateway-'))
  const anvil = devRpc(dev.rpcUrl)
  // The dev chain's own upkeep may set it back while it is at it.
  do await anvil.request('evm_setIntervalMining', [0])
  while (await minesWithin(anvil, 1_500))
  const node = await countingNode(dev.rpcUrl)
  const { slugs: _, implementations, chain_id: id, ...trust } = dev.description.trust
  const account = (role: string) => dev.description.accounts.filter((one) => one.role === role)
  await writeFile(join(folder, 'executor.key'), account('executor')[0]?.private_key ?? '', {
    mode: 0o600,
  })
  const registry = dev.description.questions.map(({ question_id }) => ({ question_id }))
  await writeFile(join(folder, 'questions.json'), JSON.stringify(registry))
  await writeFile(
    join(folder, 'gateway.json'),
    JSON.stringify({
      chain: {
        id,
        rpc_urls: [node.url],
        ...trust,
        implementations,
      },
      questions: './questions.json',
      admission: { allowlist: account('proposer').map(({ address }) => address) },
      executor: { key_file: './executor.key' },
    }),
  )
  await anvil.request('anvil_setBlockTimestampInterval', [blockMs / 1000])
  const headMs = Number((await headOf(anvil)).timestamp) * 1000
  const { clock, nextMs, moveTo } = drivenClock(headMs + 300)
  const chain = createChain([node.url], { expectedChainId: id, clock })
  ends.push(() => chain.close())
  let open = 0
  let asked = 0
  const watched = wrapChain(chain, async (_asked, ask) => {
    open += 1
    asked += 1
    try {
      return await ask()
    } finally {
      open -= 1
    }
  })
  const settled = async () => {
    for (let quiet = 0, seen = asked; quiet < 12; quiet += 1) {
      await new Promise((resolve) => setTimeout(resolve, 1))
      if (open > 0 || asked !== seen) quiet = 0
      seen = asked
    }
  }
  const { context } = fakeContext(folder, { chain: watched })
  const machine = { ...context, clock }
  const opening = loadConfig(machine, join(folder, 'gateway.json')).then((loaded) =>
    openHostedGateway(machine, loaded, {
      executorKey: { home: folder, password: async () => '' },
    }),
  )
  const hosted = await opening
  ends.push(hosted.close)
  await settled()

  let mined = 0
  const missed: bigint[] = []
  const live = async (count: number) => {
    for (const until = mined + count; mined < until; ) {
      const blockAtMs = (mined + 1) * blockMs - 300
      if (nextMs() < blockAtMs) moveTo(nextMs())
      else {
        moveTo(blockAtMs)
        mined += 1
        const before = hosted.view.heads()?.latest.number ?? 0n
        await anvil.request('evm_mine', [])
        const { number } = await headOf(anvil)
        if (mined > 20 && BigInt(number) !== before + 1n) missed.push(BigInt(number))
      }
      await settled()
    }
  }
  await live(20)
  expect(hosted.view.counts()).toEqual({ known: questions, due: 0 })
  node.counts.methods.clear()
  node.counts.requests = 0
  await live(blocks)
  const methods = [...node.counts.methods.values()].reduce((sum, count) => sum + count, 0)
  const figures = JSON.stringify([...node.counts.methods])
  // The chain id is asked for in every request: another chain behind the URL is never believed.
  expect(methods / blocks, figures).toBeLessThanOrEqual(2.5)
  expect(node.counts.requests / blocks, figures).toBeLessThanOrEqual(2)
  expect(missed).toEqual([])
  expect(hosted.view.faults()).toEqual([])
  expect(hosted.gateway.readiness()).toEqual([])
}, 120_000)
