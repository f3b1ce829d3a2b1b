/**
 * `batch` with a node: contexts without budget, and what the wallet covers, on a modelled chain.
 */
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { keccak256 } from 'viem'
import { signerFromKey } from '#io/keys'
import type { Hex } from '#ports'
import { lastErrorOf, proposerHome, run } from '#support/cli'
import { keyBytes } from '#support/client-world'
import {
  ask,
  createFakeChain,
  endow,
  type FakeChain,
  invalidateNonces,
  questionText,
  setPaused,
  upgrade,
} from '#support/fake-chain'
import { fakeContracts, fakeTrust } from '#support/fake-world'

const { address } = signerFromKey(keyBytes(7))
const bondRaw = 750_000_000n

let home: string
let chain: FakeChain
let nowMs: number
let questions: Hex[]
beforeEach(async () => {
  home = proposerHome(fakeTrust, `0x${'07'.repeat(32)}`)
  chain = createFakeChain()
  questions = ['one', 'two', 'three'].map((title) => ask(chain, questionText(title)))
  endow(chain, address)
  chain.mine(3)
  nowMs = Number((await chain.block('latest'))?.timestamp ?? 0n) * 1_000
  writeFileSync(
    join(home, 'rows.ndjson'),
    questions.map((identifier) => JSON.stringify({ identifier, outcome: 'p2' })).join('\n'),
  )
})

const clock = {
  nowMs: () => nowMs,
  monotonicMs: () => performance.now(),
  sleep: async () => undefined,
}
const sign = (...flags: string[]) =>
  run(home, ['batch', 'sign', 'rows.ndjson', '--json', ...flags], {
    env: { PROPOSER_RPC_URL: 'http://127.0.0.1:1', PROPOSER_KEY_FILE: join(home, 'key') },
    chain,
    clock,
  })
const resultsOf = (stdout: string) =>
  (
    JSON.parse(stdout) as {
      results: {
        outcome: string
        journal_id: string | null
        error: { code: string } | null
        payload: { permit: { nonce: string } } | null
      }[]
    }
  ).results
/** Leaves the wallet with so much of the token. */
const leave = (raw: bigint) => endow(chain, address, raw)

test("contract §6: rows are signed from the chain's own word; one whose round is not open is rejected in its place", async () => {
  setPaused(chain, questions[1] ?? '0x', true)
  chain.mine()
  const ran = await sign()
  expect(resultsOf(ran.stdout).map(({ outcome, error }) => error?.code ?? outcome)).toEqual([
    'signed',
    'request_not_open',
    'signed',
  ])
  expect(ran.code).toBe(5)
})

test('§5: a wallet that does not cover the sum signs nothing; with --fit it signs the first rows that it covers', async () => {
  leave(bondRaw * 2n)
  chain.mine()
  const refused = await sign()
  expect(refused.code).toBe(2)
  expect(lastErrorOf(refused)).toMatchObject({
    code: 'insufficient_balance',
    hint: expect.stringContaining('--fit'),
  })
  const fitted = await sign('--fit')
  expect(resultsOf(fitted.stdout).map(({ outcome, error }) => error?.code ?? outcome)).toEqual([
    'signed',
    'signed',
    'insufficient_balance',
  ])
  // What is open reserves: the third does not fit in a later run either.
  const later = await sign('--fit')
  expect(resultsOf(later.stdout).map(({ outcome }) => outcome)).toEqual([
    'reused',
    'reused',
    'rejected',
  ])
})

test('domain §3.2: a nonce that Permit2 has as cancelled is not signed for', async () => {
  invalidateNonces(chain, address, 0n, 1n << 9n)
  chain.mine()
  const [one, two] = questions
  writeFileSync(
    join(home, 'rows.ndjson'),
    [
      { identifier: one, outcome: 'p2', nonce: 9 },
      { identifier: two, outcome: 'p2', nonce: 10 },
    ]
      .map((row) => JSON.stringify(row))
      .join('\n'),
  )
  const results = resultsOf((await sign()).stdout)
  expect(results).toMatchObject([
    { error: { code: 'nonce_spent' }, journal_id: null },
    { payload: { permit: { nonce: '10' } } },
  ])
})

