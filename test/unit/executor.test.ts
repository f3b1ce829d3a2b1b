import type { Ledger } from '#gateway/ledger/ledger'
import { StorageError } from '#protocol/errors'
import {
  createPipelineWorld,
  foreignTransaction,
  noncesOf,
  oneCandidate,
  proposals,
} from '#support/pipeline-world'

test('R14, contract §10: nothing of a transaction is on record before its block is final', async () => {
  const { world, candidate } = await oneCandidate()
  await world.turn()
  await world.pass(1)
  expect(await world.progress(candidate)).toMatchObject({
    status: 'selected',
    submission: { status: 'submitted' },
  })
  expect(world.ledger.slots()).not.toEqual([])
  expect(world.ledger.slots()[0]?.minedIn).toBeUndefined()
  await world.pass(2)
  expect(await world.end(candidate)).toBe('executed')
  expect(world.ledger.slots()).toEqual([])
})

test('R15: as long as the foreign transaction is not final, no second nonce is taken', async () => {
  const { world } = await oneCandidate()
  world.chain.fault('send', 'unavailable')
  world.chain.finalityLag = 30
  await world.turn()
  await foreignTransaction(world, world.executor, 0)
  await world.pass(20)
  expect(world.ledger.slots().map(({ nonce }) => nonce)).toEqual([0])
  expect(proposals(world).filter(({ to }) => to !== world.proposer(2).address)).toEqual([])
})

test('robustness §3: nonces go on above what the chain knows, even where the ledger is new', async () => {
  const world = await createPipelineWorld()
  await foreignTransaction(world, world.executor, 0)
  world.chain.mine(4)
  const candidate = await world.submit(await world.question())
  await world.turn()
  await world.pass(4)
  expect(await world.end(candidate)).toBe('executed')
  expect(proposals(world).at(-1)?.nonce).toBe(1)
})

test('R3: a nonce whose record did not become durable is not spent: the next transaction has it', async () => {
  const { world, candidate } = await oneCandidate()
  const { commit } = world.ledger
  let refused = 0
  ;(world.ledger as { commit: Ledger['commit'] }).commit = async (changes) => {
    if (refused > 0 || !changes.some(({ kind }) => kind === 'slot.opened')) return commit(changes)
    refused += 1
    throw new StorageError('store_unavailable', 'the disk is full', { httpStatus: 503 })
  }
  await world
    .turn()
    .catch((error: unknown) => expect(error).toMatchObject({ code: 'store_unavailable' }))
  expect(refused).toBe(1)
  await world.pass(5)
  expect(noncesOf(world)).toEqual([0])
  expect(await world.end(candidate)).toBe('executed')
})
