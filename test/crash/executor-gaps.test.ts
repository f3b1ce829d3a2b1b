import { signTransaction } from '#chain/transaction'
import { type Chain, ChainError, type Signer } from '#ports'
import { createPipelineWorld, type PipelineWorld } from '#support/pipeline-world'
import { watchSends } from '#support/reorg-watch'

function miscounts(world: PipelineWorld, tags: readonly string[]) {
  const { transactionCount } = world.chain
  const lie = { by: 0 }
  world.chain.transactionCount = async (account, at) => {
    const count = await transactionCount(account, at)
    return tags.includes(at) ? Math.max(0, count + lie.by) : count
  }
  return lie
}

async function miscounting(tags: readonly string[] = ['latest', 'finalized']) {
  const world = await createPipelineWorld()
  const watch = watchSends(world.chain, world.executor.address)
  return { world, watch, lie: miscounts(world, tags) }
}

const statusOf = async (world: PipelineWorld, candidate: Parameters<PipelineWorld['now']>[0]) =>
  (await world.progress(candidate)).status
const gapOf = (world: PipelineWorld) =>
  world.pipeline
    .faults()
    .filter((fault) => /nonce \d+ .*is not used by any transaction/.test(fault))

describe('a node that told a transaction count too high for a while', () => {
  const tags: readonly (readonly Parameters<Chain['transactionCount']>[1][])[] = [
    ['latest'],
    ['latest', 'finalized'],
  ]
  test.each(tags.flatMap((told) => [1, 3].map((by) => [told.join(' and '), by, told] as const)))(
    'R15, R27: %s, by %i: what was bound above the gap is executed once the node is honest, under one nonce each',
    async (_name, by, told) => {
      const { world, watch, lie } = await miscounting(told)
      lie.by = by
      const before = await world.submit(await world.question('before'))
      await world.turn()
      await world.pass(10)
      lie.by = 0
      const after = await world.submit(await world.question('after'), { by: 1 })
      await world.turn()
      expect(gapOf(world)).toHaveLength(1)
      await world.pass(20)
      expect([await statusOf(world, before), await statusOf(world, after)]).toEqual([
        'executed',
        'executed',
      ])
      expect(world.ledger.slots()).toEqual([])
      expect(world.pipeline.faults()).toEqual([])
      expect(watch.faults).toEqual([])
      expect([...watch.noncesByRound().values()].map(({ size }) => size)).toEqual([1, 1])
    },
  )

  test('R23: the gap is found and filled after a restart too', async () => {
    const { world, lie } = await miscounting()
    lie.by = 1
    const candidate = await world.submit(await world.question())
    await world.turn()
    lie.by = 0
    await world.restart()
    await world.turn()
    expect(gapOf(world)).toHaveLength(1)
    await world.restart()
    await world.pass(20)
    expect(await statusOf(world, candidate)).toBe('executed')
    expect(world.pipeline.faults()).toEqual([])
  })

  test.each([17, 1_000])(
    'R27: at the head alone, by %i: no nonce is bound that final state does not confirm',
    async (by) => {
      const world = await createPipelineWorld()
      const lie = miscounts(world, ['latest'])
      lie.by = by
      const before = await world.submit(await world.question('before'))
      await world.turn()
      await world.pass(6)
      expect(world.ledger.slots()).toEqual([])
      expect(world.pipeline.faults()).toEqual([
        expect.stringMatching(new RegExp(`counts ${by} transactions .*${by} more than are final`)),
      ])
      lie.by = 0
      const after = await world.submit(await world.question('after'), { by: 1 })
      await world.turn()
      await world.pass(6)
      expect([await statusOf(world, before), await statusOf(world, after)]).toEqual([
        'executed',
        'executed',
      ])
      expect(world.pipeline.faults()).toEqual([])
    },
  )

  test('R27: two such counts do not add up to a gap that is left to the operator', async () => {
    const world = await createPipelineWorld()
    const lie = miscounts(world, ['latest'])
    const candidates = []
    for (const [by, rise] of [12, 24].entries()) {
      lie.by = rise
      candidates.push(await world.submit(await world.question(`question ${rise}`), { by }))
      await world.turn()
      await world.pass(6)
    }
    lie.by = 0
    await world.pass(20)
    for (const candidate of candidates) expect(await statusOf(world, candidate)).toBe('executed')
    expect(world.pipeline.faults()).toEqual([])
  })

  test.each([false, true])(
    'R3, R15, R27: a gap of 40 that final state seemed to confirm is filled, a few at a time, after a restart too (%s), by whatever signs',
    async (isRestarted) => {
      const signing = (key: Signer): Signer => ({
        address: key.address,
        signDigest: () => Promise.reject(new Error('signs no digests')),
        signTransaction: async (unsigned) => (await signTransaction(key, unsigned)).raw,
      })
      const world = await createPipelineWorld({ signing })
      const watch = watchSends(world.chain, world.executor.address)
      const lie = miscounts(world, ['latest', 'finalized'])
      lie.by = 40
      const candidate = await world.submit(await world.question())
      await world.turn()
      await world.pass(30)
      expect(world.pipeline.faults()).toEqual([
        expect.stringMatching(/nonce 40 is not mined, though its fee was raised/),
      ])
      lie.by = 0
      if (isRestarted) await world.restart()
      for (let block = 0; block < 6; block += 1) {
        world.chain.mine(1, { empty: true })
        await world.turn()
        expect(gapOf(world)).toHaveLength(1)
      }
      expect(new Set(watch.handed.map(({ nonce }) => nonce)).size, 'and that of the slot').toBe(17)
      await world.pass(40)
      expect(await statusOf(world, candidate)).toBe('executed')
      expect(world.ledger.slots()).toEqual([])
      expect(world.pipeline.faults()).toEqual([])
      expect(watch.faults).toEqual([])
      expect([...watch.noncesByRound().values()].map((nonces) => [...nonces])).toEqual([[40]])
    },
  )

  test('R27: a gap that is dearer to fill than another key is told and left to the operator', async () => {
    const { world, lie } = await miscounting()
    lie.by = 1_001
    await world.submit(await world.question())
    await world.turn()
    await world.pass(6)
    lie.by = 0
    await world.pass(20)
    expect(gapOf(world)).toEqual([expect.stringMatching(/1001 nonces are missing.*another key/)])
    expect(world.chain.taken.filter(({ to }) => to === world.executor.address)).toEqual([])
  })
})

