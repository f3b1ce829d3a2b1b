import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { type Chain, type Clock, TransportError } from '#ports'
import {
  type Argv,
  answerOf,
  eachHome,
  lastErrorOf,
  type RunOptions,
  run,
  writeTrust,
} from '#support/cli'
import { key, proposer } from '#support/desk'
import {
  ask as askOnChain,
  createFakeChain,
  createFakeClock,
  endow,
  type FakeChain,
  questionText,
  rivalProposes,
} from '#support/fake-chain'
import { adapter, fakeContracts, fakeTrust } from '#support/fake-world'
import { contextOnChain, scriptedGateway } from '#support/scripted-gateway'

const second = `0x${'5a'.repeat(20)}` as const
const text = questionText('Will it hold?')

const home = eachHome()
let chain: FakeChain
let question: `0x${string}`
beforeEach(() => {
  chain = createFakeChain()
  question = askOnChain(chain, text)
  endow(chain, proposer)
  chain.mine(3)
  writeFileSync(join(home.path, 'key'), `${key}\n`, { mode: 0o600 })
})

const trustRequesters = (...requesters: { address: string; kind: string }[]) => {
  writeTrust(home.path, { ...fakeTrust, requesters })
}
const go = (argv: Argv, more: RunOptions) =>
  run(home.path, argv, {
    clock: createFakeClock(chain),
    ...more,
    env: {
      PROPOSER_KEY_FILE: join(home.path, 'key'),
      PROPOSER_RPC_URL: 'http://127.0.0.1:8545',
      ...more.env,
    },
  })

const named = `0x${'77'.repeat(32)}` as const

/** A gateway whose registry has the request under an id of its own. */
const registryGateway = (timestamp?: string) => {
  const context = contextOnChain(chain, text, question, named)
  return scriptedGateway({
    ...context,
    request: { ...context.request, ...(timestamp !== undefined && { timestamp }) },
  })
}

test("contract §6: the gateway's registry tells the request, the chain confirms it, and it is submitted", async () => {
  trustRequesters({ address: adapter, kind: 'direct' })
  const gateway = registryGateway()
  const beside = { chain, fetch: gateway.fetch, env: { PROPOSER_GATEWAY: gateway.url } }
  const submitted = answerOf(await go(['submit', named, '--outcome', 'p2', '--json'], beside))
  expect(submitted).toMatchObject({ question_id: named, outcome: 'accepted', unchecked: [] })
  writeFileSync(
    join(home.path, 'rows.ndjson'),
    `${JSON.stringify({ identifier: named, outcome: 'p2' })}\n`,
  )
  const batch = answerOf(
    await go(['batch', 'submit', join(home.path, 'rows.ndjson'), '--json'], beside),
  )
  expect(batch).toMatchObject({ results: [{ outcome: 'replayed' }] })
})

test('contract §6: a gateway that is down keeps only its own rows of a batch back', async () => {
  trustRequesters(
    { address: adapter, kind: 'uma-ctf-adapter' },
    { address: second, kind: 'direct' },
  )
  const gateway = registryGateway()
  const fetch = async () => {
    throw new TransportError('connect', 'ECONNREFUSED', 'connection refused')
  }
  writeFileSync(join(home.path, 'ids'), `${question}\n${named}\n`)
  const ran = await go(['batch', 'context', join(home.path, 'ids'), '--json'], {
    chain,
    fetch,
    env: { PROPOSER_GATEWAY: gateway.url },
  })
  const [known, missing] = JSON.parse(ran.stdout).questions
  expect([known.question_id, known.error, missing.error.code]).toEqual([
    question,
    undefined,
    'no_connection',
  ])
})

test('R9: a request that the oracle does not know is not signed; without a gateway the hint says who knows it', async () => {
  trustRequesters({ address: adapter, kind: 'direct' })
  const gateway = registryGateway('1')
  const sign = ['sign', named, '--outcome', 'p2', '--json']
  const refused = lastErrorOf(
    await go(sign, { chain, fetch: gateway.fetch, env: { PROPOSER_GATEWAY: gateway.url } }),
  )
  expect(refused).toMatchObject({ code: 'question_not_found' })
  const alone = lastErrorOf(await go(sign, { chain }))
  expect(alone).toMatchObject({
    code: 'question_not_found',
    hint: expect.stringContaining('give --gateway'),
  })
})

