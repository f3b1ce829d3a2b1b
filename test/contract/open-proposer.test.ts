import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { privateKeyToAccount } from 'viem/accounts'
import { type Proposer, type ProposerOptions, proposerOn, signerFromViem } from '#bot/open-proposer'
import { systemPorts } from '#io/system'
import { TransportError } from '#ports'
import {
  ConflictError,
  FailedError,
  InterruptedError,
  UnauthorizedError,
  UncertainError,
  UsageError,
} from '#protocol/errors'
import { type BatchWorld, failed, openBatchWorld } from '#support/batch-world'
import { makeWallet } from '#support/fake-view'

let world: BatchWorld
const opened: Proposer[] = []
beforeEach(async () => {
  world = await openBatchWorld()
})
afterEach(async () => {
  for (const one of opened.splice(0)) await one.close()
})

const signer = () => signerFromViem(privateKeyToAccount(world.wallet.privateKey))

async function open(changes: Partial<ProposerOptions> = {}): Promise<Proposer> {
  const one = await proposerOn(
    { ...systemPorts(), clock: world.clock },
    {
      home: world.home,
      gateway: 'http://127.0.0.1:8787',
      trust: join(world.home, 'trust', 'default.json'),
      signer: signer(),
      fetch: world.fetch,
      ...changes,
    },
  )
  opened.push(one)
  return one
}

const terms = (name = 'one') => ({ identifier: world.ask(name).questionId, outcome: 'p2' }) as const
const isSubmission = (path: string) => /^\/v1\/proposals\/[^/]+$/.test(path)
const signaturesIn = (calls: BatchWorld['calls']) =>
  new Set(calls.flatMap(({ body }) => body.match(/"signature":"0x[0-9a-f]+"/g) ?? []))
async function all<T>(results: AsyncIterable<T>): Promise<readonly T[]> {
  const found: T[] = []
  for await (const one of results) found.push(one)
  return found
}

