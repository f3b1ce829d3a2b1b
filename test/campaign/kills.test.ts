/**
 * `serve` from dist, killed at any moment under real admissions with signatures, while it starts,
 * compacts and answers (R1, R2, R23; T2). The store is held against what every caller was told.
 * Each life recovers what the one before left.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { figures, firstSeed, scaled } from '#support/campaign'
import { compact } from '#support/faults/compact'
import { type House, type HouseStore, openHouse } from '#support/faults/house'
import { newTruth, type Truth } from '#support/faults/truth'
import { workshop } from '#support/processes'
import type { ServeReady } from '#support/proposing'
import { seeded } from '#support/sim-files'

const kills = scaled(280)
const lanes = 4
const callers = 6
/**
 * The whole store is read this often, and at the end; what was told last, and some of the rest, is
 * asked for after every kill.
 */
const proveEvery = 20

const shop = workshop()
let house: House
beforeAll(async () => {
  house = await openHouse(shop, { questions: 100, wallets: 60 + Math.ceil(kills / lanes) })
})
afterAll(async () => {
  await shop.clean()
  await house?.close()
})

async function load(
  store: HouseStore,
  truth: Truth,
  url: string,
  random: () => number,
): Promise<void> {
  const caller = async () => {
    for (;;) {
      const choice = random()
      const payload = store.next()
      const answered =
        choice < 0.6
          ? await truth.submit(url, [payload])
          : choice < 0.8
            ? (await Promise.all([1, 2].map(() => truth.submit(url, [payload])))).every(Boolean)
            : await truth.submit(url, [payload, store.next(), store.next(), payload])
      if (!answered) return
    }
  }
  await Promise.all(Array.from({ length: callers }, caller))
}

test(`R1, R2, R23: after each of ${kills} kills of the gateway everything that was accepted is there under its id, and nothing else`, {
  timeout: 3_600_000,
}, async () => {
  let worstStartMs = 0
  let accepted = 0
  const proved = { found: 0, lost: 0, invented: 0 }
  const sums = { starting: 0, compacting: 0, answering: 0, proofs: 0 }

  async function lane(n: number): Promise<void> {
    const random = seeded(firstSeed * 1_000 + n)
    const store = await house.open(`kills-${n}`)
    const truth = newTruth(shop, store)
    const many = Math.ceil(kills / lanes)
    for (let life = 1; life <= many; life += 1) {
      try {
        await live(life)
      } catch (error) {
        throw new Error(
          `lane ${n}, life ${life}, CAMPAIGN_SEED=${firstSeed}: ${error instanceof Error ? error.message : error}`,
          {
            cause: error,
          },
        )
      }
    }
    const last = store.serve()
    const { url } = await last.line<ServeReady>()
    await truth.settle(url, 100, random)
    expect((await last.stop()).code).toBe(0)
    await truth.prove()
    expect(truth.unknown).toBe(0)
    accepted += truth.accepted
    for (const key of ['found', 'lost', 'invented'] as const) proved[key] += truth.proved[key]

    async function live(life: number): Promise<void> {
      const startMs = performance.now()
      const server = store.serve()
      if (random() < 0.15) {
        await sleep(random() * 350)
        sums.starting += 1
        await server.stop('SIGKILL')
        return
      }
      const { url, admin_url } = await server.line<ServeReady>()
      worstStartMs = Math.max(worstStartMs, performance.now() - startMs)
      if (life % proveEvery === 0) {
        await truth.prove()
        sums.proofs += 1
      }
      await truth.settle(url, 5, random)
      const working = load(store, truth, url, random)
      // Its failure is told below, and must not end the process before.
      working.catch(() => undefined)
      const isCompacting = random() < 0.15
      await sleep(5 + random() * 75)
      const compacting = isCompacting ? compact(store.store, admin_url) : undefined
      if (isCompacting) await sleep(random() * 60)
      sums[isCompacting ? 'compacting' : 'answering'] += 1
      await server.stop('SIGKILL')
      await Promise.all([working, compacting])
    }
  }

  await Promise.all(Array.from({ length: lanes }, (_, n) => lane(n + 1)))
  expect(accepted).toBeGreaterThan(kills)
  expect(proved).toEqual({ found: accepted, lost: 0, invented: 0 })
  expect(sums.compacting).toBeGreaterThan(kills / 20)
  figures('kills', {
    kills,
    ...sums,
    'accepted and found': proved.found,
    'lost or invented': proved.lost + proved.invented,
    'slowest start to ready (ms)': Math.round(worstStartMs),
  })
})
