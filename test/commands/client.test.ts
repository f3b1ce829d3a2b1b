import { readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { type Argv, answerOf, errorOf, type RunOptions, run } from '#support/cli'
import { type Desk, instantClock, key, openDesk, proposer, sign, submit } from '#support/desk'
import { bondRaw, happySteps, pins } from '#support/scripted-gateway'

let { home, gateway, env, question } = {} as Desk
beforeEach(async () => {
  ;({ home, gateway, env, question } = await openDesk())
})

const ask = (argv: Argv, more: RunOptions = {}) =>
  run(home, argv, { env, fetch: gateway.fetch, clock: instantClock(), ...more })

test('contract §6: the result has its keys in order, and the payload is the exact v1 body', async () => {
  const signed = answerOf(await ask(sign))
  expect(Object.keys(signed).slice(0, 7)).toEqual([
    'schema',
    'journal_id',
    'question_id',
    'identifier',
    'digest',
    'signer',
    'payload',
  ])
  expect(signed).toMatchObject({
    schema: 'proposer.signed/1',
    question_id: question,
    identifier: 'will-it-hold',
    signer: proposer,
  })
  expect(signed.payload).toMatchObject({
    proposer,
    outcome: 'p2',
    max_payment: '0',
    permit: { amount: bondRaw },
    signature: expect.stringMatching(/^0x[0-9a-f]{130}$/),
  })
  expect(gateway.received).toEqual([])
})

test('contract §6: the same call again gives the saved payload, byte for byte, and asks nobody for a context', async () => {
  const first = answerOf(await ask(sign))
  const calls = gateway.calls.length
  const again = answerOf(await ask(sign))
  expect(again).toMatchObject({
    payload: first.payload,
    journal_id: first.journal_id,
    reused: true,
  })
  expect(gateway.calls).toHaveLength(calls)
  const alone = await ask('sign will-it-hold --outcome p2 -o -')
  expect(alone.stdout).toBe(JSON.stringify(first.payload))
})

test('R5: -o writes the exact bytes, 0600, and no signature to the terminal', async () => {
  const ran = await ask('sign will-it-hold --outcome p2 -o payload.json')
  const path = join(home, 'payload.json')
  const { signature } = JSON.parse(readFileSync(path, 'utf8'))
  expect(statSync(path).mode & 0o777).toBe(0o600)
  expect(ran.stdout + ran.stderr).not.toContain(signature.slice(2, 40))
  expect(ran.stdout).toContain('proposer submit will-it-hold payload.json')
})

test('contract §6: what is signed is shown on stderr before it is', async () => {
  const { stderr } = await ask('sign will-it-hold --outcome p2')
  for (const shown of [
    'Will it hold?',
    'Yes (p2)',
    bondRaw,
    proposer,
    pins.signed_proposer,
    question,
    '0xaaaaaaaa',
  ])
    expect(stderr).toContain(shown)
})

test('contract §6: --dry-run shows the typed data, signs nothing and writes nothing', async () => {
  const shown = answerOf(await ask([...sign, '--dry-run']))
  expect(shown).toMatchObject({
    schema: 'proposer.preview/1',
    dry_run: true,
    outcome: 'p2',
    amount: bondRaw,
    typed_data: { primaryType: 'PermitWitnessTransferFrom' },
  })
  expect(JSON.stringify(shown)).not.toContain('signature')
  expect(readdirSync(home)).not.toContain('journal')
})

test('contract §6: --context signs offline for what `context --json` printed', async () => {
  writeFileSync(join(home, 'context.json'), (await ask('context will-it-hold --json')).stdout)
  env = { PROPOSER_KEY_FILE: join(home, 'key') }
  const fetch = async () => {
    throw new Error('offline')
  }
  const signed = answerOf(await ask([...sign, '--context', 'context.json'], { fetch }))
  expect(signed).toMatchObject({ question_id: question })
})

test('R9: a context file with another oracle exits 2 naming the field, and nothing is signed', async () => {
  const lying = {
    ...gateway.question,
    request: { ...gateway.question.request, oracle: `0x${'e'.repeat(40)}` },
  }
  writeFileSync(join(home, 'context.json'), JSON.stringify(lying))
  const ran = await ask([...sign, '--context', 'context.json'])
  expect(ran.code).toBe(2)
  expect(errorOf(ran)).toMatchObject({ code: 'untrusted_oracle' })
  expect(ran.stdout).toBe('')
})

test('R8: another answer for the open question exits 5, names the authorization and what settles it', async () => {
  const first = answerOf(await ask(sign))
  const other = await ask('sign will-it-hold --outcome p1 --json')
  expect(other.code).toBe(5)
  expect(errorOf(other)).toMatchObject({ code: 'authorization_open' })
  expect(other.stderr).toContain(String(first.journal_id))
  const superseding = answerOf(
    await ask(`sign will-it-hold --outcome p1 --supersede ${first.journal_id} --json`),
  )
  expect(superseding.payload).toMatchObject({ outcome: 'p1' })
})

test.each([
  [['sign', 'x'], 'bad_outcome'],
  [['sign', 'x', '--outcome', 'p4'], 'bad_outcome'],
  [['sign', 'X', '--outcome', 'p2'], 'invalid_identifier'],
  [['sign', 'x', '--outcome', 'p2', '--amount', '1.5'], 'bad_number'],
  [['sign', 'x', '--outcome', 'p2', '--nonce', '-1'], 'bad_number'],
  [['sign', 'x', '--outcome', 'p2', '--deadline', 'soon'], 'bad_deadline'],
  [['sign', 'x', '--outcome', 'p2', '--client-ref', 'a\u0007'], 'bad_client_ref'],
  [['sign', 'x', '--outcome', 'p2', '--context', 'not-there'], 'input_unreadable'],
  [[...sign, '--supersede', ''], 'not_superseded'],
  [['sign'], 'usage'],
])('contract §6: %j exits 2 with %s', async (argv, code) => {
  const ran = await ask([...argv, '--json'])
  expect(errorOf(ran)).toMatchObject({ code, exit_code: 2 })
  expect(ran.stdout).toBe('')
})

test('contract §6: --deadline 90m lies 90 minutes ahead', async () => {
  const { payload } = answerOf(await ask([...sign, '--deadline', '90m'])) as {
    payload: { permit: { deadline: string } }
  }
  const ahead = Number(payload.permit.deadline) - Date.now() / 1000
  expect(ahead).toBeGreaterThan(80 * 60)
  expect(ahead).toBeLessThan(91 * 60)
})

test('contract §7: without a key it exits 2 and says what to do', async () => {
  env = { PROPOSER_GATEWAY: gateway.url }
  const ran = await ask(sign)
  expect(ran.code).toBe(2)
  expect(errorOf(ran)).toMatchObject({
    code: 'no_account',
    hint: expect.stringContaining('proposer account new'),
  })
})

test('robustness §6: PROPOSER_PRIVATE_KEY works with a warning that does not show it', async () => {
  env = { PROPOSER_GATEWAY: gateway.url }
  const ran = await ask('sign will-it-hold --outcome p2 --quiet', {
    environmentKey: key,
  })
  expect(ran.code).toBe(0)
  expect(ran.stderr).toContain('warning: the key comes from PROPOSER_PRIVATE_KEY')
  expect(ran.stdout + ran.stderr).not.toContain(key.slice(2))
})

test('robustness §6: a key file that others may read is refused with exit 2', async () => {
  writeFileSync(join(home, 'open'), key, { mode: 0o644 })
  env = { ...env, PROPOSER_KEY_FILE: join(home, 'open') }
  const ran = await ask(sign)
  expect(ran.code).toBe(2)
  expect(errorOf(ran)).toMatchObject({ code: 'key_file_mode' })
})

test('contract §7: --account with --password-file signs; the wrong password exits 2', async () => {
  writeFileSync(join(home, 'password'), 'correct horse\n', { mode: 0o600 })
  writeFileSync(join(home, 'wrong'), 'incorrect horse\n', { mode: 0o600 })
  answerOf(await ask('account import hot --key-file key --password-file password --json'))
  env = { PROPOSER_GATEWAY: gateway.url }
  const wrong = await ask([...sign, '--account', 'hot', '--password-file', 'wrong'])
  expect(wrong.code).toBe(2)
  expect(errorOf(wrong)).toMatchObject({ code: 'wrong_password' })
  expect(
    answerOf(await ask([...sign, '--account', 'hot', '--password-file', 'password'])),
  ).toMatchObject({ signer: proposer })
})

test('contract §6: a keystore without --password-file and without a terminal exits 2 naming the flag', async () => {
  writeFileSync(join(home, 'password'), 'correct horse\n', { mode: 0o600 })
  await ask('account import hot --key-file key --password-file password')
  const ran = await ask([...sign, '--account', 'hot'])
  expect(ran.code).toBe(2)
  expect(errorOf(ran).hint).toContain('--password-file')
})

describe('account', () => {
  test('contract §6: new, list and show agree, and nothing of the key is printed', async () => {
    writeFileSync(join(home, 'password'), 'correct horse', { mode: 0o600 })
    const made = answerOf(await ask('account new hot --password-file password --json'))
    expect(made).toMatchObject({
      schema: 'proposer.account/1',
      name: 'hot',
      address: expect.stringMatching(/^0x[0-9a-f]{40}$/),
    })
    expect(answerOf(await ask('account list --json'))).toMatchObject({
      accounts: [{ name: 'hot', address: made.address }],
    })
    expect(answerOf(await ask('account show hot --json'))).toMatchObject({
      address: made.address,
    })
    expect(statSync(join(home, 'keystores', 'hot.json')).mode & 0o777).toBe(0o600)
  })

  test('robustness §6: on a terminal the password is typed twice and must be the same', async () => {
    const differing = await ask('account new hot', {
      interactive: true,
      stdin: 'one\ntwo\n',
    })
    expect(differing.code).toBe(2)
    expect(differing.stderr).toContain('the passwords do not match')
    const same = await ask('account new hot', { interactive: true, stdin: 'one\none\n' })
    expect(same.code).toBe(0)
    expect(same.stdout + same.stderr).not.toMatch(/one\b(?!.*password)/)
  })

  test('a password that is easy to guess is told before it is taken; a longer one is not', async () => {
    const typed = await ask('account new weak', { interactive: true, stdin: 'pw\npw\n' })
    expect(typed.code, typed.stderr).toBe(0)
    expect(typed.stderr).toMatch(/warning: the password has 2 characters: .*Repeat password/s)
    writeFileSync(join(home, 'short'), 'eleven char\n', { mode: 0o600 })
    writeFileSync(join(home, 'password'), 'twelve chars\n', { mode: 0o600 })
    const made = (name: string, file: string) =>
      ask(['account', 'new', name, '--password-file', file, '--json'])
    expect(JSON.parse((await made('short', 'short')).stderr)).toMatchObject({
      warning: { code: 'password_weak', detail: expect.stringContaining('11 characters') },
    })
    expect((await made('long', 'password')).stderr).toBe('')
  })

  test.each([
    [['account', 'show', 'not-there'], 'account_not_found'],
    [['account', 'new', '../up', '--password-file', 'password'], 'invalid_account_name'],
    [['account', 'import', 'x', '--key-file', 'key', '--keystore', 'y'], 'usage'],
    [['account', 'import', 'x'], 'password_needed'],
    [['account', 'new', 'x', '--password-file', 'empty'], 'password_empty'],
  ])('contract §6: %j exits 2 with %s', async (argv, code) => {
    writeFileSync(join(home, 'password'), 'correct horse', { mode: 0o600 })
    writeFileSync(join(home, 'empty'), '\n', { mode: 0o600 })
    expect(errorOf(await ask([...argv, '--json']))).toMatchObject({ code, exit_code: 2 })
  })

  test('contract §6: an account is never overwritten', async () => {
    writeFileSync(join(home, 'password'), 'correct horse', { mode: 0o600 })
    await ask('account new hot --password-file password')
    const again = await ask('account new hot --password-file password --json')
    expect(errorOf(again)).toMatchObject({ code: 'account_exists', exit_code: 2 })
  })
})

/** A gateway that is busy for the first calls for a context. */
const busyFirst = (times: number): NonNullable<RunOptions['fetch']> => {
  let left = times
  return async (input, init) =>
    String(input).endsWith('/signing-data') && left-- > 0
      ? Response.json(
          { error: { code: 'server_busy', detail: 'busy' } },
          { status: 503, headers: { 'retry-after': '2' } },
        )
      : gateway.fetch(input, init)
}

test('a gateway that is busy before the signature is asked again while --timeout lasts', async () => {
  const inTime = await ask('submit will-it-hold --outcome p2 --timeout 60', {
    fetch: busyFirst(2),
  })
  expect(inTime.code).toBe(0)
  expect(inTime.stderr).toMatch(/attempt 1: .*busy; .* in \d+ s/s)
  expect(gateway.received).toHaveLength(1)
})

test.each([
  ['beyond --timeout', ['--timeout', '5']],
  ['where no time is given', []],
])('one that stays busy %s is exit 75, and nothing is signed', async (_when, flags) => {
  const late = await ask([...submit, ...flags], { fetch: busyFirst(9) })
  expect([late.code, errorOf(late).code]).toEqual([75, 'server_busy'])
  expect(gateway.received).toEqual([])
  expect(JSON.parse((await ask('journal list --json')).stdout).authorizations).toEqual([])
})

test('spec §4.1 rule 3: signs and sends; the same call again is a replay of the same bytes with the same candidate', async () => {
  const first = answerOf(await ask(submit))
  expect(Object.keys(first).slice(0, 7)).toEqual([
    'schema',
    'journal_id',
    'outcome',
    'candidate_id',
    'status',
    'question_id',
    'received_at',
  ])
  expect(first).toMatchObject({
    schema: 'proposer.submitted/1',
    outcome: 'accepted',
    question_id: question,
  })
  const again = answerOf(await ask(submit))
  expect(again).toMatchObject({
    outcome: 'replayed',
    candidate_id: first.candidate_id,
    journal_id: first.journal_id,
  })
  expect(new Set(gateway.received).size).toBe(1)
})

test('contract §6: a signed payload goes as it is, from a file or from stdin', async () => {
  const { stdout } = await ask('sign will-it-hold --outcome p2 -o -')
  writeFileSync(join(home, 'payload.json'), stdout)
  const byFile = answerOf(await ask('submit will-it-hold payload.json --json'))
  const byStdin = answerOf(await ask('submit will-it-hold - --json', { stdin: stdout }))
  expect(byStdin).toMatchObject({ candidate_id: byFile.candidate_id, outcome: 'replayed' })
  expect(gateway.received).toEqual([stdout, stdout])
})

test('contract §6: --wait polls to the end and answers with the whole status', async () => {
  gateway.steps.push(...structuredClone(happySteps))
  const done = answerOf(await ask([...submit, '--wait']))
  expect(done).toMatchObject({
    outcome: 'accepted',
    status: 'executed',
    candidate: { submission: { status: 'indexed', proposal_event_index: 3 } },
  })
})

test('contract §6: --wait on a candidate that fails prints its status and exits 7', async () => {
  const failure = {
    stage: 'validation',
    code: 'insufficient_balance',
    detail: 'short of 5',
    retryable: true,
    can_resubmit: true,
    next_action: 'fund_wallet',
  } as const
  gateway.steps.push({ status: 'failed', failure })
  const ran = await ask([...submit, '--wait'])
  expect(ran.code).toBe(7)
  expect(JSON.parse(ran.stdout)).toMatchObject({ status: 'failed', candidate: { failure } })
  expect(errorOf(ran)).toMatchObject({ exit_code: 7, code: 'insufficient_balance' })
})

test('contract §6: --wait that runs out of time prints what is known and exits 8', async () => {
  const ran = await ask([...submit, '--wait', '--timeout', '20'])
  expect(ran.code).toBe(8)
  expect(JSON.parse(ran.stdout)).toMatchObject({ outcome: 'accepted', status: 'received' })
})

test('contract §6: --wait of what was admitted exits 8, never 75, where no status could be asked for in its time', async () => {
  const fetch: typeof gateway.fetch = async (input, init) => {
    if (!String(input).includes('/status')) return gateway.fetch(input, init)
    const error = { error: { code: 'server_busy', detail: 'too many calls are in flight' } }
    return Response.json(error, { status: 503, headers: { 'retry-after': '1' } })
  }
  const ran = await ask([...submit, '--wait', '--timeout', '20'], { fetch })
  expect(errorOf(ran)).toMatchObject({
    code: 'still_pending',
    exit_code: 8,
    detail: expect.stringContaining(
      'was received when it was admitted; the time limit was reached before any status was known',
    ),
    hint: expect.stringContaining('proposer poll'),
  })
  expect(JSON.parse(ran.stdout)).toMatchObject({
    outcome: 'accepted',
    status: 'received',
    candidate: null,
  })
})

test.each([
  [403, 'proposer_not_eligible', 4],
  [409, 'candidate_conflict', 5],
  [422, 'permit_amount_below_required_bond', 3],
  [404, 'question_not_found', 3],
])(
  "contract §6: %i %s exits %i with the gateway's code and a hint",
  async (status, code, exitCode) => {
    gateway.faults.push({ status, code, detail: 'evil \u001b[2J text' })
    const ran = await ask(submit)
    expect(ran.code).toBe(exitCode)
    expect(errorOf(ran)).toMatchObject({
      code,
      exit_code: exitCode,
      hint: expect.stringMatching(/\w/),
    })
    expect(ran.stderr).not.toContain('\u001b')
  },
)

test('contract §6: --dry-run with a payload tells where it would go and sends nothing', async () => {
  const { stdout } = await ask('sign will-it-hold --outcome p2 -o -')
  const shown = await ask('submit will-it-hold - --dry-run --json', {
    stdin: stdout,
  })
  expect(answerOf(shown)).toMatchObject({
    dry_run: true,
    origin: gateway.url,
    proposer,
    outcome: 'p2',
  })
  expect(shown.stdout).not.toContain('signature')
  expect(gateway.received).toEqual([])
})

test.each([
  [['submit', 'will-it-hold'], '', 'bad_outcome'],
  [['submit', 'will-it-hold', '-', '--outcome', 'p2'], '{}', 'flag_without_meaning'],
  [['submit', 'will-it-hold', '-'], 'not json', 'input_not_json'],
  [['submit', 'will-it-hold', '-'], '{}', 'invalid_payload'],
  [['submit', 'will-it-hold', '-', '--dry-run'], '{}', 'invalid_payload'],
  [['submit', 'will-it-hold', 'not-there'], '', 'input_unreadable'],
])('contract §6: %j exits 2 and sends nothing', async (argv, stdin, code) => {
  const ran = await ask([...argv, '--json'], { stdin })
  expect(ran.code).toBe(2)
  expect(errorOf(ran)).toMatchObject({ code })
  expect(gateway.received).toEqual([])
})

test('contract §6: poll --all follows every accepted candidate of this gateway to its end', async () => {
  const { candidate_id } = answerOf(await ask(submit))
  gateway.steps.push(...structuredClone(happySteps))
  const polled = answerOf(await ask('poll --all --json'))
  expect(polled).toMatchObject({
    schema: 'proposer.status/1',
    candidates: [{ candidate_id, status: 'executed' }],
  })
  expect(answerOf(await ask('poll --json'))).toEqual({
    schema: 'proposer.status/1',
    candidates: [],
  })
})

test('contract §6: --until stops at the stage, --ndjson is a line a status and the summary last', async () => {
  const { candidate_id } = answerOf(await ask(submit))
  gateway.steps.push(...structuredClone(happySteps))
  const ran = await ask(`poll ${candidate_id} --until selected --ndjson`)
  expect(ran.code).toBe(0)
  const lines = ran.stdout
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line))
  expect(lines.map(({ status }) => status)).toEqual(['validated', 'selected', undefined])
  expect(lines[2]).toMatchObject({
    schema: 'proposer.status/1',
    summary: { candidates: 1, missing: 0 },
  })
})

