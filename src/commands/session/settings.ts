/**
 * Where each setting comes from: flag, then environment, then profile, then default (contract §6).
 */

import { dirname } from 'node:path'
import { builtInProfile, profileNames } from '#chain/profiles'
import { fromCwd, homePaths } from '#io/home'
import type { PreferenceTree } from '#io/preferences'
import type { Files } from '#ports'
import { givenAddress } from '#protocol/address'
import { parseAmount } from '#protocol/amount'
import { durationMs, instantMs, spanMs } from '#protocol/duration'
import { UsageError } from '#protocol/errors'
import { objectOf } from '#protocol/json'
import { plainIdentifier } from '#protocol/market-url'
import { mayBePlain, plainHttpHosts } from '#protocol/plain-http'
import type { Context } from '../terminal/context.js'
import type { EveryFlag, FlagsOf } from '../terminal/verb.js'

const origins = ['flag', 'environment', 'profile', 'default'] as const
type Origin = (typeof origins)[number]

export interface Setting {
  readonly value: string
  readonly origin: Origin
  readonly from: string
}
type Given = Pick<Setting, 'value' | 'from'>

interface Spec {
  readonly flag: string
  readonly default?: string
  /** Relative to the file or folder that it comes from. */
  readonly isPath?: true
  /** Its URL may hold a credential (R5). */
  readonly isSecret?: true
  readonly read?: (given: Given) => unknown
}

export const profileKeys = {
  gateway: { flag: 'gateway', isSecret: true },
  local: { flag: 'local', isPath: true },
  account: { flag: 'account' },
  'rpc-url': { flag: 'rpcUrl', isSecret: true, read: requireUrl },
  trust: { flag: 'trust', isPath: true },
  'headroom-percent': { flag: 'headroom', read: headroomBasisPoints },
  'max-amount': { flag: 'maxAmount', read: storedAmount },
  'max-fee': { flag: 'maxFee', read: storedAmount },
  'gamma-url': { flag: 'gammaUrl', isSecret: true, read: requireGammaUrl },
  'allow-http': { flag: 'allowHttp', read: allowedHttp },
  'check-price-percent': { flag: 'checkPrice', default: '90', read: percentOf },
  'check-game': { flag: 'checkGame', default: '3h', read: secondsOf },
  'check-liveness': { flag: 'checkLiveness', default: '24h', read: secondsOf },
  'check-reward-percent': { flag: 'checkReward', default: '0.1', read: percentOf },
  'check-rules': { flag: 'checkRules', default: '24h', read: secondsOf },
} as const satisfies Readonly<Record<string, Spec>>
type Keys = typeof profileKeys
export const keyNames = ['profile', ...Object.keys(profileKeys)]
type ProfileKey = keyof Keys
export const isProfileKey = (key: string): key is ProfileKey => Object.hasOwn(profileKeys, key)
export const specOf = (key: string): Spec | undefined =>
  isProfileKey(key) ? profileKeys[key] : undefined

export type GlobalFlags = Omit<EveryFlag, 'color'> & {
  readonly [Key in ProfileKey as Keys[Key]['flag']]?: string
} & {
  readonly makesProfile?: true
}

/** Gateway and local: the winning one, or both where one level names both. */
export type Settings = {
  readonly [Key in ProfileKey as Keys[Key]['flag']]:
    | Setting
    | (Key extends 'trust' ? never : Keys[Key] extends { default: string } ? never : undefined)
} & {
  readonly home: Setting
  readonly profile: Setting
  readonly timeoutMs: number | undefined
  readonly yes: boolean
}

export interface Configured extends Context {
  readonly settings: Settings
}

export function settingOf(settings: Settings, key: string) {
  if (key === 'home' || key === 'profile') return settings[key]
  return isProfileKey(key) ? settings[profileKeys[key].flag] : undefined
}

const profileName = /^[a-z0-9][a-z0-9_-]{0,63}$/i

export function requireProfileName(name: string, from: string) {
  if (profileName.test(name)) return
  throw new UsageError(
    'bad_profile',
    `invalid profile name "${name}" (from ${from})`,
    'use letters, digits, - and _, at most 64',
  )
}

