import { aggregating, multicallAddress } from '#chain/aggregate'
import { yesOrNoQuery } from '#chain/contracts'
import type { Contracts } from '#chain/round'
import { type DevChain, startDevChain } from '#devchain/dev-chain'
import { callData, placedAt as contractAt, devAddresses, devRpc } from '#devchain/dev-contracts'
import {
  changeQuestion,
  disputeProposal,
  proposeDirectly,
  setBond,
  setWhitelist,
} from '#devchain/dev-verbs'
import { createChainView, type LiveView } from '#gateway/view/view'
import { systemClock } from '#io/clock'
import { createChain } from '#io/rpc/rpc'
import { yieldToEvents } from '#io/serving/load'
import { type Chain, type ChainCall, ChainError, type Hex } from '#ports'
import type { Address } from '#protocol/schema'
import { resolveRound } from '#support/resolve-round'

let dev: DevChain
let chain: Chain & { close(): Promise<void> }
let reached: ChainCall[]
let folded: Chain
let contracts: Contracts

beforeAll(async () => {
  dev = await startDevChain({ questions: 3, proposers: 1 })
  chain = createChain([dev.rpcUrl])
  reached = []
  const { call } = chain
  const counted: Chain['call'] = (one, at) => {
    reached.push(one)
    return call(one, at)
  }
  folded = aggregating({ ...chain, call: counted }, yieldToEvents)
  const { trust } = dev.description
  contracts = {
    chainId: trust.chain_id,
    permit2: trust.permit2,
    signedProposer: trust.signed_proposer,
    oracles: trust.oracles,
    requesters: trust.requesters,
    tokens: trust.tokens,
  }
}, 60_000)

afterAll(async () => {
  await chain?.close()
  await dev?.stop()
})

const questionIdOf = (n: number): Hex => dev.description.questions[n]?.question_id ?? '0x'
const latest = async () => (await chain.block('latest'))?.number ?? 0n

test('the same answers folded and alone: of functions, of addresses without code, of reverts with and without data, and beside one that burns its gas', async () => {
  const burner: Address = `0x${'b1'.repeat(20)}`
  await devRpc(dev.rpcUrl).request('anvil_setCode', [burner, '0xfe'])
  const call = (
    contract: string,
    to: Address,
    name: string,
    args: readonly unknown[],
  ): ChainCall => ({
    to,
    data: callData(contractAt(contract, to), name, args),
  })
  const { adapter, token, oracle, proposers, signedProposer } = devAddresses
  const calls: ChainCall[] = [
    call('CtfAdapter', adapter, 'getQuestion', [questionIdOf(0)]),
    call('Token', token, 'symbol', []),
    { to: `0x${'0e'.repeat(20)}`, data: '0x01' },
    call('AddressWhitelist', proposers, 'owner', []),
    // Reverts with data, whoever calls: nothing is proposed there.
    call('ManagedOracle', oracle, 'disputePrice', [adapter, yesOrNoQuery, 1n, '0x']),
    { to: signedProposer, data: '0x12345678' },
    { to: burner, data: '0x' },
    { to: oracle, data: '0x' },
    call('Token', token, 'decimals', []),
  ]
  await devRpc(dev.rpcUrl).request('evm_mine', [])
  const at = await latest()
  const outcomes = (asked: Chain) =>
    Promise.all(
      calls.map((one) =>
        asked.call(one, at).catch((error: unknown) => {
          if (error instanceof ChainError) return { kind: error.kind, data: error.data }
          throw error
        }),
      ),
    )
  const alone = await outcomes(chain)
  const failures = alone.filter((outcome) => typeof outcome === 'object')
  expect(failures.length).toBeGreaterThanOrEqual(4)
  expect(failures.some(({ data }) => data !== '0x')).toBe(true)
  reached.length = 0
  expect(await outcomes(folded)).toEqual(alone)
  expect(reached[0]?.to).toBe(multicallAddress)
  expect(reached.length).toBeLessThan(calls.length)
}, 60_000)

test('every change of a question shows at the next look, read in a handful of calls', async () => {
  const nobody = {
    info: undefined,
    allowlist: new Set<Address>(),
    finalized: undefined,
    active: () => [],
    implementations: new Map(),
  }
  const view: LiveView = createChainView({ clock: systemClock, chain: folded }, contracts, nobody, {
    maxHeadAgeSeconds: 30,
    entries: [],
  })
  await view.poll()
  const questionId = questionIdOf(1)
  const untouched = await view.question(questionIdOf(2))
  await view.question(questionId)
  const steps: readonly (readonly [() => Promise<unknown>, object])[] = [
    [() => changeQuestion(dev.rpcUrl, questionId, 'pause'), { paused: true }],
    [() => changeQuestion(dev.rpcUrl, questionId, 'unpause'), { paused: false }],
    [() => changeQuestion(dev.rpcUrl, questionId, 'flag'), { paused: true }],
    [() => changeQuestion(dev.rpcUrl, questionId, 'unflag'), { paused: false }],
    [() => setBond(dev.rpcUrl, questionId, 300_000_000n), { totalBondRaw: 550_000_000n }],
    [() => setWhitelist(dev.rpcUrl, questionId, 'default'), { state: 'requested' }],
    [() => proposeDirectly(dev.rpcUrl, questionId, 0n), { state: 'proposed' }],
    [() => disputeProposal(dev.rpcUrl, questionId), { state: 'requested' }],
  ]
  for (const [change, expected] of steps) {
    const before = view.known(questionId)?.round
    await change()
    reached.length = 0
    await view.poll()
    const after = view.known(questionId)?.round
    expect(after).toMatchObject(expected)
    expect(after?.blockNumber).toBeGreaterThan(before?.blockNumber ?? 0n)
    expect(reached.length).toBeLessThanOrEqual(2)
    expect({ ...(await resolveRound(chain, contracts, questionId)), blockNumber: 0n }).toEqual({
      ...after,
      blockNumber: 0n,
    })
  }
  expect(view.known(questionIdOf(2))).toBe(untouched)
  expect(view.faults()).toEqual([])
}, 90_000)
