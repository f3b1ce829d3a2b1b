/**
 * What people and programs read of outcomes that stay open: hints that can be pasted, rounds that
 * are over, failures that may be retried.
 */
import { join } from 'node:path'
import type { Fetch } from '#ports'
import {
  type Argv,
  errorOf,
  lastErrorOf,
  type Ran,
  type RunOptions,
  run,
  wordsOf,
} from '#support/cli'
import { nextRound } from '#support/client-world'
import { openDay } from '#support/day-world'
import { type Desk, instantClock, openDesk, submit } from '#support/desk'
import { scriptedGateway } from '#support/scripted-gateway'
import { startWallet } from '#support/wallet-server'

let { home, gateway, question } = {} as Desk
beforeEach(async () => {
  ;({ home, gateway, question } = await openDesk())
})

const env = () => ({ PROPOSER_KEY_FILE: join(home, 'key') })
const ask = (argv: Argv, more: RunOptions = {}) =>
  run(home, [...wordsOf(argv), '--gateway', gateway.url], {
    env: env(),
    fetch: gateway.fetch,
    clock: instantClock(),
    ...more,
  })

/** The only answers to it were lost. */
async function lostSubmission(more: string[] = []): Promise<{ id: string; ran: Ran }> {
  gateway.faults.push(...Array.from({ length: 30 }, () => 'lost-answer' as const))
  const ran = await ask([...submit, ...more])
  gateway.faults.length = 0
  const [{ journal_id: id }] = JSON.parse((await ask('journal list --json')).stdout).authorizations
  return { id, ran }
}

test('contract §6: the hint of exit 6 names the command with the flags that were given', async () => {
  const { id, ran } = await lostSubmission(['--home', home])
  expect(errorOf(ran)).toMatchObject({
    exit_code: 6,
    hint: expect.stringContaining(
      `\`proposer replay ${id} --gateway ${gateway.url} --home ${home}\``,
    ),
  })
})

test('§7 rule 3: replay of a round that is over exits 6 with the out-of-band line in result and error, and is sent once', async () => {
  const { id } = await lostSubmission(['--client-ref', 'mine-1'])
  nextRound(gateway)
  gateway.faults.push({ status: 403, code: 'signature_not_authorized' })
  const outOfBand = {
    question_id: question,
    client_ref: 'mine-1',
    submitted_at: expect.stringMatching(/Z$/),
  }
  const first = await ask(`replay ${id} --json`)
  const sent = gateway.received.length
  const second = await ask(`replay ${id} --json`)
  expect(gateway.received).toHaveLength(sent)
  for (const ran of [first, second]) {
    expect(ran.code).toBe(6)
    expect(JSON.parse(ran.stdout).results).toMatchObject([
      { journal_id: id, outcome: 'unknown', out_of_band: outOfBand },
    ])
    expect(errorOf(ran)).toMatchObject({
      code: 'round_over',
      hint: expect.stringContaining(`proposer reconcile ${question} --gateway`),
    })
    expect(errorOf(ran).detail).toContain('mine-1')
  }
})

