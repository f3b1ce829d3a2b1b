/**
 * docs/operating.md, "Two gateways": the failover drill is typed command by command, on a primary
 * and a synchronous standby, and the rights that it names are enough, and no more.
 */

import { appendFileSync, chmodSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import pg from 'pg'
import { knownKind } from '#gateway/ledger/state'
import { foldLedger } from '#gateway/ledger/writer'
import { systemClock, systemRandom } from '#io/clock'
import { postgresDatabase } from '#io/postgres'
import { startLeadership } from '#storage/postgres/leadership'
import { joinStore } from '#storage/postgres/members'
import { openStoreTables, upgradeStore } from '#storage/postgres/schema'
import { openSharedLog } from '#storage/postgres/shared-log'
import { openWindows } from '#storage/postgres/windows'
import { describeWith } from '#support/components'
import { deferred } from '#support/deferred'
import { account, programOf } from '#support/postgres/binaries'
import { type PostgresServer, startPostgres } from '#support/postgres/server'
import { startStandby } from '#support/postgres/standby'
import { freePort, workshop } from '#support/processes'
import { blocksIn, section, shell } from '#support/readme'

const page = 'docs/operating.md'
const shop = workshop()

function putPgCtl(folder: string): void {
  const program = join(programOf(18).program, '..', 'pg_ctl')
  const options = JSON.stringify({ ...account, stdio: 'inherit', cwd: '/' })
  const script = `#!${process.execPath}
const { spawnSync } = require('node:child_process')
process.exit(spawnSync(${JSON.stringify(program)}, process.argv.slice(2), ${options}).status ?? 1)
`
  writeFileSync(join(folder, 'pg_ctl'), script)
  chmodSync(join(folder, 'pg_ctl'), 0o755)
}

describeWith([18], 'docs: two gateways', () => {
  let primary: PostgresServer
  beforeAll(async () => {
    primary = await startPostgres()
  })
  afterAll(() => primary.close())

  test('its rights are enough for a gateway and for a dashboard, and no more', async () => {
    const url = await primary.createDatabase('roles')
    const owner = postgresDatabase(url)
    await upgradeStore(await owner.connect(), owner.name)
    await owner.close()
    const [grants = '', ...more] = blocksIn(section('Roles and rights', page), 'sql')
    expect(more).toEqual([])
    const asUser = async (user: string, text: string) => {
      const of =
        user === 'postgres' ? primary.adminUrl('roles') : url.replace('gateway@', `${user}@`)
      const client = new pg.Client(of)
      await client.connect()
      return client.query(text).finally(() => client.end())
    }
    await asUser('postgres', grants)
    await asUser('postgres', grants)

    const database = postgresDatabase(url.replace('gateway@', 'proposer_gateway@'))
    await openStoreTables(database)
    const ports = { clock: systemClock, random: systemRandom }
    const { onRecord, state } = foldLedger()
    const onSnapshot = () => undefined
    const log = await openSharedLog({
      ...ports,
      database,
      knownKinds: knownKind,
      onRecord,
      onSnapshot,
    })
    const id = systemRandom.uuid()
    const self = { id, version: '1', host: 'a', adminUrl: undefined, executor: undefined }
    const membership = await joinStore({ clock: systemClock, log }, self)
    const { promise: led, resolve: leads } = deferred()
    const leadership = startLeadership({
      ...{ ...ports, log, id, obstacle: () => undefined, hasFailed: () => undefined },
      standsBack: false,
      onGained: () => leads(),
      onLost: async () => undefined,
    })
    await led
    await log.append([{ kind: 'chain.finalized', data: { number: 1 } }])
    await log.putSnapshot(['{}'])
    await log.putSnapshot(['{}', '{}'])
    const windows = openWindows(database, {
      windowMs: 60_000,
      perClientItems: 120,
      mostSharedItems: 100,
    })
    expect((await windows.charge('10.0.0.1', 2)).own.spentItems).toBe(2)
    windows.close()
    await leadership.stop()
    await membership.stop()
    await log.close()
    await database.close()
    expect(state.info).toBeUndefined()

    for (const text of [
      'DELETE FROM proposer.record',
      "UPDATE proposer.record SET k = 'x'",
      'TRUNCATE proposer.record',
      'DROP TABLE proposer.record',
      'ALTER TABLE proposer.record ADD x int',
    ])
      await expect(asUser('proposer_gateway', text), text).rejects.toThrow(
        /permission denied|must be owner/,
      )
    for (const view of ['proposal', 'candidate', 'slot']) {
      const { fields } = await asUser('proposer_dashboard', `SELECT * FROM proposer.${view}`)
      expect(fields.map(({ name }) => name)).not.toContain('signature')
    }
    for (const text of ['SELECT FROM proposer.record', 'UPDATE proposer.head SET n = 0'])
      await expect(asUser('proposer_dashboard', text), text).rejects.toThrow('permission denied')
  })

  test('R23: its drill: the leader dies, the primary dies, and each proposal is executed once', async () => {
    const standby = await startStandby(primary, { synchronous: true })
    appendFileSync(
      join(standby.dataFolder, 'postgresql.auto.conf'),
      "synchronous_standby_names = 'standby'\n",
    )
    await standby.query('SELECT pg_reload_conf()')
    try {
      const folder = await shop.folder()
      putPgCtl(folder)
      const chainPort = await freePort()
      const script = blocksIn(section('Failover drill', page), 'sh')
        .join('\n')
        .replaceAll(/\b8545\b/g, String(chainPort))
        .replaceAll(/\b5432\b/g, String(primary.port))
        .replaceAll('postgres@', 'gateway@')
        .replaceAll(/\b5433\b/g, String(standby.port))
      const env = { primary: primary.dataFolder, standby: standby.dataFolder }
      const { code, stdout, stderr } = await shell(folder, script, { env })
      expect(code, stdout + stderr).toBe(0)
      expect(stdout.match(/executed/g)?.length, stdout).toBeGreaterThan(2)
      const { rows } = await (async () => {
        const client = new pg.Client(standby.url())
        await client.connect()
        return client
          .query('SELECT status, count(*)::int AS n FROM proposer.candidate GROUP BY status')
          .finally(() => client.end())
      })()
      expect(rows).toEqual([{ status: 'executed', n: 2 }])
    } finally {
      await standby.close()
    }
  })
})
