/**
 * Real PostgreSQL servers for tests, each on a data folder of its own, with the defaults of its
 * version but for what a test sets. What a test does not close ends with its process. The superuser,
 * who could run programs, connects by a socket in a folder of mode 0700 alone; others by loopback.
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, renameSync } from 'node:fs'
import { dirname, join } from 'node:path'
import pg from 'pg'
import { freePort } from '../processes.js'
import {
  inAccount,
  kept,
  onDisk,
  type PostgresVersion,
  programOf,
  runInAccount,
  temporary,
  writeInAccount,
} from './binaries.js'
import {
  killProcesses,
  makeFolder,
  processesIn,
  removeFolder,
  signalAll,
  stopProcesses,
} from './folders.js'

export type Settings = Readonly<Record<string, string>>

export interface PostgresServer {
  readonly version: PostgresVersion
  readonly settings: Settings
  readonly port: number
  readonly dataFolder: string
  url(database?: string): string
  adminUrl(database?: string): string
  createDatabase(name?: string): Promise<string>
  query<Row extends pg.QueryResultRow>(text: string, values?: readonly unknown[]): Promise<Row[]>
  stop(mode?: 'fast' | 'immediate'): Promise<void>
  kill(): Promise<void>
  restart(): Promise<void>
  pause(): Promise<void>
  resume(): void
  log(): string
  close(): Promise<void>
}

export interface StartPostgresOptions {
  readonly version?: PostgresVersion
  readonly settings?: Settings
  readonly isOnDisk?: boolean
}

function versionAsked(): PostgresVersion {
  const asked = process.env.PROPOSER_TEST_POSTGRES_VERSION ?? '18'
  if (asked !== '18' && asked !== '15')
    throw new RangeError(`PROPOSER_TEST_POSTGRES_VERSION is ${asked}; tests know 18 and 15`)
  return asked === '18' ? 18 : 15
}

export async function startPostgres(options: StartPostgresOptions = {}): Promise<PostgresServer> {
  const version = options.version ?? versionAsked()
  const template = await templateOf(version)
  const fill = (data: string) => runInAccount('cp', ['-a', template, data])
  const server = await serve(
    version,
    options.settings ?? {},
    fill,
    options.isOnDisk ? onDisk : temporary,
  )
  await server.query('CREATE ROLE gateway LOGIN')
  await server.query('GRANT pg_read_all_stats TO gateway')
  await server.query('ALTER DATABASE postgres OWNER TO gateway')
  return server
}

export async function serve(
  version: PostgresVersion,
  settings: Settings,
  fill: (data: string) => Promise<unknown>,
  inside = temporary,
): Promise<PostgresServer> {
  const { program } = programOf(version)
  const folder = makeFolder(inside)
  const data = join(folder, 'data')
  let port = await freePort()
  let child: ChildProcess | undefined
  let log = ''

  async function start(): Promise<void> {
    const all = {
      ...defaults,
      port: String(port),
      unix_socket_directories: folder,
      ...settings,
    }
    const flags = Object.entries(all).flatMap(([name, value]) => ['-c', `${name}=${value}`])
    child = spawn(program, ['-D', data, ...flags], {
      ...inAccount,
      cwd: folder,
      detached: true,
      stdio: ['ignore', 'ignore', 'pipe'],
    })
    const from = log.length
    let late: NodeJS.Timeout | undefined
    await new Promise<void>((resolve, reject) => {
      const fail = (what: string) => reject(new Error(`PostgreSQL ${what}: ${log.slice(from)}`))
      late = setTimeout(fail, startWithinMs, 'is not ready')
      child?.once('error', reject)
      child?.once('close', () => fail('has ended'))
      child?.stderr?.setEncoding('utf8').on('data', (text: string) => {
        log += text
        if (/ready to accept (read-only )?connections/.test(log.slice(from))) resolve()
      })
    }).finally(() => clearTimeout(late))
  }
  async function ended(): Promise<void> {
    if (child !== undefined && child.exitCode === null && child.signalCode === null)
      await once(child, 'exit')
    child = undefined
  }
  const resume = () => signalAll(processesIn(folder), 'SIGCONT')
  async function stop(mode: 'fast' | 'immediate' = 'fast'): Promise<void> {
    resume()
    child?.kill(mode === 'fast' ? 'SIGINT' : 'SIGQUIT')
    await ended()
  }
  async function kill(): Promise<void> {
    await killProcesses(folder)
    await ended()
  }
  const url = (database = 'postgres') => `postgres://gateway@127.0.0.1:${port}/${database}`
  const adminUrl = (database = 'postgres') =>
    `postgres://postgres@${encodeURIComponent(folder)}:${port}/${database}`
  async function query<Row extends pg.QueryResultRow>(
    text: string,
    values: readonly unknown[] = [],
  ): Promise<Row[]> {
    const client = new pg.Client(adminUrl())
    await client.connect()
    try {
      return (await client.query<Row>(text, [...values])).rows
    } finally {
      await client.end()
    }
  }

  try {
    await fill(data)
    for (let tries = 5; ; tries--)
      try {
        await start()
        break
      } catch (error) {
        if (tries === 0 || !/could not bind/.test(String(error))) throw error
        port = await freePort()
      }
  } catch (error) {
    await kill()
    removeFolder(folder)
    throw error
  }
  let databases = 0
  return {
    version,
    settings,
    port,
    dataFolder: data,
    url,
    adminUrl,
    query,
    stop,
    kill,
    async createDatabase(name = `database_${++databases}`) {
      await query(`CREATE DATABASE ${pg.escapeIdentifier(name)} OWNER gateway`)
      return url(name)
    },
    async restart() {
      await stop()
      await start()
    },
    pause: () => stopProcesses(folder),
    resume,
    log: () => log,
    async close() {
      await stop('immediate')
      await kill()
      removeFolder(folder)
    },
  }
}

const startWithinMs = 60_000

const defaults: Settings = {
  listen_addresses: '127.0.0.1',
  dynamic_shared_memory_type: 'mmap',
  shared_buffers: '32MB',
  // No test cuts the power: what a killed server has written, the system still has.
  fsync: 'off',
  // What a standby needs that was away for a moment.
  wal_keep_size: '128MB',
  max_wal_size: '256MB',
}

const accessRules = `local all all trust
local replication all trust
host all postgres 127.0.0.1/32 reject
host all all 127.0.0.1/32 trust
`

async function templateOf(version: PostgresVersion): Promise<string> {
  const { program, version: full } = programOf(version)
  const template = join(kept(), `cluster-${full}`)
  if (existsSync(template)) return template
  const folder = makeFolder(kept())
  const fresh = join(folder, 'data')
  try {
    await runInAccount(join(dirname(program), 'initdb'), [
      ...['--pgdata', fresh, '--username=postgres', '--auth=trust'],
      ...['--locale=C', '--encoding=UTF8', '--no-sync', '--no-instructions'],
    ])
    writeInAccount(join(fresh, 'pg_hba.conf'), accessRules)
    renameSync(fresh, template)
  } catch (error) {
    if (!existsSync(template)) throw error
  } finally {
    removeFolder(folder)
  }
  return template
}
