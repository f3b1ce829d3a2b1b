/**
 * Where each setting comes from: flag, then environment, then profile, then default (contract §6).
 */
import { dirname } from 'node:path'
import { builtInProfile, profileNames } from '../../core/chain/profiles.js'
import { fromCwd, homePaths } from '../../core/io/home-paths.js'
import type { PreferenceTree } from '../../core/io/preferences.js'
import { durationMs } from '../../core/protocol/duration.js'
import { UsageError } from '../../core/protocol/errors.js'
import { plainHttpHosts } from '../../core/protocol/plain-http.js'
import type { Context } from '../terminal/context.js'

/** The flags of every command as commander hands them over. */
export interface GlobalFlags {
  readonly gateway?: string
  readonly local?: string
  readonly profile?: string
  readonly home?: string
  readonly account?: string
  readonly rpcUrl?: string
  readonly trust?: string
  /** Of the verbs that sign. */
  readonly headroom?: string
  readonly maxAmount?: string
  /** Of the verbs that send transactions of their own. */
  readonly maxFee?: string
  /** Of the verbs that look for questions. */
  readonly gammaUrl?: string
  readonly timeout?: string
  readonly json?: boolean
  readonly ndjson?: boolean
  readonly quiet?: boolean
  readonly yes?: boolean
  /** No flag, but a setting and a variable, as those below. */
  readonly allowHttp?: string
  readonly checkPrice?: string
  readonly checkGame?: string
  readonly checkLiveness?: string
  readonly checkReward?: string
  readonly checkRules?: string
  /** No flag: the verb makes the profile that it is given. */
  readonly makesProfile?: true
}

export type Origin = 'flag' | 'environment' | 'profile' | 'default'

export interface Setting {
  readonly value: string
  readonly origin: Origin
  /** The flag, variable or key that gave it. */
  readonly from: string
}

/**
 * What a profile may hold, under `profiles.<name>.<key>`; each is a flag and the variable beside
 * it.
 */
export const profileKeys = {
  gateway: { flag: 'gateway', variable: 'PROPOSER_GATEWAY' },
  local: { flag: 'local', variable: 'PROPOSER_LOCAL' },
  account: { flag: 'account', variable: 'PROPOSER_ACCOUNT' },
  'rpc-url': { flag: 'rpcUrl', variable: 'PROPOSER_RPC_URL' },
  trust: { flag: 'trust', variable: 'PROPOSER_TRUST' },
  'headroom-percent': { flag: 'headroom', variable: 'PROPOSER_HEADROOM_PERCENT' },
  'max-amount': { flag: 'maxAmount', variable: 'PROPOSER_MAX_AMOUNT' },
  'max-fee': { flag: 'maxFee', variable: 'PROPOSER_MAX_FEE' },
  'gamma-url': { flag: 'gammaUrl', variable: 'PROPOSER_GAMMA_URL' },
  'allow-http': { flag: 'allowHttp', variable: 'PROPOSER_ALLOW_HTTP' },
  'check-price-percent': { flag: 'checkPrice', variable: 'PROPOSER_CHECK_PRICE_PERCENT' },
  'check-game': { flag: 'checkGame', variable: 'PROPOSER_CHECK_GAME' },
  'check-liveness': { flag: 'checkLiveness', variable: 'PROPOSER_CHECK_LIVENESS' },
  'check-reward-percent': { flag: 'checkReward', variable: 'PROPOSER_CHECK_REWARD_PERCENT' },
  'check-rules': { flag: 'checkRules', variable: 'PROPOSER_CHECK_RULES' },
} as const satisfies Record<string, { flag: keyof GlobalFlags; variable: string }>
export type ProfileKey = keyof typeof profileKeys
/** What a profile holds, as `config set` writes it. */
type Stored = Readonly<Partial<Record<ProfileKey, string>>>
export const isProfileKey = (key: string): key is ProfileKey => Object.hasOwn(profileKeys, key)
/** Whether a key names a file. */
export const isPathKey = (key: string): boolean => key === 'local' || key === 'trust'

