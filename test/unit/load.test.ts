import { describe, expect, test } from 'vitest'
import { createRounds, createTurns } from '../../src/core/io/serving/load.js'

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

describe('turns of long work', () => {
  test('one has it at a time, in order, once the work of the one before it is done', async () => {
    const turn = createTurns()
    const had: string[] = []
    const work = async (name: string) => {
      await turn()
      had.push(`${name} begins`)
      for (let step = 0; step < 5; step += 1) await undefined
      had.push(`${name} ends`)
    }
    await Promise.all(['one', 'two', 'three'].map(work))
    await work('four')
    const names = ['one', 'two', 'three', 'four']
    expect(had).toEqual(names.flatMap((name) => [`${name} begins`, `${name} ends`]))
  })

  test('between long ones the event loop goes round', async () => {
    const turn = createTurns()
    let rounds = 0
    let isOver = false
    const count = () => {
      rounds += 1
      if (!isOver) setImmediate(count)
    }
    setImmediate(count)
    const work = async () => {
      await turn()
      const before = rounds
      for (const end = performance.now() + 6; performance.now() < end; );
      return before
    }
    const seen = await Promise.all([work(), work(), work(), work()])
    isOver = true
    expect(new Set(seen).size).toBe(4)
  })
})
