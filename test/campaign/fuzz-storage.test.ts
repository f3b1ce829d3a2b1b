/**
 * Damaged stores and journals: recovered or refused as robustness §2 says, never silently wrong
 * (R11, R24, T4).
 */
import fc from 'fast-check'
import { openJournal, verifyJournal } from '#client/journal/journal'
import { systemHash } from '#io/clock'
import { StorageError } from '#protocol/errors'
import { acquireLock } from '#storage/lock'
import { figures, runs } from '#support/campaign'
import { makeWorld, submitIntent } from '#support/client-world'
import { type Contents, damageOne, judgeDamage, lastSegmentOf, linesOf } from '#support/fuzz/disk'
import { editedBytes, editsUpTo } from '#support/fuzz/mutate'
import { folder, sample } from '#support/sample-store'
import { SimFiles, SimHost, seededRandom } from '#support/sim-files'

const nothing = new Uint8Array(0)
const withFile = (contents: Contents, path: string, bytes: Uint8Array) =>
  new Map(contents).set(path, bytes)
const flipped = (bytes: Uint8Array, bit: number) =>
  bytes.map((byte, at) => (at === bit >> 3 ? byte ^ (1 << (bit & 7)) : byte))

describe.each([
  ['as it was written', false],
  ['with a snapshot', true],
])('a store %s', (name, compacted) => {
  let contents: Contents
  let foreign: Contents
  beforeAll(async () => {
    contents = await sample(compacted)
    foreign = await sample(!compacted)
  })

  test('R11, T4: every bit of the last two records, and of MANIFEST and FORMAT, flipped: at most the last append is lost, and every reader agrees', async () => {
    let [bits, refused, lost] = [0, 0, 0]
    const judge = async (path: string, bytes: Uint8Array) => {
      const { found } = await judgeDamage(withFile(contents, path, bytes))
      bits += 1
      if (found === undefined) refused += 1
      if (found === 10) lost += 1
    }
    const path = lastSegmentOf(contents)
    const whole = contents.get(path) ?? nothing
    const lines = linesOf(whole)
    const from = lines.slice(0, -2).reduce((sum, line) => sum + line.length, 0)
    for (let bit = from * 8; bit < whole.length * 8; bit += 1)
      await judge(path, flipped(whole, bit))
    for (const file of ['MANIFEST', 'FORMAT']) {
      const bytes = contents.get(`${folder}/${file}`) ?? nothing
      for (let bit = 0; bit < bytes.length * 8; bit += 1)
        await judge(`${folder}/${file}`, flipped(bytes, bit))
    }
    expect(refused).toBeGreaterThan(1_000)
    expect(lost).toBeGreaterThan(500)
    figures(`fuzz-storage, bits ${name}`, { bits, refused, 'last append lost': lost })
  })

  test('R11, T4: every file cut at every offset, bare and with zeros or garbage in place of the rest, is recovered or refused, and every reader agrees', async () => {
    let [cuts, recovered] = [0, 0]
    const last = lastSegmentOf(contents)
    for (const [path, whole] of contents) {
      for (let length = 0; length < whole.length; length += 1) {
        const rest = whole.length - length
        const tails =
          path === last
            ? [
                nothing,
                new Uint8Array(rest),
                Uint8Array.from({ length: rest }, (_, at) => (at * 37 + length) & 255),
              ]
            : [nothing]
        for (const tail of tails) {
          // Of what a cut takes away no later line can tell that it was durable.
          const { found } = await judgeDamage(
            withFile(
              contents,
              path,
              Uint8Array.from(Buffer.concat([whole.subarray(0, length), tail])),
            ),
            0,
          )
          cuts += 1
          if (found !== undefined) recovered += 1
        }
      }
    }
    expect(recovered).toBeGreaterThan(100)
    expect(cuts - recovered).toBeGreaterThan(500)
    figures(`fuzz-storage, cuts ${name}`, { cuts, recovered })
  })

  test('R11, R24, T4: one to three damages of any kind, lines of another store among them, are recovered or refused, and every reader agrees', async () => {
    let [stores, recovered] = [0, 0]
    await fc.assert(
      fc.asyncProperty(editsUpTo(3, 1), async (edits) => {
        const damaged = new Map(contents)
        for (const edit of edits) damageOne(damaged, foreign, edit)
        const { found } = await judgeDamage(damaged, 0)
        stores += 1
        if (found !== undefined) recovered += 1
      }),
      runs(2_000),
    )
    expect(stores - recovered).toBeGreaterThan(stores / 2)
    figures(`fuzz-storage, mixed damage ${name}`, {
      stores,
      recovered,
      refused: stores - recovered,
    })
  })
})

