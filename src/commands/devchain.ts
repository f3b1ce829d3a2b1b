/**
 * `devchain`: the dev chain alone, in the foreground until it is told to end, and verbs that
 * act on a running one (contract §6, §8).
 */
import { Command } from 'commander'
import { builtInProfile } from '../core/chain/profiles.js'
import type { DevDescription } from '../core/devchain/dev-chain.js'
import type { AdapterVerb, DevRound, DevWhitelist } from '../core/devchain/dev-verbs.js'
import { fromCwd } from '../core/io/home-paths.js'
import { aborted, endsAsServer } from '../core/io/interruption.js'
import { ChainError } from '../core/ports.js'
import { givenAddress } from '../core/protocol/address.js'
import { parseAmount, toRaw } from '../core/protocol/amount.js'
import { UnavailableError, UsageError } from '../core/protocol/errors.js'
import { plainIdentifier } from '../core/protocol/market-url.js'
import { priceOf } from '../core/protocol/proposal.js'
import type { OutcomeKey } from '../core/protocol/schema.js'
import { isIdentifier } from '../core/protocol/words.js'
import { noteQuestions, portNumber, unlessStopped, wholeNumber } from './hosting/foreground.js'
import { type GlobalFlags, resolveSettings } from './session/settings.js'
import type { Context } from './terminal/context.js'
import { type DryRunFlag, dryRunOption, showDryRun } from './terminal/dry-run.js'
import { dateText, publicUrl, visible } from './terminal/render.js'

