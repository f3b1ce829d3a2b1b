import { readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { budgetHeaders, createBudget } from '#gateway/front/budget'
import type { Fetch } from '#ports'
import { simTime } from '#support/budget-world'
import { type Argv, answerOf, eachHome, noFetch, type RunOptions, run, wordsOf } from '#support/cli'
import { scriptedGateway } from '#support/scripted-gateway'

const home = eachHome()

const plan = (argv: Argv, more: RunOptions = {}) =>
  run(home.path, ['plan', ...wordsOf(argv)], { fetch: noFetch, ...more })
const put = (name: string, text: string) => writeFileSync(join(home.path, name), text)
const id = (n: number) => `0x${String(n).padStart(64, '0')}`
const signed = (n: number) => ({
  identifier: id(n),
  proposer: `0x${'1'.repeat(40)}`,
  proposed_price: '0',
  max_payment: '0',
  permit: { amount: '1', nonce: '1', deadline: 1_900_000_000 },
  signature: `0x${'11'.repeat(65)}`,
})

test('contract §6: items, windows, seconds and calls, in this order, from a count; nothing is written', async () => {
  const answer = answerOf(await plan('100 --json'))
  expect(Object.keys(answer).slice(0, 5)).toEqual([
    'schema',
    'items',
    'windows',
    'seconds',
    'calls',
  ])
  expect(answer).toMatchObject({
    schema: 'proposer.plan/1',
    items: 300,
    windows: 3,
    seconds: 120,
  })
  expect(answer.calls).toEqual([
    { call: 'context', items: 100, calls: 1, first_window: 1, last_window: 1 },
    { call: 'submit', items: 100, calls: 2, first_window: 1, last_window: 2 },
    { call: 'status', items: 100, calls: 2, first_window: 2, last_window: 3 },
  ])
  expect(answer.budget).toEqual({ source: 'default', limit: 120, window_seconds: 60, spent: 0 })
  expect(readdirSync(home.path)).toEqual([])
})

test('§8 rule 3: without preparation submission and one polling pass cost twice the item count', async () => {
  expect(answerOf(await plan('60 --no-context --json'))).toMatchObject({
    items: 120,
    windows: 1,
    seconds: 0,
  })
  expect(answerOf(await plan('60 --rpc-url http://127.0.0.1:1 --json'))).toMatchObject({
    items: 120,
  })
  expect(answerOf(await plan('60 --no-context --no-wait --json'))).toMatchObject({
    items: 60,
  })
})

test('contract §6: a file is counted by its rows, and signed items need no context', async () => {
  put(
    'a.ndjson',
    `${[1, 2, 3].map((n) => JSON.stringify({ identifier: id(n), outcome: 'p1' })).join('\n')}\n`,
  )
  put('b.json', JSON.stringify([{ identifier: id(1), outcome: 'p1' }, signed(2), signed(3)]))
  put('c.csv', `identifier,outcome\n${id(1)},p1\n${id(2)},p2\n`)
  expect(answerOf(await plan('a.ndjson --json'))).toMatchObject({ items: 9, rows: 3 })
  expect(answerOf(await plan('b.json --json'))).toMatchObject({ items: 7, rows: 3 })
  expect(answerOf(await plan('c.csv --json'))).toMatchObject({ items: 6, rows: 2 })
  const stdin = readFileSync(join(home.path, 'a.ndjson'), 'utf8')
  expect(answerOf(await plan('- --json', { stdin }))).toMatchObject({ items: 9 })
})

test('contract §6: an in-process gateway charges nothing', async () => {
  expect(answerOf(await plan('5000 --local gateway.json --json'))).toMatchObject({
    windows: 1,
    seconds: 0,
    budget: { source: 'local', limit: null },
  })
})

test.each([
  [['0'], 'bad_number', 'give a number such as 1'],
  [['1000001'], 'bad_number'],
  [['12.5'], 'input_unreadable', 'or give a whole number'],
  [['-5'], 'input_unreadable'],
  [['1e3'], 'input_unreadable'],
  [['not-there.csv'], 'input_unreadable'],
  [['empty.ndjson'], 'empty_input'],
  [['empty.ndjson', '--format', 'xml'], 'usage'],
  [['5', '--gateway', 'ftp://x'], 'invalid_base_url'],
  [[], 'usage'],
])('contract §6: plan %j exits 2 with %s', async (argv, code, hint = '') => {
  put('empty.ndjson', '')
  const ran = await plan([...argv, '--json'])
  expect(ran.code).toBe(2)
  expect(JSON.parse(ran.stderr).error).toMatchObject({ code, hint: expect.stringContaining(hint) })
})

test.each([40, 80])(
  'contract §6: people read the forecast of a run, and the limit it counts by, at %i columns',
  async (columns) => {
    const { stdout } = await plan('100', { columns })
    expect(stdout.replace(/\s+/g, ' ')).toMatch(
      /^300 requests in 3 windows, about 2 min, until \d\d:\d\d:\d\dZ 120 items per 60 s \(the default; this gateway has not reported its own\) $/,
    )
    for (const line of stdout.split('\n')) expect(line.length).toBeLessThanOrEqual(columns)
    const local = await plan('5 --local gateway.json', { columns })
    expect(local.stdout.replace(/\s+/g, ' ')).toContain('an in-process gateway has no rate limit')
  },
)

/**
 * A gateway that charges eligibility calls by the real budget, and a clock whose waits take no
 * time.
 */
function setting() {
  const time = simTime()
  const budget = createBudget({ windowMs: 60_000, perClientItems: 3, globalItems: 100 })
  const gateway = scriptedGateway()
  const refused: number[] = []
  const fetch: Fetch = async (input, init) => {
    const charge = budget.charge('us', 1, time.nowMs())
    if (!charge.admitted) refused.push(time.nowMs())
    const answer = await gateway.fetch(input, init)
    return new Response(await answer.text(), {
      status: answer.status,
      headers: { 'content-type': 'application/json', ...budgetHeaders(charge) },
    })
  }
  const clock = time.clock
  // Files are real here: a wait ends as soon as it is asked for.
  const instant = {
    ...clock,
    sleep: (ms: number, signal?: AbortSignal) => time.run(time.sleep(ms, signal)),
  }
  const options = { fetch, clock: instant, env: { PROPOSER_GATEWAY: gateway.url } }
  const ask = (...flags: string[]) =>
    run(home.path, ['eligibility', `0x${'1'.repeat(40)}`, ...flags], options)
  return { time, refused, ask, options }
}

test('contract §7: commands of one home share what they spend; a wait is told on stderr, unless --quiet', async () => {
  const { time, refused, ask } = setting()
  for (let call = 0; call < 3; call++) expect((await ask()).stderr).toBe('')
  const fourth = await ask()
  expect(fourth.code).toBe(0)
  expect(fourth.stderr).toMatch(
    /^Rate limit reached \(3 items per 60 s, 3 spent\); next request in 6[01] s, at \d\d:\d\d:\d\dZ\n$/,
  )
  expect(time.nowMs()).toBeGreaterThanOrEqual(60_000)
  await ask()
  await ask()
  expect((await ask('--quiet')).stderr).toBe('')
  expect(refused).toEqual([])
})

test('contract §6: --timeout shorter than the wait exits 75, and nothing is sent', async () => {
  const { refused, ask } = setting()
  for (let call = 0; call < 3; call++) await ask()
  const ran = await ask('--timeout', '5', '--json')
  expect(ran.code).toBe(75)
  expect(JSON.parse(ran.stderr).error).toMatchObject({
    code: 'budget_spent',
    retryable: true,
    exit_code: 75,
  })
  expect(refused).toEqual([])
})

test('§8: plan knows what the gateway has told, and what of it is spent; R5: files tell no address and are 0600', async () => {
  const { ask, options } = setting()
  await ask()
  const told = answerOf(await run(home.path, 'plan 4 --no-context --no-wait --json', options))
  expect(told).toMatchObject({
    windows: 2,
    seconds: 61,
    budget: { source: 'learnt', limit: 3, spent: 1 },
  })
  const shown = await run(home.path, 'plan 4 --no-context --no-wait', {
    ...options,
    columns: 80,
  })
  expect(shown.stdout).toMatch(
    /^3 items per 60 s \(reported by the gateway\); 1 item spent already$/m,
  )
  const folder = join(home.path, 'budget', readdirSync(join(home.path, 'budget'))[0] ?? '')
  for (const name of readdirSync(folder)) {
    expect(readFileSync(join(folder, name), 'utf8')).not.toContain('127.0.0.1')
    expect(statSync(join(folder, name)).mode & 0o777).toBe(0o600)
  }
})