test('§7 rule 3: submit --json tells the older one it settled in its result, and by a warning', async () => {
  const { id } = await lostSubmission()
  nextRound(gateway)
  gateway.faults.push(
    { status: 409, code: 'round_advanced' },
    { status: 422, code: 'permit_deadline_too_soon' },
  )
  const failed = await ask(submit)
  expect(lastErrorOf(failed)).toMatchObject({ exit_code: 3, code: 'permit_deadline_too_soon' })
  expect(failed.stderr).toMatch(/^\{"warning":\{"code":"out_of_band","detail":".*out of band/m)
  const sent = gateway.received.length
  const ran = await ask(submit)
  expect(ran.code).toBe(0)
  // What is known to be over is not sent again.
  expect(gateway.received).toHaveLength(sent + 1)
  expect(JSON.parse(ran.stdout).settled).toMatchObject([
    { journal_id: id, outcome: 'unknown', out_of_band: { question_id: question } },
  ])
})

test('contract §5: after a retryable failure status and poll name the commands; replay --all names it, replay by id sends it', async () => {
  const failure = {
    stage: 'validation',
    code: 'insufficient_allowance',
    detail: 'Permit2 may move 5',
    retryable: true,
    can_resubmit: true,
    next_action: 'approve_permit2',
  } as const
  const { candidate_id: candidate, journal_id: id } = JSON.parse((await ask(submit)).stdout)
  gateway.become(candidate, { status: 'failed', failure })
  const commands = new RegExp(
    `proposer funds approve.* --gateway .*proposer replay ${id} --gateway`,
  )
  for (const argv of [
    ['status', candidate],
    ['poll', candidate],
  ]) {
    const ran = await ask([...argv, '--json'])
    expect(ran.code).toBe(7)
    expect(errorOf(ran).hint).toMatch(commands)
  }
  const people = await ask(['status', candidate], { columns: 200 })
  expect(people.stdout).toContain('proposer funds approve')
  expect(people.stdout).toContain(`proposer replay ${id}`)
  const all = await ask('replay --all --json')
  expect(JSON.parse(all.stdout)).toMatchObject({
    results: [],
    skipped: [{ journal_id: id, skipped: 'failed_retryably', command: `proposer replay ${id}` }],
  })
  const told = await ask('replay --all')
  expect(told.stdout).toBe('nothing was sent\n')
  expect(told.stderr).toContain(`proposer replay ${id}`)
  expect((await ask(`replay ${id} --json`)).code).toBe(0)
})

test('R8: a wallet that does not answer within --timeout keeps its question: another answer needs --supersede', async () => {
  const wallet = await startWallet(async () => new Promise(() => undefined))
  onTestFinished(() => wallet.close())
  const proposer = `0x${'ab'.repeat(20)}`
  const outside = ['--signer', wallet.url, '--proposer', proposer, '--json']
  const late = await ask(['sign', 'will-it-hold', '--outcome', 'p2', '--timeout', '1', ...outside])
  expect(errorOf(late)).toMatchObject({ code: 'signer_timed_out', exit_code: 75 })
  const other = await ask(['sign', 'will-it-hold', '--outcome', 'p1', '--timeout', '1', ...outside])
  expect(errorOf(other)).toMatchObject({
    code: 'authorization_open',
    exit_code: 5,
    hint: expect.stringContaining('--supersede'),
  })
  expect(wallet.asked).toHaveLength(1)
})

const busy = () =>
  Response.json({ error: { code: 'server_busy', detail: 'busy' } }, { status: 503 })

test('contract §6: --timeout is for the whole; those of the batch form go together', async () => {
  const day = await openDay({ questions: 30, hasNode: false })
  const rows = day.rows(
    'rows.ndjson',
    day.questionIds.map((identifier) => ({ identifier, outcome: 'p2' })),
  )
  const away =
    (fetch: Fetch): Fetch =>
    (input, init) =>
      /batch$/.test(String(input)) ? Promise.resolve(busy()) : fetch(input, init)
  const deferred = await day.clock.drive(day.run(`batch submit ${rows} --timeout 60 --json`, away))
  expect(deferred.code, deferred.stderr).toBe(75)
  const startMs = day.clock.monotonicMs()
  const late = await day.clock.drive(day.run('replay --all --timeout 8 --json', away))
  expect(late.code, late.stderr).toBe(75)
  expect(day.clock.monotonicMs() - startMs).toBeLessThan(16_000)
  expect(day.submitted).toEqual([])
  const done = await day.clock.drive(day.run('replay --all --json'))
  expect(done.code, done.stderr).toBe(0)
  // Only what was signed before is sent; the first call learns the rate limit.
  const { results } = JSON.parse(done.stdout) as { results: { outcome: string }[] }
  expect(new Set(results.map(({ outcome }) => outcome))).toEqual(new Set(['accepted']))
  expect(day.submitted.length).toBeLessThanOrEqual(2)
})

test('§7 rule 2: a gateway that lost its store gets the same bytes again; its newest id is followed, whichever run learned it', async () => {
  // One clock for all runs.
  const clock = instantClock()
  expect((await ask(submit, { clock })).code).toBe(0)
  const [{ journal_id: id }] = JSON.parse((await ask('journal list --json')).stdout)
    .authorizations as [{ journal_id: string }]
  for (const lost of [1, 2, 3, 4]) {
    // Another gateway with nothing in it, whose ids are new.
    const before = gateway.question
    gateway = scriptedGateway(before)
    const ids = (at: string) => at.replaceAll('-4000-8000-', `-4000-800${lost}-`)
    const old = gateway.fetch
    const fetch: Fetch = async (input, init) => {
      const answer = await old(String(input).replace(`-4000-800${lost}-`, '-4000-8000-'), init)
      return new Response(ids(await answer.text()), answer)
    }
    const told = await ask(`reconcile ${question} --json`, { fetch, clock })
    expect(told.code, told.stderr).toBe(0)
    expect(JSON.parse(told.stdout).authorizations[0].next).toMatchObject({
      action: 'replay',
      command: `proposer replay ${id}`,
    })
    const poll = await ask('poll --all --json', { fetch, clock })
    expect(errorOf(poll).hint).toContain(`proposer reconcile ${question}`)
    expect((await ask(`replay ${id} --json`, { fetch, clock })).code).toBe(0)
    const list = await ask('journal list --json', { fetch, clock })
    expect(JSON.parse(list.stdout).authorizations[0].candidate_id).toContain(`-800${lost}-`)
    expect(
      (
        await ask('poll --all --until validated --timeout 1 --json', {
          fetch,
          clock,
        })
      ).code,
    ).toBe(8)
  }
})
