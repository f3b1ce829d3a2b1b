/**
 * Several processes from dist on one store and on one home (R6, R8, R12; T5): one of them has it,
 * the others say who, and whoever is killed hands it on. A stopped process is alive.
 */

import { readdir } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { build } from 'esbuild'
import { argvOf } from '#support/argv'
import { figures, firstSeed, scaled } from '#support/campaign'
import { lastErrorOf } from '#support/cli'
import { type Contender, startContender } from '#support/faults/contender'
import { type House, openHouse } from '#support/faults/house'
import { patiently } from '#support/faults/patient'
import { newTruth } from '#support/faults/truth'
import { journalFaults } from '#support/history/judge-home'
import { freePort, type Running, workshop } from '#support/processes'
import type { ServeReady } from '#support/proposing'
import { seeded } from '#support/sim-files'

const shop = workshop()
const asked = scaled(8)
let house: House
beforeAll(async () => {
  house = await openHouse(shop, { questions: Math.max(20, asked), wallets: 40 + asked })
})
afterAll(async () => {
  await shop.clean()
  await house?.close()
})

test('R12: of two and of four serve on one store one serves, the others end with 74 and name it; kills hand it on', async () => {
  const random = seeded(firstSeed)
  const store = await house.open('contest', { set: [`listen.port=${await freePort()}`] })
  const truth = newTruth(shop, store)
  const rounds = scaled(8)
  let [refused, worstRefusalMs, twoAtOnce] = [0, 0, 0]
  for (let round = 0; round < rounds; round += 1) {
    const contenders = Array.from({ length: round % 2 === 0 ? 2 : 4 }, () => store.serve())
    const outcomes = await Promise.all(
      contenders.map(async (server) => {
        const ready = await server.line<ServeReady>().catch(() => undefined)
        if (ready !== undefined) return { server, ready }
        const ended = await server.ended
        return { server, ended }
      }),
    )
    const serving = outcomes.flatMap((one) =>
      one.ready === undefined ? [] : [{ server: one.server, ready: one.ready }],
    )
    twoAtOnce += Math.max(0, serving.length - 1)
    expect(serving).toHaveLength(1)
    const [{ server, ready }] = serving as [{ server: Running; ready: ServeReady }]
    for (const { ended } of outcomes) {
      if (ended === undefined) continue
      refused += 1
      expect(ended.code).toBe(74)
      expect(lastErrorOf(ended).code).toBe('store_locked')
      expect(lastErrorOf(ended).detail).toMatch(
        new RegExp(`process ${ready.pid} |by another process at the same moment`),
      )
    }
    await truth.settle(ready.url, 3, random)
    await truth.submit(ready.url, [store.next(), store.next()])
    const isStopped = round % 3 === 0
    if (isStopped) server.child.kill('SIGSTOP')
    const startedMs = performance.now()
    const late = await store.serve().ended
    worstRefusalMs = Math.max(worstRefusalMs, performance.now() - startedMs)
    if (isStopped) server.child.kill('SIGCONT')
    expect(late.code).toBe(74)
    expect(lastErrorOf(late)).toMatchObject({
      code: 'store_locked',
      detail: expect.stringContaining(`process ${ready.pid} `),
    })
    refused += 1
    if (isStopped) expect(await truth.submit(ready.url, [store.next()])).toBe(true)
    const last = truth.submit(ready.url, [store.next(), store.next()])
    await sleep(random() * 8)
    await server.stop('SIGKILL')
    await last
  }
  await truth.prove()
  expect(truth.accepted).toBeGreaterThan(rounds)
  figures('several serve on one store', {
    contests: rounds,
    refused,
    'two at once': twoAtOnce,
    'slowest refusal of one that comes late (ms)': Math.round(worstRefusalMs),
  })
})

