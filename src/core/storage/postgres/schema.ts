/**
 * The tables of a shared store (docs/design/shared-store.md). Changes are additive, and each is one
 * transaction that notes itself first.
 */
import { type SqlDatabase, SqlError, type SqlSession } from '#ports'
import { StorageError } from '#protocol/errors'
import { rolledBack, type SharedEnd } from './log-state.js'
import { connectTo } from './session.js'

interface Migration {
  readonly name: string
  readonly sql: string
}

const first: Migration = {
  name: 'log, head, gateways, snapshots, rate limits',
  sql: `
CREATE TABLE proposer.record (
  n bigint PRIMARY KEY,
  grp uuid NOT NULL,
  k text NOT NULL,
  t bigint NOT NULL,
  d json NOT NULL
);
CREATE UNIQUE INDEX record_identity ON proposer.record ((d->'candidate'->>'identity'))
  WHERE k = 'candidate.received';
-- A slot without a proposal may fill a gap below: only proposals never share a nonce (R3).
CREATE UNIQUE INDEX record_nonce ON proposer.record ((d->'slot'->>'executor'), (d->'slot'->>'nonce'))
  WHERE k = 'slot.opened' AND json_array_length(d->'slot'->'candidateIds') > 0;
CREATE TABLE proposer.head (
  id int PRIMARY KEY CHECK (id = 1),
  n bigint NOT NULL,
  epoch bigint NOT NULL,
  holder uuid,
  lease_until timestamptz NOT NULL,
  write_version int NOT NULL,
  min_reader int NOT NULL
) WITH (fillfactor = 10);
INSERT INTO proposer.head VALUES (1, 0, 0, NULL, clock_timestamp(), 1, 1);
CREATE TABLE proposer.gateway (
  id uuid PRIMARY KEY,
  version text NOT NULL,
  format int NOT NULL,
  host text NOT NULL,
  admin_url text,
  executor text,
  started_at timestamptz NOT NULL,
  seen_at timestamptz NOT NULL,
  applied_n bigint NOT NULL
);
CREATE TABLE proposer.snapshot (
  n bigint NOT NULL,
  part int NOT NULL,
  format int NOT NULL,
  body text NOT NULL,
  PRIMARY KEY (n, part)
);
CREATE UNLOGGED TABLE proposer.budget (
  key text PRIMARY KEY,
  window_start timestamptz NOT NULL,
  spent bigint NOT NULL
);
CREATE VIEW proposer.candidate AS
  SELECT DISTINCT ON (id) * FROM (
    SELECT n, t, d->'candidate'->>'id' AS id, d->'candidate'->>'identity' AS identity,
           d->'candidate'->>'proposer' AS proposer,
           coalesce(d->'candidate'->'progress'->>'status', 'received') AS status
      FROM proposer.record WHERE k IN ('candidate.received', 'candidate.whole')
    UNION ALL
    SELECT n, t, d->>'id', NULL, NULL, d->'progress'->>'status'
      FROM proposer.record WHERE k = 'candidate.progress') AS told
  ORDER BY id, n DESC;
CREATE VIEW proposer.proposal AS
  SELECT n, to_timestamp(t / 1000.0) AS received_at, d->'candidate'->>'id' AS id,
         d->'candidate'->>'proposer' AS proposer, d->'candidate'->>'questionId' AS question_id,
         d->'candidate'->>'price' AS price, d->'candidate'->>'amount' AS amount
    FROM proposer.record WHERE k = 'candidate.received';
CREATE VIEW proposer.slot AS
  SELECT opened.d->'slot'->>'id' AS id, opened.d->'slot'->>'executor' AS executor,
         (opened.d->'slot'->>'nonce')::bigint AS nonce, to_timestamp(opened.t / 1000.0) AS opened_at,
         closed.d->'outcome'->>'kind' AS outcome, closed.d->'outcome'->>'hash' AS hash
    FROM proposer.record AS opened
    LEFT JOIN proposer.record AS closed
      ON closed.k = 'slot.closed' AND closed.d->>'slotId' = opened.d->'slot'->>'id'
   WHERE opened.k = 'slot.opened';`,
}

