/**
 * T1: the record log alone, through schedules of faults, kills and power cuts that a seed draws.
 */
import { figures, firstSeed, scaled } from '#support/campaign'
import { runLogSchedule } from '#support/sim/log-schedule'

/**
 * With the 1,032 scripts of the whole (simulation.test.ts: 850 drawn, 182 swept) these are the
 * 50,000 of robustness §8.
 */
const schedules = scaled(49_000)
const parts = Array.from({ length: 7 }, (_, part) => ({
  from: firstSeed + Math.floor((schedules * part) / 7),
  upTo: firstSeed + Math.floor((schedules * (part + 1)) / 7),
}))
const stackFrames = Error.stackTraceLimit

beforeAll(() => {
  // A simulated disk fails by the thousand, and nobody reads where.
  Error.stackTraceLimit = 1
})
afterAll(() => {
  Error.stackTraceLimit = stackFrames
})

describe('R1, R11, R23: faults, kills and power cuts lose nothing acknowledged and invent nothing', () => {
  let acknowledged = 0
  let ends = 0
  let damaged = 0

  test.each(parts)('from seed $from up to $upTo', async ({ from, upTo }) => {
    for (let seed = from; seed < upTo; seed++) {
      const found = await runLogSchedule(seed).catch((cause: unknown) => {
        throw new Error(`seed ${seed} (alone: CAMPAIGN_SEED=${seed} CAMPAIGN_SCALE=0.00002)`, {
          cause,
        })
      })
      acknowledged += found.acknowledged
      ends += found.ends
      damaged += found.damaged
    }
  })

  test('there was something to lose', () => {
    expect(acknowledged).toBeGreaterThan(schedules)
    figures('storage crash', {
      schedules,
      'ends of a process': ends,
      'records acknowledged': acknowledged,
      'stores damaged': damaged,
      'lost or invented': 0,
    })
  })
})