describe('one proposal', () => {
  test('is signed, admitted and followed to its end; the command line finds it in its journal', async () => {
    const proposer = await open()
    const sent = await proposer.submit({ ...terms(), outcome: 'yes', clientRef: 'mine' })
    expect(sent).toMatchObject({ outcome: 'accepted', candidate: { status: 'received' } })
    await world.execute(sent.candidate.candidateId)
    const { candidates, error } = await proposer.follow(sent.candidate.candidateId)
    expect([candidates[0]?.status, error]).toEqual(['executed', undefined])
    const { stdout } = await world.run('journal list --json')
    expect(JSON.parse(stdout).authorizations).toMatchObject([
      { journal_id: sent.authorization.id, state: 'closed', client_ref: 'mine' },
    ])
  })

  test('contract §6: what it proposed, and executed in this round, is said again and not refused', async () => {
    const question = world.ask('one')
    const proposer = await open()
    const wanted = { identifier: question.questionId, outcome: 'p2' }
    const { candidateId } = (await proposer.submit(wanted)).candidate
    await world.execute(candidateId)
    await proposer.follow(candidateId)
    world.front.view.put({ ...question, round: { ...question.round, state: 'proposed' } })
    const done = { outcome: 'replayed', candidate: { candidateId, status: 'executed' } }
    expect(await proposer.submit(wanted)).toMatchObject(done)
    expect(await all(proposer.submitAll([wanted]))).toMatchObject([done])
  })

  test('a Polymarket URL names a question as its slug does', async () => {
    const { questionId } = world.ask('one')
    const trust = JSON.parse(readFileSync(join(world.home, 'trust', 'default.json'), 'utf8'))
    const proposer = await open({ trust: { ...trust, slugs: { 'one-market': questionId } } })
    const identifier = 'https://polymarket.com/event/some-event/one-market'
    await expect(proposer.submit({ identifier, outcome: 'p2' })).rejects.toMatchObject({
      code: 'question_not_found',
    })
    expect((await proposer.reconcile(identifier)).questionId).toBe(questionId)
  })

  test('R7: a lost answer is an UncertainError; asked again, by another process too, it sends the same bytes and signs nothing', async () => {
    const wanted = terms()
    const notes: string[] = []
    world.intercept.after = async (path, answer) => {
      if (isSubmission(path))
        throw new TransportError('exchange', 'ECONNRESET', 'the answer was lost')
      return answer
    }
    const proposer = await open({ onNote: (text) => notes.push(text) })
    await expect(proposer.submit(wanted)).rejects.toThrow(UncertainError)
    expect(notes.join('\n')).toContain('resending the same bytes in')
    world.intercept = {}
    const again = await (await open()).submit(wanted)
    expect(again.outcome).toBe('replayed')
    expect(new Set(world.calls.map(({ body }) => body)).size).toBe(1)
  })

  test('R8: asked for twice at once it is signed once; another answer is a ConflictError that names the first', async () => {
    const proposer = await open()
    const wanted = terms()
    const [one, other] = await Promise.all([proposer.submit(wanted), proposer.submit(wanted)])
    expect(one?.authorization.id).toBe(other?.authorization.id)
    expect(signaturesIn(world.calls).size).toBe(1)
    const error = await proposer.submit({ ...wanted, outcome: 'p1' }).catch((e: unknown) => e)
    expect(error).toBeInstanceOf(ConflictError)
    expect(error).toMatchObject({
      code: 'authorization_open',
      meta: { hint: expect.stringContaining(`--supersede ${one.authorization.id}`) },
    })
  })

  test('a wallet that is not allowed is an UnauthorizedError, a failed candidate a FailedError', async () => {
    const stranger = await open({
      signer: signerFromViem(privateKeyToAccount(makeWallet().privateKey)),
    })
    await expect(stranger.submit(terms())).rejects.toThrow(UnauthorizedError)
    const proposer = await open()
    const { candidateId } = (await proposer.submit(terms('other'))).candidate
    await world.become(candidateId, failed('superseded', false))
    const { error } = await proposer.follow([candidateId])
    expect(error).toBeInstanceOf(FailedError)
  })

  test('an account that signs typed data only signs the same digest', async () => {
    const account = privateKeyToAccount(world.wallet.privateKey)
    const { address, signTypedData } = account
    const proposer = await open({ signer: signerFromViem({ address, signTypedData }) })
    expect(await proposer.submit(terms())).toMatchObject({ outcome: 'accepted' })
    const rows = [terms('second'), terms('third')]
    expect((await all(proposer.submitAll(rows))).map(({ outcome }) => outcome)).toEqual([
      'accepted',
      'accepted',
    ])
  })
})

describe('many proposals', () => {
  test('contract §6: what a wallet was given before counts in the sum of the run', async () => {
    const { address, signTypedData } = privateKeyToAccount(world.wallet.privateKey)
    const rows = [terms('given'), terms('second')]
    const [{ identifier }] = rows as [(typeof rows)[0]]
    const { code, stderr } = await world.run([
      ...[
        'sign',
        identifier,
        '--outcome',
        'p2',
        '--typed-data',
        '--proposer',
        address.toLowerCase(),
      ],
    ])
    expect([code, stderr]).toEqual([0, expect.any(String)])
    const proposer = await open({ signer: signerFromViem({ address, signTypedData }) })
    const maxSpendRaw = world.ask('given').round.totalBondRaw
    const results = await all(proposer.submitAll(rows, { fit: true, maxSpendRaw }))
    expect(results.map(({ outcome, error }) => [outcome, error?.code])).toEqual([
      ['accepted', undefined],
      ['rejected', 'over_max_spend'],
    ])
  })

  const rows = (count: number) => Array.from({ length: count }, (_, n) => terms(`question ${n}`))

  test('§8: 150 of them wait for the rate limit and meet no 429; run again, the same bytes', async () => {
    const refused: number[] = []
    world.intercept.after = async (_path, answer) => {
      if (answer.status === 429) refused.push(answer.status)
      return answer
    }
    const wanted = rows(150)
    const proposer = await open()
    const results = await all(proposer.submitAll(wanted))
    expect(results.map(({ outcome }) => outcome)).toEqual(wanted.map(() => 'accepted'))
    expect(results.map(({ row }) => row.identifier)).toEqual(wanted.map((one) => one.identifier))
    const again = await all((await open()).submitAll(wanted, { resume: true }))
    expect(again.map(({ outcome }) => outcome)).toEqual(wanted.map(() => 'accepted'))
    expect([refused, signaturesIn(world.calls).size]).toEqual([[], 150])
  })

  test('each row has its own error; what is wrong with the input stops all of it before a signature', async () => {
    const proposer = await open()
    const gone = `0x${'77'.repeat(32)}` as const
    const mixed = await all(
      proposer.submitAll([terms('next'), { identifier: gone, outcome: 'p1', clientRef: 'gone' }]),
    )
    expect(mixed.map(({ outcome, error }) => [outcome, error?.code])).toEqual([
      ['accepted', undefined],
      ['rejected', 'question_not_found'],
    ])
    await proposer.submit({ ...terms('holder'), nonce: 7n })
    const before = world.calls.length
    const twice = terms('twice')
    for (const [input, code] of [
      [[twice, twice], 'duplicate_row'],
      [[], 'empty_input'],
      [[{ ...twice, identifier: 'Not A Slug' }], 'invalid_row'],
      [[{ ...twice, clientRef: 'a\u0000b' }], 'invalid_row'],
    ] as const)
      await expect(all(proposer.submitAll(input))).rejects.toMatchObject({ code })
    const taken = proposer.submitAll([terms('free'), { ...twice, nonce: 7n }])
    await expect(all(taken)).rejects.toMatchObject({ code: 'nonce_reserved' })
    await expect(all(proposer.submitAll([twice], { maxSpendRaw: 1n }))).rejects.toMatchObject({
      code: 'over_max_spend',
    })
    expect(world.calls.length).toBe(before)
  })

  test('left early, nothing more is sent', async () => {
    const proposer = await open()
    for await (const one of proposer.submitAll(rows(101))) {
      expect(one.outcome).toBe('accepted')
      break
    }
    expect(world.calls.flatMap(({ items }) => items)).toHaveLength(100)
  })
})

