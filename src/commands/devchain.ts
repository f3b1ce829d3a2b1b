/**
 * `devchain`: the dev chain alone, in the foreground until it is told to end, and verbs that act on
 * a running one (contract §6, §8).
 */
import { Command } from 'commander'
import type { DevDescription } from '../core/devchain/dev-chain.js'
import type { AdapterVerb, DevRound } from '../core/devchain/dev-verbs.js'
import { aborted, endsAsServer } from '../core/io/interruption.js'
import { type Address, ChainError } from '../core/ports.js'
import { UnavailableError, UsageError } from '../core/protocol/errors.js'
import { priceOf } from '../core/protocol/proposal.js'
import { isIdentifier, OutcomeKey } from '../core/protocol/schema.js'
import { type DryRunFlag, dryRunOption, showDryRun } from './dry-run.js'
import { noteQuestions, portNumber, unlessStopped, wholeNumber } from './hosting/foreground.js'
import { fromCwd } from './session/paths.js'
import { type GlobalFlags, resolveSettings } from './session/settings.js'
import type { Context } from './terminal/context.js'
import { dateText, publicUrl, visible } from './terminal/render.js'

export const devchainCommand = (context: Context): Command => {
  const devchain = new Command('devchain')
    .description(
      'a development chain with contracts, funded accounts and open questions; or an act on a running one',
    )
    .addCommand(startCommand(context), { isDefault: true })
    .addCommand(askCommand(context))
    .addCommand(disputeCommand(context))
    .addHelpText(
      'after',
      '\nExamples:\n  proposer devchain --write ./dev\n  proposer serve --config ./dev/gateway.json\n  proposer devchain dispute will-it-rain --rpc-url http://127.0.0.1:8545',
    )
  for (const [verb, what] of Object.entries(adapterVerbs))
    devchain.addCommand(adapterCommand(context, verb as AdapterVerb, what))
  devchain
    .addCommand(proposeCommand(context))
    .addCommand(setBondCommand(context))
    .addCommand(setWhitelistCommand(context))
    .addCommand(fundCommand(context))
    .addCommand(grantCommand(context))
  for (const one of devchain.commands) one.option(...dryRunOption)
  return devchain
}

interface StartFlags {
  readonly port: string
  readonly questions: string
  readonly chainId: string
  readonly write?: string
}

const startCommand = (context: Context) =>
  new Command('start')
    .description('start a chain and keep it until SIGINT, SIGTERM or SIGHUP')
    .option('--port <number>', 'where it listens on the loopback address; 0: a free port', '8545')
    .option('--questions <number>', 'how many example questions are open', '12')
    .option('--chain-id <number>', 'the id of the chain', '31337')
    .option('--write <folder>', 'put gateway.json, trust.json, questions.json and key files there')
    .addHelpText('after', '\nExample:\n  proposer devchain start --port 0 --write ./dev --json')
    .action(async ({ port, questions, chainId, write }: StartFlags, command: Command) => {
      const options = {
        port: portNumber('--port', port),
        questions: wholeNumber('--questions', questions, 0, 10_000),
        chainId: wholeNumber('--chain-id', chainId, 1, Number.MAX_SAFE_INTEGER),
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
      const { startDevChain, writeDevFolder } = await import('../core/devchain/dev-chain.js')
      const chain = await startDevChain(options).catch(unlessStopped(context.signal))
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
          throw new UnavailableError('dev_chain_ended', 'the chain process ended by itself', {
            hint: 'start it again with `proposer devchain`',
          })
        }
      } finally {
        await chain.stop()
      }
    })

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
      {
        hint: 'stop that chain, name another folder, or add --yes to write over its files',
      },
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
    output.line({ event: 'ready', pid, dev })
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

/**
 * The chain the verb acts on; `undefined` with --dry-run, which only tells what would be done.
 * Throws UsageError `no_rpc_url` (exit 2).
 */
async function rpcUrlOf(
  context: Context,
  command: Command,
  operands: readonly string[],
): Promise<string | undefined> {
  const flags = command.optsWithGlobals<GlobalFlags & DryRunFlag>()
  const { rpcUrl } = await resolveSettings(context, flags)
  if (rpcUrl !== undefined && flags.dryRun === true) {
    const node = publicUrl(rpcUrl.value)
    return showDryRun(context, [command.name(), ...operands, 'at', node].join(' '), {
      act: command.name(),
      operands,
      node,
    })
  }
  if (rpcUrl !== undefined) return rpcUrl.value
  throw new UsageError('no_rpc_url', 'no dev chain is named', {
    hint: 'give --rpc-url, as the ready line of `proposer devchain` shows it',
  })
}

