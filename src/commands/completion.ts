/**
 * `completion`: the script of a shell, and what it asks as `proposer __complete …`, so that it
 * never grows old (contract §6). That asks no network, and is silent where something is amiss: the
 * command itself will tell.
 */

import type { Command, Option } from 'commander'
import { type JournaledAuthorization, stateOf } from '#client/journal/authorizations'
import { openJournal } from '#client/journal/journal'
import { accountNames } from '#io/accounts'
import type { ExitCode } from '#protocol/errors'
import { visible } from '#protocol/text'
import {
  type GlobalFlags,
  keyNames,
  knownProfiles,
  preferenceTree,
  resolveSettings,
  type Settings,
} from './session/settings.js'
import type { Context } from './terminal/context.js'
import { givenIn, standInOf, verb } from './terminal/verb.js'

export const shells = ['bash', 'zsh', 'fish'] as const
export type Shell = (typeof shells)[number]

/** Asked by the name it was typed with: a copy in a project's folder completes itself. */
const bash = `# Completion of proposer for bash 4 and later.
# This shell:   source <(proposer completion bash)
# Every shell:  proposer completion bash > ~/.local/share/bash-completion/completions/proposer
_proposer() {
  local form value word glue='' words=() typed=\${COMP_WORDS[COMP_CWORD]}
  # readline may break words at = and at :, which the program is to see whole
  for word in "\${COMP_WORDS[@]:0:COMP_CWORD+1}"; do
    if [[ -n $word && ( -n $glue || -z \${word//[=:]/} ) ]]; then
      words[\${#words[@]}-1]+=$word
    else
      words+=("$word")
    fi
    [[ -n $word && -z \${word//[=:]/} ]] && glue=1 || glue=''
  done
  [[ -z \${typed//[=:]/} ]] && typed=''
  # what stands before the break is kept by readline
  local kept=\${words[\${#words[@]}-1]%"$typed"}
  COMPREPLY=()
  {
    read -r form
    case $form in
      files) compopt -o default ;;
      folders) compopt -o filenames -o dirnames ;;
      values) while IFS= read -r value; do COMPREPLY+=("\${value#"$kept"}"); done ;;
    esac
  } < <("\${1/#\\~\\//$HOME/}" __complete bash "\${words[@]}" 2>/dev/null)
}
complete -o nosort -F _proposer proposer 2>/dev/null || complete -F _proposer proposer
`

const zsh = `#compdef proposer
# Completion of proposer for zsh.
# This shell:   source <(proposer completion zsh)
# Every shell:  proposer completion zsh > a folder of $fpath, as _proposer
_proposer() {
  local -a lines values
  local line value
  lines=("\${(@f)$("\${(Q)words[1]/#\\~\\//$HOME/}" __complete zsh "\${(@Q)words[1,CURRENT-1]}" "\${(Q)PREFIX}" 2>/dev/null)}")
  case $lines[1] in
    files) _files ;;
    folders) _files -/ ;;
    values)
      for line in "\${(@)lines[2,-1]}"; do
        value=\${line%%$'\\t'*}
        value=\${value//\\\\/\\\\\\\\}
        values+=("\${value//:/\\\\:}:\${line#*$'\\t'}")
      done
      _describe -V -t values value values
      ;;
  esac
}
if [[ $funcstack[1] == _proposer ]]; then
  _proposer "$@"
else
  (( $+functions[compdef] )) || { autoload -Uz compinit && compinit }
  compdef _proposer proposer
fi
`

const fish = `# Completion of proposer for fish 3 and later.
# Every shell:  proposer completion fish > ~/.config/fish/completions/proposer.fish
function __proposer_complete
  set -l lines (command proposer __complete fish (commandline -opc) (commandline -ct) 2>/dev/null)
  switch "$lines[1]"
    case files
      __fish_complete_path (commandline -ct)
    case folders
      __fish_complete_directories (commandline -ct) ''
    case values
      string join \\n -- $lines[2..-1]
  end
end
complete -c proposer -f -k -a '(__proposer_complete)'
`

export const scripts: Readonly<Record<Shell, string>> = { bash, zsh, fish }

