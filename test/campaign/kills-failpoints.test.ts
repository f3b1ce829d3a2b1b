/**
 * SIGKILL before, after and in the middle of every kind of call to the disk (R4, R6, R7, R8, R23;
 * T2), in `serve` with a compaction and `submit` from dist: each process is the next one's recovery.
 */
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { argvOf } from '#support/argv'
import { figures, firstSeed, scaled } from '#support/campaign'
import { compact } from '#support/faults/compact'
import { type House, type HouseStore, openHouse } from '#support/faults/house'
import { patiently } from '#support/faults/patient'
import { newTruth, type Truth } from '#support/faults/truth'
import { journalFaults } from '#support/history/judge-home'
import { type Ended, workshop } from '#support/processes'
import type { ServeReady } from '#support/proposing'
import { seeded } from '#support/sim-files'

const seeds = scaled(3)
const lanes = 3

const shop = workshop()
let house: House
beforeAll(async () => {
  house = await openHouse(shop, { questions: 80, wallets: 20 + 4 * seeds })
})
afterAll(async () => {
  await shop.clean()
  await house?.close()
})

interface Point {
  readonly call: string
  readonly does: string
  readonly most: number
  readonly part?: string
}
const around = (call: string, most: number): Point[] =>
  ['kill-before', 'kill-after'].map((does) => ({ call, does, most }))

/**
 * What a life of `serve` with a dozen admissions and a compaction does at least; a torn line comes
 * before the truncation that it needs.
 */
const storePoints: readonly Point[] = [
  ...around('open', 25),
  ...around('write', 20),
  ...around('datasync', 20),
  ...around('sync', 6),
  ...around('close', 15),
  ...around('rename', 5),
  ...around('link', 1),
  ...around('rm', 3),
  ...around('mkdir', 1),
  { call: 'write', does: 'torn', most: 8, part: '/log-' },
  ...around('truncate', 1),
]
const compactPoints: readonly Point[] = [
  ...around('write', 2).map((point) => ({ ...point, part: '/snap-' })),
  ...around('datasync', 1).map((point) => ({ ...point, part: '/snap-' })),
  ...around('rename', 1).map((point) => ({ ...point, part: '/snap-' })),
  ...around('rm', 1).map((point) => ({ ...point, part: '/log-' })),
]
const journalPoints: readonly Point[] = [
  ...around('open', 12),
  ...around('write', 10),
  ...around('datasync', 8),
  ...around('sync', 4),
  ...around('close', 8),
  ...around('rename', 3),
  ...around('link', 2),
  ...around('rm', 2),
  ...around('mkdir', 2),
  { call: 'write', does: 'torn', most: 4, part: '/log-' },
]

const failpoint = ({ call, does, most, part }: Point, folder: string, random: () => number) =>
  `${call}:${1 + Math.floor(random() * most)}:${does}:${folder}${part ?? ''}`
const wasMet = ({ signal }: Ended) => signal === 'SIGKILL'

test.concurrent(`R1, R11, R23: serve and store compact, killed at each call to the disk with ${seeds} seeds, lose and invent nothing`, async () => {
  let [met, unmet, accepted, worstStartMs] = [0, 0, 0, 0]
  const count = (ended: Ended) => (wasMet(ended) ? met++ : unmet++)

  async function live(
    store: HouseStore,
    truth: Truth,
    point: string,
    random: () => number,
  ): Promise<void> {
    const startMs = performance.now()
    const server = store.serve({ env: { FAILPOINT: point } })
    const ready = await Promise.race([
      server.line<ServeReady>().catch(() => undefined),
      server.ended.then(() => undefined),
    ])
    if (ready !== undefined) {
      worstStartMs = Math.max(worstStartMs, performance.now() - startMs)
      const caller = async () => {
        for (let call = 0; call < 4; call += 1)
          if (!(await truth.submit(ready.url, [store.next(), store.next()]))) return
      }
      const settling = truth.settle(ready.url, 3, random).catch((error: Error) => {
        if (error.message !== 'the gateway does not answer') throw error
      })
      await Promise.all([settling, caller(), caller(), compact(store.store, ready.admin_url)])
      await Promise.all([caller(), caller()])
      server.child.kill('SIGTERM')
    }
    const ended = await server.ended
    if (!wasMet(ended)) expect(ended.code, ended.stderr).toBe(0)
    count(ended)
  }

  async function round(seed: number): Promise<void> {
    const random = seeded(seed)
    const store = await house.open(`store-points-${seed}`)
    const truth = newTruth(shop, store)
    for (const [index, point] of storePoints.entries()) {
      const compaction = compactPoints[(seed * 7 + index) % compactPoints.length]
      for (const one of index % 2 === 0 || compaction === undefined
        ? [point]
        : [point, compaction]) {
        const name = failpoint(one, store.store, random)
        await live(store, truth, name, random).catch((error: unknown) => {
          throw new Error(`seed ${seed}, ${name}`, { cause: error })
        })
      }
    }
    const last = store.serve()
    await truth.settle((await last.line<ServeReady>()).url, 1_000, random)
    expect((await last.stop()).code).toBe(0)
    await truth.prove()
    accepted += truth.accepted
  }
  let next = firstSeed
  const lane = async () => {
    while (next < firstSeed + seeds) await round(next++)
  }
  await Promise.all(Array.from({ length: lanes }, lane))
  expect(met).toBeGreaterThan(4 * unmet)
  figures('kills at calls to the store', {
    kills: met,
    'not met': unmet,
    'accepted and found': accepted,
    'slowest start to ready (ms)': Math.round(worstStartMs),
  })
})

