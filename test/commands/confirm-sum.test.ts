/** contract §9, Confirmation: what a person is asked before many proposals are signed. */
import { type BatchWorld, documentOf, openBatchWorld } from '#support/batch-world'
import { testBondRaw } from '#support/fake-view'

let world: BatchWorld
beforeEach(async () => {
  world = await openBatchWorld()
})

const rows = (count: number) => world.intents(count)
const submit = ['batch', 'submit', 'rows.ndjson']
const terminal = (stdin: string) => ({ interactive: true, columns: 80, stdin })
const sumOf = (count: number) => `${BigInt(testBondRaw) * BigInt(count)} (raw units)`

const oneLine = (text: string) => text.replace(/\s+/g, ' ')

describe.each([['batch', 'submit'], ['run']])('%s %s', (...verb: string[]) => {
  const argv = [...verb.filter((word) => word !== undefined), 'rows.ndjson']

  test('contract §9: on a terminal the sum is shown and asked; no is exit 2 and signs nothing', async () => {
    world.ndjson('rows.ndjson', rows(3))
    const ran = await world.run(argv, terminal('n\n'))
    expect(ran.code).toBe(2)
    expect(oneLine(ran.stderr)).toContain(
      `Sign 3 proposals as ${world.wallet.address} for ${sumOf(3)} in all, and send to http://127.0.0.1:8787? [y/N]`,
    )
    expect(ran.stderr).toContain('declined')
    // Without a node and Gamma nobody tells anything.
    expect(oneLine(ran.stderr)).toContain('findings: 0 warnings, 21 unknown')
    expect(world.calls).toEqual([])
    const listed = await world.run('journal list --json')
    expect(JSON.parse(listed.stdout)).toMatchObject({ authorizations: [] })
  })

  test('contract §9: --require-known rejects each row that nobody tells enough of', async () => {
    world.ndjson('rows.ndjson', rows(2))
    const ran = await world.run([...argv, '--yes', '--require-known', '--json'])
    const results = documentOf(ran).results as unknown as { error: { code: string } }[]
    expect([ran.code, results.map(({ error }) => error.code)]).toEqual([
      2,
      ['check_failed', 'check_failed'],
    ])
    expect(world.calls).toEqual([])
    const plan = await world.run([...argv, '--dry-run', '--require-known'])
    expect([plan.code, plan.stdout]).toEqual([2, expect.stringContaining('2 rejected')])
  })
})

test('contract §9: y goes on, and what is signed already is not asked for again', async () => {
  world.ndjson('rows.ndjson', rows(2))
  expect((await world.run(submit, terminal('y\n'))).code).toBe(0)
  // Nothing is left to be signed: nobody is asked.
  const again = await world.run(submit, terminal(''))
  expect(again.code).toBe(0)
  expect(again.stderr).not.toContain('[y/N]')
  world.ndjson('rows.ndjson', rows(3))
  const more = await world.run(submit, terminal('y\n'))
  expect(more.code).toBe(0)
  expect(more.stderr).toContain('Sign 1 proposal as')
  expect(oneLine(more.stderr)).toContain(sumOf(1))
})

test.each([['--json'], ['--ndjson'], ['--quiet'], ['--yes']])(
  'contract §9: with %s nobody is asked',
  async (flag) => {
    world.ndjson('rows.ndjson', rows(1))
    const ran = await world.run([...submit, flag], terminal(''))
    expect(ran.code).toBe(0)
    expect(ran.stderr).not.toContain('[y/N]')
  },
)

test('contract §9: without a terminal nobody is asked', async () => {
  world.ndjson('rows.ndjson', rows(1))
  expect((await world.run(submit)).code).toBe(0)
})

test('§6: with --fit the sum is of the rows that fit', async () => {
  world.ndjson('rows.ndjson', rows(3))
  const limit = `${BigInt(testBondRaw) * 2n}raw`
  const flags = ['--fit', '--max-spend', limit]
  const ran = await world.run([...submit, ...flags], terminal('y\n'))
  expect(ran.stderr).toContain('Sign 2 proposals as')
  expect(oneLine(ran.stderr)).toContain(sumOf(2))
  expect(ran.code).toBe(3)
  expect(ran.stdout).toContain('1 row rejected (over_max_spend): ref-2')
})

test('§8: counting the sum costs no second context', async () => {
  world.ndjson('rows.ndjson', rows(5))
  const asked: number[] = []
  world.intercept.before = async (path, body) => {
    if (path === '/propose/batch/signing-data')
      asked.push((JSON.parse(body) as { identifiers: string[] }).identifiers.length)
    return undefined
  }
  expect((await world.run(submit, terminal('y\n'))).code).toBe(0)
  expect(asked.reduce((sum, one) => sum + one, 0)).toBe(5)
})

test('contract §6: a fault of many rows is told once, with the first of them', async () => {
  world.ndjson(
    'rows.ndjson',
    Array.from({ length: 31 }, (_, n) => ({
      identifier: `0x${String(n + 10).padStart(64, '7')}`,
      outcome: 'p1',
      client_ref: `row-${n}`,
    })),
  )
  const ran = await world.run(submit)
  expect(ran.code).toBe(3)
  expect(ran.stdout).toContain(
    '31 rows rejected (question_not_found): row-0, row-1, row-2, row-3, row-4 and 26',
  )
  expect(ran.stdout.split('\n').length).toBeLessThan(10)
  expect(documentOf(await world.run([...submit, '--json'])).results).toHaveLength(31)
})
