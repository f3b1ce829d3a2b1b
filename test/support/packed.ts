import { execFile } from 'node:child_process'
import { cp, mkdir, symlink, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { promisify } from 'node:util'
import { argvOf } from './argv.js'

const root = join(import.meta.dirname, '../..')
const runs = promisify(execFile)

export type Packed = Awaited<ReturnType<typeof pack>>

function npmEnv(): NodeJS.ProcessEnv {
  const kept = Object.entries(process.env).filter(
    ([name]) =>
      !/^(npm_(package|lifecycle|config_local_prefix|command|execpath)|INIT_CWD)/.test(name),
  )
  return { ...Object.fromEntries(kept), NO_COLOR: '1' }
}

async function npm(args: readonly string[], cwd: string, timeoutMs: number): Promise<string> {
  const { stdout } = await runs('npm', [...args], {
    cwd,
    env: npmEnv(),
    timeout: timeoutMs,
    maxBuffer: 1 << 26,
  })
  return stdout
}

export async function pack(folder: string) {
  const copy = join(folder, 'copy')
  const left = new Set(
    ['node_modules', 'dist', '.git', 'test', 'coverage'].map((name) => join(root, name)),
  )
  await cp(root, copy, { recursive: true, filter: (source) => !left.has(source) })
  await symlink(join(root, 'node_modules'), join(copy, 'node_modules'))
  const [told] = JSON.parse(
    await npm(argvOf`pack --json --pack-destination ${folder}`, copy, 60_000),
  ) as [{ filename: string; size: number; files: { path: string; size: number }[] }]
  return { path: join(folder, told.filename), size: told.size, files: told.files }
}

const isOffline = (error: unknown) =>
  error instanceof Error &&
  /\b(ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|ETIMEDOUT|ENOTCACHED|ENETUNREACH|E50\d)\b/.test(
    error.message,
  )

/**
 * Installs the tarball in an empty folder, with the optional packages or without. Where no registry answers, a notice on stderr says so,
 * and it is unpacked beside the packages that this project has.
 */
export async function install(
  { path }: Packed,
  folder: string,
  { optional = true } = {},
): Promise<void> {
  await writeFile(join(folder, 'package.json'), JSON.stringify({ private: true, type: 'module' }))
  try {
    await npm(
      [
        'install',
        '--prefix',
        folder,
        '--prefer-offline',
        '--no-audit',
        '--no-fund',
        ...(optional ? [] : ['--omit=optional']),
        path,
      ],
      folder,
      120_000,
    )
  } catch (error) {
    if (!isOffline(error)) throw error
    process.stderr.write(
      'no registry answers: the tarball is unpacked beside the packages of this project\n',
    )
    await unpack(path, folder, optional ? optionalPackages : [])
  }
}

export async function installGlobally({ path }: Packed, prefix: string): Promise<boolean> {
  try {
    await npm(
      argvOf`install --global --prefix ${prefix} --prefer-offline --omit=optional --no-audit
        ${path}`,
      prefix,
      120_000,
    )
    return true
  } catch (error) {
    if (!isOffline(error)) throw error
    process.stderr.write('no registry answers: the global installation is left out\n')
    return false
  }
}

const optionalPackages = ['@foundry-rs', 'pkcs11js', 'secp256k1']

async function unpack(path: string, folder: string, more: readonly string[]): Promise<void> {
  const modules = join(folder, 'node_modules')
  await mkdir(join(modules, 'proposer'), { recursive: true })
  await mkdir(join(modules, '.bin'))
  await runs('tar', ['-xzf', path, '--strip-components=1', '-C', join(modules, 'proposer')])
  await symlink(join('..', 'proposer', 'bin', 'proposer.js'), join(modules, '.bin', 'proposer'))
  for (const name of ['zod', ...more])
    await symlink(join(root, 'node_modules', name), join(modules, name))
}

export async function newestNode(
  folder: string,
): Promise<{ readonly path: string } | { readonly missing: string }> {
  try {
    const said = await npm(
      argvOf`exec --yes --package node@latest -- node -p process.execPath`,
      folder,
      120_000,
    )
    const path = said.trim().split('\n').at(-1) ?? ''
    return dirname(path) === dirname(process.execPath)
      ? { missing: 'npm gave the one that is here' }
      : { path }
  } catch (error) {
    return {
      missing: error instanceof Error ? (error.message.split('\n')[0] ?? '') : String(error),
    }
  }
}
