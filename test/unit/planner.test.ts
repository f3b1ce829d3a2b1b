import { cp } from 'node:fs/promises'
import { join } from 'node:path'
import { createPlanner, type Planner, withBudget } from '#client/budget/planner'
import { createGatewayClient } from '#client/gateway/gateway-client'
import { systemFiles } from '#io/files'
import { systemPorts } from '#io/system'
import type { Clock, Fetch } from '#ports'
import { acquireLock } from '#storage/lock'
import { simTime } from '#support/budget-world'
import { sha256 } from '#support/client-world'
import { temporaryFolder } from '#support/folders'
import { SimFiles, SimHost, seededRandom } from '#support/sim-files'

const told = (remaining: number, resetSeconds = 60, limit = 120) => ({
  httpStatus: 200,
  rateLimit: { limit, remaining, resetSeconds },
})

function machine() {
  const time = simTime()
  const sim = new SimFiles()
  const host = new SimHost()
  let processes = 0
  return {
    time,
    sim,
    host,
    kill: () => host.kill(processes),
    planner(
      options: Parameters<typeof createPlanner>[3] = {},
      origin = 'https://gateway.test',
      sleep: Clock['sleep'] = time.sleep,
    ): Planner {
      processes++
      const ports = {
        clock: { ...time.clock, sleep },
        files: sim.process(),
        liveness: host.liveness(processes),
        hash: sha256,
        random: seededRandom(processes),
      }
      return createPlanner(ports, '/home', origin, options)
    },
  }
}

async function learn(planner: Planner): Promise<void> {
  const reservation = await planner.reserve(100, { min: 1 })
  await reservation.settle(told(120 - reservation.granted))
}

test('who gives up while a first call of another process is in flight is told so, not that the limit is reached', async () => {
  const { time, planner } = machine()
  await time.run(
    (async () => {
      const [one, other] = [planner(), planner()]
      const first = await one.reserve(1)
      await expect(other.reserve(1, { timeoutMs: 3_000 })).rejects.toMatchObject({
        code: 'budget_spent',
        message: expect.stringMatching(
          /^rate limit unknown until a request in flight is answered \(120 items per 60 s, 1 spent\)/,
        ),
        meta: { exitCode: 75, retryAfterMs: 1_000 },
      })
      await first.settle(told(1))
    })(),
  )
})

test('a limit that falls below a call while its lock is waited for refuses it: no fault of the disk', async () => {
  const { time, planner } = machine()
  const notes: string[] = []
  await time.run(
    (async () => {
      const [one, other] = [planner(), planner({ onNote: (text) => notes.push(text) })]
      await learn(one)
      const charge = await one.reserve(10)
      const asked = expect(other.reserve(9)).rejects.toMatchObject({ code: 'batch_over_budget' })
      await charge.settle(told(0, 60, 8))
      await asked
    })(),
  )
  expect(notes).toEqual([])
})

test('a stop ends a wait with its reason, and takes nothing', async () => {
  const { time, planner } = machine()
  const stop = new AbortController()
  await time.run(
    (async () => {
      const one = planner()
      await learn(one)
      await one.reserve(119).then((reservation) => reservation.settle(told(0)))
      const waiting = one.reserve(1, { signal: stop.signal })
      const stopping = time.sleep(3_000).then(() => stop.abort(new Error('enough')))
      await expect(waiting).rejects.toThrow('enough')
      await stopping
      expect(await one.snapshot()).toMatchObject({ spentItems: 120 })
    })(),
  )
})

test('contract §6: an in-process gateway is never charged, and no file is made', async () => {
  const { time, sim, planner } = machine()
  const local = planner({}, 'local:store')
  const granted = await time.run(Promise.all([local.reserve(5_000), local.reserve(5_000)]))
  expect(granted.map((one) => one.granted)).toEqual([5_000, 5_000])
  expect(await time.run(local.snapshot())).toMatchObject({ spentItems: 0 })
  expect([...sim.contents().keys()]).toEqual([])
})

