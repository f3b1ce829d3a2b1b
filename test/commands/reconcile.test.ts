import { chmodSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Chain, Fetch } from '#ports'
import { InterruptedError } from '#protocol/errors'
import {
  type Argv,
  answerOf,
  lastErrorOf,
  type Ran,
  type RunOptions,
  run,
  writeTrust,
} from '#support/cli'
import { type Desk, instantClock, openDesk, proposer, submit } from '#support/desk'
import {
  ask as askOnChain,
  createFakeChain,
  dispute,
  endow,
  type FakeChain,
  invalidateNonces,
  questionText,
} from '#support/fake-chain'
import { fakeTrust, requestOf } from '#support/fake-world'
import { contextOnChain, happySteps, scriptedGateway } from '#support/scripted-gateway'

let { home, gateway, env, question } = {} as Desk
beforeEach(async () => {
  ;({ home, gateway, env, question } = await openDesk())
})

const ask = (argv: Argv, more: RunOptions = {}) =>
  run(home, argv, { env, fetch: gateway.fetch, clock: instantClock(), ...more })
interface Told {
  readonly authorizations: {
    journal: Record<string, unknown>
    gateway: Record<string, unknown> | null
    next: Record<string, string>
    reward_fell: object | null
  }[]
  readonly not_looked_at: string[]
}
const reconcile = async (more: RunOptions = {}) =>
  answerOf(await ask('reconcile will-it-hold --json', more)) as unknown as Told

test("contract §6: without a gateway and a node it tells the journal's word and what it could not look at", async () => {
  env = {}
  const told = await reconcile()
  expect(told).toMatchObject({
    schema: 'proposer.reconcile/1',
    question_id: question,
    authorizations: [],
    chain: null,
    gateway: null,
  })
  expect(told.not_looked_at).toEqual([
    expect.stringContaining('--gateway'),
    expect.stringContaining('--rpc-url'),
  ])
  expect(readdirSync(home)).not.toContain('journal')
  expect(lastErrorOf(await ask('reconcile no-such-slug --json'))).toMatchObject({
    code: 'untrusted_slug',
    exit_code: 2,
  })
})

test('contract §6: with nothing in the journal people see the gateway, and where to go on', async () => {
  const { stdout } = await ask('reconcile will-it-hold')
  expect(stdout).toMatch(/^gateway +http/m)
  expect(stdout).toContain('the journal holds nothing for this question\nnext: ')
  expect(stdout).toContain('\n  proposer context will-it-hold\n')
  for (const line of stdout.split('\n')) expect(line.length).toBeLessThanOrEqual(80)
})

test('contract §6: what was signed and never sent is to be sent', async () => {
  await ask('sign will-it-hold --outcome p2')
  expect((await reconcile()).authorizations).toMatchObject([
    { journal: { state: 'signed', outcome: 'p2' }, next: { action: 'submit' } },
  ])
})

test('contract §6: an accepted one is polled; its end at the gateway is journaled, and nothing is left to do', async () => {
  const { candidate_id } = answerOf(await ask(submit))
  expect((await reconcile()).authorizations).toMatchObject([
    {
      journal: { state: 'accepted', candidate_id },
      gateway: { status: 'received' },
      next: { action: 'poll', command: `proposer poll ${candidate_id}` },
    },
  ])
  for (const step of happySteps) gateway.become(String(candidate_id), step)
  expect((await reconcile()).authorizations).toMatchObject([
    { journal: { state: 'closed', reason: 'executed' }, next: { action: 'none' } },
  ])
})

test('spec §7: after a failure that is over it is safe to sign anew; one that may still execute is replayed', async () => {
  const { candidate_id } = answerOf(await ask(submit))
  const failure = { stage: 'validation', detail: 'short', can_resubmit: true } as const
  gateway.become(String(candidate_id), {
    status: 'failed',
    failure: {
      ...failure,
      code: 'insufficient_balance',
      retryable: true,
      next_action: 'fund_wallet',
    },
  })
  expect((await reconcile()).authorizations).toMatchObject([
    { next: { action: 'replay', text: expect.stringContaining('insufficient_balance') } },
  ])
  gateway.become(String(candidate_id), {
    status: 'failed',
    failure: {
      ...failure,
      code: 'permit_expired',
      retryable: false,
      next_action: 'sign_new_authorization',
    },
  })
  expect((await reconcile()).authorizations).toMatchObject([
    { journal: { state: 'closed', reason: 'failed' }, next: { action: 'sign_anew' } },
  ])
})