test.concurrent(`R4, R6, R7, R8, R23: submit, killed at each call to its journal with ${seeds} seeds, leaves one authorization a question`, async () => {
  const store = await house.open('journal-points')
  const server = store.serve()
  const { url } = await server.line<ServeReady>()
  const home = await house.home('home-points')
  const env = { ...home, PROPOSER_GATEWAY: url }
  const submitted: string[] = []
  const told = new Map<string, string>()
  let [met, unmet] = [0, 0]
  for (let seed = firstSeed; seed < firstSeed + seeds; seed += 1) {
    const random = seeded(seed)
    for (const point of journalPoints) {
      const questionId = house.questionIds[submitted.length % house.questionIds.length] ?? ''
      submitted.push(questionId)
      const name = failpoint(point, `${home.PROPOSER_HOME}`, random)
      const ended = await shop.run(argvOf`submit ${questionId} --outcome p2 --json --yes`, {
        env: { ...env, FAILPOINT: name },
      })
      if (wasMet(ended)) met += 1
      else {
        unmet += 1
        expect([0, 75], `${name}: ${ended.stderr}`).toContain(ended.code)
      }
      if (ended.stdout.trim() !== '' && ended.code !== 75)
        told.set(questionId, (JSON.parse(ended.stdout) as { candidate_id: string }).candidate_id)
    }
  }
  const rows = join(await shop.folder(), 'rows.ndjson')
  const asked = [...new Set(submitted)]
  await writeFile(
    rows,
    asked.map((identifier) => `${JSON.stringify({ identifier, outcome: 'p2' })}\n`).join(''),
  )
  const finished = await patiently(() =>
    shop.run(argvOf`batch submit ${rows} --json --yes`, { env }),
  )
  expect(finished.code, finished.stderr).toBe(0)
  const { results } = JSON.parse(finished.stdout) as {
    results: { identifier: string; candidate: { candidate_id: string } }[]
  }
  const ids = new Map(
    results.map(({ identifier, candidate }) => [identifier, candidate.candidate_id]),
  )
  expect([...ids.keys()]).toEqual(asked)
  const lost = [...told].filter(([questionId, id]) => ids.get(questionId) !== id)
  expect(lost).toEqual([])

  const exported = await shop.run(argvOf`operator --config ${store.config} store export --json`)
  const { candidates } = JSON.parse(exported.stdout) as {
    candidates: { candidate_id: string; question_id: string; permit_nonce: string }[]
  }
  expect(
    new Map(candidates.map(({ question_id, candidate_id }) => [question_id, candidate_id])),
  ).toEqual(ids)
  expect(candidates, 'R8: one candidate a question').toHaveLength(asked.length)
  expect(new Set(candidates.map(({ permit_nonce }) => permit_nonce)).size, 'R6').toBe(asked.length)
  const listed = await shop.run(argvOf`journal list --json`, { env })
  const { authorizations } = JSON.parse(listed.stdout) as {
    authorizations: { question_id: string; state: string }[]
  }
  expect(authorizations.map(({ state }) => state)).toEqual(asked.map(() => 'accepted'))
  const verified = await shop.run(argvOf`journal verify --json`, { env })
  expect(verified.code, verified.stderr).toBe(0)
  expect(await journalFaults(home.PROPOSER_HOME ?? '')).toBe('')
  await server.stop()
  expect(met).toBeGreaterThan(2 * unmet)
  const twice =
    authorizations.length - new Set(authorizations.map(({ question_id }) => question_id)).size
  expect(twice, 'R8').toBe(0)
  figures('kills at calls to the journal', {
    kills: met,
    'not met': unmet,
    questions: asked.length,
    'signed twice or lost': twice + lost.length,
  })
})
