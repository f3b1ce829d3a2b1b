/** The suites of every log and ledger, on PostgreSQL; and what only a store of several has. */
import { knownKind } from '#gateway/ledger/state'
import { restoreLine, snapshotState } from '#gateway/ledger/store'
import { systemClock, systemRandom } from '#io/clock'
import { postgresDatabase } from '#io/postgres'
import { upgradeStore } from '#storage/postgres/schema'
import { openSharedLog } from '#storage/postgres/shared-log'
import { type PostgresServer, startPostgres } from '#support/postgres/server'
import { ledgerSuite } from '../contract/ledger.js'
import { recordLogSuite, suiteKinds } from '../contract/record-log.js'

let server: PostgresServer
beforeAll(async () => {
  server = await startPostgres()
})
afterAll(() => server.close())

async function newStore() {
  const database = postgresDatabase(await server.createDatabase())
  await upgradeStore(await database.connect(), database.name)
  return database
}

const ports = { clock: systemClock, random: systemRandom }

recordLogSuite('PostgreSQL', async () => {
  const database = await newStore()
  return {
    open: (onRecord) => openSharedLog({ ...ports, database, knownKinds: suiteKinds, onRecord }),
    dispose: () => database.close(),
  }
})

ledgerSuite('PostgreSQL', async () => {
  const database = await newStore()
  return {
    openLog: (onRecord, state) =>
      openSharedLog({
        ...{ ...ports, database, knownKinds: knownKind, onRecord },
        onSnapshot: (line) => restoreLine(state, line),
      }),
    compact: snapshotState,
  }
})
