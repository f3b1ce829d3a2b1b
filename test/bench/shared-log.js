import { fork } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { median } from './measure.js'
import { fromSources } from './sources.js'

const wanted = `
export { openSharedStore } from './src/core/gateway/ledger/open-store.js'
export { systemClock, systemRandom } from './src/core/io/clock.js'
export { postgresDatabase } from './src/core/io/postgres.js'
export { openStoreTables } from './src/core/storage/postgres/schema.js'
`
const rounds = 5
const perRound = 2_000

async function startWriter({ root }, sources, url) {
  const child = fork(join(root, 'test', 'bench', 'log-writer.js'), [sources, url])
  await once(child, 'message')
  return {
    async admit(count, atOnce) {
      child.send({ count, atOnce })
      const [answer] = await once(child, 'message')
      return answer
    },
    stop: () => child.disconnect(),
  }
}

/**
 * Admissions a second straight to the ledger, for each number of processes: without HTTP, checks,
 * signatures and rate limits. As many are under way in all as there are connections.
 */
export async function logAlone(setting, postgres, counts, connections) {
  const { path, remove } = await fromSources(setting.root, wanted)
  const groups = []
  try {
    for (const count of counts) {
      const url = await postgres.createDatabase()
      const writers = []
      groups.push({ writers, rates: [] })
      for (let n = 0; n < count; n += 1) writers.push(await startWriter(setting, path, url))
    }
    for (let round = 0; round <= rounds; round += 1) {
      for (const { writers, rates } of groups) {
        const start = performance.now()
        await Promise.all(
          writers.map(({ admit }) =>
            admit(perRound / writers.length, connections / writers.length),
          ),
        )
        if (round > 0) rates.push((perRound * 1000) / (performance.now() - start))
      }
    }
    return groups.map(({ rates }) => median(rates))
  } finally {
    for (const { writers } of groups) for (const { stop } of writers) stop()
    await remove()
  }
}
