import { roles } from '#chain/constants'
import { roundStates, topics, yesOrNoQuery } from '#chain/contracts'
import { exampleQuestion } from '#devchain/dev-artifacts'
import { type DevChain, startDevChain } from '#devchain/dev-chain'
import {
  type DevRpc,
  devAccount,
  devAddresses,
  devImplementations,
  devRpc,
  placedAt,
} from '#devchain/dev-contracts'
import {
  changeQuestion,
  clarify,
  disputeProposal,
  grantExecutor,
  proposeDirectly,
  settleRound,
  showRound,
  vote,
  warp,
} from '#devchain/dev-verbs'
import type { Hex } from '#ports'
import { setReward, upgradeOracle } from '#support/dev-acts'

const slug = (n: number): string => exampleQuestion(n).slug
const livenessSeconds = 7_200
const rival = devAccount('rival').address
const p2 = 10n ** 18n

describe.each(['v2', 'v3'])('contract §9: the life after a proposal, oracle %s', (oracle) => {
  let chain: DevChain
  let rpc: DevRpc
  let url: string
  const token = () => placedAt('Token', devAddresses.token)
  const held = (wallet: string) => rpc.read<bigint>(token(), 'balanceOf', [wallet])
  beforeAll(async () => {
    chain = await startDevChain({ questions: 9, proposers: 1, oracle })
    url = chain.rpcUrl
    rpc = devRpc(url)
    await rpc.request('evm_setIntervalMining', [0])
    await rpc.request('evm_setAutomine', [true])
    await rpc.request('anvil_setBlockTimestampInterval', [1])
  })
  afterAll(() => chain?.stop())

  test("an executor of one's own gets the role, and coin for gas", async () => {
    const address = `0x${'e1'.repeat(20)}` as const
    const has = async () => [
      await rpc.read<boolean>(placedAt('SignedProposer', devAddresses.signedProposer), 'hasRole', [
        roles.delegatedProposer,
        address,
      ]),
      BigInt(await rpc.request<Hex>('eth_getBalance', [address, 'latest'])),
    ]
    expect(await has()).toEqual([false, 0n])
    await grantExecutor(url, address)
    expect(await has()).toEqual([true, 10n ** 18n])
  })

  test('warp moves the clock, and it goes on from there', async () => {
    const clock = async () =>
      Number(
        (await rpc.request<{ timestamp: Hex }>('eth_getBlockByNumber', ['latest', false]))
          .timestamp,
      )
    const before = await clock()
    const { seconds, timestamp } = await warp(url, 90)
    expect(seconds).toBe(90)
    expect(Number(timestamp)).toBeGreaterThanOrEqual(before + 90)
    await rpc.request('evm_mine', [])
    expect((await clock()) - Number(timestamp)).toBe(1)
  })

  test('undisputed: bond, fee and reward come back once the time for disputes is over', async () => {
    await expect(settleRound(url, slug(0))).rejects.toMatchObject({
      code: 'dev_chain_refused',
      detail: expect.stringContaining('not settled'),
    })
    const before = await held(rival)
    const { timestamp, question_id } = await proposeDirectly(url, slug(0), p2)
    await expect(settleRound(url, slug(0))).rejects.toMatchObject({
      code: 'dev_chain_refused',
      detail: expect.stringMatching(/can be disputed for 7\d{3} s more/),
      meta: { hint: expect.stringContaining('devchain warp 7') },
    })
    await warp(url, livenessSeconds)
    expect(await settleRound(url, slug(0))).toEqual({
      question_id,
      timestamp,
      state: roundStates.settled,
      outcome: 'p2',
      payout: '755000000',
      paid_to: rival,
      deferred: false,
      resolved: true,
      new_round: null,
    })
    expect(await held(rival)).toBe(before + 5_000_000n)
    await expect(settleRound(url, slug(0))).rejects.toMatchObject({ code: 'dev_chain_refused' })
  })

  test('disputed once: both rounds come to their end, the newer one first', async () => {
    const proposer = await held(rival)
    const first = await proposeDirectly(url, slug(1), p2)
    const second = await disputeProposal(url, slug(1))
    await expect(settleRound(url, slug(1))).rejects.toMatchObject({
      detail: expect.stringContaining('awaits the vote'),
      meta: { hint: expect.stringContaining('devchain vote') },
    })
    expect(await vote(url, slug(1), 'p2')).toMatchObject({
      timestamp: first.timestamp,
      state: roundStates.resolved,
    })
    await proposeDirectly(url, slug(1), p2)
    expect(await settleRound(url, slug(1))).toMatchObject({
      timestamp: first.timestamp,
      payout: '1000000000',
      paid_to: rival,
      resolved: false,
    })
    await warp(url, livenessSeconds)
    expect(await settleRound(url, slug(1))).toMatchObject({
      timestamp: second.timestamp,
      payout: '755000000',
      resolved: true,
    })
    expect(await held(rival)).toBe(proposer + 250_000_000n + 5_000_000n)
  })

  test('a reset pays for the new round, and the old one can still be settled', async () => {
    const { timestamp } = await proposeDirectly(url, slug(4), p2)
    const reset = await changeQuestion(url, slug(4), 'reset')
    expect(BigInt(reset.timestamp)).toBeGreaterThan(BigInt(timestamp))
    await warp(url, livenessSeconds)
    expect(await settleRound(url, slug(4))).toMatchObject({
      timestamp,
      payout: '755000000',
      resolved: false,
    })
  })

  test('a paused question is not settled by halves', async () => {
    await proposeDirectly(url, slug(5), p2)
    await changeQuestion(url, slug(5), 'pause')
    await warp(url, livenessSeconds)
    await expect(settleRound(url, slug(5))).rejects.toMatchObject({
      code: 'dev_chain_refused',
      detail: expect.stringContaining('paused'),
    })
    await changeQuestion(url, slug(5), 'unpause')
    expect(await settleRound(url, slug(5))).toMatchObject({ resolved: true })
  })

  test("a clarification is its creator's; a stranger's is kept apart", async () => {
    const text = new TextEncoder().encode('Drizzle counts.')
    const own = await clarify(url, slug(7), text)
    const stranger = await clarify(url, slug(7), text, { as: 'outsider' })
    expect(stranger.owner).toBe(devAccount('outsider').address)
    const adapter = placedAt('CtfAdapter', devAddresses.adapter)
    const { creator } = await rpc.read<{ creator: string }>(adapter, 'getQuestion', [
      own.question_id,
    ])
    expect(own.owner).toBe(creator.toLowerCase())
    expect(await rpc.read(adapter, 'getUpdates', [own.question_id, creator])).toEqual([
      { timestamp: BigInt(own.timestamp), update: `0x${Buffer.from(text).toString('hex')}` },
    ])
  })

  test('rewards and rules change on version 3 alone; an upgrade keeps what the oracle holds', async () => {
    const rules = new TextEncoder().encode('Only the airport counts.')
    if (oracle === 'v2') {
      await expect(clarify(url, slug(8), rules, { rules: true })).rejects.toMatchObject({
        code: 'oracle_version',
        meta: { hint: expect.stringContaining('--oracle v3') },
      })
      await upgradeOracle(url)
      const [log] = await rpc.request<{ topics: Hex[] }[]>('eth_getLogs', [
        { fromBlock: '0x0', address: devAddresses.oracle, topics: [topics.upgraded] },
      ])
      expect(log?.topics[1]?.slice(26)).toBe(devImplementations.ManagedOracleV3?.slice(2))
    }
    expect(await showRound(url, slug(0))).toMatchObject({ state: roundStates.settled })
    const before = await held(devAddresses.oracle)
    expect(await setReward(url, slug(8), 0n)).toBe(0n)
    expect(await held(devAddresses.oracle)).toBe(before - 5_000_000n)
    expect(await setReward(url, slug(8), 7_000_000n)).toBe(7_000_000n)
    const { question_id, timestamp } = await clarify(url, slug(8), rules, { rules: true })
    const adapter = placedAt('CtfAdapter', devAddresses.adapter)
    const { ancillaryData } = await rpc.read<{ ancillaryData: Hex }>(adapter, 'getQuestion', [
      question_id,
    ])
    const v3 = placedAt('ManagedOracleV3', devAddresses.oracle)
    const request = [devAddresses.adapter, yesOrNoQuery, ancillaryData]
    const update = {
      timestamp: BigInt(timestamp),
      update: `0x${Buffer.from(rules).toString('hex')}`,
    }
    expect(await rpc.read(v3, 'getRequestRulesUpdates', request)).toEqual([update])
    expect(await rpc.read(v3, 'getLatestRequestRulesUpdate', request)).toEqual(update)
    await proposeDirectly(url, slug(8), p2)
    await expect(setReward(url, slug(8), 0n)).rejects.toMatchObject({
      detail: expect.stringContaining('RequestStateNotRequested'),
    })
    await warp(url, livenessSeconds)
    expect(await settleRound(url, slug(8))).toMatchObject({ payout: '757000000' })
  })
})
