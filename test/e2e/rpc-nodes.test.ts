import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { topics } from '#chain/contracts'
import { type DevChain, startDevChain } from '#devchain/dev-chain'
import { loadConfig } from '#host/config-file'
import { type HostedGateway, openHostedGateway } from '#host/gateway-host'
import { signerFromKey } from '#io/keys'
import { createChain, type RpcChain } from '#io/rpc/rpc'
import type { Chain, Hex, Signer } from '#ports'
import type { Candidate } from '#protocol/candidate'
import { toSingle } from '#protocol/proposal'
import { fromHex, toHex } from '#protocol/witness'
import { current } from '#support/candidates'
import { fakeContext } from '#support/cli'
import type { RpcLie } from '#support/rpc-lies'
import { openRpcProxy, type RpcProxy } from '#support/rpc-proxy'

interface World {
  readonly dev: DevChain
  readonly truth: Chain
  readonly hosted: HostedGateway
  readonly liar: RpcProxy
  readonly honest: RpcProxy
  readonly executor: Hex
  looks(): number
  nodes(): ReturnType<RpcChain['nodes']>
  renew(): Promise<void>
  close(): Promise<void>
}

/** The dev chain's clock is some seconds behind the machine's. */
const maxHeadAgeSeconds = 12

const yes = '1000000000000000000'
const no = '0'

let worlds: readonly World[] = []
let nextQuestion = 0
let nextNonce = 1

beforeAll(async () => {
  worlds = await Promise.all([openWorld('first'), openWorld('second')])
})
beforeEach(async () => {
  await Promise.all(
    worlds.flatMap(({ liar, honest }) => [liar.tell(undefined), honest.tell(undefined)]),
  )
})
afterAll(async () => {
  await Promise.all(worlds.map((world) => world.close()))
})

async function openWorld(place: 'first' | 'second'): Promise<World> {
  const dev = await startDevChain({ questions: 40, proposers: 1 })
  const [honest, liar] = await Promise.all([openRpcProxy(dev.rpcUrl), openRpcProxy(dev.rpcUrl)])
  const urls = (place === 'first' ? [liar, honest] : [honest, liar]).map(({ url }) => url)
  const {
    chain_id: id,
    permit2,
    signed_proposer,
    oracles,
    requesters,
    tokens,
  } = dev.description.trust
  const folder = await mkdtemp(join(tmpdir(), 'rpc-nodes-'))
  await writeFile(join(folder, 'executor.key'), accountOf(dev, 'executor').private_key, {
    mode: 0o600,
  })
  const questions = dev.description.questions.map(({ question_id }) => ({ question_id }))
  await writeFile(join(folder, 'questions.json'), JSON.stringify(questions))
  const config = {
    chain: {
      id,
      rpc_urls: urls,
      permit2,
      signed_proposer,
      oracles,
      requesters,
      tokens,
      max_head_age_seconds: maxHeadAgeSeconds,
    },
    questions: './questions.json',
    admission: { allowlist: [accountOf(dev, 'proposer').address] },
    executor: { key_file: './executor.key', batch: 1 },
  }
  await writeFile(join(folder, 'gateway.json'), JSON.stringify(config))

  let looks = 0
  const opened: { close(): Promise<void> }[] = []
  const open = () => {
    const chain = createChain(urls, { expectedChainId: id, maxHeadAgeSeconds, timeoutMs: 600 })
    opened.push(chain)
    return chain
  }
  let now = open()
  const chain: Chain = {
    chainId() {
      looks += 1
      return now.chainId()
    },
    block: (at) => now.block(at),
    call: (call, at) => now.call(call, at),
    logs: (filter) => now.logs(filter),
    code: (address, at) => now.code(address, at),
    storage: (address, slot, at) => now.storage(address, slot, at),
    balance: (address) => now.balance(address),
    transactionCount: (address, at) => now.transactionCount(address, at),
    estimateGas: (call) => now.estimateGas(call),
    tip: () => now.tip(),
    send: (raw) => now.send(raw),
    receipt: (hash) => now.receipt(hash),
    hasTransaction: (hash) => now.hasTransaction(hash),
    calldata: (hash) => now.calldata(hash),
  }
  const { context } = fakeContext(folder, { chain })
  const hosted = await openHostedGateway(
    context,
    await loadConfig(context, join(folder, 'gateway.json')),
    { executorKey: { home: folder, password: async () => '' } },
  )
  await Promise.all(questions.map(({ question_id }) => hosted.view.question(question_id)))
  const truth = createChain([dev.rpcUrl])
  return {
    dev,
    truth,
    hosted,
    liar,
    honest,
    executor: accountOf(dev, 'executor').address,
    looks: () => looks,
    nodes: () => now.nodes(),
    async renew() {
      now = open()
      await expect
        .poll(() => now.nodes().every(({ headNumber }) => headNumber !== undefined), {
          timeout: 10_000,
        })
        .toBe(true)
    },
    async close() {
      await hosted.close()
      await Promise.all([...opened, truth].map((one) => one.close()))
      await Promise.all([liar.close(), honest.close()])
      await dev.stop()
      await rm(folder, { recursive: true })
    },
  }
}

