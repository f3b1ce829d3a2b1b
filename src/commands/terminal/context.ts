/** What a command may touch. Only `createContext` reads the environment and the streams. */

import { homedir, userInfo } from 'node:os'
import { blockingFiles } from '#io/files'
import { defaultHome } from '#io/home'
import { type Ending, listenForEnd } from '#io/interruption'
import type { Preferences } from '#io/preferences'
import { systemEdges, systemPorts } from '#io/system'
import type { Fetch, Ports } from '#ports'
import { createOutput, type Output, type TextSink } from './output.js'

export type InputStream = NodeJS.ReadableStream & {
  readonly isTTY?: boolean
}

export interface Context extends Ports {
  readonly stdin: InputStream
  /** stdin and stderr are terminals: only then may anything prompt (contract §6). */
  readonly isInteractive: boolean
  readonly streams: { readonly stdout: TextSink; readonly stderr: TextSink }
  readonly output: Output
  /** The environment without private keys, so that it may be handed to a child. */
  readonly env: Readonly<Record<string, string | undefined>>
  readonly cwd: string
  readonly defaultHome: string
  /** PROPOSER_PRIVATE_KEY, gone from the environment since the start (robustness §6). */
  readonly environmentKey: string | undefined
  readonly user?: string | undefined
  readonly storeUrlFile?: string | undefined
  endAs?(ending: Ending): void
  readonly edges: Ports['edges'] & {
    preferences(home: string): Promise<Preferences>
  }
  runVerb(argv: readonly string[], context: Context): Promise<void>
  pasted?(text: string): string
  /** With -v: tells what goes over it. For what is not one of the edges. */
  traced?(fetch: Fetch): Fetch
  close(): Promise<void>
}

export function createContext(process: NodeJS.Process): Context {
  const environmentKey = process.env.PROPOSER_PRIVATE_KEY
  delete process.env.PROPOSER_PRIVATE_KEY
  keepSecretsOutOfReports(process)
  const { stdin, stdout, stderr, env } = process
  const { edges, close } = systemEdges()
  return {
    env,
    cwd: process.cwd(),
    stdin,
    isInteractive: stderr.isTTY === true && stdin.isTTY === true,
    streams: { stdout, stderr },
    output: createOutput({ stdout, stderr, env, mode: 'human', quiet: false }),
    defaultHome: defaultHome(process.platform, env, homedir()),
    environmentKey,
    user: userName(),
    storeUrlFile: env.PROPOSER_STORE_URL_FILE || undefined,
    ...systemPorts(),
    // A gateway answers while its disk works; any other command only waits for it.
    ...(!process.argv.includes('serve') && { files: blockingFiles }),
    ...listenForEnd(process),
    edges: {
      ...edges,
      preferences: async (home) => (await import('#io/preferences')).openPreferences(home),
    },
    runVerb: () => Promise.reject(new Error('there is no front')),
    close,
  }
}

/** In a container the user may have a number and no name. */
function userName() {
  try {
    return userInfo().username
  } catch {
    return `uid ${process.getuid?.() ?? 'unknown'}`
  }
}

/** A diagnostic report holds the environment and the heap's strings (R5). */
function keepSecretsOutOfReports(process: NodeJS.Process) {
  process.report.reportOnFatalError = false
  process.report.reportOnSignal = false
  process.report.reportOnUncaughtException = false
}
