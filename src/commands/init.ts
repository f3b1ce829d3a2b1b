/** `init`: a guided set-up (contract §9). Each step is a command, run where it is still needed. */
import { fundsOf } from '#client/funds/funds'
import { freeAccountPath, listAccounts } from '#io/accounts'
import { homePaths } from '#io/home'
import { ProposerError, UsageError } from '#protocol/errors'
import { askLine, keyVariable } from './session/inputs.js'
import { builtInPins, withSession } from './session/session.js'
import { resolveSettings, type Settings } from './session/settings.js'
import type { Context } from './terminal/context.js'
import { foldAround, publicUrl, visible } from './terminal/render.js'
import { type EveryFlag, type FlagsOf, verb } from './terminal/verb.js'

const initFlags = {
  '--key-file <file>': 'import this key; without it a new key is made',
  '--password-file <file>': 'file with the keystore password; default: prompt',
  '--signed-proposer <address>': 'SignedProposer of your operator',
  '--from <file>': 'pins: a trust.json, or the ready line of a development chain',
  '--approve <amount>': 'let Permit2 move this much, such as 15000usdc, or unlimited',
} as const
type InitFlags = FlagsOf<typeof initFlags> & EveryFlag

export const initCommand = verb({
  name: 'init',
  about: 'set up profile, gateway, node, key, trust and approval; safe to run again',
  flags: initFlags,
  help: 'Prompts for what no flag gives, and keeps what is already set. The profile, gateway, node and account are those of --profile, --gateway, --rpc-url and --account.',
  examples: [
    'init',
    'proposer init --profile polygon --gateway https://gateway.example --rpc-url https://polygon.example --account main --key-file ./key --password-file ./password --signed-proposer 0x1111111111111111111111111111111111111111 --approve 15000usdc --yes',
  ],
  async run(context, flags) {
    const steps: object[] = []
    const { output } = context
    const tell = (step: string, result: Result | 'failed', detail: string) => {
      steps.push({ step, result, detail })
      output.note(visible(`${result.padEnd(7)}  ${step}: ${detail}`))
    }
    const settings = () => resolveSettings(context, { ...flags, makesProfile: true })
    const command: RunCommand = async (...argv) => {
      const { home, profile } = await settings()
      const place = ['--profile', profile.value, '--home', home.value]
      await context.runVerb([...argv, ...place, ...(flags.yes ? ['--yes'] : [])], inner(context))
    }
    for (const [name, stepOf] of Object.entries(stepsByName)) {
      const step = await stepOf({ context, flags, now: await settings(), command })
      const settled = step.settled || (await answered(context, step))
      tell(name, ...settled)
    }
    const fault = await command('doctor', ...passwordWords(flags)).catch((error: unknown) => {
      if (error instanceof ProposerError) return error
      throw error
    })
    if (fault) tell('doctor', 'failed', fault.detail)
    else tell('doctor', 'done', 'no check failed')
    const { profile } = await settings()
    output.show('init', { steps }, [() => `set up: profile ${profile.value}`])
    if (fault) throw fault
  },
})

type Result = 'done' | 'kept' | 'skipped'
type Settled = readonly [result: Result, detail: string]
type RunCommand = (...argv: readonly string[]) => Promise<void>

interface Step {
  readonly settled?: Settled | false
  readonly given: string | undefined
  readonly question: string
  readonly flag: string
  /** Without a terminal an empty answer stands for what no flag gives. */
  readonly isOptional?: true
  take(answer: string): Promise<Settled>
}
interface Asked {
  readonly context: Context
  readonly flags: InitFlags
  readonly now: Settings
  readonly command: RunCommand
}

const passwordWords = ({ passwordFile: file }: InitFlags) =>
  file === undefined ? [] : ['--password-file', file]
const notGiven: Settled = ['skipped', 'not given']
async function saved(command: RunCommand, key: string, value: string) {
  await command('config', 'set', key, value)
  return ['done', URL.canParse(value) ? publicUrl(value) : value] as const
}

