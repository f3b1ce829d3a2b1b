import { decodeFunctionData } from 'viem'
import { signedProposerAbi } from '#chain/contracts'
import { carriedBy } from '#chain/transaction'
import { chunks } from '#gateway/executor/executor'
import { createExecutor, isIsolated } from '#gateway/executor/state'
import type { Hex } from '#ports'
import type { Candidate } from '#protocol/candidate'
import { invalidateNonces, rivalProposes } from '#support/fake-chain'
import {
  createPipelineWorld,
  noncesOf,
  oneCandidate,
  type PipelineWorld,
  proposals,
  testSigner,
} from '#support/pipeline-world'

async function candidatesIn(
  world: PipelineWorld,
  count: number,
  wish: (n: number) => Parameters<PipelineWorld['submit']>[1] = () => ({}),
) {
  const questionIds: Hex[] = []
  const candidates: Candidate[] = []
  for (let n = 0; n < count; n += 1) {
    const questionId = await world.question(`question ${n}`)
    questionIds.push(questionId)
    candidates.push(await world.submit(questionId, { by: n % 3, ...wish(n) }))
  }
  return { questionIds, candidates }
}

const sizes = (world: PipelineWorld) => proposals(world).map(({ data }) => carriedBy(data).length)

test('one goes by propose, several by multicall, and all are executed with event indexes of their own', async () => {
  const world = await createPipelineWorld()
  const { candidates } = await candidatesIn(world, 4)
  await world.turn()
  await world.pass(4)
  expect(await world.ends(candidates)).toEqual(['executed', 'executed', 'executed', 'executed'])
  const [sent] = proposals(world)
  expect(
    decodeFunctionData({ abi: signedProposerAbi, data: sent?.data ?? '0x' }).functionName,
  ).toBe('multicall')
  const done = await Promise.all(candidates.map(world.now))
  expect(
    done.map(({ progress }) => 'submission' in progress && progress.submission?.proposalEventIndex),
  ).toEqual([0, 2, 4, 6])
  const last = await candidatesIn(world, 1)
  await world.turn()
  await world.pass(4)
  expect(await world.ends(last.candidates)).toEqual(['executed'])
  expect(proposals(world)[1]?.data.slice(0, 10)).toBe('0xb762b23c')
})

test('the calldata bounds it too, and those that were in a reverted transaction go by themselves', () => {
  const judged = Array.from({ length: 9 }, (_, n) => ({
    candidate: { id: String(n) } as Candidate,
    calldata: `0x${'00'.repeat(30_000)}` as Hex,
    walletHasCode: n === 1,
  }))
  const ids = (groups: readonly (readonly { candidate: Candidate }[])[]) =>
    groups.map((group) => group.map(({ candidate }) => candidate.id).join(''))
  expect(ids(chunks(judged, 25, () => false))).toEqual(['012', '345', '678'])
  expect(ids(chunks(judged, 25, ({ walletHasCode }) => walletHasCode))).toEqual(
    ['023', '1', '456', '78'].toSorted(),
  )
})

test('whether one goes alone is told without a walk over all that wait', () => {
  const active = vi.fn(() => [])
  const newestHeads = () => ({ latest: { timestamp: 0n } })
  const ports = { ledger: { active, failures: new Map() }, newestHeads }
  isIsolated(createExecutor(ports as never), { candidate: { proposer: '0x' } } as never)
  expect(active).not.toHaveBeenCalled()
})

test('one that does not hold is left out before a nonce is bound, and fails alone', async () => {
  const world = await createPipelineWorld()
  const { candidates } = await candidatesIn(world, 5, (n) =>
    n === 2 ? { signature: `0x${'11'.repeat(64)}1b` } : {},
  )
  await world.turn()
  await world.pass(6)
  expect(await world.ends(candidates)).toEqual([
    'executed',
    'executed',
    'signature_not_authorized',
    'executed',
    'executed',
  ])
  expect(sizes(world)).toEqual([4])
})

