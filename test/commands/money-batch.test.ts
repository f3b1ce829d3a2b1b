/** What a person reads about a batch's money, and the exit code of a look at it (contract §6). */
import { TransportError } from '#ports'
import { type BatchWorld, documentOf, errorOf, failed, openBatchWorld } from '#support/batch-world'
import { testBondRaw, testContracts } from '#support/fake-view'

let world: BatchWorld
beforeEach(async () => {
  world = await openBatchWorld({ wallets: 2 })
})

const bond = BigInt(testBondRaw)
const submit = ['batch', 'submit', 'rows.ndjson']
const rows = (count: number) =>
  world.intents(count).map((row, n) => ({ ...row, outcome: n === 0 ? 'p1' : 'p2' }))

test('§6: tells answer and amount of each row, and what all rows to be signed add up to', async () => {
  const [first, second, third] = rows(3)
  world.ndjson('rows.ndjson', [first ?? {}, { ...second, amount: String(bond * 2n) }, third ?? {}])
  const [token] = testContracts.tokens
  const json = JSON.parse((await world.run([...submit, '--dry-run', '--json'])).stdout)
  expect(json.results).toMatchObject([
    { action: 'would_sign', outcome: 'p1', price: '0', amount: String(bond), token },
    { action: 'would_sign', outcome: 'p2', amount: String(bond * 2n), token },
    { action: 'would_sign', outcome: 'p2', amount: String(bond), token },
  ])
  expect(json.summary).toMatchObject({ would_sign: 3 })
  expect(json.totals).toEqual([{ token, amount: String(bond * 4n) }])
  const { stdout } = await world.run([...submit, '--dry-run'])
  expect(stdout).toMatch(new RegExp(` 1  ref-0 +question 0 +No \\(p1\\) +${bond}raw\n`))
  expect(stdout).toContain('3 would sign')
  expect(stdout).toContain(`would authorize ${bond * 4n} (raw units) in all`)
})

test('§6: saved bytes are told with their answer and amount, and add nothing to what would be signed', async () => {
  world.ndjson('rows.ndjson', rows(1))
  expect((await world.run('batch sign rows.ndjson')).code).toBe(0)
  const json = JSON.parse((await world.run([...submit, '--dry-run', '--json'])).stdout)
  expect(json.results).toMatchObject([
    { action: 'saved_bytes', outcome: 'p1', amount: String(bond) },
  ])
  expect(json.totals).toEqual([])
})

test.each([
  ['an answer that is not allowed', { outcome: 'p3' }, []],
  ['an amount below the bond', { amount: '1' }, []],
  ['more than the cap', {}, ['--max-amount', '1raw']],
])('§6: %s ends as the run itself would, with the same code', async (_name, change, flags) => {
  const [row] = rows(1)
  world.ndjson('rows.ndjson', [{ ...row, ...change }])
  const looked = await world.run([...submit, ...flags, '--dry-run', '--json'])
  expect(JSON.parse(looked.stdout).results).toMatchObject([
    { action: 'rejected', error: { code: expect.any(String) } },
  ])
  const done = await world.run([...submit, ...flags, '--json'])
  expect(looked.code).toBe(3)
  expect(done.code).toBe(3)
  expect(errorOf(looked).code).toBe(errorOf(done).code)
})

test('§6: a sum above --max-spend is exit 2 here too, after the rows were shown, of which none is sent', async () => {
  world.ndjson('rows.ndjson', rows(2))
  const looked = await world.run([...submit, '--max-spend', `${bond}raw`, '--dry-run', '--json'])
  const { summary, totals } = JSON.parse(looked.stdout)
  expect([summary, totals]).toEqual([{ not_sent: 2 }, []])
  expect(errorOf(looked)).toMatchObject({ code: 'over_max_spend', exit_code: 2 })
  const fitting = await world.run([
    ...submit,
    '--max-spend',
    `${bond}raw`,
    '--fit',
    '--dry-run',
    '--json',
  ])
  expect(JSON.parse(fitting.stdout).summary).toMatchObject({ would_sign: 1, rejected: 1 })
  expect(fitting.code).toBe(3)
})

test('before the first signature the whole sum is told where it is known', async () => {
  world.ndjson('rows.ndjson', rows(2))
  const { stderr } = await world.run([...submit, '--max-spend', `${bond * 5n}raw`])
  expect(stderr).toMatch(
    new RegExp(
      `signing up to 2 proposals as 0x[0-9a-f]{40} for ${bond * 2n} \\(raw units\\) in all and sending 2`,
    ),
  )
})

test('contract §1: a row that was admitted before stays accepted where it reaches nobody now (75), and its candidate is told', async () => {
  world.ndjson('rows.ndjson', rows(2))
  const first = documentOf(await world.run([...submit, '--json']))
  world.intercept.before = async () => {
    throw new TransportError('connect', 'ECONNREFUSED', 'connection refused')
  }
  const ran = await world.run([...submit, '--json'])
  expect(ran.code).toBe(75)
  expect(errorOf(ran).detail).toContain(
    `is admitted already as ${first.results[0]?.candidate?.candidate_id}`,
  )
  expect(documentOf(ran).summary).toMatchObject({ accepted: 2, deferred: 0, unknown: 0 })
  expect(documentOf(ran).results.map(({ candidate }) => candidate?.candidate_id)).toEqual(
    first.results.map(({ candidate }) => candidate?.candidate_id),
  )
})

test.each([
  ['', []],
  [' --wait', ['--wait']],
])(
  '§6: a row whose candidate has failed is exit 7 and counted%s, not accepted and done',
  async (_name, more) => {
    world.ndjson('rows.ndjson', rows(2))
    const first = documentOf(await world.run([...submit, '--json']))
    const id = first.results[0]?.candidate?.candidate_id ?? ''
    await world.become(id, failed('bond_above_permit', false))
    expect((await world.run(`poll ${id} --timeout 5`)).code).toBe(7)
    const ran = await world.run([...submit, '--resume', '--json', ...more, '--timeout', '5'])
    expect(documentOf(ran).summary).toMatchObject({ accepted: 2, failed: 1 })
    if (more.length === 0) {
      expect(ran.code).toBe(7)
      expect(errorOf(ran)).toMatchObject({
        code: 'bond_above_permit',
        hint: expect.stringContaining(`proposer status ${id}`),
      })
    }
    const told = await world.run([...submit, '--resume', '--timeout', '5'])
    expect(told.stdout).toContain('2 rows: 2 accepted, 1 failed')
  },
)

test('a CSV row with an answer that is none is told what stands there', async () => {
  const [row] = rows(1)
  world.file('rows.csv', `identifier,outcome\n${row?.identifier},p9\n`)
  const ran = await world.run('batch submit rows.csv --json')
  expect(errorOf(ran)).toMatchObject({ exit_code: 2 })
  expect(errorOf(ran).detail).toContain('outcome "p9" is none of p1, p2, p3')
})
