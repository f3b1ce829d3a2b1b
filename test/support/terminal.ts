/**
 * A built command on a terminal of its own, which the test types on and takes away. `script` of
 * util-linux makes the terminal.
 */
import { spawn, spawnSync } from 'node:child_process'
import { watch } from 'node:fs'
import { readFile, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout } from 'node:timers/promises'
import { widthOf } from '#commands/terminal/render'
import { temporaryFolder } from './folders.js'

const root = join(import.meta.dirname, '../..')
const bin = join(root, 'bin', 'proposer.js')
const recorder = join(root, 'test', 'support', 'terminal-child.js')

export const hasTerminals =
  process.platform === 'linux' &&
  /util-linux/.test(spawnSync('script', ['--version'], { encoding: 'utf8' }).stdout)
if (!hasTerminals)
  process.stderr.write('No `script` of util-linux: tests that need a terminal are left out.\n')

export interface TerminalEnd {
  readonly code: number
  readonly text: string
  readonly memoryMiB: number | undefined
}

export interface Terminal {
  pid(): Promise<number>
  said(pattern: RegExp): Promise<void>
  screen(): string
  type(keys: string): void
  close(): void
  readonly ended: Promise<TerminalEnd>
}

export interface TerminalOptions {
  readonly columns?: number
  /** The shell in between keeps the hang-up to itself: the program learns of it by EIO alone. */
  readonly keepsHangUp?: boolean
  readonly ignoresHangUp?: boolean
}

const patienceMs = 10_000

const quoted = (word: string) => `'${word.replaceAll("'", "'\\''")}'`

const open = new Set<() => Promise<void>>()
afterAll(() => Promise.all([...open].map((end) => end())))

export async function onTerminal(
  args: readonly string[],
  env: Readonly<Record<string, string>>,
  { columns = 100, keepsHangUp = false, ignoresHangUp = false }: TerminalOptions = {},
): Promise<Terminal> {
  const folder = temporaryFolder()
  const command = [process.execPath, '--import', recorder, bin, ...args].map(quoted).join(' ')
  // A shell that outlives the terminal keeps the exit code. A program inherits `trap ''`, and not
  // `trap :`.
  const keeper = `trap : INT TERM\ntrap ${ignoresHangUp ? "''" : ':'} HUP\n${command}\necho $? > ${folder}/code.tmp\nmv ${folder}/code.tmp ${folder}/code\n`
  await writeFile(join(folder, 'keeper.sh'), keeper)
  const line = `trap : INT ${keepsHangUp ? 'HUP' : ''}; stty cols ${columns} rows 30; sh ${folder}/keeper.sh; true`
  const child = spawn('script', ['-qefc', line, '/dev/null'], {
    cwd: root,
    env: {
      PATH: process.env.PATH ?? '',
      TMPDIR: tmpdir(),
      SHELL: '/bin/sh',
      TERM: 'xterm',
      TERMINAL_RECORD: folder,
      ...env,
    },
    stdio: ['pipe', 'pipe', 'inherit'],
  })
  child.stdin.on('error', () => undefined)
  let text = ''
  let over = false
  const listening = new Set<() => void>()
  child.stdout.setEncoding('utf8').on('data', (chunk: string) => {
    text += chunk
    for (const look of listening) look()
  })
  const started = fileAppears(folder, 'pid').then(Number)
  started.catch(() => undefined)
  const drained = new Promise<void>((resolve) => child.once('close', () => resolve()))
  const ended = (async (): Promise<TerminalEnd> => {
    const code = Number(await fileAppears(folder, 'code'))
    await drained
    const memory = await readFile(join(folder, 'memory'), 'utf8').catch(() => undefined)
    over = true
    for (const look of listening) look()
    return { code, text, memoryMiB: memory === undefined ? undefined : Number(memory) / 1024 }
  })()
  const end = () => endBySignals(started, ended)
  open.add(end)
  void ended.then(
    () => open.delete(end),
    () => undefined,
  )
  return {
    ended,
    screen: () => text,
    pid: () => started,
    said: (pattern) =>
      new Promise((resolve, reject) => {
        const look = () => {
          if (pattern.test(text)) resolve()
          else if (over)
            reject(new Error(`the program ended and never said ${pattern}: ${text.slice(-2000)}`))
          else return
          listening.delete(look)
        }
        listening.add(look)
        look()
      }),
    type: (keys) => void child.stdin.write(keys),
    close: () => void child.kill('SIGKILL'),
  }
}

async function endBySignals(started: Promise<number>, ended: Promise<TerminalEnd>) {
  for (const signal of ['SIGTERM', 'SIGKILL'] as const) {
    const running = await Promise.race([ended.then(() => undefined), started])
    if (running === undefined) return
    try {
      process.kill(running, signal)
    } catch (error) {
      if (!(error instanceof Error && 'code' in error && error.code === 'ESRCH')) throw error
    }
    const patience = new AbortController()
    const late = setTimeout(patienceMs, undefined, { signal: patience.signal }).catch(() => {})
    await Promise.race([ended, late])
    patience.abort()
  }
  await ended
}

/** Frames of a spinner stand between the marks of a synchronized update. */
export const withoutFrames = (text: string): string =>
  text.replaceAll(/\u001b\[\?2026h.*?\u001b\[\?2026l/gs, '')

export const linesOn = (text: string): readonly string[] =>
  withoutFrames(text)
    .replaceAll(/\u001b\[[\d;?]*[A-Za-z]|\^C/g, '')
    .split(/\r\n|\r|\n/)
    .filter((line) => !/^[\u2801-\u28ff] /.test(line))

export const wordsOn = (text: string): string =>
  linesOn(text).join(' ').replaceAll(/\s+/g, ' ').trim()

export const tooWide = (text: string, columns: number): readonly string[] =>
  linesOn(text).filter(
    (line) =>
      widthOf(line) > columns && !/^\s*(\S+|`[^`]+`\S*|proposer .*|export .*|[<>] .*)$/.test(line),
  )

async function fileAppears(folder: string, name: string): Promise<string> {
  const path = join(folder, name)
  for (;;) {
    const seen = new Promise<void>((resolve) => {
      const watcher = watch(folder, () => {
        watcher.close()
        resolve()
      })
    })
    const text = await readFile(path, 'utf8').catch(() => undefined)
    if (text?.endsWith('\n') === true) return text
    await seen
  }
}