test('what holds alone and not together is halved until it holds', async () => {
  const world = await createPipelineWorld()
  const { candidates } = await candidatesIn(world, 8)
  // More than three proposals in one call need more gas than any run may have.
  const { gasNeeded } = world.chain
  const heavy = (data: Hex) => data.startsWith('0xac9650d8') && carriedBy(data).length > 3
  world.chain.gasNeeded = (data) => (heavy(data) ? 60_000_000n : gasNeeded(data))
  await world.turn()
  await world.pass(4)
  expect(new Set(await world.ends(candidates))).toEqual(new Set(['executed']))
  expect(sizes(world)).toEqual([2, 2, 2, 2])
  expect(noncesOf(world)).toEqual([0, 1, 2, 3])
})

const perProposal = 320_000n
const tightFor = (count: number) => (perProposal * BigInt(count) * 11n) / 10n
async function tightWorld(tighten: (world: PipelineWorld) => void) {
  const world = await createPipelineWorld()
  world.chain.gasNeeded = (data) => perProposal * BigInt(carriedBy(data).length)
  tighten(world)
  world.chain.mine()
  await world.turn()
  return world
}

test.each([
  [
    "the head's gas limit",
    ({ chain }: PipelineWorld) => {
      chain.blockGas = tightFor(8)
    },
  ],
  [
    'what the node takes, which it tells in its refusal alone',
    ({ chain }: PipelineWorld) => {
      chain.transactionGas = tightFor(8)
    },
  ],
])(
  'domain §8: above %s it is halved, under no second nonce and with no self-transfer',
  async (_name, tighten) => {
    const world = await tightWorld(tighten)
    const { candidates } = await candidatesIn(world, 8)
    await world.turn()
    await world.pass(8)
    expect(new Set(await world.ends(candidates))).toEqual(new Set(['executed']))
    expect(sizes(world)).toEqual([4, 4])
    expect(world.chain.taken.map(({ nonce }) => nonce)).toEqual([0, 1])
    expect(world.pipeline.faults()).toEqual([])
    const more = await candidatesIn(world, 8)
    await world.turn()
    await world.pass(8)
    expect(new Set(await world.ends(more.candidates))).toEqual(new Set(['executed']))
    expect(sizes(world)).toEqual([4, 4, 4, 4])
  },
)

test('domain §8: a limit that fitted is halved under the same nonce once blocks have less room', async () => {
  const world = await tightWorld(() => undefined)
  const { candidates } = await candidatesIn(world, 8)
  world.chain.fault('send', 'unavailable')
  await world.turn()
  world.chain.blockGas = tightFor(8)
  await world.emptyBlocks(2)
  world.clock.monotonic += 30_000
  await world.pass(12)
  expect(new Set(await world.ends(candidates))).toEqual(new Set(['executed']))
  expect(sizes(world)).toEqual([4, 4])
  expect(world.chain.taken.map(({ nonce }) => nonce)).toEqual([0, 1])
})

test('domain §8: one proposal gets less than the margin where a block has no more', async () => {
  const world = await tightWorld(({ chain }) => {
    chain.blockGas = tightFor(1)
  })
  const { candidates } = await candidatesIn(world, 2)
  await world.turn()
  await world.pass(8)
  expect(await world.ends(candidates)).toEqual(['executed', 'executed'])
  expect(sizes(world)).toEqual([1, 1])
})

test('one that the balance pays for by its estimate is sent', async () => {
  const { world, candidate } = await oneCandidate()
  const { chain } = world
  chain.balance = async () => (2n * chain.head.baseFeePerGas + (await chain.tip())) * 560_000n
  await world.pass(6)
  expect(await world.end(candidate)).toBe('executed')
})

test('R27: one that blocks have no room for binds no nonce, and is executed once they have', async () => {
  const world = await tightWorld(({ chain }) => {
    chain.transactionGas = perProposal / 2n
  })
  const { candidates } = await candidatesIn(world, 1)
  await world.turn()
  await world.pass(10)
  expect(world.pipeline.faults()).toEqual([expect.stringContaining('more than the 31')])
  expect(world.ledger.highestNonce(world.executor.address)).toBe(0)
  world.chain.transactionGas = undefined
  await world.pass(110)
  expect(await world.ends(candidates)).toEqual(['executed'])
  expect(world.ledger.highestNonce(world.executor.address)).toBeLessThanOrEqual(1)
  expect(world.pipeline.faults()).toEqual([])
})

