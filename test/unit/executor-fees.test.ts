import { invalidateNonces } from '#support/fake-events'
import { noncesOf, oneCandidate, proposals } from '#support/pipeline-world'

/**
 * The model's base fee is 10 gwei and its tip 1 gwei: one transaction at eight ninths of this, and
 * no room for a raise.
 */
const tight = { executor: { max_fee_gwei: 22 } }

test('robustness §3: refused for its fee at the ceiling, the same bytes are sent until the node takes them', async () => {
  const { world, candidate } = await oneCandidate({ config: tight })
  world.chain.fault('send', 'underpriced', { times: 3 })
  await world.turn()
  const [slot] = world.ledger.slots()
  expect(world.pipeline.faults()).toEqual([expect.stringContaining('allows no higher fee')])
  for (let tries = 0; tries < 4; tries += 1) {
    world.clock.monotonic += 30_000
    await world.pass(1)
  }
  await world.pass(4)
  expect(await world.end(candidate)).toBe('executed')
  expect(proposals(world).map(({ hash }) => hash)).toEqual(slot?.attempts.map(({ hash }) => hash))
  expect(noncesOf(world)).toEqual([0])
  expect(world.pipeline.faults()).toEqual([])
})

test('robustness §3: a cancellation at the ceiling is sent until the node takes it', async () => {
  const { world, candidate } = await oneCandidate({ config: tight })
  world.chain.fault('send', 'underpriced', { times: 6 })
  await world.turn()
  const nonce = BigInt(candidate.nonce)
  invalidateNonces(world.chain, candidate.proposer, nonce >> 8n, 1n << (nonce & 255n))
  for (let tries = 0; tries < 12; tries += 1) {
    world.clock.monotonic += 30_000
    await world.pass(1)
  }
  expect(await world.end(candidate)).toBe('permit_nonce_used')
  expect(world.ledger.slots()).toEqual([])
})

test('robustness §3: one raise at once, and one a block after that: a block may tell a new base fee', async () => {
  const { world, candidate } = await oneCandidate()
  world.chain.fault('send', 'underpriced', { times: 100 })
  const attempts = () => world.ledger.slots().map((slot) => slot.attempts.length)
  await world.turn()
  for (let looks = 0; looks < 5; looks += 1) {
    world.clock.monotonic += 5_000
    await world.turn()
  }
  expect(attempts()).toEqual([2])
  await world.pass(1)
  expect(attempts()).toEqual([3])
  world.chain.clearFaults()
  await world.pass(6)
  expect(await world.end(candidate)).toBe('executed')
  expect(noncesOf(world)).toEqual([0])
})
