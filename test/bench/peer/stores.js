import Database from 'better-sqlite3'
import pg from 'pg'

const table = `CREATE TABLE IF NOT EXISTS candidate (
  id text PRIMARY KEY,
  identity text UNIQUE NOT NULL,
  payload text NOT NULL,
  received_at text NOT NULL
)`
const found = (row) => row && { id: row.id, receivedAt: row.received_at }

/** A file in WAL mode, synced before each answer. */
export function openSqlite(path) {
  const db = new Database(path)
  db.pragma('journal_mode = WAL')
  db.pragma('synchronous = FULL')
  db.exec(table)
  const insert = db.prepare(
    'INSERT INTO candidate VALUES (@id, @identity, @payload, @receivedAt) ON CONFLICT DO NOTHING',
  )
  const byIdentity = db.prepare('SELECT id, received_at FROM candidate WHERE identity = ?')
  const byId = db.prepare('SELECT id, received_at FROM candidate WHERE id = ?')
  return {
    insert: (candidate) => insert.run(candidate).changes === 1,
    byIdentity: (identity) => found(byIdentity.get(identity)),
    byId: (id) => found(byId.get(id)),
  }
}

/** A table with unique constraints, over the driver's pool as it comes; named statements. */
export async function openPostgres(connectionString) {
  const pool = new pg.Pool({ connectionString })
  await pool.query(table)
  const first = async (name, text, values) =>
    found((await pool.query({ name, text, values })).rows[0])
  return {
    async insert({ id, identity, payload, receivedAt }) {
      const { rowCount } = await pool.query({
        name: 'insert',
        text: 'INSERT INTO candidate VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING',
        values: [id, identity, payload, receivedAt],
      })
      return rowCount === 1
    },
    byIdentity: (identity) =>
      first('identity', 'SELECT id, received_at FROM candidate WHERE identity = $1', [identity]),
    byId: (id) => first('id', 'SELECT id, received_at FROM candidate WHERE id = $1', [id]),
  }
}
