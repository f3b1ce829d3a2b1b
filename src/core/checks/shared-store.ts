/**
 * `serve --check` on PostgreSQL: could this gateway join it, and what does an admission survive
 * there?
 */
import { readSharedStore } from '#gateway/ledger/open-store'
import type { Clock, Machine, SqlDatabase, SqlRow, SqlSession } from '#ports'
import { counted } from '#protocol/text'
import { membersOf } from '#storage/postgres/members'
import {
  lackingRights,
  lookAtStore,
  requireTables,
  type StoreState,
} from '#storage/postgres/schema'
import { readSeen, type SeenFile } from '#storage/postgres/seen'
import { connectTo, notReached, openQueries } from '#storage/postgres/session'
import { type Finding, fail, note, pass, warn } from './finding.js'
import {
  closedContent,
  contentFindings,
  type StoreToCheck,
  stateFindings,
  storeFault,
  unread,
} from './store.js'

interface SharedStoreToCheck extends Omit<StoreToCheck, 'folder'> {
  readonly database: SqlDatabase
  readonly seenFile: SeenFile
}

/** Throws nothing that the database is to blame for. */
export async function checkSharedStore(machine: Machine, store: SharedStoreToCheck) {
  const { database, config } = store
  const findings: Finding[] = []
  const found = unread(config, findings)
  const sessions: SqlSession[] = []
  try {
    const session = await connectTo(database)
    sessions.push(session)
    findings.push(...(await serverFindings(session)), await clockFinding(machine.clock, session))
    const other = await connectTo(database)
    sessions.push(other)
    findings.push(...(await poolerFindings(session, other)))
    const state = await lookAtStore(session, database.name)
    findings.push(await tablesFinding(session, database.name, state))
    const seen = await readSeen(machine, store.seenFile)
    if (seen !== undefined && state.kind === 'empty') await requireTables(database, seen)
    if (state.kind !== 'current') return found
    const ledger = await readSharedStore(machine, database, store.settings, { seen })
    const content = await closedContent(ledger)
    findings.push(...contentFindings(ledger, `${database.name} is sound`))
    findings.push(...(await gatewayFindings(database)), ...(await stateFindings(ledger, store)))
    return { ...found, ...content }
  } catch (error) {
    findings.push(storeFault(notReached(database.name, error)))
    return found
  } finally {
    for (const session of sessions) session.destroy()
  }
}

const settingsQuery = `
SELECT current_setting('server_version') AS version, current_setting('fsync') AS fsync,
       current_setting('full_page_writes') AS full_page_writes,
       current_setting('synchronous_commit') AS synchronous_commit,
       current_setting('synchronous_standby_names') AS standby_names,
       (SELECT count(*) FROM pg_stat_replication WHERE sync_state IN ('sync', 'quorum')) AS standbys,
       pg_has_role('pg_read_all_stats', 'USAGE') AS sees_standbys`

async function serverFindings(session: SqlSession) {
  const [row = {}] = await session.query(settingsQuery)
  const isOff = (name: string) => row[name] === 'off'
  const unsafe = ['fsync', 'full_page_writes']
    .filter(isOff)
    .map((name) =>
      fail(
        'store_durability',
        `${name} is off: when the machine of the database fails, acknowledged admissions may be lost or damaged`,
        `set ${name} = on in postgresql.conf, and reload`,
      ),
    )
  return [
    pass('store_server', `PostgreSQL ${String(row.version)}`),
    ...unsafe,
    unsafe.length > 0 ? undefined : promiseOf(row),
  ].filter((one) => one !== undefined)
}