export interface Settings {
  readonly home: Setting
  readonly profile: Setting
  /** The winning one of gateway and local; both where one level names both. */
  readonly gateway: Setting | undefined
  readonly local: Setting | undefined
  readonly account: Setting | undefined
  readonly rpcUrl: Setting | undefined
  /** The pinned contracts: `<home>/trust/<profile>.json` unless named. Absolute. */
  readonly trust: Setting
  /**
   * Slack on the bond in percent, for amounts that are not given; read it by `headroomBasisPoints`.
   */
  readonly headroom: Setting | undefined
  /** Cap on an amount; read it by `givenAmount`. */
  readonly maxAmount: Setting | undefined
  /** Cap on the fees of one call's own transactions; read it by `maxFeeWei`. */
  readonly maxFee: Setting | undefined
  /** Polymarket's market API: what is named, else what the built-in profile of this name has. */
  readonly gammaUrl: Setting | undefined
  /** Hosts for which http is taken; read it by `allowedHttp`. */
  readonly allowHttp: Setting | undefined
  /** From where a finding warns; read them by `thresholdsOf`. */
  readonly checkPrice: Setting
  readonly checkGame: Setting
  readonly checkLiveness: Setting
  readonly checkReward: Setting
  readonly checkRules: Setting
  readonly timeoutMs: number | undefined
  readonly yes: boolean
}

const profileName = /^[a-z0-9][a-z0-9_-]{0,63}$/i

/** A profile's name becomes a file name, so it is plain. Throws UsageError `bad_profile`. */
export function requireProfileName(name: string, from: string): string {
  if (profileName.test(name)) return name
  throw new UsageError(
    'bad_profile',
    `invalid profile name "${name}" (from ${from})`,
    'use letters, digits, - and _, at most 64',
  )
}

/**
 * Resolves every setting. Throws UsageError (exit 2): `two_gateways` where the flags name both,
 * `config_damaged`, `bad_profile`, `unknown_profile` unless `makesProfile`, `bad_timeout`.
 */
export async function resolveSettings(context: Context, flags: GlobalFlags): Promise<Settings> {
  if (flags.gateway !== undefined && flags.local !== undefined)
    throw twoGateways('--gateway', '--local')
  const home = homeSetting(context, flags)
  const tree = await preferenceTree(context, home.value)
  const profile = profileSetting(context, flags, home.value, tree)
  if (flags.makesProfile !== true) await requireKnownProfile(context, home.value, tree, profile)
  const stored = storedIn(tree, profile.value, homePaths.config(home.value))
  const pick = (key: ProfileKey): Setting | undefined => {
    const { flag, variable } = profileKeys[key]
    const given = named(
      flags[flag],
      flag === 'headroom' ? '--headroom' : `--${key}`,
      context.env,
      variable,
    )
    const kept = stored[key]
    const from = `profiles.${profile.value}.${key}`
    const setting =
      given ?? (kept === undefined ? undefined : { value: kept, origin: 'profile' as const, from })
    if (setting === undefined || !isPathKey(key)) return setting
    // A profile's relative paths are relative to the file they stand in.
    const base = setting.origin === 'profile' ? home.value : context.cwd
    return { ...setting, value: fromCwd(base, setting.value) }
  }
  const [gateway, local] = [pick('gateway'), pick('local')]
  const isHidden = (one: Setting | undefined, other: Setting | undefined) =>
    one !== undefined && other !== undefined && rank(other) < rank(one)
  const trustPath = homePaths.trust(home.value, profile.value)
  return {
    home,
    profile,
    gateway: isHidden(gateway, local) ? undefined : gateway,
    local: isHidden(local, gateway) ? undefined : local,
    account: pick('account'),
    rpcUrl: pick('rpc-url'),
    trust: pick('trust') ?? byDefault(trustPath, 'trust/<profile>.json'),
    headroom: pick('headroom-percent'),
    maxAmount: pick('max-amount'),
    maxFee: pick('max-fee'),
    gammaUrl: pick('gamma-url') ?? gammaOf(profile.value),
    allowHttp: pick('allow-http'),
    checkPrice: pick('check-price-percent') ?? byDefault('90', 'default'),
    checkGame: pick('check-game') ?? byDefault('3h', 'default'),
    checkLiveness: pick('check-liveness') ?? byDefault('24h', 'default'),
    checkReward: pick('check-reward-percent') ?? byDefault('0.1', 'default'),
    checkRules: pick('check-rules') ?? byDefault('24h', 'default'),
    timeoutMs: timeoutMs(flags.timeout),
    yes: flags.yes === true,
  }
}

