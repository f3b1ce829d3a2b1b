/** `batch submit` through the front door against the real gateway in this process. */

import { readdirSync, truncateSync } from 'node:fs'
import { systemPorts } from '#io/system'
import { InterruptedError } from '#protocol/errors'
import { acquireLock } from '#storage/lock'
import {
  type BatchWorld,
  documentOf,
  errorOf,
  failed,
  linesOf,
  openBatchWorld,
} from '#support/batch-world'
import { advanced, makeWallet, signedItem, testBondRaw } from '#support/fake-view'
import { json } from '#support/status-gateway'

let world: BatchWorld
beforeEach(async () => {
  world = await openBatchWorld({ wallets: 3 })
})

const submit = ['batch', 'submit', 'rows.ndjson', '--json']
const outcomes = (ran: Awaited<ReturnType<BatchWorld['run']>>) =>
  documentOf(ran).results.map(({ outcome }) => outcome)
type Asked = Parameters<typeof signedItem>[1]
const questions = (count: number) =>
  Array.from({ length: count }, (_, n) => world.ask(`question ${n}`)) as [
    ...[Asked, Asked, Asked],
    ...[Asked, Asked, Asked],
  ]

test('§4.2, contract §6: each row gets its own outcome, in input order, with its client_ref; the gravest is the exit code', async () => {
  const [good, replayed, conflict, stranger, poor, forged] = questions(6)
  const [, second, third] = world.front.wallets as [never, never, never]
  const known = await signedItem(second, replayed)
  const active = await signedItem(second, conflict, 'p1')
  await world.front.post('/propose/batch', { proposals: [known, active] })
  const rows = [
    {
      identifier: good.questionId,
      outcome: 'p2',
      client_ref: 'good',
    },
    { ...known, client_ref: 'replayed' },
    { ...(await signedItem(second, conflict, 'p2')), client_ref: 'conflict' },
    { ...(await signedItem(makeWallet(), stranger)), client_ref: 'stranger' },
    {
      ...(await signedItem(third, poor, 'p2', { amount: String(testBondRaw - 1n) })),
      client_ref: 'poor',
    },
    { identifier: `0x${'77'.repeat(32)}`, outcome: 'p1', client_ref: 'unknown' },
    {
      ...(await signedItem(third, forged)),
      signature: (await signedItem(second, forged)).signature,
      client_ref: 'forged',
    },
  ]
  world.ndjson('rows.ndjson', rows)
  const ran = await world.run(submit)
  const { results, summary } = documentOf(ran)
  expect(
    results.map(({ client_ref, outcome, status_code, error }) => [
      client_ref,
      outcome,
      status_code,
      error?.code ?? null,
    ]),
  ).toEqual([
    ['good', 'accepted', 202, null],
    ['replayed', 'replayed', 200, null],
    ['conflict', 'rejected', 409, 'candidate_conflict'],
    ['stranger', 'rejected', 403, 'proposer_not_eligible'],
    ['poor', 'rejected', 422, 'permit_amount_below_required_bond'],
    ['unknown', 'rejected', 404, 'question_not_found'],
    ['forged', 'rejected', 403, 'signature_not_authorized'],
  ])
  expect(results.map(({ identifier }) => identifier)).toEqual(
    rows.map(({ identifier }) => identifier),
  )
  expect(summary).toMatchObject({
    rows: 7,
    accepted: 1,
    replayed: 1,
    rejected: 5,
    unknown: 0,
    deferred: 0,
  })
  expect(Object.keys(results[0] ?? {})).toEqual([
    'client_ref',
    'identifier',
    'outcome',
    'status_code',
    'candidate',
    'error',
    'journal_id',
  ])
  // §4.2 rule 3: a rejected sibling rolls nothing back.
  expect(await world.front.ledger.get(results[0]?.candidate?.candidate_id ?? '')).toBeDefined()
  expect(ran.code).toBe(5)
  expect(errorOf(ran)).toMatchObject({
    code: 'candidate_conflict',
    exit_code: 5,
    detail: expect.stringContaining('line 3'),
  })
})

