/**
 * `batch sign` and `batch submit`: nonces across rows (R6), what --resume sends again, and what the
 * errors say to do next.
 */
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { TransportError } from '#ports'
import { InterruptedError } from '#protocol/errors'
import {
  type BatchWorld,
  documentOf,
  errorOf,
  failed,
  linesOf,
  openBatchWorld,
} from '#support/batch-world'
import { advanced, signedItem, testBondRaw } from '#support/fake-view'
import { html } from '#support/status-gateway'

let world: BatchWorld
beforeEach(async () => {
  world = await openBatchWorld({ wallets: 2 })
})

const submit = ['batch', 'submit', 'rows.ndjson', '--json']

test('R6: two rows of one wallet with the same nonce are exit 2 with both lines, before anything is signed', async () => {
  const [one, two, three] = world.intents(3)
  world.ndjson('rows.ndjson', [{ ...one, nonce: '7' }, { ...two }, { ...three, nonce: 7 }])
  for (const verb of ['sign', 'submit']) {
    const ran = await world.run(['batch', verb, 'rows.ndjson', '--json'])
    expect(errorOf(ran)).toMatchObject({
      code: 'nonce_reserved',
      exit_code: 2,
      detail: expect.stringContaining('lines 1 and 3'),
    })
  }
  expect(await world.journal()).toEqual([])
  expect(world.calls).toEqual([])
})

test('R6: a signed item is held against intents and against other items; another wallet may use the number', async () => {
  const [mine, other] = world.front.wallets as [never, never]
  const questions = [0, 1, 2].map((n) => world.ask(`item ${n}`)) as [never, never, never]
  const [first, second] = [
    await signedItem(mine, questions[0]),
    await signedItem(mine, questions[1]),
  ]
  const row = { identifier: (questions[2] as { questionId: string }).questionId, outcome: 'p2' }
  world.ndjson('rows.ndjson', [first, { ...row, nonce: first.permit.nonce }])
  expect(errorOf(await world.run(submit))).toMatchObject({
    code: 'nonce_reserved',
    detail: expect.stringContaining('lines 1 and 2'),
  })
  world.ndjson('rows.ndjson', [
    first,
    { ...second, permit: { ...second.permit, nonce: first.permit.nonce } },
  ])
  expect(errorOf(await world.run(submit))).toMatchObject({ code: 'nonce_reserved', exit_code: 2 })
  expect(world.calls).toEqual([])
  const foreign = await signedItem(other, questions[0])
  world.ndjson('rows.ndjson', [foreign, { ...row, nonce: foreign.permit.nonce }])
  expect((await world.run(submit)).code).toBe(0)
})

test('R6: a nonce that the journal holds for another question is exit 2 with the line and the holder; for the same intent it is its own', async () => {
  const [one, two] = world.intents(2)
  world.ndjson('rows.ndjson', [{ ...one, nonce: '9' }])
  expect((await world.run(submit)).code).toBe(0)
  expect((await world.run(submit)).code).toBe(0)
  const [held] = await world.journal()
  world.ndjson('rows.ndjson', [{ ...two }, { ...one, nonce: '9', client_ref: 'x' }])
  expect((await world.run(submit)).code).toBe(0)
  const [, three] = [0, 1].map((n) => ({
    identifier: world.ask(`more ${n}`).questionId,
    outcome: 'p1',
  }))
  world.ndjson('rows.ndjson', [{ ...three, nonce: '9' }])
  const ran = await world.run(submit)
  expect(errorOf(ran)).toMatchObject({
    code: 'nonce_reserved',
    exit_code: 2,
    detail: expect.stringContaining(held?.journal_id ?? 'none'),
  })
  expect(errorOf(ran).detail).toContain('line 1')
  expect(await world.journal()).toHaveLength(2)
})

