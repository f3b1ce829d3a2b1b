/** The built command line as processes: what a test starts here it ends, also when it fails. */
import { type ChildProcess, spawn } from 'node:child_process'
import { mkdtempSync, writeFileSync } from 'node:fs'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { unwatchAnswers, watchAnswers } from './answers-seen.js'

const root = join(dirname(fileURLToPath(import.meta.url)), '..', '..')
const bin = join(root, 'bin', 'proposer.js')
/** The same program, to which happens what FAILPOINT names. */
const mortal = join(root, 'test', 'support', 'failpoint-child.js')
/** Loaded before either of them where it serves. */
const answersWriter = join(root, 'test', 'support', 'answers-child.js')

export interface Ended {
  readonly code: number | null
  readonly signal: NodeJS.Signals | null
  readonly stdout: string
  readonly stderr: string
}

export interface Running {
  readonly child: ChildProcess
  /**
   * The JSON lines on stdout, as they come. Rejects with the end of stderr where the process ends
   * first.
   */
  line<T = Record<string, unknown>>(): Promise<T>
  /** What stderr said so far. */
  stderr(): string
  /** Resolves once stderr matches; rejects where the process ends first. */
  said(pattern: RegExp): Promise<void>
  readonly ended: Promise<Ended>
  /** Sends the signal and waits for the end. */
  stop(signal?: NodeJS.Signals): Promise<Ended>
}

export interface StartOptions {
  readonly env?: Readonly<Record<string, string>>
  readonly cwd?: string
  /** Nothing unless given; `open`: it stays open until the test ends it. */
  readonly stdin?: string | { readonly open: true }
  /** Another program with its arguments, which runs ours: `strace …`, `sh -c …`. */
  readonly under?: readonly string[]
  /**
   * `false`: what it serves is not held against the OpenAPI document; for runs of thousands of
   * calls.
   */
  readonly judged?: false
}

/** Everything a test file starts and makes; `clean` ends and removes it. */
export interface Workshop {
  /** A folder of its own, removed at the end. */
  folder(): Promise<string>
  /** Starts the command; it inherits PATH and nothing else. */
  start(args: readonly string[], options?: StartOptions): Running
  /** Starts the command and waits for its end. */
  run(args: readonly string[], options?: StartOptions): Promise<Ended>
  clean(): Promise<void>
}

/** One workshop a test file; call `clean` in `afterAll`. */
export function workshop(): Workshop {
  const running = new Set<Running>()
  const folders: string[] = []
  /** The file for the answers of all servers of this workshop, once there is one. */
  let answers: string | undefined
  const answersFile = () => {
    if (answers !== undefined) return answers
    const folder = mkdtempSync(join(tmpdir(), 'proposer-answers-'))
    folders.push(folder)
    answers = join(folder, 'answers.ndjson')
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
        // A whole run on the other version of the oracle.
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
      // A program that reads no input may have ended before it was given any.
      if (error.code !== 'EPIPE') throw error
    })
    if (typeof options.stdin !== 'object') child.stdin?.end(options.stdin ?? '')
    return process_
  }
  return {
    async folder() {
      const path = await mkdtemp(join(tmpdir(), 'proposer-e2e-'))
      folders.push(path)
      return path
    },
    start,
    run: (args, options) => start(args, options).ended,
    async clean() {
      // SIGTERM first: a serve or devchain ends its own children by it.
      await Promise.all([...running].map((one) => one.stop('SIGTERM')))
      if (answers !== undefined) await unwatchAnswers(answers)
      for (const path of folders) await rm(path, { recursive: true, force: true })
    },
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
