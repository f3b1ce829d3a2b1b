/**
 * What became of executed proposals, as the gateway follows it (domain §10): counted once each, in
 * finalized state, for what this store has executed.
 */
import { expect, test } from 'vitest'
import { followStakes } from '../../src/core/host/followed-stakes.js'
import type { Hex } from '../../src/core/ports.js'
import { dispute, rivalProposes, settle } from '../support/fake-events.js'
import { adapter, fakeContracts, questionOf } from '../support/fake-world.js'
import { createPipelineWorld, type PipelineWorld } from '../support/pipeline-world.js'

/** Follows a world's stakes from now on. */
function followed(world: PipelineWorld) {
  const outcomes: string[] = []
  const disputed: string[] = []
  const stakes = followStakes(world.ledger, world.view, fakeContracts, (seen) => {
    if (seen.kind === 'stake') outcomes.push(seen.outcome)
  })
  stakes.onDispute(({ candidateId }) => disputed.push(candidateId))
  return { outcomes, disputed, stop: stakes.stop }
}

/** An executed candidate for a new question, and its round. */
async function executed(world: PipelineWorld, name: string) {
  const questionId = await world.question(name)
  const round = questionOf(world.chain.world, questionId).timestamp
  const candidate = await world.submit(questionId)
  await world.pass(6)
  expect((await world.now(candidate)).progress.status).toBe('executed')
  return { questionId, round, candidate }
}
const disputer = adapter
const other = 0n

test('undisputed, won and lost are told apart, and other people’s settlements are not counted', async () => {
  const world = await createPipelineWorld()
  const { outcomes, disputed } = followed(world)
  const [calm, won, lost] = [
    await executed(world, 'calm'),
    await executed(world, 'won'),
    await executed(world, 'lost'),
  ]
  const foreign = await world.question('foreign')
  rivalProposes(world.chain, foreign, `0x${'9'.repeat(40)}`)
  for (const { questionId } of [won, lost]) dispute(world.chain, questionId)
  await world.pass(4)
  expect(disputed).toEqual([won.candidate.id, lost.candidate.id])
  expect(outcomes).toEqual([])
  settle(world.chain, calm.questionId, {})
  settle(world.chain, foreign, {})
  settle(world.chain, won.questionId, { round: won.round, disputer })
  settle(world.chain, lost.questionId, { round: lost.round, disputer, price: other })
  await world.pass(1)
  expect(outcomes, 'nothing is counted that may be undone').toEqual([])
  await world.pass(4)
  expect(outcomes).toEqual(['undisputed', 'won', 'lost'])
})

test('R14: a settlement that a reorganisation undoes is not counted, and one that comes again is counted once', async () => {
  const world = await createPipelineWorld()
  const { outcomes } = followed(world)
  const { questionId } = await executed(world, 'undone')
  settle(world.chain, questionId, {})
  await world.pass(1)
  world.chain.reorg(1)
  await world.pass(6)
  expect(outcomes).toEqual([])
  settle(world.chain, questionId, {})
  await world.pass(6)
  expect(outcomes).toEqual(['undisputed'])
})

test('what was executed before the start is followed too', async () => {
  const world = await createPipelineWorld()
  const first = await executed(world, 'first')
  await world.restart()
  const { outcomes, stop } = followed(world)
  const second = await executed(world, 'second')
  for (const { questionId } of [first, second]) settle(world.chain, questionId as Hex, {})
  await world.pass(5)
  expect(outcomes).toEqual(['undisputed', 'undisputed'])
  stop()
})
