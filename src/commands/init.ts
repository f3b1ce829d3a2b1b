/**
 * `init`: a guided set-up (contract §9). Each step is a command of its own, run only where it is
 * still needed: whoever stops in the middle runs it again.
 */
import { Command } from 'commander'
import { fundsOf } from '../core/client/funds/funds.js'
import { homePaths } from '../core/io/home-paths.js'
import { listKeystores } from '../core/io/keystore.js'
import { ProposerError } from '../core/protocol/errors.js'
import { runVerb } from './program.js'
import { askLine } from './session/inputs.js'
import { builtInPins, type SessionFlags, withSession } from './session/session.js'
import { resolveSettings, type Setting } from './session/settings.js'
import type { Context } from './terminal/context.js'
import { visible } from './terminal/render.js'

interface InitFlags extends SessionFlags {
  readonly keyFile?: string
  readonly signedProposer?: string
  readonly from?: string
  readonly approve?: string
}

interface Step {
  readonly step: string
  readonly result: 'done' | 'kept' | 'skipped' | 'failed'
  readonly detail: string
}

export const initCommand = (context: Context): Command =>
  new Command('init')
    .description('set up profile, gateway, node, key, trust and approval; safe to run again')
    .option('--key-file <file>', 'import this key; without it a new key is made')
    .option('--password-file <file>', 'file with the keystore password; default: prompt')
    .option('--signed-proposer <address>', 'SignedProposer of your operator')
    .option('--from <file>', 'pins: a trust.json, or the ready line of a development chain')
    .option('--approve <amount>', 'let Permit2 move this much, such as 15000usdc, or unlimited')
    .addHelpText(
      'after',
      '\nPrompts for what no flag gives, and keeps what is already set. The profile, gateway, node\nand account are those of --profile, --gateway, --rpc-url and --account.\n\nExamples:\n  proposer init\n  proposer init --profile polygon --gateway https://gateway.example --rpc-url https://polygon.example --account main --key-file ./key --password-file ./password --signed-proposer 0x1111111111111111111111111111111111111111 --approve 15000usdc --yes',
    )
    .action(async (_own: unknown, command: Command) => {
      const flags = command.optsWithGlobals<InitFlags>()
      const steps: Step[] = []
      const { output } = context
      const tell = (step: string, result: Step['result'], detail: string) => {
        steps.push({ step, result, detail })
        output.note(visible(`${result.padEnd(7)}  ${step}: ${detail}`))
      }
      const profile = await chosenProfile(context, flags, tell)
      const setUp = settingUp(context, { ...flags, profile }, tell)
      await setUp.keep('gateway', 'Gateway URL: ', '--gateway <url>')
      await setUp.keep('rpc-url', 'URL of an RPC node (Enter to skip): ')
      await setUp.key()
      await setUp.trust()
      await setUp.approval()
      const fault = await setUp.doctor()
      output.result('init', { steps }, () => `set up: profile ${profile}`)
      if (fault) throw fault
    })

type Tell = (step: string, result: Step['result'], detail: string) => void

/** The selected profile; on a terminal a choice where nothing has chosen one yet. */
async function chosenProfile(context: Context, flags: InitFlags, tell: Tell): Promise<string> {
  const { profile, home } = await resolveSettings(context, { ...flags, makesProfile: true })
  const asks = profile.origin === 'default' && context.isInteractive
  const asked = asks
    ? await askLine(
        context,
        'Profile: polygon, dev, or a name of your own [default]: ',
        '--profile',
      )
    : ''
  const name = asked || profile.value
  const isNew = asked !== '' || profile.origin === 'flag'
  if (isNew) await runVerb(['config', 'set', 'profile', name, '--home', home.value], inner(context))
  tell('profile', isNew ? 'done' : 'kept', name)
  return name
}

/** Results of the commands within are notes: the result is that of `init`. */
const inner = (context: Context): Context => ({
  ...context,
  output: {
    ...context.output,
    mode: 'human',
    result: (_kind, data, human) => context.output.note(human(data)),
    text: (text) => context.output.note(text.trimEnd()),
  },
})

