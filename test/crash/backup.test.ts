/** `operator store backup` on the log's level: under load, and cut off at every step. */
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { systemClock, systemHash } from '../../src/core/io/clock.js'
import { systemFiles } from '../../src/core/io/files.js'
import { backUp } from '../../src/core/storage/backup.js'
import { openLog } from '../../src/core/storage/log.js'
import { openLogReader } from '../../src/core/storage/reader.js'
import { folder, idOf, options, sample } from '../support/sample-store.js'
import { type Fault, SimClock, SimFiles } from '../support/sim-files.js'

const nothing = () => undefined
const never = new AbortController().signal

describe('a backup of a log that is being written', () => {
  let place = ''
  beforeAll(async () => {
    place = await mkdtemp(join(tmpdir(), 'proposer-backup-'))
  })
  afterAll(() => rm(place, { recursive: true, force: true }))
  const ports = { files: systemFiles, clock: systemClock, hash: systemHash }

  test('R1: opens, is sound, and holds everything that was acknowledged before it began', async () => {
    const from = join(place, 'store')
    const log = await openLog(ports, from, { ...options, segmentBytes: 20_000 }, nothing)
    let acknowledged = 0
    let isOver = false
    const writing = (async () => {
      for (let id = 1; !isOver; id++) {
        await log.append([{ kind: 'item', data: { id, fill: 'y'.repeat(300) } }])
        acknowledged = id
      }
    })()
    const folding = (async () => {
      while (!isOver) {
        await log.compact(() => log.scan(), nothing)
        await systemClock.sleep(5)
      }
    })()
    try {
      for (let round = 1; round <= 12; round++) {
        const before = acknowledged
        const to = join(place, `copy-${round}`)
        const seen: number[] = []
        const { damage, tornBytes, records } = await backUp(
          ports,
          { from, to, signal: never },
          options,
          (record) => seen.push(idOf(record)),
        )
        expect({ damage, tornBytes, records }).toEqual({
          damage: undefined,
          tornBytes: 0,
          records: seen.length,
        })
        expect(seen.length).toBeGreaterThanOrEqual(before)
        expect(seen).toEqual(seen.map((_, index) => index + 1))
        const copy = await openLog(ports, to, options, nothing)
        const next = [{ kind: 'item', data: { id: seen.length + 1 } }]
        await copy.append(next)
        await copy.close()
        const reader = await openLogReader(ports, to, options)
        let count = 0
        await reader.replay(() => {
          count += 1
        })
        await reader.close()
        expect(count).toBe(seen.length + 1)
      }
    } finally {
      isOver = true
      await Promise.all([writing, folding])
      await log.close()
    }
    expect(acknowledged).toBeGreaterThan(20)
  }, 60_000)
})

test('R23, R24: a backup that is cut off at any step leaves the store as it was, and no half copy that opens', async () => {
  const target = '/data/copy'
  for (const compacted of [false, true]) {
    const contents = await sample(compacted)
    const steps = async (fault: Fault | undefined): Promise<number> => {
      const sim = SimFiles.of(contents)
      const ports = { files: sim.process(), clock: new SimClock(), hash: systemHash }
      if (fault) sim.faults = [fault]
      const copying = backUp(ports, { from: folder, to: target, signal: never }, options, nothing)
      const outcome = await Promise.race([
        copying.then(
          () => 'done',
          () => 'failed',
        ),
        sim.death().then(() => 'dead'),
      ])
      const count = sim.counts.get('any') ?? 0
      sim.faults = []
      if (outcome === 'dead') sim.kill()
      const left = sim.contents()
      for (const [path, bytes] of contents) expect(left.get(path), path).toEqual(bytes)
      const reader = await openLogReader(
        { files: sim.process(), hash: systemHash },
        target,
        options,
      ).catch((error: unknown) => {
        expect(error).toMatchObject({ code: 'store_damaged' })
        return undefined
      })
      const ids: number[] = []
      await reader?.replay((record) => ids.push(idOf(record)))
      if (outcome === 'done') expect(ids).toEqual([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11])
      else expect([[], [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]]).toContainEqual(ids)
      if (outcome === 'failed')
        expect([...left.keys()].filter((path) => path.startsWith(target))).toEqual([])
      return count
    }
    const total = await steps(undefined)
    expect(total).toBeGreaterThan(20)
    for (let nth = 1; nth <= total; nth++)
      for (const does of ['kill-before', 'kill-after', 'EIO', 'ENOSPC'] as const)
        await steps({ verb: 'any', nth, does })
  }
})