function accountOf(dev: DevChain, role: string) {
  const account = dev.description.accounts.find((one) => one.role === role)
  if (!account) throw new Error(`no account ${role}`)
  return account
}

const proposerOf = ({ dev }: World): Signer =>
  signerFromKey(fromHex(accountOf(dev, 'proposer').private_key))

async function ask(
  { hosted }: World,
  path: string,
  body?: string,
): Promise<{ status: number; body: Record<string, unknown> }> {
  const init =
    body === undefined
      ? {}
      : { method: 'POST', headers: { 'content-type': 'application/json' }, body }
  const response = await hosted.gateway.handle(new Request(`http://gateway${path}`, init), {
    charged: false,
  })
  return { status: response.status, body: (await response.json()) as Record<string, unknown> }
}

async function signed(
  world: World,
  n: number,
  price = yes,
): Promise<{ path: string; body: string; questionId: Hex }> {
  const entry = world.dev.description.questions[n]
  const question = entry && world.hosted.view.known(entry.question_id)
  if (!question) throw new Error(`question ${n} has not been read`)
  const proposer = proposerOf(world)
  const deadline = String(BigInt(Math.floor(Date.now() / 1000)) + 3600n)
  const terms = {
    price,
    amount: String(question.round.totalBondRaw),
    nonce: String(nextNonce++),
    deadline,
  }
  const signature = await proposer.signDigest(toHex(question.witness.digest(terms)))
  const body = JSON.stringify(toSingle({ ...terms, proposer: proposer.address, signature }))
  return { path: `/v1/proposals/${question.questionId}`, body, questionId: question.questionId }
}

interface Submitted {
  readonly id: string
  readonly questionId: Hex
}

async function submit(world: World, n: number, price = yes): Promise<Submitted> {
  const { path, body, questionId } = await signed(world, n, price)
  for (let tries = 0; tries < 100; tries += 1) {
    const answer = await ask(world, path, body)
    if (answer.status === 202) return { id: String(answer.body.candidate_id), questionId }
    expect(answer).toMatchObject({ status: 503, body: { error: { code: 'state_unavailable' } } })
    await new Promise((resolve) => setTimeout(resolve, 250))
  }
  throw new Error('never admitted')
}

function until(
  { hosted: { ledger } }: World,
  id: string,
  reached: (candidate: Candidate) => boolean,
): Promise<Candidate> {
  return new Promise((resolve, reject) => {
    const look = () => {
      current(ledger, id).then((candidate) => {
        if (!reached(candidate)) return
        forget()
        resolve(candidate)
      }, reject)
    }
    const forget = ledger.onChange(look)
    look()
  })
}
const isEnded = ({ progress }: Candidate) =>
  progress.status === 'executed' || progress.status === 'failed'
const isSent = ({ progress }: Candidate) =>
  progress.status === 'executed' ||
  (progress.status === 'selected' && progress.submission?.status === 'submitted')

async function expectOnceEach(
  world: World,
  submitted: readonly Submitted[],
  nonceBefore: number,
): Promise<void> {
  const { truth, hosted } = world
  for (const { id } of submitted)
    expect((await until(world, id, isEnded)).progress).toMatchObject({ status: 'executed' })
  const latest = await truth.block('latest')
  const proposed = await truth.logs({
    fromBlock: 0n,
    toBlock: latest?.number ?? 0n,
    addresses: hosted.contracts.oracles,
    topics: [[topics.proposePrice]],
  })
  for (const { id } of submitted) {
    const { progress } = await current(hosted.ledger, id)
    const hash = progress.status === 'executed' ? progress.submission.transactionHash : null
    expect(proposed.filter(({ transactionHash }) => transactionHash === hash)).toHaveLength(1)
  }
  expect((await truth.transactionCount(world.executor, 'latest')) - nonceBefore).toBe(
    submitted.length,
  )
  expect(hosted.ledger.highestNonce(world.executor)).toBe(nonceBefore + submitted.length - 1)
  await expect.poll(() => hosted.ledger.slots(), { timeout: 10_000 }).toEqual([])
}

const survivable: readonly RpcLie[] = [
  'another chain id',
  'a head that stands still',
  'no receipts and no transactions',
  'no logs',
  'transaction counts that are too high',
  'HTTP 429',
  'results of another shape',
  'an HTML page',
  'JSON that is cut off',
  'silence',
]