test('contract §6: status asks once; a failed candidate exits 7 with what to do next', async () => {
  const { candidate_id } = answerOf(await ask(submit))
  expect(answerOf(await ask(`status ${candidate_id} --json`))).toMatchObject({
    candidates: [{ status: 'received' }],
  })
  const failure = {
    stage: 'selection',
    code: 'not_selected',
    detail: 'another one was first',
    retryable: false,
    can_resubmit: false,
    next_action: 'wait_for_new_round',
  } as const
  gateway.become(String(candidate_id), { status: 'failed', failure })
  const failed = await ask(`status ${candidate_id} --json`)
  expect(failed.code).toBe(7)
  expect(errorOf(failed)).toMatchObject({
    code: 'not_selected',
    retryable: false,
    hint: expect.stringContaining(`proposer reconcile ${question}`),
  })
})

test('contract §6: a candidate the journal does not know needs --question', async () => {
  const id = '11111111-1111-4111-8111-111111111111'
  expect(errorOf(await ask(`status ${id} --json`))).toMatchObject({
    code: 'question_unknown',
    exit_code: 2,
    hint: expect.stringContaining('--question'),
  })
  expect(errorOf(await ask(`status ${id} --question ${question} --json`))).toMatchObject({
    code: 'candidate_not_found',
    exit_code: 3,
  })
  expect(errorOf(await ask('status ../../x --json'))).toMatchObject({
    code: 'invalid_candidate_id',
    exit_code: 2,
  })
  expect(errorOf(await ask(`poll ${id} --until done --json`))).toMatchObject({
    code: 'bad_stage',
    exit_code: 2,
  })
  expect(errorOf(await ask(`poll ${id} --all --json`))).toMatchObject({
    code: 'ids_and_all',
    exit_code: 2,
  })
})

