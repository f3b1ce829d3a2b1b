import { describe, expect, test } from 'vitest'
import { createNonces, verifyJournal } from '#client/journal/journal'
import type { JournalEntry } from '#client/journal/records'
import { submitIntent } from '#client/propose/submission'
import { makeWorld, sha256, type World } from '#support/client-world'
import { seededRandom } from '#support/sim-files'

const written = async () => {
  const world = makeWorld()
  const run = world.run()
  await world.drive(submitIntent(run.parts, run.intent))
  await world.drive(run.journal.close())
  const path = [...world.sim.contents().keys()].find((name) =>
    /journal\/[0-9a-f]{12}\/log-/.test(name),
  )
  if (path === undefined) throw new Error('nothing was written')
  return { world, path, bytes: world.sim.contents().get(path) ?? new Uint8Array() }
}

const verify = (world: World) =>
  world.drive(verifyJournal({ files: world.sim.process(), hash: sha256 }, '/home'))

describe('R24: looking', () => {
  test('reading works while another run holds the lock', async () => {
    const { world } = await written()
    const holder = world.run()
    const seen = await world.drive(holder.journal.exclusive(() => world.run().journal.load()))
    expect(seen.authorizations).toHaveLength(1)
  })
})

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
  let release: () => void = () => undefined
  const held = new Promise<void>((resolve) => {
    release = resolve
  })
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

test('R5: the log is the only file that holds a signature', async () => {
  const { world } = await written()
  const holding = [...world.sim.contents()].filter(([, bytes]) =>
    /0x[0-9a-f]{130}/.test(new TextDecoder().decode(bytes)),
  )
  expect(holding.every(([path]) => path.includes('/log-'))).toBe(true)
  expect(holding).toHaveLength(1)
})

describe('R6: nonces', () => {
  test('one word a run, its 256 bits in order, then a new word', () => {
    const nonces = createNonces(seededRandom(1))
    const all = Array.from({ length: 600 }, () => nonces.next())
    expect(new Set(all).size).toBe(600)
    const words = new Set(all.map((nonce) => nonce >> 8n))
    expect(words.size).toBe(3)
    expect(all.slice(0, 256).map((nonce) => nonce & 0xffn)).toEqual(
      Array.from({ length: 256 }, (_, bit) => BigInt(bit)),
    )
    expect(all.every((nonce) => nonce < 2n ** 256n)).toBe(true)
  })
})
