import { keccak256 } from 'viem'
import type { Hex } from '#ports'
import { upgrade } from '#support/fake-events'
import { oracle, token } from '#support/fake-world'
import { createPipelineWorld } from '#support/pipeline-world'

const other = `0x${'b'.repeat(40)}` as const
const own = (address: Hex) => ({ implementation: address, code_hash: keccak256('0x') })
const implementations = { [oracle]: own(oracle), [token]: own(token) }

test('contract §9: what is admitted waits, what is out is followed, and all goes on once the code is pinned', async () => {
  const world = await createPipelineWorld({ implementations })
  const first = await world.submit(await world.question('one'))
  await world.turn()
  expect(world.chain.taken).toHaveLength(1)
  const second = await world.submit(await world.question('two'))
  upgrade(world.chain, oracle, other)
  await world.pass(6)
  expect(await world.end(first)).toBe('executed')
  expect(await world.end(second)).toBe('received')
  expect(world.chain.taken).toHaveLength(1)
  const runs = { implementation: other, code_hash: keccak256(`0x60${other.slice(2)}`) }
  await world.ledger.commit([
    { kind: 'implementation.set', address: oracle, runs, reason: 'looked at' },
  ])
  world.view.pinned()
  await world.pass(6)
  expect(await world.end(second)).toBe('executed')
})

test('R23: what an operator has pinned holds after a restart, and after a compaction', async () => {
  const world = await createPipelineWorld({ implementations })
  upgrade(world.chain, oracle, other)
  await world.pass()
  expect(world.view.codeFaults()).toHaveLength(1)
  const runs = { implementation: other, code_hash: keccak256(`0x60${other.slice(2)}`) }
  await world.ledger.commit([
    { kind: 'implementation.set', address: oracle, runs, reason: 'looked at' },
  ])
  await world.restart()
  expect(world.view.faults()).toEqual([])
  expect(world.view.pins()[oracle]).toEqual(runs)
})
