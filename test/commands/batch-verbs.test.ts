/**
 * `batch sign`, `batch context`, `batch status`, `--wait` and the budget, through the front door
 * against the real gateway.
 */
import { readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { InterruptedError } from '#protocol/errors'
import { BatchItem } from '#protocol/schema'
import {
  type BatchWorld,
  documentOf,
  errorOf,
  executed,
  failed,
  linesOf,
  openBatchWorld,
  selected,
  validated,
} from '#support/batch-world'
import { testBondRaw } from '#support/fake-view'
import { html } from '#support/status-gateway'

let world: BatchWorld
beforeEach(async () => {
  world = await openBatchWorld({ wallets: 2 })
})

test('contract §6: signed batch items in input order, which `batch submit` sends as they are saved', async () => {
  const rows = world.intents(120)
  world.ndjson('rows.ndjson', rows)
  const signed = await world.run('batch sign rows.ndjson')
  expect(signed.code).toBe(0)
  const items = linesOf(signed.stdout).map((line) => BatchItem.parse(line))
  expect(
    items.map(({ identifier, client_ref }) => ({ identifier, outcome: 'p2', client_ref })),
  ).toEqual(rows)
  expect(world.calls).toEqual([])
  world.file('signed.ndjson', signed.stdout)
  const sent = await world.run('batch submit signed.ndjson --json')
  expect(documentOf(sent).summary).toMatchObject({ accepted: 120 })
  expect(world.calls.flatMap(({ body }) => body)[0]).toContain(signed.stdout.split('\n')[0])
  expect(await world.journal()).toHaveLength(120)
})

test('R5, R6: items are journaled before they are given out, in a file of 0600, and the same call gives the same bytes', async () => {
  world.ndjson('rows.ndjson', world.intents(3))
  const first = await world.run('batch sign rows.ndjson -o signed.ndjson')
  expect(first.stdout).toContain('3 signed, 0 signed before, 0 rejected')
  expect(first.stdout).not.toContain('signature')
  const path = join(world.home, 'signed.ndjson')
  expect(statSync(path).mode & 0o777).toBe(0o600)
  const bytes = readFileSync(path, 'utf8')
  const again = await world.run('batch sign rows.ndjson -o -')
  expect(again.stdout).toBe(bytes)
  expect(await world.journal()).toHaveLength(3)
})

test('R6: a file that cannot be written is told before anything is signed', async () => {
  world.ndjson('rows.ndjson', world.intents(1))
  const { code } = await world.run('batch sign rows.ndjson -o gone/signed.ndjson')
  expect([code, await world.journal()]).toEqual([74, []])
})

test('a payload of `sign` is told as the batch item that says the same', async () => {
  const [row] = world.intents(1)
  const single = JSON.parse(
    (await world.run(['sign', row?.identifier ?? '', '--outcome', 'p2', '--json', '--quiet']))
      .stdout,
  )
  world.ndjson('rows.ndjson', [row ?? {}])
  const ran = await world.run('batch sign rows.ndjson --json')
  const { results } = JSON.parse(ran.stdout) as {
    results: { outcome: string; payload: BatchItem }[]
  }
  expect(results).toMatchObject([
    {
      outcome: 'reused',
      payload: { proposed_price: '1000000000000000000', signature: single.payload.signature },
    },
  ])
  expect(results[0]?.payload.permit).toEqual({
    ...single.payload.permit,
    deadline: Number(single.payload.permit.deadline),
  })
})

test('contract §6: a row that cannot be signed is rejected with its line, the others are signed; exit 3', async () => {
  const rows = world.intents(3)
  world.ndjson('rows.ndjson', [
    rows[0] ?? {},
    { ...rows[1], amount: '1' },
    { ...rows[2], outcome: 'p3' },
  ])
  const ran = await world.run('batch sign rows.ndjson --ndjson')
  expect(ran.code).toBe(3)
  expect(linesOf(ran.stdout).map((line) => (line.error as { code: string } | null)?.code)).toEqual([
    undefined,
    'permit_amount_below_required_bond',
    'outcome_not_allowed',
    undefined,
  ])
  expect(errorOf(ran).detail).toContain('line 2')
})

test('R9: --context signs offline for what `batch context --json` printed', async () => {
  world.ndjson('rows.ndjson', world.intents(2))
  world.file('contexts.json', (await world.run('batch context rows.ndjson --json')).stdout)
  const fetch = async () => {
    throw new Error('offline')
  }
  const ran = await world.run('batch sign rows.ndjson --context contexts.json', {
    fetch,
  })
  expect(ran.code).toBe(0)
  expect(linesOf(ran.stdout)).toHaveLength(2)
})

test('--max-spend refuses the whole batch before anything is signed; with --fit the first rows that fit are signed', async () => {
  world.ndjson('rows.ndjson', world.intents(4))
  const most = `${testBondRaw * 2n + 1n}raw`
  const refused = await world.run(['batch', 'sign', 'rows.ndjson', '--max-spend', most, '--json'])
  expect(refused.code).toBe(2)
  expect(errorOf(refused)).toMatchObject({
    code: 'over_max_spend',
    detail: expect.stringContaining(String(testBondRaw * 4n)),
  })
  expect(await world.journal()).toEqual([])
  const fitted = await world.run([
    'batch',
    'sign',
    'rows.ndjson',
    '--max-spend',
    most,
    '--fit',
    '--json',
  ])
  expect(
    JSON.parse(fitted.stdout).results.map(({ outcome }: { outcome: string }) => outcome),
  ).toEqual(['signed', 'signed', 'rejected', 'rejected'])
  expect(fitted.code).toBe(3)
  const whole = await world.run(`batch sign rows.ndjson --max-spend ${testBondRaw * 2n}raw --json`)
  // Two are signed already and reserve nothing anew.
  expect(JSON.parse(whole.stdout).summary).toEqual({ rows: 4, signed: 2, reused: 2, rejected: 0 })
})

test('headroom and the cap for one row hold as for `sign`', async () => {
  world.ndjson('rows.ndjson', world.intents(1))
  const capped = await world.run(
    `batch sign rows.ndjson --max-amount ${testBondRaw - 1n}raw --json`,
  )
  expect(JSON.parse(capped.stdout).results[0]).toMatchObject({
    outcome: 'rejected',
    error: { code: 'amount_above_cap' },
  })
  const ran = await world.run('batch sign rows.ndjson --headroom 10')
  expect(linesOf(ran.stdout)[0]).toMatchObject({
    permit: { amount: String((testBondRaw * 11n) / 10n) },
  })
})

test('contract §6: contexts in input order as `context` tells them, errors in their places', async () => {
  const [one, two] = world.intents(2)
  world.file('ids.txt', `${one?.identifier}\n0x${'77'.repeat(32)}\n${two?.identifier}\n`)
  const ran = await world.run('batch context ids.txt --json')
  expect(ran.code).toBe(3)
  expect(JSON.parse(ran.stdout)).toMatchObject({
    schema: 'proposer.context/1',
    questions: [
      { question_id: one?.identifier, source: 'gateway' },
      { identifier: `0x${'77'.repeat(32)}`, error: { code: 'question_not_found' } },
      { question_id: two?.identifier },
    ],
  })
  expect(errorOf(ran)).toMatchObject({
    code: 'question_not_found',
    detail: expect.stringContaining('line 2'),
  })
})

test('what is no identifier is exit 2 with its line, before anybody is asked', async () => {
  world.file('ids.txt', 'some-slug\nNot An Id\n')
  const ran = await world.run('batch context ids.txt --json')
  expect(errorOf(ran)).toMatchObject({
    code: 'invalid_identifier',
    detail: expect.stringContaining('line 2'),
    exit_code: 2,
  })
})

const submitted = async (count: number) => {
  world.ndjson('rows.ndjson', world.intents(count))
  const ran = await world.run('batch submit rows.ndjson --json')
  world.file('results.json', ran.stdout)
  return documentOf(ran).results.map(({ candidate }) => candidate?.candidate_id ?? '')
}

test('§4.2 rule 6: an unknown id is its own 404, and the others are answered; results of batch submit are ids enough', async () => {
  const ids = await submitted(3)
  const known = await world.run('batch status results.json --json')
  expect(
    JSON.parse(known.stdout).candidates.map(
      ({ candidate_id }: { candidate_id: string }) => candidate_id,
    ),
  ).toEqual(ids)
  expect(known.code).toBe(0)
  const stranger = '00000000-0000-4000-8000-000000000000'
  world.file('ids.txt', [ids[0], stranger, ids[2]].join('\n'))
  const ran = await world.run('batch status ids.txt --json')
  expect(JSON.parse(ran.stdout)).toMatchObject({
    schema: 'proposer.status/1',
    candidates: [{ status: 'received' }, { candidate_id: ids[2] }],
    missing: [{ candidate_id: stranger, error: { code: 'candidate_not_found' } }],
    summary: { candidates: 2, missing: 1 },
  })
  expect(errorOf(ran)).toMatchObject({ exit_code: 3, detail: expect.stringContaining(stranger) })
  world.file('ids.txt', [ids[0], stranger, ids[2], stranger.replace(/0$/, '1')].join('\n'))
  const byLine = await world.run('batch status ids.txt --ndjson')
  expect(linesOf(byLine.stdout)).toMatchObject([
    { candidate_id: ids[0], label: 'Yes', received_at: expect.any(String), failure: null },
    { candidate_id: stranger, error: { code: 'candidate_not_found' } },
    { candidate_id: ids[2] },
    { error: { code: 'candidate_not_found' } },
    { summary: { candidates: 2, missing: 2 } },
  ])
  expect(errorOf(byLine).detail).toContain(`2 of 4 candidates; the first: candidate ${stranger}: `)
})

test('contract §6: --wait polls to the end; a failed candidate is 7, and its end is journaled with what the table says of it', async () => {
  const rows = world.intents(3)
  world.ndjson('rows.ndjson', rows)
  let passes = 0
  world.intercept.before = async (path) => {
    if (path !== '/propose/batch/status') return undefined
    const active = world.front.ledger.active().map(({ id }) => id)
    if (passes++ === 1)
      for (const [n, id] of active.entries())
        await world.become(id, n === 1 ? failed('not_selected', false) : validated)
    if (passes === 4) for (const id of active) await world.become(id, selected)
    if (passes === 5) for (const id of active) await world.become(id, executed)
    return undefined
  }
  const ran = await world.run('batch submit rows.ndjson --wait --json')
  expect(ran.code).toBe(7)
  const { results, summary } = documentOf(ran)
  expect(results.map(({ candidate }) => candidate?.status)).toEqual([
    'executed',
    'failed',
    'executed',
  ])
  expect(summary).toMatchObject({ accepted: 3, executed: 2, failed: 1, pending: 0 })
  expect(errorOf(ran)).toMatchObject({
    code: 'not_selected',
    hint: expect.stringContaining('proposer status'),
  })
  expect((await world.journal()).map(({ state }) => state)).toEqual(['closed', 'closed', 'closed'])
  // Closed by this very batch: --resume leaves it alone, and it stays failed.
  const sent = world.calls.length
  const resumed = await world.run('batch submit rows.ndjson --resume --json')
  expect(resumed.code).toBe(7)
  expect(world.calls).toHaveLength(sent)
})

test('contract §4: of a failure whose row says neither yes nor no the single route is asked, and of no other', async () => {
  const ids = await submitted(2)
  await world.become(ids[0] ?? '', failed('simulation_reverted', true))
  await world.become(ids[1] ?? '', failed('insufficient_allowance', true))
  const asked: string[] = []
  world.intercept.before = async (path) => {
    asked.push(path)
    return undefined
  }
  const ran = await world.run('batch status results.json --json')
  expect(ran.code).toBe(7)
  const single = asked.filter((path) => path.startsWith('/v1/proposals/'))
  expect(single).toEqual([expect.stringContaining(ids[0] ?? '')])
  // Retryable: the authorization is open yet.
  expect((await world.journal()).map(({ state }) => state)).toEqual(['accepted', 'accepted'])
})

test('contract §6: still on their way when the time ran out is 8', async () => {
  await submitted(2)
  const ran = await world.run('batch status results.json --wait --timeout 60 --json')
  expect(ran.code).toBe(8)
  expect(JSON.parse(ran.stdout).candidates).toMatchObject([
    { status: 'received' },
    { status: 'received' },
  ])
  expect(errorOf(ran)).toMatchObject({ code: 'still_pending', retryable: true })
})

test('§6: an end is journaled with its transaction and event index, whether it was waited for or seen in one pass', async () => {
  const ids = await submitted(2)
  await world.execute(ids[0])
  expect((await world.run('batch status results.json --json')).code).toBe(0)
  await world.execute(ids[1])
  expect((await world.run('batch status results.json --wait --json')).code).toBe(0)
  const ends = linesOf((await world.run('journal export')).stdout)
  const end = { reason: 'executed', transaction_hash: `0x${'7'.repeat(64)}`, event_index: 3 }
  expect(ends).toMatchObject([end, end])
})

test('contract §6: a gateway that is gone after it admitted is 75, which is graver than pending; the candidates are told', async () => {
  world.ndjson('rows.ndjson', world.intents(2))
  world.intercept.before = async (path) => (path === '/propose/batch/status' ? html() : undefined)
  const ran = await world.run('batch submit rows.ndjson --wait --json')
  expect(ran.code).toBe(75)
  expect(documentOf(ran).summary).toMatchObject({ accepted: 2, pending: 2 })
  expect(documentOf(ran).results).toMatchObject([
    { candidate: { status: 'received' } },
    { candidate: { status: 'received' } },
  ])
})

test.each([
  ['submit', 'rows.ndjson'],
  ['status', 'results.json'],
])(
  'contract §6: Ctrl-C while `batch %s --wait` polls is 130, and what is known is told',
  async (verb, file) => {
    await submitted(2)
    const stop = new AbortController()
    world.intercept.after = async (path, answer) => {
      if (path === '/propose/batch/status')
        stop.abort(new InterruptedError('interrupted', 'stopped by SIGINT', {}))
      return answer
    }
    const ran = await world.run(['batch', verb, file, '--wait', '--json'], {
      signal: stop.signal,
    })
    expect(ran.code).toBe(130)
    const status = { status: 'received' }
    const { results = [], candidates } = JSON.parse(ran.stdout)
    const told = candidates ?? results.map((one: { candidate: object }) => one.candidate)
    expect(told).toMatchObject([status, status])
  },
)

test('an answer about another candidate ends the polling with 5, and what was admitted is told all the same', async () => {
  world.ndjson('rows.ndjson', world.intents(2))
  world.intercept.after = async (path, answer) => {
    if (path !== '/propose/batch/status') return answer
    const { results } = (await answer.json()) as { results: { candidate: object }[] }
    for (const one of results)
      one.candidate = { ...one.candidate, candidate_id: '00000000-0000-4000-8000-000000000000' }
    return Response.json({ results }, {})
  }
  const ran = await world.run('batch submit rows.ndjson --wait --json')
  expect(errorOf(ran)).toMatchObject({ code: 'candidate_mismatch', exit_code: 5 })
  expect(documentOf(ran).summary).toMatchObject({ accepted: 2, pending: 2 })
})

test('--ndjson tells each row as it settles, each end, and the summary last', async () => {
  world.ndjson('rows.ndjson', world.intents(2))
  world.intercept.before = async (path) => {
    if (path === '/propose/batch/status')
      for (const { id, progress } of world.front.ledger.active()) {
        if (progress.status === 'received') await world.become(id, validated)
        else if (progress.status === 'validated') await world.become(id, selected)
        else await world.become(id, executed)
      }
    return undefined
  }
  const ran = await world.run('batch submit rows.ndjson --wait --ndjson')
  const lines = linesOf(ran.stdout)
  expect(
    lines.map(
      ({ outcome, candidate, schema }) =>
        outcome ?? (candidate as { status: string } | undefined)?.status ?? schema,
    ),
  ).toEqual(['accepted', 'accepted', 'executed', 'executed', 'proposer.batch/1'])
  expect(ran.code).toBe(0)
})

test.each([
  ['ids.txt', 'not-an-id\n', 'invalid_candidate_id'],
  ['ids.txt', '\n', 'empty_input'],
])('an input without ids is exit 2: %s with %j', async (name, content, code) => {
  world.file(name, content)
  expect(errorOf(await world.run(['batch', 'status', name, '--json']))).toMatchObject({
    code,
    exit_code: 2,
  })
})

test('§8: with the default budget 300 rows are paced over the windows: no 429, and no window is left half used', async () => {
  world = await openBatchWorld({
    config: { budget: { window_seconds: 60, per_ip_items: 120, global_items: 1_000 } },
  })
  const rows = world.intents(300)
  world.ndjson('rows.ndjson', rows)
  const statuses: number[] = []
  let [left, openedMs] = [0, 0]
  world.intercept.after = async (_path, answer) => {
    statuses.push(answer.status)
    const remaining = Number(answer.headers.get('ratelimit-remaining'))
    if (remaining > left) openedMs = world.clock.monotonicMs()
    left = remaining
    return answer
  }
  const startMs = world.clock.monotonicMs()
  const ran = await world.run('batch submit rows.ndjson --json')
  expect(ran.code).toBe(0)
  expect(documentOf(ran).results.map(({ client_ref }) => client_ref)).toEqual(
    rows.map(({ client_ref }) => client_ref),
  )
  expect(statuses.filter((status) => status === 429)).toEqual([])
  // 600 items in windows of 120: the last one opens after four.
  // This clock adds up what sleeps side by side: within a window the journal's idle marks count.
  expect(openedMs - startMs).toBeLessThanOrEqual(4 * 60_000 * 1.05)
})
