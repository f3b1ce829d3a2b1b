/** `config`: preferences of the user, and where every setting comes from (contract §6, §7). */
import { fromCwd, homePaths } from '#io/home'
import { UsageError } from '#protocol/errors'
import {
  allowedHttp,
  type GlobalFlags,
  homeSetting,
  preferenceTree,
  profileKeys,
  profileSetting,
  requireKnownProfile,
  requireProfileName,
  resolveSettings,
  type Setting,
  settingOf,
  specOf,
} from './session/settings.js'
import type { Context } from './terminal/context.js'
import { publicUrl, visible } from './terminal/render.js'
import { dryRunFlag, type FlagsOf, showDryRun, verb } from './terminal/verb.js'

const keyNames = ['profile', ...Object.keys(profileKeys)]

const keyArg = { '<key>': `one of ${keyNames.join(', ')}` } as const

const getVerb = verb({
  name: 'get',
  about: 'show the effective value of a key',
  args: keyArg,
  examples: ['config get gateway'],
  async run(context, flags, { key }) {
    requireKey(key)
    const setting = settingOf(await resolveSettings(context, flags), key)
    if (!setting)
      throw new UsageError(
        'config_unset',
        `${key} is not set`,
        `set it with \`proposer config set ${key} <value>\``,
      )
    const shown = { key, ...publicSetting(key, setting) }
    context.output.show('config', shown, [() => visible(shown.value)])
  },
})

const setVerb = verb({
  name: 'set',
  about: 'set a value in the selected profile; creates the profile if needed',
  args: { ...keyArg, '<value>': '' },
  flags: dryRunFlag,
  examples: [
    'config set gateway https://gateway.example',
    'config set --profile test rpc-url http://127.0.0.1:8545',
  ],
  async run(context, flags, { key, value }) {
    requireKey(key)
    if (key === 'profile') requireProfileName(value, 'the value')
    if (value === '') {
      throw new UsageError(
        'bad_value',
        `the value of ${key} is empty`,
        `to remove it, run \`proposer config unset ${key}\``,
      )
    }
    await requireValue(context, flags, key, value)
    await change(context, flags, key, specOf(key)?.isPath ? fromCwd(context.cwd, value) : value)
  },
})

const unsetVerb = verb({
  name: 'unset',
  about: 'unset a value of the selected profile',
  args: keyArg,
  flags: dryRunFlag,
  examples: ['config unset rpc-url'],
  async run(context, flags, { key }) {
    requireKey(key)
    await change(context, flags, key, undefined)
  },
})

/**
 * Keeps a value in config.json; `undefined` forgets it. Only a value that is set makes a profile.
 */
async function change(
  context: Context,
  flags: GlobalFlags & FlagsOf<typeof dryRunFlag>,
  key: string,
  value: string | undefined,
) {
  const home = homeSetting(context, flags).value
  const path = homePaths.config(home)
  // What is damaged beside the key, or under it, must not keep it from being mended.
  const tree = key === 'profile' ? {} : await preferenceTree(context, home)
  const profile = key === 'profile' ? undefined : profileSetting(context, flags, home, tree)
  if (profile !== undefined && value === undefined)
    await requireKnownProfile(context, home, tree, profile)
  const name = profile === undefined ? 'profile' : `profiles.${profile.value}.${key}`
  const changed = { key: name, set: value !== undefined, path }
  if (flags.dryRun) {
    showDryRun(context, `${value === undefined ? 'unset' : 'set'} ${name} in ${path}`, changed)
    return
  }
  if (value !== undefined || (await context.files.exists(path))) {
    await context.files.makeDir(home)
    const preferences = await context.edges.preferences(home)
    await preferences.set(name, value)
  }
  context.output.show('config', changed, [
    value === undefined ? `unset ${name}` : `${name} is set in ${path}`,
  ])
}

const listVerb = verb({
  name: 'list',
  about: 'list effective settings',
  flags: { '--origin': 'show where each value comes from' },
  examples: ['config list --origin'],
  async run(context, flags) {
    const settings = await resolveSettings(context, flags)
    const { unconfirmedCapRaw } = await import('#client/propose/terms')
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
    const shown = names.map((key) => {
      const entry = entries.find((one) => one.key === key)
      if (entry === undefined) return [key, unsetText(key)] as const
      const { value, origin, from } = entry
      const source = origin === from ? origin : `${origin}: ${from}`
      return [key, flags.origin ? `${value}  (${source})` : value] as const
    })
    context.output.show('config', { settings: entries, unset }, [shown])
  },
})

const unsetText = (key: string) =>
  key === 'max-amount'
    ? 'not set: with --rpc-url the chain confirms the bond'
    : key === 'max-fee'
      ? "not set: at most 1 of the chain's coin in all, and 1000 gwei per gas"
      : 'not set'

const pathVerb = verb({
  name: 'path',
  about: 'print the path of config.json',
  examples: ['config path'],
  run(context, flags) {
    const path = homePaths.config(homeSetting(context, flags).value)
    context.output.show('config', { path }, [() => visible(path)])
  },
})

export const configCommand = verb({
  name: 'config',
  about: `read and set preferences: ${keyNames.join(', ')}`,
  examples: ['config set gateway https://gateway.example', 'config list --origin'],
  verbs: [getVerb, setVerb, unsetVerb, listVerb, pathVerb],
})

async function requireValue(context: Context, flags: GlobalFlags, key: string, value: string) {
  if (key === 'gateway') {
    const { parseBaseUrl } = await import('#client/gateway/gateway-client')
    // Nothing else of the configuration is read where nothing else decides.
    const isPlain = /^http:/i.test(value)
    const settings = isPlain && (await resolveSettings(context, { ...flags, makesProfile: true }))
    parseBaseUrl(value, settings ? allowedHttp(settings.allowHttp) : undefined)
  }
  specOf(key)?.read?.({ value, from: key })
}

function requireKey(key: string) {
  if (keyNames.includes(key)) return
  throw new UsageError(
    'unknown_key',
    `unknown setting "${key}"`,
    `the known settings are ${keyNames.join(', ')}`,
  )
}

/** A node's URL often is a credential, a gateway's may hold one (R5). */
function publicSetting(key: string, setting: Setting): Setting {
  return specOf(key)?.isSecret ? { ...setting, value: publicUrl(setting.value) } : setting
}
