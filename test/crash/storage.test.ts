import { expect, test } from 'vitest'
import { systemHash } from '../../src/core/io/clock.js'
import { StorageError } from '../../src/core/protocol/errors.js'
import { openLog } from '../../src/core/storage/log.js'
import type { RecordLog } from '../../src/core/storage/record-log.js'
import { folder, idOf, openCopy, options, recordsOf, sample } from '../support/sample-store.js'
import { type Fault, SimClock, SimFiles, seeded, settle, type Verb } from '../support/sim-files.js'

/** Schedules per run; the soak sets it to 50,000 and more (robustness §8, T1). */
const schedules = Number(process.env.CRASH_SCHEDULES ?? 3_000)
const firstSeed = Number(process.env.CRASH_SEED ?? 1)

/** What the outside has seen, across all lives of one store. */
interface Model {
  /** Acknowledged, or shown by an opening: may never be missing again. */
  must: Set<number>
  /** Handed over, outcome unknown: all records of one append, or none. */
  maybe: number[][]
  /** Refused with "definitely not committed": may never appear. */
  never: Set<number>
  nextId: number
}

function check(model: Model, found: readonly number[]): void {
  const ascending = [...found].sort((a, b) => a - b)
  expect(found, 'in order, nothing twice').toEqual([...new Set(ascending)])
  const here = new Set(found)
  expect(
    [...model.must].filter((id) => !here.has(id)),
    'R1, R11: nothing acknowledged is missing',
  ).toEqual([])
  expect(
    found.filter((id) => model.never.has(id)),
    'nothing refused appears',
  ).toEqual([])
  for (const group of model.maybe)
    expect([0, group.length], 'an append is whole or absent').toContain(group.filter((id) => here.has(id)).length)
  const known = new Set([...model.must, ...model.maybe.flat()])
  expect(
    found.filter((id) => !known.has(id)),
    'nothing is invented',
  ).toEqual([])
  model.must = here
  for (const id of model.maybe.flat()) if (!here.has(id)) model.never.add(id)
  model.maybe = []
}

/** Works on the store until it is done or dead. */
async function work(log: RecordLog, clock: SimClock, model: Model, random: () => number): Promise<void> {
  const steps = 1 + Math.floor(random() * 6)
  const open: Promise<void>[] = []
  for (let step = 0; step < steps; step++) {
    const choice = random()
    if (choice < 0.65) {
      for (let copies = Math.floor(random() * 4); copies >= 0; copies--) {
        const ids = Array.from({ length: 1 + Math.floor(random() * 3) }, () => model.nextId++)
        model.maybe.push(ids)
        const records = ids.map((id) => ({ kind: 'item', data: { id, fill: 'x'.repeat(Math.floor(random() ** 4 * 1500)) } }))
        const settled = () => {
          model.maybe = model.maybe.filter((group) => group !== ids)
        }
        open.push(
          log.append(records).then(
            () => {
              settled()
              for (const id of ids) model.must.add(id)
            },
            (error: unknown) => {
              expect(error).toBeInstanceOf(StorageError)
              if ((error as StorageError).code === 'store_failed') return
              settled()
              for (const id of ids) model.never.add(id)
            },
          ),
        )
      }
      if (random() < 0.7) await Promise.all(open)
    } else if (choice < 0.8) {
      // The owner here folds nothing away, so that everything can be compared.
      open.push(
        log
          .compact(
            () => log.scan(),
            () => undefined,
          )
          .catch((error: unknown) => {
            expect(error).toBeInstanceOf(StorageError)
          }),
      )
      if (random() < 0.7) await Promise.all(open)
    } else {
      clock.advance(random() < 0.5 ? 1_000 : 5_000)
      await settle()
    }
  }
  await Promise.all(open)
  if (random() < 0.5) await log.close().catch((error: unknown) => expect(error).toBeInstanceOf(StorageError))
}

const faultKinds = ['kill-before', 'kill-after', 'kill-after', 'EIO', 'ENOSPC', 'short', 'nothing-written', 'EFBIG', 'EMFILE'] as const
const verbs: readonly (Verb | 'any')[] = ['any', 'write', 'datasync', 'syncDir', 'rename', 'truncate', 'open', 'close', 'remove', 'size']

function planFault(random: () => number): Fault {
  const pick = <T>(from: readonly T[]): T => from[Math.floor(random() * from.length)] as T
  const verb = random() < 0.5 ? 'any' : pick(verbs)
  return { verb, nth: 1 + Math.floor(random() * (verb === 'any' ? 120 : 12)), does: pick(faultKinds), always: random() < 0.2 }
}