test('EIP-7825: no transaction has more gas than 2^24', async () => {
  const executor = { enabled: true, max_fee_gwei: 1000, batch: 25, in_flight: 16 }
  const world = await createPipelineWorld({
    config: { executor: { ...executor, max_proposal_gas: 3_000_000 } },
  })
  world.chain.gasNeeded = (data) => 2_000_000n * BigInt(carriedBy(data).length)
  const { candidates } = await candidatesIn(world, 8)
  await world.turn()
  await world.pass(8)
  expect(new Set(await world.ends(candidates))).toEqual(new Set(['executed']))
  expect(sizes(world)).toEqual([4, 4])
})

test('mined and reverted: who is to blame fails, the others are sent again one by one, and each round is proposed once', async () => {
  const world = await createPipelineWorld()
  const { questionIds, candidates } = await candidatesIn(world, 4)
  await world.turn()
  rivalProposes(world.chain, questionIds[1] ?? '0x', testSigner(9).address)
  await world.pass(12)
  expect(await world.ends(candidates)).toEqual(['executed', 'superseded', 'executed', 'executed'])
  expect(sizes(world)).toEqual([4, 1, 1, 1])
  expect(noncesOf(world)).toEqual([0, 1, 2, 3])
  expect(world.ledger.slots()).toEqual([])
})

test('mined, reverted and not final: others of its wallets go by themselves', async () => {
  const world = await createPipelineWorld()
  const { questionIds } = await candidatesIn(world, 2)
  await world.turn()
  rivalProposes(world.chain, questionIds[1] ?? '0x', testSigner(9).address)
  await world.pass(1)
  for (const n of [2, 3]) await world.submit(await world.question(`question ${n}`), { by: 0 })
  await world.turn()
  expect(sizes(world)).toEqual([2, 1, 1, 1])
})

test('R3: pending, and a rival takes one round: the same nonce carries the others, without it', async () => {
  const world = await createPipelineWorld()
  const { questionIds, candidates } = await candidatesIn(world, 4)
  await world.turn()
  rivalProposes(world.chain, questionIds[2] ?? '0x', testSigner(9).address)
  await world.emptyBlocks(1)
  const dropped = await world.progress(candidates[2] as Candidate)
  expect(dropped).toMatchObject({ status: 'selected', submission: { status: 'dropped' } })
  await world.pass(8)
  expect(await world.ends(candidates)).toEqual(['executed', 'executed', 'superseded', 'executed'])
  expect(sizes(world)).toEqual([4, 3])
  expect(noncesOf(world)).toEqual([0])
})

test('R3: the full transaction is mined although it was trimmed: all that it carries are executed', async () => {
  const world = await createPipelineWorld()
  const { questionIds, candidates } = await candidatesIn(world, 3)
  await world.turn()
  rivalProposes(world.chain, questionIds[0] ?? '0x', testSigner(9).address)
  await world.emptyBlocks(1)
  expect(sizes(world)).toEqual([3, 2])
  // The block with the rival is undone, and a miner had kept the first transaction.
  world.chain.reorg(1, { drop: true })
  world.chain.clearPool()
  const [first] = world.ledger.slots()[0]?.attempts ?? []
  await world.chain.send(first?.raw ?? '0x')
  world.chain.mine()
  await world.turn()
  await world.pass(5)
  expect(await world.ends(candidates)).toEqual(['executed', 'executed', 'executed'])
  expect(noncesOf(world)).toEqual([0])
})