test('contract §6: without a conflict 403 wins over 422, and --ndjson gives a line an item with the summary last', async () => {
  const [one, two, three] = questions(3)
  const [, second] = world.front.wallets as [never, never]
  world.ndjson('rows.ndjson', [
    await signedItem(second, one, 'p2', { amount: '1' }),
    await signedItem(makeWallet(), two),
    { identifier: three.questionId, outcome: 'p1', amount: '1' },
  ])
  const ran = await world.run('batch submit rows.ndjson --ndjson')
  expect(ran.code).toBe(4)
  const lines = linesOf(ran.stdout)
  expect(lines.map(({ status_code }) => status_code)).toEqual([422, 403, null, undefined])
  // Refused here, before anything of it was signed.
  expect(lines[2]).toMatchObject({
    outcome: 'rejected',
    journal_id: null,
    error: { code: 'permit_amount_below_required_bond' },
  })
  expect(lines[3]).toMatchObject({ schema: 'proposer.batch/1', summary: { rejected: 3 } })
})

test.each([40, 80])(
  'contract §6: people read the summary first, and only the rows that went wrong, at %i columns',
  async (columns) => {
    world.ndjson('rows.ndjson', [
      ...world.intents(2),
      { identifier: `0x${'77'.repeat(32)}`, outcome: 'p1', client_ref: 'odd \u202e one' },
    ])
    const ran = await world.run('batch submit rows.ndjson', { columns })
    expect(ran.stdout).toMatch(/^3 rows: 2 accepted, 1 rejected\n/)
    expect(ran.stdout).toContain('1 row rejected (question_not_found): odd')
    expect(ran.stdout).not.toContain('ref-0')
    for (const line of ran.stdout.split('\n').filter((each) => each.length > columns))
      expect(line.trim()).toMatch(/^\S+$/)
    expect(ran.stdout.replace(/\s+/g, ' ')).toContain('odd \\u202e one')
    expect(ran.code).toBe(3)
  },
)

test('§8: more than a hundred rows are split, and the results keep their order', async () => {
  const rows = world.intents(130)
  world.ndjson('rows.ndjson', rows)
  const ran = await world.run(submit)
  expect(ran.code).toBe(0)
  expect(world.calls.map(({ items }) => items.length)).toEqual([100, 30])
  expect(documentOf(ran).results.map(({ client_ref }) => client_ref)).toEqual(
    rows.map(({ client_ref }) => client_ref),
  )
})

test('contract §6: another open authorization in the round rejects its row with status_code null, and the others go on', async () => {
  const [row, other] = world.intents(2)
  await world.run(['sign', row?.identifier ?? '', '--outcome', 'p1', '--quiet'])
  world.ndjson('rows.ndjson', [row ?? {}, other ?? {}])
  const ran = await world.run(submit)
  expect(documentOf(ran).results).toMatchObject([
    {
      outcome: 'rejected',
      status_code: null,
      error: { code: 'authorization_open' },
      journal_id: null,
    },
    { outcome: 'accepted' },
  ])
  expect(ran.code).toBe(5)
  expect(errorOf(ran).hint).toContain('proposer submit')
})

test('R22: what `submit` sent goes by the single route again, as the same candidate; its siblings go by the batch route', async () => {
  const rows = world.intents(3)
  const single = await world.run([
    'submit',
    rows[1]?.identifier ?? '',
    '--outcome',
    'p2',
    '--json',
    '--quiet',
  ])
  world.ndjson('rows.ndjson', rows)
  const ran = await world.run(submit)
  expect(outcomes(ran)).toEqual(['accepted', 'replayed', 'accepted'])
  expect(documentOf(ran).results[1]?.candidate?.candidate_id).toBe(
    JSON.parse(single.stdout).candidate_id,
  )
  expect(world.calls.map(({ path }) => path)).toEqual([
    `/v1/proposals/${rows[1]?.identifier}`,
    `/v1/proposals/${rows[1]?.identifier}`,
    '/propose/batch',
  ])
  expect(world.calls[0]?.body).toBe(world.calls[1]?.body)
})

test('R22: the same authorization as a v1 payload and as a batch item is one candidate', async () => {
  const [question] = questions(1)
  const item = await signedItem(world.wallet, question)
  const { identifier, proposer, permit, signature } = item
  const v1 = {
    version: { api: 'v1', schema: 'signed-proposal-v1', witness: 'permit2-signed-proposer-v1' },
    proposer,
    outcome: 'p2',
    max_payment: '0',
    permit: { ...permit, deadline: String(permit.deadline) },
    signature,
  }
  world.ndjson('rows.ndjson', [item])
  const batch = documentOf(await world.run(submit))
  const answer = (await (await world.front.post(`/v1/proposals/${identifier}`, v1)).json()) as {
    candidate_id: string
  }
  expect(answer.candidate_id).toBe(batch.results[0]?.candidate?.candidate_id)
  // The journal knows it by its identity: the saved batch item is sent, not a new form of it.
  world.file('v1.json', JSON.stringify(v1))
  await world.run(`submit ${identifier} v1.json --json`)
  expect(world.calls.map(({ path }) => path)).toEqual(['/propose/batch', '/propose/batch'])
})

