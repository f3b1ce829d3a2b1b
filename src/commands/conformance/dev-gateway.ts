/**
 * A gateway with a chain of its own, for one run of the checks. Both are gone after it, with their
 * folder.
 */
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { configure } from '../../core/host/config-file.js'
import { createClosers } from '../../core/io/closers.js'
import { UnavailableError, UsageError } from '../../core/protocol/errors.js'
import { programVersion } from '../../core/protocol/version.js'
import { unlessStopped } from '../hosting/foreground.js'
import type { Context } from '../terminal/context.js'
import { visible } from '../terminal/render.js'
import { type ReadyLine, readyOf } from './dev-ready.js'

/** A whole run fits windows of seconds: the default ones would be waited for. */
const assignments = ['budget.per_ip_items=450', 'budget.window_seconds=4']

/**
 * Calls `work` once the gateway is ready, with what its ready line would say and a home folder for
 * what is signed. Rejects with what `work`, chain or gateway reject with; UnavailableError
 * `dev_chain_ended`.
 */
export async function withDevGateway(
  context: Context,
  work: (ready: ReadyLine, home: string) => Promise<void>,
): Promise<void> {
  // The store that the environment names is not one for a chain that is thrown away.
  const machine = { ...context, storeUrlFile: undefined }
  const { output, signal } = context
  const closers = createClosers()
  const progress = output.progress('starting a chain and a gateway')
  try {
    const folder = await mkdtemp(join(tmpdir(), 'proposer-conformance-'))
    closers.add(() => rm(folder, { recursive: true, force: true }))
    const { startDevChain } = await import('../../core/devchain/dev-chain.js')
    const { writeDevFolder } = await import('../../core/devchain/dev-folder.js')
    const { startServer } = await import('../../core/host/server.js')
    const chain = await startDevChain({}).catch(unlessStopped(signal))
    if (chain === undefined) throw signal.reason
    closers.add(chain.stop)
    await writeDevFolder(folder, chain.description)
    const changes = { assignments, host: undefined, port: 0 }
    const loaded = await configure(machine, join(folder, 'gateway.json'), changes)
    const server = await startServer(machine, loaded, {
      executorKey: { home: folder, password: noPassword },
      version: programVersion,
      onNote: (text) => output.note(visible(text)),
      onWarning: (code, detail) => output.warning(code, detail),
    })
    closers.add(server.close)
    await server.ready()
    progress.stop()
    const ended = chain.ended.then(() => {
      throw new UnavailableError('dev_chain_ended', 'the dev chain exited unexpectedly', {
        hint: 'run `proposer conformance --dev` again',
      })
    })
    // Both end with the run, and nobody asks them then.
    ended.catch(() => undefined)
    const ready = readyOf({ event: 'ready', url: server.url, dev: chain.description })
    await Promise.race([work(ready, join(folder, 'home')), server.failed, ended])
  } finally {
    progress.stop()
    await closers.close()
  }
}

/** The key of a dev chain's executor is a file without a password. */
function noPassword(): Promise<string> {
  throw new UsageError('password_needed', 'a dev gateway has no keystore', {
    hint: 'omit --executor-account',
  })
}
