/** The suites of every log and ledger, on PostgreSQL; and what only a store of several has. */
import { knownKind, type LedgerState } from '#gateway/ledger/state'
import { restoreLine, snapshotState } from '#gateway/ledger/store'
import { foldLedger, openLedger } from '#gateway/ledger/writer'
import { systemClock, systemRandom } from '#io/clock'
import { postgresDatabase } from '#io/postgres'
import { upgradeStore } from '#storage/postgres/schema'
import { openSharedLog, type SharedLog } from '#storage/postgres/shared-log'
import { type PostgresServer, startPostgres } from '#support/postgres/server'
import { ledgerSuite, settings } from '../contract/ledger.js'
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
  let log: SharedLog | undefined
  let state: LedgerState | undefined
  return {
    async open() {
      const fold = foldLedger()
      state = fold.state
      log = await openSharedLog({
        ...ports,
        database,
        knownKinds: knownKind,
        onRecord: fold.onRecord,
        onSnapshot: (line) => restoreLine(fold.state, line),
      })
      return openLedger(ports, log, fold.state, settings)
    },
    async compact() {
      if (log && state) await snapshotState(log, state)
    },
    remove: () => database.close(),
  }
})
