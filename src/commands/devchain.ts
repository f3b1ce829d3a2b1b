/**
 * `devchain`: the dev chain alone, in the foreground until it is told to end, and verbs that
 * act on a running one (contract §6, §8).
 */
import { Command } from 'commander'
import type { DevDescription } from '../core/devchain/dev-chain.js'
import { fromCwd } from '../core/io/home-paths.js'
import { aborted, endsAsServer } from '../core/io/interruption.js'
import { ChainError } from '../core/ports.js'
import { UnavailableError, UsageError } from '../core/protocol/errors.js'
import { plainIdentifier } from '../core/protocol/market-url.js'
import { lifeVerbs } from './devchain/life-verbs.js'
import { questionVerbs } from './devchain/question-verbs.js'
import { identifier, type Verb, type VerbFlags } from './devchain/verb.js'
import {
  noteQuestions,
  oracleOption,
  portNumber,
  unlessStopped,
  wholeNumber,
} from './hosting/foreground.js'
import { type GlobalFlags, resolveSettings } from './session/settings.js'
import type { Context } from './terminal/context.js'
import { type DryRunFlag, dryRunOption, showDryRun } from './terminal/dry-run.js'
import { publicUrl, visible } from './terminal/render.js'
import { asStandIn } from './terminal/verb.js'

export const devchainCommand = (context: Context): Command => {
  const devchain = new Command('devchain')
    .description(
      'run a development chain with contracts, funded accounts and open questions, or control a running one',
    )
    .addCommand(asStandIn(startCommand(context)), { isDefault: true })
    .addHelpText(
      'after',
      '\nExamples:\n  proposer devchain --write ./dev\n  proposer serve --config ./dev/gateway.json\n  proposer devchain dispute will-it-rain-in-porto-on-friday --rpc-url http://127.0.0.1:8545',
    )
  for (const verb of [...questionVerbs, ...lifeVerbs])
    devchain.addCommand(verbCommand(context, verb))
  for (const one of devchain.commands) one.option(...dryRunOption)
  return devchain
}

interface StartFlags {
  readonly port: string
  readonly questions: string
  readonly chainId: string
  readonly oracle?: string
  readonly write?: string
}

const startCommand = (context: Context) =>
  new Command('start')
    .description('run a chain until SIGINT, SIGTERM or SIGHUP')
    .option('--port <number>', 'port to listen on; 0 picks a free port', '8545')
    .option('--questions <number>', 'number of example questions', '12')
    .option('--chain-id <number>', 'chain id', '31337')
    .addOption(oracleOption())
    .option(
      '--write <folder>',
      'write gateway.json, trust.json, questions.json and key files to this folder',
    )
    .addHelpText('after', '\nExample:\n  proposer devchain start --port 0 --write ./dev --json')
    .action(async ({ port, questions, chainId, oracle, write }: StartFlags, command: Command) => {
      const options = {
        port: portNumber('--port', port),
        questions: wholeNumber('--questions', questions, 0, 10_000),
        chainId: wholeNumber('--chain-id', chainId, 1, Number.MAX_SAFE_INTEGER),
        ...(oracle !== undefined && { oracle }),
      }
      const folder = write === undefined ? undefined : fromCwd(context.cwd, write)
      const flags = command.optsWithGlobals<GlobalFlags & DryRunFlag>()
      if (folder !== undefined && flags.yes !== true) await refuseFolderInUse(context, folder)
      if (flags.dryRun === true) {
        const would = `start a chain on port ${port}${folder === undefined ? '' : ` and write its files to ${folder}`}`
        return showDryRun(context, would, { ...options, folder: folder ?? null })
      }
      // A folder that cannot be made is found out before a chain is started for it.
      if (folder !== undefined) await context.files.makeDir(folder)
      context.endAs?.(endsAsServer)
      const { startDevChain } = await import('../core/devchain/dev-chain.js')
      const { writeDevFolder } = await import('../core/devchain/dev-folder.js')
      const chain = await tracing(context, () => startDevChain(options)).catch(
        unlessStopped(context.signal),
      )
      if (chain === undefined) return
      try {
        if (folder !== undefined) {
          const names = await writeDevFolder(folder, chain.description)
          context.output.note(`wrote ${names.join(', ')} to ${visible(folder)}`)
        }
        announce(context, chain.description, folder)
        const ended = await Promise.race([
          aborted(context.signal),
          chain.ended.then(() => 'chain' as const),
        ])
        if (ended === 'chain') {
          throw new UnavailableError(
            'dev_chain_ended',
            'the chain process exited unexpectedly',
            'start it again with `proposer devchain`',
          )
        }
      } finally {
        await chain.stop()
      }
    })

