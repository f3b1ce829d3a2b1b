import {
  foreignTransaction,
  oneCandidate,
  type PipelineWorld,
  testSigner,
} from '#support/pipeline-world'

const ceilingOf = (gwei: number) => ({
  config: { executor: { max_fee_gwei: gwei } },
})

function dearGas(world: PipelineWorld, gwei: bigint): { end(): void } {
  const { block } = world.chain
  world.chain.block = async (at) => {
    const header = await block(at)
    return header && { ...header, baseFeePerGas: gwei * 10n ** 9n }
  }
  return {
    end() {
      world.chain.block = block
    },
  }
}

test('contract §2: what was to be sent is rejected, and the fee that held it back is told no more, dear or not', async () => {
  const { world, candidate } = await oneCandidate(ceilingOf(5))
  await world.turn()
  expect(world.pipeline.faults()).toEqual([expect.stringContaining('max_fee_gwei 5')])
  expect(world.ledger.slots()).toEqual([])
  expect(await world.end(candidate)).toBe('selected')
  await world.reject(candidate)
  await world.pass(1)
  expect(world.pipeline.faults()).toEqual([])
})

test('robustness §3: a raise that is too dear is told until the transaction is mined all the same', async () => {
  const { world } = await oneCandidate(ceilingOf(100))
  await world.turn()
  const gas = dearGas(world, 95n)
  await world.emptyBlocks(12)
  expect(world.pipeline.faults()).toEqual([expect.stringContaining('gas costs 95000000000 wei')])
  gas.end()
  await world.pass(1)
  expect(world.ledger.slots(), 'mined and not final').toHaveLength(1)
  expect(world.pipeline.faults()).toEqual([])
})

test('robustness §3: a fee that cannot be raised is told no longer than the transaction waits', async () => {
  const { world } = await oneCandidate(ceilingOf(22))
  await world.turn()
  await world.emptyBlocks(12)
  expect(world.pipeline.faults()).toEqual([expect.stringContaining('allows no higher fee')])
  await world.pass(1)
  expect(world.ledger.slots(), 'mined and not final').toHaveLength(1)
  expect(world.pipeline.faults()).toEqual([])
})

test("R15: it is the slot's own executor that has to be funded, and the fault ends with the slot", async () => {
  const { world } = await oneCandidate()
  world.chain.fault('send', 'unavailable')
  await world.turn()
  const former = world.executor
  await world.succeedBy(testSigner(7))
  world.chain.fault('send', 'insufficient_funds')
  await world.pass(1)
  expect(world.pipeline.faults()).toEqual([
    `the former executor ${former.address} cannot pay for its transaction: fund it`,
    expect.stringContaining(`former executor ${former.address} is not settled yet`),
  ])
  world.chain.clearFaults()
  await foreignTransaction(world, former, 0)
  await world.pass(6)
  expect(world.ledger.slots().filter(({ executor }) => executor === former.address)).toEqual([])
  expect(world.pipeline.faults()).toEqual([])
})

test('robustness §3: what a node refused matters no more once the nonce is used', async () => {
  const { world } = await oneCandidate()
  world.chain.fault('send', 'insufficient_funds')
  await world.turn()
  expect(world.pipeline.faults()).toEqual([expect.stringMatching(/cannot pay.*fund it/)])
  await foreignTransaction(world, world.executor, 0)
  await world.pass(1)
  expect(world.ledger.slots()).toHaveLength(1)
  expect(world.pipeline.faults()).toEqual([])
})

test('robustness §3: one slot that is paid for says nothing of another that is not', async () => {
  const { world } = await oneCandidate(ceilingOf(1000))
  world.chain.fault('send', 'insufficient_funds')
  await world.turn()
  await world.submit(await world.question('another'), { by: 1 })
  await world.turn()
  expect(
    world.ledger.slots().map(({ attempts }) => attempts.map(({ sentAtMs }) => sentAtMs !== null)),
  ).toEqual([[false], [true]])
  expect(world.pipeline.faults()).toEqual([expect.stringMatching(/cannot pay.*fund it/)])
})
