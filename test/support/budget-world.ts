/**
 * Processes of one machine and strangers behind its address, spending at the gateway's real budget
 * in simulated time.
 */

import { createPlanner, type Planner, type PlannerOptions } from '#client/budget/planner'
import type { RateLimit } from '#client/gateway/answer'
import { type BudgetLimits, createBudget } from '#gateway/front/budget'
import type { Clock, Files } from '#ports'
import { createSleepers, sha256 } from './client-world.js'
import { SimFiles, SimHost, seeded, seededRandom } from './sim-files.js'

export const defaultLimits: BudgetLimits = {
  windowMs: 60_000,
  perClientItems: 120,
  globalItems: 1_000,
}

/**
 * Time that moves to the next sleeper whenever nothing else can go on. Everything in it runs on
 * microtasks alone.
 */
export function simTime() {
  let nowMs = 0
  let wallMs = 1_760_000_000_000
  const { sleep, next: nextSleeper } = createSleepers(() => nowMs)
  return {
    nowMs: () => nowMs,
    sleep,
    jump(ms: number) {
      wallMs += ms
    },
    clock: {
      nowMs: () => Math.floor(wallMs + nowMs),
      monotonicMs: () => 1_000_003 + nowMs,
      sleep,
    } satisfies Clock,
    async run<T>(work: Promise<T>): Promise<T> {
      let done = false
      const finish = () => {
        done = true
      }
      work.then(finish, finish)
      for (;;) {
        await new Promise((resolve) => setImmediate(resolve))
        if (done) return work
        const next = nextSleeper()
        if (next === undefined) throw new Error('everybody waits for ever')
        nowMs = Math.max(nowMs, next.atMs)
        next.wake()
      }
    },
  }
}
export interface WorldOptions {
  readonly seed: number
  readonly limits?: BudgetLimits
  readonly serverPace?: number
  readonly latencyMs?: readonly [least: number, most: number]
  readonly diskMs?: number
  readonly sliding?: boolean
  readonly silent?: boolean
  readonly lossShare?: number
}

export type BudgetWorld = ReturnType<typeof budgetWorld>

export function budgetWorld(options: WorldOptions) {
  const {
    limits = defaultLimits,
    serverPace = 1,
    latencyMs = [1, 200],
    diskMs = 0,
    lossShare = 0,
  } = options
  const time = simTime()
  const sim = new SimFiles()
  const host = new SimHost()
  const random = seeded(options.seed)
  const open = (): Pick<ReturnType<typeof createBudget>, 'charge'> =>
    options.sliding === true ? slidingBudget(limits) : createBudget(limits)
  let server = open()
  let processes = 0
  const refusedAtMs: number[] = []
  const foreignRefusals = { count: 0 }
  const spent = { firstMs: Number.NaN, lastMs: 0, items: 0, calls: 0 }
  const serverMs = () => 12_345 + time.nowMs() * serverPace
  const way = () => time.sleep(latencyMs[0] + random() * (latencyMs[1] - latencyMs[0]))

  function charge(items: number) {
    const told = server.charge('us', items, serverMs())
    spent.calls++
    if (!told.admitted) refusedAtMs.push(time.nowMs())
    else {
      if (Number.isNaN(spent.firstMs)) spent.firstMs = time.nowMs()
      spent.lastMs = time.nowMs()
      spent.items += items
    }
    const rateLimit: RateLimit = {
      limit: told.limitItems,
      remaining: told.remainingItems,
      resetSeconds: told.resetSeconds,
    }
    return {
      httpStatus: told.admitted ? 200 : 429,
      ...(options.silent === true ? {} : { rateLimit }),
      ...(told.retryAfterSeconds === undefined
        ? {}
        : { retryAfterMs: told.retryAfterSeconds * 1_000 }),
    }
  }

  function planner(plannerOptions: PlannerOptions = {}): Planner {
    processes++
    const files =
      diskMs === 0 ? sim.process() : slow(sim.process(), () => time.sleep(random() * diskMs))
    const ports = {
      clock: time.clock,
      files,
      liveness: host.liveness(processes),
      hash: sha256,
      random: seededRandom(options.seed * 1_000 + processes),
    }
    return createPlanner(ports, '/home', 'https://gateway.test', plannerOptions)
  }

  return {
    time,
    sim,
    refusedAtMs,
    foreignRefusals,
    spent,
    planner,
    async worker(
      items: number,
      {
        whole = 1,
        startMs = 0,
        planner: own = planner(),
        dieAfterCalls = Number.POSITIVE_INFINITY,
      }: {
        readonly whole?: number | undefined
        readonly startMs?: number
        readonly planner?: Planner
        readonly dieAfterCalls?: number
      } = {},
    ) {
      if (startMs > 0) await time.sleep(startMs)
      for (let [left, calls] = [items, 0]; left > 0; calls++) {
        const wanted = Math.min(left, 100)
        const reservation = await own.reserve(wanted, { min: Math.min(whole, wanted) })
        if (calls >= dieAfterCalls) return
        const fate = random()
        await way()
        if (fate < lossShare / 2) {
          await reservation.settle({})
          continue
        }
        const outcome = charge(reservation.granted)
        await way()
        if (fate < lossShare) await reservation.settle({})
        else await reservation.settle(outcome)
        if (outcome.httpStatus === 200) left -= reservation.granted
      }
    },
    async foreigner(
      calls: readonly { readonly atMs: number; readonly items: number }[],
      address: string = 'us',
    ) {
      for (const { atMs, items } of calls) {
        await time.sleep(Math.max(0, atMs - time.nowMs()))
        if (!server.charge(address, items, serverMs()).admitted && address === 'us')
          foreignRefusals.count++
      }
    },
    restart() {
      server = open()
    },
  }
}

export function slidingBudget({
  windowMs,
  perClientItems,
}: BudgetLimits): Pick<ReturnType<typeof createBudget>, 'charge'> {
  let charges: { readonly atMs: number; readonly items: number }[] = []
  return {
    charge(_client, items, nowMs) {
      charges = [...charges.filter(({ atMs }) => atMs > nowMs - windowMs), { atMs: nowMs, items }]
      const left = perClientItems - charges.reduce((sum, one) => sum + one.items, 0)
      const resetSeconds = Math.ceil(((charges[0]?.atMs ?? nowMs) + windowMs - nowMs) / 1_000)
      return {
        admitted: left >= 0,
        limitItems: perClientItems,
        remainingItems: Math.max(0, left),
        resetSeconds,
        retryAfterSeconds: left < 0 ? resetSeconds : undefined,
      }
    },
  }
}

function slow(files: Files, pause: () => Promise<void>): Files {
  const later =
    <A extends unknown[], T>(verb: (...given: A) => Promise<T>) =>
    async (...given: A) => {
      await pause()
      return verb(...given)
    }
  return {
    open: later(files.open),
    read: later(files.read),
    rename: later(files.rename),
    link: later(files.link),
    remove: later(files.remove),
    makeDir: later(files.makeDir),
    syncDir: later(files.syncDir),
    list: later(files.list),
    exists: later(files.exists),
  }
}