test('contract §10: what 0.2 counted is read once and replaced; while a process of it uses the home, it is refused', async () => {
  const home = temporaryFolder()
  await cp(new URL('../../fixtures/v0.2/home', import.meta.url), home, { recursive: true })
  const ports = systemPorts()
  const origin = 'http://127.0.0.1:28790'
  const run = join(home, 'journal', '8e31ecc6a6cb')
  const older = await acquireLock(ports, run, 'journal')
  const planner = createPlanner(ports, home, origin)
  for (const call of [() => planner.snapshot(), () => planner.reserve(1)])
    await expect(call()).rejects.toMatchObject({
      code: 'home_in_use',
      detail: expect.stringContaining(`process ${process.pid} `),
      meta: { exitCode: 74 },
    })
  await older.release()
  const newer = await acquireLock(ports, run, '{"role":"journal","layout":3}')
  expect(await planner.snapshot()).toMatchObject({ learnt: true, limitItems: 120 })
  expect((await planner.reserve(100)).granted).toBe(100)
  await newer.release()
  const [folder = ''] = await systemFiles.list(join(home, 'budget'))
  const left = await systemFiles.list(join(home, 'budget', folder))
  expect(left.filter((name) => /^s\.\d+$/.test(name))).toEqual([])
  expect(await createPlanner(ports, home, origin).snapshot()).toMatchObject({
    spentItems: 100,
  })
})

test('R13: what was spent before a restart of the machine is waited for once, not for ever', async () => {
  const { time, host, planner } = machine()
  await time.run(
    (async () => {
      await learn(planner())
      await planner().reserve(119, { min: 1 })
      host.reboot()
      const from = time.clock.monotonicMs()
      expect((await planner().reserve(1)).granted).toBe(1)
      expect(time.clock.monotonicMs() - from).toBeLessThan(62_000)
    })(),
  )
})

test.each([
  { what: 'zeros', damage: (bytes: Uint8Array) => bytes.fill(0) },
  { what: 'a part of it', damage: (bytes: Uint8Array) => bytes.fill(0, 20) },
  { what: 'nonsense', damage: (bytes: Uint8Array) => bytes.fill(0x78, 20, 40) },
])('robustness §2, R11: $what that a power cut left is learned again', async ({ damage }) => {
  const { time, sim, planner } = machine()
  await time.run(
    (async () => {
      await learn(planner())
      const file = [...sim.contents().keys()].find((name) => name.endsWith('/log.json')) ?? ''
      sim.damage(file, damage)
      expect(await planner().snapshot()).toMatchObject({ learnt: false, spentItems: 0 })
      expect((await planner().reserve(1)).granted).toBe(1)
      await learn(planner())
      expect(await planner().snapshot()).toMatchObject({ learnt: true })
    })(),
  )
})

test('robustness §2, R12: a lock record that a power cut left unread stops nobody', async () => {
  const { time, sim, planner } = machine()
  await time.run(
    (async () => {
      await learn(planner())
      for (const name of [...sim.contents().keys()]) {
        if (/\/LOCK\.\d+$/.test(name)) sim.damage(name, (bytes) => bytes.fill(0))
        if (name.endsWith('.free')) await sim.process().remove(name)
      }
      expect((await planner().reserve(1)).granted).toBe(1)
    })(),
  )
})

test.each(['ENOSPC', 'EIO'] as const)(
  'robustness §2: a disk that answers %s leaves this process counting alone',
  async (does) => {
    const { time, sim, planner } = machine()
    const notes: string[] = []
    await time.run(
      (async () => {
        sim.faults = [{ verb: 'open', nth: 1, does, always: true }]
        const one = planner({ onNote: (text) => notes.push(text) })
        await learn(one)
        expect((await one.reserve(100)).granted).toBe(100)
        expect((await one.reserve(100, { min: 1 })).granted).toBe(19)
      })(),
    )
    expect(notes).toEqual([
      `the shared rate-limit state cannot be written (${does}); other processes of this machine are not counted`,
    ])
  },
)

