import { describe, expect, test } from 'vitest'
import { createRounds } from '../../src/core/io/serving/load.js'

describe('robustness §5: how long a call may have waited unread', () => {
  test('since the end of the round before, as long as the loop was busy', () => {
    const rounds = createRounds(1_000, 0)
    rounds.round(1_100, 0)
    expect(rounds.busyMs(1_100, 0)).toBe(0)
    expect(rounds.busyMs(1_450, 0)).toBe(350)
    rounds.round(1_450, 0)
    expect(rounds.busyMs(1_460, 0)).toBe(10)
  })

  test('not while the loop slept: it sleeps only where nothing is to be read', () => {
    const rounds = createRounds(1_000, 500)
    expect(rounds.busyMs(61_000, 60_490)).toBe(10)
    rounds.round(61_000, 60_490)
    expect(rounds.busyMs(61_200, 60_690)).toBe(0)
    // A clock of sleep that is ahead of the other by its own grain.
    expect(rounds.busyMs(61_200, 60_691)).toBe(0)
  })
})
