import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { signerFromKey } from '#io/keys'
import { type Answers, type AnyGateway, anyGateway, type Route } from '#support/any-gateway'
import { ask, createFakeChain, endow, questionText } from '#support/fake-chain'
import { fakeTrust } from '#support/fake-world'
import { happySteps } from '#support/scripted-gateway'

let world: AnyGateway
beforeEach(async () => {
  world = await anyGateway()
})

type Json = Record<string, unknown>

const at =
  (...changes: readonly (readonly [Route, (body: never) => unknown])[]): Answers =>
  (route, body) =>
    changes.filter(([of]) => of === route).reduce((told, [, change]) => change(told as never), body)

const without = (body: Json, ...names: readonly string[]): Json =>
  Object.fromEntries(Object.entries(body).filter(([name]) => !names.includes(name)))

const item =
  (change: (result: Json) => Json) =>
  ({ results: [result = {}], ...rest }: { results: readonly Json[] }): Json => ({
    ...rest,
    results: [change(result)],
  })

const submit = ['submit', 'will-it-hold', '--outcome', 'p2', '--json']
const rows = (row: object = {}) =>
  world.file(
    'rows.ndjson',
    `${JSON.stringify({ identifier: world.gateway.question.question_id, outcome: 'p2', ...row })}\n`,
  )

function journalText(): string {
  const folder = join(world.home, 'journal')
  return readdirSync(folder, { recursive: true, encoding: 'utf8' })
    .filter((name) => /log-.*\.jsonl$/.test(name))
    .map((name) => readFileSync(join(folder, name), 'utf8'))
    .join('')
}

const acknowledgements: readonly (readonly [string, (body: Json) => Json])[] = [
  ['status "queued" (§1)', (body) => ({ ...body, status: 'queued' })],
  ['a time in seconds', (body) => ({ ...body, received_at: '2026-11-20T05:38:00Z' })],
  ['a time with an offset', (body) => ({ ...body, received_at: '2026-11-20T05:38:00+00:00' })],
  ['a time in microseconds', (body) => ({ ...body, received_at: '2026-11-20T05:38:00.123456Z' })],
  ['a time as Unix seconds', (body) => ({ ...body, received_at: 1_763_617_080 })],
  ['nothing but the id', ({ candidate_id }) => ({ candidate_id })],
  [
    'an id in capitals',
    (body) => ({ ...body, candidate_id: 'ABCDEF00-0000-4000-8000-000000000001' }),
  ],
]

test.each(acknowledgements)(
  'S1: a single acknowledgement with %s, and its replay',
  async (_what, change) => {
    world.answers = at(['submit', (body: Json) => ({ ...change(body), region: 'eu-1' })])
    const [first, again] = [await world.ask(submit), await world.ask(submit)]
    expect([first.code, again.code]).toEqual([0, 0])
    const told = JSON.parse(first.stdout)
    expect(await world.journaled()).toMatchObject([
      { state: 'accepted', candidate_id: told.candidate_id },
    ])
    expect(JSON.parse(again.stdout)).toMatchObject({
      outcome: 'replayed',
      candidate_id: told.candidate_id,
    })
    const { status = null, received_at = null } = change({
      status: 'received',
      received_at: '2026-11-20T05:38:00.000Z',
    })
    expect(told).toMatchObject({
      status,
      received_at: received_at === null ? null : String(received_at),
    })
    expect(journalText()).toContain('"region":"eu-1"')
  },
)

test.each(acknowledgements)(
  'S1: a result of a batch with %s, without client_ref where none was sent',
  async (_what, change) => {
    const candidate = (result: Json) => ({
      ...without(result, 'client_ref'),
      candidate: change(result.candidate as Json),
    })
    world.answers = at(['submitBatch', item(candidate)])
    const { code, stdout } = await world.ask(['batch', 'submit', rows(), '--json'])
    expect(code).toBe(0)
    const [result] = JSON.parse(stdout).results
    expect(result).toMatchObject({ outcome: 'accepted', client_ref: null })
    expect(await world.journaled()).toMatchObject([
      { state: 'accepted', candidate_id: result.candidate.candidate_id },
    ])
  },
)