test("contract §1: what failed retryably is open: it is sent again with the same bytes, once a run, and its status is the answer's", async () => {
  world.ndjson('rows.ndjson', world.intents(3))
  const ids = documentOf(await world.run(submit)).results.map(
    ({ candidate }) => candidate?.candidate_id ?? '',
  )
  await world.become(ids[0] ?? '', failed('insufficient_allowance', true))
  await world.execute(ids[1])
  world.file('ids.txt', ids.join('\n'))
  await world.run('batch status ids.txt --json')
  const before = world.calls.length
  const ran = await world.run([...submit, '--resume'])
  expect(ran.code).toBe(0)
  expect(world.calls.slice(before).map(({ items }) => items.length)).toEqual([1])
  expect(world.calls[before]?.items[0]).toEqual(world.calls[0]?.items[0])
  expect(
    documentOf(ran).results.map(({ outcome, candidate }) => [
      outcome,
      candidate?.candidate_id,
      candidate?.status,
    ]),
  ).toEqual([
    ['replayed', ids[0], 'received'],
    ['accepted', ids[1], 'executed'],
    ['accepted', ids[2], 'received'],
  ])
  // Only the first was asked about by this run.
  expect(
    documentOf(ran).results.map(({ candidate }) => (candidate as { as_of?: string } | null)?.as_of),
  ).toEqual(['answer', 'journal', 'journal'])
})

test('contract §5: `insufficient_allowance` of --wait says that the same bytes may be sent again', async () => {
  world.ndjson('rows.ndjson', world.intents(1))
  world.intercept.before = async (path) => {
    if (path.includes('/status'))
      for (const { id } of world.front.ledger.active())
        await world.become(id, failed('insufficient_allowance', true))
    return undefined
  }
  const ran = await world.run([...submit, '--wait'])
  expect(errorOf(ran)).toMatchObject({
    code: 'insufficient_allowance',
    exit_code: 7,
    retryable: true,
  })
  world.file('ids.txt', documentOf(ran).results[0]?.candidate?.candidate_id ?? '')
  expect(errorOf(await world.run('batch status ids.txt --json'))).toMatchObject({
    exit_code: 7,
    retryable: true,
  })
})

test("contract §6: the hint can be pasted: names are quoted and the flags of this call are repeated, but no URL's path (R5)", async () => {
  world.ndjson("it's rows.ndjson", world.intents(1))
  world.intercept.before = async (path) => (path === '/propose/batch' ? html() : undefined)
  const flags = ['--gateway', 'http://127.0.0.1:8787', '--home', world.home, '--profile', 'default']
  const ran = await world.run([
    'batch',
    'submit',
    "it's rows.ndjson",
    '--json',
    '--max-amount',
    '5000000000raw',
    ...flags,
  ])
  const command = `proposer batch submit 'it'\\''s rows.ndjson' --resume --max-amount 5000000000raw --gateway http://127.0.0.1:8787 --home ${world.home} --profile default`
  expect(errorOf(ran).hint).toContain(`\`${command}\``)
  const secret = await world.run([
    'batch',
    'submit',
    "it's rows.ndjson",
    '--json',
    '--gateway',
    'http://127.0.0.1:8787/secret/',
  ])
  expect(secret.code).toBe(6)
  expect(secret.stderr).not.toContain('secret')
  expect(errorOf(secret).hint).toContain('--gateway <url>')
})

test('contract §6: a batch offers no --supersede of its own, but the command that has one', async () => {
  const [row] = world.intents(1)
  await world.run(['sign', row?.identifier ?? '', '--outcome', 'p1', '--quiet'])
  world.ndjson('rows.ndjson', [row ?? {}])
  const { hint } = errorOf(await world.run(submit))
  const [held] = await world.journal()
  expect(hint).toContain(
    `\`proposer submit ${row?.identifier} --outcome p2 --supersede ${held?.journal_id}\``,
  )
  expect(String(hint).match(/--supersede/g)).toHaveLength(1)
})

test('--fit is not offered to who has given it', async () => {
  world.ndjson('rows.ndjson', world.intents(2))
  const most = ['--max-spend', `${testBondRaw}raw`]
  expect(
    errorOf(await world.run(['batch', 'sign', 'rows.ndjson', '--json', ...most])).hint,
  ).toContain('--fit')
  expect(
    errorOf(await world.run(['batch', 'sign', 'rows.ndjson', '--json', ...most, '--fit'])).hint,
  ).not.toContain('--fit')
})