test('§8: a signature of 8,192 bytes goes through whole, and a hundred of them fit the calls they go in', async () => {
  const wide = `0x${'ab'.repeat(8_192)}`
  const rows = await Promise.all(
    questions(130).map(async (question) => ({
      ...(await signedItem(world.wallet, question)),
      signature: wide,
    })),
  )
  world.ndjson('rows.ndjson', rows)
  const ran = await world.run(submit)
  expect(documentOf(ran).results.every(({ status_code }) => status_code === 403)).toBe(true)
  expect(
    world.calls
      .flatMap(({ items }) => items.map(({ signature }) => signature))
      .every((one) => one === wide),
  ).toBe(true)
  for (const { body } of world.calls) expect(body.length).toBeLessThan(2 * 1024 * 1024)
})

test('§7 rule 4: an item that meets 503 is sent again with the same bytes, alone', async () => {
  world.ndjson('rows.ndjson', world.intents(3))
  let once = true
  world.intercept.after = async (path, answer) => {
    if (path !== '/propose/batch' || !once) return answer
    once = false
    const body = (await answer.json()) as { results: object[] }
    body.results[1] = {
      client_ref: 'ref-1',
      status_code: 503,
      error: { code: 'state_unavailable', detail: 'retry in 1 seconds' },
    }
    return json(200, body)
  }
  const ran = await world.run(submit)
  expect(ran.code).toBe(0)
  // It had been admitted after all: the same bytes gave the same candidate.
  expect(outcomes(ran)).toEqual(['accepted', 'replayed', 'accepted'])
  expect(world.calls.map(({ items }) => items.length)).toEqual([3, 1])
  expect(world.calls[1]?.body).toBe(`{"proposals":[${JSON.stringify(world.calls[0]?.items[1])}]}`)
})

test('contract §6: a gateway that is gone after an uncertain call leaves its items unknown and the rest deferred; exit 6; --resume finishes', async () => {
  const rows = world.intents(120)
  world.ndjson('rows.ndjson', rows)
  world.intercept.after = async (path, answer) =>
    path === '/propose/batch'
      ? new Response('<html></html>', { status: 504, headers: { 'content-type': 'text/html' } })
      : answer
  const ran = await world.run(submit)
  expect(ran.code).toBe(6)
  expect(documentOf(ran).summary).toMatchObject({ unknown: 100, deferred: 20 })
  expect(errorOf(ran).hint).toContain('proposer batch submit rows.ndjson --resume')
  expect(documentOf(ran).results[119]).toMatchObject({
    outcome: 'deferred',
    status_code: null,
    error: { code: 'not_sent' },
    journal_id: null,
  })
  world.intercept = {}
  const before = world.calls.length
  const resumed = await world.run([...submit, '--resume'])
  expect(resumed.code).toBe(0)
  expect(documentOf(resumed).summary).toMatchObject({ replayed: 100, accepted: 20 })
  expect(world.calls[before]?.body).toBe(world.calls[0]?.body)
  // Now that everything is accepted, nothing is left to send.
  const sent = world.calls.length
  expect((await world.run([...submit, '--resume'])).code).toBe(0)
  expect(world.calls).toHaveLength(sent)
})

test('contract §6: 429 to the end is 75, nothing is unknown, and the saved bytes go later', async () => {
  world.ndjson('rows.ndjson', world.intents(2))
  world.intercept.before = async (path) =>
    path === '/propose/batch'
      ? json(
          429,
          { error: { code: 'rate_limited', detail: 'retry in 1 seconds' } },
          { 'retry-after': '1' },
        )
      : undefined
  const ran = await world.run(submit)
  expect(ran.code).toBe(75)
  expect(documentOf(ran).results).toMatchObject([
    { outcome: 'deferred', status_code: 429 },
    { outcome: 'deferred' },
  ])
  world.intercept = {}
  expect(outcomes(await world.run([...submit, '--resume']))).toEqual(['accepted', 'accepted'])
})

test('§7, 413: a call that is too large is halved, also for the calls after it', async () => {
  world.ndjson('rows.ndjson', world.intents(8))
  world.intercept.before = async (path, body) => {
    if (
      path !== '/propose/batch' ||
      (JSON.parse(body) as { proposals: object[] }).proposals.length <= 3
    )
      return undefined
    return json(413, { error: { code: 'payload_too_large', detail: 'smaller batches, please' } })
  }
  const ran = await world.run(submit)
  expect(ran.code).toBe(0)
  expect(documentOf(ran).summary).toMatchObject({ accepted: 8 })
  expect(world.calls.map(({ items }) => items.length)).toEqual([2, 2, 2, 2])
})