test('R7: an unknown outcome is replayed, never signed again', async () => {
  gateway.faults.push(...Array.from({ length: 30 }, () => 'lost-answer' as const))
  expect((await ask(submit)).code).toBe(6)
  const [entry] = (await reconcile()).authorizations
  expect(entry).toMatchObject({
    journal: { state: 'unknown' },
    next: { action: 'replay', command: expect.stringContaining('proposer replay') },
  })
})

test('contract §6: what was never admitted is replayed; a 409 too; a refused one leaves the question free', async () => {
  gateway.faults.push({ status: 422, code: 'permit_amount_below_required_bond' })
  expect((await ask(submit)).code).toBe(3)
  gateway.faults.push({ status: 409, code: 'candidate_conflict' })
  expect((await ask(submit)).code).toBe(5)
  const [refused, conflict] = (await reconcile()).authorizations
  expect(refused).toMatchObject({
    journal: { state: 'closed', reason: 'refused' },
    next: { action: 'sign_anew' },
  })
  expect(conflict).toMatchObject({
    journal: { state: 'conflict', code: 'candidate_conflict' },
    next: { action: 'replay' },
  })
})

test('§7 rule 2: a candidate that the gateway has lost is sent again with the same bytes', async () => {
  answerOf(await ask([...submit, '--client-ref', 'row 7']))
  const fresh = scriptedGateway()
  const [entry] = (await reconcile({ fetch: fresh.fetch })).authorizations
  expect(entry?.next).toMatchObject({
    action: 'replay',
    text: expect.stringContaining('send the same bytes again, do not sign another'),
  })
})

test('contract §6: a gateway that does not answer hides nothing else', async () => {
  answerOf(await ask(submit))
  const silent: Fetch = async () =>
    new Response('<html>', { status: 502, headers: { 'content-type': 'text/html' } })
  const told = await reconcile({ fetch: silent })
  expect(told.authorizations).toMatchObject([
    { gateway: { error: { code: 'gateway_body' } }, next: { action: 'poll' } },
  ])
  expect(told.not_looked_at).toContainEqual(
    expect.stringContaining('the gateway does not report it'),
  )
})

test('R20: it reads well at 40 and 80 columns, and never shows a signature', async () => {
  answerOf(await ask(submit))
  const { payload } = JSON.parse((await ask('sign will-it-hold --outcome p2 --json')).stdout)
  for (const columns of [40, 80]) {
    const { stdout } = await ask('reconcile will-it-hold', { columns })
    expect(stdout).toContain('next: ')
    expect(stdout).not.toContain(payload.signature.slice(2, 40))
  }
})

