/** The servers that other tests stand on, themselves; the proxy has a file of its own. */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { createInterface } from 'node:readline'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { build } from 'esbuild'
import pg from 'pg'
import { afterEach, expect, test } from 'vitest'
import { describeWith } from '../support/components.js'
import { processesIn, until } from '../support/postgres/folders.js'
import { startPgbouncer } from '../support/postgres/pgbouncer.js'
import { startPostgres } from '../support/postgres/server.js'
import { startStandby } from '../support/postgres/standby.js'

const started: (() => Promise<unknown>)[] = []
const closing = <T extends { close(): Promise<void> }>(one: T): T => {
  started.push(one.close)
  return one
}
async function connected(config: pg.ClientConfig): Promise<pg.Client> {
  const client = new pg.Client(config)
  client.on('error', () => undefined)
  await client.connect()
  started.push(() => client.end())
  return client
}
afterEach(async () => {
  for (const end of started.splice(0).reverse()) await end()
})

for (const version of [18, 15] as const)
  describeWith([version], `a server of PostgreSQL ${version}`, () => {
    test('what was acknowledged is there after a SIGKILL, on the same port', async () => {
      const server = closing(await startPostgres({ version }))
      const [row] = await server.query<{ server_version: string }>('SHOW server_version')
      expect(row?.server_version).toMatch(new RegExp(`^${version}\\.`))
      await server.query('CREATE TABLE kept (n int)')
      await server.query('INSERT INTO kept SELECT generate_series(1, 100)')
      await server.kill()
      expect(processesIn(server.dataFolder)).toEqual([])
      await expect(server.query('SELECT')).rejects.toThrow('ECONNREFUSED')
      await server.restart()
      const count = 'SELECT count(*)::int FROM kept'
      expect(await server.query(count)).toEqual([{ count: 100 }])
    })

    test('a standby follows, refuses to write, and takes over once its primary is gone', async () => {
      const primary = closing(await startPostgres({ version }))
      await primary.query('CREATE TABLE kept (n int)')
      const standby = closing(await startStandby(primary, { synchronous: false }))
      await primary.query('INSERT INTO kept VALUES (1)')
      await standby.caughtUp()
      expect(await standby.query('SELECT n FROM kept')).toEqual([{ n: 1 }])
      await expect(standby.query('DELETE FROM kept')).rejects.toMatchObject({ code: '25006' })
      await primary.kill()
      await standby.promote()
      await standby.query('INSERT INTO kept VALUES (2)')
      expect(await standby.query('SELECT n FROM kept')).toEqual([{ n: 1 }, { n: 2 }])
    })
  })

describeWith([18], 'a server', () => {
  test('settings and databases are those of the test', async () => {
    const server = closing(await startPostgres({ settings: { max_connections: '7' } }))
    expect(await server.query('SHOW max_connections')).toEqual([{ max_connections: '7' }])
    const first = await connected({ connectionString: await server.createDatabase() })
    const named = await connected({ connectionString: await server.createDatabase('it’s "mine"') })
    const name = 'SELECT current_database() AS name'
    expect((await first.query(name)).rows).toEqual([{ name: 'database_1' }])
    expect((await named.query(name)).rows).toEqual([{ name: 'it’s "mine"' }])
  })

  test('a server that does not start says what its log says, and leaves nothing', async () => {
    await expect(startPostgres({ settings: { no_such: 'on' } })).rejects.toThrow(/"no_such"/)
  })

  test.each(['fast', 'immediate'] as const)('stop %s', async (mode) => {
    const server = closing(await startPostgres())
    await server.stop(mode)
    expect(server.log()).toContain(`received ${mode} shutdown request`)
    await server.restart()
    expect(server.log().includes('not properly shut down')).toBe(mode === 'immediate')
  })

  test('paused it answers nobody, and resumed it does what it was asked meanwhile', async () => {
    const server = closing(await startPostgres())
    await server.query('CREATE TABLE kept (n int)')
    const client = await connected({ connectionString: server.adminUrl(), query_timeout: 500 })
    await server.pause()
    await expect(client.query('INSERT INTO kept VALUES (1)')).rejects.toThrow('timeout')
    server.resume()
    await until(async () => {
      const rows = await server.query('SELECT FROM kept')
      return rows.length === 1
    }, 'the row never comes')
  })

  test('COMMIT waits for a synchronous standby that stands still', async () => {
    const primary = closing(await startPostgres())
    const standby = closing(await startStandby(primary, { synchronous: true, name: 'other' }))
    await primary.query('CREATE TABLE kept (n int)')
    const client = await connected({ connectionString: primary.adminUrl(), query_timeout: 500 })
    await standby.pause()
    await expect(client.query('INSERT INTO kept VALUES (1)')).rejects.toThrow('timeout')
    expect(await primary.query('SELECT FROM kept')).toEqual([])
    standby.resume()
    await primary.query('INSERT INTO kept VALUES (2)')
    await primary.kill()
    await standby.promote()
    expect(await standby.query('SELECT n FROM kept')).toEqual([{ n: 1 }, { n: 2 }])
  })

  test('a test process that is killed leaves no server and no folder', async () => {
    const support = fileURLToPath(new URL('../support/postgres/server.ts', import.meta.url))
    const folder = await mkdtemp(join(tmpdir(), 'proposer-e2e-'))
    started.push(() => rm(folder, { recursive: true }))
    const program = join(folder, 'starts-a-server.cjs')
    await build({
      stdin: {
        contents: `import { startPostgres } from './server.js'
          startPostgres().then((server) => server.pause().then(() => console.log(server.dataFolder)))`,
        resolveDir: dirname(support),
      },
      bundle: true,
      platform: 'node',
      external: ['pg-native'],
      define: { 'import.meta.url': JSON.stringify(pathToFileURL(support).href) },
      outfile: program,
      logLevel: 'silent',
    })
    const child = spawn(process.execPath, [program], { stdio: ['ignore', 'pipe', 'inherit'] })
    const lines = createInterface({ input: child.stdout })
    const [data]: string[] = await once(lines, 'line')
    if (data === undefined) throw new Error('it named no folder')
    expect(processesIn(data)).not.toEqual([])
    child.kill('SIGKILL')
    await until(() => !existsSync(dirname(data)), 'the folder is still there')
    expect(processesIn(data)).toEqual([])
  })
})

describeWith([18, 'pgbouncer'], 'a pooler', () => {
  test('in transaction mode clients take turns on one connection', async () => {
    const server = closing(await startPostgres())
    const pooler = closing(
      await startPgbouncer(server.url(), {
        mode: 'transaction',
        settings: { default_pool_size: '1' },
      }),
    )
    const clients = [
      await connected({ connectionString: pooler.url }),
      await connected({ connectionString: pooler.url }),
    ]
    const pids = new Set()
    for (const client of clients)
      pids.add((await client.query('SELECT pg_backend_pid() AS pid')).rows[0].pid)
    expect(pids.size).toBe(1)
  })
})