const migrations: readonly Migration[] = [first]

export const schemaVersion = migrations.length

/** Set in the row `head`, here and below, while a copy into the store is under way. */
export const copyMark = {
  set: 'min_reader = -abs(min_reader)',
  clear: 'min_reader = abs(min_reader)',
} as const

/** Taken for a transaction, so that poolers keep it right. The number is ours alone. */
const migrationLock = 7_079_337_001

export type StoreState =
  | { readonly kind: 'empty' }
  | { readonly kind: 'current' }
  | { readonly kind: 'older'; readonly version: number }

type CopyBegun = 'refused' | 'taken'

/** Exit 74 for tables of another program, a newer form, or an unfinished copy. */
export async function lookAtStore(
  session: SqlSession,
  name: string,
  copyBegun: CopyBegun = 'refused',
): Promise<StoreState> {
  const ask = asking(session, name)
  const [found] = await ask(`
    SELECT to_regclass('proposer.migration') IS NOT NULL AS is_ours,
           current_setting('server_version_num')::int AS version,
           EXISTS (SELECT 1 FROM pg_class c JOIN pg_namespace s ON s.oid = c.relnamespace
                    WHERE c.relkind IN ('r', 'p') AND s.nspname NOT LIKE 'pg\\_%'
                      AND s.nspname <> 'information_schema') AS has_tables`)
  if (Number(found?.version) < 140_000)
    throw refused(
      'store_unavailable',
      `PostgreSQL ${String(found?.version).slice(0, 2)} runs ${name}`,
      'use version 14 or later',
    )
  if (found?.is_ours !== true) {
    if (found?.has_tables !== true) return { kind: 'empty' }
    const hint = 'use a separate database for the store'
    throw refused('store_mismatch', `${name} holds tables of another program`, hint)
  }
  const [form] = await ask(`
    SELECT coalesce(max(m.id), 0)::int AS version,
           (SELECT min_reader FROM proposer.head) AS min_reader FROM proposer.migration m`)
  const version = Number(form?.version)
  const minReader = Number(form?.min_reader)
  if (minReader < 0 && copyBegun === 'refused')
    throw refused(
      'store_incomplete',
      `a copy into ${name} has not finished`,
      'run the same `proposer operator store copy` again to finish it, or use an empty database',
    )
  if (Math.abs(minReader) > schemaVersion) {
    const what = `the store in ${name} may be read by schema version ${Math.abs(minReader)} or later; this version has ${schemaVersion}`
    throw refused('store_too_new', what, 'install the version that wrote it')
  }
  return version < schemaVersion ? { kind: 'older', version } : { kind: 'current' }
}

export async function upgradeStore(session: SqlSession, name: string) {
  const state = await lookAtStore(session, name)
  if (state.kind === 'current') return 0
  const ask = asking(session, name)
  let made = 0
  for (const [index, { name: what, sql }] of migrations.entries()) {
    const id = index + 1
    await ask(`BEGIN; SET LOCAL lock_timeout = '2s';
      SELECT pg_advisory_xact_lock(${migrationLock});
      CREATE SCHEMA IF NOT EXISTS proposer;
      CREATE TABLE IF NOT EXISTS proposer.migration
        (id int PRIMARY KEY, name text NOT NULL, at timestamptz NOT NULL DEFAULT clock_timestamp())`)
    const known = await ask(`SELECT 1 FROM proposer.migration WHERE id = ${id}`)
    if (known.length === 0) {
      await ask(`
        INSERT INTO proposer.migration (id, name) VALUES (${id}, '${what}');${sql}`)
      made += 1
    }
    await ask('COMMIT')
  }
  return made
}

async function withSession<T>(
  database: SqlDatabase,
  job: (session: SqlSession, name: string) => Promise<T>,
) {
  const session = await connectTo(database)
  try {
    return await job(session, database.name)
  } finally {
    session.destroy()
  }
}