/** A gateway or local named on a higher level hides the other one below it. */
const rank = ({ origin }: Setting) => ['flag', 'environment', 'profile', 'default'].indexOf(origin)

const byDefault = (value: string, from: string): Setting => ({ value, origin: 'default', from })

function gammaOf(profile: string): Setting | undefined {
  const url = builtInProfile(profile)?.gammaUrl
  return url === undefined ? undefined : byDefault(url, `profile ${profile}`)
}

/** What the flag gives, else the variable; an empty one counts as unset, as in a shell. */
function named(
  given: string | undefined,
  flag: string,
  env: Context['env'],
  variable: string,
): Setting | undefined {
  if (given !== undefined) return { value: given, origin: 'flag', from: flag }
  const value = env[variable] ?? ''
  return value === '' ? undefined : { value, origin: 'environment', from: variable }
}

export type Target = { readonly kind: 'gateway' | 'local'; readonly setting: Setting }

/**
 * The gateway to ask, remote or in-process. Throws UsageError `two_gateways` or `no_gateway` (exit
 * 2).
 */
export function requireTarget({ gateway, local }: Settings): Target {
  if (gateway && local) throw twoGateways(gateway.from, local.from)
  if (gateway) return { kind: 'gateway', setting: gateway }
  if (local) return { kind: 'local', setting: local }
  throw new UsageError(
    'no_gateway',
    'no gateway configured',
    'give --gateway <url> or --local <gateway.json>, set PROPOSER_GATEWAY, or keep one with `proposer config set gateway <url>`',
  )
}

const twoGateways = (one: string, other: string) =>
  new UsageError(
    'two_gateways',
    `${one} and ${other} cannot be used together`,
    `omit ${one} or ${other}`,
  )

/** Where the home folder is. */
export function homeSetting({ cwd, env, defaultHome }: Context, flags: GlobalFlags): Setting {
  const setting = named(flags.home, '--home', env, 'PROPOSER_HOME')
  return setting === undefined
    ? byDefault(defaultHome, "the platform's data folder")
    : { ...setting, value: fromCwd(cwd, setting.value) }
}

/** The user's configuration; empty where there is none, without loading what reads it. */
export async function preferenceTree(context: Context, home: string): Promise<PreferenceTree> {
  if (!(await context.files.exists(homePaths.config(home)))) return {}
  return (await context.edges.preferences(home)).tree
}

/**
 * Which profile is selected; looks at nothing else of the configuration. Throws UsageError
 * `bad_profile`, `config_damaged`.
 */
export function profileSetting(
  { env }: Context,
  flags: GlobalFlags,
  home: string,
  tree: PreferenceTree,
): Setting {
  const setting = named(flags.profile, '--profile', env, 'PROPOSER_PROFILE')
  if (setting !== undefined)
    return { ...setting, value: requireProfileName(setting.value, setting.from) }
  if (tree.profile === undefined) return byDefault('default', 'default')
  if (typeof tree.profile !== 'string') throw damaged(homePaths.config(home), 'profile', 'text')
  const value = requireProfileName(tree.profile, 'config.json')
  return { value, origin: 'profile', from: 'profile' }
}

/**
 * A profile is there by a key in config.json, a trust file, or built in; the one that config.json
 * selects needs neither. Throws UsageError `unknown_profile` naming those there are (contract §9).
 */
export async function requireKnownProfile(
  { files }: Context,
  home: string,
  tree: PreferenceTree,
  { value, origin, from }: Setting,
): Promise<void> {
  if (origin === 'profile' || origin === 'default') return
  const folder = dirname(homePaths.trust(home, 'default'))
  const pinned = (await files.exists(folder)) ? await files.list(folder) : []
  const names = [
    'default',
    ...profileNames,
    ...(isTree(tree.profiles) ? Object.keys(tree.profiles) : []),
    ...(typeof tree.profile === 'string' ? [tree.profile] : []),
    ...pinned.flatMap((name) => /^(.*)\.json$/.exec(name)?.[1] ?? []),
  ]
  const known = [...new Set(names)].sort()
  if (known.includes(value)) return
  throw new UsageError(
    'unknown_profile',
    `profile ${value} not found (from ${from})`,
    `the known profiles are ${known.join(', ')}; create it with \`proposer config set --profile ${value} <key> <value>\``,
  )
}

