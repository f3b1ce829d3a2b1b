import { spawn } from 'node:child_process'

/** Ctrl-C at a terminal reaches us alone, and a drain still has its program. */
const watcherSource = `
const { spawn } = require('node:child_process')
const { rmSync, writeSync } = require('node:fs')
const [given, program, ...args] = process.argv.slice(1)
const { cwd, account, end: signal, folder } = JSON.parse(given)
const child = spawn(program, args, { cwd, ...account, stdio: ['ignore', 'inherit', 'inherit'] })
const end = () => child.kill(signal)
const leave = (code) => {
  if (folder) rmSync(folder, { recursive: true, force: true, maxRetries: 3 })
  process.exit(code)
}
child.on('error', (error) => { writeSync(2, 'cannot run: ' + error.message + '\\n'); leave(1) })
child.on('exit', (code) => leave(code === null ? 1 : code))
if (child.pid !== undefined) writeSync(1, 'process ' + child.pid + '\\n')
for (const name of ['SIGTERM', 'SIGINT', 'SIGHUP']) process.on(name, end)
process.stdin.on('end', end).on('close', end).on('error', end).resume()
`

interface OwnedOptions {
  readonly cwd: string
  readonly env: Readonly<Record<string, string | undefined>>
  readonly end: 'SIGKILL' | 'SIGQUIT'
  readonly folder?: string
  readonly account?: { readonly uid?: number; readonly gid?: number }
}

export interface OwnedProcess {
  readonly watcherPid: number | undefined
  output(): string
  said(pattern: RegExp, withinMs: number): Promise<RegExpExecArray | undefined>
  readonly ended: Promise<void>
  stop(): Promise<void>
}

const keptBytes = 8_192

export const pidLine = /^process (\d+)$/m

export function startOwned(
  program: string,
  args: readonly string[],
  { env, ...options }: OwnedOptions,
): OwnedProcess {
  const watcher = spawn(
    process.execPath,
    ['-e', watcherSource, '--', JSON.stringify(options), program, ...args],
    { detached: true, windowsHide: true, stdio: ['pipe', 'pipe', 'pipe'], env },
  )
  let output = ''
  const listeners = new Set<() => void>()
  const ended = new Promise<void>((resolve) => {
    watcher.once('error', () => resolve())
    watcher.once('close', () => resolve())
  })
  watcher.stdin.on('error', () => undefined)
  const read = (chunk: Buffer) => {
    output = (output + chunk.toString()).slice(-keptBytes)
    for (const listener of listeners) listener()
  }
  watcher.stdout.on('data', read)
  watcher.stderr.on('data', read)
  return {
    watcherPid: watcher.pid,
    output: () => output,
    said: (pattern, withinMs) =>
      new Promise((resolve) => {
        const look = () => {
          const found = pattern.exec(output)
          if (found === null) return
          listeners.delete(look)
          resolve(found)
        }
        listeners.add(look)
        look()
        void ended.then(() => resolve(undefined))
        setTimeout(() => resolve(undefined), withinMs).unref()
      }),
    ended,
    async stop() {
      watcher.stdin.end()
      await ended
    },
  }
}
