import { join } from 'node:path'
import { systemClock, systemHash, systemRandom } from '#io/clock'
import { systemPorts } from '#io/system'
import {
  type Copied,
  type CopyPorts,
  copyRecords,
  openFolderSource,
  openFolderTarget,
} from '#storage/copy'
import { openLog } from '#storage/log'
import { inspectLog, openLogReader } from '#storage/reader'
import { temporaryFolder } from '#support/folders'
import { folder, idOf, options, sample } from '#support/sample-store'
import { type Fault, SimClock, SimFiles, SimHost } from '#support/sim-files'

const nothing = () => undefined
const never = new AbortController().signal

async function copied(ports: CopyPorts, from: string, to: string): Promise<Copied> {
  const source = await openFolderSource(ports, from, options)
  try {
    const target = await openFolderTarget(ports, to, options)
    try {
      return await copyRecords(source, target, { signal: never, onProgress: nothing })
    } finally {
      await target.close()
    }
  } finally {
    await source.close()
  }
}

describe('a backup of a log that is being written', () => {
  const place = temporaryFolder()
  const ports = systemPorts()

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
        const { records } = await copied(ports, from, to)
        const proof = await inspectLog(ports, to, options, (record) => seen.push(idOf(record)))
        expect({ ...proof, records: seen.length }).toMatchObject({
          damage: undefined,
          tornBytes: 0,
          records,
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

test('R23, R24: a copy that is cut off at any step leaves the store as it was, nothing that opens, and can be taken up again', async () => {
  const target = '/data/copy'
  const all = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]
  for (const compacted of [false, true]) {
    const contents = await sample(compacted)
    const steps = async (fault: Fault | undefined): Promise<number> => {
      const sim = SimFiles.of(contents)
      const host = new SimHost()
      const portsOf = (pid: number) => ({
        files: sim.process(),
        clock: new SimClock(),
        hash: systemHash,
        random: systemRandom,
        liveness: host.liveness(pid),
      })
      const idsIn = async (place: string) => {
        const ids: number[] = []
        const ports = { files: sim.process(), hash: systemHash }
        await inspectLog(ports, place, options, (record) => ids.push(idOf(record)))
        return ids
      }
      if (fault) sim.faults = [fault]
      const outcome = await Promise.race([
        copied(portsOf(1), folder, target).then(
          () => 'done',
          () => 'failed',
        ),
        sim.death().then(() => 'dead'),
      ])
      const count = sim.counts.get('any') ?? 0
      sim.faults = []
      if (outcome === 'dead') sim.kill()
      host.kill(1)
      for (const [path, bytes] of contents) expect(sim.contents().get(path), path).toEqual(bytes)
      expect(outcome === 'done' ? [all] : [[], all]).toContainEqual(await idsIn(target))
      if ((await idsIn(target)).length === 0) await copied(portsOf(2), folder, target)
      expect(await idsIn(target), JSON.stringify(fault)).toEqual(all)
      return count
    }
    const total = await steps(undefined)
    expect(total).toBeGreaterThan(20)
    for (let nth = 1; nth <= total; nth++)
      for (const does of ['kill-after', 'EIO', 'ENOSPC'] as const)
        await steps({ verb: 'any', nth, does })
  }
}, 120_000)
