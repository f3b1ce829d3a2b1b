/**
 * SIGTERM, a reader of stdout who leaves (EPIPE), and a stdin that closes, at moments of all kinds
 * in the life of `serve`, `submit --wait`, `batch submit --ndjson` and `poll` from dist (R1, R7,
 * R23; contract §6): the exit code says what the journal says, and nothing is lost.
 */
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { argvOf } from '#support/argv'
import { figures, firstSeed, scaled } from '#support/campaign'
import { type House, type HouseStore, openHouse } from '#support/faults/house'
import { patiently } from '#support/faults/patient'
import { newTruth } from '#support/faults/truth'
import { journalFaults } from '#support/history/judge-home'
import { type Ended, freePort, type Running, workshop } from '#support/processes'
import type { ServeReady } from '#support/proposing'
import { seeded } from '#support/sim-files'

const moments = scaled(30)
const lanes = 6
const rowsOfBatch = 4

const shop = workshop()
let house: House
let store: HouseStore
let gateway: Running
let env: Readonly<Record<string, string>>
beforeAll(async () => {
  house = await openHouse(shop, {
    questions: Math.max(20, moments * (1 + rowsOfBatch) + 1),
    wallets: 20,
  })
  store = await house.open('ends')
  gateway = store.serve()
  env = {
    ...(await house.home('ends-home')),
    PROPOSER_GATEWAY: (await gateway.line<ServeReady>()).url,
  }
})
afterAll(async () => {
  await shop.clean()
  await house?.close()
})

const faults = ['SIGTERM', 'EPIPE', 'stdin'] as const
type FaultKind = (typeof faults)[number]
const faultOf = (n: number): FaultKind => faults[n % faults.length] ?? 'SIGTERM'

function strike({ child }: Running, fault: FaultKind): void {
  if (fault === 'SIGTERM') child.kill('SIGTERM')
  else if (fault === 'EPIPE') child.stdout?.destroy()
  else child.stdin?.end()
}

async function atMoments(work: (n: number, random: () => number) => Promise<void>): Promise<void> {
  let next = 0
  const lane = async () => {
    for (let n = next++; n < moments; n = next++) {
      await work(n, seeded(firstSeed * 1_000 + n)).catch((error: unknown) => {
        throw new Error(
          `moment ${n} (${faultOf(n)}), CAMPAIGN_SEED=${firstSeed}: ${error instanceof Error ? error.message : error}`,
          {
            cause: error,
          },
        )
      })
    }
  }
  await Promise.all(Array.from({ length: lanes }, lane))
}

const codesOf = (counts: ReadonlyMap<string, number>) =>
  [...counts]
    .sort()
    .map(([code, count]) => `${count}× ${code}`)
    .join(' ')
const counter = () => {
  const counts = new Map<string, number>()
  return {
    counts,
    add({ code, signal }: Ended) {
      const name = String(code ?? signal)
      counts.set(name, (counts.get(name) ?? 0) + 1)
    },
  }
}
/**
 * Before the program has begun to listen for it, the system's own way of SIGTERM counts: nothing
 * has been done yet.
 */
const isEarly = ({ signal }: Ended) => signal === 'SIGTERM'

interface Entry {
  readonly question_id: string
  readonly state: string
}
async function journal(): Promise<ReadonlyMap<string, string>> {
  const { stdout } = await shop.run(argvOf`journal list --json`, { env })
  return new Map(
    (JSON.parse(stdout) as { authorizations: Entry[] }).authorizations.map(
      ({ question_id, state }) => [question_id, state],
    ),
  )
}
async function expectWhole(): Promise<void> {
  const verified = await shop.run(argvOf`journal verify --json`, { env })
  expect(verified.code, verified.stderr).toBe(0)
  expect(await journalFaults(env.PROPOSER_HOME ?? '')).toBe('')
  const exported = await shop.run(argvOf`operator --config ${store.config} store export --json`)
  const { candidates } = JSON.parse(exported.stdout) as { candidates: { question_id: string }[] }
  const known = await journal()
  for (const { question_id } of candidates)
    expect(['accepted', 'unknown'], question_id).toContain(known.get(question_id))
}

