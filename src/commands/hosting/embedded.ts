/**
 * A whole gateway in a program of somebody else, without a listener: what the library calls
 * `openGateway`.
 */
import { homedir } from 'node:os'
import { Readable } from 'node:stream'
import { systemClock, systemHash, systemRandom } from '../../core/io/clock.js'
import { systemFiles } from '../../core/io/files.js'
import { createHttp } from '../../core/io/http.js'
import { systemLiveness } from '../../core/io/liveness.js'
import { createChain } from '../../core/io/rpc/rpc.js'
import type { Peer, RequestRecord } from '../../core/protocol/call.js'
import { defaultHome } from '../session/paths.js'
import type { Context } from '../terminal/context.js'
import { createOutput } from '../terminal/output.js'
import { type HostedGateway, loadConfig, openGateway as openHosted } from './gateway-host.js'

export interface EmbeddedOptions {
  /**
   * Folder with the keystores, for an executor that is named by `executor.account`; default: the
   * platform's data folder.
   */
  readonly home?: string
  /** The password of that keystore, in a file of mode 0600. */
  readonly executorPasswordFile?: string
  /** Told of each call that was answered. */
  readonly onRequest?: (record: RequestRecord) => void
  /** Told why nothing can start yet, once per reason: a new store waits for a node. */
  readonly onWait?: (reason: string) => void
  /** Ends the wait for a node. */
  readonly signal?: AbortSignal
}

export interface EmbeddedGateway {
  /**
   * Answers one call. `peer` says whose budget it is charged to; all without one are one client.
   * Never rejects.
   */
  handle(request: Request, peer?: Peer): Promise<Response>
  /** Why it is not ready; empty when it is (`/readyz`). */
  readiness(): readonly string[]
  /**
   * Resolves with the reason when the store can no longer be written: close it and let the process
   * end. Never otherwise.
   */
  readonly broken: Promise<Error>
  /** Answers what is in flight for up to ten seconds, stops, and lets the store go. */
  close(): Promise<void>
}

/**
 * Takes the lock of the store that a gateway.json names and runs the gateway behind it: admission,
 * pipeline and executor (contract §7). No variable of ours is read and nothing is printed; the
 * executor's key comes from `executor.key_file` or `executor.account`. Rejects with UsageError (a
 * fault of the configuration, named) or StorageError (`store_locked` names who holds the store).
 */
export async function openGateway(
  configFile: string,
  options: EmbeddedOptions = {},
): Promise<EmbeddedGateway> {
  const { executorPasswordFile, onRequest, onWait } = options
  const { context, close } = silentContext(options)
  let hosted: HostedGateway | undefined
  try {
    const opened = await openHosted(context, await loadConfig(context, configFile), {
      home: context.defaultHome,
      executorPasswordFile,
      ...(onRequest === undefined ? {} : { onRequest }),
      ...(onWait === undefined ? {} : { onWait }),
    })
    hosted = opened
    await opened.setUse({ role: 'a program with a gateway in it' })
    return {
      handle: opened.gateway.handle,
      readiness: opened.gateway.readiness,
      broken: opened.broken,
      async close() {
        await opened.close()
        await close()
      },
    }
  } catch (error) {
    await hosted?.close()
    await close()
    throw error
  }
}

/** A context with no variables and no flags, that prints nothing and asks nobody. */
function silentContext({ home, signal }: EmbeddedOptions): {
  readonly context: Context
  close(): Promise<void>
} {
  const closers: (() => Promise<void>)[] = []
  const closedLater = <T extends { close(): Promise<void> }>(edge: T): T => {
    closers.push(() => edge.close())
    return edge
  }
  const close = async () => {
    for (const one of closers.splice(0)) await one()
  }
  const nowhere = { write: () => true }
  const context: Context = {
    env: {},
    cwd: process.cwd(),
    stdin: Readable.from([]),
    isInteractive: false,
    streams: { stdout: nowhere, stderr: nowhere },
    output: createOutput({ stdout: nowhere, stderr: nowhere, env: {}, mode: 'json', quiet: true }),
    defaultHome: home ?? defaultHome(process.platform, process.env, homedir()),
    environmentKey: undefined,
    clock: systemClock,
    random: systemRandom,
    hash: systemHash,
    files: systemFiles,
    liveness: systemLiveness(),
    signal: signal ?? new AbortController().signal,
    edges: {
      fetch: async () => closedLater(createHttp()).fetch,
      chain: async (urls, expected) => closedLater(createChain(urls, expected)),
      preferences: async () => {
        throw new Error('a gateway has no preferences')
      },
    },
    close,
  }
  return { context, close }
}
