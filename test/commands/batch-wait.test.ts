/**
 * §8: what following many candidates costs where they are executed soon after their admission, by
 * the gateway's own counters.
 */
import type { Fetch } from '#ports'
import { documentOf, errorOf } from '#support/batch-world'
import { type Call, type DayWorld, openDay } from '#support/day-world'

const itemsOf = (calls: readonly Call[]) => calls.reduce((sum, { items }) => sum + items, 0)
const looksOf = (day: DayWorld) => day.calls.filter(({ path }) => path.includes('status'))
const soon = [3_000, 3_000] as const

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

const statesOf = ({ stdout }: { readonly stdout: string }) =>
  JSON.parse(stdout).candidates.map((one: { status: string }) => one.status)

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
  const day = await openDay({ questions: 30, lifeMs: 'never' })
  const ran = await run(day, 'batch', 'submit', rowsOf(day), '--wait', '--timeout', '50')
  expect(ran.code).toBe(8)
  expect(documentOf(ran).summary).toMatchObject({ accepted: 30, executed: 0, pending: 30 })
  expect(errorOf(ran)).toMatchObject({ code: 'still_pending', retryable: true })
  // Looks in vain may take a quarter of the budget.
  expect(itemsOf(looksOf(day))).toBeLessThanOrEqual(30 + 120 / 4)
})

test('§8: with --wait 30 candidates cost about 30 items', async () => {
  const day = await openDay({ questions: 30, lifeMs: soon })
  const ran = await status(day, '--wait')
  expect(ran.code, ran.stderr).toBe(0)
  expect(statesOf(ran)).toEqual(Array(30).fill('executed'))
  expect(itemsOf(looksOf(day))).toBeLessThanOrEqual(1.15 * 30)
})

test('§4.2 rule 6: without --wait it is one pass by the batch route, a hundred a call', async () => {
  const day = await openDay({ questions: 110, lifeMs: 'never' })
  const ran = await status(day)
  expect(ran.code, ran.stderr).toBe(0)
  expect(statesOf(ran)).toEqual(Array(110).fill('received'))
  expect(itemsOf(looksOf(day))).toBe(110)
  expect(looksOf(day).every(({ path }) => path === '/propose/batch/status')).toBe(true)
})

const detailOf = (limit: number) => `this gateway takes ${limit} items a minute`

/**
 * Answers 429 in the words of another gateway, without RateLimit headers where it is `silent`.
 * `sliding`: counts the last minute, refused calls too (§8 rule 4).
 */
const limited =
  (day: DayWorld, limit: number, { silent, sliding }: { silent: boolean; sliding: boolean }) =>
  (fetch: Fetch): Fetch => {
    const charges: { atMs: number; items: number }[] = []
    const refusal = () =>
      Response.json(
        { error: { code: 'rate_limited', detail: detailOf(limit) } },
        { status: 429, headers: { 'retry-after': '60' } },
      )
    return async (input, init) => {
      const { body = '' } = init ?? {}
      const { identifiers, proposals } = JSON.parse(String(body) || '{}')
      const items = identifiers?.length ?? proposals?.length ?? 1
      const atMs = day.clock.monotonicMs()
      charges.push({ atMs, items })
      const last = charges.filter((one) => one.atMs > atMs - 60_000)
      if (sliding && last.reduce((sum, one) => sum + one.items, 0) > limit) return refusal()
      const answer = await fetch(input, init)
      if (!silent) return answer
      const get = (name: string) => (/^ratelimit/.test(name) ? null : answer.headers.get(name))
      return {
        status: answer.status,
        headers: { get },
        body: answer.status === 429 ? refusal().body : answer.body,
      }
    }
  }

test.each(
  [10, 60, 90].flatMap((limit) => [
    [limit, 'fixed windows, with RateLimit headers', { silent: false, sliding: false }] as const,
    [limit, 'fixed windows, without headers', { silent: true, sliding: false }] as const,
    [limit, 'a sliding window, without headers', { silent: true, sliding: true }] as const,
  ]),
)(
  '§8: 100 rows go through at %i items a minute, %s; each is signed once',
  async (limit, _which, kind) => {
    const itemsPerWindow = kind.sliding ? 1_000_000 : limit
    const day = await openDay({ questions: 100, itemsPerWindow, hasNode: false })
    const argv = ['batch', 'submit', rowsOf(day)]
    const ran = await day.clock.drive(day.run(argv, limited(day, limit, kind)))
    expect(ran.code, ran.stderr).toBe(0)
    expect(ran.stdout).toContain('100 rows: 100 accepted')
    const admitted = await run(day, 'journal', 'list')
    const { authorizations } = JSON.parse(admitted.stdout) as { authorizations: unknown[] }
    expect(authorizations).toHaveLength(100)
    // Its own words are shown, and none of ours say another limit.
    if (kind.silent) expect(ran.stderr).toContain(detailOf(limit))
    if (kind.silent) expect(ran.stderr).not.toContain('120 items per')
  },
)