export async function resolveSettings(context: Context, flags: GlobalFlags): Promise<Settings> {
  if (flags.gateway !== undefined && flags.local !== undefined)
    throw notTogether('two_gateways', '--gateway', '--local')
  const home = homeSetting(context, flags)
  const tree = await preferenceTree(context, home.value)
  const profile = profileSetting(context, flags, home.value, tree)
  if (flags.makesProfile !== true) await requireKnownProfile(context, home.value, tree, profile)
  const stored = storedIn(tree, profile.value, homePaths.config(home.value))
  const pick = (key: ProfileKey) => {
    const { flag, isPath, default: value }: Spec & { flag: keyof GlobalFlags } = profileKeys[key]
    const setting =
      named(flags[flag] as string | undefined, key, context.env) ??
      valued(stored[key], 'profile', `profiles.${profile.value}.${key}`)
    if (setting === undefined)
      return valued(value, 'default', 'default') ?? defaultOf(key, home.value, profile.value)
    // A profile's relative paths are relative to the file they stand in.
    const base = setting.origin === 'profile' ? home.value : context.cwd
    return isPath ? { ...setting, value: fromCwd(base, setting.value) } : setting
  }
  const { gateway, local, ...picked } = Object.fromEntries(
    (Object.keys(profileKeys) as ProfileKey[]).map((key) => [profileKeys[key].flag, pick(key)]),
  ) as Pick<Settings, Keys[ProfileKey]['flag']>
  return {
    ...picked,
    home,
    profile,
    gateway: unlessHidden(gateway, local),
    local: unlessHidden(local, gateway),
    timeoutMs: timeoutMs(flags.timeout),
    yes: flags.yes === true,
  }
}

/** A gateway or local of a higher level hides the other one below it. */
const unlessHidden = (one: Setting | undefined, other: Setting | undefined) =>
  one && other && origins.indexOf(other.origin) < origins.indexOf(one.origin) ? undefined : one

export const flagged = (from: string, value: string | undefined) => valued(value, 'flag', from)

const valued = (value: string | undefined, origin: Origin, from: string): Setting | undefined =>
  value === undefined ? undefined : { value, origin, from }

const defaultOf = (key: ProfileKey, home: string, profile: string) =>
  key === 'trust'
    ? valued(homePaths.trust(home, profile), 'default', 'trust/<profile>.json')
    : key === 'gamma-url'
      ? valued(builtInProfile(profile)?.gammaUrl, 'default', `profile ${profile}`)
      : undefined

export const variableOf = (key: string) => `PROPOSER_${key.toUpperCase().replaceAll('-', '_')}`

function named(given: string | undefined, key: string, env: Context['env']) {
  const variable = variableOf(key)
  return (
    flagged(`--${key === 'headroom-percent' ? 'headroom' : key}`, given) ??
    valued(env[variable] || undefined, 'environment', variable)
  )
}

export function requireTarget({ gateway, local }: Settings) {
  if (gateway && local) throw notTogether('two_gateways', gateway.from, local.from)
  if (gateway) return { kind: 'gateway', setting: gateway }
  if (local) return { kind: 'local', setting: local }
  throw new UsageError(
    'no_gateway',
    'no gateway configured',
    'give --gateway <url> or --local <gateway.json>, set PROPOSER_GATEWAY, or keep one with `proposer config set gateway <url>`',
  )
}

export const notTogether = (code: string, one: string, other: string) =>
  new UsageError(code, `${one} and ${other} cannot be used together`, `omit ${one} or ${other}`)

export function homeSetting({ cwd, env, defaultHome }: Context, flags: GlobalFlags): Setting {
  const setting = named(flags.home, 'home', env)
  return setting === undefined
    ? { value: defaultHome, origin: 'default', from: "the platform's data folder" }
    : { ...setting, value: fromCwd(cwd, setting.value) }
}

export async function preferenceTree(context: Context, home: string) {
  if (!(await context.files.exists(homePaths.config(home)))) return {}
  return (await context.edges.preferences(home)).tree
}

export function profileSetting(
  { env }: Context,
  flags: GlobalFlags,
  home: string,
  tree: PreferenceTree,
): Setting {
  const setting = named(flags.profile, 'profile', env) ?? selectedIn(tree, home)
  requireProfileName(setting.value, setting.from)
  return setting
}

function selectedIn({ profile }: PreferenceTree, home: string): Setting {
  if (profile === undefined) return { value: 'default', origin: 'default', from: 'default' }
  if (typeof profile === 'string') return { value: profile, origin: 'profile', from: 'profile' }
  throw damaged(homePaths.config(home), 'profile', 'text')
}