export const completionCommand = verb({
  name: 'completion',
  about:
    'generate a completion script for commands, flags, accounts and ids; reads this machine only, no network',
  args: { '<shell>': { about: 'which shell', choices: shells } },
  examples: [
    'completion bash > ~/.local/share/bash-completion/completions/proposer',
    `completion zsh > "\${fpath[1]}/_proposer"`,
    'completion fish > ~/.config/fish/completions/proposer.fish',
    'source <(proposer completion bash)    # this shell alone',
  ],
  run({ output }, _flags, { shell }) {
    const script = scripts[shell]
    output.show('completion', { shell, script }, [() => script.replace(/\n$/, '')])
  },
})

const maxValues = 200

type LoadProgram = (context: Context, verb: string | undefined) => Promise<Command>

/** The form, then one value a line, with what it is behind a tab. */
export async function complete(
  argv: readonly string[],
  context: Context,
  load: LoadProgram,
): Promise<ExitCode> {
  try {
    context.output.text(await answerTo(argv, context, load))
  } catch {
    // whatever it is, the command that is being typed will say so
  }
  return 0
}

async function answerTo(
  [shell, _program, ...typed]: readonly string[],
  context: Context,
  load: LoadProgram,
) {
  // A script of an earlier version hands over the line in one piece.
  if (typed.length === 0) return ''
  const words = shell === 'zsh' ? typed : typed.map((word) => bare(word, context.env.HOME))
  const current = words.pop() ?? ''
  const asked = words[0] === 'help' ? words.slice(1) : words
  const program = await load(context, givenIn(asked).word)
  const answer = await answerAt(placeAfter(asked, program), current, context)
  if (typeof answer === 'string') return `${answer}\n`
  const shown = new Map<string, string>()
  for (const [value, about] of answer)
    if (shown.size < maxValues && value.startsWith(current) && isPlain(value))
      shown.set(value, shell === 'bash' ? value : `${value}\t${visible(about)}`)
  return ['values', ...shown.values(), ''].join('\n')
}

