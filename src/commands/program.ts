/**
 * The commander tree: every verb by name and summary, of which only the one asked for is loaded.
 */
import { Command, CommanderError } from 'commander'
import { UsageError } from '../core/protocol/errors.js'
import { programVersion } from '../core/protocol/version.js'
import type { Context } from './terminal/context.js'
import { foldHelp, helpLayout, termColumn } from './terminal/help-layout.js'
import { addEveryFlag, takesValue } from './terminal/verb.js'
import { verbs } from './verbs.js'

/** They stay running: what they tell meanwhile is for logs, also beside JSON. */
const foregroundVerbs = new Set(['demo', 'serve', 'devchain'])

/**
 * Parses argv and runs the verb. Throws what the verb throws, and UsageError for what commander
 * refuses.
 */
export async function runVerb(given: readonly string[], context: Context): Promise<void> {
  if (given.length === 0) return (await import('./next-steps.js')).showNextSteps(context, {}, given)
  const asked = given[0] === 'help' ? [...given.slice(1), '--help'] : given
  const name = verbIn(asked)
  // Help is for what is there: a mistyped command is reported as such, whatever was asked of it.
  const argv = name === undefined || Object.hasOwn(verbs, name) ? asked : [name]
  const verb = name === undefined || !Object.hasOwn(verbs, name) ? undefined : verbs[name]
  const program = createProgram()
  if (!verb) program.configureHelp({ visibleOptions: () => [] })
  // Flags alone say whose next steps are asked for; the page is no document.
  if (name === undefined && context.output.mode === 'human') {
    program.action(async () =>
      (await import('./next-steps.js')).showNextSteps(context, program.opts(), given),
    )
  }
  if (verb) {
    const isForeground = foregroundVerbs.has(name ?? '')
    program.addCommand((await verb.load())(isForeground ? context : forPrograms(context)))
  } else
    for (const [other, { summary }] of Object.entries(verbs))
      program.command(other).summary(summary).description(summary)
  const refusals: string[] = []
  layOut(program, columnsOf(context))
  capture(program, context, refusals)
  program.hook('preAction', (_program, asked) => requireOneForm(asked, context))
  try {
    await program.parseAsync([...argv], { from: 'user' })
  } catch (error) {
    if (!(error instanceof CommanderError)) throw error
    if (error.exitCode !== 0) throw await usage(context, error, refusals, placeIn(program, argv))
  }
}

/** UsageError `usage` where stdout is to be a sheet and a document at once. */
function requireOneForm(asked: Command, { output: { mode, jsonErrors } }: Context): void {
  if (asked.opts().csv !== true || mode === 'human') return
  const other = jsonErrors ? `--${mode}` : '--field'
  throw new UsageError(
    'usage',
    `--csv and ${other} cannot both use stdout`,
    'leave one of them out',
  )
}

/** The program as a tab key needs it: of its commands, only the one that `argv` names is loaded. */
export async function programWith(context: Context, argv: readonly string[]): Promise<Command> {
  const program = createProgram()
  const asked = verbIn(argv)
  for (const [name, { summary, load }] of Object.entries(verbs)) {
    program.addCommand(
      (name === asked ? (await load())(context) : new Command(name)).summary(summary),
    )
  }
  return program
}

/** The program with every command loaded, for those who look at all of them. */
export async function wholeProgram(context: Context): Promise<Command> {
  const program = createProgram()
  for (const { load, summary } of Object.values(verbs))
    program.addCommand((await load())(context).summary(summary))
  layOut(program, 80)
  return program
}

function layOut(command: Command, columns: number): void {
  command
    .configureHelp({ ...helpLayout, ...command.configureHelp(), helpWidth: columns })
    .helpOption('-h, --help', 'print help')
  for (const child of command.commands) layOut(child, columns)
}

/**
 * With --json and no terminal stderr carries the error and nothing beside it (contract §6), so that
 * a program may parse the whole.
 */
