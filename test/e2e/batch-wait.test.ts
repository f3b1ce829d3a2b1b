/** §8: what `--wait` costs where candidates are executed soon after their admission, by the gateway's own counters, in simulated time. */
import { describe, expect, test } from 'vitest'
import { documentOf } from '../support/batch-world.js'
import { type Call, type DayWorld, openDay } from '../support/day-world.js'

const itemsOf = (calls: readonly Call[]) => calls.reduce((sum, { items }) => sum + items, 0)
const statusCalls = (day: DayWorld) => day.calls.filter(({ path }) => path.includes('status'))

const rowsOf = (day: DayWorld) => day.rows(
    'rows.ndjson',
    day.questionIds.map((identifier) => ({ identifier, outcome: 'p2' })),
  )

describe('x', () => {
  test.each([10,30,60,100])('x %i', async (questions) => {
    const day = await openDay({ questions, lifeMs: [3_000, 3_000] })
    const ran = await day.clock.drive(day.run(['batch', 'submit', rowsOf(day), '--wait', '--json']))
    expect(ran.code, ran.stderr).toBe(0)
    console.log(questions, itemsOf(day.calls) / questions, itemsOf(statusCalls(day)), statusCalls(day).length, day.lastAnswerMs())
  })
})