function promiseOf(row: SqlRow) {
  const id = 'store_durability'
  const commit = String(row.synchronous_commit)
  const names = String(row.standby_names)
  if (commit === 'off')
    return fail(
      id,
      'synchronous_commit is off: an acknowledged admission may be lost when the server fails',
      'set synchronous_commit = on for this user or database',
    )
  const here = 'an acknowledged admission survives a failure of the server and of its machine'
  const setUp = 'set up a synchronous standby where that is not enough'
  if (names === '')
    return note(id, `${here}, not the loss of its disk: no standby is synchronous; ${setUp}`)
  if (commit === 'local')
    return warn(
      id,
      `synchronous_commit is local: ${here}, not the loss of its disk, although standbys are configured`,
      'set synchronous_commit = on for this user or database',
    )
  if (row.sees_standbys === true && Number(row.standbys) === 0)
    return fail(
      id,
      `no synchronous standby of "${names}" is connected: every admission waits, and is not acknowledged`,
      'start the standby, or take it out of synchronous_standby_names',
    )
  const seen = row.sees_standbys === true ? '' : '; this user may not see whether one is connected'
  if (commit === 'remote_write')
    return note(
      id,
      `synchronous_commit is remote_write: ${here}, and the loss of its disk unless the machine of the standby fails with it${seen}`,
    )
  return pass(id, `${here}, and the loss of its disk: a synchronous standby has it too${seen}`)
}

/** Above this, times of records and leases mislead whoever reads them. */
const mostClockMs = 2_000

async function clockFinding({ nowMs }: Clock, session: SqlSession) {
  const beforeMs = nowMs()
  const [row] = await session.query('SELECT extract(epoch FROM clock_timestamp()) * 1000 AS ms')
  const afterMs = nowMs()
  const databaseMs = Number(row?.ms)
  const aheadMs = databaseMs > afterMs ? databaseMs - afterMs : Math.min(0, databaseMs - beforeMs)
  const id = 'store_clock'
  if (Math.abs(aheadMs) <= mostClockMs)
    return pass(id, 'the clocks of this machine and of the database agree')
  const by = `${Math.round(Math.abs(aheadMs) / 1_000)} s ${aheadMs > 0 ? 'ahead of' : 'behind'}`
  return warn(
    id,
    `the clock of the database is ${by} that of this machine`,
    'sync both with NTP; leases and rate limits use the clock of the database',
  )
}

/** Such a pooler shows when another session is amid a transaction. */
async function poolerFindings(session: SqlSession, other: SqlSession) {
  const pidOf = async (one: SqlSession) =>
    String((await one.query('SELECT pg_backend_pid() AS pid'))[0]?.pid)
  await session.query("SET application_name = 'proposer check'")
  const before = await pidOf(session)
  await other.query('BEGIN')
  const others = await pidOf(other)
  const after = await pidOf(session)
  const [setting] = await session.query("SELECT current_setting('application_name') AS name")
  await other.query('ROLLBACK')
  await session.query('RESET application_name')
  if (before === after && before !== others && setting?.name === 'proposer check') return []
  return [
    note(
      'store_pooler',
      'connected through a pooler in transaction mode: this works, but its failures add to those of the database',
    ),
  ]
}

async function tablesFinding(session: SqlSession, name: string, state: StoreState) {
  switch (state.kind) {
    case 'empty': {
      const [row] = await session.query(
        "SELECT has_database_privilege(current_database(), 'CREATE') AS may",
      )
      return row?.may === true
        ? pass('store', `${name} is empty, and the tables can be created`)
        : fail(
            'store',
            `${name} is empty, and its user may not create the tables`,
            'run `proposer operator store init` as the owner of the database, then grant the rights',
          )
    }
    case 'older':
      return fail(
        'store',
        `the tables in ${name} have schema version ${state.version}, which is too old`,
        'run `proposer operator store upgrade`',
      )
    case 'current': {
      const lacking = await lackingRights(session, name)
      const detail = `the user of ${name} lacks a right: ${lacking.join(', ')}`
      return lacking.length === 0
        ? pass('store_rights', `the user of ${name} has all rights that a gateway needs`)
        : fail('store_rights', detail, 'grant it as the owner of the tables')
    }
  }
}

async function gatewayFindings(database: SqlDatabase) {
  const queries = openQueries(database)
  try {
    const members = await membersOf(queries)
    const leader = members.find(({ isLeader }) => isLeader)
    if (members.length === 0) return []
    const leads = leader === undefined ? 'no leader' : `the leader is on ${leader.host}`
    return [note('store_gateways', `${counted(members.length, 'gateway')} on the store; ${leads}`)]
  } finally {
    queries.close()
  }
}
