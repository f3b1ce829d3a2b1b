/**
 * `proposer __complete …`: what could stand at the cursor, for the scripts that `completion`
 * prints. It asks no network, and is silent where something is amiss: a tab key is no place for an
 * error, and the command itself will tell it.
 */
import type { ExitCode } from '../../core/protocol/errors.js'
import { programWith } from '../program.js'
import type { GlobalFlags } from '../session/settings.js'
import type { Context } from '../terminal/context.js'
import {
  type ArgumentGrammar,
  type CommandGrammar,
  describe,
  type FlagGrammar,
  namesOf,
  placeholderOf,
} from './grammar.js'
import { replacement, splitLine } from './line.js'
import { type Kind, type Value, valuesOf } from './values.js'

/**
 * First line of an answer: values follow, or the shell completes names of files or folders itself.
 */
type Answer =
  | { readonly form: 'values'; readonly values: readonly Value[] }
  | { readonly form: 'files' | 'folders' }

/** More cannot be looked over; typing on narrows them. */
const maxValues = 200

/**
 * Writes the answer for one command line to stdout, one value a line, with what it is behind a tab
 * where the shell shows it. `argv` is the shell, then for bash its word breaks and the line up to
 * the cursor, for fish that line, for zsh the words up to the cursor. Always 0.
 */
export async function complete(argv: readonly string[], context: Context): Promise<ExitCode> {
  try {
    context.output.text(await answerTo(argv, context))
  } catch {
    // whatever it is, the command that is being typed will say so
  }
  return 0
}

async function answerTo([shell, ...given]: readonly string[], context: Context): Promise<string> {
  const [breaks = '', line = ''] = shell === 'bash' ? given : ['', ...given]
  const typed =
    shell === 'zsh'
      ? {
          words: given.slice(0, -1),
          current: { text: given.at(-1) ?? '', kept: '', quote: '' as const },
        }
      : splitLine(line, breaks, context.env)
  const answer = await candidates(typed.words.slice(1), typed.current.text, context)
  if (answer.form !== 'values') return `${answer.form}\n`
  const shown = new Map<string, string>()
  for (const { value, about } of answer.values) {
    if (shown.size === maxValues) break
    if (!value.startsWith(typed.current.text) || !isPlain(value) || shown.has(value)) continue
    const text =
      shell === 'bash'
        ? replacement(value, typed.current)
        : `${value}\t${isPlain(about) ? about : ''}`
    if (text !== undefined) shown.set(value, text)
  }
  return ['values', ...shown.values(), ''].join('\n')
}

/** Text without anything that acts on a terminal or ends a line (R20). */
const isPlain = (text: string) => !/[\p{C}\p{Zl}\p{Zp}]/u.test(text)

interface Place {
  readonly path: readonly string[]
  /** From the program down to the command that is being typed. */
  readonly lineage: readonly CommandGrammar[]
  readonly positionals: number
  /** The flag whose value comes next. */
  readonly waiting: FlagGrammar | undefined
  readonly flagsEnded: boolean
  /** Of those that say where things lie. */
  readonly settings: GlobalFlags
}

async function candidates(
  words: readonly string[],
  current: string,
  context: Context,
): Promise<Answer> {
  const asked = words[0] === 'help' ? words.slice(1) : words
  const grammar = describe(await programWith(context, asked))
  const place = placeAfter(asked, grammar)
  const path = place.path.join(' ')
  const inline = place.waiting || place.flagsEnded ? null : /^(--[^=]+)=/.exec(current)
  if (place.waiting)
    return valueAnswer(
      placeholderOf(place.waiting) ?? '',
      namesOf(place.waiting).at(-1) ?? '',
      place.waiting.choices,
    )
  if (inline) {
    const flag = flagNamed(withDefault(place.lineage), inline[1] ?? '')
    const answer = await valueAnswer(
      flag === undefined ? '' : (placeholderOf(flag) ?? ''),
      inline[1] ?? '',
      flag?.choices,
    )
    if (answer.form !== 'values') return answer
    return {
      form: 'values',
      values: answer.values.map(({ value, about }) => ({ value: `${inline[0]}${value}`, about })),
    }
  }
  if (current.startsWith('-') && !place.flagsEnded) return flagAnswer(place.lineage)
  const command = place.lineage.at(-1) ?? grammar
  const children = place.positionals === 0 ? Object.entries(command.commands) : []
  if (children.length > 0)
    return {
      form: 'values',
      values: children.map(([value, { summary }]) => ({ value, about: summary })),
    }
  const taken = argumentAt(command, place.positionals)
  if (taken) return valueAnswer(taken.name, path, taken.choices)
  return place.flagsEnded ? { form: 'values', values: [] } : flagAnswer(place.lineage)

  async function valueAnswer(
    placeholder: string,
    of: string,
    choices?: readonly string[],
  ): Promise<Answer> {
    if (choices)
      return { form: 'values', values: choices.map((value) => ({ value, about: placeholder })) }
    const parts = placeholder.split('|')
    if (parts.some((part) => fileWords.has(part))) return { form: 'files' }
    if (parts.some((part) => folderWords.has(part))) return { form: 'folders' }
    const kind = parts
      .map((part) => kindByPlace[`${of} ${part}`] ?? kindByWord[part])
      .find((one) => one !== undefined)
    const typed = current.slice(inline?.[0].length ?? 0)
    if (kind !== undefined)
      return { form: 'values', values: await valuesOf(kind, context, place.settings, typed) }
    // `p1|p2|p3` spells out its values; a word alone, or an amount, stands for something.
    const spelled = parts.length > 1 ? parts.filter((part) => part !== 'raw') : []
    return { form: 'values', values: spelled.map((value) => ({ value, about: of })) }
  }
}

