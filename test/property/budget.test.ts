import fc from 'fast-check'
import { planBatch } from '#client/budget/window'
import { createBudget } from '#gateway/front/budget'
import { type BudgetWorld, budgetWorld, defaultLimits } from '#support/budget-world'

const { windowMs, perClientItems } = defaultLimits

/** What nobody can beat: whole windows, of which the last one needs no time. */
const boundMs = (items: number, limitItems = perClientItems) =>
  (Math.ceil(items / limitItems) - 1) * windowMs

const runAll = (world: BudgetWorld, work: readonly Promise<void>[]) =>
  world.time.run(Promise.all(work))

const process = fc.record({
  items: fc.integer({ min: 1, max: 260 }),
  startMs: fc.integer({ min: 0, max: 500 }),
})
const processes = fc.array(process, { minLength: 1, maxLength: 8 })
type Processes = readonly { items: number; startMs: number }[]
const itemsOf = (all: Processes) => all.reduce((sum, { items }) => sum + items, 0)
const workers = (world: BudgetWorld, all: Processes, whole?: number) =>
  all.map(({ items, startMs }) => world.worker(items, { startMs, whole }))

/** Beside windows the last start, and calls that learn the limit, spend the window and end. */
function expectInTime({ time }: BudgetWorld, all: Processes, latencyMs: readonly number[]) {
  const leastMs = boundMs(itemsOf(all)) + 3 * Math.max(...latencyMs)
  const startMs = Math.max(...all.map((one) => one.startMs))
  expect(time.nowMs()).toBeLessThanOrEqual(startMs + Math.max(0.05 * windowMs, 1.05 * leastMs))
}
const conditions = fc.record({
  seed: fc.integer({ min: 1, max: 1_000_000 }),
  latencyMs: fc.tuple(fc.integer({ min: 0, max: 5 }), fc.integer({ min: 5, max: 500 })),
  serverPace: fc.constantFrom(1, 0.9998, 1.0002),
  diskMs: fc.constantFrom(0, 0, 2, 8),
  sliding: fc.boolean(),
})

const latencyMs: [number, number] = [0, 5]
const quick = { seed: 1, latencyMs, serverPace: 1, diskMs: 0, sliding: true }
const started = (...all: [items: number, startMs: number][]) =>
  all.map(([items, startMs]) => ({ items, startMs }))

test('§8: alone no call draws a 429, and all is sent in 1.05 of the least time, whatever the processes, latencies and clocks', async () => {
  await fc.assert(
    fc.asyncProperty(conditions, processes, async (given, all) => {
      const world = budgetWorld(given)
      await runAll(world, workers(world, all))
      expect(world.refusedAtMs).toEqual([])
      expect(world.spent.items).toBe(itemsOf(all))
      expectInTime(world, all, given.latencyMs)
    }),
    {
      numRuns: 60,
      examples: [
        [{ ...quick, seed: 874996, sliding: false }, started([65, 75], [157, 0])],
        [quick, started([106, 0], [140, 193], [221, 193])],
      ],
    },
  )
})

test('§8: calls that cannot be split draw none either', async () => {
  await fc.assert(
    fc.asyncProperty(conditions, processes, async (given, all) => {
      const world = budgetWorld(given)
      await runAll(world, workers(world, all, 100))
      expect(world.refusedAtMs).toEqual([])
      expect(world.spent.items).toBe(itemsOf(all))
    }),
    { numRuns: 30 },
  )
})

test('§8: lost requests, lost answers and processes that die with a reservation draw none and stop nobody', async () => {
  const faults = fc.record({
    lossShare: fc.constantFrom(0.1, 0.4),
    deaths: fc.array(fc.integer({ min: 0, max: 3 }), { maxLength: 3 }),
  })
  await fc.assert(
    fc.asyncProperty(conditions, processes, faults, async (given, all, { lossShare, deaths }) => {
      const world = budgetWorld({ ...given, lossShare })
      const dying = deaths.map((dieAfterCalls) => world.worker(400, { dieAfterCalls }))
      await runAll(world, [...dying, ...workers(world, all)])
      expect(world.refusedAtMs).toEqual([])
      expect(world.spent.items).toBeGreaterThanOrEqual(itemsOf(all))
    }),
    { numRuns: 30 },
  )
})