const states = ['invalid', 'requested', 'proposed', 'expired', 'disputed', 'resolved', 'settled']

function showRound(context: Context, round: DevRound): void {
  const shown = { ...round, state: states[round.state] ?? String(round.state) }
  context.output.result(
    'devchain',
    shown,
    ({ question_id, timestamp, state }) => `${question_id}  round ${dateText(timestamp)}  ${state}`,
  )
}

/** An identifier as the gateway would take it. Throws UsageError `bad_identifier`. */
function requireIdentifier(text: string): string {
  if (isIdentifier(text)) return text
  throw new UsageError('bad_identifier', 'the identifier is neither a question id nor a slug', {
    hint: 'give 0x and 64 lowercase hex digits, or a slug of lowercase letters, digits and hyphens',
  })
}

function rawAmount(name: string, text: string): bigint {
  if (/^\d{1,30}$/.test(text)) return BigInt(text)
  throw new UsageError('bad_amount', `${name} is not an amount in raw token units`, {
    hint: 'six decimals: 1000000 is one token',
  })
}

const askCommand = (context: Context) =>
  new Command('ask')
    .description('open a new question; without a slug the next example')
    .argument('[slug]')
    .option('--text <text>', "the question's text, with its res_data")
    .option('--bond <raw>', 'its bond in raw token units, without the final fee')
    .addHelpText(
      'after',
      '\nExample:\n  proposer devchain ask will-it-rain --rpc-url http://127.0.0.1:8545',
    )
    .action(
      async (slug: string | undefined, own: { text?: string; bond?: string }, command: Command) => {
        const asked = {
          ...(slug === undefined ? {} : { slug: requireIdentifier(slug) }),
          ...(own.text === undefined ? {} : { text: own.text }),
          ...(own.bond === undefined ? {} : { bondRaw: rawAmount('--bond', own.bond) }),
        }
        const rpcUrl = await rpcUrlOf(context, command, slug === undefined ? [] : [slug])
        if (rpcUrl === undefined) return
        const { askQuestion } = await import('../core/devchain/dev-verbs.js')
        const question = await askQuestion(rpcUrl, asked)
        context.output.result(
          'devchain',
          question,
          (asked) => `${asked.question_id}  ${visible(asked.slug)}  ${asked.outcomes.join(' ')}`,
        )
      },
    )

const disputeCommand = (context: Context) =>
  new Command('dispute')
    .description('dispute the proposal of the current round; the first dispute opens a new round')
    .argument('<identifier>', 'question id or slug')
    .addHelpText(
      'after',
      '\nExample:\n  proposer devchain dispute will-it-rain --rpc-url http://127.0.0.1:8545',
    )
    .action(async (identifier: string, _own: unknown, command: Command) => {
      requireIdentifier(identifier)
      const rpcUrl = await rpcUrlOf(context, command, [identifier])
      if (rpcUrl === undefined) return
      const { disputeProposal } = await import('../core/devchain/dev-verbs.js')
      showRound(context, await disputeProposal(rpcUrl, identifier))
    })

const adapterVerbs: Readonly<Record<AdapterVerb, string>> = {
  pause: 'pause a question at its adapter',
  unpause: 'take the pause back',
  flag: 'flag a question for its administrators',
  unflag: 'take the flag back',
  reset: 'open a new round, as the administrator of the adapter may',
}

const adapterCommand = (context: Context, verb: AdapterVerb, what: string) =>
  new Command(verb)
    .description(what)
    .argument('<identifier>', 'question id or slug')
    .addHelpText(
      'after',
      `\nExample:\n  proposer devchain ${verb} will-it-rain --rpc-url http://127.0.0.1:8545`,
    )
    .action(async (identifier: string, _own: unknown, command: Command) => {
      requireIdentifier(identifier)
      const rpcUrl = await rpcUrlOf(context, command, [identifier])
      if (rpcUrl === undefined) return
      const { changeQuestion } = await import('../core/devchain/dev-verbs.js')
      showRound(context, await changeQuestion(rpcUrl, identifier, verb))
    })

const proposeCommand = (context: Context) =>
  new Command('propose')
    .description('propose straight at the oracle, as a rival of the gateway would')
    .argument('<identifier>', 'question id or slug')
    .requiredOption('--outcome <key>', 'p1, p2 or p3')
    .addHelpText(
      'after',
      '\nExample:\n  proposer devchain propose will-it-rain --outcome p2 --rpc-url http://127.0.0.1:8545',
    )
    .action(async (identifier: string, own: { outcome: string }, command: Command) => {
      const outcome = OutcomeKey.safeParse(own.outcome)
      if (!outcome.success)
        throw new UsageError('bad_outcome', '--outcome is none of p1, p2, p3', {
          hint: 'give p1, p2 or p3',
        })
      requireIdentifier(identifier)
      const rpcUrl = await rpcUrlOf(context, command, [identifier, outcome.data])
      if (rpcUrl === undefined) return
      const { proposeDirectly } = await import('../core/devchain/dev-verbs.js')
      showRound(context, await proposeDirectly(rpcUrl, identifier, BigInt(priceOf[outcome.data])))
    })