test('R18: a whole call that is refused for one item spares the others, whether it names it or not', async () => {
  for (const named of [true, false]) {
    const rows = world
      .intents(4)
      .map((row) => ({ ...row, client_ref: `${row.client_ref}-${named}` }))
    for (const [n, row] of rows.entries()) row.identifier = world.ask(`${named} ${n}`).questionId
    world.ndjson('rows.ndjson', rows)
    world.intercept.before = async (path, body) => {
      if (path !== '/propose/batch') return undefined
      const at = (JSON.parse(body) as { proposals: { client_ref: string }[] }).proposals.findIndex(
        (one) => one.client_ref === `ref-2-${named}`,
      )
      if (at < 0) return undefined
      const errors = named
        ? { errors: [{ path: `proposals.${at}.client_ref`, code: 'too_long' }] }
        : {}
      return json(422, {
        error: { code: 'schema_violation', detail: 'a stricter gateway' },
        ...errors,
      })
    }
    const ran = await world.run(submit)
    expect(outcomes(ran)).toEqual(['accepted', 'accepted', 'rejected', 'accepted'])
    expect(documentOf(ran).results[2]).toMatchObject({
      status_code: 422,
      error: { code: 'schema_violation' },
    })
    expect(ran.code).toBe(3)
  }
})

test('an answer whose results are about other items leaves them unknown', async () => {
  world.ndjson('rows.ndjson', world.intents(2))
  world.intercept.after = async (path, answer) => {
    if (path !== '/propose/batch') return answer
    const body = (await answer.json()) as { results: object[] }
    return json(200, { ...body, results: body.results.reverse() })
  }
  const ran = await world.run(submit)
  expect(outcomes(ran)).toEqual(['unknown', 'unknown'])
  expect(ran.code).toBe(6)
})

const stoppedRun = async (when: 'contexts' | 'submit') => {
  const stop = new AbortController()
  world.ndjson('rows.ndjson', world.intents(150))
  world.intercept.after = async (path, answer) => {
    if (path === (when === 'submit' ? '/propose/batch' : '/propose/batch/signing-data'))
      stop.abort(new InterruptedError('interrupted', 'stopped by SIGINT', {}))
    return answer
  }
  return world.run(submit, { signal: stop.signal })
}

test('contract §6: the call under way ends, nothing more is begun, exit 130 says how to go on', async () => {
  const ran = await stoppedRun('submit')
  expect(ran.code).toBe(130)
  expect(documentOf(ran).summary).toMatchObject({ accepted: 100, deferred: 50 })
  expect(errorOf(ran)).toMatchObject({
    code: 'interrupted',
    hint: expect.stringContaining('rows.ndjson --resume'),
  })
  world.intercept = {}
  const resumed = await world.run([...submit, '--resume'])
  expect(documentOf(resumed).summary).toMatchObject({ accepted: 150 })
  expect(world.calls.map(({ items }) => items.length)).toEqual([100, 50])
})

test('contract §6: before anything was signed nothing is journaled', async () => {
  const ran = await stoppedRun('contexts')
  expect(ran.code).toBe(130)
  expect(documentOf(ran).summary).toMatchObject({ deferred: 150 })
  expect(world.calls).toEqual([])
  expect(await world.journal()).toEqual([])
})

test('§3 rule 3: saved bytes of an earlier round are settled by their id, then the new round is signed for', async () => {
  const question = world.ask('disputed')
  world.ndjson('rows.ndjson', [{ identifier: question.questionId, outcome: 'p2', client_ref: 'a' }])
  const first = documentOf(await world.run(submit))
  const candidateId = first.results[0]?.candidate?.candidate_id ?? ''
  world.front.view.put(advanced(question, '1799000500'))
  // Until the gateway has ended the old candidate nothing new is signed.
  const early = await world.run(submit)
  expect(documentOf(early).results[0]).toMatchObject({
    outcome: 'rejected',
    error: { code: 'authorization_open' },
  })
  expect(early.code).toBe(5)
  await world.become(candidateId, failed('round_advanced', false))
  const later = await world.run(submit)
  expect(documentOf(later).results[0]).toMatchObject({ outcome: 'accepted', status_code: 202 })
  expect(documentOf(later).results[0]?.candidate?.candidate_id).not.toBe(candidateId)
})

