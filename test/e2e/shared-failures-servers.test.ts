/** Several gateways on one PostgreSQL whose servers die, fail over or lose their standby. */
import { spawnSync } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join as path } from 'node:path'
import pg from 'pg'
import { systemClock } from '#io/clock'
import { argvOf } from '#support/argv'
import { describeWith } from '#support/components'
import { account } from '#support/postgres/binaries'
import {
  identitiesIn,
  type JoinedLedger,
  joinLedger,
  numbered,
  outcome,
} from '#support/postgres/gateways'
import { identities, underKills, until } from '#support/postgres/load'
import { openPostgresProxy } from '#support/postgres/proxy'
import { type PostgresServer, startPostgres } from '#support/postgres/server'
import { startStandby } from '#support/postgres/standby'

const closing: (() => Promise<void>)[] = []
const later = <T extends { close(): Promise<void> }>(one: T): T => {
  closing.push(() => one.close())
  return one
}
const join = async (url: string) => later(await joinLedger(url))
afterEach(async () => {
  for (const close of closing.splice(0).reverse()) await close()
})

async function awaitStandby(server: PostgresServer, name: string): Promise<void> {
  await server.query(`ALTER SYSTEM SET synchronous_standby_names = '${name}'`)
  await server.query('SELECT pg_reload_conf()')
  // Its processes learn of it one after the other: it is in force once a commit waits.
  if (name !== '') await until(() => probeWaits(server))
}

async function probeWaits(server: PostgresServer): Promise<boolean> {
  let isOver = false
  const probe = server.query("SELECT pg_logical_emit_message(true, 'probe', '')").finally(() => {
    isOver = true
  })
  while (!isOver) {
    const waiting = await server.query(
      `SELECT pg_cancel_backend(pid) FROM pg_stat_activity
        WHERE wait_event = 'SyncRep' AND query LIKE '%emit_message(true, ''probe''%'`,
    )
    if (waiting.length === 0) continue
    await probe
    return true
  }
  await probe
  return false
}

async function endWaits(server: PostgresServer, how: 'cancel' | 'terminate'): Promise<void> {
  await until(async () => {
    const rows = await server.query(
      `SELECT pg_${how}_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'`,
    )
    return rows.length > 0
  })
}

const either = (one: PostgresServer, two: PostgresServer, database: string) =>
  `postgres://gateway@127.0.0.1:${one.port},127.0.0.1:${two.port}/${database}`

async function candidatesIn(url: string): Promise<number> {
  const client = new pg.Client(url)
  await client.connect()
  try {
    const received = "SELECT 1 FROM proposer.record WHERE k = 'candidate.received'"
    return (await client.query(received)).rows.length
  } finally {
    await client.end()
  }
}

async function replicated(synchronous: boolean) {
  const primary = later(await startPostgres())
  await primary.createDatabase('shared')
  return { primary, standby: later(await startStandby(primary, { synchronous })) }
}

