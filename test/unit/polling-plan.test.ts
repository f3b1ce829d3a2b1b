import { describe, expect, test } from 'vitest'
import {
  afterResponse,
  lastLook,
  newSchedule,
  nextStep,
  notBefore,
  type Schedule,
  type Sight,
  withRateLimit,
} from '../../src/core/client/follow/schedule.js'
import { type Life, simulate } from '../support/polling-world.js'

const many = (count: number, life: (index: number) => Life) =>
  Array.from({ length: count }, (_, index) => life(index))
const fresh = (count: number, options = {}): Schedule =>
  newSchedule(Array(count).fill(0), 0, { guessMs: 4_000, ...options })
const inVain = (at: number): Sight => ({ at, done: false, reached: false, moved: false })
const ended = (at: number, lifeMs = 1_000): Sight => ({
  at,
  done: true,
  reached: true,
  moved: true,
  lifeMs,
})
const looksAt = (plan: Schedule, nowMs: number) => {
  const step = nextStep(plan, nowMs)
  return step.kind === 'look' ? step.at : []
}

describe('one candidate', () => {
  test('§8: while the budget is mostly free, no two looks are further apart than two seconds, and half of it is left', () => {
    const { looks, items } = simulate([{ ageMs: 0, lifeMs: 600_000 }])
    const [times = []] = looks
    const gaps = times.slice(1).map((timeMs, index) => timeMs - (times[index] ?? 0))
    expect(times[0]).toBe(0)
    expect(Math.max(...gaps)).toBeLessThanOrEqual(2_100)
    expect(items).toBeLessThanOrEqual(310)
  })

  test('§8: where others have spent the budget, it looks less often', () => {
    let plan = afterResponse(fresh(1), [inVain(0)], 0)
    for (let turn = 0; turn < 6; turn++) plan = afterResponse(plan, [inVain(0)], 0)
    const free = nextStep(
      withRateLimit(plan, { limit: 120, remaining: 110, resetSeconds: 55 }, 0),
      2_000,
    )
    const tight = nextStep(
      withRateLimit(plan, { limit: 120, remaining: 6, resetSeconds: 55 }, 0),
      2_000,
    )
    if (free.kind !== 'wait' || tight.kind !== 'wait') throw new Error('no waits')
    expect(tight.untilMs).toBeGreaterThan(2 * free.untilMs)
  })
})

describe('many candidates', () => {
  test('§8: none is asked for before an end can be expected', () => {
    expect(nextStep(fresh(1_000), 0)).toEqual({ kind: 'wait', untilMs: 4_000, reason: 'early' })
    expect(looksAt(fresh(1_000), 4_000).length).toBeGreaterThan(0)
  })

  test('§8: those of unknown age and those sent long ago are asked for at once', () => {
    for (const ageMs of [undefined, 100_000]) {
      expect(
        looksAt(newSchedule(Array(1_000).fill(ageMs), 0, { guessMs: 4_000 }), 0).length,
      ).toBeGreaterThan(0)
    }
  })

  test('§8: what was observed counts for more than the first guess', () => {
    let plan = newSchedule([100_000, ...Array(200).fill(0)], 0, { guessMs: 4_000 })
    expect(looksAt(plan, 0)).toEqual([0])
    plan = afterResponse(plan, [ended(0, 9_000)], 0)
    expect(nextStep(plan, 4_000)).toEqual({ kind: 'wait', untilMs: 9_000, reason: 'early' })
  })

  test('one that ended speaks for those admitted before it, and they are asked for in growing groups', () => {
    let plan = fresh(200)
    let nowMs = 4_000
    const sizes: number[] = []
    for (;;) {
      const step = nextStep(plan, nowMs)
      if (step.kind === 'done') break
      if (step.kind === 'wait') nowMs = step.untilMs
      else {
        sizes.push(step.at.length)
        plan = afterResponse(
          plan,
          step.at.map((at) => ended(at)),
          nowMs,
        )
      }
    }
    expect(sizes.reduce((sum, size) => sum + size, 0)).toBe(200)
    expect(sizes.length).toBeLessThanOrEqual(12)
  })

  test('a candidate that failed early speaks for nobody', () => {
    const plan = afterResponse(
      fresh(200),
      [{ at: 199, done: true, reached: false, moved: true }],
      1_000,
    )
    expect(nextStep(plan, 1_000)).toEqual({ kind: 'wait', untilMs: 4_000, reason: 'early' })
  })

  test('§8: a group that proves wrong is not followed by a larger one', () => {
    let plan = afterResponse(fresh(400), [ended(399)], 4_000)
    const first = looksAt(plan, 4_000)
    plan = afterResponse(plan, first.map(inVain), 4_000)
    const step = nextStep(plan, 4_000)
    expect(step.kind).toBe('wait')
    const later = step.kind === 'wait' ? step.untilMs : 0
    expect(looksAt(plan, later).length).toBeLessThanOrEqual(4)
  })

  test('§8: a thousand at 120 items a minute cost what they are, in the windows that they need', () => {
    const { items, endMs, refused } = simulate(
      many(1_000, () => ({ ageMs: 600_000, lifeMs: 5_000 })),
    )
    expect({ items, refused }).toEqual({ items: 1_000, refused: 0 })
    expect(endMs).toBeLessThan(8 * 60_000 + 2_000)
  })

  test('spec §4.2 rule 1: never more than a hundred in one call', () => {
    let plan = newSchedule(Array(1_000).fill(undefined), 0, { guessMs: 4_000 })
    for (let turn = 0; turn < 10; turn++) {
      const at = looksAt(plan, 0)
      expect(at.length).toBeLessThanOrEqual(100)
      plan = afterResponse(
        plan,
        at.map((each) => ended(each)),
        0,
      )
    }
  })
})

