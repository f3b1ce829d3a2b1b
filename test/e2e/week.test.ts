/**
 * A week in an hour (and in less): questions of all kinds, disputes, resets, pauses, rivals, poor
 * and strange wallets, and a real gateway in the middle of it. `WEEK_SEED` and `WEEK_QUESTIONS` run
 * another one.
 */
import { runWeek } from '#support/week-run'

const seed = Number(process.env.WEEK_SEED ?? 1)
const questions = Number(process.env.WEEK_QUESTIONS ?? 24)

test('contract §5, R3, R13–R16: after a week of everything the chain holds what the gateway says, and nothing is stuck', async () => {
  const { counts, blocks, simulatedSeconds } = await runWeek(seed, questions)
  if (process.env.WEEK_REPORT !== undefined)
    process.stdout.write(
      `${JSON.stringify({ seed, questions, blocks: Number(blocks), simulatedSeconds: Number(simulatedSeconds), ...Object.fromEntries([...counts].sort()) }, null, 1)}\n`,
    )
  expect(simulatedSeconds).toBeGreaterThanOrEqual(7n * 86_400n)
  expect(counts.get('end executed')).toBeGreaterThan(questions / 4)
}, 3_600_000)