test.each([40, 80])(
  'contract §6: people see a status at %i columns, hashes whole',
  async (columns) => {
    const { candidate_id } = answerOf(await ask(submit))
    for (const step of happySteps) gateway.become(String(candidate_id), step)
    const { stdout } = await ask(`status ${candidate_id}`, { columns })
    expect(stdout).toMatch(new RegExp(`^${candidate_id}\\s+executed$`, 'm'))
    expect(stdout).toContain(`0x${'7'.repeat(64)}`)
    for (const line of stdout.split('\n').filter((one) => one.length > columns))
      expect(line.trim()).toMatch(/^\S+$/)
  },
)

test('contract §6: replay with nothing to do says so and exits 0', async () => {
  expect(answerOf(await ask('replay --json'))).toEqual({
    schema: 'proposer.replay/1',
    results: [],
    elsewhere: [],
  })
  expect((await ask('replay')).stdout).toBe(
    'nothing to replay: no outcome is unknown or deferred\n',
  )
})

test('contract §6: replay sends only to the origin of the attempt, unless a gateway is a flag beside the id', async () => {
  gateway.faults.push(...Array.from({ length: 30 }, () => 'lost-answer' as const))
  await ask(submit)
  gateway.faults.length = 0
  const [{ journal_id }] = JSON.parse((await ask('journal list --json')).stdout).authorizations
  const sent = gateway.received.length
  env = { ...env, PROPOSER_GATEWAY: 'https://other.example' }
  const elsewhere = await ask('replay --json')
  expect(elsewhere.code).toBe(6)
  expect(JSON.parse(elsewhere.stdout)).toMatchObject({
    results: [],
    elsewhere: [{ journal_id, origin: gateway.url, flag: expect.stringContaining(gateway.url) }],
  })
  expect(gateway.received).toHaveLength(sent)
  const redirected = answerOf(
    await ask(`replay ${journal_id} --gateway https://third.example --json`),
  )
  expect(redirected).toMatchObject({ results: [{ journal_id, outcome: 'replayed' }] })
})

