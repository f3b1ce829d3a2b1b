/** Why a mined transaction reverted: what the cause depends on is read where the replay reverts (domain §9, After sending). */
import { expect, test } from 'vitest'
import { oneCandidate } from '../support/pipeline-world.js'

test('domain §9: funds that came back later in the block of the revert do not hide that they were missing', async () => {
  const { world, candidate } = await oneCandidate()
  const { proposer } = candidate
  await world.turn()
  const heldRaw = world.chain.world.balances.get(proposer) ?? 0n
  world.chain.happen(({ balances }) => {
    balances.set(proposer, 1n)
    return []
  })
  world.chain.mine(1, { empty: true })
  world.chain.mine(1)
  world.chain.world.balances.set(proposer, heldRaw)
  await world.pass(4)
  expect((await world.now(candidate)).progress).toMatchObject({
    status: 'failed',
    failure: { stage: 'confirmation', code: 'insufficient_balance', retryable: true },
  })
})
