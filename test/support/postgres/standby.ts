import { readdirSync, rmSync } from 'node:fs'
import { dirname, join } from 'node:path'
import pg from 'pg'
import { runInAccount, writeInAccount } from './binaries.js'
import { until } from './folders.js'
import { type PostgresServer, serve } from './server.js'

export interface PostgresStandby extends PostgresServer {
  readonly name: string
  caughtUp(): Promise<void>
  promote(): Promise<void>
}

export interface StartStandbyOptions {
  readonly synchronous: boolean
  readonly name?: string
}

export async function startStandby(
  primary: PostgresServer,
  options: StartStandbyOptions,
): Promise<PostgresStandby> {
  const name = options.name ?? 'standby'
  const server = await serve(
    primary.version,
    {
      ...primary.settings,
      primary_conninfo: `host=${dirname(primary.dataFolder)} port=${primary.port} user=postgres application_name=${name}`,
      wal_retrieve_retry_interval: '100ms',
    },
    (data) => backup(primary, data),
  )
  const streams = async (state: string) => {
    const rows = await primary.query(
      'SELECT FROM pg_stat_replication WHERE application_name = $1 AND $2 IN (state, sync_state)',
      [name, state],
    )
    return rows.length > 0
  }
  try {
    await until(() => streams('streaming'), `the standby does not stream: ${server.log()}`)
    if (options.synchronous) {
      const names = pg.escapeLiteral(pg.escapeIdentifier(name))
      await primary.query(`ALTER SYSTEM SET synchronous_standby_names = ${names}`)
      await primary.query('SELECT pg_reload_conf()')
      await until(() => streams('sync'), 'the standby does not become synchronous')
    }
  } catch (error) {
    await server.close()
    throw error
  }
  return Object.assign(server, {
    name,
    async caughtUp() {
      const [end] = await primary.query<{ lsn: string }>('SELECT pg_current_wal_lsn() AS lsn')
      const reached = 'SELECT pg_last_wal_replay_lsn() >= $1::pg_lsn AS reached'
      await until(
        async () =>
          (await server.query<{ reached: boolean }>(reached, [end?.lsn]))[0]?.reached === true,
        'the standby does not catch up',
      )
    },
    async promote() {
      const [row] = await server.query<{ done: boolean }>('SELECT pg_promote(true, 60) AS done')
      if (row?.done !== true) throw new Error(`the standby is not promoted: ${server.log()}`)
    },
  })
}

async function backup(primary: PostgresServer, data: string): Promise<void> {
  const client = new pg.Client(primary.adminUrl())
  await client.connect()
  try {
    await client.query("SELECT pg_backup_start('standby', true)")
    await runInAccount('cp', ['-a', primary.dataFolder, data], /No such file or directory/)
    const { rows } = await client.query('SELECT labelfile FROM pg_backup_stop(false)')
    writeInAccount(join(data, 'backup_label'), rows[0].labelfile)
  } finally {
    await client.end()
  }
  writeInAccount(join(data, 'standby.signal'), '')
  for (const name of ['postmaster.pid', 'postmaster.opts']) rmSync(join(data, name))
  writeInAccount(join(data, 'postgresql.auto.conf'), '')
  const wal = join(data, 'pg_wal')
  for (const entry of readdirSync(wal, { withFileTypes: true }))
    if (entry.isFile()) rmSync(join(wal, entry.name))
}