/** The same question at a second adapter, which answers as the first one does. */
const twice = (): Chain => ({
  ...chain,
  call: (call, at) =>
    chain.call(
      {
        ...call,
        to: call.to === second ? adapter : call.to,
        data: call.data.replaceAll(second.slice(2), adapter.slice(2)) as `0x${string}`,
      },
      at,
    ),
})
const both = [
  { address: adapter, kind: 'uma-ctf-adapter' },
  { address: second, kind: 'uma-ctf-adapter' },
]

test('domain §5.1: a note names both, and --requester reaches the second one', async () => {
  trustRequesters(...both)
  const dryRun = ['sign', question, '--outcome', 'p2', '--dry-run']
  const ambiguous = await go(dryRun, { chain: twice() })
  expect(ambiguous.code).toBe(0)
  expect(ambiguous.stderr.replace(/\s+/g, ' ')).toContain(
    `${adapter} is taken; name another with --requester: ${second}`,
  )
  const shown = await go([...dryRun, '--requester', second, '--json'], { chain: twice() })
  expect(shown.stderr).not.toContain('is taken')
  expect(answerOf(shown)).toMatchObject({
    typed_data: { message: { witness: { requester: second } } },
  })
  expect(
    answerOf(await go(['context', question, '--requester', second, '--json'], { chain: twice() })),
  ).toMatchObject({
    questions: [{ request: { requester: second } }],
  })
})

test('domain §5.1: a requester that is not pinned is refused', async () => {
  trustRequesters({ address: adapter, kind: 'uma-ctf-adapter' })
  const refused = await go(['sign', question, '--outcome', 'p2', '--requester', second, '--json'], {
    chain,
  })
  expect(lastErrorOf(refused)).toMatchObject({ code: 'untrusted_requester', exit_code: 2 })
})

