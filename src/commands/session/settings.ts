/**
 * Where each setting comes from: flag, then environment, then profile, then default (contract §6).
 */
import { dirname } from 'node:path'
import { profileNames } from '../../core/chain/profiles.js'
import { UsageError } from '../../core/protocol/errors.js'
import type { Context } from '../terminal/context.js'
import { fromCwd, homePaths } from './paths.js'
import type { PreferenceTree } from './preferences.js'

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
  readonly timeout?: string
  readonly json?: boolean
  readonly ndjson?: boolean
  readonly quiet?: boolean
  readonly yes?: boolean
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
} as const satisfies Record<string, { flag: keyof GlobalFlags; variable: string }>
export type ProfileKey = keyof typeof profileKeys
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
  /** Cap on an amount in raw units; read it by `maxAmountRaw`. */
  readonly maxAmount: Setting | undefined
  readonly timeoutMs: number | undefined
  readonly yes: boolean
}

const profileName = /^[a-z0-9][a-z0-9_-]{0,63}$/i

/** A profile's name becomes a file name, so it is plain. Throws UsageError `bad_profile`. */
export function requireProfileName(name: string, from: string): string {
  if (profileName.test(name)) return name
  throw new UsageError(
    'bad_profile',
    `${from} names the profile "${name}", which is not a plain name`,
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
  const stored = profileOf(tree, profile.value, homePaths.config(home.value))
  const pick = (key: ProfileKey): Setting | undefined => {
    const { flag, variable } = profileKeys[key]
    const at = (value: string, base: string) => (isPathKey(key) ? fromCwd(base, value) : value)
    const given = flags[flag]
    if (given !== undefined)
      return {
        value: at(given, context.cwd),
        origin: 'flag',
        from: flag === 'headroom' ? '--headroom' : `--${key}`,
      }
    const environment = nonEmpty(context.env[variable])
    if (environment !== undefined)
      return { value: at(environment, context.cwd), origin: 'environment', from: variable }
    const value = stored[key]
    // A profile's relative paths are relative to the file they stand in.
    return value === undefined
      ? undefined
      : {
          value: at(value, home.value),
          origin: 'profile',
          from: `profiles.${profile.value}.${key}`,
        }
  }
  const [gateway, local] = higher(pick('gateway'), pick('local'))
  const trustDefault: Setting = {
    value: homePaths.trust(home.value, profile.value),
    origin: 'default',
    from: 'trust/<profile>.json',
  }
  return {
    home,
    profile,
    gateway,
    local,
    account: pick('account'),
    rpcUrl: pick('rpc-url'),
    trust: pick('trust') ?? trustDefault,
    headroom: pick('headroom-percent'),
    maxAmount: pick('max-amount'),
    timeoutMs: timeoutMs(flags.timeout),
    yes: flags.yes === true,
  }
}

const order: readonly Origin[] = ['flag', 'environment', 'profile', 'default']

/** A gateway or local named on a higher level hides the other one below it. */
function higher(
  gateway: Setting | undefined,
  local: Setting | undefined,
): [Setting | undefined, Setting | undefined] {
  if (!gateway || !local || gateway.origin === local.origin) return [gateway, local]
  return order.indexOf(gateway.origin) < order.indexOf(local.origin)
    ? [gateway, undefined]
    : [undefined, local]
}

export type Target = { readonly kind: 'gateway' | 'local'; readonly setting: Setting }

/**
 * The gateway to ask, remote or in-process. Throws UsageError `two_gateways` or `no_gateway` (exit
 * 2).
 */
export function requireTarget(settings: Settings): Target {
  const { gateway, local } = settings
  if (gateway && local) throw twoGateways(gateway.from, local.from)
  if (gateway) return { kind: 'gateway', setting: gateway }
  if (local) return { kind: 'local', setting: local }
  throw new UsageError(
    'no_gateway',
    'this command must ask a gateway, and none is named',
    'give --gateway <url> or --local <gateway.json>, set PROPOSER_GATEWAY, or keep one with `proposer config set gateway <url>`',
  )
}

function twoGateways(one: string, other: string): UsageError {
  return new UsageError(
    'two_gateways',
    `${one} and ${other} name two gateways`,
    `leave out ${one} or ${other}`,
  )
}

export function homeSetting(context: Context, flags: GlobalFlags): Setting {
  if (flags.home !== undefined)
    return { value: fromCwd(context.cwd, flags.home), origin: 'flag', from: '--home' }
  const environment = nonEmpty(context.env.PROPOSER_HOME)
  if (environment !== undefined)
    return {
      value: fromCwd(context.cwd, environment),
      origin: 'environment',
      from: 'PROPOSER_HOME',
    }
  return { value: context.defaultHome, origin: 'default', from: "the platform's data folder" }
}

/** The user's configuration; empty where there is none, without loading what reads it. */
export async function preferenceTree(context: Context, home: string): Promise<PreferenceTree> {
  if (!(await context.files.exists(homePaths.config(home)))) return {}
  return (await context.edges.preferences(home)).all()
}

/**
 * Which profile is selected; looks at nothing else of the configuration. Throws UsageError
 * `bad_profile`, `config_damaged`.
 */
export function profileSetting(
  context: Context,
  flags: GlobalFlags,
  home: string,
  tree: PreferenceTree,
): Setting {
  if (flags.profile !== undefined)
    return {
      value: requireProfileName(flags.profile, '--profile'),
      origin: 'flag',
      from: '--profile',
    }
  const environment = nonEmpty(context.env.PROPOSER_PROFILE)
  if (environment !== undefined) {
    return {
      value: requireProfileName(environment, 'PROPOSER_PROFILE'),
      origin: 'environment',
      from: 'PROPOSER_PROFILE',
    }
  }
  if (tree.profile === undefined) return { value: 'default', origin: 'default', from: 'default' }
  if (typeof tree.profile !== 'string') throw damaged(homePaths.config(home), 'profile', 'text')
  return {
    value: requireProfileName(tree.profile, 'config.json'),
    origin: 'profile',
    from: 'profile',
  }
}

/**
 * A profile is there by a key in config.json, a trust file, or built in; the one that config.json
 * selects needs neither. Throws UsageError `unknown_profile` naming those there are (contract §9).
 */
export async function requireKnownProfile(
  context: Context,
  home: string,
  tree: PreferenceTree,
  { value, origin, from }: Setting,
): Promise<void> {
  if (origin === 'profile' || origin === 'default') return
  const folder = dirname(homePaths.trust(home, 'default'))
  const pinned = (await context.files.exists(folder)) ? await context.files.list(folder) : []
  const kept = isObject(tree.profiles) ? Object.keys(tree.profiles) : []
  const selected = typeof tree.profile === 'string' ? [tree.profile] : []
  const files = pinned
    .filter((name) => name.endsWith('.json'))
    .map((name) => name.slice(0, -'.json'.length))
  const known = [...new Set(['default', ...profileNames, ...kept, ...selected, ...files])].sort()
  if (known.includes(value)) return
  throw new UsageError(
    'unknown_profile',
    `${from} names the profile ${value}, and there is none`,
    `the profiles are ${known.join(', ')}; \`proposer config set --profile ${value} <key> <value>\` makes it`,
  )
}

const isObject = (value: unknown): value is object =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

function profileOf(
  tree: PreferenceTree,
  name: string,
  path: string,
): Partial<Record<ProfileKey, string>> {
  const profiles = member(tree, 'profiles', 'profiles', path)
  const profile = member(profiles, name, `profiles.${name}`, path)
  const stored: Partial<Record<ProfileKey, string>> = {}
  for (const [key, value] of Object.entries(profile)) {
    if (!isProfileKey(key)) continue
    if (typeof value !== 'string' || value === '')
      throw damaged(path, `profiles.${name}.${key}`, 'text')
    stored[key] = value
  }
  return stored
}

function member(tree: PreferenceTree, key: string, name: string, path: string): PreferenceTree {
  const value = Object.hasOwn(tree, key) ? tree[key] : undefined
  if (value === undefined) return {}
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    throw damaged(path, name, 'an object')
  return value as PreferenceTree
}

function damaged(path: string, key: string, expected: string): UsageError {
  return new UsageError(
    'config_damaged',
    `${key} in ${path} must be ${expected}`,
    `correct it with \`proposer config set\`, or edit ${path}`,
  )
}

/**
 * The headroom in hundredths of a percent; 0 where none is set. UsageError `bad_headroom` for what
 * is no percentage from 0 to 1000 with up to two decimals, naming where it came from.
 */
export function headroomBasisPoints(setting: Pick<Setting, 'value' | 'from'> | undefined): bigint {
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
 * The cap in raw units; `undefined` where none is set. UsageError `bad_number` for what is no
 * uint256 in digits, naming where it came from.
 */
export function maxAmountRaw(
  setting: Pick<Setting, 'value' | 'from'> | undefined,
): bigint | undefined {
  if (setting === undefined) return undefined
  const { value, from } = setting
  if (/^(0|[1-9]\d{0,77})$/.test(value) && BigInt(value) < 2n ** 256n) return BigInt(value)
  throw new UsageError(
    'bad_number',
    `${from} ${value} is not a whole number below 2^256`,
    'give raw token units in digits, such as --max-amount 750000000',
  )
}

/** An empty variable counts as unset, as a shell's `VAR= command` means it. */
const nonEmpty = (text: string | undefined) =>
  text === undefined || text === '' ? undefined : text

/** What --timeout gives, in milliseconds. Throws UsageError `bad_timeout`. */
export function timeoutMs(text: string | undefined): number | undefined {
  if (text === undefined) return undefined
  const seconds = /^\d+(\.\d{1,3})?$/.test(text) ? Number(text) : 0
  if (seconds > 0 && seconds <= 7 * 86_400) return Math.round(seconds * 1000)
  throw new UsageError(
    'bad_timeout',
    `--timeout ${text} is not a number of seconds above 0 and at most a week`,
    'give seconds, such as --timeout 120',
  )
}
