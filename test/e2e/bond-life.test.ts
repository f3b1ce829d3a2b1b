/**
 * The life of bonds as a user follows it: every end that an executed proposal can have, made with
 * the verbs of `devchain` and read with `positions`, `pnl` and `payouts`, on version 3 of the
 * oracle (contract §9, domain §10). What `pnl` says is what the wallet's balance has changed by.
 */
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import type { DevDescription } from '#devchain/dev-chain'
import { createHttp } from '#io/http'
import { createChain } from '#io/rpc/rpc'
import { argvOf } from '#support/argv'
import { run, temporaryHome } from '#support/cli'
import { failTransfers, setReward } from '#support/dev-acts'
import { workshop } from '#support/processes'

const shop = workshop()
const http = createHttp()
let home: Awaited<ReturnType<typeof temporaryHome>>
let dev: DevDescription
let env: Record<string, string>
let chain: ReturnType<typeof createChain>
let me: DevDescription['accounts'][number]['address']
let disputer: string

beforeAll(async () => {
  const ready = await shop
    .start(argvOf`serve --dev --oracle v3 --port 0 --json --no-log`)
    .line<{ url: string; dev: DevDescription }>()
  dev = ready.dev
  home = await temporaryHome()
  chain = createChain([dev.rpc_url])
  const of = (role: string) => {
    const found = dev.accounts.find((one) => one.role === role)
    if (found === undefined) throw new Error(`no ${role}`)
    return found
  }
  me = of('proposer').address
  disputer = of('disputer').address
  env = { PROPOSER_GATEWAY: ready.url, PROPOSER_RPC_URL: dev.rpc_url }
  const pinned = await run(home.path, argvOf`trust init --from - --yes`, {
    ...{ env, chain, stdin: JSON.stringify(dev) },
  })
  expect(pinned.code, pinned.stderr).toBe(0)
  const key = join(home.path, 'key')
  await writeFile(key, `${of('proposer').private_key}\n`, { mode: 0o600 })
  env = { ...env, PROPOSER_KEY_FILE: key }
})
afterAll(async () => {
  await chain?.close()
  await http.close()
  await home?.remove()
  await shop.clean()
})

const slug = (n: number) => {
  const found = dev.questions[n]?.slug
  if (found === undefined) throw new Error(`no question ${n}`)
  return found
}
const cli = (...argv: string[]) => run(home.path, argv, { env, chain, fetch: http.fetch })
async function told(...argv: string[]) {
  for (;;) {
    const { code, stdout, stderr } = await cli(...argv, '--json')
    if (code === 75) continue
    if (code !== 0) throw new Error(`${argv.join(' ')}: exit ${code}: ${stderr}`)
    return JSON.parse(stdout)
  }
}
const dev$ = (...argv: string[]) => told('devchain', ...argv)
const submit = (n: number, outcome = 'p2') => told('submit', slug(n), '--outcome', outcome)
const executed = () => told('poll', '--all', '--timeout', '60')
const balance = async () => BigInt((await told('funds')).tokens[0].balance)
async function untilGatewayAsks(n: number, bond: string): Promise<void> {
  const { PROPOSER_RPC_URL: _, ...blind } = env
  for (;;) {
    const { code, stdout } = await run(home.path, ['context', slug(n), '--json'], {
      ...{ env: blind, fetch: http.fetch },
    })
    if (code === 0 && JSON.parse(stdout).questions[0].bond?.required_bond === bond) return
    await new Promise((resolve) => setTimeout(resolve, 200))
  }
}
const positionsOf = async (n: number) =>
  (await told('positions')).positions
    .filter((one: { slug: string }) => one.slug === slug(n))
    .sort(
      (a: { round_timestamp: string }, b: { round_timestamp: string }) =>
        Number(a.round_timestamp) - Number(b.round_timestamp),
    )

