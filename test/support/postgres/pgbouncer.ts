import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { freePort } from '../processes.js'
import { inAccount, programOf } from './binaries.js'
import { killProcesses, makeFolder, removeFolder } from './folders.js'

export interface StartPgbouncerOptions {
  readonly mode: 'transaction' | 'session' | 'statement'
  readonly settings?: Readonly<Record<string, string>>
}

export async function startPgbouncer(target: string, options: StartPgbouncerOptions) {
  const { program } = programOf('pgbouncer')
  const { hostname, port: targetPort, username } = new URL(target)
  const folder = makeFolder()
  const port = await freePort()
  const settings = {
    listen_addr: '127.0.0.1',
    listen_port: String(port),
    unix_socket_dir: '',
    auth_type: 'any',
    pool_mode: options.mode,
    ...options.settings,
  }
  const file = join(folder, 'pgbouncer.ini')
  writeFileSync(
    file,
    [
      '[databases]',
      `* = host=${hostname} port=${targetPort} user=${username}`,
      '[pgbouncer]',
      ...Object.entries(settings).map(([name, value]) => `${name} = ${value}`),
      '',
    ].join('\n'),
  )
  let log = ''
  const child: ChildProcess = spawn(program, [file], {
    ...inAccount,
    cwd: folder,
    detached: true,
    stdio: ['ignore', 'ignore', 'pipe'],
  })
  const close = async () => {
    await killProcesses(folder)
    if (child.exitCode === null && child.signalCode === null) await once(child, 'exit')
    removeFolder(folder)
  }
  try {
    await new Promise<void>((resolve, reject) => {
      child.once('error', reject)
      child.once('close', () => reject(new Error(`pgbouncer has ended: ${log}`)))
      child.stderr?.setEncoding('utf8').on('data', (text: string) => {
        log += text
        if (/process up/.test(log)) resolve()
      })
    })
  } catch (error) {
    await close()
    throw error
  }
  const url = new URL(target)
  url.hostname = '127.0.0.1'
  url.port = String(port)
  return { port, url: url.href, log: () => log, close }
}