test('S1: a reference of another item is no answer about this one (exit 6); where none is echoed the order tells', async () => {
  const send = async () =>
    (await world.ask(['batch', 'submit', rows({ client_ref: 'mine' }), '--json'])).code
  world.answers = at(['submitBatch', item((result) => ({ ...result, client_ref: 'other' }))])
  expect(await send()).toBe(6)
  world.answers = at(['submitBatch', item((result) => without(result, 'client_ref'))])
  expect(await send()).toBe(0)
})

test('S1: an id in capitals: journaled in small letters, which 0.1 reads; asked about as the gateway spelt it', async () => {
  const spelled = 'ABCDEF00-0000-4000-8000-000000000001'
  world.answers = at(['submit', (body: Json) => ({ ...body, candidate_id: spelled })])
  expect((await world.ask(submit)).code).toBe(0)
  const ack = JSON.parse(journalText().match(/^.*"k":"ack".*$/m)?.[0] ?? '')
  expect(ack.d).toMatchObject({
    candidate_id: spelled.toLowerCase(),
    answer: { candidate_id: spelled },
  })
  for (const id of [spelled, spelled.toLowerCase()]) await world.ask(['status', id])
  await world.ask(['poll', '--all', '--timeout', '1'])
  const asked = world.gateway.calls.filter((call) => call.includes('/status/'))
  expect(asked.length).toBeGreaterThan(2)
  for (const call of asked) expect(call).toMatch(new RegExp(`/status/${spelled}$`))
})

test('S1: without a UUID the outcome stays unknown (exit 6)', async () => {
  world.answers = at(['submit', (body: Json) => ({ ...body, candidate_id: 'c-1' })])
  expect((await world.ask(submit)).code).toBe(6)
  expect(await world.journaled()).toMatchObject([{ state: 'unknown', candidate_id: null }])
})

test('S2, §2.7: a context that says every fact once, in its own place and form, is taken; a lie in one of them is not', async () => {
  const lean = (chainId: unknown) =>
    item((result) => {
      const data = result.signing_data as { request: Json } & Json
      const request = {
        ...without(data.request, 'question_id', 'identifier'),
        timestamp: Number(data.request.timestamp),
      }
      const bond = data.bond as Json
      return {
        status_code: 200,
        signing_data: {
          ...{ ...data, request, region: 'eu-1' },
          bond: { ...bond, required_bond: Number(bond.required_bond) },
          signing: { chain_id: chainId, max_payment: 0 },
        },
      }
    })
  world.answers = at(['contexts', lean('137')])
  const refused = await world.ask(submit)
  expect([refused.code, JSON.parse(refused.stderr).error.code]).toEqual([2, 'untrusted_chain_id'])
  expect(world.gateway.received).toEqual([])
  world.answers = at(['contexts', lean('31337')])
  expect((await world.ask(['context', 'will-it-hold', '--json'])).code).toBe(0)
  expect((await world.ask(submit)).code).toBe(0)
})