const isTree = (value: unknown): value is PreferenceTree =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

function storedIn(tree: PreferenceTree, name: string, path: string): Stored {
  const profiles = memberOf(tree, 'profiles', 'profiles', path)
  const profile = memberOf(profiles, name, `profiles.${name}`, path)
  const stored: Partial<Record<ProfileKey, string>> = {}
  for (const [key, value] of Object.entries(profile)) {
    if (!isProfileKey(key)) continue
    if (typeof value !== 'string' || value === '')
      throw damaged(path, `profiles.${name}.${key}`, 'text')
    stored[key] = value
  }
  return stored
}

function memberOf(tree: PreferenceTree, key: string, name: string, path: string): PreferenceTree {
  const value = Object.hasOwn(tree, key) ? tree[key] : undefined
  if (value === undefined) return {}
  if (!isTree(value)) throw damaged(path, name, 'an object')
  return value
}

const damaged = (path: string, key: string, expected: string) =>
  new UsageError(
    'config_damaged',
    `${key} in ${path} must be ${expected}`,
    `correct it with \`proposer config set\`, or edit ${path}`,
  )

type Given = Pick<Setting, 'value' | 'from'>

/**
 * The headroom in hundredths of a percent; 0 where none is set. UsageError `bad_headroom` for what
 * is no percentage from 0 to 1000 with up to two decimals, naming where it came from.
 */
export function headroomBasisPoints(setting: Given | undefined): bigint {
  if (setting === undefined) return 0n
  const [, whole, fraction = ''] = /^(\d{1,4})(?:\.(\d{1,2}))?$/.exec(setting.value) ?? []
  const points = whole === undefined ? -1n : BigInt(whole) * 100n + BigInt(fraction.padEnd(2, '0'))
  if (points >= 0n && points <= 100_000n) return points
  throw new UsageError(
    'bad_headroom',
    `${setting.from} ${setting.value} is not a percentage from 0 to 1000`,
    'give percent with up to two decimals, such as --headroom 5',
  )
}

/**
 * A market API's URL, whose answers decide what is looked at: nobody on the way may change them.
 * UsageError `invalid_gamma_url`.
 */
export function requireGammaUrl({ value, from }: Given): string {
  const url = URL.canParse(value) ? new URL(value) : undefined
  const isLoopback = /^(localhost|\[::1\]|127(\.\d{1,3}){3})$/.test(url?.hostname ?? '')
  const isSafe = url?.protocol === 'https:' || (url?.protocol === 'http:' && isLoopback)
  if (isSafe && url.search === '' && url.hash === '' && url.username === '') return value
  throw new UsageError(
    'invalid_gamma_url',
    `${from} is not an https URL without user name, query and fragment`,
    'give the market API as https://gamma-api.polymarket.com',
  )
}

/** Hosts for which http is taken. UsageError `bad_value` where one is no host[:port]. */
export function allowedHttp(setting: Given | undefined): readonly string[] | undefined {
  const hosts = setting && plainHttpHosts(setting.value)
  if (setting === undefined || hosts !== undefined) return hosts
  throw new UsageError(
    'bad_value',
    `${setting.from} is not a list of host[:port]`,
    'list hosts of your own network, separated by commas, such as gateway.internal:8787; no URL and no *',
  )
}

/** What --timeout gives, in milliseconds. Throws UsageError `bad_timeout`. */
export function timeoutMs(text: string | undefined): number | undefined {
  if (text === undefined) return undefined
  const ms = durationMs(text) ?? 0
  if (ms > 0 && ms <= 7 * 86_400_000) return ms
  throw new UsageError(
    'bad_timeout',
    `--timeout ${text} is not a duration above 0 and at most a week`,
    'give seconds or units, such as --timeout 120, 90m or 2h30m',
  )
}
