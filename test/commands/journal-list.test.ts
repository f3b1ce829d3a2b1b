/** contract §9: `journal list` as a table that fits the terminal, and its filters. */
import { type BatchWorld, openBatchWorld } from '#support/batch-world'

let world: BatchWorld
beforeEach(async () => {
  world = await openBatchWorld()
  const rows = [0, 1, 2].map((n) => ({
    identifier: world.ask(`question ${n}`).questionId,
    outcome: 'p2',
  }))
  expect((await world.run(['batch', 'submit', world.ndjson('rows.ndjson', rows)])).code).toBe(0)
})

const list = async (columns: number, ...flags: string[]) =>
  (await world.run(['journal', 'list', ...flags], { columns })).stdout.trimEnd().split('\n')

test.each([40, 80])(
  'question and answer come first, the id last and whole; it fits %i columns',
  async (columns) => {
    const lines = await list(columns)
    for (const line of lines) expect(line.length).toBeLessThanOrEqual(columns)
    const text = lines.join('\n')
    expect(text).toMatch(/^QUESTION\s+ANSWER +STATE[\s\S]*JOURNAL ID$/m)
    expect(text.match(/^question \d\s+Yes \(p2\) +accepted .*[0-9a-f]{12}-\d$/gm)).toHaveLength(3)
    expect(/no room for [\s\S]*--json/.test(text)).toBe(columns === 40)
  },
)

test('--limit keeps the newest and counts the others; --state, --question and --since choose', async () => {
  const limited = await list(80, '--limit', '1')
  expect(limited[1]).toMatch(/^question 2 .* [0-9a-f]{12}-3$/)
  expect(limited[2]).toBe('and 2 older; --limit 3 shows them')
  expect(await list(80, '--state', 'failed')).toEqual([
    'nothing matches; the journal holds 3 authorizations',
  ])
  expect(await list(80, '--since', '24h')).toHaveLength(4)
  const { authorizations } = JSON.parse(
    (await world.run('journal list --json --limit 1')).stdout,
  ) as { authorizations: { question_id: string }[] }
  const [one] = authorizations
  expect(await list(80, '--question', one?.question_id ?? '')).toHaveLength(2)
  const wrong = await world.run('journal list --since yesterday')
  expect(wrong.code).toBe(2)
})

test('a worksheet is known by title and slug to list, show and poll; ids come by number', async () => {
  const title = 'Will the northern harbour of Porto be closed by the storm on Monday?'
  const rows = Array.from({ length: 12 }, (_, n) => {
    const name = n === 0 ? title : `sheet ${n}`
    return `${world.ask(name).questionId},sheet-slug-${n},${name},yes`
  })
  world.file('sheet.csv', `identifier,slug,title,outcome\n${rows.join('\n')}\n`)
  const sent = await world.run('batch submit sheet.csv --json')
  expect(sent.code, sent.stderr).toBe(0)
  const shown = JSON.parse((await world.run('journal list --json')).stdout).authorizations as {
    journal_id: string
    title: string
    slug: string
  }[]
  const own = shown.slice(3)
  expect(own.map(({ journal_id }) => Number(journal_id.split('-')[1]))).toEqual(
    own.map((_, at) => at + 1),
  )
  expect(own[0]).toMatchObject({ title, slug: 'sheet-slug-0' })
  const wide = (await list(120, '--open')).join('\n')
  expect(wide).toContain('Will the northern harbour of Porto be closed')
  for (const line of await list(80)) expect(line).not.toMatch(/^\s*0x[0-9a-f]+$/)
  const one = await world.run(['journal', 'show', own[0]?.journal_id ?? ''])
  expect(one.stdout).toMatch(/^question\s+Will the northern harbour/)
  const polled = await world.run('poll --all --timeout 1 --quiet', { columns: 120 })
  expect(polled.stdout).toMatch(/^CANDIDATE +QUESTION +ANSWER +STATE/)
  expect(polled.stdout).toMatch(/^\S{36} +Will the northern [^\n]*Yes \(p2\) /m)
})

test('poll --all names what went through another gateway, with its URL and what to type', async () => {
  const env = { PROPOSER_GATEWAY: 'http://127.0.0.1:9999' }
  const ran = await world.run('poll --all', { env })
  expect(ran.code, ran.stderr).toBe(0)
  expect(
    ran.stderr.match(/^note: not polled here: question \d, Yes \(p2\), went to /gm),
  ).toHaveLength(3)
  expect(ran.stderr).toMatch(
    /went to http:\/\/127\.0\.0\.1:8787: `proposer poll \S{36} --gateway http:\/\/127\.0\.0\.1:8787`/,
  )
  const json = await world.run('poll --all --json', { env })
  expect(JSON.parse(json.stdout)).toMatchObject({
    candidates: [],
    elsewhere: Array.from({ length: 3 }, () => ({ origin: 'http://127.0.0.1:8787' })),
  })
})