describe('S3, contract §5, §9: following ends where the submission or the failure tells the end', () => {
  const submission = happySteps[2]?.submission as unknown as Json
  const executed: readonly (readonly [string, (body: Json) => Json])[] = [
    [
      'the word "completed" and an indexed submission',
      (body) => ({ ...body, status: 'completed' }),
    ],
    ['no word at all', (body) => without(body, 'status')],
    [
      'a stage before the end and an indexed submission',
      (body) => ({ ...body, status: 'selected' }),
    ],
    [
      'neither question_id nor proposer nor version',
      (body) => without(body, 'question_id', 'proposer', 'version', 'outcome', 'price'),
    ],
    [
      'no times',
      (body) => ({
        ...without(body, 'received_at', 'validated_at', 'selected_at'),
        submission: { status: 'indexed' },
      }),
    ],
  ]
  const { transaction_hash, proposal_event_index } = submission
  const mined = {
    status: 'mined',
    transaction_hash,
    proposal_event_index,
    submitted_at: 0,
    indexed_at: 0,
  }
  const indexing_timestamp = '2026-11-20T05:38:09+00:00'
  const inferred: readonly (readonly [string, (body: Json) => Json])[] = [
    [
      'words of its own',
      (body) => ({ ...body, status: 'done', submission: { ...submission, status: 'final' } }),
    ],
    [
      'names of times of its own',
      (body) => ({ ...body, status: 'done', submission: { ...mined, indexing_timestamp } }),
    ],
  ]
  const failure = { code: 'permit_expired', detail: 'too late' }
  const failed: readonly (readonly [string, (body: Json) => Json])[] = [
    ['the word "rejected"', (body) => ({ ...body, status: 'rejected', failure })],
    ['the word "failed" and no reason', (body) => ({ ...body, status: 'failed', failure: null })],
    [
      'a stage before the end and a payload that can never execute',
      (body) => ({ ...body, failure: { ...failure, retryable: false } }),
    ],
    ['a failure alone', (body) => ({ ...without(body, 'status', 'submission'), failure })],
    [
      'a failure beside a transaction that was reverted, and indexed',
      (body) => ({
        ...body,
        status: 'rejected',
        submission: { ...submission, status: 'reverted_on_chain' },
        failure: { code: 'execution_reverted', detail: 'reverted' },
      }),
    ],
    [
      '"expired" beside a failure that might pass',
      (body) => ({ ...body, status: 'expired', failure: { ...failure, retryable: true } }),
    ],
    [
      '"Cancelled" without a reason',
      (body) => ({ ...body, status: 'Cancelled', submission: { ...submission, status: 'final' } }),
    ],
  ]
  const inBatch = (change: (body: Json) => Json) =>
    item((result) => ({
      ...result,
      candidate: without(change(result.candidate as Json), 'candidate_id'),
    }))

  test.each(executed)('executed: %s', async (_what, change) => {
    const isEnd = (body: Json) => (body.submission === null ? body : change(body))
    world.answers = at(['status', isEnd], ['statuses', inBatch(isEnd)])
    world.gateway.steps = [...happySteps]
    const waited = await world.ask([...submit, '--wait'])
    expect(waited.code).toBe(0)
    const { candidate_id: id } = JSON.parse(waited.stdout)
    expect(await world.journaled()).toMatchObject([
      { state: 'closed', reason: 'executed', candidate_id: id },
    ])
    expect((await world.ask(['poll', id, '--until', 'confirmed'])).code).toBe(0)
    expect(
      (await world.ask(['batch', 'status', world.file('ids', `${id}\n`), '--wait', '--json'])).code,
    ).toBe(0)
  })

  test.each(inferred)(
    'R8: executed by %s ends the following, and the question stays held',
    async (_what, change) => {
      world.answers = at(['status', change])
      const waited = await world.ask([...submit, '--wait'])
      expect(waited.code).toBe(0)
      expect(await world.journaled()).toMatchObject([{ state: 'accepted' }])
      const other = await world.ask(['submit', 'will-it-hold', '--outcome', 'p1', '--json'])
      expect([other.code, JSON.parse(other.stderr).error.code]).toEqual([5, 'authorization_open'])
      expect((await world.ask(['reconcile', 'will-it-hold'])).stdout).toContain(
        'which may mean executed',
      )
    },
  )

  test.each(failed)('failed: %s', async (_what, change) => {
    world.answers = at(['status', change], ['statuses', inBatch(change)])
    const waited = await world.ask([...submit, '--wait'])
    expect(waited.code).toBe(7)
    const { candidate_id: id } = JSON.parse(waited.stdout)
    expect((await world.ask(['status', id])).code).toBe(7)
    const batch = await world.ask([
      'batch',
      'status',
      world.file('ids', `${id}\n`),
      '--wait',
      '--ndjson',
    ])
    const { summary } = JSON.parse(batch.stdout.trimEnd().split('\n').at(-1) ?? '')
    const counts = { candidates: 1, executed: 0, failed: 1, missing: 0 }
    expect([batch.code, summary]).toEqual([7, { ...counts, items: expect.any(Number) }])
  })

  test('what is still on its way is none: a word of its own, a confirmed submission, a failure that says to wait', async () => {
    await world.ask(submit)
    const id = (await world.journaled())[0]?.candidate_id ?? ''
    for (const change of [
      { status: 'queued' },
      { status: 'mining', submission: { status: 'confirmed', transaction_hash: null } },
      { status: 'retrying', failure: { ...failure, retryable: true, next_action: 'wait' } },
      {
        status: 'retrying',
        failure: { code: 'rpc_timeout', detail: 'will be tried again', retryable: true },
      },
      {
        status: 'queued',
        submission: {
          status: 'pending',
          submitted_at: 0,
          confirmed_at: 0,
          indexed_at: 0,
          proposal_event_index: null,
        },
      },
      { status: 'queued', submission: { ...mined, indexed_at: '0001-01-01T00:00:00Z' } },
      {
        status: 'sent',
        submission: { ...mined, status: 'broadcast', indexing_expected_at: indexing_timestamp },
      },
      { status: 'sent', submission: { ...mined, confirmed_at: indexing_timestamp } },
      {
        status: 'sent',
        submission: { status: 'broadcast', transaction_hash, indexed_at: indexing_timestamp },
      },
    ]) {
      world.answers = at(['status', (body: Json) => ({ ...body, ...change })])
      const { code, stdout } = await world.ask(['status', id, '--json'])
      expect([code, JSON.parse(stdout).candidates[0].status]).toEqual([0, change.status])
      expect((await world.ask(['poll', id])).code).toBe(130)
    }
    expect(await world.journaled()).toMatchObject([{ state: 'accepted' }])
  })
})