test('R23: a process killed at any call of the disk leaves a state that others go on with', async () => {
  for (let nth = 1; nth <= 60; nth++) {
    for (const does of ['kill-before', 'kill-after'] as const) {
      const { time, sim, planner, kill } = machine()
      sim.faults = [{ verb: 'any', nth, does }]
      const died = sim.death().then(() => true)
      const whole = (async () => {
        const one = planner()
        await learn(one)
        await one.reserve(50).then((reservation) => reservation.settle(told(69)))
        return false
      })()
      if (await time.run(Promise.race([died, whole]))) kill()
      sim.faults = []
      const notes: string[] = []
      const next = planner({ onNote: (text) => notes.push(text) })
      const { granted } = await time.run(next.reserve(100, { min: 1 }))
      expect(granted).toBeGreaterThanOrEqual(1)
      expect(granted).toBeLessThanOrEqual(119)
      expect(notes).toEqual([])
    }
  }
})

const uuid = (n: number) => `00000000-0000-4000-8000-${String(n).padStart(12, '0')}`
const item = {
  candidate_id: uuid(1),
  status_code: 404,
  error: { code: 'candidate_not_found', detail: 'x' },
}

function setting(budget: { limit?: number; spent?: number; refuse?: number } = {}) {
  const { time, planner } = machine()
  const charged: number[] = []
  let [spent, refuse] = [budget.spent ?? 0, budget.refuse ?? 0]
  const limit = budget.limit ?? 120
  const fetch: Fetch = async (input, init) => {
    const request = new Request(input, init)
    const body =
      request.method === 'GET'
        ? {}
        : ((await request.json()) as { candidate_ids?: string[]; proposals?: unknown[] })
    const items = body.candidate_ids?.length ?? body.proposals?.length ?? 1
    charged.push(items)
    spent += items
    const headers = {
      'content-type': 'application/json',
      'ratelimit-limit': String(limit),
      'ratelimit-remaining': String(Math.max(0, limit - spent)),
      'ratelimit-reset': '60',
    }
    if (refuse-- > 0) {
      spent = 0
      const error = { code: 'rate_limited', detail: 'retry in 60 seconds' }
      return new Response(JSON.stringify({ error }), {
        status: 429,
        headers: { ...headers, 'ratelimit-remaining': '0', 'retry-after': '60' },
      })
    }
    const results = body.candidate_ids?.map((id) => ({ ...item, candidate_id: id })) ?? []
    const summary = { accepted: 0, replayed: 0, rejected: 0 }
    return new Response(JSON.stringify({ results, summary }), { status: 200, headers })
  }
  const client = createGatewayClient({
    fetch,
    baseUrl: 'https://gateway.test',
    clock: time.clock,
  })
  return { time, charged, client, planner: planner() }
}

test('§8: a list that is only read is split at what the window has left, and its results are those of one call', async () => {
  const { time, charged, client, planner } = setting({ spent: 50 })
  const ids = Array.from({ length: 60 }, (_, index) => uuid(index))
  const answer = await time.run(withBudget(client, planner).statuses(ids))
  expect(charged).toEqual([1, 59])
  expect(
    answer.kind === 'accepted' ? answer.value.results.map((one) => one.candidate_id) : answer,
  ).toEqual(ids)
})

test("§7: a read that draws a 429 is sent again after its Retry-After; a submission is its caller's to repeat", async () => {
  const reading = setting({ refuse: 1 })
  const answer = await reading.time.run(
    withBudget(reading.client, reading.planner).statuses([uuid(1)]),
  )
  expect(answer.kind).toBe('accepted')
  expect(reading.time.nowMs()).toBeGreaterThanOrEqual(60_000)
  const sending = setting({ refuse: 1 })
  const refused = await sending.time.run(
    withBudget(sending.client, sending.planner).submitBatch('{"proposals":[{}]}'),
  )
  expect(refused).toMatchObject({ kind: 'deferred', httpStatus: 429, retryAfterMs: 60_000 })
  expect(sending.time.nowMs()).toBeLessThan(1_000)
})

test('§8: what a group may hold is kept until its call', async () => {
  const { time, client, planner } = setting({ spent: 50 })
  const budgeted = withBudget(client, planner)
  const rooms = async () => (await time.run(planner.snapshot())).roomItems
  await time.run(budgeted.statuses([uuid(1)]))
  const before = await rooms()
  const granted = await time.run(budgeted.chunkSize(30))
  expect([granted, await rooms()]).toEqual([30, before - 30])
  await time.run(budgeted.close())
  expect(await rooms()).toBe(before)
})
