/**
 * Several questions of a reporter may share one round (domain §10): it takes one signature of a
 * wallet (R8), whichever question that is made for.
 */
import { join } from 'node:path'
import type { Question } from '#gateway/view/state'
import { type BatchWorld, documentOf, errorOf, linesOf, openBatchWorld } from '#support/batch-world'
import { writeTrust } from '#support/cli'
import { sibling, testContracts } from '#support/fake-view'
import { trustIn } from '#support/fake-world'

let world: BatchWorld
let [first, second]: Question[] = []
beforeEach(async () => {
  world = await openBatchWorld()
  first = world.ask('Will the first happen?', { kind: 'oo-reporter' })
  second = sibling(first, 'the second id')
  world.front.view.put(second)
  const requesters = testContracts.requesters.map(({ address }) => ({
    address,
    kind: 'oo-reporter' as const,
  }))
  writeTrust(world.home, trustIn({ ...testContracts, requesters }))
})

const id = (question: Question | undefined) => question?.questionId ?? ''
const submit = (question: Question | undefined, ...more: string[]) =>
  world.run(['submit', id(question), '--outcome', 'p2', ...more, '--json'])
const signedFor = async (): Promise<{ journal_id: string; question_id: string }[]> =>
  JSON.parse((await world.run('journal list --json')).stdout).authorizations

test.each([
  ['another answer', 'p1'],
  ['the same answer', 'p2'],
])(
  'contract §6, R8: a second question of an open round with %s is refused, and both are named',
  async (_what, outcome) => {
    expect((await submit(first)).code).toBe(0)
    const refused = await world.run(['submit', id(second), '--outcome', outcome, '--json'])
    expect(refused.code, refused.stderr).toBe(5)
    const { code, detail, hint } = errorOf(refused)
    expect(code).toBe('authorization_open')
    expect(detail).toContain(`question ${id(first)}`)
    expect(detail).toContain(`question ${id(second)} shares its round`)
    expect(hint).toContain('proposer poll')
    expect(world.calls).toHaveLength(1)
    expect(await signedFor()).toHaveLength(1)
    // The first question goes on as before.
    expect(JSON.parse((await submit(first)).stdout)).toMatchObject({ outcome: 'replayed' })
  },
)

test('contract §6: sign and --dry-run refuse it as well, and --supersede takes the other question’s place', async () => {
  const [signed] = [
    JSON.parse((await world.run(['sign', id(first), '--outcome', 'p2', '--json'])).stdout),
  ]
  for (const argv of [['sign'], ['submit', '--dry-run'], ['sign', '--typed-data']]) {
    const [verb = '', ...flags] = argv
    const refused = await world.run([verb, id(second), '--outcome', 'p1', ...flags, '--json'])
    expect([refused.code, errorOf(refused).code], argv.join(' ')).toEqual([5, 'authorization_open'])
  }
  const replaced = await submit(second, '--supersede', signed.journal_id)
  expect(replaced.code, replaced.stderr).toBe(0)
  expect((await signedFor()).map((one) => one.question_id).sort()).toEqual(
    [id(first), id(second)].sort(),
  )
  expect((await submit(first)).code).toBe(5)
})

test('R8: typed data in the hands of a wallet outside holds the round for both questions', async () => {
  expect((await world.run(['sign', id(first), '--outcome', 'p2', '--typed-data'])).code).toBe(0)
  const refused = await submit(second)
  expect(refused.code).toBe(5)
  expect(errorOf(refused).detail).toContain(`question ${id(second)} shares its round`)
})

test.each([['one wallet'], ['far apart']])(
  'contract §6: two rows of a batch on one round (%s): the second is told so before it is signed',
  async (where) => {
    const others = Array.from({ length: where === 'far apart' ? 120 : 0 }, (_, at) =>
      world.ask(`Other ${at}?`, { kind: 'oo-reporter' }),
    )
    const rows = [first, ...others, second].map((one) => ({ identifier: id(one), outcome: 'p2' }))
    const file = world.ndjson('rows.ndjson', rows)
    const told = {
      code: 'duplicate_row',
      detail: expect.stringMatching(
        new RegExp(
          `question ${id(second)} shares its round with question ${id(first)} \\(line 1\\)`,
        ),
      ),
    }
    const preview = await world.run(`batch submit ${file} --dry-run --ndjson`)
    expect(linesOf(preview.stdout).filter((line) => line.action === 'rejected')).toMatchObject([
      { identifier: id(second), error: told },
    ])
    const ran = await world.run(`batch submit ${file} --json`)
    expect(ran.code).toBe(3)
    const { results, summary } = documentOf(ran)
    expect(results.at(-1)).toMatchObject({
      identifier: id(second),
      outcome: 'rejected',
      error: told,
    })
    expect(summary).toMatchObject({ accepted: rows.length - 1, rejected: 1 })
    expect(await signedFor()).toHaveLength(rows.length - 1)
    // Resumed, the row is told what stands in its way now.
    const again = documentOf(await world.run(`batch submit ${file} --resume --json`))
    expect(again.results.at(-1)?.error?.code).toBe('authorization_open')
  },
)

test('contract §6: batch sign and run hold to it', async () => {
  const rows = [first, second].map((one) => ({ identifier: id(one), outcome: 'p2' }))
  const file = world.ndjson('rows.ndjson', rows)
  const signed = await world.run(['batch', 'sign', file, '-o', join(world.home, 'out.ndjson')])
  expect(signed.stderr).toContain('shares its round')
  expect(await signedFor()).toHaveLength(1)
})

test('two ids of one request at the gateway: the second is a conflict that names question and candidate', async () => {
  const [signed] = [JSON.parse((await submit(first)).stdout)]
  const replaced = await submit(second, '--supersede', signed.journal_id)
  expect(replaced.code).toBe(5)
  expect(errorOf(replaced)).toMatchObject({
    code: 'candidate_conflict',
    detail: expect.stringContaining(id(first)),
  })
})