const wasShed = ({ stderr }: Ended) => stderr.includes('the gateway is overloaded')
/**
 * The client's first call waits for the first response of another process, which tells the rate
 * limit: a struck process never gets it, and `--timeout` may be over before its call counts as lost.
 */
const waitedForAnother = ({ stderr }: Ended) => stderr.includes('rate limit unknown until')
/** On a busy machine the time may be over before the first call, or in it. */
const endedBefore = ({ stderr }: Ended) =>
  stderr.includes('"code":"not_sent"') || stderr.includes('nothing was admitted by this call')

/**
 * What the journal has to say of the authorization of a run that ended with this code (contract §1,
 * §6).
 */
const statesOf: Readonly<Record<string, readonly (string | undefined)[]>> = {
  6: ['unknown'],
  8: ['accepted'],
  75: ['deferred'],
  130: ['accepted', 'deferred', 'unsent', 'signed', undefined],
}
/** A call that was not answered may also be the first of them, before anything was signed. */
const statesAfter = (ended: Ended) => [
  ...(statesOf[ended.code ?? -1] ?? []),
  ...(ended.code === 75 && [wasShed, waitedForAnother, endedBefore].some((is) => is(ended))
    ? [undefined]
    : []),
]

test('R7, R23: submit --wait ends as its journal says; what is unknown or was not sent is settled by the next submit', async () => {
  const { counts, add } = counter()
  const endings: { questionId: string; ended: Ended }[] = []
  await atMoments(async (n, random) => {
    const questionId = house.questionIds[n] ?? ''
    const fault = faultOf(n)
    const args = argvOf`submit ${questionId} --outcome p2 --wait --timeout 3 --json --yes`
    const running = shop.start(args, { env, stdin: { open: true } })
    await Promise.race([sleep(random() * 1_200), running.ended])
    strike(running, fault)
    const ended = await running.ended
    add(ended)
    if (fault === 'SIGTERM' && isEarly(ended)) return
    expect(fault === 'SIGTERM' ? [130, 6, 8, 75] : [8, 6, 75], ended.stderr).toContain(ended.code)
    endings.push({ questionId, ended })
  })
  const states = await journal()
  for (const { questionId, ended } of endings)
    expect(statesAfter(ended), ended.stderr).toContain(states.get(questionId))
  await expectWhole()
  figures('submit --wait struck', { moments, exits: codesOf(counts) })
})

test('R7, R23: batch submit --ndjson goes on without its reader, and ends as its journal says; the same rows again finish it', async () => {
  const { counts, add } = counter()
  const endings: { ids: readonly string[]; code: number }[] = []
  const folder = await shop.folder()
  const all: string[] = []
  await atMoments(async (n, random) => {
    const fault = faultOf(n)
    const ids = house.questionIds.slice(moments + n * rowsOfBatch, moments + (n + 1) * rowsOfBatch)
    const rows = ids
      .map((identifier) => `${JSON.stringify({ identifier, outcome: 'p1' })}\n`)
      .join('')
    all.push(rows)
    const file = join(folder, `rows-${n}.ndjson`)
    await writeFile(file, rows)
    const args = ['batch', 'submit', fault === 'stdin' ? '-' : file, '--ndjson', '--yes']
    const running = shop.start(args, { env, stdin: { open: true } })
    if (fault === 'stdin')
      running.child.stdin?.write(rows.slice(0, Math.ceil(rows.length * random() * 0.9)))
    if (fault === 'EPIPE' && random() < 0.5) await running.line().catch(() => undefined)
    else await Promise.race([sleep(random() * 1_200), running.ended])
    strike(running, fault)
    const ended = await running.ended
    add(ended)
    if (fault === 'SIGTERM' && isEarly(ended)) return
    if (fault === 'EPIPE') expect([0, 75], ended.stderr).toContain(ended.code)
    if (fault === 'stdin') expect([0, 2, 75], ended.stderr).toContain(ended.code)
    if (fault === 'SIGTERM') expect([0, 6, 75, 130], ended.stderr).toContain(ended.code)
    if (fault !== 'stdin') endings.push({ ids, code: ended.code ?? -1 })
  })
  const states = await journal()
  for (const { ids, code } of endings) {
    const found = ids.map((id) => states.get(id))
    if (code === 0) expect(found).toEqual(ids.map(() => 'accepted'))
    else if (code === 6) expect(found).toContain('unknown')
    else expect(found).not.toContain('unknown')
  }
  await expectWhole()
  const rest = join(folder, 'all.ndjson')
  await writeFile(rest, all.join(''))
  const finished = await patiently(() =>
    shop.run(argvOf`batch submit ${rest} --json --yes`, { env }),
  )
  expect(finished.code, finished.stderr).toBe(0)
  const single = join(folder, 'single.ndjson')
  const ids = house.questionIds.slice(0, moments)
  await writeFile(
    single,
    ids.map((identifier) => `${JSON.stringify({ identifier, outcome: 'p2' })}\n`).join(''),
  )
  const settled = await patiently(() =>
    shop.run(argvOf`batch submit ${single} --json --yes`, { env }),
  )
  expect(settled.code, settled.stderr).toBe(0)
  expect([...(await journal()).values()].filter((state) => state !== 'accepted')).toEqual([])
  await expectWhole()
  figures('batch submit struck', { moments, exits: codesOf(counts) })
})

