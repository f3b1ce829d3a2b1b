/** Commands in hints, to be pasted: with the flags of this command line (contract §6). */
import { Option } from 'commander'
import { publicUrl, shellWord } from './render.js'
import { type FlagTable, givenIn } from './verb.js'

const kept = [
  'gateway',
  'local',
  'config',
  'home',
  'profile',
  'account',
  'rpc-url',
  'trust',
] as const

/** Verbs that ask nobody: only what tells whose journal they read matters. */
const localVerbs = new Set(['journal', 'plan', 'config', 'account', 'trust'])

/** Verbs of a gateway's owner: what others take as --local is --config for them. */
const ownersVerbs = new Set(['operator', 'serve'])

/** A dev chain is started with a node of its own; the verbs below it act on one that runs. */
const startsChain = /^proposer devchain(?! [a-z])/

/** Commands stand between backticks. */
export const withFlags = (hint: string, argv: readonly string[]): string =>
  hint
    .split('`')
    .map((part, index) => (index % 2 === 1 ? commandWithFlags(part, argv) : part))
    .join('`')

export function commandWithFlags(command: string, argv: readonly string[]): string {
  const [program, verb = ''] = command.split(' ', 2)
  if (program !== 'proposer' || !/^[a-z]/.test(verb)) return command
  const given = givenIn(argv)
  const isOwners = ownersVerbs.has(verb)
  const named = new Set(command.match(/--[a-z-]+/g) ?? [])
  const isLocal = localVerbs.has(verb)
  const namesGateway = named.has('--gateway') || named.has('--local')
  let text = command
  for (const flag of kept) {
    const value =
      given.value(flag) ?? (flag === 'config' && isOwners ? given.value('local') : undefined)
    if (value === undefined || named.has(`--${flag}`)) continue
    if (namesGateway && (flag === 'gateway' || flag === 'local')) continue
    if (flag === 'config' && (!isOwners || named.has('--dev'))) continue
    if (isOwners && (flag === 'gateway' || flag === 'local')) continue
    if (flag !== 'home' && startsChain.test(command)) continue
    if (isLocal && flag !== 'home' && flag !== 'profile') continue
    text += ` --${flag} ${shown(value, flag === 'gateway' || flag === 'rpc-url')}`
  }
  return text
}

/** What a URL has beyond its host may be a credential (R5): that has to be typed again. */
function shown(value: string, isUrl: boolean): string {
  if (!isUrl || publicUrl(value) === value.replace(/\/$/, '')) return shellWord(value)
  return '<url>'
}

/** What of a table is given, as words of a command: ` --fit --signer <url>`. */
export const flagWords = (table: FlagTable, flags: Readonly<Record<string, unknown>>): string =>
  Object.keys(table)
    .map((spec) => {
      const option = new Option(spec)
      const value = flags[option.attributeName()]
      if (typeof value === 'string') return ` ${option.long} ${shown(value, /<url>/.test(spec))}`
      return value === !option.negate ? ` ${option.long}` : ''
    })
    .join('')

/** A path as a word of a command; one that begins with a dash would read as a flag. */
export const fileWord = (path: string): string =>
  shellWord(path.startsWith('-') && path !== '-' ? `./${path}` : path)