export async function knownProfiles({ files }: Context, home: string, tree: PreferenceTree) {
  const names = [
    'default',
    ...profileNames,
    ...Object.keys(objectOf(tree.profiles) ?? {}),
    ...(typeof tree.profile === 'string' ? [tree.profile] : []),
    ...(await jsonNames(files, dirname(homePaths.trust(home, 'default')))),
  ]
  return [...new Set(names)].sort()
}

const jsonNames = async (files: Files, folder: string) =>
  (await files.exists(folder))
    ? (await files.list(folder)).flatMap((name) => /^([^.].*)\.json$/.exec(name)?.[1] ?? [])
    : []

/** The one that config.json selects need not be there. */
export async function requireKnownProfile(
  context: Context,
  home: string,
  tree: PreferenceTree,
  { value, origin, from }: Setting,
) {
  if (origin === 'profile' || origin === 'default') return
  const known = await knownProfiles(context, home, tree)
  if (known.includes(value)) return
  throw new UsageError(
    'unknown_profile',
    `profile ${value} not found (from ${from})`,
    `the known profiles are ${known.join(', ')}; create it with \`proposer config set --profile ${value} <key> <value>\``,
  )
}

function storedIn(tree: PreferenceTree, name: string, path: string) {
  const at = `profiles.${name}`
  const profile = memberOf(memberOf(tree, 'profiles', 'profiles', path), name, at, path)
  for (const [key, value] of Object.entries(profile))
    if (isProfileKey(key) && (typeof value !== 'string' || value === ''))
      throw damaged(path, `${at}.${key}`, 'text')
  return profile as Partial<Record<ProfileKey, string>>
}

function memberOf(tree: PreferenceTree, key: string, name: string, path: string) {
  const member = objectOf(Object.hasOwn(tree, key) ? tree[key] : {})
  if (member !== undefined) return member
  throw damaged(path, name, 'an object')
}

const damaged = (path: string, key: string, expected: string) =>
  new UsageError(
    'config_damaged',
    `${key} in ${path} must be ${expected}`,
    `correct it with \`proposer config set\`, or edit ${path}`,
  )

function requireUrl({ value, from }: Given) {
  if (URL.canParse(value)) return
  throw new UsageError(
    'bad_value',
    `the value of ${from} is not a URL`,
    `give it as proposer config set ${from} https://…`,
  )
}

function storedAmount({ value, from }: Given) {
  parseAmount(value, from, true)
}

export const notA = (code: string, what: string, { value, from }: Given, hint: string) =>
  new UsageError(code, `${from} ${value} is not ${what}`, hint)

export function percentOf(given: Given) {
  const percent = /^\d{1,3}(\.\d{1,3})?$/.test(given.value) ? Number(given.value) : Number.NaN
  if (percent <= 100) return percent
  const hint = 'give percent with up to three decimals, such as 90 or 0.5'
  throw notA('bad_value', 'a percentage from 0 to 100', given, hint)
}

export function secondsOf(given: Given) {
  const ms = durationMs(given.value)
  if (ms !== undefined) return ms / 1_000
  throw notA('bad_value', 'a duration', given, 'give seconds or units, such as 90m or 24h')
}

export function headroomBasisPoints(setting: Given | undefined) {
  if (setting === undefined) return 0n
  const [, whole, fraction = ''] = /^(\d{1,4})(?:\.(\d{1,2}))?$/.exec(setting.value) ?? []
  const points = whole === undefined ? -1n : BigInt(whole) * 100n + BigInt(fraction.padEnd(2, '0'))
  if (points >= 0n && points <= 100_000n) return points
  const hint = 'give percent with up to two decimals, such as --headroom 5'
  throw notA('bad_headroom', 'a percentage from 0 to 1000', setting, hint)
}

/** Its answers decide what is looked at: nobody on the way may change them. */
export function requireGammaUrl({ value, from }: Given) {
  const url = URL.canParse(value) ? new URL(value) : undefined
  const isSafe = url?.protocol === 'https:' || (url?.protocol === 'http:' && mayBePlain(url))
  if (isSafe && url.search === '' && url.hash === '' && url.username === '') return value
  throw new UsageError(
    'invalid_gamma_url',
    `${from} is not an https URL without user name, query and fragment`,
    'give the market API as https://gamma-api.polymarket.com',
  )
}

