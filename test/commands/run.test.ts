/** contract §9: `run`, a morning in one command. */
import { TransportError } from '#ports'
import { errorOf } from '#support/batch-world'
import type { Ran } from '#support/cli'
import { type DayWorld, openDay } from '#support/day-world'

const soon = [3_000, 3_000] as const

const fileOf = (day: DayWorld) =>
  day.rows(
    'rows.ndjson',
    day.questionIds.map((identifier, n) => ({ identifier, outcome: 'p2', client_ref: `row-${n}` })),
  )
const run = (day: DayWorld, ...argv: string[]) =>
  day.clock.drive(day.run(['run', fileOf(day), ...argv]))

interface RunDocument {
  readonly schema: string
  readonly plan: Record<string, unknown>
  readonly results: readonly { candidate: { status: string } | null }[]
  readonly summary: Record<string, number>
  readonly checks: readonly { id: string; result: string }[]
}
const documentOf = (ran: Ran) => JSON.parse(ran.stdout) as RunDocument

test('U13: --wait is refused with the reason, and no other flag is suggested for it', async () => {
  const day = await openDay({ questions: 1 })
  const ran = await day.clock.drive(day.run('run rows.ndjson --wait --json'))
  expect(ran.code).toBe(2)
  expect(ran.stderr).not.toContain('--fit')
  expect(ran.stderr).toContain('always waits')
})

test('contract §9: checks, plans, signs, sends and follows; a second run does nothing more', async () => {
  const day = await openDay({ questions: 5, lifeMs: soon, hasNode: false })
  const ran = await run(day, '--json')
  expect(ran.code, ran.stderr).toBe(0)
  const done = documentOf(ran)
  expect(Object.keys(done).slice(0, 4)).toEqual(['schema', 'plan', 'results', 'summary'])
  expect(done.schema).toBe('proposer.run/1')
  expect(done.plan).toMatchObject({ rows: 5, to_sign: 5, signed_before: 0, windows: 1 })
  expect(done.plan.totals).toHaveLength(1)
  expect(done.results.map(({ candidate }) => candidate?.status)).toEqual(
    Array.from({ length: 5 }, () => 'executed'),
  )
  expect(done.summary).toMatchObject({ rows: 5, accepted: 5, executed: 5, failed: 0 })
  const sent = day.submitted.length
  const again = await run(day, '--json')
  expect(again.code, again.stderr).toBe(0)
  expect(documentOf(again).plan).toMatchObject({ to_sign: 0, signed_before: 5 })
  expect(documentOf(again).summary).toMatchObject({ executed: 5 })
  expect(day.submitted).toHaveLength(sent)
})

test('contract §9: people read the plan on stderr, and the summary first on stdout', async () => {
  const day = await openDay({ questions: 3, lifeMs: soon, hasNode: false })
  const ran = await run(day)
  expect(ran.code, ran.stderr).toBe(0)
  expect(ran.stderr).toContain('plan        3 rows: 3 to sign, 0 signed before')
  expect(ran.stderr).toMatch(/bonds {7}\S+.* in all\n/)
  expect(ran.stderr).toMatch(/rate limit {2}9 requests in 1 window, about 0 s, until /)
  expect(ran.stdout).toMatch(/^3 rows: 3 accepted, 3 executed\nauthorized .* in all\n$/)
})

test('contract §6: a failed check keeps it from signing, and says which', async () => {
  // The chain of this world has none of the contracts' code.
  const day = await openDay({ questions: 2 })
  const ran = await run(day, '--json')
  expect(ran.code).toBe(2)
  expect(errorOf(ran)).toMatchObject({
    code: 'doctor_found_faults',
    detail: expect.stringContaining('nothing was signed: 5 checks failed (trust_on_chain)'),
  })
  expect(day.submitted).toEqual([])
})

test('§6: more than --max-spend is refused before anything is signed', async () => {
  const day = await openDay({ questions: 2, hasNode: false })
  const ran = await run(day, '--max-spend', '1raw', '--json')
  expect(ran.code).toBe(2)
  expect(errorOf(ran)).toMatchObject({ code: 'over_max_spend' })
  expect(day.submitted).toEqual([])
})

test('contract §9: the plan counts as to be signed what can be signed, and says how many rows cannot', async () => {
  const day = await openDay({ questions: 2, hasNode: false, lifeMs: soon })
  const rows = day.questionIds.map((identifier, n) => ({
    identifier,
    outcome: 'p2',
    ...(n === 0 && { amount: '1' }),
  }))
  const argv = ['run', day.rows('two.ndjson', rows), '--max-spend', '1000000000000raw', '--json']
  const ran = await day.clock.drive(day.run(argv))
  expect(documentOf(ran).plan).toMatchObject({ to_sign: 1, blocked: 1 })
  expect(documentOf(ran).summary).toMatchObject({ executed: 1, rejected: 1 })
})

