import fc from 'fast-check'
import { ProposerError } from '#protocol/errors'
import { acquireLock, type Lock, readHolder } from '#storage/lock'
import { SimFiles, SimHost, seeded, seededRandom } from '#support/sim-files'

const folder = '/data/store'

function world() {
  const sim = new SimFiles()
  const host = new SimHost()
  let seeds = 0
  const process = (pid: number) => ({
    files: sim.process(),
    liveness: host.liveness(pid),
    random: seededRandom(++seeds * 7919 + pid),
  })
  return { sim, host, process }
}

test('R12: the second process fails at once, naming holder, machine and use', async () => {
  const { process } = world()
  const lock = await acquireLock(process(41), folder, 'http://127.0.0.1:8788')
  await expect(acquireLock(process(42), folder, '')).rejects.toMatchObject({
    code: 'store_locked',
    detail: expect.stringContaining('process 41 on sim (http://127.0.0.1:8788)'),
    meta: { exitCode: 74 },
  })
  await lock.fence()
  expect(await readHolder(process(43), folder)).toEqual({
    epoch: 1,
    pid: 41,
    host: 'sim',
    role: 'http://127.0.0.1:8788',
    state: 'alive',
  })
})

test('R12: who is refused is told what works: sending to the gateway that serves, or waiting for a command', async () => {
  const { process } = world()
  const lock = await acquireLock(process(1), folder, 'journal')
  await expect(acquireLock(process(2), folder, '')).rejects.toMatchObject({
    meta: { hint: expect.stringMatching(/^wait until/) },
  })
  await lock.setUse({ role: 'serve', adminUrl: 'http://127.0.0.1:8788' })
  await expect(acquireLock(process(2), folder, '')).rejects.toMatchObject({
    meta: { hint: expect.stringContaining('--gateway') },
  })
})

test('R12: the note of a holder of version 0.1 is a sentence, and says the same', async () => {
  const { process } = world()
  const { files } = process(1)
  await acquireLock(process(1), folder, 'starting')
  const handle = await files.open(`${folder}/LOCK.1.note`, 'exclusive')
  const note = new TextEncoder().encode('serve, admin http://127.0.0.1:8788')
  await handle.write(note, 0, note.length)
  await handle.close()
  expect(await readHolder(process(2), folder)).toMatchObject({
    role: 'serve',
    adminUrl: 'http://127.0.0.1:8788',
    state: 'alive',
  })
})

test('R12: a use that is known only later replaces the first one', async () => {
  const { process } = world()
  const lock = await acquireLock(process(1), folder, '')
  await lock.setUse({ role: 'serve', adminUrl: 'http://127.0.0.1:1' })
  await lock.setUse({ role: 'serve', adminUrl: 'http://127.0.0.1:2' })
  expect(await readHolder(process(2), folder)).toMatchObject({
    role: 'serve',
    adminUrl: 'http://127.0.0.1:2',
    state: 'alive',
  })
  await expect(acquireLock(process(2), folder, '')).rejects.toMatchObject({
    detail: expect.stringContaining('http://127.0.0.1:2'),
  })
})

test('R12: a released lock is taken with the next number; releasing twice is once', async () => {
  const { sim, process } = world()
  const first = await acquireLock(process(1), folder, '')
  await first.release()
  await first.release()
  expect(await readHolder(process(3), folder)).toMatchObject({ epoch: 1, state: 'free' })
  const second = await acquireLock(process(2), folder, '')
  expect(second.epoch).toBe(2)
  await expect(first.fence()).rejects.toMatchObject({ code: 'store_fenced' })
  expect([...sim.contents().keys()].sort()).toEqual(
    ['LOCK.1', 'LOCK.1.free', 'LOCK.2'].map((name) => `${folder}/${name}`),
  )
})