test('R11, R24, T4: a damaged journal is read as far as it was durable or refused with exit 74, makes up nothing, and reading changes nothing', async () => {
  const world = makeWorld()
  const submit = async (key: number) => {
    const { parts, intent, journal } = world.run({ key })
    await world.clock.drive(submitIntent(parts, intent))
    return journal
  }
  await (await submit(7)).close()
  await submit(8)
  const contents = new Map([...world.sim.contents()].filter(([path]) => !path.includes('/lock')))
  const ports = (sim: SimFiles) => ({ files: sim.process(), hash: systemHash })
  const truth = await viewOf(contents)
  expect(truth).toHaveLength(2)
  let [journals, refused, shorter] = [0, 0, 0]

  async function viewOf(files: Contents) {
    const sim = SimFiles.of(files)
    const journal = openJournal(
      {
        ...ports(sim),
        clock: world.clock,
        random: seededRandom(99),
        liveness: new SimHost().liveness(1),
      },
      '/home',
    )
    return (await journal.load()).authorizations
  }
  await fc.assert(
    fc.asyncProperty(editsUpTo(2, 1), async (edits) => {
      const damaged = new Map(contents)
      for (const edit of edits) damageOne(damaged, contents, edit)
      const sim = SimFiles.of(damaged)
      journals += 1
      try {
        const proof = await verifyJournal(ports(sim), '/home')
        const seen = await viewOf(damaged)
        expect(seen).toHaveLength(proof.authorizations)
        for (const one of seen) {
          const real = truth.find(({ id }) => id === one.id)
          expect(one.signed).toEqual(real?.signed)
          expect([undefined, real?.candidateId]).toContain(one.candidateId)
          expect(one.attempts.length).toBeLessThanOrEqual(real?.attempts.length ?? 0)
        }
        if (seen.length < truth.length || seen.some(({ candidateId }) => candidateId === undefined))
          shorter += 1
      } catch (error) {
        if (!(error instanceof StorageError)) throw error
        expect(error.meta.exitCode).toBe(74)
        refused += 1
      }
      expect(
        sim.trace.filter((call) =>
          /^(write|truncate|rename|link|remove|makeDir|syncDir|datasync)/.test(call),
        ),
      ).toEqual([])
    }),
    runs(2_000),
  )
  expect(refused).toBeGreaterThan(journals / 4)
  expect(shorter).toBeGreaterThan(10)
  figures('fuzz-storage, journals', { journals, refused, 'shorter than written': shorter })
})

test('R12: whatever is done to the record of a lock that is held, a second process is refused with exit 74 or fences the first', async () => {
  let [locks, refused] = [0, 0]
  await fc.assert(
    fc.asyncProperty(editsUpTo(3, 1), async (edits) => {
      const sim = new SimFiles()
      const host = new SimHost()
      const portsOf = (pid: number) => ({
        files: sim.process(),
        liveness: host.liveness(pid),
        random: seededRandom(pid),
      })
      const holder = await acquireLock(portsOf(1), folder, 'serve')
      const path = `${folder}/LOCK.1`
      sim.put(path, editedBytes(sim.contents().get(path) ?? nothing, edits))
      locks += 1
      const second = await acquireLock(portsOf(2), folder, 'serve').catch((error: unknown) => error)
      if (second instanceof StorageError) {
        refused += 1
        expect(second).toMatchObject({ code: 'store_locked', meta: { exitCode: 74 } })
        await holder.fence()
        return
      }
      if (second instanceof Error) throw second
      await expect(holder.fence()).rejects.toMatchObject({ code: 'store_fenced' })
    }),
    runs(2_000),
  )
  expect(refused).toBeGreaterThan(locks / 2)
  figures('fuzz-storage, locks', { locks, refused })
})
