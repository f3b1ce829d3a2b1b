/**
 * Every form of the tables that was ever written is read by this version: upgraded, and folded to
 * the same state (fixtures/store-v1.sql and later ones).
 */
import { join } from 'node:path'
import pg from 'pg'
import { postgresDatabase } from '#io/postgres'
import { lookAtStore, schemaVersion, upgradeStore } from '#storage/postgres/schema'
import { describeWith } from '#support/components'
import { keptFiles } from '#support/kept-files'
import { holdingOf, keepStore, keptStores } from '#support/postgres/kept-stores'
import { type PostgresServer, startPostgres } from '#support/postgres/server'

const isKeeping = process.env.KEEP_STORE === '1'

test.runIf(isKeeping)('keeps a dump of the form of today', async () => {
  const server = await startPostgres({ version: 15 })
  const files = await keptFiles('v0.1')
  try {
    const database = postgresDatabase(server.url())
    await upgradeStore(await database.connect(), database.name)
    await keepStore(database, server.url(), join(files, 'stores/small/gateway-store'))
    await database.close()
  } finally {
    await server.close()
  }
})

describeWith([18], 'a store of an earlier form', () => {
  let server: PostgresServer
  beforeAll(async () => {
    server = await startPostgres()
  })
  afterAll(() => server.close())

  async function shapeOf(url: string): Promise<unknown> {
    const client = new pg.Client(url)
    await client.connect()
    try {
      const rows = async (text: string) => (await client.query(text)).rows
      return {
        columns: await rows(`SELECT table_name, column_name, data_type, is_nullable, column_default
          FROM information_schema.columns WHERE table_schema = 'proposer'
          ORDER BY table_name, column_name`),
        indexes: await rows(
          "SELECT indexdef FROM pg_indexes WHERE schemaname = 'proposer' ORDER BY indexname",
        ),
        rules: await rows(`SELECT conrelid::regclass::text, contype, pg_get_constraintdef(oid) AS is
          FROM pg_constraint WHERE connamespace = 'proposer'::regnamespace AND contype <> 'n'
          ORDER BY 1, 2, 3`),
        tables: await rows(`SELECT relname, relpersistence, reloptions FROM pg_class
          WHERE relnamespace = 'proposer'::regnamespace AND relkind = 'r' ORDER BY 1`),
      }
    } finally {
      await client.end()
    }
  }

  async function restored(sql: string): Promise<string> {
    const url = await server.createDatabase()
    const client = new pg.Client(url)
    await client.connect()
    await client.query(sql)
    await client.end()
    return url
  }

  test.each(isKeeping ? [] : keptStores())(
    'R25: form $form is upgraded and folded to the same state',
    async ({ form, sql, holds }) => {
      const url = await restored(sql)
      const database = postgresDatabase(url)
      try {
        const session = await database.connect()
        expect(await lookAtStore(session, database.name)).toEqual(
          form === schemaVersion ? { kind: 'current' } : { kind: 'older', version: form },
        )
        expect(await upgradeStore(session, database.name)).toBe(schemaVersion - form)
        expect(await upgradeStore(session, database.name)).toBe(0)
        expect(await holdingOf(database, { fromSnapshot: false })).toEqual(holds)
        expect(await holdingOf(database, { fromSnapshot: true })).toEqual(holds)
        const fresh = await server.createDatabase()
        const empty = postgresDatabase(fresh)
        await upgradeStore(await empty.connect(), empty.name)
        await empty.close()
        expect(await shapeOf(url)).toEqual(await shapeOf(fresh))
      } finally {
        await database.close()
      }
    },
  )

  test('the views for dashboards tell of the first form what they told then', async () => {
    const [first] = keptStores()
    const client = new pg.Client(await restored(first?.sql ?? ''))
    await client.connect()
    try {
      const { rows } = await client.query('SELECT id, status FROM proposer.candidate ORDER BY id')
      expect(rows).toEqual(
        first?.holds.candidates
          .map(([id, , status]) => ({ id, status }))
          .sort((a, b) => (a.id < b.id ? -1 : 1)),
      )
      const proposals = await client.query('SELECT count(*)::int AS n FROM proposer.proposal')
      expect(proposals.rows).toEqual([{ n: first?.holds.candidates.length }])
      const slots = await client.query('SELECT count(*)::int AS n FROM proposer.slot')
      expect(slots.rows).toEqual([{ n: 2 }])
    } finally {
      await client.end()
    }
  })
})
