import { describe, expect, test } from 'vitest'
import { createWaits, longestWaitMs } from '../../src/core/io/serving/load.js'

/**
 * Rounds of an event loop: how long each takes, and which of the calls read `after` so many
 * milliseconds of it are shed.
 */
function loop() {
  let nowMs = 1_000
  const waits = createWaits(nowMs)
  return {
    /** One round; calls are read at these times after its beginning. */
    round(lastsMs: number, readAfterMs: readonly number[] = []): readonly number[] {
      const shed = readAfterMs.filter((after) => waits.tooLong(nowMs + after))
      nowMs += lastsMs
      waits.round(nowMs)
      return shed
    },
  }
}
const quick = 50

describe('robustness §5: what is shed', () => {
  test('nothing while the loop comes round in time, however many calls there are', () => {
    const { round } = loop()
    for (let turn = 0; turn < 100; turn += 1) expect(round(quick, [0, 10, 49])).toEqual([])
  })

  test.each([1_000, 60_000, 8 * 3_600_000])(
    'nothing for one pause of %i ms, neither in it nor after it',
    (pauseMs) => {
      const { round } = loop()
      round(quick)
      expect(round(pauseMs, [pauseMs - 20, pauseMs - 10])).toEqual([])
      for (let turn = 0; turn < 10; turn += 1) expect(round(quick, [0, 10, 49])).toEqual([])
    },
  )

  test('of calls that stand in line round after round, those that have waited longer than 200 ms, and never all of them', () => {
    const { round } = loop()
    round(1_000)
    const reads = [0, 100, 200, 260, 500, 999]
    for (let turn = 0; turn < 3; turn += 1) expect(round(1_000, reads)).toEqual([260, 500, 999])
    expect(longestWaitMs).toBe(200)
  })

  test('nothing any more after one round that was in time', () => {
    const { round } = loop()
    round(1_000)
    expect(round(1_000, [900])).toEqual([900])
    round(quick)
    expect(round(1_000, [900])).toEqual([])
  })
})