export const devchainCommand = (context: Context): Command => {
  const devchain = new Command('devchain')
    .description(
      'run a development chain with contracts, funded accounts and open questions, or control a running one',
    )
    .addCommand(startCommand(context), { isDefault: true })
    .addHelpText(
      'after',
      '\nExamples:\n  proposer devchain --write ./dev\n  proposer serve --config ./dev/gateway.json\n  proposer devchain dispute will-it-rain --rpc-url http://127.0.0.1:8545',
    )
  for (const verb of verbs) devchain.addCommand(verbCommand(context, verb))
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
    .description('run a chain until SIGINT, SIGTERM or SIGHUP')
    .option('--port <number>', 'port to listen on; 0 picks a free port', '8545')
    .option('--questions <number>', 'number of example questions', '12')
    .option('--chain-id <number>', 'chain id', '31337')
    .option(
      '--write <folder>',
      'write gateway.json, trust.json, questions.json and key files to this folder',
    )
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

const states = ['invalid', 'requested', 'proposed', 'expired', 'disputed', 'resolved', 'settled']

function showRound(context: Context, round: DevRound): void {
  const shown = { ...round, state: states[round.state] ?? String(round.state) }
  context.output.result(
    'devchain',
    shown,
    ({ question_id, timestamp, state }) => `${question_id}  round ${dateText(timestamp)}  ${state}`,
  )
}

const matching =
  <T extends string>(form: RegExp, error: UsageError) =>
  (text: string): T => {
    if (form.test(text)) return text as T
    throw error
  }

/** Operands and flags as the gateway or the chain would take them. Each throws UsageError. */
const requireOutcome = matching(
  /^p[123]$/,
  new UsageError('bad_outcome', '--outcome is none of p1, p2, p3', { hint: 'give p1, p2 or p3' }),
)
const requireWhitelist = matching<DevWhitelist>(
  /^(default|nobody|everybody|0x[0-9a-f]{40})$/,
  new UsageError('bad_whitelist', 'no such whitelist', {
    hint: 'give default, nobody, everybody or an address',
  }),
)
/** In the dev chain's own token; a bare number is raw units but in a flag. */
function requireAmount(name: string, text: string): bigint {
  const units = builtInProfile('dev')?.tokenUnits
  const isOperand = !name.startsWith('--')
  try {
    return toRaw(parseAmount(text, name, isOperand), units === undefined ? [] : [units]).raw
  } catch (error) {
    if (!isOperand || !(error instanceof UsageError) || error.code !== 'bad_number') throw error
    // An operand has a code of its own, from before there were units.
    throw new UsageError('bad_amount', error.message, { hint: error.meta.hint ?? 'give raw units' })
  }
}

function requireIdentifier(text: string): string {
  if (isIdentifier(text)) return text
  throw new UsageError('bad_identifier', 'the identifier is neither a question id nor a slug', {
    hint: 'give 0x and 64 lowercase hex digits, or a slug of lowercase letters, digits and hyphens',
  })
}

type Verbs = typeof import('../core/devchain/dev-verbs.js')
interface VerbFlags {
  readonly text?: string
  readonly bond?: string
  readonly outcome: string
}

/** A verb that acts on a running chain. */
interface Verb {
  readonly name: string
  readonly description: string
  /** Of its operands: name, description, default. */
  readonly arguments: readonly (readonly [string, string?, string?])[]
  readonly options?: readonly (readonly [flags: string, description: string])[]
  readonly required?: readonly [flags: string, description: string]
  /** What stands behind the verb in its example. */
  readonly example: string
  /** What --dry-run names behind the operands. */
  readonly more?: (flags: VerbFlags) => readonly string[]
  /** Judges operands and flags before anything is asked; gives what is done with the chain. */
  run(
    operands: readonly string[],
    flags: VerbFlags,
    context: Context,
  ): (verbs: Verbs, rpcUrl: string) => Promise<void>
}

const identifier = ['<identifier>', 'question id or slug'] as const

const adapterVerb = (name: AdapterVerb, description: string): Verb => ({
  name,
  description,
  arguments: [identifier],
  example: 'will-it-rain',
  run([question = ''], _flags, context) {
    requireIdentifier(question)
    return async ({ changeQuestion }, url) =>
      showRound(context, await changeQuestion(url, question, name))
  },
})

const verbs: readonly Verb[] = [
  {
    name: 'ask',
    description: 'open a new question; without a slug the next example',
    arguments: [['[slug]']],
    options: [
      ['--text <text>', "the question's text, with its res_data"],
      ['--bond <amount>', 'its bond, such as 500usdc, without the final fee'],
    ],
    example: 'will-it-rain',
    run([slug], { text, bond }, { output }) {
      const asked = {
        ...(slug !== undefined && { slug: requireIdentifier(slug) }),
        ...(text !== undefined && { text }),
        ...(bond !== undefined && { bondRaw: requireAmount('--bond', bond) }),
      }
      return async ({ askDevQuestion }, url) =>
        output.result(
          'devchain',
          await askDevQuestion(url, asked),
          ({ question_id, slug, outcomes }) =>
            `${question_id}  ${visible(slug)}  ${outcomes.join(' ')}`,
        )
    },
  },
  {
    name: 'dispute',
    description: 'dispute the proposal of the current round; the first dispute opens a new round',
    arguments: [identifier],
    example: 'will-it-rain',
    run([question = ''], _flags, context) {
      requireIdentifier(question)
      return async ({ disputeProposal }, url) =>
        showRound(context, await disputeProposal(url, question))
    },
  },
  adapterVerb('pause', 'pause a question at its adapter'),
  adapterVerb('unpause', 'take the pause back'),
  adapterVerb('flag', 'flag a question for its administrators'),
  adapterVerb('unflag', 'take the flag back'),
  adapterVerb('reset', 'open a new round, as the administrator of the adapter may'),
  {
    name: 'propose',
    description: 'propose at the oracle directly, as a rival of the gateway',
    arguments: [identifier],
    required: ['--outcome <key>', 'p1, p2 or p3'],
    example: 'will-it-rain --outcome p2',
    more: ({ outcome }) => [outcome],
    run([question = ''], { outcome }, context) {
      const price = BigInt(priceOf[requireOutcome(outcome) as OutcomeKey])
      requireIdentifier(question)
      return async ({ proposeDirectly }, url) =>
        showRound(context, await proposeDirectly(url, question, price))
    },
  },
  {
    name: 'set-bond',
    description: 'set the bond of a question, without the final fee',
    arguments: [identifier, ['<amount>', 'from 100usdc to 100000usdc; a bare number is raw units']],
    example: 'will-it-rain 600usdc',
    run([question = '', raw = ''], _flags, context) {
      const bondRaw = requireAmount('the bond', raw)
      requireIdentifier(question)
      return async ({ setBond }, url) => showRound(context, await setBond(url, question, bondRaw))
    },
  },
  {
    name: 'set-whitelist',
    description:
      'set who may propose on a question: nobody pauses it on chain, default takes the setting back',
    arguments: [
      identifier,
      ['<whitelist>', 'default, nobody, everybody, or the address of a whitelist contract'],
    ],
    example: 'will-it-rain nobody',
    run([question = '', whitelist = ''], _flags, context) {
      const setting = requireWhitelist(
        whitelist.startsWith('0x')
          ? givenAddress(whitelist, 'the whitelist', 'bad_whitelist')
          : whitelist,
      )
      requireIdentifier(question)
      return async ({ setWhitelist }, url) =>
        showRound(context, await setWhitelist(url, question, setting))
    },
  },
  {
    name: 'fund',
    description: 'send tokens and gas money to an address',
    arguments: [
      ['<address>', 'wallet address'],
      ['[amount]', 'such as 5000usdc; a bare number is raw units', '1000000usdc'],
    ],
    example: '0x8ba1f109551bd432803012645ac136ddd64dba72 5000usdc',
    run([to = '', raw = ''], _flags, { output }) {
      const address = givenAddress(to, 'the address', 'bad_address')
      const amountRaw = requireAmount('the amount', raw)
      return async ({ fund }, url) => {
        const balance = String(await fund(url, address, amountRaw))
        const text = () => `${address} holds ${balance} raw units`
        output.result('devchain', { address, balance }, text)
      }
    },
  },
  {
    name: 'grant',
    description: 'grant an address the executor role, and send it gas money',
    arguments: [['<address>', 'wallet address']],
    example: '0x8ba1f109551bd432803012645ac136ddd64dba72',
    run([to = ''], _flags, { output }) {
      const address = givenAddress(to, 'the address', 'bad_address')
      return async ({ grantExecutor }, url) => {
        await grantExecutor(url, address)
        const text = () => `${address} may propose for others`
        output.result('devchain', { address, role: 'executor' }, text)
      }
    },
  },
]

function verbCommand(context: Context, verb: Verb): Command {
  const command = new Command(verb.name).description(verb.description)
  for (const argument of verb.arguments) command.argument(...argument)
  for (const option of verb.options ?? []) command.option(...option)
  if (verb.required) command.requiredOption(...verb.required)
  const example = `proposer devchain ${verb.name} ${verb.example}`
  return command
    .addHelpText('after', `\nExample:\n  ${example} --rpc-url http://127.0.0.1:8545`)
    .action(async () => {
      const given = command.processedArgs.filter((one) => one !== undefined) as string[]
      const operands = given.map(plainIdentifier)
      const flags = command.optsWithGlobals<VerbFlags & GlobalFlags & DryRunFlag>()
      const act = verb.run(operands, flags, context)
      const { rpcUrl } = await resolveSettings(context, flags)
      if (rpcUrl === undefined)
        throw new UsageError('no_rpc_url', 'no dev chain is named', {
          hint: 'give --rpc-url, as the ready line of `proposer devchain` shows it',
        })
      if (flags.dryRun !== true)
        return act(await import('../core/devchain/dev-verbs.js'), rpcUrl.value)
      const node = publicUrl(rpcUrl.value)
      const shown = [...operands, ...(verb.more?.(flags) ?? [])]
      const would = [verb.name, ...shown, 'at', node].join(' ')
      showDryRun(context, would, { act: verb.name, operands: shown, node })
    })
}
