/** A whole gateway in a program of somebody else, without a listener. */
import { homedir } from 'node:os'
import { opening } from '#io/closers'
import { defaultHome } from '#io/home'
import { readPasswordFile } from '#io/key-files'
import { systemEdges, systemPorts } from '#io/system'
import { UsageError } from '#protocol/errors'
import { loadConfig } from './config-file.js'
import { type HostedGateway, type HostOptions, openNoted } from './gateway-host.js'

export interface EmbeddedOptions extends Pick<HostOptions, 'onRequest' | 'onWait'> {
  /** With the keystores, for `executor.account`; default: the platform's data folder. */
  readonly home?: string
  /** Of that keystore, mode 0600. */
  readonly executorPasswordFile?: string
  /** Ends the wait for a node. */
  readonly signal?: AbortSignal
}

export interface EmbeddedGateway
  extends Pick<HostedGateway['gateway'], 'handle' | 'readiness'>,
    Pick<HostedGateway, 'broken' | 'close'> {}

/**
 * Takes the lock of the store that a gateway.json names and runs the gateway behind it (contract
 * §7). No variable of ours is read and nothing is printed. Rejects with UsageError (the
 * configuration) or StorageError (`store_locked` names who holds the store).
 */
export const openGateway = (
  configFile: string,
  { home, executorPasswordFile, signal, onRequest, onWait }: EmbeddedOptions = {},
): Promise<EmbeddedGateway> =>
  opening(async (closers) => {
    const { edges, close } = systemEdges()
    closers.add(close)
    const machine = {
      ...systemPorts(),
      edges,
      cwd: process.cwd(),
      signal: signal ?? new AbortController().signal,
    }
    const hosted = await openNoted(
      machine,
      await loadConfig(machine, configFile),
      {
        executorKey: {
          home: home ?? defaultHome(process.platform, process.env, homedir()),
          password: (name) => passwordOf(name, executorPasswordFile),
        },
        onRequest,
        onWait,
      },
      'a program with a gateway in it',
    )
    closers.add(hosted.close)
    const { handle, readiness } = hosted.gateway
    return { handle, readiness, broken: hosted.broken, close: closers.close }
  })

async function passwordOf(name: string, file: string | undefined) {
  if (file !== undefined) return readPasswordFile(file)
  throw new UsageError(
    'password_needed',
    `Password of the executor ${name} is required, and there is no terminal to prompt on`,
    'give executorPasswordFile',
  )
}
