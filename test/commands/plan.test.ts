import { readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { budgetHeaders, createBudget } from '../../src/core/gateway/front/budget.js'
import type { Fetch } from '../../src/core/ports.js'
import { simTime } from '../support/budget-world.js'
import { noFetch, type Ran, type RunOptions, run, temporaryHome } from '../support/cli.js'
import { scriptedGateway } from '../support/scripted-gateway.js'

let home: Awaited<ReturnType<typeof temporaryHome>>
beforeEach(async () => {
  home = await temporaryHome()
})
afterEach(() => home.remove())

const plan = (argv: string[], more: RunOptions = {}) =>
  run(home.path, ['plan', ...argv], { fetch: noFetch, ...more })
const answerOf = (ran: Ran) => {
  expect(ran.stderr).toBe('')
  expect(ran.code).toBe(0)
  return JSON.parse(ran.stdout)
}
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

describe('plan', () => {
  test('contract §6: items, windows, seconds and calls, in this order, from a count; nothing is written', async () => {
    const answer = answerOf(await plan(['100', '--json']))
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
    expect(answerOf(await plan(['60', '--no-context', '--json']))).toMatchObject({
      items: 120,
      windows: 1,
      seconds: 0,
    })
    expect(answerOf(await plan(['60', '--rpc-url', 'http://127.0.0.1:1', '--json']))).toMatchObject(
      { items: 120 },
    )
    expect(answerOf(await plan(['60', '--no-context', '--no-wait', '--json']))).toMatchObject({
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
    expect(answerOf(await plan(['a.ndjson', '--json']))).toMatchObject({ items: 9, rows: 3 })
    expect(answerOf(await plan(['b.json', '--json']))).toMatchObject({ items: 7, rows: 3 })
    expect(answerOf(await plan(['c.csv', '--json']))).toMatchObject({ items: 6, rows: 2 })
    const stdin = readFileSync(join(home.path, 'a.ndjson'), 'utf8')
    expect(answerOf(await plan(['-', '--json'], { stdin }))).toMatchObject({ items: 9 })
  })

  test('contract §6: flags override the limits, and an in-process gateway charges nothing', async () => {
    expect(
      answerOf(
        await plan([
          '100',
          '--no-context',
          '--no-wait',
          '--limit',
          '30',
          '--window',
          '10',
          '--json',
        ]),
      ),
    ).toMatchObject({
      windows: 4,
      seconds: 30,
      budget: { source: 'flags', limit: 30, window_seconds: 10 },
    })
    expect(answerOf(await plan(['5000', '--local', 'gateway.json', '--json']))).toMatchObject({
      windows: 1,
      seconds: 0,
      budget: { source: 'local', limit: null },
    })
  })

  test.each([
    [['0'], 'bad_number'],
    [['1000001'], 'bad_number'],
    [['-5'], 'bad_number'],
    [['1e3'], 'bad_number'],
    [['5', '--limit', '0'], 'bad_number'],
    [['5', '--window', 'x'], 'bad_number'],
    [['not-there.csv'], 'input_unreadable'],
    [['empty.ndjson'], 'empty_input'],
    [['empty.ndjson', '--format', 'xml'], 'usage'],
    [['5', '--gateway', 'ftp://x'], 'invalid_base_url'],
    [[], 'usage'],
  ])('contract §6: plan %j exits 2 with %s', async (argv, code) => {
    put('empty.ndjson', '')
    const ran = await plan([...argv, '--json'])
    expect(ran.code).toBe(2)
    expect(JSON.parse(ran.stderr).error.code).toBe(code)
  })

  test.each([40, 80])(
    'contract §6: people see a line a window at %i columns, and where it is many only the ends',
    async (columns) => {
      const few = await plan(['100'], { columns })
      expect(few.stdout).toMatch(/^300 items in 3 windows/)
      expect(few.stdout).toMatch(/the default/)
      expect(few.stdout.replace(/\s+/g, ' ')).toContain('2 min 0 s until the last call')
      for (const line of [
        / 0:00 {2}c+s+ {2}120$/m,
        / 1:00 {2}s+p+ {2}120$/m,
        / 2:00 {2}p+\.+ {2}60$/m,
      ])
        expect(few.stdout).toMatch(line)
      const many = await plan(['10000'], { columns })
      expect(many.stdout.split('\n').length).toBeLessThan(28)
      for (const line of (few.stdout + many.stdout).split('\n'))
        expect(line.length).toBeLessThanOrEqual(columns)
    },
  )
})

describe('the timeline of a plan', () => {
  const colour = /\u001b\[[0-9;]*m/g

  test('contract §6: on a terminal each kind of call has its colour; the text is the same without', async () => {
    const plain = await plan(['100'], { columns: 80 })
    const painted = await plan(['100'], { columns: 80, env: { NO_COLOR: '' } })
    expect(plain.stdout).not.toMatch(colour)
    expect(painted.stdout).toMatch(/\u001b\[36mc+\u001b\[39m\u001b\[34ms+\u001b\[39m/)
    // The legend says which is which; green, yellow and red are for what went well or not.
    expect(painted.stdout).toMatch(/\u001b\[36mc\u001b\[39m {2}contexts/)
    expect(painted.stdout).not.toMatch(/\u001b\[3[123]m/)
    expect(painted.stdout.replace(colour, '')).toBe(plain.stdout)
  })

  test('contract §6: in a pipe it is plain text, whatever NO_COLOR says', async () => {
    expect((await plan(['100'], { env: { NO_COLOR: '' } })).stdout).not.toMatch(colour)
  })
})

describe("the budget of the client's commands", () => {
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
    const clock = time.clock(0)
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
    const told = answerOf(
      await run(home.path, ['plan', '4', '--no-context', '--no-wait', '--json'], options),
    )
    expect(told).toMatchObject({
      windows: 2,
      seconds: 61,
      budget: { source: 'learnt', limit: 3, spent: 1 },
    })
    const shown = await run(home.path, ['plan', '4', '--no-context', '--no-wait'], {
      ...options,
      columns: 80,
    })
    expect(shown.stdout).toMatch(/^# {2}spent already {2,}1 item$/m)
    expect(shown.stdout).toMatch(/^ +0:00 {2}#{20}s{40} {2}2$/m)
    const folder = join(home.path, 'budget', readdirSync(join(home.path, 'budget'))[0] ?? '')
    for (const name of readdirSync(folder)) {
      expect(readFileSync(join(folder, name), 'utf8')).not.toContain('127.0.0.1')
      expect(statSync(join(folder, name)).mode & 0o777).toBe(0o600)
    }
  })
})
