/** Commands in hints, to be pasted: with the flags of this command line (contract §6). */
import { publicUrl, shellWord } from './render.js'
import { givenIn } from './verb.js'

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
type Kept = (typeof kept)[number]

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

/** With the given flags that it does not name itself. */
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
    text += ` --${flag} ${shown(flag, value)}`
  }
  return text
}

/** What a URL has beyond its host may be a credential (R5). */
function shown(flag: Kept, value: string): string {
  if (flag !== 'gateway' && flag !== 'rpc-url') return shellWord(value)
  return publicUrl(value) === value.replace(/\/$/, '') ? shellWord(value) : '<url>'
}
