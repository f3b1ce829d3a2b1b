import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { Readable } from 'node:stream'
import { main } from '#commands/main'
import type { Context } from '#commands/terminal/context'
import { createOutput, type TextSink } from '#commands/terminal/output'
import { openPreferences } from '#io/preferences'
import { systemEdges, systemPorts } from '#io/system'
import type { Chain, Clock, Fetch } from '#ports'
import { temporaryFolder } from './folders.js'

export interface Sink extends TextSink {
  readonly written: string[]
}

export interface RunOptions {
  readonly env?: Readonly<Record<string, string>>
  readonly stdin?: string
  readonly fetch?: Fetch
  readonly chain?: Chain
  /** Sockets as the program has them. */
  readonly network?: true
  readonly clock?: Clock
  readonly environmentKey?: string
  readonly signal?: AbortSignal
  readonly interactive?: boolean
  readonly columns?: number
  readonly cwd?: string
}

export interface Ran {
  readonly code: number
  readonly stdout: string
  readonly stderr: string
}

/** A home for each test; the path is that of the one that runs. */
export function eachHome() {
  const home = { path: '' }
  beforeEach(() => {
    home.path = temporaryFolder()
  })
  return home
}

export function writeTrust(home: string, trust: object): void {
  mkdirSync(join(home, 'trust'), { recursive: true })
  writeFileSync(join(home, 'trust', 'default.json'), JSON.stringify(trust))
}

export function proposerHome(trust: object, key: `0x${string}`): string {
  const home = temporaryFolder()
  writeTrust(home, trust)
  writeFileSync(join(home, 'key'), `${key}\n`, { mode: 0o600 })
  return home
}

function sink(isTTY: boolean, columns: number): Sink {
  const written: string[] = []
  return { written, isTTY, columns, write: (text) => written.push(text) }
}

export const noFetch: Fetch = async () => {
  throw new Error('no network in this test')
}

export function fakeContext(
  home: string,
  options: RunOptions = {},
): { context: Context; stdout: Sink; stderr: Sink } {
  const stdout = sink(options.columns !== undefined, options.columns ?? 80)
  const stderr = sink(options.interactive === true, options.columns ?? 80)
  const env: Record<string, string> = { PROPOSER_HOME: home, NO_COLOR: '1', ...options.env }
  const { edges, close } = systemEdges()
  const context: Context = {
    env,
    cwd: options.cwd ?? home,
    stdin: Object.assign(Readable.from(options.stdin === undefined ? [] : [options.stdin]), {
      isTTY: options.interactive === true,
    }),
    isInteractive: options.interactive === true,
    streams: { stdout, stderr },
    output: createOutput({ stdout, stderr, env, mode: 'human', quiet: false }),
    defaultHome: home,
    environmentKey: options.environmentKey,
    storeUrlFile: env.PROPOSER_STORE_URL_FILE,
    ...systemPorts(),
    ...(options.clock && { clock: options.clock }),
    signal: options.signal ?? new AbortController().signal,
    edges: {
      ...edges,
      ...(options.network !== true && {
        fetch: async () => options.fetch ?? noFetch,
        chain: async () => {
          if (!options.chain) throw new Error('no chain in this test')
          return options.chain
        },
      }),
      preferences: async (folder) => openPreferences(folder),
    },
    runVerb: () => Promise.reject(new Error('there is no front')),
    close,
  }
  return { context, stdout, stderr }
}

/** The words of a command line; in a text blanks part them. */
export type Argv = string | readonly string[]
export const wordsOf = (argv: Argv): readonly string[] =>
  typeof argv === 'string' ? argv.split(' ') : argv

export async function run(home: string, argv: Argv, options: RunOptions = {}): Promise<Ran> {
  const { context, stdout, stderr } = fakeContext(home, options)
  const code = await main(wordsOf(argv), context)
  return { code, stdout: stdout.written.join(''), stderr: stderr.written.join('') }
}

/** Of a run that tells its failure and nothing else. */
export const errorOf = ({ stderr }: Pick<Ran, 'stderr'>): Record<string, unknown> =>
  JSON.parse(stderr).error
/** Of a run that has told other things before. */
export const lastErrorOf = ({ stderr }: Pick<Ran, 'stderr'>): Record<string, unknown> =>
  JSON.parse(stderr.trim().split('\n').at(-1) ?? '').error
export const answerOf = (ran: Ran): Record<string, unknown> => {
  expect(ran.stderr).toBe('')
  expect(ran.code).toBe(0)
  return JSON.parse(ran.stdout)
}