test.each([true, false])(
  'R3, R15: while it holds the transaction itself (%s) or takes it again: no second nonce for its round',
  async (isHeld) => {
    const { world, watch, lie } = await miscounting()
    const candidate = await world.submit(await world.question())
    await world.turn()
    lie.by = 1
    const told: string[] = []
    for (let block = 0; block < 10; block += 1) {
      if (!isHeld) world.chain.clearPool()
      await world.emptyBlocks(1)
      told.push(...world.pipeline.faults())
    }
    expect(told.join('\n')).toMatch(/nonce 0 .*is used, and/)
    lie.by = 0
    world.clock.monotonic += 30_000
    await world.pass(8)
    expect(await statusOf(world, candidate)).toBe('executed')
    expect(watch.faults).toEqual([])
    expect([...watch.noncesByRound().values()].map((nonces) => [...nonces])).toEqual([[0]])
    expect(world.pipeline.faults()).toEqual([])
  },
)

test.each(['refused', 'underpriced', 'insufficient_funds', 'nonce_too_high'] as const)(
  'R3: "%s" does not confirm it: no second nonce for the round',
  async (kind) => {
    const { world, watch, lie } = await miscounting()
    const { send } = world.chain
    const candidate = await world.submit(await world.question())
    await world.turn()
    lie.by = 1
    world.chain.clearPool()
    world.chain.send = () => Promise.reject(new ChainError(kind, 'the pool is full'))
    await world.emptyBlocks(6)
    expect(world.pipeline.faults().join('\n')).toMatch(/nonce 0 .*is used, and/)
    expect(world.ledger.slots().map(({ nonce }) => nonce)).toEqual([0])
    lie.by = 0
    world.chain.send = send
    world.clock.monotonic += 30_000
    await world.pass(8)
    expect(await statusOf(world, candidate)).toBe('executed')
    expect(watch.faults).toEqual([])
    expect(world.pipeline.faults()).toEqual([])
  },
)

test('R3: nor does "nonce too low" while a pool holds them', async () => {
  const { world, lie } = await miscounting()
  await world.submit(await world.question())
  await world.turn()
  lie.by = 1
  world.chain.send = () => Promise.reject(new ChainError('nonce_too_low', 'nonce too low'))
  for (let block = 0; block < 6; block += 1) {
    world.chain.mine(1, { empty: true })
    await world.turn()
  }
  expect(world.ledger.slots().map(({ nonce }) => nonce)).toEqual([0])
  expect(world.pipeline.faults().join('\n')).toMatch(/nonce 0 .*is used, and/)
})

test('R15: no nonce that is used is signed for again, and nothing is held up', async () => {
  const { world, watch, lie } = await miscounting()
  const first = await world.submit(await world.question('first'))
  await world.turn()
  await world.pass(5)
  lie.by = -1
  const second = await world.submit(await world.question('second'), { by: 1 })
  await world.turn()
  await world.pass(10)
  lie.by = 0
  await world.pass(10)
  expect([await statusOf(world, first), await statusOf(world, second)]).toEqual([
    'executed',
    'executed',
  ])
  expect(watch.handed.map(({ nonce }) => nonce)).toEqual([0, 1])
  expect(world.pipeline.faults()).toEqual([])
})

test('R27: nonces that were settled on the lost chain are told, filled by self-transfers, and new candidates are executed', async () => {
  const world = await createPipelineWorld()
  const lost = [
    await world.submit(await world.question('one')),
    await world.submit(await world.question('two'), { by: 1 }),
  ]
  const question = await world.question('three')
  for (const candidate of lost) expect(await statusOf(world, candidate)).toBe('received')
  await world.turn()
  await world.pass(6)
  expect(world.ledger.slots()).toEqual([])
  world.chain.reorg(6, { drop: true, lost: true })
  await world.turn()
  world.chain.mine(12)
  await world.turn()
  const next = await world.submit(question, { by: 2 })
  await world.turn()
  await world.turn()
  expect(gapOf(world)).toHaveLength(1)
  await world.pass(20)
  expect(await statusOf(world, next)).toBe('executed')
  expect(world.pipeline.faults()).toEqual([])
  expect(world.ledger.slots()).toEqual([])
})