test('S6: `status` of a candidate that the journal does not know asks the batch route, which needs no question', async () => {
  const { stdout } = await world.ask(submit)
  const { candidate_id: id } = JSON.parse(stdout)
  const other = await anyGateway()
  other.answers = at([
    'statuses',
    item(() => ({
      candidate_id: id,
      status_code: 200,
      candidate: { status: 'queued', submission: null, failure: null },
    })),
  ])
  const known = await other.ask(['status', id, '--json'])
  expect([known.code, JSON.parse(known.stdout).candidates[0]]).toMatchObject([
    0,
    { candidate_id: id, status: 'queued' },
  ])
  other.answers = (_route, body) => body
  expect((await other.ask(['status', id, '--json'])).code).toBe(3)
  other.refuses = 'statuses'
  const refused = await other.ask(['status', id, '--json'])
  expect([refused.code, JSON.parse(refused.stderr).error]).toMatchObject([
    2,
    { code: 'question_unknown', hint: 'add --question <id>' },
  ])
})

test.each([0n, 749_999_999n])(
  'S5, §5: with a node and a Permit2 allowance of %d nothing is signed, single or batch',
  async (allowanceRaw) => {
    const chain = createFakeChain()
    const questionId = ask(chain, questionText('Will it hold?'))
    const owner = signerFromKey(new Uint8Array(32).fill(0x11)).address
    endow(chain, owner, 10n ** 12n, allowanceRaw)
    chain.mine(3)
    world.file('trust/default.json', JSON.stringify(fakeTrust))
    const node = ['--rpc-url', 'http://127.0.0.1:1', '--json']
    const single = ['submit', questionId, '--outcome', 'p2', ...node]
    const batch = [
      'batch',
      'submit',
      world.file('rows.ndjson', `${JSON.stringify({ identifier: questionId, outcome: 'p2' })}\n`),
      ...node,
    ]
    for (const argv of [single, batch]) {
      const { code, stderr } = await world.ask(argv, { chain })
      const { error } = JSON.parse(stderr)
      expect([code, error.code, error.hint]).toEqual([
        2,
        'insufficient_allowance',
        expect.stringContaining('proposer funds approve'),
      ])
    }
    expect(await world.journaled()).toEqual([])
    endow(chain, owner, 10n ** 12n, 750_000_000n)
    chain.mine()
    expect(JSON.parse((await world.ask(single, { chain })).stderr).error.code).toBe(
      'question_not_found',
    )
  },
)