test('stops what is running with an InterruptedError, and what comes after is refused', async () => {
  let answer = (_response: Response) => {}
  const asked = new Promise<void>((resolve) => {
    world.intercept.before = async (path) => {
      if (!isSubmission(path)) return undefined
      resolve()
      return new Promise((respond) => {
        answer = respond
      })
    }
  })
  const proposer = await open({
    trust: JSON.parse(readFileSync(join(world.home, 'trust', 'default.json'), 'utf8')),
  })
  const running = proposer.submit(terms()).catch((error: unknown) => error)
  await asked
  const closed = proposer[Symbol.asyncDispose]()
  const busy = { error: { code: 'server_busy', detail: 'busy' } }
  answer(Response.json(busy, { status: 503, headers: { 'retry-after': '1' } }))
  await closed
  expect(await running).toBeInstanceOf(InterruptedError)
  await expect(proposer.submit(terms())).rejects.toMatchObject({ code: 'proposer_closed' })
  await proposer.close()
})

describe('what it refuses', () => {
  test.each([
    [{ gateway: 'ftp://gateway.example' }, 'invalid_base_url'],
    [{ rpcUrl: 'ws://node.example/key' }, 'invalid_rpc_url'],
    [{ trust: '/nowhere/trust.json' }, 'input_unreadable'],
    [{ trust: {} as never }, 'invalid_trust'],
  ])('%j: %s', async (changes, code) => {
    const error = await open(changes).catch((e: unknown) => e)
    expect(error).toBeInstanceOf(UsageError)
    expect(error).toMatchObject({ code })
    expect(String(error)).not.toContain('key')
  })

  test('terms that name nothing, and funds without a node', async () => {
    const proposer = await open()
    const wrong = [
      [{ identifier: 'Not A Slug', outcome: 'p2' }, 'invalid_identifier'],
      [{ ...terms('other'), outcome: '' }, 'bad_outcome'],
      [{ ...terms(), outcome: 'Nobody' }, 'bad_outcome'],
    ] as const
    for (const [one, code] of wrong)
      await expect(proposer.submit(one)).rejects.toMatchObject({ code, meta: { exitCode: 2 } })
    await expect(proposer.funds()).rejects.toMatchObject({ code: 'no_rpc_url' })
    await expect(proposer.positions()).rejects.toMatchObject({ code: 'no_rpc_url' })
    expect(() => signerFromViem({ address: world.wallet.address })).toThrow(UsageError)
  })
})
