/**
 * Commands that hints name, so that they can be pasted: with the flags that this command line was
 * given (contract §6).
 */
import { publicUrl, shellWord } from './render.js'

/** Without them a pasted command would act on another gateway, journal, account, chain or trust. */
const kept = ['gateway', 'local', 'home', 'profile', 'account', 'rpc-url', 'trust'] as const
type Kept = (typeof kept)[number]

/** Verbs that ask nobody: only what tells whose journal they read matters. */
const localVerbs = new Set(['journal', 'plan', 'config', 'account', 'trust'])

/**
 * A hint whose backticked `proposer …` commands repeat the given flags that they do not name
 * themselves.
 */
export function withFlags(hint: string, argv: readonly string[]): string {
  const given = givenFlags(argv)
  if (given.size === 0) return hint
  return hint.replace(/`proposer ([a-z][^`]*)`/g, (_whole, command: string) => {
    const named = new Set(command.match(/--[a-z-]+/g) ?? [])
    const isLocal = localVerbs.has(command.split(' ', 1)[0] ?? '')
    const namesGateway = named.has('--gateway') || named.has('--local')
    const added = kept.filter(
      (flag) =>
        given.has(flag) &&
        !named.has(`--${flag}`) &&
        !(namesGateway && (flag === 'gateway' || flag === 'local')) &&
        !(isLocal && flag !== 'home' && flag !== 'profile'),
    )
    const flags = added.map((flag) => ` --${flag} ${shown(flag, given.get(flag) ?? '')}`).join('')
    return `\`proposer ${command}${flags}\``
  })
}

function givenFlags(argv: readonly string[]): ReadonlyMap<Kept, string> {
  const found = new Map<Kept, string>()
  for (let index = 0; index < argv.length; index++) {
    const argument = argv[index] ?? ''
    if (argument === '--') break
    for (const flag of kept) {
      const next = argv[index + 1]
      if (argument === `--${flag}` && next !== undefined) found.set(flag, next)
      else if (argument.startsWith(`--${flag}=`)) found.set(flag, argument.slice(flag.length + 3))
    }
  }
  return found
}

/**
 * What a URL has beyond its host may be a credential (R5): then it is for the user to put in again.
 */
function shown(flag: Kept, value: string): string {
  if (flag !== 'gateway' && flag !== 'rpc-url') return shellWord(value)
  return publicUrl(value) === value.replace(/\/$/, '') ? shellWord(value) : '<url>'
}
