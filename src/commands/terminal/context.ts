/**
 * What a command may touch. `createContext` is the only place that reads the environment and the
 * streams and builds real edges.
 */
import { homedir } from 'node:os'
import { systemClock, systemHash, systemRandom } from '../../core/io/clock.js'
import { systemFiles } from '../../core/io/files.js'
import { type Ending, listenForEnd } from '../../core/io/interruption.js'
import { systemLiveness } from '../../core/io/liveness.js'
import type { RpcOptions } from '../../core/io/rpc/rpc.js'
import type { Chain, Clock, Fetch, Files, Hash, Liveness, Random } from '../../core/ports.js'
import { defaultHome } from '../session/paths.js'
import type { Preferences } from '../session/preferences.js'
import { createOutput, type Output, type TextSink } from './output.js'

export type InputStream = NodeJS.ReadableStream & {
  readonly isTTY?: boolean
  setRawMode?(on: boolean): unknown
}

/** What the configuration says of a chain: its id, and how old its newest block may be. */
export type ExpectedChain = Pick<RpcOptions, 'expectedChainId' | 'maxHeadAgeSeconds'>

export interface Context {
  /** The environment without private keys, so that it may be handed to a child. */
  readonly env: Readonly<Record<string, string | undefined>>
  readonly cwd: string
  readonly stdin: InputStream
  /** stdin and stderr are terminals: only then may anything prompt (contract §6). */
  readonly isInteractive: boolean
  readonly streams: { readonly stdout: TextSink; readonly stderr: TextSink }
  readonly output: Output
  /**
   * The platform's data folder for this program, used where neither --home nor PROPOSER_HOME names
   * another.
   */
  readonly defaultHome: string
  /** PROPOSER_PRIVATE_KEY, gone from the process's environment since the start (robustness §6). */
  readonly environmentKey: string | undefined
  readonly clock: Clock
  readonly random: Random
  readonly hash: Hash
  readonly files: Files
  readonly liveness: Liveness
  /**
   * Aborted by SIGINT, SIGTERM, SIGHUP or the loss of the terminal; `reason` is an
   * InterruptedError.
   */
  readonly signal: AbortSignal
  /** Says how this run takes the end from now on; only a process of its own has it. */
  endAs?(ending: Ending): void
  /**
   * Called by name after each durable step of the executor. Only tests give one, to stop the
   * process there (R23).
   */
  readonly failpoint?: (name: string) => Promise<void>
  /** Real edges, built on demand, so that a command loads only what it uses. */
  readonly edges: {
    /** HTTP client to one gateway (robustness §6). */
    fetch(): Promise<Fetch>
    /**
     * JSON-RPC to one chain; several URLs fail over, and nodes that are not on the expected chain
     * are not believed (R16).
     */
    chain(rpcUrls: readonly string[], expected?: ExpectedChain): Promise<Chain>
    /** The user's configuration, `<home>/config.json`. */
    preferences(home: string): Promise<Preferences>
  }
  /** Closes what the edges opened. */
  close(): Promise<void>
}

/**
 * The real context of this process. Takes PROPOSER_PRIVATE_KEY out of the environment and listens
 * for what ends it.
 */
export function createContext(process: NodeJS.Process): Context {
  const environmentKey = process.env.PROPOSER_PRIVATE_KEY
  delete process.env.PROPOSER_PRIVATE_KEY
  keepSecretsOutOfReports(process)
  const closers: (() => Promise<void>)[] = []
  const closedLater = <T extends { close(): Promise<void> }>(edge: T): T => {
    closers.push(() => edge.close())
    return edge
  }
  const { stdin, stdout, stderr } = process
  const streams = { stdout, stderr }
  return {
    env: process.env,
    cwd: process.cwd(),
    stdin,
    isInteractive: stderr.isTTY === true && stdin.isTTY === true,
    streams,
    output: createOutput({ ...streams, env: process.env, mode: 'human', quiet: false }),
    defaultHome: defaultHome(process.platform, process.env, homedir()),
    environmentKey,
    clock: systemClock,
    random: systemRandom,
    hash: systemHash,
    files: systemFiles,
    liveness: systemLiveness(),
    ...listenForEnd(process),
    edges: {
      fetch: async () => {
        const { createHttp } = await import('../../core/io/http.js')
        return closedLater(createHttp()).fetch
      },
      chain: async (rpcUrls, expected) =>
        closedLater((await import('../../core/io/rpc/rpc.js')).createChain(rpcUrls, expected)),
      preferences: async (home) =>
        (await import('../session/preferences.js')).openPreferences(home),
    },
    async close() {
      for (const close of closers.splice(0)) await close()
    },
  }
}

/** A diagnostic report holds the environment and the heap's strings (R5). */
function keepSecretsOutOfReports(process: NodeJS.Process): void {
  process.report.reportOnFatalError = false
  process.report.reportOnSignal = false
  process.report.reportOnUncaughtException = false
}