test('R12: four processes take one lock in turn while any of them is killed; no two ever hold it, by a file that only one can make', async () => {
  const folder = await shop.folder()
  const program = join(await shop.folder(), 'child.mjs')
  const entry = new URL('../support/storage-child.ts', import.meta.url).pathname
  await build({
    entryPoints: [entry],
    bundle: true,
    platform: 'node',
    format: 'esm',
    outfile: program,
    logLevel: 'error',
  })
  const random = seeded(firstSeed)
  const start = () => startContender(program, folder)
  const running = [start(), start(), start(), start()]
  const kills = scaled(40)
  const sum = { held: 0, beside: 0 }
  const end = async (one: Contender) => {
    const { held, beside } = await one.kill()
    sum.held += held
    sum.beside += beside
  }
  try {
    for (let kill = 0; kill < kills; kill += 1) {
      const at = Math.floor(random() * running.length)
      const one = running[at]
      if (one === undefined) throw new RangeError('no such process')
      await one.until(1)
      await sleep(random() * 10)
      // A holder that stands still is alive to all others; then it goes.
      if (random() < 0.2) {
        one.child.kill('SIGSTOP')
        await sleep(random() * 10)
      }
      await end(one)
      running[at] = start()
    }
    for (const one of running) await one.until(2)
  } finally {
    for (const one of running) await end(one)
  }
  const epochs = (await readdir(folder))
    .flatMap((name) => /^LOCK\.(\d+)$/.exec(name)?.[1] ?? [])
    .map(Number)
  expect(Math.max(...epochs)).toBeGreaterThanOrEqual(sum.held)
  expect(sum.held).toBeGreaterThan(kills)
  expect(sum.beside, 'R12').toBe(0)
  figures('four on one lock', { kills, 'times held': sum.held, 'two at once': sum.beside })
})

test('R6, R8: of four submit on one home for one question, some of them killed, one authorization comes, which the next one finds', async () => {
  const random = seeded(firstSeed)
  const store = await house.open('one-home')
  const server = store.serve()
  const { url } = await server.line<ServeReady>()
  const home = await house.home('shared')
  const env = { ...home, PROPOSER_GATEWAY: url }
  const ids = new Map<string, string>()
  const counts = { agreed: 0, 'refused as open': 0, killed: 0 }
  for (const [n, questionId] of house.questionIds.slice(0, asked).entries()) {
    // Every other time they do not agree on the answer.
    const outcomes = n % 2 === 0 ? ['p2', 'p2', 'p2', 'p2'] : ['p1', 'p2', 'p1', 'p2']
    const submit = (outcome: string) =>
      shop.start(argvOf`submit ${questionId} --outcome ${outcome} --json --yes`, { env })
    const four = outcomes.map(submit)
    const victims = four.slice(0, n % 3)
    const killing = victims.map(async (one) => {
      await sleep(150 + random() * 900)
      await one.stop('SIGKILL')
    })
    const ended = await Promise.all(four.map((one) => one.ended))
    await Promise.all(killing)
    for (const outcome of new Set(outcomes))
      ended.push(await patiently(() => submit(outcome).ended))
    for (const one of ended) {
      if (one.signal === 'SIGKILL') {
        counts.killed += 1
        continue
      }
      if (one.code === 75) continue
      expect([0, 5], one.stderr).toContain(one.code)
      if (one.code === 5) {
        expect(lastErrorOf(one).code).toBe('authorization_open')
        expect(n % 2, 'who wants the same is not refused').toBe(1)
        counts['refused as open'] += 1
        continue
      }
      const { candidate_id } = JSON.parse(one.stdout) as { candidate_id: string }
      expect(ids.get(questionId) ?? candidate_id).toBe(candidate_id)
      ids.set(questionId, candidate_id)
      counts.agreed += 1
    }
  }
  const listed = await shop.run(argvOf`journal list --json`, { env })
  const { authorizations } = JSON.parse(listed.stdout) as {
    authorizations: { question_id: string; candidate_id: string }[]
  }
  expect(
    new Map(authorizations.map(({ question_id, candidate_id }) => [question_id, candidate_id])),
  ).toEqual(ids)
  expect(authorizations, 'R8').toHaveLength(asked)
  const exported = await shop.run(argvOf`operator --config ${store.config} store export --json`)
  const { candidates } = JSON.parse(exported.stdout) as {
    candidates: { candidate_id: string; permit_nonce: string }[]
  }
  expect(candidates.map(({ candidate_id }) => candidate_id).sort()).toEqual(
    [...ids.values()].sort(),
  )
  expect(new Set(candidates.map(({ permit_nonce }) => permit_nonce)).size, 'R6').toBe(asked)
  expect((await shop.run(['journal', 'verify'], { env })).code).toBe(0)
  expect(await journalFaults(home.PROPOSER_HOME ?? '')).toBe('')
  await server.stop()
  figures('four submit on one home', {
    questions: asked,
    ...counts,
    'authorizations a question': authorizations.length / asked,
  })
})
