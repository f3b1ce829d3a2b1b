/**
 * §8: what following many candidates costs where they are executed soon after their admission, by
 * the gateway's own counters.
 */
import { describe, expect, test } from 'vitest'
import { documentOf, errorOf } from '../support/batch-world.js'
import { type Call, type DayWorld, openDay } from '../support/day-world.js'

const itemsOf = (calls: readonly Call[]) => calls.reduce((sum, { items }) => sum + items, 0)
const looksOf = (day: DayWorld) => day.calls.filter(({ path }) => path.includes('status'))
const soon = [3_000, 3_000] as const
const never = [1e9, 1e9] as const

const rowsOf = (day: DayWorld) =>
  day.rows(
    'rows.ndjson',
    day.questionIds.map((identifier) => ({ identifier, outcome: 'p2' })),
  )

const run = (day: DayWorld, ...argv: string[]) => day.clock.drive(day.run([...argv, '--json']))

/**
 * Submits a row for every question, then runs `batch status` for the candidates' ids: in one go, so
 * that their time goes on.
 */
const status = (day: DayWorld, ...flags: string[]) =>
  day.clock.drive(
    (async () => {
      const { results } = documentOf(await day.run(['batch', 'submit', rowsOf(day), '--json']))
      const ids = results.map(({ candidate }) => ({ candidate_id: candidate?.candidate_id }))
      return day.run(['batch', 'status', day.rows('ids.ndjson', ids), ...flags, '--json'])
    })(),
  )

describe('`batch submit --wait`', () => {
  test.each(['chain', 'file'])(
    '§8 rule 3: 60 proposals with contexts of a %s cost at most 2.15 items each, within a window',
    async (source) => {
      const day = await openDay({ questions: 60, lifeMs: soon })
      const rows = rowsOf(day)
      const contexts: string[] = []
      if (source === 'file') {
        const { stdout } = await run(day, 'batch', 'context', rows)
        contexts.push('--context', day.rows('contexts.json', [JSON.parse(stdout)]))
      }
      const ran = await run(day, 'batch', 'submit', rows, '--wait', ...contexts)
      expect(ran.code, ran.stderr).toBe(0)
      const { results, summary } = documentOf(ran)
      expect(results.map(({ candidate }) => candidate?.status)).toEqual(
        Array.from({ length: 60 }, () => 'executed'),
      )
      expect(results.map(({ identifier }) => identifier)).toEqual(day.questionIds)
      expect(summary).toMatchObject({ rows: 60, accepted: 60, executed: 60, failed: 0, pending: 0 })
      expect(itemsOf(day.calls) / 60).toBeLessThanOrEqual(2.15)
      // The budget of one window is enough, so that nobody waits for another.
      expect(day.lastAnswerMs()).toBeLessThan(60_000)
    },
  )

  test('contract §6: what is on its way when the time ran out is 8, and was not asked for over and over', async () => {
    const day = await openDay({ questions: 30, lifeMs: never })
    const ran = await run(day, 'batch', 'submit', rowsOf(day), '--wait', '--timeout', '50')
    expect(ran.code).toBe(8)
    expect(documentOf(ran).summary).toMatchObject({ accepted: 30, executed: 0, pending: 30 })
    expect(errorOf(ran)).toMatchObject({ code: 'still_pending', retryable: true })
    // Looks in vain may take a quarter of the budget.
    expect(itemsOf(looksOf(day))).toBeLessThanOrEqual(30 + 120 / 4)
  })
})

describe('`batch status`', () => {
  test('§8: with --wait 30 candidates cost about 30 items', async () => {
    const day = await openDay({ questions: 30, lifeMs: soon })
    const ran = await status(day, '--wait')
    expect(ran.code, ran.stderr).toBe(0)
    expect(JSON.parse(ran.stdout).summary).toEqual({ candidates: 30, executed: 30 })
    expect(itemsOf(looksOf(day))).toBeLessThanOrEqual(1.15 * 30)
  })

  test('§4.2 rule 6: without --wait it is one pass by the batch route, a hundred a call', async () => {
    const day = await openDay({ questions: 110, lifeMs: never })
    const ran = await status(day)
    expect(ran.code, ran.stderr).toBe(0)
    expect(JSON.parse(ran.stdout).summary).toEqual({ candidates: 110, received: 110 })
    expect(itemsOf(looksOf(day))).toBe(110)
    expect(looksOf(day).every(({ path }) => path === '/propose/batch/status')).toBe(true)
  })
})