export function allowedHttp(setting: Given | undefined) {
  const hosts = setting && plainHttpHosts(setting.value)
  if (setting === undefined || hosts !== undefined) return hosts
  throw new UsageError(
    'bad_value',
    `${setting.from} is not a list of host[:port]`,
    'list hosts of your own network, separated by commas, such as gateway.internal:8787; no URL and no *',
  )
}

export function timeoutMs(value: string | undefined) {
  if (value === undefined) return undefined
  const ms = durationMs(value) ?? 0
  if (ms > 0 && ms <= 7 * 86_400_000) return ms
  const hint = 'give seconds or units, such as --timeout 120, 90m or 2h30m'
  const given = { value, from: '--timeout' }
  throw notA('bad_timeout', 'a duration above 0 and at most a week', given, hint)
}

export const requesterFlag = {
  '--requester <address>': 'requester of the question, if two pinned ones ask the same text',
} as const

/** Of the verbs that sign (contract §7, Proposer key). */
export const signerFlags = {
  '--password-file <file>': 'file with the keystore password',
  '--signer <url>': 'URL of a wallet that signs over JSON-RPC (eth_signTypedData_v4)',
  '--proposer <address>': 'proposer address, if its key is held elsewhere',
} as const

export const browserFlags = {
  '--browser': 'sign with a browser wallet, on a page whose address is printed',
  '--no-launch': "with --browser: do not open the system's browser",
} as const

/** Without an address the word behind --as-owner may be what belongs elsewhere. */
function ownerAddress(value: string) {
  const from = '--as-owner'
  if (/^0x[0-9a-f]{40}$/i.test(value)) return givenAddress(value, from, 'bad_proposer')
  const hint = 'give the identifier before --as-owner, or another flag behind it'
  throw notA('bad_proposer', 'the address of an owner', { value, from }, hint)
}

const safeFlags = {
  '--safe <address>': 'the proposer is this Safe; its owners sign one after the other',
  '--as-owner [address]': {
    about: 'with --safe: sign as an owner, with the key at hand',
    parse: ownerAddress,
  },
} as const

/** Of the verbs that run a whole gateway with --local (contract §7, Executor key). */
export const executorFlags = {
  '--executor-account <name>': 'with --local: keystore of the executor',
  '--executor-password-file <file>': 'with --local: file with its password',
} as const

export const headroomFlag = {
  '--headroom <percent>': 'authorize this much above the bond, in case it is raised; default: 0',
} as const

export const checkFlags = {
  '--require-check': 'refuse to sign where a finding of `check` warns',
  '--require-known': 'refuse to sign where a finding of `check` is unknown',
} as const

export const accountFlags = { ...signerFlags, ...browserFlags, ...safeFlags } as const
export type AccountFlags = FlagsOf<typeof accountFlags>
export type SessionFlags = GlobalFlags &
  AccountFlags &
  FlagsOf<typeof executorFlags> & { readonly requester?: string | undefined }

export const listFlags = (states: readonly string[]) =>
  ({
    '--state <state>': { about: 'only rows in this state', choices: states },
    '--since <time>': 'only rows since then: an age such as 24h, or a time',
    '--question <id|slug>': { about: 'only rows of this question', parse: plainIdentifier },
    '--limit <number>': {
      about: 'maximum number of rows, the newest',
      parse: (text: string) => wholeNumber('--limit', text, 1, 1_000_000),
    },
  }) as const

export const sinceMs = (text: string | undefined, nowMs: number) =>
  flagInstantMs('--since', text, nowMs) ?? 0

export function flagInstantMs(flag: string, text: string | undefined, nowMs: number) {
  if (text === undefined) return undefined
  const span = spanMs(text)
  if (span !== undefined) return nowMs - span
  if (/^\d{1,12}$/.test(text)) return Number(text) * 1_000
  const at = instantMs(text)
  if (at !== undefined) return at
  throw new UsageError(
    'bad_since',
    `${flag} ${text} is neither an age nor a time`,
    `give ${flag} 24h or 2h30m, a date, 2026-11-20T05:38:00Z, or Unix seconds`,
  )
}

export function wholeNumber(
  flag: string,
  text: string,
  least: number,
  most: number,
  hint = flag.startsWith('-') ? `give it as ${flag} ${least}` : `give a number such as ${least}`,
) {
  const value = /^\d{1,16}$/.test(text) ? Number(text) : Number.NaN
  if (value >= least && value <= most) return value
  throw new UsageError(
    'bad_number',
    `${flag} must be a whole number from ${least} to ${most}`,
    hint,
  )
}