test('R12: what the hint about a lock of unknown state says to do frees it', async () => {
  const { sim, process } = world()
  await acquireLock(process(1), folder, '')
  const unsure = process(2)
  unsure.liveness = { ...unsure.liveness, probe: async () => 'unknown' }
  const refusal: unknown = await acquireLock(unsure, folder, '').catch((error: unknown) => error)
  const [path = ''] =
    /\/\S+\.free$/.exec(refusal instanceof ProposerError ? (refusal.meta.hint ?? '') : '') ?? []
  sim.put(path, new Uint8Array(0))
  expect((await acquireLock(unsure, folder, '')).epoch).toBe(2)
})

test('R12: the lock of a killed process or another boot is taken over; that of an unknown state is not, but by force', async () => {
  const { host, process } = world()
  await acquireLock(process(1), folder, '')
  host.kill(1)
  expect(await readHolder(process(9), folder)).toMatchObject({ pid: 1, state: 'dead' })
  const second = await acquireLock(process(2), folder, '')
  expect(second.epoch).toBe(2)
  host.reboot()
  const third = await acquireLock(process(3), folder, '')
  expect(third.epoch).toBe(3)
  await expect(second.fence()).rejects.toMatchObject({
    code: 'store_fenced',
    meta: { httpStatus: 503 },
  })

  const unsure = process(4)
  unsure.liveness = { ...unsure.liveness, bootId: host.bootId, probe: async () => 'unknown' }
  await expect(acquireLock(unsure, folder, '')).rejects.toMatchObject({
    code: 'store_locked',
    meta: { hint: expect.stringContaining(`by creating the file ${folder}/LOCK.3.free`) },
  })
  await third.fence()
  const forced = await acquireLock(process(5), folder, '', { force: true })
  expect(forced.epoch).toBe(4)
  await expect(third.fence()).rejects.toMatchObject({ code: 'store_fenced' })
})

test('R12, D7: a folder that was moved away is seen at the next fence, whatever stands in its place', async () => {
  const { sim, process } = world()
  const lock = await acquireLock(process(1), folder, '')
  await lock.fence()
  await sim.process().rename(folder, `${folder}.moved`)
  const moved = { code: 'store_fenced', detail: expect.stringContaining('was moved away') }
  await expect(lock.fence()).rejects.toMatchObject(moved)
  await sim.process().makeDir(folder)
  await expect(lock.fence()).rejects.toMatchObject(moved)
})

test('R12: a lock record that cannot be read is never guessed about', async () => {
  const { sim, process } = world()
  sim.put(`${folder}/LOCK.7`, new TextEncoder().encode('not a record'))
  await expect(acquireLock(process(1), folder, '')).rejects.toMatchObject({ code: 'store_locked' })
  sim.put(`${folder}/LOCK.7.free`, new Uint8Array(0))
  expect((await acquireLock(process(1), folder, '')).epoch).toBe(8)
})

test.each([0, 2])('R12: who slept takes no old number, %i files being cleared', async (gone) => {
  const { sim, process } = world()
  const late = process(1)
  const { link, remove } = late.files
  late.files.link = async (from, to) => {
    sim.put(`${folder}/LOCK.1500`, new TextEncoder().encode('{}'))
    await link(from, to)
    for (const path of [from, to].slice(0, gone)) await remove(path)
  }
  await expect(acquireLock(late, folder, '')).rejects.toMatchObject({ code: 'store_locked' })
  expect([...sim.contents().keys()]).toEqual([`${folder}/LOCK.1500`])
})

test('R24: asking who holds a folder creates nothing', async () => {
  const { sim, process } = world()
  expect(await readHolder(process(1), folder)).toBeUndefined()
  expect(sim.contents().size).toBe(0)
})

test('R12: records more than a thousand epochs back are cleared away', async () => {
  const { sim, process } = world()
  for (const epoch of [1, 500, 501, 1500]) {
    sim.put(`${folder}/LOCK.${epoch}`, new TextEncoder().encode('{}'))
    sim.put(`${folder}/LOCK.${epoch}.free`, new Uint8Array(0))
  }
  const lock = await acquireLock(process(1), folder, '')
  expect(lock.epoch).toBe(1501)
  const left = [...sim.contents().keys()]
    .map((path) => path.slice(folder.length + 1))
    .filter((name) => !name.endsWith('.free'))
  expect(left.sort()).toEqual(['LOCK.1500', 'LOCK.1501'])
})

