/**
 * Questions that were asked in one block share requester, identifier and timestamp: their rounds
 * differ by ancillary data alone, which ProposalExecuted does not name (domain §2.1). What becomes
 * of one says nothing of the others.
 */
import type { Hex } from '#ports'
import { ask, questionText } from '#support/fake-events'
import { createPipelineWorld, type PipelineWorld } from '#support/pipeline-world'
import { watchSends } from '#support/reorg-watch'

async function siblings(world: PipelineWorld): Promise<readonly [Hex, Hex]> {
  const pair = [
    ask(world.chain, questionText('one')),
    ask(world.chain, questionText('other')),
  ] as const
  world.chain.mine()
  await world.turn()
  return pair
}

test('R3: a candidate whose transaction is not at a node yet is sent again while its sibling of the same proposer and price is executed', async () => {
  const world = await createPipelineWorld()
  const watch = watchSends(world.chain, world.executor.address)
  const [one, other] = await siblings(world)
  const first = await world.submit(one)
  await world.turn()
  const second = await world.submit(other)
  expect(second.round.timestamp).toBe(first.round.timestamp)
  world.chain.fault('send', 'unavailable')
  await world.turn()
  expect(await world.progress(second)).toMatchObject({
    status: 'selected',
    submission: { status: 'prepared' },
  })
  await world.pass(8)
  expect(await world.end(first)).toBe('executed')
  expect(await world.end(second)).toBe('executed')
  expect(watch.faults).toEqual([])
  expect(watch.handed.map(({ nonce, calls }) => [nonce, calls.length])).toEqual([
    [0, 1],
    [1, 1],
  ])
})

test('R3: candidates that are reserved and not signed for when their sibling is executed are sent after a restart', async () => {
  const world = await createPipelineWorld()
  const watch = watchSends(world.chain, world.executor.address)
  const [one, other] = await siblings(world)
  const first = await world.submit(one)
  await world.turn()
  const second = await world.submit(other)
  await world.killedAt('reserved')
  await world.pass(8)
  expect(await world.end(first)).toBe('executed')
  expect(await world.end(second)).toBe('executed')
  expect(watch.handed.map(({ nonce, calls }) => [nonce, calls.length])).toEqual([
    [0, 1],
    [1, 1],
  ])
})
