import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { type Life, simulate } from '../support/polling-world.js'
import { seeded } from '../support/sim-files.js'

/**
 * How a gateway works candidates off: all at once, one after the other, the other way round, or
 * each for itself.
 */
const orders = {
  together: () => 0.5,
  inOrder: (share: number) => share,
  alone: (_: number, random: () => number) => random(),
  mixed: (share: number, random: () => number) => (share + random()) / 2,
} as const

const crowd = fc
  .record({
    seed: fc.nat(),
    order: fc.constantFrom(...(Object.keys(orders) as (keyof typeof orders)[])),
    count: fc.integer({ min: 100, max: 1_000 }),
    leastMs: fc.integer({ min: 300, max: 4_000 }),
    spreadMs: fc.integer({ min: 0, max: 4_000 }),
    failShare: fc.constantFrom(0, 0.05),
    known: fc.boolean(),
    limitItems: fc.constantFrom(120, 200, 1_000),
    latencyMs: fc.integer({ min: 1, max: 300 }),
  })
  .map(({ seed, order, count, leastMs, spreadMs, failShare, known, ...options }) => {
    const random = seeded(seed)
    const lives = Array.from({ length: count }, (_, index): Life => {
      const lifeMs = leastMs + spreadMs * orders[order](index / count, random)
      return { ageMs: known ? 0 : undefined, trueAgeMs: 0, lifeMs, fails: random() < failShare }
    })
    return { lives, options, order }
  })

/** Any ages, any lives, some without an end. */
const anything = fc.record({
  lives: fc.array(
    fc.record({
      ageMs: fc.option(fc.integer({ min: 0, max: 200_000 }), { nil: undefined }),
      lifeMs: fc.oneof(fc.integer({ min: 0, max: 100_000 }), fc.constant(Number.POSITIVE_INFINITY)),
      fails: fc.boolean(),
    }),
    { minLength: 1, maxLength: 120 },
  ),
  limitItems: fc.integer({ min: 1, max: 300 }),
  latencyMs: fc.integer({ min: 1, max: 2_000 }),
  isSilent: fc.boolean(),
})
const untilMs = 1_800_000

describe('polling plans under a simulated clock', () => {
  test('§8: many candidates that end within seconds cost at most 1.15 items each', () => {
    fc.assert(
      fc.property(crowd, ({ lives, options }) => {
        const { items, seenMs, refused } = simulate(lives, options)
        expect(seenMs.every((timeMs) => timeMs !== undefined)).toBe(true)
        expect(refused).toBe(0)
        expect(items / lives.length).toBeLessThanOrEqual(1.15)
      }),
      { numRuns: 150 },
    )
  })

  test('§8: what has ended is never asked for again', () => {
    fc.assert(
      fc.property(anything, ({ lives, ...options }) => {
        const { looks, seenMs } = simulate(lives, { ...options, untilMs })
        for (const [at, times] of looks.entries()) {
          const endedMs = seenMs[at]
          if (endedMs !== undefined) expect(times.at(-1)).toBe(endedMs)
        }
      }),
      { numRuns: 60 },
    )
  })

  test('no starvation: everyone who has ended is seen, and everyone who has not is looked at again and again', () => {
    fc.assert(
      fc.property(anything, ({ lives, ...options }) => {
        const { looks, seenMs } = simulate(lives, { ...options, untilMs })
        // At a quarter of the budget a round over all takes so long; twice that leaves room for the
        // windows' ends.
        const roundMs = (lives.length * 4 * 60_000) / Math.min(240, options.limitItems)
        const patienceMs = 2 * roundMs + 200_000
        for (const [at, { lifeMs, ageMs = 0 }] of lives.entries()) {
          const times = looks[at] ?? []
          const lastMs = seenMs[at] ?? untilMs
          if (lifeMs - ageMs + patienceMs < untilMs) expect(seenMs[at]).toBeDefined()
          const marks = [Math.max(0, Math.min(30_000, 30_000 - ageMs)), ...times, lastMs]
          for (const [index, mark] of marks.entries())
            expect(mark - (marks[index - 1] ?? 0)).toBeLessThanOrEqual(patienceMs)
        }
      }),
      { numRuns: 60 },
    )
  })

  test('§8: looks in vain take no more than a quarter of the budget, and no call is refused', () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 1, max: 400 }),
        fc.integer({ min: 20, max: 400 }),
        fc.integer({ min: 1, max: 500 }),
        (count, limitItems, latencyMs) => {
          const forever = Array.from({ length: count }, () => ({
            ageMs: undefined,
            lifeMs: Number.POSITIVE_INFINITY,
          }))
          const { items, refused, endMs } = simulate(forever, {
            limitItems,
            latencyMs,
            untilMs: 600_000,
          })
          expect(refused).toBe(0)
          const burst = Math.max(6, count / 25)
          expect(items).toBeLessThanOrEqual(burst + (endMs / 60_000) * (limitItems / 4) + 1)
          expect(items).toBeGreaterThan(0)
        },
      ),
      { numRuns: 60 },
    )
  })
})
