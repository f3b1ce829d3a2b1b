/**
 * §8 through the front door: a thousand proposals of two processes behind one address, from their
 * rows to their execution, by the gateway's own counters and in simulated time.
 */
import { expect, test } from 'vitest'
import { argvOf } from '#support/argv'
import { documentOf } from '#support/batch-world'
import type { Ran } from '#support/cli'
import { type Call, type DayWorld, openDay } from '#support/day-world'
import { violationsText } from '#support/history/observed-history'

const itemsPerWindow = 120
const windowMs = 60_000

function twoProcesses(day: DayWorld): Promise<readonly Ran[]> {
  const half = day.questionIds.length / 2
  return Promise.all(
    [0, 1].map((n) => {
      const rows = day.questionIds
        .slice(n * half, (n + 1) * half)
        .map((identifier) => ({ identifier, outcome: 'p2' }))
      return day.run(argvOf`batch submit ${day.rows(`rows-${n}.ndjson`, rows)} --wait --json`)
    }),
  )
}

function expectAllExecuted(day: DayWorld, runs: readonly Ran[]): void {
  for (const ran of runs) expect(ran.code, ran.stderr).toBe(0)
  const results = runs.flatMap((ran) => documentOf(ran).results)
  expect(results).toHaveLength(day.questionIds.length)
  expect(new Set(results.map(({ candidate }) => candidate?.status))).toEqual(new Set(['executed']))
  expect(new Set(results.map(({ candidate }) => candidate?.candidate_id)).size).toBe(
    day.questionIds.length,
  )
  expectKept(day)
}

function expectKept({ history, questionIds }: DayWorld): void {
  const verdict = history.verdict()
  expect(violationsText(verdict)).toBe('')
  for (const rule of ['R1', 'R2', 'R4', 'R6', 'R7', 'R8'] as const)
    expect(verdict.checked[rule], rule).toBeGreaterThanOrEqual(
      rule === 'R4' ? 2 : questionIds.length,
    )
}

const itemsOf = (calls: readonly Call[]) => calls.reduce((sum, { items }) => sum + items, 0)

function byWindow(calls: readonly Call[]): readonly (readonly Call[])[] {
  const windows: { readonly startMs: number; readonly calls: Call[] }[] = []
  for (const call of calls) {
    const open = windows.at(-1)
    if (open !== undefined && call.atMs - open.startMs < windowMs) open.calls.push(call)
    else windows.push({ startMs: call.atMs, calls: [call] })
  }
  return windows.map((window) => window.calls)
}

test.each([
  // What each call has spent comes back one window after its answer, so calls are of such sizes.
  { questions: 1_000, seed: 1, callsPerWindow: 9 },
  { questions: 240, seed: 2, callsPerWindow: 12 },
])(
  '§8: two processes bring $questions proposals to execution without a 429, in the time that the budget sets',
  async ({ callsPerWindow, ...options }) => {
    const day = await openDay({ ...options, itemsPerWindow })
    const runs = await day.clock.drive(twoProcesses(day))
    expectAllExecuted(day, runs)
    expect(day.gateway.requestCounts().filter(({ status }) => status !== 200)).toEqual([])
    const items = itemsOf(day.calls)
    // One to submit and one to see it executed is the least (§8 rule 3): a context from the chain
    // costs nothing.
    expect(items / options.questions).toBeLessThanOrEqual(2.15)
    const boundMs = (Math.ceil(items / itemsPerWindow) - 1) * windowMs
    expect(day.lastAnswerMs()).toBeLessThanOrEqual(1.05 * boundMs)
    const spent = byWindow(day.calls).map(itemsOf)
    expect(Math.max(...spent), 'the budget was what held it up').toBe(itemsPerWindow)
    // Each process may end with one call of its own.
    expect(day.calls.length).toBeLessThanOrEqual(callsPerWindow * spent.length + 2)
  },
)

test.each([
  { items: 40, everyMs: windowMs },
  { items: 10, everyMs: windowMs / 4 },
  { items: 1, everyMs: windowMs / 40 },
])(
  '§8 rule 6: where others spend $items items every $everyMs ms, all are executed, and no window sees two 429s',
  async (foreign) => {
    const questions = 360
    const day = await openDay({ questions, itemsPerWindow, seed: 3 })
    const over = new AbortController()
    const others = day
      .foreigner(foreign.items, foreign.everyMs, over.signal)
      .catch((error: unknown) => error)
    const runs = await day.clock.drive(twoProcesses(day))
    over.abort('done')
    expect(await others).toBe('done')
    expectAllExecuted(day, runs)
    const windows = byWindow(day.calls)
    const refused = windows.map(
      (calls) => calls.filter(({ isForeign, status }) => !isForeign && status === 429).length,
    )
    expect(Math.max(...refused)).toBeLessThanOrEqual(1)
    // What the others leave is 80 items a window; a window or two may be lost to learning how much
    // they take.
    const boundMs = (Math.ceil((2 * questions) / (itemsPerWindow - 40)) - 1) * windowMs
    expect(day.lastAnswerMs()).toBeLessThanOrEqual(boundMs + 2 * windowMs)
    // Nobody asks in a loop: not the gateway, and not the disk for what other processes have spent.
    expect(day.calls.filter(({ isForeign }) => !isForeign).length).toBeLessThan(9 * windows.length)
    expect(day.sim.counts.get('any')).toBeLessThan(5_000)
  },
)
