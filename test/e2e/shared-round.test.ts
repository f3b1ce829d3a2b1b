/**
 * Two ids of one reporter request on a real node (domain §5.2, §10): one round, one transaction,
 * and whatever happens to the request shows for both.
 */
import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { keccak256, stringToHex } from 'viem'
import { topics, yesOrNoQuery } from '#chain/contracts'
import {
  callData,
  contractOf,
  type DevRole,
  devAccount,
  devAddresses,
  devBondRaw,
  devRpc,
  type Placed,
  placedAt,
  placing,
  sendAsDev,
} from '#devchain/dev-contracts'
import type { Hex } from '#ports'
import { run, writeTrust } from '#support/cli'
import { temporaryFolder } from '#support/folders'
import { type LivePipeline, startLivePipeline } from '#support/live-pipeline'

const reporter = placedAt('Reporter', '0x00000000000000000000000000000000000e9041')
const rules = stringToHex(
  'q: title: Two ids?, description: One request. res_data: p1: 0, p2: 1. Where p1 corresponds to No, p2 to Yes.',
)
const [first, second] = ['first id', 'second id'].map((name) => keccak256(stringToHex(name))) as [
  Hex,
  Hex,
]
let live: LivePipeline | undefined
afterAll(() => live?.stop())

test('domain §10: two ids of a reporter share their round, its end, its dispute and its resolution', async () => {
  live = await startLivePipeline({
    chain: { questions: 1, proposers: 2 },
    requesters: [{ address: reporter.address, kind: 'oo-reporter' }],
  })
  const { view, dev } = live
  const rpc = devRpc(dev.rpcUrl)
  const act = (role: DevRole, to: Placed, name: string, ...args: unknown[]) =>
    sendAsDev(rpc, [
      { from: devAccount(role).address, to: to.address, data: callData(to, name, args) },
    ])
  await rpc.batch(placing(reporter))
  const { token, oracle } = devAddresses
  await act('admin', reporter, 'setUp', devAccount('admin').address, oracle, token)
  await act('admin', contractOf('requesters'), 'addToWhitelist', reporter.address)
  await act('admin', reporter, 'register', first, rules, devBondRaw)
  await act('admin', reporter, 'share', second, first)
  await act('admin', reporter, 'initialize', first)

  await holdsTheRound(live)

  const proposers = [live.signerOf('proposer', 0), live.signerOf('proposer', 1)] as const
  const candidates = [
    await live.submit(first, proposers[0], '1', { price: '0' }),
    await live.submit(second, proposers[1], '1'),
  ] as const
  expect(candidates[0].round.key).toBe(candidates[1].round.key)
  const ended = [await live.ended(candidates[0].id), await live.ended(candidates[1].id)]
  expect(ended.map(({ progress }) => progress)).toMatchObject([
    { status: 'executed' },
    { status: 'failed', failure: { code: 'not_selected' } },
  ])
  const logs = await live.chain.logs({
    fromBlock: 0n,
    toBlock: (await live.chain.block('latest'))?.number ?? 0n,
    addresses: [oracle],
    topics: [topics.proposePrice],
  })
  expect(logs).toHaveLength(1)

  const states = () => [first, second].map((id) => view.known(id)?.round)
  const until = async (what: string, reached: () => boolean) => {
    for (let tries = 0; tries < 150 && !reached(); tries += 1)
      await new Promise((resolve) => setTimeout(resolve, 100))
    expect(reached(), what).toBe(true)
  }
  await until('both are proposed', () => states().every((round) => round?.state === 'proposed'))

  const { timestamp } = candidates[0].round
  const key = [reporter.address, yesOrNoQuery, BigInt(timestamp), rules]
  await act('disputer', contractOf('oracle'), 'disputePrice', ...key)
  await until('both are in the new round', () =>
    states().every((round) => round?.state === 'requested' && round.timestamp !== timestamp),
  )

  await act('admin', reporter, 'resolve', first, 0n)
  await until('both are resolved', () => states().every((round) => round?.state === 'resolved'))
}, 120_000)

async function holdsTheRound({ dev, chain }: LivePipeline): Promise<void> {
  const { description, rpcUrl } = dev
  const path = temporaryFolder()
  const key = description.accounts.find(({ role }) => role === 'proposer')?.private_key
  mkdirSync(join(path, 'trust'))
  const requesters = [{ address: reporter.address, kind: 'oo-reporter' }]
  writeTrust(path, { ...description.trust, requesters })
  writeFileSync(join(path, 'key'), `${key}\n`, { mode: 0o600 })
  const env = { PROPOSER_KEY_FILE: join(path, 'key'), PROPOSER_RPC_URL: rpcUrl }
  const ask = async (...argv: string[]) => {
    const ran = await run(path, [...argv, '--json'], { env, chain: { ...chain } })
    const { journal_id, shared_round } = JSON.parse(ran.stdout || '{}')
    return { ...ran, journal_id, shared_round }
  }
  const signed = await ask('sign', first, '--outcome', 'p1')
  expect(signed.code, signed.stderr).toBe(0)
  const refused = await ask('sign', second, '--outcome', 'p1')
  expect([refused.code, refused.stderr]).toEqual([
    5,
    expect.stringContaining(`question ${second} shares its round`),
  ])
  expect(await ask('reconcile', second)).toMatchObject({
    code: 0,
    shared_round: [{ journal_id: signed.journal_id, question_id: first }],
  })
  const told = await run(path, ['reconcile', second], { env, chain: { ...chain } })
  expect(told.stdout.replaceAll(/\s+/g, ' ')).toContain(
    `${signed.journal_id} is open for question ${first}, which shares this round`,
  )
  expect((await ask('reconcile', first)).shared_round).toEqual([])
}
