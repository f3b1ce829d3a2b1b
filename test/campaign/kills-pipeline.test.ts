/**
 * The whole gateway on a dev chain, killed at any moment while it validates, selects, sends and
 * watches (R1–R3, R13–R16, R23; T2), over a sound node and over one that is 80 ms away, loses
 * requests and answers some 3 s late. Kills at the executor's steps: executor-kills.test.ts.
 */
import { readdir } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { type Hex, parseTransaction, type TransactionSerializedEIP1559 } from 'viem'
import { argvOf } from '#support/argv'
import { figures, firstSeed, scaled } from '#support/campaign'
import {
  expectOneEach,
  type Keeper,
  keepAlive,
  type Submitted,
  statusOf,
  submitTo,
  transactionsOf,
} from '#support/faults/keeper'
import { type Running, workshop } from '#support/processes'
import { questionOf } from '#support/proposing'
import { openRpcProxy } from '#support/rpc-proxy'
import { seeded } from '#support/sim-files'

const shop = workshop()

async function opened(questions: number) {
  const { dev, folder } = await shop.devChain(questions)
  const executor = dev.accounts.find(({ role }) => role === 'executor')?.address ?? ''
  const before = await transactionsOf(dev, executor)
  return {
    dev,
    serve: (set: readonly string[]) =>
      shop.start(argvOf`serve --config ${join(folder, 'gateway.json')} --port 0 --json --set
        store=./killed ${set.flatMap((one) => ['--set', one])}`),
    store: join(folder, 'killed'),
    submit: (keeper: Keeper, n: number) =>
      submitTo(keeper, questionOf(dev, n).question_id, n % 4, 5_000 + n),
    /** All are executed, once each; tells how many transactions the executor has sent. */
    async finished(keeper: Keeper, submitted: readonly Submitted[]): Promise<number> {
      for (const candidate of submitted)
        await keeper.answered(async (url) =>
          (await statusOf(url, candidate))?.submission?.status === 'indexed' ? true : undefined,
        )
      await expectOneEach(dev, keeper, submitted, executor, before)
      return (await transactionsOf(dev, executor)).length
    },
  }
}

async function kill(keeper: Keeper): Promise<void> {
  const { kills } = keeper
  keeper.kill()
  await expect.poll(() => keeper.kills, { timeout: 60_000, interval: 5 }).toBe(kills + 1)
}

const kills = scaled(20)

test(`R1, R2, R3, R15, R23: ${kills} kills while proposals are executed; each of them once, under the id that was told`, async () => {
  const proposals = kills + 4
  const random = seeded(firstSeed)
  const { serve, store, submit, finished } = await opened(proposals)
  let worstStartMs = 0
  let last: Running | undefined
  const keeper = keepAlive(() => {
    const startedMs = performance.now()
    const server = serve([])
    last = server
    server.child.stdout?.once('data', () => {
      worstStartMs = Math.max(worstStartMs, performance.now() - startedMs)
    })
    return server
  })
  const submitting = (async () => {
    const submitted = []
    for (let n = 0; n < proposals; n += 1) {
      submitted.push(await submit(keeper, n))
      await sleep(random() * 300)
    }
    return submitted
  })()
  submitting.catch(() => undefined)
  for (let n = 0; n < kills; n += 1) {
    if (random() < 0.75) await keeper.answered(async () => true)
    await sleep(random() * 900)
    await kill(keeper)
  }
  const submitted = await submitting
  await finished(keeper, submitted)
  // R12: of what the killed ones held nothing is left but the word of it.
  expect(last?.stderr()).toMatch(/"code":"lock_left_behind","detail":"process \d+ on /)
  expect((await readdir(store)).filter((name) => name.startsWith('s.'))).toHaveLength(1)
  await keeper.stop()
  figures('kills of the whole gateway', {
    kills,
    proposals,
    'executed once': submitted.length,
    'slowest start to ready (ms)': Math.round(worstStartMs),
  })
})

/** Harsher than any node that one would keep: so that a run of a minute meets every loss. */
const weather = { delayMs: 80, jitterMs: 40, lostShare: 0.05, lateShare: 0.05, seed: firstSeed }

test(`seed ${firstSeed}: 60 proposals over a slow and lossy node, two kills in the middle; each executed once, one load a nonce, no nonce left out`, async () => {
  const [proposals, parts, atOnce] = [60, 3, 10]
  const random = seeded(firstSeed)
  const { dev, serve, submit, finished } = await opened(proposals)
  const proxy = await openRpcProxy(dev.rpc_url, weather)
  try {
    const urls = `chain.rpc_urls=${JSON.stringify([proxy.url])}`
    const free = ['budget.per_ip_items=100000', 'budget.global_items=100000']
    const keeper = keepAlive(() => serve([urls, ...free]))
    const submitted: Submitted[] = []
    for (let part = 0; part < parts; part += 1) {
      const handed = proxy.handed.length
      let next = submitted.length
      const upTo = next + proposals / parts
      const lane = async () => {
        for (let n = next++; n < upTo; n = next++) submitted.push(await submit(keeper, n))
      }
      const submitting = Promise.all(Array.from({ length: atOnce }, lane))
      submitting.catch(() => undefined)
      if (part < parts - 1) {
        await expect
          .poll(() => proxy.handed.length, { timeout: 60_000, interval: 5 })
          .toBeGreaterThan(handed)
        await sleep(random() * 500)
        await kill(keeper)
      }
      await submitting
    }
    const transactions = await finished(keeper, submitted)
    await keeper.stop()

    const loads = new Map<number, Set<string>>()
    for (const raw of proxy.handed) {
      const { nonce = 0, to, data } = parseTransaction(raw as TransactionSerializedEIP1559 & Hex)
      loads.set(nonce, (loads.get(nonce) ?? new Set()).add(`${to} ${data}`))
    }
    expect([...loads.keys()].toSorted((a, b) => a - b)).toEqual(
      Array.from({ length: transactions }, (_, nonce) => nonce),
    )
    expect([...loads.values()].filter(({ size }) => size > 1)).toEqual([])
    const { all: requests, lost, late } = proxy.requests
    expect(Math.min(lost, late)).toBeGreaterThan(0)
    figures('a slow and lossy node', {
      ...{ seed: firstSeed, proposals, kills: parts - 1, transactions, requests, lost, late },
    })
  } finally {
    await proxy.close()
  }
})
