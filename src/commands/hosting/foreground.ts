/** What `serve`, `devchain` and `demo` share: they stay in the foreground until told to end. */

import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { DevChain, DevChainOptions, DevDescription } from '#devchain/dev-chain'
import { writeDevFolder } from '#devchain/dev-folder'
import { configure } from '#host/config-file'
import { type Closers, createClosers } from '#io/closers'
import { UnavailableError } from '#protocol/errors'
import { programVersion } from '#protocol/version'
import type { Context } from '../terminal/context.js'
import type { Output } from '../terminal/output.js'
import { fold, visible } from '../terminal/render.js'

/** A signal to the whole terminal may reach the chain's watcher before it has its own session. */
async function startChain({ signal }: Context, options: DevChainOptions) {
  const { startDevChain } = await import('#devchain/dev-chain')
  return startDevChain(options).catch((error: unknown) => {
    throw signal.aborted ? signal.reason : error
  })
}

/** `undefined` where the run was told to end meanwhile. */
export const startingChain = (context: Context, options: DevChainOptions) =>
  context.output
    .during('starting a chain, its contracts and accounts', () => startChain(context, options))
    .catch((error: unknown) => {
      if (!context.signal.aborted) throw error
      return undefined
    })

export const chainEnded = (hint: string) =>
  new UnavailableError('dev_chain_ended', 'the dev chain exited unexpectedly', hint)

/** The first three; `rest` stands behind the count of the others. */
export function noteQuestions(
  output: Output,
  questions: readonly { slug: string; question_id: string }[],
  rest = '',
) {
  for (const { slug, question_id } of questions.slice(0, 3)) {
    const line = `  ${visible(slug)}  ${question_id}`
    output.note(line.length <= output.columns ? line : `  ${visible(slug)}\n    ${question_id}`)
  }
  if (questions.length > 3) output.note(`  and ${questions.length - 3} more${rest}`)
}

export const tellReady = (output: Output, text: string) =>
  output.text(`${output.isTerminal ? fold(text, output.columns, '  ') : text}\n`)

export const devVariables = (
  folder: string,
  gateway: string,
  dev: { readonly rpc_url: string },
) => ({
  PROPOSER_HOME: `${folder}/home`,
  PROPOSER_TRUST: `${folder}/trust.json`,
  PROPOSER_KEY_FILE: `${folder}/proposer-1.key`,
  PROPOSER_GATEWAY: gateway,
  PROPOSER_RPC_URL: dev.rpc_url,
})

export interface DevGateway {
  readonly url: string
  readonly dev: DevDescription
  readonly folder: string
}

export type RunStep = <T>(
  name: string,
  work: () => Promise<T>,
  detail: (value: T) => string,
) => Promise<T>

interface DevOptions {
  readonly verb: string
  readonly chain?: DevChainOptions
  readonly assignments?: readonly string[]
  readonly step?: RunStep
  onNote(text: string): void
}

export async function withDevFolder(
  verb: string,
  start: () => Promise<DevChain | undefined>,
  work: (folder: string, chain: DevChain, closers: Closers) => Promise<void>,
) {
  const closers = createClosers()
  try {
    const folder = await mkdtemp(join(tmpdir(), `proposer-${verb}-`))
    closers.add(() => rm(folder, { recursive: true, force: true }))
    const chain = await start()
    if (chain === undefined) return
    closers.add(chain.stop)
    await writeDevFolder(folder, chain.description)
    await work(folder, chain, closers)
  } finally {
    await closers.close()
  }
}

export async function withDevGateway(
  context: Context,
  { verb, chain: options = {}, assignments = [], step = (_, work) => work(), onNote }: DevOptions,
  work: (gateway: DevGateway) => Promise<void>,
) {
  // The store that the environment names is not one for a chain that is thrown away.
  const machine = { ...context, storeUrlFile: undefined }
  const start = () =>
    step(
      'chain',
      () => startChain(context, options),
      ({ description }) =>
        `a throwaway chain with contracts, funded accounts and ${description.questions.length} open questions`,
    )
  await withDevFolder(verb, start, async (folder, chain, closers) => {
    const server = await step(
      'gateway',
      async () => {
        const { startServer } = await import('#host/server')
        const changes = { assignments, port: 0 }
        const loaded = await configure(machine, join(folder, 'gateway.json'), changes)
        const opened = await startServer(machine, loaded, {
          executorKey: { home: folder, password: async () => '' },
          version: programVersion,
          onNote,
          onWarning: (code, detail) => context.output.warning(code, detail),
        })
        closers.add(opened.close)
        await opened.ready()
        return opened
      },
      ({ url }) => `listens on ${url}, its store on disk`,
    )
    const ended = chain.ended.then(() => {
      throw chainEnded(`run \`proposer ${verb}\` again`)
    })
    // Both end with the run, and nobody asks them then.
    ended.catch(() => undefined)
    const gateway = { url: server.url, dev: chain.description, folder }
    await Promise.race([work(gateway), server.failed, ended])
  })
}
