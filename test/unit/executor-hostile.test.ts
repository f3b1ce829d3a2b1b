import { parseTransaction, type TransactionSerializedEIP1559 } from 'viem'
import { carriedBy } from '#chain/transaction'
import { ChainError } from '#ports'
import type { Candidate } from '#protocol/candidate'
import type { Address } from '#protocol/schema'
import { deferred } from '#support/deferred'
import { endow, invalidateNonces } from '#support/fake-events'
import { fakeContracts } from '#support/fake-world'
import { createPipelineWorld, noncesOf, proposals, testSigner } from '#support/pipeline-world'

const names = (data: string, who: Address) => data.includes(who.slice(2))

async function greedy(gas: bigint, executor = {}) {
  const world = await createPipelineWorld({ config: { executor } })
  const { gasNeeded } = world.chain
  const who = world.proposer(0).address
  world.chain.gasNeeded = (data) => (names(data, who) ? gas : gasNeeded(data))
  const candidates = []
  for (const by of [0, 1, 2])
    candidates.push(await world.submit(await world.question(`q${by}`), { by }))
  return { world, candidates }
}

test('a proposal that needs more gas than one may have fails by itself, and takes no nonce', async () => {
  const { world, candidates } = await greedy(26_000_000n)
  await world.turn()
  await world.pass(6)
  expect(await world.ends(candidates)).toEqual(['simulation_reverted', 'executed', 'executed'])
  const [greedyOne] = candidates
  const { progress } = await world.now(greedyOne as Candidate)
  expect(progress.status === 'failed' && progress.failure.detail).toMatch(
    /needs 26000000 gas, more than the 1500000 that executor.max_proposal_gas allows/,
  )
  expect(proposals(world).map(({ hash }) => world.chain.truth.receipt(hash)?.status)).toEqual([
    'success',
    'success',
  ])
})

test('an executor that can pay for some but not for the dearest sends those', async () => {
  const { world, candidates } = await greedy(12_000_000n, { max_proposal_gas: 20_000_000 })
  world.chain.fund(world.executor.address, 10n ** 17n)
  await world.turn()
  expect(world.pipeline.faults()).toEqual([expect.stringContaining('fund it')])
  await world.pass(6)
  expect(await world.ends(candidates)).toEqual(['selected', 'executed', 'executed'])
  world.chain.fund(world.executor.address, 10n ** 20n)
  await world.pass(8)
  expect(await world.ends(candidates)).toEqual(['executed', 'executed', 'executed'])
  expect(world.pipeline.faults()).toEqual([])
})

test('R3: bytes that every node refuses, and none ever took, are signed anew under the same nonce once that lasts', async () => {
  const world = await createPipelineWorld()
  const { block, send } = world.chain
  let spike = 200_000_000_000n
  world.chain.block = async (at) => {
    const header = await block(at)
    return header && { ...header, baseFeePerGas: spike }
  }
  world.chain.send = async (raw) => {
    const { gas = 0n, maxFeePerGas = 0n } = parseTransaction(raw as TransactionSerializedEIP1559)
    if (gas * maxFeePerGas > 10n ** 17n)
      throw new ChainError('refused', 'the node answered: tx fee exceeds the configured cap')
    return send(raw)
  }
  const first = await world.submit(await world.question('one'))
  await world.turn()
  spike = 10_000_000_000n
  const second = await world.submit(await world.question('two'), { by: 1 })
  await world.pass(40)
  expect(await world.ends([first, second])).toEqual(['executed', 'executed'])
  expect(noncesOf(world).toSorted()).toEqual([0, 1])
  expect(world.pipeline.faults()).toEqual([])
})