test('contract §9: an end is journaled once, however often it is asked for', async () => {
  const { stdout } = await world.ask(submit)
  const { candidate_id: id } = JSON.parse(stdout)
  world.gateway.steps = [happySteps[2] ?? {}]
  world.answers = at([
    'status',
    (body: Json) => ({ ...body, failure: { code: 'first_try_failed', detail: 'once' } }),
  ])
  for (let asked = 0; asked < 3; asked++) expect((await world.ask(['status', id])).code).toBe(0)
  expect(journalText().match(/"outcome":"executed"/g)).toHaveLength(1)
})

test('R8: a status that says executed and not executed at once is no answer (75), and closes nothing', async () => {
  const { candidate_id: id } = JSON.parse((await world.ask(submit)).stdout)
  const indexed = happySteps[2]?.submission as unknown as Json
  const failure = { code: 'execution_reverted', detail: 'reverted' }
  for (const change of [
    { status: 'executed', submission: { ...indexed, status: 'reverted' } },
    { status: 'executed', submission: { ...indexed, status: 'dropped' } },
    { status: 'executed', submission: null, failure },
    { status: 'failed', submission: indexed, failure },
  ]) {
    world.answers = at(['status', (body: Json) => ({ ...body, ...change })])
    const { code, stderr } = await world.ask(['status', id, '--json'])
    expect([code, JSON.parse(stderr).error.code]).toEqual([75, 'gateway_body'])
  }
  expect(await world.journaled()).toMatchObject([{ state: 'accepted' }])
})

describe('contract §9: a slug may begin with 0x', () => {
  const slug = '0x-protocol-above-1'
  beforeEach(async () => {
    world = await anyGateway(slug)
  })

  test('context, submit, status and reconcile take it', async () => {
    expect(
      JSON.parse((await world.ask(['context', slug, '--json'])).stdout).questions[0],
    ).toMatchObject({ slug })
    const submitted = await world.ask(['submit', slug, '--outcome', 'p2', '--json'])
    expect(submitted.code).toBe(0)
    const id = JSON.parse(submitted.stdout).candidate_id
    expect((await world.ask(['status', id, '--question', slug])).code).toBe(0)
    expect((await world.ask(['reconcile', slug])).code).toBe(0)
    expect(
      JSON.parse((await world.ask(['journal', 'list', '--json'])).stdout).authorizations[0],
    ).toMatchObject({ identifier: slug })
  })

  test('so do a batch, its context and a question id that lacks a digit is asked for as a slug', async () => {
    const rows = world.file(
      'rows.ndjson',
      `${JSON.stringify({ identifier: slug, outcome: 'p2' })}\n`,
    )
    expect((await world.ask(['batch', 'submit', rows, '--json'])).code).toBe(0)
    expect(
      (await world.ask(['batch', 'context', world.file('ids', `${slug}\n`), '--json'])).code,
    ).toBe(0)
    const short = `0x${'a'.repeat(63)}`
    const { code, stderr } = await world.ask(['submit', short, '--outcome', 'p2', '--json'])
    expect([code, JSON.parse(stderr).error.code]).toEqual([3, 'question_not_found'])
  })
})
