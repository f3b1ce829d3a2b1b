import { describe, expect, test } from 'vitest'
import { createRounds, createTurns, yieldToEvents } from '../../src/core/io/serving/load.js'

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

test('however many wait for a turn, one has it in a round of the event loop, in order', async () => {
  const turn = createTurns()
  const had: number[] = []
  const wait = async (name: number) => {
    await turn()
    had.push(name)
    if (name < 10) await wait(name + 10)
  }
  for (const name of [1, 2, 3]) void wait(name)
  for (let before = 0; had.length < 6; before = had.length) {
    await yieldToEvents()
    expect(had.length - before).toBeLessThanOrEqual(1)
  }
  expect(had).toEqual([1, 2, 3, 11, 12, 13])
})