test('contract §6: a gateway that is not there is named, and nobody talks of saved bytes where nothing was signed', async () => {
  world.ndjson('rows.ndjson', world.intents(2))
  const fetch = async () => {
    throw new TransportError(
      'connect',
      'ECONNREFUSED',
      'no connection to the gateway (ECONNREFUSED)',
    )
  }
  // The time runs out while the second try is waited for.
  const later = new AbortController()
  let waits = 0
  const sleep = async (ms: number, signal?: AbortSignal) => {
    const over = (one?: AbortSignal) =>
      new Promise<void>((_, reject) =>
        one?.addEventListener('abort', () => reject(one.reason), { once: true }),
      )
    if (ms === 3_000_000)
      return Promise.race([over(signal), over(later.signal).catch(() => undefined)])
    if (++waits < 2) return
    later.abort()
    await over(signal)
  }
  for (const verb of ['submit', 'sign']) {
    const ran = await world.run(
      ['batch', verb, 'rows.ndjson', '--json', ...(verb === 'submit' ? ['--timeout', '3000'] : [])],
      {
        fetch,
        clock: verb === 'submit' ? { ...world.clock, sleep } : world.clock,
      },
    )
    expect(ran.code).toBe(75)
    const { detail, hint } = errorOf(ran)
    expect(detail).toContain(
      verb === 'submit'
        ? 'no connection to the gateway (ECONNREFUSED)'
        : 'gateway 127.0.0.1:8787: connection refused (ECONNREFUSED)',
    )
    expect(hint).not.toContain('saved bytes')
    if (verb === 'submit') expect(hint).toContain('proposer batch submit rows.ndjson --resume')
  }
  expect(await world.journal()).toEqual([])
})

test('an error in a JSON array names the element, not a line that all share', async () => {
  const [one, two] = world.intents(2)
  world.file('rows.json', JSON.stringify([one, two, one]))
  const twice = await world.run('batch submit rows.json --json')
  expect(errorOf(twice)).toMatchObject({
    code: 'duplicate_row',
    detail: expect.stringContaining('rows 1 and 3'),
  })
  world.file('rows.json', JSON.stringify([one, { ...two, outcome: 'p7' }]))
  expect(errorOf(await world.run('batch submit rows.json --json')).detail).toContain(
    'rows.json, row 2: outcome',
  )
  world.file('rows.json', JSON.stringify([one, { ...two, amount: '1' }]))
  expect(errorOf(await world.run('batch submit rows.json --json')).detail).toContain('row 2: ')
  world.file('ids.json', JSON.stringify([one?.identifier, 'Not An Id']))
  expect(errorOf(await world.run('batch context ids.json --json')).detail).toContain('row 2: ')
})

test.each(['--json', '--ndjson'])(
  'what `batch sign %s` printed is sent by `batch submit`: the payloads of its results',
  async (mode) => {
    const rows = world.intents(3)
    world.ndjson('rows.ndjson', [rows[0] ?? {}, { ...rows[1], amount: '1' }, rows[2] ?? {}])
    const { stdout } = await world.run(['batch', 'sign', 'rows.ndjson', mode])
    world.file('signed', stdout)
    const sent = await world.run('batch submit signed --json')
    expect(sent.code, sent.stderr).toBe(0)
    expect(
      documentOf(sent).results.map(({ client_ref, outcome }) => [client_ref, outcome]),
    ).toEqual([
      ['ref-0', 'accepted'],
      ['ref-2', 'accepted'],
    ])
    expect(await world.journal()).toHaveLength(2)
    world.file('results', sent.stdout)
    const wrong = await world.run('batch submit results --json')
    expect(errorOf(wrong)).toMatchObject({
      code: 'invalid_row',
      exit_code: 2,
      hint: expect.stringContaining('batch sign'),
    })
  },
)

test('R6: an item of another question, or with other fields, is refused as `submit` refuses it, and the others go on', async () => {
  const rows = world.intents(4)
  world.ndjson('rows.ndjson', rows.slice(0, 2))
  const [first, second] = linesOf((await world.run('batch sign rows.ndjson')).stdout) as [
    Record<string, unknown>,
    { permit: { amount: string } },
  ]
  const { client_ref: _reference, ...item } = first
  world.ndjson('rows.ndjson', [
    { ...item, identifier: rows[2]?.identifier },
    {
      ...second,
      permit: { ...second.permit, amount: String(BigInt(second.permit.amount) + 1n) },
    },
    rows[3] ?? {},
  ])
  const { results } = documentOf(await world.run(submit))
  expect(results.map(({ outcome, error }) => error?.code ?? outcome)).toEqual([
    'payload_of_other_question',
    'payload_changed',
    'accepted',
  ])
  expect(world.calls.flatMap(({ items }) => items)).toHaveLength(1)
})