describe('reconcile beside a chain', () => {
  let chain: FakeChain
  beforeEach(() => {
    chain = createFakeChain()
    const ancillary = questionText('Will it hold?')
    question = askOnChain(chain, ancillary)
    endow(chain, proposer as `0x${string}`)
    chain.mine(3)
    gateway = scriptedGateway(contextOnChain(chain, ancillary, question), 'will-it-hold')
    writeTrust(home, { ...fakeTrust, slugs: { 'will-it-hold': question } })
    env = { ...env, PROPOSER_RPC_URL: 'http://127.0.0.1:8545' }
  })
  const clockOf = (of: Chain): RunOptions => ({
    chain: of,
    clock: instantClock(() => Number(chain.head.timestamp) * 1000),
  })

  const spend = (signed: object) => {
    const { payload } = signed as { payload: { permit: { nonce: string } } }
    const nonce = BigInt(payload.permit.nonce)
    invalidateNonces(chain, proposer as `0x${string}`, nonce >> 8n, 1n << (nonce & 255n))
  }

  test('contract §9: init keeps an approval below what is reserved, and asks for none where it cannot be read', async () => {
    answerOf(await ask(submit, clockOf(chain)))
    chain.world.allowances.set(proposer, 1n)
    const { stdout } = await ask('init --json', clockOf(chain))
    expect(JSON.parse(stdout).steps).toContainEqual(
      expect.objectContaining({ step: 'approval', result: 'kept' }),
    )
    chain.fault('block', 'unavailable')
    const ran = await ask('init --json --profile default', { ...clockOf(chain), interactive: true })
    const stderr = expect.not.stringContaining('how much')
    expect(ran).toMatchObject({ code: 75, stdout: '', stderr })
    expect(lastErrorOf(ran)).toMatchObject({ code: 'chain_unavailable', retryable: true })
  })

  test('R7, spec §7 rule 3: an unknown one of an ended round is for the out-of-band channel, without its signature', async () => {
    gateway.faults.push(...Array.from({ length: 30 }, () => 'lost-answer' as const))
    expect((await ask([...submit, '--client-ref', 'row 7'], clockOf(chain))).code).toBe(6)
    dispute(chain, question as `0x${string}`)
    chain.mine(3)
    const [entry] = (await reconcile(clockOf(chain))).authorizations
    expect(entry?.next.action).toBe('out_of_band')
    expect(entry?.next.text).toMatch(new RegExp(`${question}.*row 7.*submitted at \\d{4}-`))
    expect(entry?.next.text).not.toMatch(/0x[0-9a-f]{100}/)
  })

  test('R14: a spent nonce is waited for until it is final, and only then closes the authorization', async () => {
    spend(answerOf(await ask('sign will-it-hold --outcome p2 --json', clockOf(chain))))
    chain.mine(1)
    expect((await reconcile(clockOf(chain))).authorizations).toMatchObject([
      { journal: { state: 'signed' }, next: { action: 'wait' } },
    ])
    chain.mine(3)
    expect((await reconcile(clockOf(chain))).authorizations).toMatchObject([
      {
        journal: { state: 'closed', reason: 'nonce_used' },
        settled: 'nonce_used',
        next: { action: 'sign_anew' },
      },
    ])
  })

  test('what is signed meanwhile is looked up on the chain', async () => {
    const { journal_id: id } = answerOf(await ask(submit, clockOf(chain)))
    const argvs = [`sign will-it-hold --outcome p1 --supersede ${id} --json`]
    const fetch: Fetch = async (...args) => {
      for (const argv of argvs.splice(0)) spend(answerOf(await ask(argv, clockOf(chain))))
      chain.mine(4)
      return gateway.fetch(...args)
    }
    const { authorizations } = await reconcile({ ...clockOf(chain), fetch })
    expect(JSON.stringify(authorizations)).toContain('"settled":"nonce_used"')
  })

  test('contract §1: a deadline that finalized chain time has passed closes the authorization', async () => {
    answerOf(await ask('sign will-it-hold --outcome p2 --deadline 301s --json', clockOf(chain)))
    chain.mine(160)
    const told = await reconcile(clockOf(chain))
    expect(told.authorizations).toMatchObject([
      { journal: { reason: 'expired' }, settled: 'expired', next: { action: 'sign_anew' } },
    ])
  })

  test('domain §10: a reward that fell after the signature is told, in tokens for people', async () => {
    const set = (rewardRaw: bigint) => {
      chain.happen((world) => {
        requestOf(world, [...world.questions.keys()][0] as `0x${string}`).rewardRaw = rewardRaw
        return []
      })
      chain.mine()
    }
    set(5_000_000n)
    await ask('sign will-it-hold --outcome p2', clockOf(chain))
    const fell = async () =>
      (await reconcile(clockOf(chain))).authorizations.map((one) => one.reward_fell)
    expect(await fell()).toEqual([null])
    set(0n)
    expect(await fell()).toEqual([{ signed: '5000000', now: '0' }])
    const { stdout } = await ask('reconcile will-it-hold', clockOf(chain))
    expect(stdout.replace(/\s+/g, ' ')).toMatch(
      /the reward is 0 \S+ now; it was 5 \S+ when this was signed/,
    )
    set(6_000_000n)
    expect(await fell()).toEqual([null])
  })

  test("a node that does not answer is told, and the journal's word still stands", async () => {
    await ask('sign will-it-hold --outcome p2', clockOf(chain))
    chain.fault('block', 'unavailable', { times: 20 })
    const told = await reconcile(clockOf(chain))
    expect(told.not_looked_at).toContainEqual(expect.stringContaining('the chain was not checked'))
    expect(told.authorizations).toMatchObject([{ next: { action: 'submit' } }])
  })

  test('R16: a node of another chain is refused, exit 2', async () => {
    const elsewhere: Chain = { ...chain, chainId: async () => 1 }
    const ran = await ask('reconcile will-it-hold --json', clockOf(elsewhere))
    expect(lastErrorOf(ran)).toMatchObject({ code: 'untrusted_chain_id', exit_code: 2 })
  })
})

