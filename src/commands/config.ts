/** `config`: preferences of the user, and where every setting comes from (contract §6, §7). */
import { Command } from 'commander'
import { fromCwd, homePaths } from '../core/io/home-paths.js'
import { parseAmount } from '../core/protocol/amount.js'
import { UsageError } from '../core/protocol/errors.js'
import { percentOf, secondsOf } from './session/checks.js'
import {
  allowedHttp,
  type GlobalFlags,
  headroomBasisPoints,
  homeSetting,
  isPathKey,
  isProfileKey,
  preferenceTree,
  profileKeys,
  profileSetting,
  requireGammaUrl,
  requireKnownProfile,
  requireProfileName,
  resolveSettings,
  type Setting,
  type Settings,
} from './session/settings.js'
import type { Context } from './terminal/context.js'
import { type DryRunFlag, dryRunOption, showDryRun } from './terminal/dry-run.js'
import { fields, fold, publicUrl, visible } from './terminal/render.js'

const keyNames = ['profile', ...Object.keys(profileKeys)]

export const configCommand = (context: Context): Command =>
  new Command('config')
    .description(`read and set preferences: ${keyNames.join(', ')}`)
    .addHelpText(
      'after',
      '\nExamples:\n  proposer config set gateway https://gateway.example\n  proposer config list --origin',
    )
    .addCommand(getCommand(context))
    .addCommand(setCommand(context))
    .addCommand(unsetCommand(context))
    .addCommand(listCommand(context))
    .addCommand(pathCommand(context))

const getCommand = (context: Context) =>
  new Command('get')
    .description('show the effective value of a key')
    .argument('<key>', `one of ${keyNames.join(', ')}`)
    .addHelpText('after', '\nExample:\n  proposer config get gateway')
    .action(async (key: string, _own: unknown, command: Command) => {
      requireKey(key)
      const setting = settingOf(
        await resolveSettings(context, command.optsWithGlobals<GlobalFlags>()),
        key,
      )
      if (!setting)
        throw new UsageError(
          'config_unset',
          `${key} is not set`,
          `set it with \`proposer config set ${key} <value>\``,
        )
      const shown = { key, ...publicSetting(key, setting) }
      context.output.result('config', shown, () => visible(shown.value))
    })

const setCommand = (context: Context) =>
  new Command('set')
    .description('set a value in the selected profile; creates the profile if needed')
    .argument('<key>', `one of ${keyNames.join(', ')}`)
    .argument('<value>')
    .option(...dryRunOption)
    .addHelpText(
      'after',
      '\nExamples:\n  proposer config set gateway https://gateway.example\n  proposer config set --profile test rpc-url http://127.0.0.1:8545',
    )
    .action(async (key: string, value: string, _own: unknown, command: Command) => {
      requireKey(key)
      if (key === 'profile') requireProfileName(value, 'the value')
      if (value === '') {
        throw new UsageError(
          'bad_value',
          `the value of ${key} is empty`,
          `to remove it, run \`proposer config unset ${key}\``,
        )
      }
      await requireValue(context, command.optsWithGlobals<GlobalFlags>(), key, value)
      await change(context, command, key, isPathKey(key) ? fromCwd(context.cwd, value) : value)
    })

const unsetCommand = (context: Context) =>
  new Command('unset')
    .description('unset a value of the selected profile')
    .argument('<key>', `one of ${keyNames.join(', ')}`)
    .option(...dryRunOption)
    .addHelpText('after', '\nExample:\n  proposer config unset rpc-url')
    .action(async (key: string, _own: unknown, command: Command) => {
      requireKey(key)
      await change(context, command, key, undefined)
    })

/**
 * Keeps a value in config.json; `undefined` forgets it. Only a value that is set makes a profile.
 */
async function change(
  context: Context,
  command: Command,
  key: string,
  value: string | undefined,
): Promise<void> {
  const flags = command.optsWithGlobals<GlobalFlags & DryRunFlag>()
  const home = homeSetting(context, flags).value
  const path = homePaths.config(home)
  // Only what the name of the key needs is read: what is damaged beside it, or under it, must not
  // keep it from being mended.
  const tree = key === 'profile' ? {} : await preferenceTree(context, home)
  const profile = key === 'profile' ? undefined : profileSetting(context, flags, home, tree)
  if (profile !== undefined && value === undefined)
    await requireKnownProfile(context, home, tree, profile)
  const name = profile === undefined ? 'profile' : `profiles.${profile.value}.${key}`
  const changed = { key: name, set: value !== undefined, path }
  if (flags.dryRun === true) {
    showDryRun(context, `${value === undefined ? 'unset' : 'set'} ${name} in ${path}`, changed)
    return
  }
  if (value !== undefined || (await context.files.exists(path))) {
    await context.files.makeDir(home)
    const preferences = await context.edges.preferences(home)
    await preferences.set(name, value)
  }
  const { output } = context
  output.result('config', changed, () =>
    fold(value === undefined ? `unset ${name}` : `${name} is set in ${path}`, output.columns, '  '),
  )
}