test('R23: poll ends with 130 by SIGTERM and with 8 where its time runs out, whoever reads or writes; the journal is as before', async () => {
  const { counts, add } = counter()
  const before = await journal()
  await atMoments(async (n, random) => {
    const fault = faultOf(n)
    const running = shop.start(argvOf`poll --all --timeout 2 --json`, {
      env,
      stdin: { open: true },
    })
    await Promise.race([sleep(random() * 900), running.ended])
    strike(running, fault)
    const ended = await running.ended
    add(ended)
    if (fault === 'SIGTERM' && isEarly(ended)) return
    const learned = wasShed(ended) ? [8, 75] : [8]
    expect(fault === 'SIGTERM' ? [130, ...learned] : learned, ended.stderr).toContain(ended.code)
  })
  expect(await journal()).toEqual(before)
  await expectWhole()
  figures('poll struck', { moments, exits: codesOf(counts) })
})

test('R1, R23: serve drains and exits 0 by SIGTERM at any moment; without a reader of stdout or a stdin it goes on serving', async () => {
  const { counts, add } = counter()
  const port = await freePort()
  const served = await house.open('struck', {
    set: [`listen.port=${port}`, 'listen.drain_seconds=0'],
  })
  const truth = newTruth(shop, served)
  const url = `http://127.0.0.1:${port}`
  for (let n = 0; n < moments; n += 1) {
    const random = seeded(firstSeed * 1_000 + n)
    const fault = faultOf(n)
    const server = served.serve({ stdin: { open: true } })
    const isBusy = random() < 0.6
    if (isBusy) await server.line<ServeReady>()
    const caller = async () => {
      while (await truth.submit(url, [served.next()]));
    }
    const load = isBusy ? [caller(), caller()] : []
    await sleep(random() * (isBusy ? 60 : 400))
    strike(server, fault)
    if (fault !== 'SIGTERM') {
      await ready(url, server.ended)
      expect(await truth.submit(url, [served.next()]), 'it answers').toBe(true)
      server.child.kill('SIGTERM')
    }
    const ended = await server.ended
    await Promise.all(load)
    add(ended)
    if (fault === 'SIGTERM' && !isBusy && isEarly(ended)) continue
    expect(ended, `moment ${n}`).toMatchObject({ code: 0, signal: null })
  }
  const last = served.serve()
  await truth.settle((await last.line<ServeReady>()).url, 50, seeded(firstSeed))
  await last.stop()
  await truth.prove()
  figures('serve struck', { moments, exits: codesOf(counts), 'accepted and found': truth.accepted })
})

async function ready(url: string, ended: Promise<Ended>): Promise<void> {
  let over: Ended | undefined
  void ended.then((one) => {
    over = one
  })
  for (;;) {
    const answer = await fetch(`${url}/readyz`).catch(() => undefined)
    await answer?.text()
    if (answer?.status === 200) return
    if (over !== undefined)
      throw new Error(`the gateway ended (${over.code ?? over.signal}): ${over.stderr}`)
    await sleep(20)
  }
}