test('R8: typed data given out for the question stands in the way of an item', async () => {
  const question = world.ask('issued')
  await world.run(
    `sign ${question.questionId} --outcome p1 --typed-data --proposer ${world.wallet.address} --quiet`,
  )
  world.ndjson('rows.ndjson', [await signedItem(world.wallet, question)])
  expect(documentOf(await world.run(submit)).results).toMatchObject([
    { outcome: 'rejected', error: { code: 'authorization_open' } },
  ])
  expect(world.calls).toEqual([])
})

test('robustness §6: records of a batch tell what no chain has confirmed', async () => {
  world.ndjson('rows.ndjson', world.intents(1))
  await world.run('batch sign rows.ndjson -o signed.ndjson')
  expect(readFileSync(join(world.home, 'signed.ndjson'), 'utf8')).toContain('signature')
  const [run = ''] = readdirSync(join(world.home, 'journal')).filter((name) => name !== 'lock')
  const [log = ''] = readdirSync(join(world.home, 'journal', run)).filter((name) =>
    name.startsWith('log-'),
  )
  const records = linesOf(readFileSync(join(world.home, 'journal', run, log), 'utf8'))
  const signed = records.find(({ k }) => k === 'signed') as
    | { d: { unchecked?: string[] } }
    | undefined
  expect(signed?.d.unchecked).toEqual([
    ...['round', 'bond', 'nonce', 'balance', 'allowance', 'implementations'],
  ])
})

/** Answers so to whoever asks for contexts of rows behind the first hundred. */
const afterHundred = (rows: ReturnType<BatchWorld['intents']>, answer: () => Response) => {
  const later = new Set(rows.slice(100).map(({ identifier }) => identifier))
  world.intercept.before = async (path, body) => {
    if (!path.endsWith('/signing-data')) return undefined
    const { identifiers } = JSON.parse(body) as { identifiers: `0x${string}`[] }
    return identifiers.some((one) => later.has(one)) ? answer() : undefined
  }
}
const busy = () =>
  Response.json(
    { error: { code: 'unavailable', detail: 'later' } },
    {
      status: 503,
    },
  )

test('R6, R8: a gateway that stops answering costs none of the signatures that its contexts were there for', async () => {
  const rows = world.intents(120)
  world.ndjson('rows.ndjson', rows)
  afterHundred(rows, busy)
  const broken = await world.run('batch sign rows.ndjson --json -o signed.ndjson')
  expect(broken.code, broken.stderr).toBe(75)
  const before = await world.journal()
  expect(before).toHaveLength(100)
  expect(readdirSync(world.home)).not.toContain('signed.ndjson')
  world.intercept = {}
  const ran = await world.run('batch sign rows.ndjson --json -o signed.ndjson')
  expect(documentOf(ran).summary).toEqual({ rows: 120, signed: 20, reused: 100, rejected: 0 })
  const items = linesOf(readFileSync(join(world.home, 'signed.ndjson'), 'utf8')) as {
    client_ref: string
    permit: { nonce: string }
  }[]
  expect(items.map(({ client_ref }) => client_ref)).toEqual(
    rows.map(({ client_ref }) => client_ref),
  )
  expect(new Set(items.map(({ permit }) => permit.nonce)).size).toBe(120)
  expect((await world.journal()).slice(0, 100).map(({ journal_id }) => journal_id)).toEqual(
    before.map(({ journal_id }) => journal_id),
  )
})

test('contract §6: one that is stopped signs nothing more, and its journal stays whole', async () => {
  const rows = world.intents(120)
  world.ndjson('rows.ndjson', rows)
  const stop = new AbortController()
  afterHundred(rows, () => {
    stop.abort(new InterruptedError('interrupted', 'stopped by the test', {}))
    return busy()
  })
  const stopped = await world.run('batch sign rows.ndjson --json', {
    signal: stop.signal,
  })
  expect(stopped.code, stopped.stderr).toBe(130)
  expect([0, 100]).toContain((await world.journal()).length)
  expect((await world.run('journal verify')).code).toBe(0)
})

/** Proposed with `p2`, executed, and its round closed by it. */
async function executedQuestion(): Promise<string> {
  const question = world.ask('Will it rain?')
  const sent = await world.run(`submit ${question.questionId} --outcome yes --json`)
  const id = (JSON.parse(sent.stdout) as { candidate_id: string }).candidate_id
  await world.execute(id)
  expect((await world.run('poll --all')).code).toBe(0)
  world.front.view.put({ ...question, round: { ...question.round, state: 'proposed' } })
  world.calls.length = 0
  return question.questionId
}
const hash = `0x${'7'.repeat(64)}`

