import { mkdtemp, writeFile } from 'node:fs/promises'
import { Session } from 'node:inspector/promises'
import { join } from 'node:path'
import { setTimeout } from 'node:timers/promises'
import { wrapChain } from '#chain/wrap'
import { type DevChain, startDevChain } from '#devchain/dev-chain'
import { type DevRpc, devRpc } from '#devchain/dev-contracts'
import { loadConfig } from '#host/config-file'
import { type HostedGateway, openHostedGateway } from '#host/gateway-host'
import { systemClock } from '#io/clock'
import { createChain } from '#io/rpc/rpc'
import type { Chain, Clock, Hex } from '#ports'
import { fakeContext } from '#support/cli'
import { signedBody } from '#support/fake-view'
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

const accountsOf = (role: string) => dev.description.accounts.filter((one) => one.role === role)

async function openGateway(
  chain: Chain,
  more: object = {},
  url = dev.rpcUrl,
  clock = systemClock,
): Promise<HostedGateway> {
  const folder = await mkdtemp(join(root, 'gateway-'))
  const { slugs: _, chain_id: id, ...trust } = dev.description.trust
  await writeFile(join(folder, 'executor.key'), accountsOf('executor')[0]?.private_key ?? '', {
    mode: 0o600,
  })
  const registry = dev.description.questions.map(({ question_id }) => ({ question_id }))
  await writeFile(join(folder, 'questions.json'), JSON.stringify(registry))
  const path = join(folder, 'gateway.json')
  const config = {
    chain: { id, rpc_urls: [url], ...trust },
    admission: { allowlist: accountsOf('proposer').map(({ address }) => address) },
    executor: { key_file: './executor.key' },
    ...more,
  }
  await writeFile(path, JSON.stringify(config))
  const machine = { ...fakeContext(folder, { chain }).context, clock }
  const executorKey = { home: folder, password: async () => '' }
  const hosted = await openHostedGateway(machine, await loadConfig(machine, path), { executorKey })
  ends.push(hosted.close)
  return hosted
}

function openChain(url = dev.rpcUrl, more: { clock?: Clock } = {}) {
  const chain = createChain([url], { expectedChainId: dev.description.trust.chain_id, ...more })
  ends.push(() => chain.close())
  return chain
}

async function ask({ gateway }: HostedGateway, path: string, body?: object) {
  const sent = body && {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(body),
  }
  const request = new Request(`http://gateway${path}`, sent)
  return JSON.parse(await (await gateway.handle(request, { charged: false })).text())
}

test(`batch signing data of ${questions} questions that the gateway has never seen: a few aggregated calls`, async () => {
  const chain = openChain()
  const hosted = await openGateway(chain, { executor: { enabled: false } })
  const identifiers = dev.description.questions.map(({ question_id }) => question_id)
  const before = chain.usage()
  const { results } = await ask(hosted, '/propose/batch/signing-data', { identifiers })
  const after = chain.usage()
  expect(results.map((one: { status_code: number }) => one.status_code)).toEqual(
    identifiers.map(() => 200),
  )
  const contracts = after.methods.contracts - before.methods.contracts
  const requests = after.requests - before.requests
  // Two dependent reads of some 200 to 300 calls each and the token's, 200 at once and 128 KiB, and
  // what the gateway asks meanwhile for its own ends. One by one it would be 600.
  expect(contracts).toBeLessThanOrEqual(10)
  expect(requests).toBeLessThanOrEqual(10)
}, 60_000)

test('a proposal passes 17 files of gateway and host to `executed`, 12 once it is admitted', async () => {
  const hosted = await openGateway(openChain())
  const session = new Session()
  session.connect()
  await session.post('Profiler.enable')
  await session.post('Profiler.startPreciseCoverage', { callCount: true, detailed: true })
  const filesRun = async () => {
    const { result } = await session.post('Profiler.takePreciseCoverage')
    const run = result.filter(({ functions }) =>
      functions.some(({ ranges: [whole] }) => (whole?.count ?? 0) > 0),
    )
    return run.flatMap(({ url }) => /\/src\/core\/((?:gateway|host)\/.*)/.exec(url)?.[1] ?? [])
  }
  const id = dev.description.questions[0]?.question_id as Hex
  const question = await hosted.view.question(id)
  const { address, private_key: privateKey } = accountsOf('proposer')[0] ?? {}
  if (!question || !address || !privateKey) throw new Error('the dev chain is empty')
  const changes = { deadline: String(hosted.view.nowSeconds() + 3_600n) }
  const body = await signedBody({ address, privateKey }, question, 'p2', changes)
  await filesRun()
  const { candidate_id } = await ask(hosted, `/v1/proposals/${id}`, body)
  const admitted = await filesRun()
  while (hosted.ledger.byId(candidate_id)?.status !== 'executed') await setTimeout(50)
  const after = await filesRun()
  session.disconnect()
  if (process.env.CAMPAIGN_REPORT)
    process.stderr.write(`${admitted.join(' ')}\n${after.join(' ')}\n`)
  expect((await ask(hosted, `/v1/proposals/${id}/status/${candidate_id}`)).status).toBe('executed')
  expect(after).toContain('gateway/executor/slot.ts')
  expect(after.length).toBeLessThanOrEqual(12)
  expect(new Set([...admitted, ...after]).size).toBeLessThanOrEqual(17)
}, 60_000)

test('no page of a browser reads from the dev chain', async () => {
  const headers = { origin: 'https://page.example', 'content-type': 'application/json' }
  const body = '{"jsonrpc":"2.0","id":1,"method":"eth_accounts","params":[]}'
  for (const method of ['POST', 'OPTIONS']) {
    const answer = await fetch(dev.rpcUrl, {
      method,
      headers: { ...headers, 'access-control-request-method': 'POST' },
      ...(method === 'POST' ? { body } : {}),
    })
    expect(answer.headers.get('access-control-allow-origin')).toBe(null)
  }
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
  await setTimeout(ms)
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
  const anvil = devRpc(dev.rpcUrl)
  // The dev chain's own upkeep may set it back while it is at it.
  do await anvil.request('evm_setIntervalMining', [0])
  while (await minesWithin(anvil, 1_500))
  const node = await countingNode(dev.rpcUrl)
  await anvil.request('anvil_setBlockTimestampInterval', [blockMs / 1000])
  const headMs = Number((await headOf(anvil)).timestamp) * 1000
  const { clock, nextMs, moveTo } = drivenClock(headMs + 300)
  const chain = openChain(node.url, { clock })
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
      await setTimeout(1)
      if (open > 0 || asked !== seen) quiet = 0
      seen = asked
    }
  }
  const hosted = await openGateway(watched, { questions: './questions.json' }, node.url, clock)
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