test('R9: contexts of a file are confirmed by the chain', async () => {
  const contexts = await run(home, 'batch context rows.ndjson --json', {
    env: { PROPOSER_RPC_URL: 'http://127.0.0.1:1' },
    chain,
    clock,
  })
  const told = JSON.parse(contexts.stdout) as { questions: { bond: { required_bond: string } }[] }
  const [first] = told.questions
  if (first) first.bond.required_bond = '750000001'
  writeFileSync(join(home, 'contexts.json'), JSON.stringify(told))
  const ran = await sign('--context', 'contexts.json')
  expect(resultsOf(ran.stdout).map(({ outcome, error }) => error?.code ?? outcome)).toEqual([
    'untrusted_required_bond',
    'signed',
    'signed',
  ])
})

describe('contract §9: what code oracles and tokens run is pinned', () => {
  const [oracle = '0x', token = '0x'] = [fakeContracts.oracles[0], fakeContracts.tokens[0]] as Hex[]
  const [first, second] = [`0x${'a'.repeat(40)}`, `0x${'b'.repeat(40)}`] as const
  const go = (...argv: string[]) =>
    run(home, argv, {
      env: { PROPOSER_RPC_URL: 'http://127.0.0.1:1', PROPOSER_KEY_FILE: join(home, 'key') },
      chain,
      clock,
    })
  const file = () => join(home, 'trust', 'default.json')
  const upgradeTo = (implementation: Hex) => {
    upgrade(chain, oracle, implementation)
    chain.mine()
  }
  const pin = () => {
    const code = (address: Hex) => [
      address,
      { implementation: address, code_hash: keccak256('0x') },
    ]
    const file_ = JSON.parse(readFileSync(file(), 'utf8'))
    const implementations = Object.fromEntries([code(oracle), code(token)])
    writeFileSync(file(), JSON.stringify({ ...file_, implementations }))
  }

  test('a file without is read, and noted once a run', async () => {
    const ran = await go('batch', 'sign', 'rows.ndjson')
    expect(ran.code).toBe(0)
    expect(ran.stderr.split('does not pin the code')).toHaveLength(2)
    expect(ran.stderr.replace(/\s+/g, ' ')).toContain('`proposer trust verify --repin` pins it')
  })

  test('an upgrade ends the whole run before anything is signed, and names old, new and what pins it', async () => {
    pin()
    upgradeTo(first)
    for (const argv of [
      ['batch', 'sign', 'rows.ndjson', '--json'],
      ['batch', 'sign', 'rows.ndjson', '--dry-run', '--json'],
      ['batch', 'sign', 'rows.ndjson', '--fit', '--json'],
      ['sign', questions[0] ?? '', '--outcome', 'p2', '--json'],
      ['sign', questions[0] ?? '', '--outcome', 'p2', '--dry-run', '--json'],
      ['sign', questions[0] ?? '', '--outcome', 'p2', '--typed-data', '--json'],
    ]) {
      const ran = await go(...argv)
      expect(ran.code, argv.join(' ')).toBe(2)
      expect(lastErrorOf(ran)).toMatchObject({
        code: 'implementation_changed',
        detail: `the contract ${oracle} runs ${first} now, pinned is ${oracle}`,
        hint: expect.stringContaining('`proposer trust verify --repin`'),
      })
      expect(ran.stdout).not.toContain('0x19')
    }
    const { authorizations } = JSON.parse((await go('journal', 'list', '--json')).stdout)
    expect(authorizations).toEqual([])
  })

  test('upgraded between two groups of a run, the rest is not signed', async () => {
    pin()
    const many = Array.from({ length: 120 }, (_, n) => ask(chain, questionText(`number ${n}`)))
    endow(chain, address, bondRaw * 200n)
    chain.mine(3)
    nowMs = Number(chain.head.timestamp) * 1_000
    writeFileSync(
      join(home, 'rows.ndjson'),
      many.map((identifier) => JSON.stringify({ identifier, outcome: 'p2' })).join('\n'),
    )
    const { storage } = chain
    let looks = 0
    // One look at all rows, then one a hundred.
    chain.storage = (...asked) => {
      looks += 1
      if (looks === 5) upgradeTo(second)
      return storage(...asked)
    }
    const ran = await sign()
    expect(ran.code).toBe(2)
    expect(lastErrorOf(ran)).toMatchObject({ code: 'implementation_changed' })
    const listed = JSON.parse((await go('journal', 'list', '--json', '--limit', '500')).stdout)
    expect(listed.authorizations.length).toBeLessThan(120)
  })
})