const listCommand = (context: Context) =>
  new Command('list')
    .description('list effective settings')
    .option('--origin', 'show where each value comes from')
    .addHelpText('after', '\nExample:\n  proposer config list --origin')
    .action(async (own: { origin?: boolean }, command: Command) => {
      const settings = await resolveSettings(context, command.optsWithGlobals<GlobalFlags>())
      const { unconfirmedCapRaw } = await import('../core/client/propose/terms.js')
      const inForce: Readonly<Record<string, string>> = {
        'headroom-percent': '0',
        ...(settings.rpcUrl === undefined && { 'max-amount': String(unconfirmedCapRaw) }),
      }
      const names = ['home', ...keyNames]
      const entries = names.flatMap((key) => {
        const value = inForce[key]
        const setting =
          settingOf(settings, key) ??
          (value === undefined ? undefined : { value, origin: 'default', from: 'default' })
        return setting ? [{ key, ...publicSetting(key, setting as Setting) }] : []
      })
      const unset = names.filter((key) => !entries.some((entry) => entry.key === key))
      context.output.result('config', { settings: entries, unset }, () =>
        fields(
          names.map((key) => {
            const entry = entries.find((one) => one.key === key)
            if (entry === undefined) return [key, unsetText(key)]
            const { value, origin, from } = entry
            return [
              key,
              own.origin === true
                ? `${value}  (${origin === from ? origin : `${origin}: ${from}`})`
                : value,
            ]
          }),
          context.output.columns,
        ),
      )
    })

const unsetText = (key: string) =>
  key === 'max-amount'
    ? 'not set: with --rpc-url the chain confirms the bond'
    : key === 'max-fee'
      ? "not set: at most 1 of the chain's coin in all, and 1000 gwei per gas"
      : 'not set'

const pathCommand = (context: Context) =>
  new Command('path')
    .description('print the path of config.json')
    .addHelpText('after', '\nExample:\n  proposer config path')
    .action(async (_own: unknown, command: Command) => {
      const home = homeSetting(context, command.optsWithGlobals<GlobalFlags>()).value
      const path = homePaths.config(home)
      context.output.result('config', { path }, () => visible(path))
    })

/**
 * A gateway's address by the client's own rules (robustness §6), a node's as any URL, numbers as
 * they are read. Throws UsageError.
 */
async function requireValue(
  context: Context,
  flags: GlobalFlags,
  key: string,
  value: string,
): Promise<void> {
  if (key === 'gateway') {
    const { parseBaseUrl } = await import('../core/client/gateway/gateway-client.js')
    // Nothing else of the configuration is read where nothing else decides.
    const isPlain = /^http:/i.test(value)
    const settings = isPlain && (await resolveSettings(context, { ...flags, makesProfile: true }))
    parseBaseUrl(value, settings ? allowedHttp(settings.allowHttp) : undefined)
  }
  if (key === 'gamma-url') requireGammaUrl({ value, from: key })
  if (key === 'allow-http') allowedHttp({ value, from: key })
  if (key === 'check-price-percent' || key === 'check-reward-percent')
    percentOf({ value, from: key })
  if (key === 'check-game' || key === 'check-liveness' || key === 'check-rules')
    secondsOf({ value, from: key })
  if (key === 'headroom-percent') headroomBasisPoints({ value, from: key })
  if (key === 'max-amount' || key === 'max-fee') parseAmount(value, key, true)
  if (key === 'rpc-url' && !URL.canParse(value)) {
    throw new UsageError(
      'bad_value',
      `the value of ${key} is not a URL`,
      `give it as proposer config set ${key} https://…`,
    )
  }
}

function requireKey(key: string): void {
  if (keyNames.includes(key)) return
  throw new UsageError(
    'unknown_key',
    `unknown setting "${key}"`,
    `the known settings are ${keyNames.join(', ')}`,
  )
}

function settingOf(settings: Settings, key: string): Setting | undefined {
  if (key === 'home' || key === 'profile') return settings[key]
  return isProfileKey(key) ? settings[profileKeys[key].flag] : undefined
}

/**
 * A node's URL often is a credential, a gateway's may hold one: path, query and user are not shown
 * (R5).
 */
function publicSetting(key: string, setting: Setting): Setting {
  return key === 'rpc-url' || key === 'gateway' || key === 'gamma-url'
    ? { ...setting, value: publicUrl(setting.value) }
    : setting
}