describe('contract §6: doctor for people', () => {
  test('tells them once what many checks miss, in words, and what to give', async () => {
    const { stdout } = await ask('doctor')
    expect(stdout).toContain('skip  trust on chain, balance, allowance, account code: ')
    expect(stdout).toMatch(/^ok +journal: sound: 0 authorizations, 0 records, 0 runs$/m)
    expect(stdout.match(/fix: give --rpc-url <url>/g)).toHaveLength(1)
    expect(stdout).not.toMatch(/^\S+ +\w+_\w+:/m)
    const { checks } = JSON.parse((await ask('doctor --json')).stdout) as {
      checks: { id: string; fix: string }[]
    }
    for (const id of ['trust_on_chain', 'balance', 'allowance', 'account_code'])
      expect(checks.find((one) => one.id === id)?.fix).not.toBe('')
  })
})

test('R5: one line an authorization with all that accounting asks for, and no signature unless revealed', async () => {
  const first = answerOf(await ask([...submit, '--client-ref', 'row 7']))
  const { stdout, stderr } = await ask('journal export')
  expect(stderr).toBe('')
  const [line, ...rest] = stdout.trim().split('\n')
  expect(rest).toEqual([])
  expect(JSON.parse(line ?? '')).toMatchObject({
    journal_id: first.journal_id,
    question_id: question,
    client_ref: 'row 7',
    outcome: 'p2',
    amount: '750000000',
    state: 'accepted',
    candidate_id: first.candidate_id,
    attempts: 1,
    last_class: 'accepted',
    origins: [gateway.url],
    closed_at: null,
    transaction_hash: null,
  })
  expect(stdout).not.toContain('signature')
  expect((await ask('journal export --reveal-signature')).stdout).toContain('"signature":"0x')
  expect(answerOf(await ask('journal export --json'))).toMatchObject({
    schema: 'proposer.journal-export/1',
    authorizations: [{}],
  })
})

test('robustness §6: CSV is RFC 4180, and no cell begins like a formula', async () => {
  await ask([...submit, '--client-ref', '=cmd|"x",1'])
  const { stdout } = await ask('journal export --csv')
  const [header, row, end] = stdout.split('\r\n')
  expect(header).toMatch(/^journal_id,signed_at,question_id,/)
  expect(row).toContain('"\'=cmd|""x"",1"')
  expect(end).toBe('')
  expect(stdout).not.toContain('signature')
  expect((await ask('journal export --csv --reveal-signature')).stdout).toContain(
    '""signature"":""0x',
  )
})

test('R24: an empty journal exports nothing and creates nothing', async () => {
  expect((await ask('journal export')).stdout).toBe('')
  expect(readdirSync(home)).not.toContain('journal')
})

const checksOf = (ran: Ran) =>
  Object.fromEntries(
    (
      JSON.parse(ran.stdout).checks as {
        id: string
        result: string
        detail: string
        fix: string
      }[]
    ).map((check) => [check.id, check]),
  )

test('contract §6: with nothing configured every check says what it needs, and what fails makes exit 2', async () => {
  env = {}
  const ran = await run(home, 'doctor --json --trust not-there.json', { env })
  expect(ran.code).toBe(2)
  expect(lastErrorOf(ran)).toMatchObject({
    code: 'doctor_found_faults',
    detail: expect.stringContaining('trust, account'),
  })
  const checks = checksOf(ran)
  expect(checks).toMatchObject({
    trust: { result: 'fail', fix: expect.stringContaining('proposer trust init') },
    account: { result: 'fail', fix: expect.stringContaining('proposer account new') },
    gateway: { result: 'skip' },
    rpc: { result: 'skip' },
    journal: { result: 'pass' },
  })
  for (const { result, fix } of Object.values(checks))
    if (result === 'fail') expect(fix).toMatch(/\w/)
  expect(readdirSync(home).sort()).toEqual(['key', 'trust'])
})

test('spec §8: it costs one item of the budget at most, and tells an ineligible wallet', async () => {
  gateway.ineligible.add(proposer)
  const ran = await ask('doctor --json')
  expect(ran.code).toBe(2)
  expect(checksOf(ran)).toMatchObject({
    gateway: { result: 'pass' },
    eligibility: { result: 'fail', fix: expect.stringContaining('operator') },
  })
  // The list of receipt keys is free of charge.
  expect(gateway.calls).toEqual([
    'GET /healthz',
    'GET /.well-known/http-message-signatures-directory',
    `GET /v1/proposals/eligibility/${proposer}`,
  ])
})