describeWith([18], 'the synchronous standby is gone', () => {
  test('R10: a COMMIT whose wait was cancelled is told nobody as 202, and the gateway stops', async () => {
    const server = later(await startPostgres())
    const gateway = await join(await server.createDatabase())
    await awaitStandby(server, 'nobody')
    const told = [1, 2, 3].map((n) => outcome(gateway.ledger.admit(numbered(n))))
    await endWaits(server, 'cancel')
    expect(await told[0]).toBe(500)
    expect([500, 503]).toContain(await told[1])
    expect([500, 503]).toContain(await told[2])
    expect(gateway.log.failed?.message).toMatch(/did not make a write durable/)
    expect(await outcome(gateway.ledger.admit(numbered(4)))).toBe(503)
    await awaitStandby(server, '')
  })

  test('one session waits for it however often it is asked for, and the reason is told', async () => {
    const server = later(await startPostgres())
    const sleep: typeof systemClock.sleep = (ms, signal) => systemClock.sleep(ms / 20, signal)
    const { log } = later(
      await joinLedger(await server.createDatabase(), { ...systemClock, sleep }),
    )
    await awaitStandby(server, 'nobody')
    const ask = (sql: string) => log.ask(sql).catch((error: unknown) => String(error))
    await ask("SELECT pg_logical_emit_message(true, 'lost', '')")
    const waiting = async () =>
      (await server.query("SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep'")).map(
        ({ pid }) => pid,
      )
    expect(await ask('SELECT 1')).toContain('its synchronous standby confirms no commit')
    const sessions = await waiting()
    for (let n = 0; n < 8; n++)
      expect(await ask('SELECT 1')).toContain('its synchronous standby confirms no commit')
    expect(await waiting()).toEqual(sessions)
    await until(async () => log.down !== undefined)
    expect(log.down).toMatch(/takes no writes: its synchronous standby confirms no commit$/)
    await awaitStandby(server, '')
    await until(async () => typeof (await ask('SELECT 1')) !== 'string')
  })

  test('a COMMIT that waits for it ends as unknown, and is there once it may', async () => {
    const server = later(await startPostgres())
    const [waiting, terminated] = [
      await join(await server.createDatabase()),
      await join(await server.createDatabase()),
    ]
    await awaitStandby(server, 'nobody')
    const startMs = performance.now()
    const first = outcome(terminated.ledger.admit(numbered(1)))
    await endWaits(server, 'terminate')
    const told = await Promise.all([first, outcome(waiting.ledger.admit(numbered(1)))])
    expect(told).toEqual([500, 500])
    expect(performance.now() - startMs).toBeLessThan(40_000)
    await awaitStandby(server, '')
    for (const { ledger, log } of [waiting, terminated]) {
      await until(async () => (await outcome(ledger.admit(numbered(1)))) === 200)
      expect(await identitiesIn(log)).toEqual(identities(1, 1))
    }
  })
})

