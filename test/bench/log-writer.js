// A writer of a shared log: admits candidates to the ledger, and nothing else. Its arguments are the
// build of the sources that it needs and the URL of the database; each message names how many it
// admits, and how many at once.
import { pathToFileURL } from 'node:url'
import { pastCandidates } from './volume.js'

const [sources, url] = process.argv.slice(2)
const { openSharedStore, openStoreTables, postgresDatabase, systemClock, systemRandom } =
  await import(pathToFileURL(sources).href)

const database = postgresDatabase(url)
await openStoreTables(database)
const settings = async () => ({
  chainId: 31337,
  genesisHash: `0x${'1'.repeat(64)}`,
  allowlist: [],
  admissionEnabled: true,
})
const ports = { clock: systemClock, random: systemRandom }
const { ledger } = await openSharedStore(ports, database, { settings })

const candidates = (count) =>
  Array.from({ length: count }, () => {
    const [{ id, sequence, receivedAtMs, progress, ...fresh }] = pastCandidates(1)
    return fresh
  })

process.on('message', async ({ count, atOnce }) => {
  const waiting = candidates(count)
  const admit = async () => {
    for (let each = waiting.pop(); each !== undefined; each = waiting.pop()) {
      const { kind } = await ledger.admit(each)
      if (kind !== 'admitted') throw new Error(`a candidate was ${kind}`)
    }
  }
  await Promise.all(Array.from({ length: atOnce }, admit))
  process.send('done')
})
process.on('disconnect', () => process.exit())
process.send('ready')
