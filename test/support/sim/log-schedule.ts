/**
 * One store through several lives on a simulated disk, each ended by a fault, a kill, a power cut
 * or a clean stop (robustness §8, T1). It makes tens of thousands of them, so what it finds it
 * throws itself.
 */
import { isDeepStrictEqual } from 'node:util'
import { systemHash } from '#io/clock'
import { StorageError } from '#protocol/errors'
import { openLog } from '#storage/log'
import type { CompactableLog } from '#storage/record-log'
import { folder, idOf, options, recordsOf } from '../sample-store.js'
import { type Fault, SimClock, SimFiles, seeded, settle, type Verb } from '../sim-files.js'

interface Model {
  /** Acknowledged, or shown by an opening: may never be missing again. */
  must: Set<number>
  /** Handed over, outcome unknown: all records of one append, or none. */
  maybe: number[][]
  /** Refused with "definitely not committed": may never appear. */
  never: Set<number>
  nextId: number
}

function hold(isTrue: boolean, rule: string, told: unknown): void {
  if (!isTrue) throw new Error(`${rule}: ${JSON.stringify(told)}`)
}

function check(model: Model, found: readonly number[]): void {
  for (let index = 1; index < found.length; index++)
    hold((found[index - 1] ?? 0) < (found[index] ?? 0), 'R13: in order, nothing twice', found)
  const here = new Set(found)
  const lost = [...model.must].filter((id) => !here.has(id))
  hold(lost.length === 0, 'R1, R11: lost although acknowledged', lost)
  const refused = found.filter((id) => model.never.has(id))
  hold(refused.length === 0, 'R1: there although refused', refused)
  for (const group of model.maybe) {
    const kept = group.filter((id) => here.has(id)).length
    hold(kept === 0 || kept === group.length, 'R23: an append is whole or absent', group)
  }
  const known = new Set([...model.must, ...model.maybe.flat()])
  const invented = found.filter((id) => !known.has(id))
  hold(invented.length === 0, 'R1: invented', invented)
  model.must = here
  for (const id of model.maybe.flat()) if (!here.has(id)) model.never.add(id)
  model.maybe = []
}

function holdStorageError(error: unknown): asserts error is StorageError {
  if (!(error instanceof StorageError)) throw error
}

async function work(
  log: CompactableLog,
  clock: SimClock,
  model: Model,
  random: () => number,
): Promise<void> {
  const steps = 1 + Math.floor(random() * 6)
  const open: Promise<void>[] = []
  for (let step = 0; step < steps; step++) {
    const choice = random()
    if (choice < 0.65) {
      for (let copies = Math.floor(random() * 4); copies >= 0; copies--) {
        const ids = Array.from({ length: 1 + Math.floor(random() * 3) }, () => model.nextId++)
        model.maybe.push(ids)
        const records = ids.map((id) => ({
          kind: 'item',
          data: { id, fill: 'x'.repeat(Math.floor(random() ** 4 * 1500)) },
        }))
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
              holdStorageError(error)
              if (error.code === 'store_failed') return
              settled()
              for (const id of ids) model.never.add(id)
            },
          ),
        )
      }
      if (random() < 0.7) await Promise.all(open)
    } else if (choice < 0.8) {
      open.push(
        log
          .compact(
            () => log.scan(),
            () => undefined,
          )
          .catch(holdStorageError),
      )
      if (random() < 0.7) await Promise.all(open)
    } else {
      clock.advance(random() < 0.5 ? 1_000 : 5_000)
      await settle()
    }
  }
  await Promise.all(open)
  if (random() < 0.5) await log.close().catch(holdStorageError)
}

const faultKinds = [
  'kill-before',
  'kill-after',
  'kill-after',
  'EIO',
  'ENOSPC',
  'short',
  'nothing-written',
  'EFBIG',
  'EMFILE',
] as const
const verbs: readonly (Verb | 'any')[] = [
  'any',
  'write',
  'datasync',
  'syncDir',
  'rename',
  'truncate',
  'open',
  'close',
  'remove',
  'size',
]

function planFault(random: () => number): Fault {
  const pick = <T>(from: readonly T[]): T => from[Math.floor(random() * from.length)] as T
  const verb = random() < 0.5 ? 'any' : pick(verbs)
  return {
    verb,
    nth: 1 + Math.floor(random() * (verb === 'any' ? 120 : 12)),
    does: pick(faultKinds),
    always: random() < 0.2,
  }
}

const damagedPart = 0.05

export async function runLogSchedule(seed: number) {
  const random = seeded(seed)
  const sim = new SimFiles()
  sim.isTraced = false
  const model: Model = { must: new Set(), maybe: [], never: new Set(), nextId: 1 }
  let ends = 0
  const segmentBytes = [1, 900, 5_000, 1_000_000][Math.floor(random() * 4)] ?? 1
  const lives = 2 + Math.floor(random() * 3)
  for (let life = 0; life < lives; life++) {
    const faulty = life < 3 && random() < 0.9
    sim.resetCounts()
    sim.faults = faulty ? [planFault(random)] : []
    const clock = new SimClock()
    const ports = { files: sim.process(), clock, hash: systemHash }
    const live = async () => {
      const found: number[] = []
      let log: CompactableLog
      try {
        log = await openLog(ports, folder, { ...options, segmentBytes }, (record) =>
          found.push(idOf(record)),
        )
      } catch (error) {
        // Nothing was shown, so nothing was promised. Without a fault an opening must not fail: a
        // crash is not damage.
        if (!faulty) throw error
        holdStorageError(error)
        hold(!error.message.includes('damaged'), 'R11: a crash is not damage', error.message)
        return
      }
      check(model, found)
      await work(log, clock, model, random)
    }
    await Promise.race([live(), sim.death()])
    sim.faults = []
    ends++
    if (random() < 0.6) sim.crash(Math.floor(random() * 2 ** 31))
    else sim.kill()
  }
  const shown = await recordsOf(sim)
  const found: number[] = []
  const log = await openLog(
    { files: sim.process(), clock: new SimClock(), hash: systemHash },
    folder,
    options,
    (record) => found.push(idOf(record)),
  )
  hold(isDeepStrictEqual(shown, found), 'R24: a reader sees what the writer recovers', [
    shown,
    found,
  ])
  check(model, found)
  await log.close()
  const damaged = random() < damagedPart
  if (damaged) await damageAndOpen(sim, model, random)
  return { acknowledged: model.must.size, ends, damaged: damaged ? 1 : 0 }
}

async function damageAndOpen(sim: SimFiles, model: Model, random: () => number): Promise<void> {
  const files = [...sim.contents()].filter(
    ([path, bytes]) => path.endsWith('.jsonl') && bytes.length > 0,
  )
  const [path, bytes] = files[Math.floor(random() * files.length)] ?? ['', new Uint8Array()]
  const at = Math.floor(random() * bytes.length)
  sim.damage(path, (content) => {
    content[at] = (content[at] ?? 0) ^ (1 + Math.floor(random() * 255))
  })
  const found: number[] = []
  const ports = { files: sim.process(), clock: new SimClock(), hash: systemHash }
  try {
    await openLog(ports, folder, options, (record) => found.push(idOf(record)))
  } catch (error) {
    holdStorageError(error)
    hold(error.code === 'store_damaged', 'R11: damage is named', error.code)
    return
  }
  hold(
    isDeepStrictEqual(found, [...model.must]),
    `R11: byte ${at} of ${path} was damaged, and records went with it`,
    found,
  )
}
