import { systemHash } from '#io/clock'
import { openLog } from '#storage/log'
import { folder, openCopy, openSample, options, sample } from '#support/sample-store'
import { type Fault, SimClock, SimFiles } from '#support/sim-files'

test('R23: compaction killed or cut off at every single step leaves the old or the new state, whole', async () => {
  const contents = await sample(false)
  const steps = async (fault: Fault | undefined, seed: number | undefined): Promise<number> => {
    const sim = SimFiles.of(contents)
    const log = await openSample(sim)
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
  const ports = (sim: SimFiles) => ({
    files: sim.process(),
    clock: new SimClock(),
    hash: systemHash,
  })
  for (let first = 1; first <= 3; first++) {
    for (let nth = 1; nth <= 45; nth++) {
      for (let seed = 0; seed < 6; seed++) {
        const sim = SimFiles.of(contents)
        const log = await openLog(ports(sim), folder, options, () => undefined)
        sim.resetCounts()
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
