import { describe, expect, test } from 'vitest'
import { createNonces, openJournal, verifyJournal } from '#core/client/journal/journal'
import type { JournalEntry } from '#core/client/journal/records'
import { submitIntent } from '#core/client/propose/submission'
import { makeWorld, sha256, type World } from '#support/client-world'
import { SimFiles, seededRandom } from '#support/sim-files'

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
  test('a journal that does not exist reads as empty and nothing is created', async () => {
    const world = makeWorld()
    const view = await world.journal()
    expect(view.authorizations).toEqual([])
    expect(await verify(world)).toEqual({
      runs: 0,
      records: 0,
      authorizations: 0,
      hashes: 0,
      nonces: 0,
    })
    expect(world.sim.contents().size).toBe(0)
    expect(
      world.sim.trace.filter((call) => /^(open|makeDir|write|link|rename)/.test(call)),
    ).toEqual([])
  })

  test('verify proves every run and changes nothing', async () => {
    const { world } = await written()
    const before = world.sim.contents()
    expect(await verify(world)).toMatchObject({ runs: 1, authorizations: 1 })
    expect(world.sim.contents()).toEqual(before)
  })

  test('reading works while another run holds the lock', async () => {
    const { world } = await written()
    const holder = world.run()
    const seen = await world.drive(holder.journal.exclusive(() => world.run().journal.load()))
    expect(seen.authorizations).toHaveLength(1)
  })
})

describe('R11: damage is exit 74 and names file and offset', () => {
  test.each([0.1, 0.5, 0.9])('a flipped bit at %f of the file', async (share) => {
    const { world, path, bytes } = await written()
    const damaged = bytes.slice()
    const at = Math.floor(bytes.length * share)
    damaged[at] = (damaged[at] ?? 0) ^ 1
    world.sim.put(path, damaged)
    for (const look of [() => verify(world), () => world.journal()]) {
      const error = await look().catch((cause: unknown) => cause)
      expect(error).toMatchObject({ code: 'store_damaged', meta: { exitCode: 74 } })
      expect(error).toMatchObject({
        detail: expect.stringMatching(new RegExp(`${path.replace(/^\//, '')}.*byte \\d+`)),
      })
    }
    const run = world.run()
    await expect(world.drive(submitIntent(run.parts, run.intent))).rejects.toMatchObject({
      meta: { exitCode: 74 },
    })
    expect(world.signatures).toHaveLength(1)
  })

  test('a record whose checksum holds but whose shape does not', async () => {
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
})

describe('runs', () => {
  test('R12: each run writes a folder of its own, and readers merge all', async () => {
    const world = makeWorld()
    for (const outcome of ['p1', 'p2'] as const) {
      const run = world.run({ key: outcome === 'p1' ? 7 : 8 })
      await world.drive(submitIntent(run.parts, { ...run.intent, outcome }))
      await world.drive(run.journal.close())
    }
    expect(await verify(world)).toMatchObject({ runs: 2, authorizations: 2 })
  })

  test('a folder that cannot be written is exit 74', async () => {
    const world = makeWorld()
    world.sim.faults = [{ verb: 'makeDir', nth: 1, does: 'EIO', always: true }]
    const run = world.run()
    await expect(world.drive(submitIntent(run.parts, run.intent))).rejects.toMatchObject({
      meta: { exitCode: 74 },
    })
    expect(world.signatures).toEqual([])
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

  test('a home nobody has is opened without touching a file', () => {
    const sim = new SimFiles()
    const world = makeWorld()
    const { liveness } = world.run().parts.ports
    const journal = openJournal(
      { files: sim.process(), clock: world.clock, random: seededRandom(1), hash: sha256, liveness },
      '/nowhere',
    )
    expect(journal.nextId()).toMatch(/^[0-9a-f]{12}-1$/)
    expect(journal.nextId()).toMatch(/^[0-9a-f]{12}-2$/)
    expect(sim.trace).toEqual([])
  })
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
  test('two runs never share a word', () => {
    expect(createNonces(seededRandom(1)).next() >> 8n).not.toBe(
      createNonces(seededRandom(2)).next() >> 8n,
    )
  })
})
