import { type ChildProcess, spawn } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import type { DevDescription } from '#devchain/dev-chain'
import { unwatchAnswers, watchAnswers } from './answers-seen.js'
import { argvOf } from './argv.js'
import type { Ran } from './cli.js'
import { temporaryFolder } from './folders.js'

const root = join(import.meta.dirname, '../..')
const bin = join(root, 'bin', 'proposer.js')
const mortal = join(root, 'test', 'support', 'failpoint-child.js')
const answersWriter = join(root, 'test', 'support', 'answers-child.js')

export interface Ended {
  readonly code: number | null
  readonly signal: NodeJS.Signals | null
  readonly stdout: string
  readonly stderr: string
}

export interface Running {
  readonly child: ChildProcess
  line<T = Record<string, unknown>>(): Promise<T>
  stderr(): string
  said(pattern: RegExp): Promise<void>
  readonly ended: Promise<Ended>
  stop(signal?: NodeJS.Signals): Promise<Ended>
}

export interface StartOptions {
  readonly env?: Readonly<Record<string, string>>
  readonly cwd?: string
  readonly stdin?: string | { readonly open: true }
  readonly under?: readonly string[]
  /**
   * `false`: what it serves is not held against the OpenAPI document; for runs of thousands of
   * calls.
   */
  readonly judged?: false
}

/** What it has started ends with the tests around it. */
export interface Workshop {
  folder(): Promise<string>
  start(args: readonly string[], options?: StartOptions): Running
  run(args: readonly string[], options?: StartOptions): Promise<Ended>
  /** `devchain`, and the folder that it has written. */
  devChain(
    questions: number,
  ): Promise<{ readonly chain: Running; readonly dev: DevDescription; readonly folder: string }>
  /**
   * In this process, for what output and exit code alone tell: the start of a process takes longer
   * than most commands.
   */
  runHere(
    args: readonly string[],
    env: Readonly<Record<string, string>>,
    stdin?: string,
  ): Promise<Ran>
  clean(): Promise<void>
}

export function workshop(): Workshop {
  const running = new Set<Running>()
  let answers: string | undefined
  const answersFile = () => {
    if (answers !== undefined) return answers
    answers = join(temporaryFolder(), 'answers.ndjson')
    writeFileSync(answers, '')
    watchAnswers(answers)
    return answers
  }
  const start: Workshop['start'] = (args, options = {}) => {
    const program = options.env?.FAILPOINT === undefined ? bin : mortal
    const isWatched = (args[0] === 'serve' || args[0] === 'demo') && options.judged !== false
    const command = [
      ...(options.under ?? []),
      process.execPath,
      ...(isWatched ? ['--import', answersWriter] : []),
      program,
      ...args,
    ]
    const child = spawn(command[0] ?? process.execPath, command.slice(1), {
      cwd: options.cwd ?? root,
      env: {
        PATH: process.env.PATH ?? '',
        TMPDIR: tmpdir(),
        NO_COLOR: '1',
        ...(process.env.PROPOSER_DEV_ORACLE === undefined
          ? {}
          : { PROPOSER_DEV_ORACLE: process.env.PROPOSER_DEV_ORACLE }),
        ...(isWatched ? { ANSWERS_FILE: answersFile() } : {}),
        ...options.env,
      },
      stdio: ['pipe', 'pipe', 'pipe'],
    })
    const process_ = follow(child)
    running.add(process_)
    void process_.ended.then(() => running.delete(process_))
    child.stdin?.on('error', (error: NodeJS.ErrnoException) => {
      if (error.code !== 'EPIPE') throw error
    })
    if (typeof options.stdin !== 'object') child.stdin?.end(options.stdin ?? '')
    return process_
  }
  const folder = async () => temporaryFolder()
  const clean = async () => {
    await Promise.all([...running].map((one) => one.stop('SIGTERM')))
    if (answers !== undefined) await unwatchAnswers(answers)
    answers = undefined
  }
  afterAll(clean)
  return {
    folder,
    start,
    run: (args, options) => start(args, options).ended,
    async devChain(questions) {
      const written = join(await folder(), 'dev')
      const chain = start(
        argvOf`devchain --port 0 --questions ${questions} --write ${written} --json`,
      )
      const { dev } = await chain.line<{ dev: DevDescription }>()
      return { chain, dev, folder: written }
    },
    async runHere(args, { PROPOSER_PRIVATE_KEY: environmentKey, ...env }, stdin) {
      const { run } = await import('./cli.js')
      const home = env.PROPOSER_HOME ?? (await folder())
      return run(home, args, {
        env,
        ...(stdin !== undefined && { stdin }),
        ...(environmentKey !== undefined && { environmentKey }),
        cwd: root,
        network: true,
      })
    },
    clean,
  }
}

function follow(child: ChildProcess): Running {
  let stdout = ''
  let stderr = ''
  const lines: string[] = []
  const waiting: { take: (line: string) => void; fail: (error: Error) => void }[] = []
  const listening: { pattern: RegExp; hear: () => void; fail: (error: Error) => void }[] = []
  if (child.stdout === null || child.stderr === null) throw new Error('the process has no pipes')
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    stdout += text
  })
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    stderr += text
    for (const one of listening.splice(0)) {
      if (one.pattern.test(stderr)) one.hear()
      else listening.push(one)
    }
  })
  createInterface({ input: child.stdout }).on('line', (line) => {
    const next = waiting.shift()
    if (next) next.take(line)
    else lines.push(line)
  })
  let over: Ended | undefined
  const ended = new Promise<Ended>((resolve, reject) => {
    child.once('error', reject)
    child.once('close', (code, signal) => {
      over = { code, signal, stdout, stderr }
      const early = new Error(
        `the process ended (${code ?? signal}) too early: ${stderr.slice(-2000)}`,
      )
      for (const { fail } of [...waiting.splice(0), ...listening.splice(0)]) fail(early)
      resolve(over)
    })
  })
  return {
    child,
    stderr: () => stderr,
    ended,
    async line<T>() {
      const line =
        lines.shift() ??
        (await new Promise<string>((take, fail) => {
          if (over)
            fail(
              new Error(
                `the process has ended (${over.code ?? over.signal}): ${stderr.slice(-2000)}`,
              ),
            )
          else waiting.push({ take, fail })
        }))
      return JSON.parse(line) as T
    },
    said: (pattern) =>
      new Promise((hear, fail) => {
        if (pattern.test(stderr)) hear()
        else if (over)
          fail(new Error(`the process ended and never said ${pattern}: ${stderr.slice(-2000)}`))
        else listening.push({ pattern, hear, fail })
      }),
    async stop(signal = 'SIGTERM') {
      child.kill(signal)
      return ended
    },
  }
}

/**
 * A port where nobody listens, below those that the system gives to outgoing connections: a server
 * that was killed finds it free again.
 */
export async function freePort(): Promise<number> {
  for (;;) {
    const port = 10_000 + Math.floor(Math.random() * 22_000)
    const server = createServer()
    const isFree = await new Promise<boolean>((resolve) => {
      server.once('error', () => resolve(false))
      server.listen(port, '127.0.0.1', () => server.close(() => resolve(true)))
    })
    if (isFree) return port
  }
}