/** As it was typed, without quotes; bash and fish hand it over so. */
const bare = (word: string, home = '~') =>
  word.replace(/^~(?=\/)/, () => home).replace(/\\(.)|["']/gs, '$1')

/** No shell reads more into it. */
const isPlain = (value: string) => /^[\w./:=@%+,-]+$/.test(value)

function placeAfter(words: readonly string[], program: Command) {
  const settings: Record<string, string> = {}
  const lineage: [Command, ...Command[]] = [program]
  let [positionals, flagsEnded] = [0, false]
  let waiting: Option | undefined
  const keep = ({ long }: Option, value: string) => {
    if (/^--(home|profile|trust)$/.test(long ?? '')) settings[long?.slice(2) ?? ''] = value
  }
  for (const word of words) {
    if (waiting) {
      keep(waiting, word)
      waiting = undefined
    } else if (flagsEnded || !word.startsWith('-') || word === '-') {
      const child =
        positionals === 0 ? lineage.at(-1)?.commands.find((one) => one.name() === word) : undefined
      if (child) lineage.push(child)
      else positionals++
    } else if (word === '--') flagsEnded = true
    else {
      const [, name = '', value] = /^([^=]*)(?:=(.*))?$/s.exec(word) ?? []
      const flag = flagNamed(lineage, name)
      if (flag === undefined || placeholderOf(flag) === '') continue
      if (value === undefined) waiting = flag
      else keep(flag, value)
    }
  }
  return { lineage, positionals, waiting, flagsEnded, settings }
}

const flagsOf = (lineage: readonly Command[]) =>
  [...lineage, ...lineage.slice(-1).flatMap((last) => standInOf(last) ?? [])]
    .reverse()
    .flatMap(({ options }) => options.filter(({ hidden }) => !hidden))

const namesOf = ({ short, long }: Option) => [short ?? [], long ?? []].flat()
const flagNamed = (lineage: readonly Command[], name: string) =>
  flagsOf(lineage).find((flag) => namesOf(flag).includes(name))
const placeholderOf = ({ flags }: Option) => /[<[](.+?)[>\]]$/.exec(flags)?.[1] ?? ''

type Value = readonly [value: string, about: string]
type Answer = readonly Value[] | 'files' | 'folders'

async function answerAt(
  { lineage, positionals, waiting, flagsEnded, settings }: ReturnType<typeof placeAfter>,
  typed: string,
  context: Context,
): Promise<Answer> {
  const last = lineage.at(-1) ?? lineage[0]
  const valuesAt = async (
    word: string,
    of: string,
    choices: readonly string[] | undefined,
  ): Promise<Answer> =>
    choices?.map((value): Value => [value, word]) ??
    valuesOf(word, of, async () => ({
      context,
      settings: await resolveSettings(context, settings as GlobalFlags),
    }))
  const ofFlag = async (flag: Option | undefined) =>
    flag ? valuesAt(placeholderOf(flag), flag.long ?? '', flag.argChoices) : []
  if (waiting) return ofFlag(waiting)
  const [inline, name = ''] = (flagsEnded ? null : /^(--[^=]+)=/.exec(typed)) ?? []
  if (inline !== undefined) {
    const answer = await ofFlag(flagNamed(lineage, name))
    return typeof answer === 'string'
      ? answer
      : answer.map(([value, about]) => [`${inline}${value}`, about])
  }
  const flags = [
    ...flagsOf(lineage).flatMap((flag) =>
      namesOf(flag).map((value): Value => [value, flag.description]),
    ),
    ['--help', 'print help'] as const,
  ]
  if (typed.startsWith('-') && !flagsEnded) return flags
  if (positionals === 0 && last.commands.length > 0)
    return last.commands.map((child) => [child.name(), child.summary() || child.description()])
  const operands = last.registeredArguments
  const operand = operands[positionals] ?? operands.findLast(({ variadic }) => variadic)
  if (operand === undefined) return flagsEnded ? [] : flags
  const path = lineage.slice(1).map((command) => command.name())
  return valuesAt(operand.name(), path.join(' '), operand.argChoices)
}

/** `word` stands for it in the help, as `name` or `p1|p2|p3`; `of`: its flag or command. */
async function valuesOf(word: string, of: string, home: () => Promise<Home>): Promise<Answer> {
  const parts = word.split('|')
  for (const part of parts) {
    const source = sources[`${of} ${part}`] ?? sources[part]
    if (source !== undefined) return source(await home())
    if (fileWords.has(part)) return 'files'
    if (folderWords.has(part)) return 'folders'
  }
  // `p1|p2|label` spells out its values; a word alone stands for something.
  const spelled = parts.length > 1 ? parts.filter((part) => !standIns.has(part)) : []
  return spelled.map((value) => [value, of])
}

const standIns = new Set(['raw', 'amount', 'label', 'id', 'slug', 'identifier', 'url'])
const fileWords = new Set(['file', 'file.json', 'script.json', 'gateway.json', 'payload'])
const folderWords = new Set(['dir', 'folder'])

type Home = { readonly context: Context; readonly settings: Settings }
type Source = (home: Home) => Promise<readonly Value[]>

const keystores: Source = async ({ context: { files }, settings: { home } }) =>
  (await accountNames(files, home.value)).map((name) => [name, 'keystore'])

const profiles: Source = async ({ context, settings: { home } }) => {
  const tree = await preferenceTree(context, home.value)
  const names = await knownProfiles(context, home.value, tree)
  return names.map((name) => [name, 'profile'])
}

type State = ReturnType<typeof stateOf>['kind']
const ofJournal =
  (idsOf: (one: JournaledAuthorization, state: State) => readonly (string | undefined)[]): Source =>
  async ({ context, settings: { home } }) =>
    (await openJournal(context, home.value).load()).authorizations.toReversed().flatMap((one) => {
      const state = stateOf(one, context.clock.nowMs())
      const about = `${one.signed.identifier} ${state.kind === 'closed' ? state.reason : state.kind}`
      return idsOf(one, state.kind).flatMap((value): Value[] =>
        value === undefined ? [] : [[value, about]],
      )
    })

const sources: Readonly<Record<string, Source>> = {
  'candidate-id': ofJournal(({ candidateId }) => [candidateId]),
  'journal-id': ofJournal(({ id }, state) => (state === 'closed' ? [] : [id])),
  'journal show id': ofJournal(({ id, candidateId }) => [id, candidateId]),
  'replay journal-id': ofJournal(({ id }, state) =>
    state === 'unknown' || state === 'deferred' ? [id] : [],
  ),
  key: async () => keyNames.map((key) => [key, 'setting']),
  '--account name': keystores,
  '--executor-account name': keystores,
  'account show name': keystores,
  '--profile name': profiles,
}