test('§8: limits and window lengths of any size are learnt, with a window that somebody opened earlier, and a gateway that starts anew', async () => {
  // Two windows of one size have one name: an answer does not say which of them it tells of.
  const limits = fc
    .record({
      windowMs: fc.constantFrom(1_000, 2_000, 10_000, 60_000, 300_000),
      perClientItems: fc.integer({ min: 1, max: 300 }),
      globalItems: fc.integer({ min: 50, max: 300 }),
    })
    .filter(({ perClientItems, globalItems }) => perClientItems !== globalItems)
  const before = fc.record({
    items: fc.integer({ min: 1, max: 300 }),
    address: fc.constantFrom('us', 'others'),
  })
  await fc.assert(
    fc.asyncProperty(
      conditions,
      limits,
      before,
      processes,
      fc.boolean(),
      async (given, made, { items, address }, all, restarts) => {
        const world = budgetWorld({
          ...given,
          sliding: false,
          latencyMs: [0, Math.min(given.latencyMs[1], made.windowMs / 20)],
          limits: made,
        })
        const first = Math.min(items, made.perClientItems - 1, made.globalItems - 1)
        // How long a window is shows only in one that a call of ours opened; a longer one that
        // others opened, and that is hidden behind another, cannot be told from one of the
        // default length.
        const who = made.windowMs > windowMs ? 'us' : address
        if (first > 0) await world.time.run(world.foreigner([{ atMs: 0, items: first }], who))
        const restarting = async () => {
          await world.time.sleep(made.windowMs * 1.4)
          world.restart()
        }
        const startMs = 0.3 * made.windowMs
        const scale = Math.max(
          1,
          Math.ceil(itemsOf(all) / (10 * Math.min(made.perClientItems, made.globalItems))),
        )
        const work = all.map((one) => world.worker(Math.ceil(one.items / scale), { startMs }))
        // Within the second that headers round by, a new start right after a window opened cannot
        // be seen.
        const isSeen = restarts && made.windowMs >= windowMs
        await runAll(world, isSeen ? [...work, restarting()] : work)
        expect(world.refusedAtMs).toEqual([])
      },
    ),
    { numRuns: 60 },
  )
})

test('R13: a wall clock that is set, forwards or back, draws none and costs no window', async () => {
  const jumps = fc.array(
    fc.record({
      afterMs: fc.integer({ min: 100, max: 90_000 }),
      byMs: fc.oneof(
        fc.constantFrom(-3_600_000, 3_600_000),
        fc.integer({ min: -200_000, max: 200_000 }),
      ),
    }),
    {
      minLength: 1,
      maxLength: 3,
    },
  )
  await fc.assert(
    fc.asyncProperty(conditions, processes, jumps, async (given, all, set) => {
      const world = budgetWorld(given)
      const total = itemsOf(all)
      const setting = async () => {
        for (const { afterMs, byMs } of set) {
          await world.time.sleep(Math.min(afterMs, boundMs(total) / 4))
          world.time.jump(byMs)
        }
      }
      await runAll(world, [setting(), ...workers(world, all)])
      expect(world.refusedAtMs).toEqual([])
      expectInTime(world, all, given.latencyMs)
    }),
    { numRuns: 30 },
  )
})

