import { expect, test } from 'vitest'
import {
  type DayWorld,
  itemsIn,
  journalFiles,
  losing,
  openDay,
  untilKilled,
} from '#support/day-world'

const questions = 4
const losingFirst = losing((nth) => nth === 0)

async function openWorld(seed: number) {
  const lifeMs = [2_000, 3_000] as const
  const day = await openDay({ questions, seed, lifeMs, itemsPerWindow: 6, hasNode: false })
  const file = day.rows(
    'rows.ndjson',
    day.questionIds.map((identifier, n) => ({ identifier, outcome: 'p2', client_ref: `ref ${n}` })),
  )
  return { day, argv: ['run', file, '--json', '--max-spend', '3000000000raw'] }
}

async function entriesOf(day: DayWorld) {
  const { stdout } = await day.clock.drive(day.run(['journal', 'list', '--json']))
  return (JSON.parse(stdout) as { authorizations: { question_id: string }[] }).authorizations
}

test.each(['kill-before', 'kill-after'] as const)(
  'R23: killed by %s wherever it writes to its journal, it is run again and signs nothing twice',
  async (does) => {
    const whole = await openWorld(1)
    whole.day.sim.faults = [
      { verb: 'any', nth: Number.POSITIVE_INFINITY, path: journalFiles, does },
    ]
    expect((await untilKilled(whole.day, whole.argv, losingFirst))?.code).toBe(0)
    const calls = whole.day.sim.trace.filter((line) => journalFiles.test(line)).length
    expect(calls).toBeGreaterThan(20)
    for (let nth = 1; nth <= calls; nth += 2) {
      const { day, argv } = await openWorld(nth)
      day.sim.faults = [{ verb: 'any', nth, path: journalFiles, does }]
      await untilKilled(day, argv, losingFirst)
      if (nth % 3 === 0) {
        day.sim.faults = [{ verb: 'any', nth: 1 + (nth % 7), path: journalFiles, does }]
        await untilKilled(day, argv, losingFirst)
      }
      const ran = await untilKilled(day, argv)
      expect(ran?.code, `call ${nth}: ${ran?.stderr}`).toBe(0)
      const { summary } = JSON.parse(ran?.stdout ?? '') as { summary: Record<string, number> }
      expect(summary, `call ${nth}`).toMatchObject({ rows: questions, executed: questions })
      const entries = await entriesOf(day)
      expect(entries.map(({ question_id }) => question_id).sort(), 'R8').toEqual(
        [...day.questionIds].sort(),
      )
      const signatures = new Set(itemsIn(day.submitted).map(({ signature }) => signature))
      expect(signatures.size, 'R7: nothing that was sent is signed again').toBe(questions)
    }
  },
)