test('contract §6: a busy gateway is no failed precondition: whether the wallet is eligible is not known, and it says when to ask again', async () => {
  const busy: Fetch = async (input, init) => {
    if (!new URL(new Request(input, init).url).pathname.includes('/eligibility/'))
      return gateway.fetch(input, init)
    const body = JSON.stringify({
      error: { code: 'server_busy', detail: 'the gateway is overloaded' },
    })
    return new Response(body, {
      status: 503,
      headers: { 'content-type': 'application/json', 'retry-after': '2' },
    })
  }
  const ran = await ask('doctor --json', { fetch: busy })
  expect(ran.code, ran.stderr).toBe(0)
  expect(checksOf(ran)).toMatchObject({
    gateway: { result: 'pass' },
    eligibility: {
      result: 'skip',
      detail: 'not known: the gateway is overloaded',
      fix: 'retry in 2 seconds',
    },
  })
})

test("contract §6: the gateway's clock is compared by its Date header", async () => {
  const dated =
    (aheadMs: number): Fetch =>
    async (input, init) => {
      const answer = await gateway.fetch(input, init)
      answer.headers.set('date', new Date(Date.now() + aheadMs).toUTCString())
      return answer
    }
  expect(checksOf(await ask('doctor --json', { fetch: dated(0) })).clock).toMatchObject({
    result: 'pass',
  })
  expect(checksOf(await ask('doctor --json', { fetch: dated(-60_000) })).clock).toMatchObject({
    result: 'warn',
  })
  expect(checksOf(await ask('doctor --json', { fetch: dated(600_000) })).clock).toMatchObject({
    result: 'fail',
  })
})

test('R5: a key file that others may read, and a damaged journal, fail with their fix', async () => {
  answerOf(await ask(submit))
  chmodSync(join(home, 'key'), 0o644)
  const [log] = readdirSync(join(home, 'journal'), {
    recursive: true,
    encoding: 'utf8',
  }).filter((name) => /log-\d+\.jsonl$/.test(name))
  const path = join(home, 'journal', String(log))
  const bytes = readFileSync(path)
  bytes[40] = (bytes[40] ?? 0) ^ 1
  writeFileSync(path, bytes)
  const ran = await ask('doctor --json')
  expect(ran.code).toBe(2)
  expect(checksOf(ran)).toMatchObject({
    key_files: { result: 'fail', fix: expect.stringContaining('chmod 600') },
    journal: { result: 'fail', detail: expect.stringContaining('log-') },
    open: { result: 'skip' },
  })
})

test('R7: open unknowns are warned about with the command that settles them', async () => {
  gateway.faults.push(...Array.from({ length: 30 }, () => 'lost-answer' as const))
  await ask(submit)
  const ran = await ask('doctor --json')
  expect(ran.code).toBe(0)
  expect(checksOf(ran).open).toMatchObject({
    result: 'warn',
    detail: '1 unknown',
    fix: expect.stringContaining('proposer replay'),
  })
  // What is pasted acts on the same journal.
  const elsewhere = await ask(['doctor', '--json', '--home', home])
  expect(checksOf(elsewhere).open?.fix).toContain(`proposer replay --all --home ${home}`)
  const shown = await ask('doctor', { columns: 60 })
  expect(shown.stdout).toMatch(/WARN {2}open: 1 unknown\n {6}fix: /)
})

test('contract §6: a gateway that is not there, or redirects, fails without a second call', async () => {
  const gone: Fetch = async () => {
    throw Object.assign(new Error('connect'), { code: 'ECONNREFUSED' })
  }
  expect(checksOf(await ask('doctor --json', { fetch: gone }))).toMatchObject({
    gateway: {
      result: 'fail',
      detail: expect.stringMatching(/^gateway \S+: connection refused \(ECONNREFUSED\)$/),
    },
    eligibility: { result: 'skip' },
  })
  const away: Fetch = async () =>
    new Response(null, { status: 307, headers: { location: 'https://evil.example' } })
  expect(checksOf(await ask('doctor --json', { fetch: away }))).toMatchObject({
    gateway: { result: 'fail' },
  })
})

test.each([['reconcile', 'will-it-hold'], ['doctor']])(
  'contract §9, Ctrl-C: %s that is stopped while it asks the gateway ends with 130',
  async (...argv) => {
    expect((await ask(submit)).code).toBe(0)
    const stop = new AbortController()
    const fetch: typeof gateway.fetch = async () => {
      stop.abort(new InterruptedError('interrupted', 'stopped by SIGINT'))
      throw stop.signal.reason
    }
    for (const more of [[], ['--json']]) {
      const ran = await ask([...argv, ...more], { fetch, signal: stop.signal })
      expect(ran.code, ran.stdout).toBe(130)
      expect(ran.stderr).toContain('stopped by SIGINT')
    }
  },
)