test('§8: others behind the same address who take a third cost at most one 429 a window, and are left a share', async () => {
  const others = fc.record({
    everyMs: fc.constantFrom(1_500, 7_500, 15_000),
    offsetMs: fc.integer({ min: 0, max: 10_000 }),
  })
  await fc.assert(
    fc.asyncProperty(conditions, others, async (given, { everyMs, offsetMs }) => {
      const world = budgetWorld({ ...given, sliding: false })
      const calls = Array.from({ length: Math.floor(600_000 / everyMs) }, (_, index) => ({
        atMs: offsetMs + index * everyMs,
        items: everyMs / 1_500,
      }))
      const work = Array.from({ length: 4 }, () => world.worker(160))
      await runAll(world, [...work, world.foreigner(calls)])
      expect(world.spent.items).toBe(640)
      expect(world.refusedAtMs.length).toBeLessThanOrEqual(Math.ceil(world.spent.lastMs / windowMs))
    }),
    { numRuns: 20 },
  )
})

test('§8: a gateway that sends no RateLimit headers is kept to its documented budget', async () => {
  await fc.assert(
    fc.asyncProperty(conditions, processes, async (given, all) => {
      const world = budgetWorld({ ...given, silent: true })
      await runAll(world, workers(world, all))
      expect(world.refusedAtMs).toEqual([])
      expectInTime(world, all, given.latencyMs)
    }),
    { numRuns: 30 },
  )
})

test('§8: whatever others send, an address gets its items as long as all that others may spend leaves room for them', () => {
  const limits = { windowMs: 60_000, perClientItems: 20, globalItems: 100 }
  const flood = fc.array(
    fc.record({
      from: fc.constantFrom('a', 'b'),
      items: fc.oneof(fc.integer({ min: 1, max: 25 }), fc.integer({ min: 90, max: 5_000 })),
      gapMs: fc.oneof(fc.constant(0), fc.nat(20_000)),
    }),
    { maxLength: 200 },
  )
  fc.assert(
    fc.property(flood, fc.nat(59_000), fc.nat(200), (calls, atMs, before) => {
      const budget = createBudget(limits)
      let nowMs = 0
      for (const { from, items, gapMs } of calls.slice(0, before)) {
        nowMs += gapMs
        budget.charge(from, items, nowMs)
      }
      nowMs += atMs
      // Two others spend their own window at most twice in one of all: 2 × 2 × 20 of 100.
      for (let item = 0; item < limits.perClientItems; item += 1) {
        const { admitted, remainingItems } = budget.charge('us', 1, nowMs)
        expect({ admitted, remainingItems }).toEqual({
          admitted: true,
          remainingItems: limits.perClientItems - 1 - item,
        })
      }
      for (const { from, items, gapMs } of calls.slice(before)) {
        nowMs += gapMs
        budget.charge(from, items, nowMs)
        expect(budget.spentByAll(nowMs)).toBeLessThanOrEqual(limits.globalItems)
      }
    }),
    { numRuns: 300 },
  )
})

describe('contract §6: plan', () => {
  test('its windows hold all items, and no window but the first and the last has anything left', () => {
    const count = fc.integer({ min: 0, max: 5_000 })
    const budget = fc.record({
      limitItems: fc.integer({ min: 1, max: 500 }),
      room: fc.nat(500),
      endsInMs: fc.integer({ min: 1, max: 60_000 }),
    })
    fc.assert(
      fc.property(
        count,
        count,
        fc.boolean(),
        budget,
        (submitItems, contexts, waits, { limitItems, room, endsInMs }) => {
          const plan = planBatch(
            {
              submitItems,
              contextItems: Math.min(contexts, submitItems),
              statusItems: waits ? submitItems : 0,
            },
            { limitItems, windowMs, roomItems: Math.min(room, limitItems), endsInMs },
          )
          const sums = plan.windows.map(({ items }) => items.context + items.submit + items.status)
          expect(sums.reduce((sum, one) => sum + one, 0)).toBe(plan.items)
          expect(sums.slice(1, -1).every((sum) => sum === limitItems)).toBe(true)
          expect(plan.calls.reduce((sum, { items }) => sum + items, 0)).toBe(plan.items)
        },
      ),
    )
  })
})