function settingUp(context: Context, flags: InitFlags & { readonly profile: string }, tell: Tell) {
  const settings = () => resolveSettings(context, { ...flags, makesProfile: true })
  const password = flags.passwordFile === undefined ? [] : ['--password-file', flags.passwordFile]
  const verb = async (...argv: readonly string[]) => {
    const home = (await settings()).home.value
    const yes = flags.yes === true ? ['--yes'] : []
    await runVerb([...argv, '--profile', flags.profile, '--home', home, ...yes], inner(context))
  }
  const set = async (key: string, value: string, shown: string) => {
    await verb('config', 'set', key, value)
    tell(key, 'done', shown)
  }
  return {
    /** Keeps what the profile has; what a flag or a variable gives goes into the profile. */
    async keep(key: 'gateway' | 'rpc-url', question: string, flag?: string) {
      const { gateway, local, rpcUrl } = await settings()
      const found: Setting | undefined = key === 'gateway' ? (gateway ?? local) : rpcUrl
      if (found?.origin === 'profile') return tell(key, 'kept', `in profile ${flags.profile}`)
      const isUsable = found !== undefined && found !== local
      const value = isUsable
        ? found.value
        : flag !== undefined || context.isInteractive
          ? await askLine(context, question, flag ?? `--${key} <url>`)
          : ''
      if (value === '') return tell(key, 'skipped', 'the spec gives none')
      await set(key, value, `saved in profile ${flags.profile}`)
    },

    async key() {
      const { account, home } = await settings()
      if (account?.origin === 'profile') return tell('account', 'kept', account.value)
      if (context.environmentKey !== undefined || context.env.PROPOSER_KEY_FILE)
        return tell('account', 'kept', 'the key comes from the environment')
      const question = 'Name of the account [main]: '
      const name =
        account?.value ?? ((await askLine(context, question, '--account <name>')) || 'main')
      const known = (await listKeystores(context.files, home.value)).map((one) => one.name)
      if (!known.includes(name)) {
        const file =
          flags.keyFile ??
          (context.isInteractive
            ? await askLine(context, 'Key file to import, or Enter for a new key: ', '--key-file')
            : '')
        const how = file === '' ? ['new', name] : ['import', name, '--key-file', file]
        await verb('account', ...how, ...password)
      }
      await set('account', name, name)
    },

    async trust() {
      const now = await settings()
      const pins = await builtInPins(context, now)
      const isPinned =
        pins === undefined
          ? await context.files.exists(now.trust.value)
          : pins.signed_proposer !== null
      if (isPinned && flags.from === undefined)
        return tell('trust', 'kept', pins === undefined ? now.trust.value : 'built in')
      if (pins !== undefined && flags.from === undefined) {
        const question = 'SignedProposer of your operator (0x…): '
        const flag = '--signed-proposer <address>'
        const address = flags.signedProposer ?? (await askLine(context, question, flag))
        await verb('trust', 'init', '--signed-proposer', address)
      } else {
        const question = 'File with the pins (trust.json, or a ready line): '
        const file = flags.from ?? (await askLine(context, question, '--from <file>'))
        await verb('trust', 'init', '--from', file)
      }
      tell('trust', 'done', homePaths.trust(now.home.value, flags.profile))
    },

    async approval() {
      const { rpcUrl } = await settings()
      if (rpcUrl === undefined) return tell('approval', 'skipped', 'no node is configured')
      if (flags.approve === undefined && (await mayBeMoved(context, flags)))
        return tell('approval', 'kept', 'Permit2 may move the token')
      const question =
        'Let Permit2 move how much (such as 15000usdc, unlimited, or Enter to skip): '
      const amount =
        flags.approve ??
        (context.isInteractive ? await askLine(context, question, '--approve <amount>') : '')
      if (amount === '') return tell('approval', 'skipped', 'the spec gives none')
      await verb('funds', 'approve', '--amount', amount, ...password)
      tell('approval', 'done', amount)
    },

    /** What `doctor` ended with, told after all that was done. */
    async doctor(): Promise<ProposerError | undefined> {
      try {
        await verb('doctor', ...password)
        tell('doctor', 'done', 'no check failed')
        return undefined
      } catch (error) {
        if (!(error instanceof ProposerError)) throw error
        tell('doctor', 'failed', error.detail)
        return error
      }
    },
  }
}

/** Whether the wallet has approved Permit2 for the first pinned token. */
const mayBeMoved = (context: Context, flags: SessionFlags): Promise<boolean> =>
  withSession(context, { ...flags, makesProfile: true }, async (session) => {
    const [trust, chain, owner] = await Promise.all([
      session.trust(),
      session.chain(),
      session.account.address(),
    ])
    const [token] = trust.tokens
    if (chain === undefined || token === undefined) return false
    const view = await session.journal.load()
    return (await fundsOf(chain, trust, view, owner, token)).allowanceRaw > 0n
  })