test('contract §6: an unknown journal id exits 2', async () => {
  expect(errorOf(await ask('replay 0123456789abcdef-1 --json'))).toMatchObject({
    code: 'unknown_journal_id',
    exit_code: 2,
  })
  expect(errorOf(await ask('journal show x --json'))).toMatchObject({
    code: 'unknown_journal_id',
    exit_code: 2,
  })
})

test('R5: list and show never hold the signature; --reveal-signature gives the payload', async () => {
  const { journal_id, payload } = answerOf(await ask(sign)) as {
    journal_id: string
    payload: { signature: string }
  }
  for (const argv of [
    ['journal', 'list'],
    ['journal', 'show', journal_id],
  ]) {
    for (const form of [[], ['--json']])
      expect((await ask([...argv, ...form])).stdout).not.toContain(payload.signature.slice(2, 40))
  }
  expect(answerOf(await ask(`journal show ${journal_id} --reveal-signature --json`))).toMatchObject(
    {
      journal_id,
      state: 'signed',
      payload,
    },
  )
})

test('R24: journal list, show and verify create nothing where there is no journal', async () => {
  expect(answerOf(await ask('journal list --json'))).toEqual({
    schema: 'proposer.journal/1',
    authorizations: [],
  })
  expect(answerOf(await ask('journal verify --json'))).toMatchObject({
    schema: 'proposer.journal-proof/1',
    authorizations: 0,
  })
  expect(readdirSync(home).sort()).toEqual(['key', 'trust'])
})

test('R11: a changed byte in the journal exits 74 and names the file', async () => {
  await ask(sign)
  expect(answerOf(await ask('journal verify --json'))).toMatchObject({
    authorizations: 1,
    runs: 1,
  })
  const log = logFile(join(home, 'journal'))
  const bytes = readFileSync(log)
  bytes[40] = (bytes[40] ?? 0) ^ 1
  writeFileSync(log, bytes)
  const damaged = await ask('journal verify --json')
  expect(damaged.code).toBe(74)
  expect(errorOf(damaged).detail).toContain(log)
  expect((await ask('journal list --json')).code).toBe(74)
  expect((await ask(submit)).code).toBe(74)
})

/** The one log segment of the one run. */
function logFile(journal: string): string {
  const [path] = readdirSync(journal, { recursive: true, encoding: 'utf8' }).filter((name) =>
    /log-\d+\.jsonl$/.test(name),
  )
  if (path === undefined) throw new Error('no log')
  return join(journal, path)
}