test('contract §6: submit, with and without --wait: you proposed Yes, the transaction, 0; its saved bytes are replayed', async () => {
  const id = await executedQuestion()
  for (const more of [[], ['--wait']]) {
    const ran = await world.run(['submit', id, '--outcome', 'p2', ...more])
    expect(ran.code, ran.stderr).toBe(0)
    expect(ran.stdout.replace(/\s+/g, ' ')).toContain(`you proposed Yes (p2): executed in ${hash}`)
    const json = await world.run(['submit', id, '--outcome', 'yes', '--json', ...more])
    expect([json.code, JSON.parse(json.stdout)]).toMatchObject([
      0,
      { schema: 'proposer.submitted/1', outcome: 'replayed', status: 'executed' },
    ])
  }
  expect(new Set(world.calls.map(({ body }) => body)).size).toBe(1)
  const looked = await world.run(`submit ${id} --outcome yes --dry-run`)
  expect([looked.code, looked.stdout]).toEqual([
    0,
    expect.stringMatching(
      /^you proposed Yes \(p2\): executed in\s+0x7+; nothing\s+would be signed/,
    ),
  ])
})

test('contract §6: batch submit and run, of any file that asks for it again', async () => {
  const id = await executedQuestion()
  world.ndjson('rows.ndjson', [{ identifier: id, outcome: 'Yes' }])
  for (const verb of [['batch', 'submit'], ['batch', 'submit', '--wait'], ['run']]) {
    const ran = await world.run([...verb, 'rows.ndjson', '--json'])
    expect(ran.code, ran.stderr).toBe(0)
    expect(documentOf(ran).results).toMatchObject([
      { outcome: 'replayed', candidate: { status: 'executed' }, error: null },
    ])
  }
  expect(new Set(world.calls.map(({ body }) => body)).size).toBe(1)
  expect(await world.journal()).toHaveLength(1)
})

test('§3 rule 2: executed in an earlier round, it is no answer for the current one, although nothing was signed there', async () => {
  const id = await executedQuestion()
  const later = advanced(world.ask('Will it rain?'), '1799999999')
  world.front.view.put({ ...later, round: { ...later.round, state: 'proposed' } })
  world.ndjson('rows.ndjson', [{ identifier: id, outcome: 'yes' }])
  for (const argv of [
    ['submit', id, '--outcome', 'yes'],
    ['run', 'rows.ndjson'],
  ]) {
    const ran = await world.run([...argv, '--json'])
    expect([ran.code, errorOf(ran).code]).toEqual([5, 'request_not_open'])
  }
  expect(await world.journal()).toHaveLength(1)
})

test('contract §6: another answer, another round by a later signature, and a question of nobody are refused as before', async () => {
  const id = await executedQuestion()
  const other = await world.run(`submit ${id} --outcome no --json`)
  expect([other.code, errorOf(other).code]).toEqual([5, 'request_not_open'])
  world.ndjson('rows.ndjson', [{ identifier: id, outcome: 'no' }])
  const row = await world.run('batch submit rows.ndjson --json')
  expect([row.code, errorOf(row).code]).toEqual([5, 'request_not_open'])
  const closed = world.ask('Will it snow?', { state: 'proposed' })
  const strange = await world.run(`submit ${closed.questionId} --outcome yes --json`)
  expect([strange.code, errorOf(strange).code]).toEqual([5, 'request_not_open'])
})

test('§3 rule 3: once this home has signed for a later round, the earlier execution is not said of it', async () => {
  const id = await executedQuestion()
  const later = advanced(world.ask('Will it rain?'), '1799999999')
  world.front.view.put(later)
  expect((await world.run(`submit ${id} --outcome yes --json`)).code).toBe(0)
  expect(world.calls).toHaveLength(1)
  const [, second] = await world.journal()
  await world.become(
    (second as unknown as { candidate_id: string }).candidate_id,
    failed('superseded', false),
  )
  await world.run('poll --all')
  world.front.view.put({ ...later, round: { ...later.round, state: 'proposed' } })
  const again = await world.run(`submit ${id} --outcome yes --json`)
  expect([again.code, errorOf(again).code]).toEqual([5, 'request_not_open'])
})