describeWith([18], 'another server takes over', () => {
  test('R1: a promotion while connections to the old primary live loses nothing acknowledged', async () => {
    const { primary, standby } = await replicated(true)
    const gateway = await join(either(primary, standby, 'shared'))
    const other = await join(either(primary, standby, 'shared'))
    for (let n = 1; n <= 10; n++)
      expect(await outcome((n % 2 ? gateway : other).ledger.admit(numbered(n)))).toBe(202)
    await standby.promote()
    const meanwhile = await Promise.all([
      outcome(gateway.ledger.admit(numbered(11))),
      outcome(other.ledger.admit(numbered(12))),
    ])
    for (const status of meanwhile) expect([500, 503]).toContain(status)
    await primary.kill()
    for (const each of [gateway, other])
      await until(async () => [200, 202].includes(await outcome(each.ledger.admit(numbered(13)))))
    expect(await outcome(gateway.ledger.admit(numbered(11)))).toBe(202)
    expect(await outcome(other.ledger.admit(numbered(12)))).toBe(202)
    expect(await identitiesIn(other.log)).toEqual([
      ...identities(1, 10),
      ...[13, 11, 12].map((n) => numbered(n).identity),
    ])
  })

  test('R10: a standby that had not got everything is promoted: who knows more stops', async () => {
    const { primary, standby } = await replicated(false)
    const proxies = [
      later(await openPostgresProxy(primary.url('shared'))),
      later(await openPostgresProxy(standby.url('shared'))),
    ]
    const [first, second] = proxies
    if (!first || !second) throw new Error('two proxies were asked for')
    const both = `postgres://gateway@127.0.0.1:${first.port},127.0.0.1:${second.port}/shared`
    const [writer, reader] = [await join(both), await join(both)]
    expect(await outcome(writer.ledger.admit(numbered(1)))).toBe(202)
    await reader.log.catchUp()
    await standby.caughtUp()
    await standby.stop()
    expect(await outcome(writer.ledger.admit(numbered(2)))).toBe(202)
    await reader.log.catchUp()
    first.blackHole()
    second.blackHole()
    await primary.kill()
    await standby.restart()
    await standby.promote()
    // Others write more than was lost, before these two look again.
    const newcomer = await join(standby.url('shared'))
    for (let n = 3; n <= 6; n++) expect(await outcome(newcomer.ledger.admit(numbered(n)))).toBe(202)
    first.cutAll()
    first.heal()
    second.heal()
    for (const each of [writer, reader]) {
      await until(() => each.log.failed !== undefined)
      expect(each.log.failed?.message).toMatch(/has lost records that it had acknowledged/)
      expect(await outcome(each.ledger.admit(numbered(7)))).toBe(503)
    }
    expect(await identitiesIn(newcomer.log)).toEqual([numbered(1).identity, ...identities(3, 6)])
  })

  test('R1: what a killed server shows again before its standby has it is acknowledged by nobody', async () => {
    const { primary, standby } = await replicated(true)
    const url = either(primary, standby, 'shared')
    const [writer, reader] = [await join(url), await join(url)]
    await standby.pause()
    const first = outcome(writer.ledger.admit(numbered(1)))
    await until(async () => {
      const waiting = "SELECT 1 FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
      return (await primary.query(waiting)).length > 0
    })
    await primary.kill()
    await primary.restart()
    const inLog = `postgres://gateway@127.0.0.1:${primary.port}/shared`
    expect(await candidatesIn(inLog)).toBe(1)
    const told = [first, outcome(reader.ledger.admit(numbered(1)))]
    for (const status of await Promise.all(told)) expect([500, 503]).toContain(status)
    expect([500, 503]).toContain(await outcome(reader.ledger.admit(numbered(1))))
    await primary.kill()
    standby.resume()
    await standby.promote()
    for (const { ledger, log } of [reader, writer]) {
      await until(async () => [200, 202].includes(await outcome(ledger.admit(numbered(1)))))
      expect(log.failed).toBeUndefined()
      expect(await identitiesIn(log)).toEqual(identities(1, 1))
    }
  })

  test('a standby that is named first is read by nobody', async () => {
    const { primary, standby } = await replicated(false)
    const other = await join(primary.url('shared'))
    await standby.caughtUp()
    const [opened] = await Promise.allSettled([join(either(standby, primary, 'shared'))])
    if (opened?.status !== 'fulfilled') return expect.fail(String(opened?.reason))
    const gateway = opened.value
    await standby.pause()
    expect(await outcome(other.ledger.admit(numbered(1)))).toBe(202)
    expect(await outcome(gateway.log.catchUp().then(() => gateway.ledger.admit(numbered(1))))).toBe(
      200,
    )
    standby.resume()
  })

  test('25006: a connection that outlives a failover is given up, for writing and reading', async () => {
    const { primary, standby } = await replicated(false)
    const gateway = await join(either(primary, standby, 'shared'))
    expect(await outcome(gateway.ledger.admit(numbered(1)))).toBe(202)
    await standby.caughtUp()
    await primary.query('ALTER SYSTEM SET default_transaction_read_only = on')
    await primary.query('SELECT pg_reload_conf()')
    await standby.promote()
    await until(async () => [200, 202].includes(await outcome(gateway.ledger.admit(numbered(2)))))
    const other = await join(standby.url('shared'))
    expect(await outcome(other.ledger.admit(numbered(3)))).toBe(202)
    await until(() => gateway.log.applied === other.log.applied)
    expect(await outcome(gateway.ledger.admit(numbered(3)))).toBe(200)
    expect(await identitiesIn(other.log)).toEqual(identities(1, 3))
  })
})

