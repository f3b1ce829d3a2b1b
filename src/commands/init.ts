/** `init`: a guided set-up (contract §9). Each step is a command, run where it is still needed. */
import { fundsOf } from '#client/funds/funds'
import { freeAccountPath, listAccounts } from '#io/accounts'
import { homePaths } from '#io/home'
import { ProposerError, UsageError } from '#protocol/errors'
import { askLine, keyVariable } from './session/inputs.js'
import { builtInPins, withSession } from './session/session.js'
import { resolveSettings, type SessionFlags, type Setting } from './session/settings.js'
import type { Context } from './terminal/context.js'
import { foldAround, visible } from './terminal/render.js'
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
    const tell: Tell = (step, result, detail) => {
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
    const fault = await setUp.doctor().catch((error: unknown) => {
      if (error instanceof ProposerError) return error
      throw error
    })
    if (fault) tell('doctor', 'failed', fault.detail)
    else tell('doctor', 'done', 'no check failed')
    output.show('init', { steps }, [() => `set up: profile ${profile}`])
    if (fault) throw fault
  },
})

type Tell = (step: string, result: 'done' | 'kept' | 'skipped' | 'failed', detail: string) => void

async function chosenProfile(context: Context, flags: InitFlags, tell: Tell) {
  const { profile, home } = await resolveSettings(context, { ...flags, makesProfile: true })
  const asks = profile.origin === 'default' && context.isInteractive
  const answer = asks
    ? await askLine(
        context,
        'Profile: polygon, dev, or your own name for these settings [default]: ',
        '--profile',
      )
    : ''
  const asked = answer.trim()
  const name = asked || profile.value
  const isNew = asked !== '' || profile.origin === 'flag'
  if (isNew)
    await context.runVerb(['config', 'set', 'profile', name, '--home', home.value], inner(context))
  tell('profile', isNew ? 'done' : 'kept', name)
  return name
}

/** On a terminal what is missing is asked for, again where it is refused. */
async function answered<T>(
  context: Context,
  given: string | undefined,
  [question, flag]: readonly [question: string, flag: string],
  take: (answer: string) => Promise<T>,
) {
  if (given !== undefined) return take(given)
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

function settingUp(context: Context, flags: InitFlags & { readonly profile: string }, tell: Tell) {
  const settings = () => resolveSettings(context, { ...flags, makesProfile: true })
  const password = flags.passwordFile === undefined ? [] : ['--password-file', flags.passwordFile]
  /** Without a terminal an empty answer stands for what no flag gives. */
  const unasked = context.isInteractive ? undefined : ''
  const command = async (...argv: readonly string[]) => {
    const home = (await settings()).home.value
    const yes = flags.yes ? ['--yes'] : []
    await context.runVerb(
      [...argv, '--profile', flags.profile, '--home', home, ...yes],
      inner(context),
    )
  }
  const set = async (key: string, value: string, shown: string) => {
    await command('config', 'set', key, value)
    tell(key, 'done', shown)
  }
  return {
    async keep(key: 'gateway' | 'rpc-url', question: string, flag?: string) {
      const { gateway, local, rpcUrl } = await settings()
      const found: Setting | undefined = key === 'gateway' ? (gateway ?? local) : rpcUrl
      if (found?.origin === 'profile') return tell(key, 'kept', `in profile ${flags.profile}`)
      const isUsable = found !== undefined && found !== local
      if (!isUsable && flag === undefined && !context.isInteractive)
        return tell(key, 'skipped', 'not given')
      const given = isUsable ? found.value : undefined
      await answered(context, given, [question, flag ?? `--${key} <url>`], async (value) => {
        if (value !== '') return set(key, value, `saved in profile ${flags.profile}`)
        if (flag === undefined) return tell(key, 'skipped', 'not given')
        throw new UsageError('answer_needed', 'a gateway URL is required', `give ${flag}`)
      })
    },

    async key() {
      const { account, home } = await settings()
      if (account?.origin === 'profile') return tell('account', 'kept', account.value)
      if (keyVariable(context) !== undefined)
        return tell('account', 'kept', 'the key comes from the environment')
      const known = (await listAccounts(context.files, home.value)).map((one) => one.name)
      const question = ['Name of the account [main]: ', '--account <name>'] as const
      const name = await answered(context, account?.value, question, async (answer) => {
        const wanted = answer || 'main'
        if (!known.includes(wanted)) await freeAccountPath(context.files, home.value, wanted)
        return wanted
      })
      if (!known.includes(name))
        await answered(
          context,
          flags.keyFile ?? unasked,
          ['Key file to import, or Enter for a new key: ', '--key-file <file>'],
          (path) =>
            path === ''
              ? command('account', 'new', name, ...password)
              : command('account', 'import', name, '--key-file', path, ...password),
        )
      await set('account', name, name)
    },

    async trust() {
      const now = await settings()
      const pins = await builtInPins({ ...context, settings: now })
      const isPinned =
        pins === undefined
          ? await context.files.exists(now.trust.value)
          : pins.signed_proposer !== null
      if (isPinned && flags.from === undefined)
        return tell('trust', 'kept', pins === undefined ? now.trust.value : 'built in')
      const [given, question, flag] =
        pins !== undefined && flags.from === undefined
          ? [flags.signedProposer, 'SignedProposer of your operator (0x…): ', '--signed-proposer']
          : [flags.from, 'File with the pins (trust.json, or a ready line): ', '--from']
      const named = flag === '--from' ? '--from <file>' : '--signed-proposer <address>'
      await answered(context, given, [question, named], (value) =>
        command('trust', 'init', flag, value),
      )
      tell('trust', 'done', homePaths.trust(now.home.value, flags.profile))
    },

    async approval() {
      const { rpcUrl } = await settings()
      if (rpcUrl === undefined) return tell('approval', 'skipped', 'no node is configured')
      if (flags.approve === undefined && (await mayBeMoved(context, flags)))
        return tell('approval', 'kept', 'Permit2 may move the token')
      const question =
        'Let Permit2 move how much (such as 15000usdc, unlimited, or Enter to skip): '
      const given = flags.approve ?? unasked
      await answered(context, given, [question, '--approve <amount>'], async (amount) => {
        if (amount === '') return tell('approval', 'skipped', 'not given')
        await command('funds', 'approve', '--amount', amount, ...password)
        tell('approval', 'done', amount)
      })
    },

    doctor: () => command('doctor', ...password),
  }
}

const mayBeMoved = (context: Context, flags: SessionFlags) =>
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