/** With -v the calls to the dev chain are told, too. */
async function tracing<T>({ traced }: Context, run: () => Promise<T>): Promise<T> {
  if (traced === undefined) return run()
  const { devFetch } = await import('../core/devchain/dev-contracts.js')
  return devFetch.run(traced(fetch), run)
}

/**
 * Whoever uses a folder whose chain is running would find other contracts' keys and pins in it.
 * Throws UsageError `folder_in_use`. A gateway.json of another shape names no node.
 */
async function refuseFolderInUse(context: Context, folder: string): Promise<void> {
  const path = `${folder}/gateway.json`
  if (!(await context.files.exists(path))) return
  for (const url of rpcUrlsIn(new TextDecoder().decode(await context.files.read(path)))) {
    if (!(await answers(context, url))) continue
    throw new UsageError(
      'folder_in_use',
      `${visible(path)} names a node that is running: ${publicUrl(url)}`,
      'stop that chain, give another folder, or add --yes to overwrite its files',
    )
  }
}

function rpcUrlsIn(text: string): readonly string[] {
  try {
    const { chain } = JSON.parse(text) as { chain?: { rpc_urls?: unknown } }
    const urls: readonly unknown[] = Array.isArray(chain?.rpc_urls) ? chain.rpc_urls : []
    return urls.filter((url): url is string => typeof url === 'string' && URL.canParse(url))
  } catch {
    // Not JSON, or JSON of nothing: no gateway runs from it.
    return []
  }
}

async function answers(context: Context, url: string): Promise<boolean> {
  try {
    await (await context.edges.chain([url])).chainId()
    return true
  } catch (error) {
    if (!(error instanceof ChainError)) throw error
    // Any other kind of error is an answer too.
    return error.kind !== 'unavailable'
  }
}

function announce(context: Context, dev: DevDescription, folder: string | undefined): void {
  const { output } = context
  const pid = context.liveness.pid
  if (output.mode !== 'human') {
    output.line({ schema: 'proposer.ready/1', event: 'ready', pid, dev })
    return
  }
  output.text(
    `ready ${dev.rpc_url} (chain ${dev.chain_id}, questions: ${dev.questions.length}, pid ${pid})\n`,
  )
  noteQuestions(output, dev.questions, ', all with --json')
  if (folder === undefined)
    output.note('with --write <folder> it makes the files that `proposer serve --config` needs')
  else output.note(`next: proposer serve --config ${visible(folder)}/gateway.json`)
}

function verbCommand(context: Context, verb: Verb): Command {
  const command = new Command(verb.name).description(verb.description)
  for (const argument of verb.arguments) command.argument(...argument)
  for (const option of verb.options ?? []) command.option(...option)
  if (verb.required) command.requiredOption(...verb.required)
  const example = ['proposer devchain', verb.name, verb.example].filter(Boolean).join(' ')
  return command
    .addHelpText('after', `\nExample:\n  ${example} --rpc-url http://127.0.0.1:8545`)
    .action(async () => {
      const given = command.processedArgs.filter((one) => one !== undefined) as string[]
      const operands = given.map((one, at) =>
        verb.arguments[at] === identifier || verb.name === 'ask' ? plainIdentifier(one) : one,
      )
      const flags = command.optsWithGlobals<VerbFlags & GlobalFlags & DryRunFlag>()
      const act = verb.run(operands, flags, context)
      const { rpcUrl } = await resolveSettings(context, flags)
      if (rpcUrl === undefined)
        throw new UsageError(
          'no_rpc_url',
          'no dev chain configured',
          'give the --rpc-url of the ready line of `proposer devchain`',
        )
      if (flags.dryRun !== true) {
        const [before, after] = await Promise.all([
          import('../core/devchain/dev-verbs.js'),
          import('../core/devchain/dev-life.js'),
        ])
        return tracing(context, () => act({ ...before, ...after }, rpcUrl.value))
      }
      const node = publicUrl(rpcUrl.value)
      const shown = [...operands, ...(verb.more?.(flags) ?? [])]
      const would = [verb.name, ...shown, 'at', node].join(' ')
      showDryRun(context, would, { act: verb.name, operands: shown, node })
    })
}