const setBondCommand = (context: Context) =>
  new Command('set-bond')
    .description('set the bond of a question in raw token units, without the final fee')
    .argument('<identifier>', 'question id or slug')
    .argument('<raw>', 'from 100000000 to 100000000000')
    .addHelpText(
      'after',
      '\nExample:\n  proposer devchain set-bond will-it-rain 600000000 --rpc-url http://127.0.0.1:8545',
    )
    .action(async (identifier: string, raw: string, _own: unknown, command: Command) => {
      const bondRaw = rawAmount('the bond', raw)
      requireIdentifier(identifier)
      const rpcUrl = await rpcUrlOf(context, command, [identifier, raw])
      if (rpcUrl === undefined) return
      const { setBond } = await import('../core/devchain/dev-verbs.js')
      showRound(context, await setBond(rpcUrl, identifier, bondRaw))
    })

const address = /^0x[0-9a-f]{40}$/

const setWhitelistCommand = (context: Context) =>
  new Command('set-whitelist')
    .description(
      'set who may propose on a question: nobody pauses it on chain, default takes the setting back',
    )
    .argument('<identifier>', 'question id or slug')
    .argument('<whitelist>', 'default, nobody, everybody, or the address of a whitelist contract')
    .addHelpText(
      'after',
      '\nExample:\n  proposer devchain set-whitelist will-it-rain nobody --rpc-url http://127.0.0.1:8545',
    )
    .action(async (identifier: string, whitelist: string, _own: unknown, command: Command) => {
      if (
        whitelist !== 'default' &&
        whitelist !== 'nobody' &&
        whitelist !== 'everybody' &&
        !address.test(whitelist)
      ) {
        throw new UsageError('bad_whitelist', 'no such whitelist', {
          hint: 'give default, nobody, everybody or a lowercase address',
        })
      }
      requireIdentifier(identifier)
      const rpcUrl = await rpcUrlOf(context, command, [identifier, whitelist])
      if (rpcUrl === undefined) return
      const { setWhitelist } = await import('../core/devchain/dev-verbs.js')
      showRound(context, await setWhitelist(rpcUrl, identifier, whitelist as Address))
    })

const fundCommand = (context: Context) =>
  new Command('fund')
    .description('give an address tokens, and a coin for gas')
    .argument('<address>', 'lowercase address')
    .argument('[raw]', 'raw token units', '1000000000000')
    .addHelpText(
      'after',
      '\nExample:\n  proposer devchain fund 0x8ba1f109551bd432803012645ac136ddd64dba72 5000000000 --rpc-url http://127.0.0.1:8545',
    )
    .action(async (to: string, raw: string, _own: unknown, command: Command) => {
      requireAddress(to)
      const amountRaw = rawAmount('the amount', raw)
      const rpcUrl = await rpcUrlOf(context, command, [to, raw])
      if (rpcUrl === undefined) return
      const { fund } = await import('../core/devchain/dev-verbs.js')
      const balance = await fund(rpcUrl, to as Address, amountRaw)
      context.output.result(
        'devchain',
        { address: to, balance: String(balance) },
        (funded) => `${funded.address} holds ${funded.balance} raw units`,
      )
    })

const grantCommand = (context: Context) =>
  new Command('grant')
    .description('make an address an executor: the role to propose for others, and a coin for gas')
    .argument('<address>', 'lowercase address')
    .addHelpText(
      'after',
      '\nExample:\n  proposer devchain grant 0x8ba1f109551bd432803012645ac136ddd64dba72 --rpc-url http://127.0.0.1:8545',
    )
    .action(async (to: string, _own: unknown, command: Command) => {
      requireAddress(to)
      const rpcUrl = await rpcUrlOf(context, command, [to])
      if (rpcUrl === undefined) return
      const { grantExecutor } = await import('../core/devchain/dev-verbs.js')
      await grantExecutor(rpcUrl, to as Address)
      context.output.result(
        'devchain',
        { address: to, role: 'executor' },
        (granted) => `${granted.address} may propose for others`,
      )
    })

function requireAddress(text: string): void {
  if (address.test(text)) return
  throw new UsageError('bad_address', 'the address is not 0x and 40 lowercase hex digits', {
    hint: 'give 0x and 40 hex digits, letters in lowercase; `proposer account list` shows yours',
  })
}