describeWith([18], 'a version whose tables have one more form', () => {
  test('design §7: it changes them under load, those before go on and join, until it forbids that', async () => {
    const server = later(await startPostgres())
    const url = await server.createDatabase()
    const [old, other] = [await join(url), await join(url)]
    let isOver = false
    const told: number[] = []
    const load = (async () => {
      for (let n = 1; !isOver; n++)
        told.push(await outcome((n % 2 ? old : other).ledger.admit(numbered(n))))
    })()
    const admin = await join(url)
    for (const change of [
      'ALTER TABLE proposer.record ADD COLUMN note text',
      'ALTER TABLE proposer.head ADD COLUMN next int NOT NULL DEFAULT 0',
      "INSERT INTO proposer.migration (id, name) VALUES (2, 'of the next version')",
    ]) {
      const before = told.length
      await admin.log.ask(change)
      await until(() => told.length > before + 20)
    }
    const late = await join(url)
    isOver = true
    await load
    expect(new Set(told)).toEqual(new Set([202]))
    expect(await identitiesIn(late.log)).toEqual(identities(1, told.length))
    await admin.log.ask('UPDATE proposer.head SET min_reader = 2')
    await expect(join(url)).rejects.toMatchObject({ code: 'store_too_new' })
    await admin.log.ask(
      `INSERT INTO proposer.record (n, grp, k, t, d)
       SELECT n + 1, gen_random_uuid(), 'of.tomorrow', 0, '{}' FROM proposer.head`,
    )
    await admin.log.ask('UPDATE proposer.head SET n = n + 1')
    for (const each of [old, other, late]) {
      await until(() => each.log.failed !== undefined)
      expect(await outcome(each.ledger.admit(numbered(100_000)))).toBe(503)
    }
  })
})

describeWith([18], 'the server dies', () => {
  test('R1: killed under load, and every acknowledged row is there', async () => {
    const server = later(await startPostgres())
    const gateways = await joinTwo(await server.createDatabase())
    const acknowledged = await underKills(server, gateways, 3)
    expect(acknowledged).toBeGreaterThan(50)
  })

  // The disk of the records alone: where that of the server's own log is full it dies.
  test('its disk is full: 503 and nothing is written, and it goes on once there is room', async ({
    skip,
  }) => {
    const folder = mkdtempSync(path(tmpdir(), 'proposer-full-'))
    const mounted = spawnSync('mount', [
      ...argvOf`-t tmpfs -o size=24m,uid=${account.uid ?? 0},gid=${account.gid ?? 0}`,
      ...['none', folder],
    ])
    closing.push(async () => {
      spawnSync('umount', ['-l', folder])
      rmSync(folder, { recursive: true, force: true })
    })
    if (mounted.status !== 0) skip(`left out: no small disk (${mounted.stderr})`)
    const server = later(await startPostgres())
    const url = await server.createDatabase('full')
    const gateway = await join(url)
    await server.query(`CREATE TABLESPACE small OWNER gateway LOCATION '${folder}'`)
    const admin = await join(url)
    await admin.log.ask('ALTER TABLE proposer.record SET TABLESPACE small')
    const filler = await join(url)
    await filler.log.ask('CREATE TABLE filler (text text) TABLESPACE small')
    await filler.log.ask('ALTER TABLE filler ALTER COLUMN text SET STORAGE PLAIN')
    expect(await outcome(gateway.ledger.admit(numbered(1)))).toBe(202)
    await until(() =>
      filler.log
        .ask("INSERT INTO filler SELECT repeat('x', 7000) FROM generate_series(1, 100)")
        .then(
          () => false,
          () => true,
        ),
    )
    const told: number[] = []
    for (let n = 2; n <= 200 && told.at(-1) !== 503; n++)
      told.push(await outcome(gateway.ledger.admit(numbered(n))))
    expect(new Set(told.slice(0, -1))).toEqual(new Set(told.length > 1 ? [202] : []))
    expect(told.at(-1)).toBe(503)
    await filler.log.ask('DROP TABLE filler')
    await server.query('CHECKPOINT')
    const last = told.length + 1
    expect(await outcome(gateway.ledger.admit(numbered(last)))).toBe(202)
    expect(await identitiesIn(gateway.log)).toEqual(identities(1, last))
  })
})

async function joinTwo(url: string): Promise<readonly JoinedLedger[]> {
  return [await join(url), await join(url)]
}