test('every end of a bond: positions tells it, and pnl equals what the balance changed by', async () => {
  const before = await balance()
  for (const n of [0, 1, 2, 3, 4, 5, 8]) await submit(n)

  const lowered = (await told('sign', slug(6), '--outcome', 'p2')).journal_id
  expect(await setReward(dev.rpc_url, slug(6), 0n)).toBe(0n)
  await told('sign', slug(7), '--outcome', 'p2')
  await dev$('set-bond', slug(7), '600usdc')
  await untilGatewayAsks(7, '850000000')
  const refused = await cli('submit', slug(7), '--outcome', 'p2', '--json')
  expect(refused.code).toBe(3)
  expect(JSON.parse(refused.stderr.trim().split('\n').at(-1) ?? '').error).toMatchObject({
    code: 'permit_amount_below_required_bond',
    detail: expect.stringContaining('850000000'),
  })
  const fell = await cli('submit', slug(6), '--outcome', 'p2', '--wait')
  expect(fell.code, fell.stderr).toBe(0)
  expect(fell.stderr.replace(/\s+/g, ' ')).toContain(
    `${slug(6)}: the reward is 0 USDC.e now; it was 5 USDC.e when this was signed`,
  )
  await submit(7)
  const polled = await cli('poll', '--all', '--timeout', '60')
  expect(polled.code, polled.stderr).toBe(0)
  expect(polled.stderr).not.toContain('the reward is')
  const shown = (await told('reconcile', slug(6))).authorizations.find(
    ({ journal_id }: { journal_id: string }) => journal_id === lowered,
  )
  expect(shown.reward_fell).toEqual({ signed: '5000000', now: '0' })
  const bonds = (await told('positions')).positions
  expect(bonds.map((one: { state: string }) => one.state)).toEqual(Array(9).fill('open'))
  expect((await positionsOf(6))[0]).toMatchObject({ bond: '500000000', reward: '0' })
  expect((await positionsOf(7))[0]).toMatchObject({ bond: '600000000', reward: '5000000' })
  expect(before - (await balance())).toBe(8n * 750_000_000n + 850_000_000n)

  for (const n of [1, 2, 3, 4]) await dev$('dispute', slug(n))
  expect(await positionsOf(1)).toMatchObject([
    { state: 'disputed', disputed_by: disputer, new_round: true, result: null },
  ])
  for (const n of [3, 4]) {
    await untilGatewayAsks(n, '750000000')
    await submit(n, 'p1')
  }
  await executed()
  for (const n of [3, 4]) await dev$('dispute', slug(n))
  expect(await positionsOf(3)).toMatchObject([
    { state: 'disputed', new_round: true },
    { state: 'voting', new_round: false },
  ])
  for (const [n, outcome] of [
    [1, 'p2'],
    [2, 'p1'],
    [3, 'p1'],
    [4, 'p4'],
  ] as const) {
    await dev$('vote', slug(n), '--outcome', outcome)
    await dev$('settle', slug(n))
  }
  expect(await positionsOf(1)).toMatchObject([
    { state: 'settled', result: 'won', payout: '1000000000' },
  ])
  expect(await positionsOf(2)).toMatchObject([{ state: 'settled', result: 'lost', payout: '0' }])
  expect(await positionsOf(3)).toMatchObject([
    { state: 'disputed', result: null },
    { state: 'settled', result: 'won', payout: '1000000000' },
  ])
  expect(await positionsOf(4)).toMatchObject([
    { state: 'disputed', result: null },
    { state: 'settled', result: 'lost', payout: '0' },
  ])
  for (const n of [3, 4]) {
    await dev$('vote', slug(n), '--outcome', 'p1')
    await dev$('settle', slug(n))
    expect((await positionsOf(n))[0]).toMatchObject({ state: 'settled', result: 'lost' })
  }

  // A question that its administrators ask again: the proposal lives on in the old round.
  const reset = await dev$('reset', slug(8))
  expect(await positionsOf(8)).toMatchObject([{ state: 'open', result: null }])

  const { timestamp } = await dev$('warp', '3h')
  expect(BigInt(timestamp)).toBeGreaterThan(BigInt(reset.timestamp) + 10_000n)
  expect(await positionsOf(0)).toMatchObject([{ state: 'awaiting_settlement', late: false }])
  for (const n of [0, 6, 7, 8]) await dev$('settle', slug(n))
  expect(await positionsOf(0)).toMatchObject([
    { state: 'settled', result: 'undisputed', payout: '755000000' },
  ])
  expect(await positionsOf(6)).toMatchObject([{ result: 'undisputed', payout: '750000000' }])
  expect(await positionsOf(7)).toMatchObject([{ result: 'undisputed', payout: '855000000' }])
  expect(await positionsOf(8)).toMatchObject([{ result: 'undisputed', payout: '755000000' }])
  await failTransfers(dev.rpc_url, me, true)
  expect(await dev$('settle', slug(5))).toMatchObject({ deferred: true, payout: '755000000' })
  expect(await positionsOf(5)).toMatchObject([{ state: 'deferred', payout: '755000000' }])
  const blocked = await cli('payouts', 'claim', '--yes', '--json')
  expect(blocked.code).toBe(2)
  await failTransfers(dev.rpc_url, me, false)
  const due = await told('pnl')
  expect(due.totals).toMatchObject([{ deferred: '755000000', locked: '0' }])
  expect((await told('payouts', 'list')).payouts).toMatchObject([{ amount: '755000000' }])
  await told('payouts', 'claim', '--yes')
  expect(await positionsOf(5)).toMatchObject([{ state: 'settled', result: 'undisputed' }])

  const { totals, rows } = await told('pnl')
  expect(totals).toMatchObject([
    {
      ...{ proposed: 11, undisputed: 5, won: 2, lost: 4, rewards: '520000000' },
      ...{ bonds_lost: '-3000000000', net: '-2480000000', locked: '0', deferred: '0' },
    },
  ])
  expect((await balance()) - before).toBe(-2_480_000_000n)
  const moved = rows.reduce((sum: bigint, one: { amount: string }) => sum + BigInt(one.amount), 0n)
  expect(moved).toBe(-2_480_000_000n)
  const log = rows.find(({ kind }: { kind: string }) => kind === 'claimed')
  const receipt = await chain.receipt(log.transaction_hash)
  expect(receipt?.logs.some(({ logIndex }) => logIndex === log.log_index)).toBe(true)
  expect((await cli('pnl')).stdout).toMatch(/^net +-2,480 USDC\.e$/m)
  expect(rows.filter(({ kind }: { kind: string }) => kind === 'bond')).toHaveLength(11)
}, 400_000)