const stepsByName: Readonly<Record<string, (asked: Asked) => Promise<Step> | Step>> = {
  profile({ context, now: { profile }, command }) {
    const isOpen = profile.origin === 'default' && context.isInteractive
    return {
      settled: !isOpen && profile.origin !== 'flag' && ['kept', profile.value],
      given: profile.origin === 'flag' ? profile.value : undefined,
      question: 'Profile: polygon, dev, or your own name for these settings [default]: ',
      flag: '--profile',
      take: (answer) => saved(command, 'profile', answer || profile.value),
    }
  },

  gateway: ({ now: { gateway, local, profile }, command }) => ({
    settled: (gateway ?? local)?.origin === 'profile' && ['kept', `in profile ${profile.value}`],
    given: gateway?.value,
    question: 'Gateway URL: ',
    flag: '--gateway <url>',
    async take(url) {
      if (url !== '') return saved(command, 'gateway', url)
      throw new UsageError('answer_needed', 'a gateway URL is required', 'give --gateway <url>')
    },
  }),

  'rpc-url': ({ now: { rpcUrl, profile }, command }) => ({
    settled: rpcUrl?.origin === 'profile' && ['kept', `in profile ${profile.value}`],
    given: rpcUrl?.value,
    question: 'URL of an RPC node (Enter to skip): ',
    flag: '--rpc-url <url>',
    isOptional: true,
    take: async (url) => (url === '' ? notGiven : saved(command, 'rpc-url', url)),
  }),

  async account({ context, flags, now: { account, home }, command }) {
    const known = (await listAccounts(context.files, home.value)).map(({ name }) => name)
    return {
      settled:
        account?.origin === 'profile'
          ? ['kept', account.value]
          : keyVariable(context) !== undefined && ['kept', 'the key comes from the environment'],
      given: account?.value,
      question: 'Name of the account [main]: ',
      flag: '--account <name>',
      async take(answer) {
        const name = answer || 'main'
        if (!known.includes(name)) {
          await freeAccountPath(context.files, home.value, name)
          await answered(context, {
            given: flags.keyFile,
            question: 'Key file to import, or Enter for a new key: ',
            flag: '--key-file <file>',
            isOptional: true,
            async take(path) {
              const words = path === '' ? ['new', name] : ['import', name, '--key-file', path]
              await command('account', ...words, ...passwordWords(flags))
              return ['done', name]
            },
          })
        }
        return saved(command, 'account', name)
      },
    }
  },

  async trust({ context, flags, now, command }) {
    const pins = await builtInPins({ ...context, settings: now })
    const isPinned =
      pins === undefined
        ? await context.files.exists(now.trust.value)
        : pins.signed_proposer !== null
    const isCompleted = pins !== undefined && flags.from === undefined
    const flag = isCompleted ? '--signed-proposer' : '--from'
    return {
      settled: isPinned &&
        flags.from === undefined && ['kept', pins === undefined ? now.trust.value : 'built in'],
      given: isCompleted ? flags.signedProposer : flags.from,
      question: isCompleted
        ? 'SignedProposer of your operator (0x…): '
        : 'File with the pins (trust.json, or a ready line): ',
      flag: isCompleted ? `${flag} <address>` : `${flag} <file>`,
      async take(value) {
        await command('trust', 'init', flag, value)
        return ['done', homePaths.trust(now.home.value, now.profile.value)]
      },
    }
  },

  async approval({ context, flags, now: { rpcUrl }, command }) {
    return {
      settled:
        rpcUrl === undefined
          ? ['skipped', 'no node is configured']
          : flags.approve === undefined &&
            (await isApproved(context, flags)) && ['kept', 'Permit2 may move the token'],
      given: flags.approve,
      question: 'Let Permit2 move how much (such as 15000usdc, unlimited, or Enter to skip): ',
      flag: '--approve <amount>',
      isOptional: true,
      async take(amount) {
        if (amount === '') return notGiven
        await command('funds', 'approve', '--amount', amount, ...passwordWords(flags))
        return ['done', amount]
      },
    }
  },
}

async function answered(
  context: Context,
  { given, question, flag, isOptional, take }: Step,
): Promise<Settled> {
  const value = given ?? (isOptional && !context.isInteractive ? '' : undefined)
  if (value !== undefined) return take(value)
  for (;;) {
    const answer = (await askLine(context, question, flag)).trim()
    try {
      return await take(answer)
    } catch (error) {
      if (!(error instanceof UsageError) || !context.isInteractive) throw error
      const { hint } = error.meta
      const told = [`error: ${error.detail}`, ...(hint === undefined ? [] : [`hint: ${hint}`])]
      for (const line of told) context.output.warn(foldAround(line, context.output.columns, '  '))
    }
  }
}

/** Results of the commands within are notes: the result is that of `init`. */
const inner = (context: Context): Context => ({
  ...context,
  output: {
    ...context.output,
    isForPeople: true,
    isByLine: false,
    result: (_kind, data, human) => context.output.note(human(data)),
    text: (text) => context.output.note(text.trimEnd()),
  },
})

const isApproved = (context: Context, flags: InitFlags) =>
  withSession(context, { ...flags, makesProfile: true }, async (session) => {
    const trust = await session.trust()
    const [chain, [token]] = [await session.chain(), trust.tokens]
    if (chain === undefined || token === undefined) return false
    const owner = await session.account.address()
    const view = await session.journal.load()
    return (await fundsOf(chain, trust, view, owner, token)).allowanceRaw > 0n
  })
