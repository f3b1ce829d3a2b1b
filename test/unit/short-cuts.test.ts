import { parseTransaction, type TransactionSerializedEIP1559 } from 'viem'
import { carriedBy } from '#chain/transaction'
import type { Hex } from '#ports'
import { endow, invalidateNonces, rivalProposes, setCustomBond } from '#support/fake-chain'
import { bondRaw, fakeContracts } from '#support/fake-world'
import {
  createPipelineWorld,
  foreignTransaction,
  oneCandidate,
  type PipelineWorld,
  proposals,
  testSigner,
} from '#support/pipeline-world'

const countOf = ({ chain }: PipelineWorld, method: string) => chain.calls.get(method) ?? 0

async function heldBack() {
  const { world, questionId, candidate } = await oneCandidate()
  world.chain.mine()
  world.chain.fault('tip', 'unavailable')
  await world.turn()
  expect(await world.end(candidate)).toBe('selected')
  expect(proposals(world)).toEqual([])
  return { world, questionId, candidate }
}

test('a permit nonce that is spent meanwhile', async () => {
  const { world, candidate } = await heldBack()
  const nonce = BigInt(candidate.nonce)
  invalidateNonces(world.chain, candidate.proposer, nonce >> 8n, 1n << (nonce & 255n))
  await world.pass(5)
  expect(await world.end(candidate)).toBe('permit_nonce_used')
  expect(proposals(world)).toEqual([])
})

test('a bond that is raised meanwhile', async () => {
  const { world, questionId, candidate } = await heldBack()
  setCustomBond(world.chain, questionId, 2n * bondRaw)
  await world.pass(5)
  expect(await world.end(candidate)).toBe('bond_above_permit')
  expect(proposals(world)).toEqual([])
})

test("a role that is taken from the executor meanwhile halts the queue, and is nobody's failure", async () => {
  const { world, candidate } = await heldBack()
  world.chain.happen(({ relayers }) => relayers.delete(world.executor.address))
  await world.pass(3)
  expect(proposals(world)).toEqual([])
  expect(await world.end(candidate)).toBe('selected')
  expect(world.pipeline.faults().join()).toContain('DELEGATED_PROPOSER_ROLE')
  world.chain.happen(({ relayers }) => relayers.add(world.executor.address))
  await world.pass(5)
  expect(await world.end(candidate)).toBe('executed')
})

test('R15: a nonce that the key has used elsewhere meanwhile is not signed for again', async () => {
  const { world, candidate } = await heldBack()
  await foreignTransaction(world, world.executor, 0)
  await world.pass(6)
  expect(await world.end(candidate)).toBe('executed')
  const ours = proposals(world).filter(({ to }) => to === fakeContracts.signedProposer)
  expect(ours.map(({ nonce }) => nonce)).toEqual([1])
})

test('R14: a head that another one replaces takes what was read of it along', async () => {
  const { world, candidate } = await heldBack()
  const nonce = BigInt(candidate.nonce)
  world.chain.reorg(1, { drop: true })
  invalidateNonces(world.chain, candidate.proposer, nonce >> 8n, 1n << (nonce & 255n))
  world.chain.mine()
  await world.turn()
  expect(proposals(world)).toEqual([])
  await world.pass(5)
  expect(await world.end(candidate)).toBe('permit_nonce_used')
})

test('the transaction is run at the newest head before a nonce is bound', async () => {
  const { world, questionId, candidate } = await oneCandidate()
  world.failpoint = async (name) => {
    if (name !== 'selected') return
    rivalProposes(world.chain, questionId, testSigner(9).address)
    world.chain.mine()
    await world.view.poll()
  }
  await world.turn()
  expect(proposals(world)).toEqual([])
  expect(world.ledger.slots()).toEqual([])
  await world.pass(4)
  expect(await world.end(candidate)).toBe('superseded')
})

describe('the usual gas limit', () => {
  const limits = (world: PipelineWorld) =>
    world.chain.taken.map(
      ({ raw }) => parseTransaction(raw as TransactionSerializedEIP1559).gas ?? 0n,
    )

  async function next(world: PipelineWorld, by = 0) {
    endow(world.chain, world.proposer(by).address)
    const candidate = await world.submit(await world.question(`q${world.chain.head.number}`), {
      by,
    })
    await world.turn()
    await world.pass(4)
    expect(await world.end(candidate)).toBe('executed')
  }

  test('is not asked of the node', async () => {
    const world = await createPipelineWorld()
    for (const by of [0, 1, 2]) await next(world, by)
    expect(countOf(world, 'estimateGas')).toBe(0)
    expect(limits(world)).toEqual([636_000n, 636_000n, 636_000n])
  })

  test('is never below what is needed: where it is too low, the node is asked', async () => {
    const world = await createPipelineWorld()
    world.chain.gasNeeded = () => 900_000n
    await next(world)
    expect(limits(world)).toEqual([1_080_000n])
  })

  test('is not for a wallet with code, which may need any amount', async () => {
    const world = await createPipelineWorld()
    world.chain.happen(({ wallets }) => wallets.set(world.proposer(1).address, true))
    world.chain.mine()
    await next(world, 1)
    await next(world, 1)
    expect(countOf(world, 'estimateGas')).toBe(2)
  })
})

test('a hundred admitted together: four transactions in one step, each run once before it is signed', async () => {
  const world = await createPipelineWorld({
    config: { executor: { batch: 25 } },
  })
  for (const by of [0, 1, 2]) endow(world.chain, world.proposer(by).address, 10n ** 12n)
  const candidates = []
  for (let n = 0; n < 100; n += 1)
    candidates.push(await world.submit(await world.question(`q${n}`), { by: n % 3 }))
  world.chain.mine()
  const runs: Hex[] = []
  const { call } = world.chain
  world.chain.call = (asked, at) => {
    if (asked.from === world.executor.address) runs.push(asked.data)
    return call(asked, at)
  }
  const before = new Map(world.chain.calls)
  await world.turn()
  expect(proposals(world).map(({ data, nonce }) => [nonce, carriedBy(data).length])).toEqual([
    [0, 25],
    [1, 25],
    [2, 25],
    [3, 25],
  ])
  expect(runs.length).toBe(4)
  const asked = (method: string) => countOf(world, method) - (before.get(method) ?? 0)
  expect(asked('estimateGas')).toBe(0)
  expect(asked('tip')).toBe(1)
  expect(asked('balance')).toBe(1)
  expect(asked('code')).toBeLessThanOrEqual(3)
  await world.pass(4)
  for (const candidate of candidates) expect(await world.end(candidate)).toBe('executed')
})