test('stdin is read like a file, and nothing of it stays in the home', async () => {
  const stdin = world
    .intents(2)
    .map((row) => JSON.stringify(row))
    .join('\n')
  const ran = await world.run('batch submit - --json', { stdin })
  expect(outcomes(ran)).toEqual(['accepted', 'accepted'])
  expect(readdirSync(world.home).filter((name) => name.includes('spool'))).toEqual([])
})

test.each([
  ['rows.ndjson', `{"identifier":"0x${'11'.repeat(32)}","outcome":"p1"}\n{"ident`, 'input_torn'],
  ['rows.csv', 'identifier,outcome,amuont\n', 'invalid_csv'],
  ['rows.csv', 'identifier,outcome,note\n', 'empty_input'],
  ['rows.json', '[{"identifier":"x"', 'input_torn'],
  [
    'rows.ndjson',
    `{"identifier":"x","outcome":"p1","client_ref":"${'y'.repeat(66_560)}"}\n`,
    'row_too_long',
  ],
  ['rows.ndjson', '{"identifier":"x","outcome":"p1"}\n', 'untrusted_slug'],
])('exit 2 before anything is signed or sent: %s with %s', async (name, content, code) => {
  world.file(name, content)
  const ran = await world.run(['batch', 'submit', name, '--json'])
  expect(ran.code).toBe(2)
  expect(errorOf(ran)).toMatchObject({ code, exit_code: 2 })
  expect(ran.stdout).toBe('')
  expect(world.calls).toEqual([])
})

test('a good first row is not signed where a later one is wrong', async () => {
  const [row] = world.intents(1)
  world.file('rows.ndjson', `${JSON.stringify(row)}\n${JSON.stringify(row)}\n`)
  const ran = await world.run(submit)
  expect(errorOf(ran)).toMatchObject({
    code: 'duplicate_row',
    detail: expect.stringContaining('lines 1 and 2'),
  })
  expect(await world.journal()).toEqual([])
})

test('a file that is not there is exit 2', async () => {
  expect(errorOf(await world.run('batch submit nowhere.csv --json'))).toMatchObject({
    code: 'input_unreadable',
    exit_code: 2,
  })
})

test('robustness §6: of an input over 16 MiB no row is read, from a file or a pipe', async () => {
  const size = 16 * 1024 * 1024 + 1
  const path = world.file('big.csv', '')
  truncateSync(path, size)
  const refused = {
    code: 'input_too_large',
    exit_code: 2,
    detail: expect.stringContaining('16777216'),
  }
  for (const argv of [['batch', 'sign'], ['run']])
    expect(errorOf(await world.run([...argv, path, '--json'])), argv.join()).toMatchObject(refused)
  const piped = await world.run('batch sign - --json', { stdin: 'x'.repeat(size) })
  expect(errorOf(piped)).toMatchObject(refused)
})

test('R9: a gateway that lies about one question costs that row only, and its bytes are never signed', async () => {
  const rows = world.intents(2)
  world.ndjson('rows.ndjson', rows)
  world.intercept.after = async (path, answer) => {
    if (path !== '/propose/batch/signing-data') return answer
    const body = (await answer.json()) as {
      results: { identifier: string; signing_data: { contracts: { signed_proposer: string } } }[]
    }
    const lied = body.results.find(({ identifier }) => identifier === rows[0]?.identifier)
    if (lied) lied.signing_data.contracts.signed_proposer = `0x${'66'.repeat(20)}`
    return json(200, body)
  }
  const ran = await world.run(submit)
  expect(documentOf(ran).results).toMatchObject([
    { outcome: 'rejected', error: { code: 'untrusted_signed_proposer' }, journal_id: null },
    { outcome: 'accepted' },
  ])
  expect(world.calls.flatMap(({ items }) => items)).toHaveLength(1)
})

test('R1: where the journal gives out midway, what was sent is told all the same', async () => {
  world.ndjson('rows.ndjson', world.intents(101))
  world.intercept.after = async (path, answer) => {
    if (path === '/propose/batch')
      await acquireLock(systemPorts(), `${world.home}/journal/lock`, 'another')
    return answer
  }
  const ran = await world.run(submit)
  expect(errorOf(ran)).toMatchObject({ code: 'store_locked', exit_code: 74 })
  expect(outcomes(ran)).toEqual(world.calls[0]?.items.map(() => 'accepted'))
  expect(world.calls).toHaveLength(1)
})