function forPrograms(context: Context): Context {
  const { output } = context
  if (output.mode === 'human' || output.notesAreTerminal) return context
  const silent = { update: () => undefined, stop: () => undefined }
  return {
    ...context,
    output: {
      ...output,
      note: () => undefined,
      countdown: () => undefined,
      progress: () => silent,
    },
  }
}

/** The first operand; a flag's value is none. */
function verbIn(argv: readonly string[]): string | undefined {
  for (let index = 0; index < argv.length; index++) {
    const argument = argv[index] ?? ''
    if (argument === '--') return undefined
    if (!argument.startsWith('-')) return argument
    if (takesValue.has(argument)) index++
  }
  return undefined
}

interface Place {
  /**
   * The verb and its subverbs as far as they are known, `operator candidates reject`; empty where
   * the verb is not.
   */
  readonly path: string
  /** The first operand behind them. */
  readonly stray: string | undefined
  /** What could stand there. */
  readonly subverbs: readonly string[]
  /** The stray stands where a subverb would, of a verb with a default one. */
  readonly isUnknown: boolean
}

function placeIn(program: Command, argv: readonly string[]): Place {
  let lineage: readonly Command[] = [program]
  let stray: string | undefined
  for (let index = 0; index < argv.length; index++) {
    const argument = argv[index] ?? ''
    if (argument === '--') break
    if (argument.startsWith('-')) {
      const option = lineage
        .flatMap(({ options }) => options)
        .find(({ long, short }) => argument === long || argument === short)
      if (option?.required === true) index++
      continue
    }
    const child = lineage.at(-1)?.commands.find((command) => command.name() === argument)
    if (child === undefined) {
      stray = argument
      break
    }
    lineage = [...lineage, child]
  }
  const names = lineage.slice(1).map((command) => command.name())
  return {
    path: names.join(' '),
    stray,
    subverbs: lineage.at(-1)?.commands.map((command) => command.name()) ?? [],
    isUnknown: stray !== undefined && (lineage.at(-1)?.commands.length ?? 0) > 0,
  }
}

function createProgram(): Command {
  const program = new Command('proposer')
    .description(
      'Propose answers to oracle questions: sign, submit, follow. And run the gateway that executes them.',
    )
    .version(programVersion, '-V, --version', 'print the version')
    .helpCommand(false)
    .usage('<command> [arguments] [flags]')
  addEveryFlag(program)
  return program.addHelpText('after', () => `\n${flagsText(program)}\n\n${nextText}`)
}

const nextText = `See it work first:   proposer demo
Flags and examples:  proposer <command> --help`

/** Flags stand behind the commands: what can be done comes first. */
function flagsText(program: Command): string {
  const help = program.createHelp()
  const { helpWidth = 80 } = program.configureHelp()
  help.prepareContext({ helpWidth })
  const width = termColumn(
    program.options.map((option) => option.flags),
    helpWidth,
  )
  return help
    .formatItemList(
      'Flags of every command:',
      program.options.map((option) =>
        help.formatItem(option.flags, width, option.description, help),
      ),
      help,
    )
    .join('\n')
    .trimEnd()
}

/**
 * Lines longer than 100 are hard to read, and on a terminal that small nothing fits beside
 * anything.
 */
const columnsOf = ({ output }: Context) => Math.max(40, Math.min(output.columns, 100))

/**
 * What commander prints goes where our results and errors go; what it refuses is thrown, never an
 * exit.
 */
function capture(command: Command, context: Context, refusals: string[]): void {
  command
    .exitOverride()
    .showSuggestionAfterError(true)
    .configureOutput({
      writeOut: (text) => context.output.text(foldHelp(text, columnsOf(context))),
      // Help shown for want of a subcommand is part of the refusal too; commander's first line is
      // what is wrong.
      writeErr: (text) => refusals.push(text),
      // Else commander asks node's streams, which loads them. The width is given above, and help
      // has no colours to take out.
      getOutHelpWidth: () => 80,
      getErrHelpWidth: () => 80,
      getOutHasColors: () => true,
      getErrHasColors: () => true,
    })
  for (const child of command.commands) capture(child, context, refusals)
}