test('contract §9: on a terminal each cause is told once, and the error counts', async () => {
  const day = await openDay({ questions: 2, hasNode: false, lifeMs: soon })
  const rows = day.questionIds.map((identifier) => ({ identifier, outcome: 'p2', amount: '1' }))
  const file = day.rows('low.ndjson', rows)
  const onScreen = await day.clock.drive(day.run(`run ${file}`, undefined, { columns: 80 }))
  expect(onScreen.stdout).toMatch(/2 rows rejected \(\w+\)/)
  expect(onScreen.stderr).toMatch(/^error: 2 of 2 rows did not succeed; see the causes above$/m)
  expect(onScreen.stderr.match(/^hint: .*$/gm)).toEqual(['hint: follow the hints above'])
  const piped = await day.clock.drive(day.run(`run ${file}`))
  expect(piped.stderr).toMatch(/^error: 2 of 2 rows; the first, /m)
  expect(piped.code).toBe(onScreen.code)
})

test('U3: the causes name rows by title, else slug, with the answer once signed, and by no hex', async () => {
  const day = await openDay({ questions: 3, hasNode: false, lifeMs: soon })
  const rows = day.questionIds.map((identifier, n) =>
    [identifier, 'p2', n === 2 ? '' : '1', `a-slug-${n}`, n === 1 ? '' : `Question ${n}`].join(),
  )
  const sheet = ['identifier,outcome,amount,slug,title', ...rows, ''].join('\n')
  const refusing: Parameters<DayWorld['run']>[1] = (fetch) => async (input, init) => {
    if (!String(input).endsWith('/propose/batch')) return fetch(input, init)
    throw new TransportError('exchange', 'ECONNRESET', 'cut')
  }
  const argv = ['run', day.file('sheet.csv', sheet), '--timeout', '60']
  const { stdout, stderr } = await day.clock.drive(day.run(argv, refusing, { columns: 120 }))
  expect(stdout, stderr).toMatch(/^2 rows rejected \(\w+\): Question 0, a-slug-1$/m)
  expect(stdout).toMatch(/^1 row unknown \(\w+\): Question 2 Yes \(p2\)$/m)
  const causes = stdout.split('\n').filter((line) => /^\d+ rows? (rejected|unknown) \(/.test(line))
  for (const line of causes) expect(line).not.toMatch(/0x[0-9a-f]{8}/)
})

test('R7: what stays unknown in the first pass is sent once more, byte for byte', async () => {
  const day = await openDay({ questions: 3, lifeMs: soon, hasNode: false })
  let lost = 0
  const losing: Parameters<DayWorld['run']>[1] = (fetch) => async (input, init) => {
    const answer = await fetch(input, init)
    // As many times as one sending tries.
    if (String(input).endsWith('/propose/batch') && lost++ < 8)
      throw new TransportError('exchange', 'ECONNRESET', 'cut')
    return answer
  }
  const ran = await day.clock.drive(day.run(['run', fileOf(day), '--json'], losing))
  expect(ran.code, ran.stderr).toBe(0)
  expect(documentOf(ran).summary).toMatchObject({ unknown: 0, executed: 3 })
  expect(lost).toBeGreaterThan(8)
  expect(new Set(day.submitted).size).toBe(1)
})

test('contract §6: what an earlier run left unknown is 6 until it is settled, also where a check fails', async () => {
  const day = await openDay({ questions: 2, hasNode: false, lifeMs: soon })
  const losing: Parameters<DayWorld['run']>[1] = (fetch) => async (input, init) => {
    if (!String(input).endsWith('/propose/batch')) return fetch(input, init)
    throw new TransportError('exchange', 'ECONNRESET', 'cut')
  }
  const one = day.rows('one.ndjson', [{ identifier: day.questionIds[0], outcome: 'p2' }])
  const first = day.run(['run', one, '--json', '--timeout', '60'], losing)
  expect((await day.clock.drive(first)).code).toBe(6)
  // The other row is to be signed, and the chain of this world has no contracts.
  const checked = await run(day, '--json', '--rpc-url', 'http://127.0.0.1:8545')
  expect(errorOf(checked)).toMatchObject({
    code: 'outcome_unknown',
    exit_code: 6,
    detail: expect.stringMatching(/^1 payload of this input .*trust_on_chain/),
    hint: expect.stringContaining('proposer replay --all'),
  })
  expect(day.submitted).toEqual([])
  const done = await run(day, '--json')
  expect(done.code, done.stderr).toBe(0)
  expect(documentOf(done).plan).toMatchObject({ to_sign: 1, signed_before: 1 })
  expect(documentOf(done).summary).toMatchObject({ executed: 2 })
})
