import { execFileSync } from 'node:child_process'
import { mkdir, readdir, rename, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { pathOf } from './components.js'
import { temporaryFolder } from './folders.js'

export const softHsm = ['softhsm2-util', 'libsofthsm2.so', 'pkcs11-tool', 'pkcs11js'] as const

export const pin = '73914-canary-pin'

export type TestTokens = Awaited<ReturnType<typeof testTokens>>

export interface KeyOptions {
  readonly id?: string
  readonly type?: string
  readonly extractable?: boolean
}

export async function testTokens(userPin = pin) {
  const module = pathOf('libsofthsm2.so')
  const folder = temporaryFolder()
  const tokens = join(folder, 'tokens')
  const outside = join(folder, 'outside')
  const conf = join(folder, 'softhsm2.conf')
  await mkdir(tokens)
  await mkdir(outside)
  const move = async (from: string, to: string) => {
    for (const name of await readdir(from)) await rename(join(from, name), join(to, name))
  }
  await writeFile(conf, `directories.tokendir = ${tokens}\nobjectstore.backend = file\n`)
  const pinFile = join(folder, 'pin')
  await writeFile(pinFile, `${userPin}\n`, { mode: 0o600 })
  const env = { SOFTHSM2_CONF: conf }
  const before = process.env.SOFTHSM2_CONF
  process.env.SOFTHSM2_CONF = conf
  const run = (program: string, args: readonly string[]) =>
    execFileSync(program, args, {
      env: { ...process.env, ...env },
      encoding: 'utf8',
      stdio: ['ignore', 'pipe', 'pipe'],
    })
  const tool = (token: string, ...args: readonly string[]) =>
    run('pkcs11-tool', [
      ...['--module', module, '--token-label', token, '--login', '--pin', userPin],
      ...args,
    ])
  return {
    ...{ folder, module, env, pinFile, tool },
    token(label: string) {
      const so = ['--so-pin', '00000000', '--pin', userPin]
      run('softhsm2-util', ['--init-token', '--free', '--label', label, ...so])
    },
    key(
      token: string,
      label: string,
      { id = '01', type = 'EC:secp256k1', extractable = false }: KeyOptions = {},
    ) {
      const kind = ['--keypairgen', '--key-type', type, '--label', label, '--id', id]
      tool(token, ...kind, extractable ? '--extractable' : '--sensitive')
    },
    away: () => move(tokens, outside),
    back: () => move(outside, tokens),
    async remove() {
      if (before === undefined) delete process.env.SOFTHSM2_CONF
      else process.env.SOFTHSM2_CONF = before
    },
  }
}

export function modulePid(parent: number | undefined): number {
  const lines = execFileSync('ps', ['-A', '-o', 'pid=,ppid=,args='], { encoding: 'utf8' })
  const form = new RegExp(`^ *(\\d+) +${parent} .*bin/pkcs11\\.js`, 'gm')
  const pids = [...lines.matchAll(form)].map(([, pid]) => Number(pid))
  if (pids.length === 0) throw new Error(`process ${parent} has no process of a module`)
  return Math.max(...pids)
}

export function isRunning(pid: number): boolean {
  try {
    return process.kill(pid, 0)
  } catch {
    return false
  }
}
