import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { privateKeyToAccount } from 'viem/accounts'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { type Chain, TransportError } from '../../src/core/ports.js'
import { type Ran, type RunOptions, run, temporaryHome } from '../support/cli.js'
import {
  ask as askOnChain,
  createFakeChain,
  createFakeClock,
  endow,
  type FakeChain,
  questionText,
  rivalProposes,
} from '../support/fake-chain.js'
import { adapter, fakeContracts } from '../support/fake-world.js'
import { questionContext, scriptedGateway } from '../support/scripted-gateway.js'

const key = `0x${'11'.repeat(32)}` as const
const proposer = privateKeyToAccount(key).address.toLowerCase() as `0x${string}`
const second = `0x${'5a'.repeat(20)}` as const
const text = questionText('Will it hold?')

let home: Awaited<ReturnType<typeof temporaryHome>>
let chain: FakeChain
let question: string
beforeEach(async () => {
  home = await temporaryHome()
  chain = createFakeChain()
  question = askOnChain(chain, text)
  endow(chain, proposer)
  chain.mine(3)
  writeFileSync(join(home.path, 'key'), `${key}\n`, { mode: 0o600 })
})
afterEach(() => home.remove())

const trustRequesters = (...requesters: { address: string; kind: string }[]) => {
  const { chainId: chain_id, permit2, signedProposer: signed_proposer, oracles, tokens } = fakeContracts
  mkdirSync(join(home.path, 'trust'), { recursive: true })
  const trust = { chain_id, permit2, signed_proposer, oracles, requesters, tokens, slugs: {} }
  writeFileSync(join(home.path, 'trust', 'default.json'), JSON.stringify(trust))
}
const go = (argv: string[], more: RunOptions) =>
  run(home.path, argv, {
    clock: createFakeClock(chain),
    ...more,
    env: { PROPOSER_KEY_FILE: join(home.path, 'key'), PROPOSER_RPC_URL: 'http://127.0.0.1:8545', ...more.env },
  })
const answerOf = (ran: Ran) => {
  expect([ran.code, ran.stderr]).toEqual([0, expect.not.stringContaining('"error"')])
  return JSON.parse(ran.stdout) as Record<string, unknown>
}
const errorOf = (ran: Ran): Record<string, unknown> => JSON.parse(ran.stderr.trim().split('\n').at(-1) ?? '').error

describe('contract §6, §7: requesters of kind direct, beside a node', () => {
  const named = `0x${'77'.repeat(32)}`

  /** A gateway whose registry has the request under an id of its own. */
  const registryGateway = (timestamp = String(chain.world.questions.get(question as `0x${string}`)?.timestamp)) => {
    const plain = questionContext('Will it hold?')
    const request = { oracle: String(fakeContracts.oracles[0]), requester: adapter, timestamp, ancillary_data: text }
    return scriptedGateway({
      ...plain,
      question_id: named,
      request: { ...plain.request, ...request, question_id: named },
      bond: { token: String(fakeContracts.tokens[0]), required_bond: '750000000' },
      contracts: { permit2: fakeContracts.permit2, signed_proposer: fakeContracts.signedProposer },
      signing: { ...plain.signing, chain_id: fakeContracts.chainId },
    })
  }

  test("the gateway's registry tells the request, the chain confirms it, and it is submitted", async () => {
    trustRequesters({ address: adapter, kind: 'direct' })
    const gateway = registryGateway()
    const beside = { chain, fetch: gateway.fetch, env: { PROPOSER_GATEWAY: gateway.url } }
    const submitted = answerOf(await go(['submit', named, '--outcome', 'p2', '--json'], beside))
    expect(submitted).toMatchObject({ question_id: named, outcome: 'accepted', unchecked: [] })
    writeFileSync(join(home.path, 'rows.ndjson'), `${JSON.stringify({ identifier: named, outcome: 'p2' })}\n`)
    const batch = answerOf(await go(['batch', 'submit', join(home.path, 'rows.ndjson'), '--json'], beside))
    expect(batch).toMatchObject({ results: [{ outcome: 'replayed' }] })
  })

  test('a gateway that is down keeps only its own rows of a batch back', async () => {
    trustRequesters({ address: adapter, kind: 'uma-ctf-adapter' }, { address: second, kind: 'direct' })
    const gateway = registryGateway()
    const fetch = async () => {
      throw new TransportError('connect', 'ECONNREFUSED', 'connection refused')
    }
    writeFileSync(join(home.path, 'ids'), `${question}\n${named}\n`)
    const ran = await go(['batch', 'context', join(home.path, 'ids'), '--json'], { chain, fetch, env: { PROPOSER_GATEWAY: gateway.url } })
    const [known, missing] = JSON.parse(ran.stdout).questions
    expect([known.question_id, known.error, missing.error.code]).toEqual([question, undefined, 'no_connection'])
  })

  test('R9: a request that the oracle does not know is not signed; without a gateway the hint says who knows it', async () => {
    trustRequesters({ address: adapter, kind: 'direct' })
    const gateway = registryGateway('1')
    const sign = ['sign', named, '--outcome', 'p2', '--json']
    const refused = errorOf(await go(sign, { chain, fetch: gateway.fetch, env: { PROPOSER_GATEWAY: gateway.url } }))
    expect(refused).toMatchObject({ code: 'question_not_found' })
    const alone = errorOf(await go(sign, { chain }))
    expect(alone).toMatchObject({ code: 'question_not_found', hint: expect.stringContaining('give --gateway') })
  })
})

describe('domain §5.1: one text at two adapters', () => {
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

  test('a note names both, and --requester reaches the second one', async () => {
    trustRequesters(...both)
    const dryRun = ['sign', question, '--outcome', 'p2', '--dry-run']
    const ambiguous = await go(dryRun, { chain: twice() })
    expect(ambiguous.code).toBe(0)
    expect(ambiguous.stderr.replace(/\s+/g, ' ')).toContain(`${adapter} is taken; name another with --requester: ${second}`)
    const shown = await go([...dryRun, '--requester', second, '--json'], { chain: twice() })
    expect(shown.stderr).not.toContain('is taken')
    expect(answerOf(shown)).toMatchObject({ typed_data: { message: { witness: { requester: second } } } })
    expect(answerOf(await go(['context', question, '--requester', second, '--json'], { chain: twice() }))).toMatchObject({
      questions: [{ request: { requester: second } }],
    })
  })

  test('a requester that is not pinned is refused', async () => {
    trustRequesters({ address: adapter, kind: 'uma-ctf-adapter' })
    const refused = await go(['sign', question, '--outcome', 'p2', '--requester', second, '--json'], { chain })
    expect(errorOf(refused)).toMatchObject({ code: 'untrusted_requester', exit_code: 2 })
  })
})

describe('contract §7: pins of a question that is closed', () => {
  test('trust init takes them from the chain; what is pinned already is told', async () => {
    trustRequesters({ address: adapter, kind: 'uma-ctf-adapter' })
    rivalProposes(chain, question as `0x${string}`, `0x${'9'.repeat(40)}`)
    chain.mine(1)
    for (const verb of ['init', 'pin']) {
      const told = answerOf(await go(['trust', verb, question, '--json'], { chain }))
      expect(told).toMatchObject({ requesters: [{ address: adapter }], changed: [], added: [] })
    }
    const nowhere = errorOf(await go(['trust', 'init', `0x${'12'.repeat(32)}`, '--json'], { chain }))
    expect(nowhere).toMatchObject({ code: 'no_context', hint: expect.stringContaining('proposer trust pin --requester') })
  })
})