describe('R3: the requester belongs to the round', () => {
  const word = (seconds: bigint) => seconds.toString(16).padStart(64, '0')
  const requesters = [
    { address: adapter, kind: 'uma-ctf-adapter' },
    { address: second, kind: 'uma-ctf-adapter' },
  ]
  const later = () => BigInt(chain.world.questions.get(question as `0x${string}`)?.timestamp ?? 0n)

  /** The second adapter asked the same text some time before the first. */
  const apart = (): Chain => {
    const [first, own] = [word(later()), word(later() - 60n)]
    return {
      ...chain,
      async call({ to, data, ...rest }, at) {
        const isSecond = to === second || data.includes(second.slice(2))
        if (!isSecond) return chain.call({ to, data, ...rest }, at)
        const asked = data
          .replaceAll(second.slice(2), adapter.slice(2))
          .replaceAll(own, first) as `0x${string}`
        const answer = await chain.call(
          { to: to === second ? adapter : to, data: asked, ...rest },
          at,
        )
        return answer.replaceAll(first, own) as `0x${string}`
      },
    }
  }
  const gatewayOf = (requester: `0x${string}`, timestamp: bigint, firstId = 1) => {
    const context = contextOnChain(chain, text, question)
    const request = { ...context.request, requester, timestamp: String(timestamp) }
    return scriptedGateway({ ...context, request }, undefined, firstId)
  }
  /** Waits take no time, but count. */
  const countingClock = (): Clock => {
    let sleptMs = 0
    return {
      nowMs: () => createFakeClock(chain).nowMs() + sleptMs,
      monotonicMs: () => sleptMs,
      sleep: async (ms) => {
        sleptMs += ms
      },
    }
  }
  type Gateway = ReturnType<typeof scriptedGateway>
  const alone = ({ url, fetch }: Gateway) => ({
    fetch,
    env: { PROPOSER_GATEWAY: url, PROPOSER_RPC_URL: '' },
  })
  const beside = ({ url, fetch }: Gateway) => ({
    fetch,
    chain: apart(),
    env: { PROPOSER_GATEWAY: url },
  })
  const submit = (outcome: string, ...more: string[]) => [
    'submit',
    question,
    '--outcome',
    outcome,
    ...more,
    '--json',
  ]

  test("R8: without a node --requester never sends another requester's bytes", async () => {
    trustRequesters(...requesters)
    const gateway = gatewayOf(adapter, later())
    answerOf(await go(submit('p2'), alone(gateway)))
    const refused = await go(submit('p2', '--requester', second), alone(gateway))
    expect(lastErrorOf(refused)).toMatchObject({ code: 'untrusted_requester' })
    expect(gateway.received).toHaveLength(1)
    const other = gatewayOf(second, later(), 101)
    answerOf(await go(submit('p2', '--requester', second), alone(other)))
    expect(other.received).toHaveLength(1)
    expect(other.received).not.toEqual(gateway.received)
    // Each is found again by its own requester.
    answerOf(await go(submit('p2', '--requester', adapter), alone(gateway)))
    expect(new Set(gateway.received).size).toBe(1)
  })

  test('R8: with a node an open authorization at one requester neither blocks the other nor is settled as of an earlier round', async () => {
    trustRequesters(...requesters)
    const gateway = gatewayOf(adapter, later())
    answerOf(await go(submit('p2'), beside(gateway)))
    const there = answerOf(await go(submit('p1', '--requester', second), beside(gateway)))
    expect(there).toMatchObject({ outcome: 'accepted' })
    expect(there).not.toHaveProperty('settled')
    const row = JSON.stringify({ identifier: question, outcome: 'p1' })
    writeFileSync(join(home.path, 'rows.ndjson'), `${row}\n`)
    const batch = ['batch', 'submit', join(home.path, 'rows.ndjson'), '--json']
    expect(answerOf(await go([...batch, '--requester', second], beside(gateway)))).toMatchObject({
      results: [{ outcome: 'replayed' }],
    })
    const blocked = await go(submit('p1', '--requester', adapter), beside(gateway))
    expect(lastErrorOf(blocked)).toMatchObject({ code: 'authorization_open' })
  })

  test('R7, R8: replay and reconcile judge an authorization by the round of its own requester', async () => {
    trustRequesters(...requesters)
    const gateway = gatewayOf(adapter, later())
    gateway.faults.push(...Array.from({ length: 40 }, () => 'lost-answer' as const))
    const more = { ...beside(gateway), clock: countingClock() }
    expect((await go(submit('p2', '--requester', second), more)).code).toBe(6)
    gateway.faults.length = 0
    const [judged] = answerOf(await go(`reconcile ${question} --json`, more))
      .authorizations as object[]
    expect(judged).toMatchObject({ next: { action: 'replay' } })
    const replayed = answerOf(await go('replay --all --json', more))
    expect(replayed).toMatchObject({ results: [{ error: null }] })
    expect(new Set(gateway.received).size).toBe(1)
  })
})

test('contract §7: trust init takes them from the chain; what is pinned already is told', async () => {
  trustRequesters({ address: adapter, kind: 'uma-ctf-adapter' })
  rivalProposes(chain, question as `0x${string}`, `0x${'9'.repeat(40)}`)
  chain.mine(1)
  const { oracles, tokens } = fakeContracts
  const codeOf = (address: string) => `implementation of ${address}`
  for (const verb of ['init', 'pin']) {
    const ran = await go(['trust', verb, question, '--yes', '--json'], { chain })
    expect([ran.code, ran.stderr]).toEqual([0, expect.not.stringContaining('"error"')])
    const told = JSON.parse(ran.stdout)
    // The code that oracle and token run is pinned with the first.
    const added = verb === 'init' ? [...oracles, ...tokens].map(codeOf) : []
    expect(told).toMatchObject({ requesters: [{ address: adapter }], changed: [], added })
  }
  const nowhere = lastErrorOf(await go(`trust init 0x${'12'.repeat(32)} --json`, { chain }))
  expect(nowhere).toMatchObject({
    code: 'no_context',
    hint: expect.stringContaining('proposer trust pin --requester'),
  })
})