const fileWords = new Set(['file', 'file.json', 'script.json', 'gateway.json', 'payload'])
const folderWords = new Set(['dir', 'folder'])
const kindByWord: Readonly<Record<string, Kind>> = {
  identifier: 'identifiers',
  slug: 'identifiers',
  'candidate-id': 'candidates',
  'journal-id': 'open',
  key: 'keys',
}
/** Where the word alone does not tell. */
const kindByPlace: Readonly<Record<string, Kind>> = {
  '--account name': 'accounts',
  '--executor-account name': 'accounts',
  'account show name': 'accounts',
  '--profile name': 'profiles',
  '--question id': 'identifiers',
  'journal show id': 'journal',
  'replay journal-id': 'unsent',
}

function placeAfter(words: readonly string[], grammar: CommandGrammar): Place {
  const settings: Record<string, string> = {}
  const path: string[] = []
  let lineage: readonly CommandGrammar[] = [grammar]
  let positionals = 0
  let waiting: FlagGrammar | undefined
  let flagsEnded = false
  const keep = (flag: FlagGrammar, value: string) => {
    const name = namesOf(flag).at(-1)?.slice(2) ?? ''
    if (name === 'home' || name === 'profile' || name === 'trust') settings[name] = value
  }
  for (const word of words) {
    if (waiting) {
      keep(waiting, word)
      waiting = undefined
    } else if (flagsEnded || !word.startsWith('-') || word === '-') {
      const child =
        positionals === 0 && Object.hasOwn(lineage.at(-1)?.commands ?? {}, word)
          ? lineage.at(-1)?.commands[word]
          : undefined
      if (child) {
        lineage = [...lineage, child]
        path.push(word)
      } else positionals++
    } else if (word === '--') flagsEnded = true
    else {
      const [name = '', value] = splitAt(word, '=')
      const flag = flagNamed(withDefault(lineage), name)
      if (flag === undefined || placeholderOf(flag) === undefined) continue
      if (value === undefined) waiting = flag
      else keep(flag, value)
    }
  }
  return { path, lineage, positionals, waiting, flagsEnded, settings }
}

/** With the command that the last one stands for where none below it is named. */
function withDefault(lineage: readonly CommandGrammar[]): readonly CommandGrammar[] {
  const last = lineage.at(-1)
  const child = last?.alone === undefined ? undefined : last.commands[last.alone]
  return child === undefined ? lineage : [...lineage, child]
}

function splitAt(word: string, mark: string): readonly [string, string?] {
  const at = word.indexOf(mark)
  return at < 0 ? [word] : [word.slice(0, at), word.slice(at + 1)]
}

function argumentAt({ takes }: CommandGrammar, position: number): ArgumentGrammar | undefined {
  const last = takes.at(-1)
  return takes[position] ?? (last?.variadic === true ? last : undefined)
}

const flagNamed = (lineage: readonly CommandGrammar[], name: string) =>
  lineage.flatMap(({ flags }) => flags).find((flag) => namesOf(flag).includes(name))

/** The command's own before those of every command. */
function flagAnswer(lineage: readonly CommandGrammar[]): Answer {
  const own = [...withDefault(lineage)].reverse().flatMap(({ flags }) => flags)
  const values = own.flatMap((flag) =>
    namesOf(flag).map((value) => ({ value, about: flag.summary })),
  )
  return { form: 'values', values: [...values, { value: '--help', about: 'print help' }] }
}
