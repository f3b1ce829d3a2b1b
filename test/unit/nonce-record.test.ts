import type { Ledger } from '#gateway/ledger/ledger'
import { StorageError } from '#protocol/errors'
import { noncesOf, oneCandidate } from '#support/pipeline-world'

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