test('R14: a nonce that was seen spent in an undone block cancels nothing', async () => {
  const world = await createPipelineWorld()
  const candidate = await world.submit(await world.question(), { by: 1 })
  const nonce = BigInt(candidate.nonce)
  world.chain.mine()
  await world.view.poll()
  invalidateNonces(world.chain, candidate.proposer, nonce >> 8n, 1n << (nonce & 255n))
  world.chain.mine()
  await world.view.poll()
  const { promise: gate, resolve: release } = deferred()
  const { promise: held, resolve: tellHeld } = deferred()
  const { call } = world.chain
  world.chain.call = async (asked, at) => {
    const answer = await call(asked, at)
    if (asked.to === fakeContracts.permit2 && BigInt(answer) !== 0n) {
      tellHeld()
      await gate
    }
    return answer
  }
  const step = world.pipeline.step()
  await held
  world.chain.reorg(1, { drop: true })
  world.chain.mine(2, { empty: true })
  await world.view.poll()
  release()
  await step
  world.chain.call = call
  await world.pass(12)
  expect(await world.ends([candidate])).toEqual(['executed'])
  expect(world.view.nonceKnownUsed(candidate.proposer, nonce), 'by its own execution').toBe(true)
  expect(world.chain.taken.filter(({ to }) => to === world.executor.address)).toEqual([])
})

test('domain §2.2: whoever has sunk a transaction of several goes alone, replays included', async () => {
  const world = await createPipelineWorld()
  const who = world.proposer(0).address
  const culprit = await world.submit(await world.question('culprit'), {
    by: 0,
    deadline: world.chain.head.timestamp + 1_000_000n,
  })
  for (let time = 0; time < 4; time += 1) {
    for (const by of [1, 2]) await world.submit(await world.question(`other ${time} ${by}`), { by })
    endow(world.chain, who)
    world.chain.mine()
    if (time > 0) await world.ledger.replay(culprit.id)
    await world.turn()
    endow(world.chain, who, 0n)
    await world.pass(8)
  }
  const sunk = proposals(world).filter(
    ({ hash, data }) =>
      carriedBy(data).length > 1 && world.chain.truth.receipt(hash)?.status === 'reverted',
  )
  expect(sunk).toHaveLength(1)
})

test('domain §3.3: wallets with code go alone: they may answer otherwise when it counts', async () => {
  const world = await createPipelineWorld()
  world.chain.happen((state) => state.wallets.set(world.proposer(1).address, true))
  world.chain.mine()
  const candidates = []
  for (const by of [0, 1, 2])
    candidates.push(await world.submit(await world.question(`q${by}`), { by }))
  await world.turn()
  await world.pass(5)
  expect(await world.ends(candidates)).toEqual(['executed', 'executed', 'executed'])
  expect(
    proposals(world)
      .map(({ data }) => carriedBy(data).length)
      .toSorted(),
  ).toEqual([1, 2])
})

test('R15: a nonce that a former executor bound and never signed for is let go, and the candidate goes on under the new one', async () => {
  const world = await createPipelineWorld()
  const candidate = await world.submit(await world.question())
  await world.killedAt('reserved')
  const successor = testSigner(7)
  await world.succeedBy(successor)
  await world.pass(8)
  expect(await world.ends([candidate])).toEqual(['executed'])
  expect(new Set(world.chain.taken.map(({ from }) => from))).toEqual(new Set([successor.address]))
  expect(world.ledger.slots()).toEqual([])
  expect(world.pipeline.faults()).toEqual([])
})

test('R16: an odd answer to what the executor asks is told, and it goes on when it ends', async () => {
  const world = await createPipelineWorld()
  const candidate = await world.submit(await world.question())
  const { tip } = world.chain
  world.chain.tip = async () => {
    throw new ChainError('refused', 'eth_maxPriorityFeePerGas: the node answered: no such method')
  }
  await world.turn()
  await world.pass(2)
  expect(world.pipeline.faults()).toEqual([expect.stringContaining('no such method')])
  world.chain.tip = tip
  await world.pass(5)
  expect(await world.ends([candidate])).toEqual(['executed'])
  expect(world.pipeline.faults()).toEqual([])
})