/** One store through several lives, each ended by a fault, a kill, a power cut or a clean stop. */
async function runSchedule(seed: number): Promise<void> {
  const random = seeded(seed)
  const sim = new SimFiles()
  const model: Model = { must: new Set(), maybe: [], never: new Set(), nextId: 1 }
  const segmentBytes = [1, 900, 5_000, 1_000_000][Math.floor(random() * 4)] ?? 1
  for (let life = 0; life < 4; life++) {
    const faulty = life < 3 && random() < 0.9
    sim.resetCounts()
    sim.faults = faulty ? [planFault(random)] : []
    const clock = new SimClock()
    const ports = { files: sim.process(), clock, hash: systemHash }
    const live = async () => {
      const found: number[] = []
      let log: RecordLog
      try {
        log = await openLog(ports, folder, { ...options, segmentBytes }, (record) => found.push(idOf(record)))
      } catch (error) {
        // Nothing was shown, so nothing was promised. Without a fault an opening must not fail: a crash is not damage.
        if (!faulty) throw error
        expect((error as StorageError).message).not.toContain('damaged')
        return
      }
      check(model, found)
      await work(log, clock, model, random)
    }
    await Promise.race([live(), sim.death()])
    if (process.env.CRASH_TRACE !== undefined) process.stderr.write(`life ${life} ${JSON.stringify(sim.faults)}\n${sim.trace.join('\n')}\n`)
    sim.faults = []
    if (random() < 0.6) sim.crash(Math.floor(random() * 2 ** 31))
    else sim.kill()
  }
  const shown = await recordsOf(sim)
  const found: number[] = []
  const log = await openLog({ files: sim.process(), clock: new SimClock(), hash: systemHash }, folder, options, (record) =>
    found.push(idOf(record)),
  )
  expect(shown, 'R24: a reader sees what the writer recovers').toEqual(found)
  check(model, found)
  await log.close()
}

test(`R1, R11, R23: ${schedules} schedules of faults, kills and power cuts lose nothing acknowledged and invent nothing`, {
  timeout: 3_600_000,
}, async () => {
  for (let seed = firstSeed; seed < firstSeed + schedules; seed++) {
    try {
      await runSchedule(seed)
    } catch (error) {
      throw new Error(`seed ${seed} (rerun with CRASH_SEED=${seed} CRASH_SCHEDULES=1)`, { cause: error })
    }
  }
})

test('R23: compaction killed or cut off at every single step leaves the old or the new state, whole', async () => {
  const contents = await sample(false)
  const steps = async (fault: Fault | undefined, seed: number | undefined): Promise<number> => {
    const sim = SimFiles.of(contents)
    const log = await openLog({ files: sim.process(), clock: new SimClock(), hash: systemHash }, folder, options, () => undefined)
    sim.resetCounts()
    if (fault !== undefined) sim.faults = [fault]
    const folded = (async () => {
      await log.compact(
        () => [{ kind: 'item', data: { id: 11, fill: 'all in one' } }],
        () => undefined,
      )
      return true
    })()
    const survived = await Promise.race([folded.catch(() => true), sim.death().then(() => false)])
    const count = sim.counts.get('any') ?? 0
    sim.faults = []
    if (seed !== undefined) sim.crash(seed)
    else sim.kill()
    const found = await openCopy(sim.contents())
    expect([[11], [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]]).toContainEqual(found)
    if (survived && fault === undefined) expect(found).toEqual([11])
    return count
  }
  const total = await steps(undefined, undefined)
  expect(total).toBeGreaterThan(20)
  for (let nth = 1; nth <= total; nth++) {
    for (const does of ['kill-before', 'kill-after'] as const) {
      await steps({ verb: 'any', nth, does }, undefined)
      for (let seed = 0; seed < 8; seed++) await steps({ verb: 'any', nth, does }, seed)
    }
    for (const does of ['EIO', 'ENOSPC'] as const) await steps({ verb: 'any', nth, does }, nth)
  }
})

test('R23: an opening that is cut off after a compaction that was cut off leaves every record', async () => {
  const contents = await sample(false)
  const ports = (sim: SimFiles) => ({ files: sim.process(), clock: new SimClock(), hash: systemHash })
  for (let first = 1; first <= 3; first++) {
    for (let nth = 1; nth <= 45; nth++) {
      for (let seed = 0; seed < 6; seed++) {
        const sim = SimFiles.of(contents)
        const log = await openLog(ports(sim), folder, options, () => undefined)
        sim.resetCounts()
        // The renames of a compaction: MANIFEST with the new segment, the snapshot, MANIFEST with the snapshot.
        sim.faults = [{ verb: 'rename', nth: first, does: 'kill-after' }]
        const compacting = log.compact(
          () => log.scan(),
          () => undefined,
        )
        await Promise.race([compacting, sim.death()])
        sim.resetCounts()
        sim.faults = [{ verb: 'any', nth, does: 'kill-after' }]
        await Promise.race([openLog(ports(sim), folder, options, () => undefined), sim.death()])
        sim.faults = []
        sim.crash(seed * 1_000 + nth)
        expect(await openCopy(sim.contents())).toEqual([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11])
      }
    }
  }
})