test('R12, T5: processes that contend, work, die and come back never hold the lock two at a time', async () => {
  await fc.assert(
    fc.asyncProperty(fc.integer(), async (seed) => {
      const random = seeded(seed)
      const { host, process } = world()
      const holders = new Map<number, Lock>()
      let acquired = 0
      let pids = 0
      const pause = async () => {
        for (let turns = Math.floor(random() * 12); turns > 0; turns--) await undefined
      }
      const contender = async () => {
        for (let round = 0; round < 4; round++) {
          const pid = ++pids
          await pause()
          let lock: Lock
          try {
            lock = await acquireLock(process(pid), folder, '', { brief: random() < 0.5 })
          } catch (error) {
            expect((error as { code: string }).code).toBe('store_locked')
            continue
          }
          expect([...holders.keys()], 'nobody else holds it').toEqual([])
          acquired++
          holders.set(pid, lock)
          await pause()
          await lock.fence()
          holders.delete(pid)
          if (random() < 0.4) host.kill(pid)
          else await lock.release()
        }
      }
      await Promise.all([contender(), contender(), contender(), contender()])
      expect(acquired).toBeGreaterThan(0)
    }),
    { numRuns: 300 },
  )
})

test('R23: acquiring and releasing killed at every step leaves a folder that the next process can lock', async () => {
  const calls = async (nth: number, does: 'kill-before' | 'kill-after'): Promise<number> => {
    const { sim, host, process } = world()
    sim.faults = [{ verb: 'any', nth, does }]
    const life = (async () => (await acquireLock(process(1), folder, '')).release())()
    await Promise.race([life, sim.death()])
    const count = sim.counts.get('any') ?? 0
    host.kill(1)
    sim.faults = []
    const lock = await acquireLock(process(2), folder, '')
    await lock.fence()
    await lock.release()
    return count
  }
  const total = await calls(1_000, 'kill-before')
  expect(total).toBeGreaterThan(8)
  for (let nth = 1; nth <= total; nth++)
    for (const does of ['kill-before', 'kill-after'] as const) await calls(nth, does)
})

test.each(['EIO', 'ENOSPC'] as const)(
  'robustness §2: a lock that cannot be written (%s) leaves nothing behind',
  async (does) => {
    const { sim, process } = world()
    const before = await (await acquireLock(process(1), folder, ''))
      .release()
      .then(() => process(1).files.list(folder))
    for (const verb of ['write', 'datasync', 'link'] as const) {
      sim.faults = [{ verb, nth: 1, does, always: true }]
      for (let time = 0; time < 3; time += 1)
        await expect(acquireLock(process(2), folder, '')).rejects.toMatchObject({
          meta: { exitCode: 74 },
        })
      sim.faults = []
      expect(await process(2).files.list(folder), verb).toEqual(before)
    }
  },
)

test('R12: what a process left that was killed writing its lock goes with the next, and that of a live one stays', async () => {
  const { sim, host, process } = world()
  await (await acquireLock(process(1), folder, '')).release()
  sim.faults = [{ verb: 'datasync', nth: 1, does: 'kill-after' }]
  void acquireLock(process(2), folder, '')
  const unfinished = async () =>
    (await process(9).files.list(folder)).filter((name) => name.endsWith('.new'))
  await expect.poll(unfinished).toHaveLength(1)
  sim.faults = []
  await (await acquireLock(process(3), folder, '')).release()
  expect(await unfinished(), 'its socket still listens').toHaveLength(1)
  host.kill(2)
  await (await acquireLock(process(4), folder, '')).release()
  expect(await unfinished()).toEqual([])
})