describe('the window', () => {
  const tight = (remaining: number) =>
    withRateLimit(
      newSchedule(Array(50).fill(undefined), 0, { guessMs: 1 }),
      { limit: 120, remaining, resetSeconds: 30 },
      0,
    )

  test('contract §2: with nothing left it waits for the reset', () => {
    expect(nextStep(tight(0), 0)).toEqual({ kind: 'wait', untilMs: 30_000, reason: 'budget' })
    expect(nextStep(tight(0), 30_000).kind).toBe('look')
    expect(lastLook(tight(0), 0)).toEqual([])
  })

  test('contract §2: no look is larger than what is left, or than the whole budget once it is told', () => {
    const plan = afterResponse(tight(3), [ended(49)], 0)
    expect(looksAt(plan, 0)).toHaveLength(3)
    const small = withRateLimit(plan, { limit: 2, remaining: 1, resetSeconds: 30 }, 0)
    expect(looksAt(small, 60_000).length).toBeLessThanOrEqual(2)
  })

  test('contract §6: an in-process gateway charges nothing, so everybody is looked at', () => {
    expect(looksAt(fresh(50, { free: true }), 0)).toHaveLength(50)
    const plan = withRateLimit(
      fresh(50, { free: true }),
      { limit: 120, remaining: 0, resetSeconds: 30 },
      0,
    )
    expect(looksAt(afterResponse(plan, [inVain(0)], 0), 600)).toHaveLength(50)
  })
})

describe('what is owed', () => {
  test('contract §4: a failure that only the single route explains is asked for at once and costs no allowance', () => {
    const plan = afterResponse(
      fresh(200),
      [{ at: 7, done: false, reached: false, moved: true, owed: true }],
      1_000,
    )
    expect(nextStep(plan, 1_000)).toEqual({ kind: 'look', at: [7] })
  })

  test('nothing is asked while it is held', () => {
    const plan = notBefore(afterResponse(fresh(1), [{ ...inVain(0), owed: true }], 0), 9_000)
    expect(nextStep(plan, 8_999)).toEqual({ kind: 'wait', untilMs: 9_000, reason: 'early' })
    expect(nextStep(plan, 9_000)).toEqual({ kind: 'look', at: [0] })
  })

  test('a last look is for a handful only', () => {
    expect(lastLook(fresh(3), 0)).toEqual([0, 1, 2])
    expect(lastLook(fresh(100), 0)).toEqual([])
  })

  test('all done is done', () => {
    expect(nextStep(afterResponse(fresh(1), [ended(0)], 0), 0)).toEqual({ kind: 'done' })
    expect(nextStep(newSchedule([], 0, { guessMs: 1 }), 0)).toEqual({ kind: 'done' })
  })
})