export const openStoreTables = (database: SqlDatabase, copyBegun: CopyBegun = 'refused') =>
  withSession(database, async (session, name) => {
    const state = await lookAtStore(session, name, copyBegun)
    if (state.kind === 'empty') await upgradeStore(session, name)
    if (state.kind === 'older') throw tooOld(name, state.version)
    const lacking = (await lackingRights(session, name)).join(', ')
    if (lacking === '') return state.kind
    const hint = 'grant it as the owner of the tables'
    throw refused('store_unavailable', `the user of ${name} lacks a right: ${lacking}`, hint)
  })

const neededRights = {
  migration: ['SELECT'],
  record: ['SELECT', 'INSERT'],
  head: ['SELECT', 'UPDATE'],
  gateway: ['SELECT', 'INSERT', 'UPDATE', 'DELETE'],
  snapshot: ['SELECT', 'INSERT', 'UPDATE', 'DELETE'],
  budget: ['SELECT', 'INSERT', 'UPDATE'],
} as const

export async function lackingRights(session: SqlSession, name: string) {
  const rights = Object.entries(neededRights).flatMap(([table, needed]) =>
    needed.map((right) => `('proposer.${table}', '${right}')`),
  )
  const ask = asking(session, name)
  const [row] = await ask(`SELECT json_agg(r.need || ' on ' || r.tab) AS lacking
       FROM (VALUES ${rights.join(', ')}) AS r (tab, need)
      WHERE NOT has_table_privilege(r.tab, r.need)`)
  return (row?.lacking as string[] | null) ?? []
}

/**
 * Then raises what gateways may write, once no older one is at work
 * (docs/design/shared-store.md).
 */
export const upgradeTables = (database: SqlDatabase) =>
  withSession(database, async (session, name) => {
    if ((await lookAtStore(session, name)).kind === 'empty') throw noStore(name)
    const migrations = await upgradeStore(session, name)
    const ask = asking(session, name)
    const [row] = await ask(`
      UPDATE proposer.head SET write_version = greatest(write_version, ${schemaVersion})
       WHERE NOT EXISTS (SELECT 1 FROM proposer.gateway WHERE format < ${schemaVersion}
                           AND seen_at > clock_timestamp() - interval '30 s');
      SELECT write_version, (SELECT count(*) FROM proposer.gateway WHERE format < ${schemaVersion}
                               AND seen_at > clock_timestamp() - interval '30 s') AS older
        FROM proposer.head`)
    return {
      migrations,
      writeVersion: Number(row?.write_version),
      /** Gateways at work that know an older form only; `writeVersion` waits for them to go. */
      olderGateways: Number(row?.older),
    }
  })

export const requireTables = (database: SqlDatabase, seen?: SharedEnd) =>
  withSession(database, async (session, name) => {
    const state = await lookAtStore(session, name)
    if (state.kind === 'current') return
    if (state.kind === 'older') throw tooOld(name, state.version)
    throw seen === undefined
      ? noStore(name)
      : rolledBack(name, `it holds no store, but record ${seen.n} was there before`)
  })

const noStore = (name: string) =>
  refused(
    'store_missing',
    `${name} holds no store`,
    'run `proposer operator store init`, or `proposer serve`, which creates one',
  )

const tooOld = (name: string, version: number) =>
  refused(
    'store_too_old',
    `the tables in ${name} have schema version ${version}; this version needs ${schemaVersion}`,
    'run `proposer operator store upgrade`; gateways of the previous version keep running',
  )

const asking = (session: SqlSession, name: string) => async (script: string) => {
  try {
    return await session.script(script)
  } catch (error) {
    if (!(error instanceof SqlError)) throw error
    if (!session.isLost) await session.script('ROLLBACK')
    if (error.code === '42501')
      throw refused(
        'store_unavailable',
        `the user of ${name} lacks a right: ${error.message}`,
        'grant it, or run `proposer operator store init` as the owner of the database',
      )
    throw new StorageError('store_unavailable', `${name}: ${error.message}`, {
      httpStatus: 503,
      cause: error,
      hint: 'check the database and the URL of the store',
    })
  }
}

const refused = (
  code: `store_${'incomplete' | 'mismatch' | 'missing' | 'too_new' | 'too_old' | 'unavailable'}`,
  detail: string,
  hint: string,
) => new StorageError(code, detail, { httpStatus: 503, hint })