async function usage(
  context: Context,
  error: CommanderError,
  refusals: readonly string[],
  place: Place,
): Promise<UsageError> {
  const help =
    place.path === ''
      ? 'run `proposer --help` for the commands'
      : `run \`proposer ${place.path} --help\``
  // Without a subcommand commander prints its help as the error.
  const missing = error.code === 'commander.help'
  if (missing && !context.output.jsonErrors)
    context.output.warn(foldHelp(refusals.join(''), columnsOf(context)))
  const [, one, other] =
    /^error: option '(?:-\w, )?(--[\w-]+).*' cannot be used with option '(?:-\w, )?(--[\w-]+)/.exec(
      refusals[0] ?? '',
    ) ?? []
  if (one !== undefined)
    return new UsageError(
      'usage',
      `${one} and ${other} cannot be used together`,
      'omit one of them',
    )
  const said = missing
    ? `${place.path === '' ? 'proposer' : place.path} needs a subcommand`
    : error.code === 'commander.excessArguments' && place.isUnknown
      ? `unknown command '${place.stray ?? ''}'`
      : (refusals[0] ?? error.message)
  const [detail = '', ...suggestion] = said
    .replace(/^error: /, '')
    .trim()
    .split('\n')
  const theirs = suggestion.map((line) => line.replace(/^\((.*)\)$/, '$1')).join(' ')
  const guess = (await ownGuess(context, error, detail, place)) || theirs
  const hint = guess === '' ? help : `${guess} Else ${help}`
  return new UsageError('usage', detail, { hint })
}

/** What other tools call it. */
const meant: Readonly<Record<string, string>> = {
  propose: 'submit',
  wallet: 'account',
  setup: 'init',
  login: 'init',
  list: 'questions list',
  ls: 'questions list',
  support: 'support-bundle',
  bundle: 'support-bundle',
}

/**
 * What commander does not see: a subverb without its verb, a subverb where there is a default one,
 * a value that is no choice.
 */
async function ownGuess(
  context: Context,
  { code }: CommanderError,
  detail: string,
  { path, stray, subverbs }: Place,
): Promise<string> {
  const [, flag = stray] = /^unknown option '(--[a-z-]+)/.exec(detail) ?? []
  const instead = (await import('./dropped.js')).dropped[`${path} ${flag}`]
  if (instead !== undefined) return instead
  if (/^unknown option '--(safe|as-owner|parts)/.test(detail)) return ofSafe(path)
  const { didYouMean, nearest } = await import('../core/protocol/guess.js')
  const [, given, choices] =
    /'([^']*)' is invalid\b.*Allowed choices are (.+)\.$/.exec(detail) ?? []
  if (given !== undefined && choices !== undefined)
    return didYouMean(nearest(given, choices.split(', ')))
  if (stray === undefined) return ''
  if (code === 'commander.excessArguments') return didYouMean(nearest(stray, subverbs))
  if (code !== 'commander.unknownCommand' || path !== '') return ''
  if (Object.hasOwn(meant, stray)) return didYouMean([meant[stray] ?? ''])
  return didYouMean(pathsTo(stray, await wholeProgram(context)))
}

/** Which command a Safe has in the place of one that knows none. */
const ofSafe = (path: string): string =>
  /^(funds|revoke|payouts)/.test(path)
    ? 'A Safe sends its transactions itself: name it with --proposer, and add --print for the calldata.'
    : 'Owners of a Safe sign one document at a time: `proposer sign <identifier> --outcome <answer> --safe <address> --as-owner`.'

/** Paths of the commands below the top that have this name: `operator candidates`. */
const pathsTo = (name: string, command: Command, before: readonly string[] = []): string[] =>
  command.commands.flatMap((child) => {
    const path = [...before, child.name()]
    const isIt = child.name() === name && before.length > 0
    return [...(isIt ? [path.join(' ')] : []), ...pathsTo(name, child, path)]
  })
