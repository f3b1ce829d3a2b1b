import { ask, questionText } from '#support/fake-events'
import { oneCandidate } from '#support/pipeline-world'

test('domain §9: funds that came back later in the block of the revert do not hide that they were missing', async () => {
  const { world, candidate } = await oneCandidate()
  const { proposer } = candidate
  await world.turn()
  const heldRaw = world.chain.world.balances.get(proposer) ?? 0n
  world.chain.happen(({ balances }) => balances.set(proposer, 1n))
  world.chain.mine(1, { empty: true })
  world.chain.mine(1)
  world.chain.world.balances.set(proposer, heldRaw)
  await world.pass(4)
  expect(await world.progress(candidate)).toMatchObject({
    status: 'failed',
    failure: { stage: 'confirmation', code: 'insufficient_balance', retryable: true },
  })
})

test.each([1n, 5n])(
  'R14: %i s after the block before: the transaction reverts, and the candidate fails as round_advanced',
  async (seconds) => {
    const { world, candidate } = await movedTo(seconds, true)
    await world.pass(8)
    expect(await world.progress(candidate)).toMatchObject({
      status: 'failed',
      failure: { code: 'round_advanced', stage: 'confirmation', retryable: false },
    })
  },
)

test.each([1n, 5n])(
  'R14: %i s after the block before: a candidate that was not sent fails as round_advanced too',
  async (seconds) => {
    const { world, candidate } = await movedTo(seconds, false)
    await world.pass(8)
    expect(await world.progress(candidate)).toMatchObject({
      status: 'failed',
      failure: { code: 'round_advanced', stage: 'validation', retryable: false },
    })
    expect(world.ledger.slots()).toEqual([])
  },
)

async function movedTo(seconds: bigint, isSent: boolean) {
  const { world, questionId, candidate } = await oneCandidate()
  if (isSent) await world.turn()
  world.chain.reorg(1, { drop: true })
  world.chain.nextSeconds = seconds
  expect(ask(world.chain, questionText('Rain?'))).toBe(questionId)
  world.chain.mine()
  world.chain.nextSeconds = 2n
  return { world, candidate }
}
