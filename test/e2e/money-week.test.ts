/**
 * A week of proposals with every end there is, at random, on a real chain: what `positions` and `pnl`
 * say is what the wallet's balance says, to the unit (domain §10).
 */
import { join } from 'node:path'
import { type DevChain, startDevChain } from '#devchain/dev-chain'
import { contractOf, type DevRpc, devAccount, devRpc } from '#devchain/dev-contracts'
import {
  disputeProposal,
  fund,
  proposeDirectly,
  settleRound,
  vote,
  warp,
} from '#devchain/dev-verbs'
import { createChain } from '#io/rpc/rpc'
import type { Chain } from '#ports'
import { scaled } from '#support/campaign'
import { proposerHome, run } from '#support/cli'
import { failTransfers } from '#support/dev-acts'

/** Ten of each end; 500 with `CAMPAIGN_SCALE=1`. */
const questionCount = Math.max(100, scaled(500))
const livenessSeconds = 7_200
const yes = 10n ** 18n
const rival = devAccount('rival')

const lives = [
  'open',
  'waiting',
  'undisputed',
  'won',
  'lost',
  'new_round',
  'voting',
  'early',
  'deferred',
  'claimed',
] as const
type Life = (typeof lives)[number]

const ends: Readonly<Record<Life, readonly [state: string, result: string | null]>> = {
  open: ['open', null],
  waiting: ['awaiting_settlement', null],
  undisputed: ['settled', 'undisputed'],
  won: ['settled', 'won'],
  lost: ['settled', 'lost'],
  new_round: ['disputed', null],
  voting: ['voting', null],
  early: ['settled', 'undisputed'],
  deferred: ['deferred', 'undisputed'],
  claimed: ['settled', 'undisputed'],
}

function numbersFrom(seed: number): () => number {
  let state = seed
  return () => {
    state = (state * 1_664_525 + 1_013_904_223) % 2 ** 32
    return state / 2 ** 32
  }
}

describe.each(['v2', 'v3'] as const)('oracle %s', (oracle) => {
  let dev: DevChain
  let rpc: DevRpc
  let chain: Chain & { close(): Promise<void> }
  let home: string
  beforeAll(async () => {
    dev = await startDevChain({ questions: questionCount, proposers: 1, oracle })
    rpc = devRpc(dev.rpcUrl)
    await rpc.request('evm_setIntervalMining', [0])
    await rpc.request('evm_setAutomine', [true])
    await rpc.request('anvil_setBlockTimestampInterval', [1])
    chain = createChain([dev.rpcUrl])
    home = proposerHome(dev.description.trust, rival.private_key)
  }, 120_000)
  afterAll(async () => {
    await chain?.close()
    await dev?.stop()
  })

  const ask = async (...argv: string[]) => {
    const env = { PROPOSER_RPC_URL: dev.rpcUrl, PROPOSER_KEY_FILE: join(home, 'key') }
    const { code, stdout, stderr } = await run(home, [...argv, '--json'], { env, chain })
    expect([code, stderr]).toEqual([0, ''])
    return JSON.parse(stdout)
  }
  const balance = () => rpc.read<bigint>(contractOf('token'), 'balanceOf', [rival.address])
  const propose = (slug: string) => proposeDirectly(dev.rpcUrl, slug, yes)
  const dispute = (slug: string) => disputeProposal(dev.rpcUrl, slug)

  const first = async (slug: string, life: Life): Promise<void> => {
    if (life === 'open') return
    await propose(slug)
    if (['won', 'lost', 'new_round', 'voting', 'early'].includes(life)) await dispute(slug)
    if (life === 'voting' || life === 'early') {
      await propose(slug)
      await dispute(slug)
    }
    if (life === 'won' || life === 'lost') {
      await vote(dev.rpcUrl, slug, life === 'won' ? 'p2' : 'p1')
      await settleRound(dev.rpcUrl, slug)
    }
    if (life === 'early') {
      await vote(dev.rpcUrl, slug, 'p4')
      await settleRound(dev.rpcUrl, slug)
      await propose(slug)
    }
  }

  test('a week of questions: every position has its state, and pnl equals the balances', async () => {
    const next = numbersFrom(20_261_123)
    const week = dev.description.questions.map(({ question_id, slug }, n) => ({
      id: question_id,
      slug,
      life: lives[n < lives.length ? n : Math.floor(next() * lives.length)] ?? 'open',
    }))
    const before = await balance()
    for (const { slug, life } of week) await first(slug, life)
    await warp(dev.rpcUrl, livenessSeconds)
    const settling = (...some: readonly Life[]) => week.filter(({ life }) => some.includes(life))
    for (const { slug } of settling('undisputed', 'early')) await settleRound(dev.rpcUrl, slug)
    const whileRefused = async (some: readonly { readonly slug: string }[]) => {
      await failTransfers(dev.rpcUrl, rival.address, true)
      for (const { slug } of some) await settleRound(dev.rpcUrl, slug)
      await failTransfers(dev.rpcUrl, rival.address, false)
    }
    await whileRefused(settling('claimed'))
    expect((await ask('payouts', 'claim', '--yes')).claims).toHaveLength(1)
    await whileRefused(settling('deferred'))
    for (const { slug } of settling('open')) await propose(slug)
    await fund(dev.rpcUrl, rival.address, 1_234_567n)
    await rpc.request('anvil_mine', ['0x3'])

    const { positions, totals, notes } = await ask('positions', '--wallet', rival.address)
    expect(notes).toEqual([])
    const last = new Map<string, readonly [string, string | null]>()
    for (const { question_id, state, result } of positions) last.set(question_id, [state, result])
    const wrong = week.filter(({ id, life }) => String(last.get(id)) !== String(ends[life]))
    expect(wrong).toEqual([])
    expect(new Set(week.map(({ life }) => life)).size).toBe(lives.length)

    const pnl = await ask('pnl', '--wallet', rival.address)
    const [sum] = pnl.totals
    const change = BigInt(sum.net) - BigInt(sum.locked) - BigInt(sum.deferred) + 1_234_567n
    expect((await balance()) - before).toBe(change)
    const moved = pnl.rows.reduce(
      (raw: bigint, row: { amount: string }) => raw + BigInt(row.amount),
      0n,
    )
    expect(moved + 1_234_567n).toBe(change)
    expect(BigInt(totals[0].bonded) + BigInt(totals[0].disputed)).toBe(BigInt(sum.locked))
    expect(totals[0].claimable).toBe(sum.deferred)
    for (const { transaction_hash, log_index } of pnl.rows)
      expect([transaction_hash, log_index]).toEqual([
        expect.stringMatching(/^0x[0-9a-f]{64}$/),
        expect.any(Number),
      ])
    expect(sum).toMatchObject({ won: settling('won').length, lost: expect.any(Number) })
  }, 600_000)
})