describe('one of two nodes lies, first or second in the list (R16, robustness §7.3)', () => {
  test.each(survivable)(
    "%s, from the middle of a candidate's life: each is executed once, under one nonce, while the lie goes on",
    async (lie) => {
      const [n, m] = [nextQuestion++, nextQuestion++]
      await Promise.all(
        worlds.map(async (world) => {
          await world.renew()
          const nonceBefore = await world.truth.transactionCount(world.executor, 'latest')
          const before = await submit(world, n)
          await until(world, before.id, isSent)
          await world.liar.tell(lie)
          const during = await submit(world, m, no)
          await expectOnceEach(world, [before, during], nonceBefore)
          expect(world.hosted.view.faults()).toEqual([])
          await world.liar.tell(undefined)
        }),
      )
    },
  )

  test('another final block: nothing is admitted on an old view or sent until the lie ends, then each is executed once', async () => {
    const [n, m] = [nextQuestion++, nextQuestion++]
    await Promise.all(
      worlds.map(async (world) => {
        await world.renew()
        const nonceBefore = await world.truth.transactionCount(world.executor, 'latest')
        const before = await submit(world, n)
        await until(world, before.id, isSent)
        await world.liar.tell('another final block')
        await expect
          .poll(() => world.nodes().map(({ state }) => state), { timeout: 10_000 })
          .toEqual(['aside', 'aside'])
        const handed = world.honest.handed.length
        await expectClosed(world, m, /disagree about the final block/)
        expect(world.honest.handed.length).toBe(handed)
        await expectReadyWithin(world, 3, () => world.liar.tell(undefined))
        const after = await submit(world, m, no)
        await expectOnceEach(world, [before, after], nonceBefore)
      }),
    )
  })
})

describe('both nodes lie', () => {
  const closing: readonly (readonly [RpcLie, RegExp])[] = [
    ['another chain id', /the node is on chain 1, not on 31337/],
    ['a head that stands still', /the newest block is \d+ s old/],
    ['HTTP 429', /no RPC node of 2 can be used \(1: HTTP 429; 2: HTTP 429\)/],
  ]
  test.each(closing)(
    'R16: %s: 503 state_unavailable, the reason in /readyz, nothing sent; within three looks after it ends all goes on',
    async (lie, reason) => {
      const n = nextQuestion++
      await Promise.all(
        worlds.map(async (world) => {
          await world.renew()
          const nonceBefore = await world.truth.transactionCount(world.executor, 'latest')
          await Promise.all([world.liar.tell(lie), world.honest.tell(lie)])
          const handed = world.honest.handed.length + world.liar.handed.length
          await expectClosed(world, n, reason)
          expect(world.honest.handed.length + world.liar.handed.length).toBe(handed)
          await expectReadyWithin(world, 3, () =>
            Promise.all([world.liar.tell(undefined), world.honest.tell(undefined)]),
          )
          const after = await submit(world, n)
          await expectOnceEach(world, [after], nonceBefore)
        }),
      )
    },
  )
})

test('R15, R27: every node counts transactions too high for a while: the gap is told and filled, and what waits above it is executed', async () => {
  const [n, m] = [nextQuestion++, nextQuestion++]
  await Promise.all(
    worlds.map(async (world) => {
      const { ledger } = world.hosted
      const everyNode = [world.liar, world.honest]
      await world.renew()
      const nonceBefore = await world.truth.transactionCount(world.executor, 'latest')
      await Promise.all(everyNode.map((node) => node.tell('transaction counts that are too high')))
      // A count is asked once a head: the lie is heard at the next one.
      const headOf = () => world.hosted.view.heads()?.latest.number
      const before = headOf()
      await expect.poll(headOf, { timeout: 10_000 }).not.toBe(before)
      const above = await submit(world, n)
      await until(world, above.id, isSent)
      await Promise.all(everyNode.map((node) => node.tell(undefined)))
      await expect
        .poll(() => ask(world, '/readyz'), { timeout: 20_000, interval: 100 })
        .toMatchObject({
          status: 503,
          body: { reasons: [expect.stringContaining(`nonce ${nonceBefore} of the executor`)] },
        })
      const after = await submit(world, m, no)
      for (const { id } of [above, after])
        expect((await until(world, id, isEnded)).progress).toMatchObject({ status: 'executed' })
      await expect.poll(() => ledger.slots(), { timeout: 20_000 }).toEqual([])
      await expect
        .poll(() => ask(world, '/readyz'), { timeout: 10_000 })
        .toMatchObject({ status: 200 })
      expect((await world.truth.transactionCount(world.executor, 'latest')) - nonceBefore).toBe(7)
    }),
  )
})

async function expectClosed(world: World, n: number, reason: RegExp): Promise<void> {
  await expect
    .poll(() => ask(world, '/readyz'), { timeout: 20_000 })
    .toMatchObject({
      status: 503,
      body: { ready: false, reasons: expect.arrayContaining([expect.stringMatching(reason)]) },
    })
  // What a node does wrong is told before the head is so old that nothing is admitted on it.
  await expect.poll(() => world.hosted.view.faults(), { timeout: 20_000 }).not.toEqual([])
  const { path, body } = await signed(world, n)
  expect(await ask(world, path, body)).toMatchObject({
    status: 503,
    body: { error: { code: 'state_unavailable' } },
  })
}

async function expectReadyWithin(
  world: World,
  looks: number,
  end: () => Promise<unknown>,
): Promise<void> {
  await end()
  const before = world.looks()
  const isReady = async () =>
    world.hosted.view.faults().length === 0 ? world.looks() - before : Number.POSITIVE_INFINITY
  await expect.poll(isReady, { timeout: 20_000, interval: 20 }).toBeLessThanOrEqual(looks + 1)
}
