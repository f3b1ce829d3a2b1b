import type { JournalEntry } from '#client/journal/authorizations'
import { createNonces, verifyJournal } from '#client/journal/journal'
import { makeWorld, sha256, type World } from '#support/client-world'
import { deferred } from '#support/deferred'
import { seededRandom } from '#support/sim-files'

const verify = (world: World) =>
  world.drive(verifyJournal({ files: world.sim.process(), hash: sha256 }, '/home'))

test('R11: a record whose checksum holds but whose shape does not', async () => {
  const world = makeWorld()
  const run = world.run()
  await world.drive(
    run.journal.append([{ kind: 'ack', data: { id: 'nonsense' } } as unknown as JournalEntry]),
  )
  await expect(verify(world)).rejects.toMatchObject({
    code: 'journal_damaged',
    meta: { exitCode: 74 },
  })
})

test('R8: the lock of a living process is waited for, then named; that of a dead one is taken over', async () => {
  const world = makeWorld()
  const holder = world.run()
  const { promise: held, resolve: release } = deferred()
  const holding = holder.journal.exclusive(() => held)
  const waiting = world.run().journal.exclusive(async () => 'mine', 500)
  await expect(world.drive(waiting)).rejects.toMatchObject({
    code: 'store_locked',
    meta: { exitCode: 74 },
  })
  world.host.kill(1)
  expect(await world.drive(world.run().journal.exclusive(async () => 'mine', 500))).toBe('mine')
  release()
  await holding
})

test('an unusable home folder is told with a hint', async () => {
  const list = () => Promise.reject(Object.assign(new Error('no'), { code: 'ENOTDIR' }))
  const files = { ...makeWorld().sim.process(), list }
  const verified = verifyJournal({ files, hash: sha256 }, '/home')
  await expect(verified).rejects.toHaveProperty('meta.hint', expect.stringContaining('(--home)'))
})

describe('R6: nonces', () => {
  test('one word a run, its 256 bits in order, then a new word', () => {
    const all = Array.from({ length: 600 }, createNonces(seededRandom(1)))
    expect(new Set(all).size).toBe(600)
    const words = new Set(all.map((nonce) => nonce >> 8n))
    expect(words.size).toBe(3)
    expect(all.slice(0, 256).map((nonce) => nonce & 0xffn)).toEqual(
      Array.from({ length: 256 }, (_, bit) => BigInt(bit)),
    )
    expect(all.every((nonce) => nonce < 2n ** 256n)).toBe(true)
  })
})