const nonceOf = (candidate: Candidate | undefined) => 1n << BigInt(candidate?.nonce ?? 0)
test.each<[string, string, number, (world: PipelineWorld, candidates: Candidate[]) => unknown]>([
  ['one deadline comes near', 'submission_expired', 8, () => undefined],
  [
    'an owner takes back a nonce',
    'permit_nonce_used',
    1,
    (world, [, one]) => invalidateNonces(world.chain, world.proposer(1).address, 0n, nonceOf(one)),
  ],
  [
    'an operator rejects one while it is out',
    'operator_rejected',
    1,
    (world, [, one]) => world.reject(one as Candidate),
  ],
])(
  '%s: it is left out under the same nonce and ends as %s',
  async (_what, end, blocks, happens) => {
    const world = await createPipelineWorld()
    const soon = world.chain.head.timestamp + 22n
    const { candidates } = await candidatesIn(world, 3, (n) =>
      n === 1 && blocks === 8 ? { deadline: soon } : {},
    )
    await world.turn()
    await happens(world, candidates)
    await world.emptyBlocks(blocks)
    expect(sizes(world)).toEqual([3, 2])
    await world.pass(8)
    expect(await world.ends(candidates)).toEqual(['executed', end, 'executed'])
    expect(noncesOf(world)).toEqual([0])
  },
)

test('contract §5: what is final is executed, also where one that was left out waits for its deadline to be final', async () => {
  const world = await createPipelineWorld()
  const deadline = world.chain.head.timestamp + 40n
  const { candidates } = await candidatesIn(world, 2, (n) => (n === 1 ? { deadline } : {}))
  await world.turn()
  const { nowMs } = world.clock
  world.clock.nowMs = () => nowMs() + 20_000
  await world.emptyBlocks(8)
  expect(sizes(world)).toEqual([2, 1])
  await world.pass(4)
  expect(world.ledger.slots()).toHaveLength(1)
  const states = world.ledger.active().map(({ progress }) => progress.status)
  expect(states).toEqual(['executed', 'selected'])
  await world.pass(20)
  expect(await world.ends(candidates)).toEqual(['executed', 'submission_expired'])
  expect(noncesOf(world)).toEqual([0])
})

test('none is left: a self-transfer gives the nonce back, and each ends with its own reason', async () => {
  const world = await createPipelineWorld()
  const { questionIds, candidates } = await candidatesIn(world, 2)
  await world.turn()
  for (const questionId of questionIds)
    rivalProposes(world.chain, questionId, testSigner(9).address)
  await world.emptyBlocks(1)
  await world.pass(6)
  expect(await world.ends(candidates)).toEqual(['superseded', 'superseded'])
  expect(world.chain.taken.map(({ nonce, to }) => [nonce, to === world.executor.address])).toEqual([
    [0, false],
    [0, true],
  ])
})

test('R15: killed with a nonce bound and nothing signed: what still stands goes under it, the rest ends', async () => {
  const world = await createPipelineWorld()
  const { questionIds, candidates } = await candidatesIn(world, 4)
  await world.killedAt('reserved')
  rivalProposes(world.chain, questionIds[0] ?? '0x', testSigner(9).address)
  await world.pass(8)
  expect(await world.ends(candidates)).toEqual(['superseded', 'executed', 'executed', 'executed'])
  expect(sizes(world)).toEqual([3])
  expect(noncesOf(world)).toEqual([0])
})

test.each(['prepared', 'sent', 'confirmed'] as const)(
  'R15: killed after %s: the stored bytes, once',
  async (point) => {
    const world = await createPipelineWorld()
    const { candidates } = await candidatesIn(world, 4)
    let armed = true
    world.failpoint = async (name) => {
      if (!armed || name !== point) return
      armed = false
      throw new Error('killed')
    }
    for (let block = 0; block < 8; block += 1) {
      await world.turn().catch((error: Error) => {
        if (error.message !== 'killed') throw error
        return world.restart()
      })
      world.chain.mine()
      world.clock.monotonic += 2_000
    }
    expect(armed).toBe(false)
    expect(new Set(await world.ends(candidates))).toEqual(new Set(['executed']))
    expect(sizes(world)).toEqual([4])
  },
)
