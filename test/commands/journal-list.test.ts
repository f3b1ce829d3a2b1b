/** contract §9: `journal list` as a table that fits the terminal, and its filters. */
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { type BatchWorld, openBatchWorld } from '../support/batch-world.js'

let world: BatchWorld
beforeEach(async () => {
  world = await openBatchWorld()
  const rows = [0, 1, 2].map((n) => ({
    identifier: world.ask(`question ${n}`).questionId,
    outcome: 'p2',
  }))
  expect((await world.run(['batch', 'submit', world.ndjson('rows.ndjson', rows)])).code).toBe(0)
})
afterEach(() => world.close())

const list = async (columns: number, ...flags: string[]) =>
  (await world.run(['journal', 'list', ...flags], { columns })).stdout.trimEnd().split('\n')

test.each([40, 80])('keeps id, state and answer whole, and fits %i columns', async (columns) => {
  const lines = await list(columns)
  for (const line of lines) expect(line.length).toBeLessThanOrEqual(columns)
  const text = lines.join('\n')
  expect(text).toMatch(/^JOURNAL ID\s+STATE +ANSWER +QUESTION/)
  expect(text.match(/^[0-9a-f]{12}-\d\s+accepted +\S/gm)).toHaveLength(3)
  expect(/no room for [\s\S]*--wide/.test(text)).toBe(columns === 40)
})

test('--limit keeps the newest and counts the others; --state, --question and --since choose', async () => {
  const limited = await list(80, '--limit', '1')
  expect(limited[1]).toMatch(/^[0-9a-f]{12}-3 /)
  expect(limited[2]).toBe('and 2 older; --limit 3 shows them')
  expect(await list(80, '--state', 'failed')).toEqual([
    'nothing matches; the journal holds 3 authorizations',
  ])
  expect(await list(80, '--since', '24h')).toHaveLength(4)
  const { authorizations } = JSON.parse(
    (await world.run(['journal', 'list', '--json', '--limit', '1'])).stdout,
  ) as { authorizations: { question_id: string; candidate_id: string }[] }
  const [one] = authorizations
  expect(await list(80, '--question', one?.question_id ?? '')).toHaveLength(2)
  expect((await list(40, '--wide')).join('\n')).toContain(one?.candidate_id)
  const wrong = await world.run(['journal', 'list', '--since', 'yesterday'])
  expect(wrong.code).toBe(2)
})

test('a question that was signed by its id is shown by the slug that is pinned, and found by it', async () => {
  const trustPath = join(world.home, 'trust', 'default.json')
  const trust = JSON.parse(readFileSync(trustPath, 'utf8'))
  const [newest] = JSON.parse((await world.run(['journal', 'list', '--json'])).stdout)
    .authorizations as { question_id: string }[]
  writeFileSync(
    trustPath,
    JSON.stringify({ ...trust, slugs: { 'rain-in-porto': newest?.question_id } }),
  )
  const [head, row] = await list(100, '--question', 'rain-in-porto')
  expect(head).toMatch(/QUESTION/)
  expect(row).toMatch(/ rain-in-porto /)
  expect(row).not.toContain('0x')
  expect((await list(300, '--question', 'rain-in-porto', '--wide'))[1]).toContain(
    newest?.question_id,
  )
  writeFileSync(trustPath, '{')
  const ran = await world.run(['journal', 'list'], { columns: 200 })
  expect(ran.code).toBe(0)
  expect(ran.stdout).toContain(newest?.question_id)
  expect(ran.stderr).toMatch(/^note: without slugs: .*default\.json/m)
})
