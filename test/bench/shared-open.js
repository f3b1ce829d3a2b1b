import { cpuSecondsOf, figure, median, memoryOf } from './measure.js'
import { withPostgres, withQuestions } from './shared.js'
import { fromSources } from './sources.js'
import { many, pastCandidates } from './volume.js'

const openings = 3
const recordsAtOnce = 500

const wanted = `
export { snapshotState } from './src/core/gateway/ledger/store.js'
export { knownKind } from './src/core/gateway/ledger/state.js'
export { foldLedger } from './src/core/gateway/ledger/writer.js'
export { systemClock, systemRandom } from './src/core/io/clock.js'
export { postgresDatabase } from './src/core/io/postgres.js'
export { openSharedLog } from './src/core/storage/postgres/shared-log.js'
`

async function fillStore({ root, note }, url, count) {
  const { module, remove } = await fromSources(root, wanted)
  const { foldLedger, knownKind, openSharedLog, postgresDatabase, snapshotState } = module
  const { onRecord, state } = foldLedger()
  const database = postgresDatabase(url)
  try {
    const log = await openSharedLog({
      clock: module.systemClock,
      random: module.systemRandom,
      database,
      knownKinds: knownKind,
      onRecord,
    })
    let records = []
    let told = 0
    for (const candidate of pastCandidates(count)) {
      records.push({ kind: 'candidate.whole', data: { candidate } })
      if (records.length < recordsAtOnce && candidate.sequence < count) continue
      await log.append(records, (stored) => stored.forEach(onRecord))
      records = []
      if (candidate.sequence < told + 100_000) continue
      told = candidate.sequence
      note(`${told} candidates are written`)
    }
    const start = performance.now()
    await snapshotState(log, state)
    const seconds = (performance.now() - start) / 1000
    await log.close()
    return seconds
  } finally {
    await database.close()
    await remove()
  }
}

/**
 * Row 23: seconds from the start of `serve` to its ready line on a shared store of a million
 * candidates that was compacted once, less those on an empty one.
 */
export const sharedOpenRow = (setting) =>
  withPostgres(setting, { id: 23, name: `open a shared store of ${many}` }, (postgres) =>
    withQuestions(setting, async ({ start }) => {
      const stores = {
        0: await postgres.createDatabase(),
        [many]: await postgres.createDatabase(),
      }
      // The first to open a store names its chain there.
      for (const store of Object.values(stores)) await (await start('first', store)).stop()
      setting.note(`writing a shared store of ${many} candidates`)
      const foldSeconds = await fillStore(setting, stores[many], many)
      const [seconds, cpu, memory] = [{ 0: [], [many]: [] }, { 0: [], [many]: [] }, []]
      for (let round = 0; round < openings; round += 1) {
        for (const count of [0, many]) {
          const begun = performance.now()
          const { pids, stop } = await start(`${count}`, stores[count])
          seconds[count].push((performance.now() - begun) / 1000)
          cpu[count].push(await cpuSecondsOf(pids()[0]))
          if (count === many) memory.push(await memoryOf(pids()[0]))
          await stop()
        }
        setting.note(`opening ${round + 1}: ${figure(seconds[many].at(-1))} s`)
      }
      return {
        value: median(seconds[many]) - median(seconds[0]),
        unit: 's',
        detail: `serve is ready after ${figure(median(seconds[many]))} s, with an empty store after ${figure(median(seconds[0]))} s; ${figure(median(cpu[many]) - median(cpu[0]))} s more CPU; RSS ${figure(median(memory.map(({ peak }) => peak)))} MiB at most; the compaction took ${figure(foldSeconds)} s; medians of ${openings}`,
      }
    }),
  )
