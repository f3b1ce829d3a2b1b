/**
 * The whole gateway on a dev chain, pipeline and executor on, killed at any moment while it
 * validates, selects, sends and watches (R1–R3, R15, R23; T2). Its kills at each step of the
 * executor are in executor-kills.test.ts.
 */
import { readdir } from 'node:fs/promises'
import { join } from 'node:path'
import { performance } from 'node:perf_hooks'
import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, beforeAll, expect, test } from 'vitest'
import type { DevDescription } from '#devchain/dev-chain'
import { argvOf } from '#support/argv'
import { figures, firstSeed, scaled } from '#support/campaign'
import {
  expectOneEach,
  keepAlive,
  statusOf,
  submitTo,
  transactionsOf,
} from '#support/faults/keeper'
import { type Running, workshop } from '#support/processes'
import { questionOf, type ServeReady } from '#support/proposing'
import { seeded } from '#support/sim-files'

const kills = scaled(20)
const proposals = kills + 4

const shop = workshop()
let dev: DevDescription
let folder: string
beforeAll(async () => {
  folder = join(await shop.folder(), 'dev')
  const chain = shop.start(argvOf`devchain --port 0 --questions ${String(proposals)} --write
    ${folder} --json`)
  dev = (await chain.line<ServeReady>()).dev
})
afterAll(() => shop.clean())

test(`R1, R2, R3, R15, R23: ${kills} kills while proposals are executed; each of them once, under the id that was told`, async () => {
  const random = seeded(firstSeed)
  const executor = dev.accounts.find(({ role }) => role === 'executor')?.address ?? ''
  const before = await transactionsOf(dev, executor)
  let worstStartMs = 0
  let last: Running | undefined
  const keeper = keepAlive(() => {
    const startedMs = performance.now()
    const server = shop.start(argvOf`serve --config ${join(folder, 'gateway.json')} --port 0
      --json --set store=./killed`)
    last = server
    server.child.stdout?.once('data', () => {
      worstStartMs = Math.max(worstStartMs, performance.now() - startedMs)
    })
    return server
  })
  const submitting = (async () => {
    const submitted = []
    for (let n = 0; n < proposals; n += 1) {
      submitted.push(await submitTo(keeper, questionOf(dev, n).question_id, n % 4, 5_000 + n))
      await sleep(random() * 300)
    }
    return submitted
  })()
  submitting.catch(() => undefined)
  for (let kill = 0; kill < kills; kill += 1) {
    if (random() < 0.75) await keeper.answered(async () => true)
    await sleep(random() * 900)
    keeper.kill()
    await expect.poll(() => keeper.kills, { timeout: 60_000, interval: 5 }).toBe(kill + 1)
  }
  const submitted = await submitting
  for (const candidate of submitted)
    await keeper.answered(async (url) =>
      (await statusOf(url, candidate))?.submission?.status === 'indexed' ? true : undefined,
    )
  await expectOneEach(dev, keeper, submitted, executor, before)
  // R12: of what the killed ones held nothing is left but the word of it.
  expect(last?.stderr()).toMatch(/"code":"lock_left_behind","detail":"process \d+ on /)
  const left = await readdir(join(folder, 'killed'))
  expect(left.filter((name) => name.startsWith('s.'))).toHaveLength(1)
  await keeper.stop()
  figures('kills of the whole gateway', {
    kills,
    proposals,
    'executed once': submitted.length,
    'slowest start to ready (ms)': Math.round(worstStartMs),
  })
})
