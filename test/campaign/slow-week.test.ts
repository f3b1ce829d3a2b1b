/**
 * The simulated week once more, with a node 80 ms away that loses one call in a hundred, before or
 * after it has dealt with it, and answers another one 3 s late (R3, R13–R16, R23; robustness §7.3).
 */
import { figures, firstSeed, scaled } from '#support/campaign'
import { runWeek } from '#support/week-run'

const questions = scaled(20)
const weather = { delayMs: 80, jitterMs: 40, lostShare: 0.01, lateShare: 0.01 }

test(`seed ${firstSeed}: after a week of everything over a slow and lossy node, each candidate was executed once at most, no nonce was used twice or left out, and nothing is stuck`, async () => {
  const { counts, blocks, proxy } = await runWeek(firstSeed, questions, weather)
  const { all = 0, lost = 0, late = 0 } = proxy?.requests ?? {}
  const executed = counts.get('end executed') ?? 0
  expect(executed).toBeGreaterThan(questions / 4)
  expect(Math.min(lost, late)).toBeGreaterThan(0)
  figures('a week over a slow and lossy node', {
    ...{ seed: firstSeed, questions, blocks: Number(blocks), executed },
    ...{ requests: all, lost, late },
  })
}, 3_600_000)
