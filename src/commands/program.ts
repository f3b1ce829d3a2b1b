import { stripVTControlCharacters } from 'node:util'
import {
  type Argument,
  Command,
  CommanderError,
  Help,
  type HelpConfiguration,
  type Option,
} from 'commander'
import { UsageError } from '#protocol/errors'
import { programVersion } from '#protocol/version'
import type { Context } from './terminal/context.js'
import { noLine } from './terminal/output.js'
import { fold, foldHelp, glue } from './terminal/render.js'
import { addEveryFlag, givenIn, standInOf } from './terminal/verb.js'
import { verbs } from './verbs.js'

/** They stay running: what they tell meanwhile is for logs, also beside JSON. */
const foregroundVerbs = new Set(['demo', 'serve', 'devchain'])

export async function runVerb(given: readonly string[], context: Context) {
  const asked = given[0] === 'help' ? [...given.slice(1), '--help'] : given
  const { word: name } = givenIn(asked)
  const isKnown = name !== undefined && Object.hasOwn(verbs, name)
  const isForeground = isKnown && foregroundVerbs.has(name)
  // Help asked for before the verb is that of the program: it lists all.
  const isAlone = isKnown && asked[0] === name
  const program = await programOf(
    isForeground ? context : forPrograms(context),
    name,
    false,
    isAlone,
  )
  if (given.join(' ') === 'help flags') return context.output.text(flagsText(program, context))
  if (name === undefined && context.output.isForPeople) {
    program.action(async () => (await import('./doctor.js')).showNextSteps(context, program.opts()))
  }
  layOut(program, columnsOf(context), context.output.paint.bold)
  const refused = capture(program, context)
  program.hook('preAction', (_program, asked) => requireOneForm(asked, context))
  try {
    // A mistyped command is reported as such, whatever was asked of it.
    await program.parseAsync(name === undefined || isKnown ? asked : [name], { from: 'user' })
  } catch (error) {
    if (!(error instanceof CommanderError)) throw error
    if (error.exitCode !== 0) throw await usage(context, error, refused)
  }
}

/** The verb of this name, with all it has; without one all, by their summaries. */
export async function programOf(
  context: Context,
  name = '',
  isWhole = false,
  isAlone = Object.hasOwn(verbs, name),
) {
  const program = createProgram()
  for (const [other, { heading, summary, load }] of Object.entries(verbs)) {
    if (isAlone && other !== name) continue
    const command =
      isWhole || other === name
        ? (await load())(context)
        : new Command(other).description(summary).helpGroup(`${heading}:`)
    program.addCommand(command.summary(summary), { hidden: other === 'version' })
  }
  return program
}

export async function wholeProgram(context: Context) {
  const program = await programOf(context, undefined, true)
  layOut(program, 80)
  return program
}

function requireOneForm(asked: Command, { output }: Context) {
  if (asked.opts().csv !== true || output.isForPeople) return
  const other = output.isByLine ? '--ndjson' : output.jsonErrors ? '--json' : '--field'
  throw new UsageError(
    'usage',
    `--csv and ${other} cannot both use stdout`,
    'leave one of them out',
  )
}

function layOut(command: Command, columns: number, bold = (title: string) => title) {
  command
    .configureHelp({ ...helpLayout(bold), ...command.configureHelp(), helpWidth: columns })
    .helpOption('-h, --help', 'print help')
  for (const child of command.commands) layOut(child, columns, bold)
}

/** With --json and no terminal stderr is the error alone, to be parsed whole (contract §6). */
function forPrograms(context: Context) {
  const { output } = context
  if (output.isForPeople || output.notesAreTerminal) return context
  return {
    ...context,
    output: {
      ...output,
      note: () => undefined,
      countdown: () => undefined,
      progress: () => noLine,
      mark: () => undefined,
    },
  }
}

function createProgram() {
  const program = new Command('proposer')
    .description('Propose answers to oracle questions, and run the gateway that executes them.')
    .version(programVersion, '-V, --version', 'print the version')
    .helpCommand(false)
    .usage('<command> [arguments] [flags]')
    .configureHelp({
      visibleOptions: () => [],
      formatItemList: (heading, items, help) =>
        items.length === 0 ? [] : [help.styleTitle(heading), ...items],
    })
  addEveryFlag(program)
  return program.addHelpText(
    'after',
    `\n
Flags and examples:      proposer <command> --help
Flags of every command:  proposer help flags`,
  )
}

function flagsText(program: Command, context: Context) {
  layOut(program, columnsOf(context))
  const help = program.createHelp()
  help.prepareContext({ helpWidth: columnsOf(context) })
  const width = termColumn(
    program.options.map((option) => option.flags),
    columnsOf(context),
  )
  const items = program.options.map((option) =>
    help.formatItem(option.flags, width, option.description, help),
  )
  return `Flags of every command:\n${items.join('\n')}\n`
}

const columnsOf = ({ output }: Context) => Math.max(40, Math.min(output.columns, 100))

interface Refused {
  readonly said: string[]
  by: Command
}

/** What commander prints goes where ours goes; what it refuses is thrown. */
function capture(command: Command, context: Context, found: Refused = { said: [], by: command }) {
  command
    .showSuggestionAfterError(false)
    .exitOverride((error) => {
      found.by = command
      throw error
    })
    .configureOutput({
      writeOut: (text) => context.output.text(foldHelp(text, columnsOf(context))),
      // Help shown for want of a subcommand is part of the refusal too; commander's first line is
      // what is wrong.
      writeErr: (text) => found.said.push(stripVTControlCharacters(text)),
      // Else commander asks node's streams, which loads them.
      getOutHelpWidth: () => 80,
      getErrHelpWidth: () => 80,
      getOutHasColors: () => true,
      getErrHasColors: () => true,
    })
  for (const child of command.commands) capture(child, context, found)
  return found
}

async function usage(context: Context, error: CommanderError, { said, by }: Refused) {
  // What stands for its parent is not what was typed.
  const { parent } = by
  const isUnnamed = parent !== null && standInOf(parent) === by && parent.args[0] !== by.name()
  const at = isUnnamed ? parent : by
  const path = pathOf(at)
  const help =
    path === '' ? 'run `proposer --help` for the commands' : `run \`proposer ${path} --help\``
  const isMissing = error.code === 'commander.help'
  if (isMissing && !context.output.jsonErrors)
    context.output.warn(foldHelp(said.join(''), columnsOf(context)))
  const [stray = ''] = by.args
  const isStray =
    error.code === 'commander.unknownCommand' ||
    (error.code === 'commander.excessArguments' && at.commands.length > 0)
  const words = isMissing
    ? `${path === '' ? 'proposer' : path} needs a subcommand`
    : isStray
      ? `unknown command '${stray}'`
      : (said[0] ?? error.message)
  const fault = words.replace(/^error: /, '').trim()
  const lacking = at.registeredArguments.find((each) => fault.endsWith(`argument '${each.name()}'`))
  const detail = lacking?.description ? `${fault}: ${lacking.description}` : fault
  if (error.code === 'commander.conflictingOption')
    return new UsageError('usage', detail, 'omit one of them')
  const guess = await guessOf(detail, at, stray)
  return new UsageError('usage', detail, { hint: guess === '' ? help : `${guess} Else ${help}` })
}

const pathOf = (command: Command): string =>
  command.parent === null ? '' : `${pathOf(command.parent)} ${command.name()}`.trim()

const meant: Readonly<Record<string, string>> = {
  propose: 'submit',
  send: 'submit',
  watch: 'poll',
  follow: 'poll',
  balance: 'funds',
  log: 'journal list',
  history: 'journal list',
  key: 'account',
  keys: 'account',
  wallet: 'account',
  setup: 'init',
  login: 'init',
  list: 'questions list',
  ls: 'questions list',
  lst: 'questions list',
  support: 'support-bundle',
  bundle: 'support-bundle',
}
/** Below a command. */
const alike = ['list ls lst', 'show get view', 'remove rm delete unset', 'new add create']

async function guessOf(detail: string, at: Command, stray: string) {
  const { didYouMean, nearest } = await import('#protocol/guess')
  const [, option] = /^unknown option '(--?[a-z-]+)/.exec(detail) ?? []
  const isStray = detail.startsWith('unknown command ')
  const instead = (await import('./dropped.js')).dropped[`${pathOf(at)} ${option ?? stray}`]
  if (instead !== undefined) return instead
  const [, given, choices] =
    /'([^']*)' is invalid\b.*Allowed choices are (.+)\.$/.exec(detail) ?? []
  if (given !== undefined && choices !== undefined)
    return didYouMean(nearest(given, choices.split(', ')))
  if (option !== undefined)
    return didYouMean(nearest(option.replace(/^-+/, ''), longNames(at)).map((name) => `--${name}`))
  if (!isStray) return ''
  const names = at.commands.map((command) => command.name())
  const row = alike.find((one) => one.split(' ').includes(stray))?.split(' ') ?? []
  const own = Object.hasOwn(meant, stray) ? [meant[stray] ?? ''] : []
  const usual = at.parent === null ? own : row
  const known = usual.filter((name) => names.includes(name.split(' ')[0] ?? ''))
  return didYouMean(known.length > 0 ? known : nearest(stray, names))
}

const longNames = (command: Command | null): readonly string[] =>
  command === null
    ? ['help']
    : [...(standInOf(command)?.options ?? []), ...command.options]
        .flatMap(({ long }) => long?.slice(2) ?? [])
        .concat(longNames(command.parent))

const widestTerm = 26

function termColumn(terms: readonly string[], columns: number) {
  const most = Math.min(widestTerm, Math.floor(columns * 0.4))
  return Math.max(0, ...terms.map(({ length }) => length).filter((length) => length <= most))
}

const titles: Readonly<Record<string, string>> = {
  'Options:': 'Flags:',
  'Global Options:': 'Flags of the whole group:',
}

function flagsOfAll(command: Command, columns: number) {
  let program = command
  while (program.parent !== null) program = program.parent
  if (program === command) return ''
  const names = program.options
    .filter(({ long }) => long !== '--version')
    .map(({ flags }) => flags.replace(', ', '|').replace(' ', glue))
  const list = fold(names.join(', '), columns - 2, '  ').replaceAll(glue, ' ')
  return `Flags of every command, described in \`proposer help flags\`:\n  ${list}\n`
}
function described({ description, argChoices, defaultValue }: Option | Argument) {
  const isShown = typeof defaultValue === 'string' || typeof defaultValue === 'number'
  return [
    description,
    ...(argChoices ? [`one of ${argChoices.join(', ')}`] : []),
    ...(isShown ? [`default: ${defaultValue}`] : []),
  ].join('; ')
}

const plain = new Help()
const helpLayout = (bold: (title: string) => string): HelpConfiguration => ({
  showGlobalOptions: true,
  styleTitle: (title) => bold(titles[title] ?? title),
  commandUsage: (command) => plain.commandUsage(command).replace('[options]', '[flags]'),
  subcommandTerm: (command) => plain.subcommandTerm(command).replace(' [options]', ''),
  visibleOptions: (command) => [
    ...(standInOf(command)?.options ?? []),
    ...plain.visibleOptions(command),
  ],
  visibleGlobalOptions(command) {
    const options = []
    for (let above = command.parent; above?.parent; above = above.parent)
      options.push(...above.options)
    return options
  },
  optionDescription: described,
  argumentDescription: described,
  padWidth(command, help) {
    const terms = [
      ...help.visibleArguments(command).map((one) => help.argumentTerm(one)),
      ...[...help.visibleOptions(command), ...help.visibleGlobalOptions(command)].map((one) =>
        help.optionTerm(one),
      ),
      ...help.visibleCommands(command).map((one) => help.subcommandTerm(one)),
    ]
    return termColumn(terms, help.helpWidth ?? 80)
  },
  formatItem(term, width, description, help) {
    if (description === '') return `  ${term}`
    const indent = ' '.repeat(width + 4)
    const lines = fold(description, (help.helpWidth ?? 80) - indent.length).replaceAll(
      '\n',
      `\n${indent}`,
    )
    return term.length <= width
      ? `  ${term.padEnd(width)}  ${lines}`
      : `  ${term}\n${indent}${lines}`
  },
  formatHelp(command, help) {
    const page = Help.prototype.formatHelp.call(help, command, help)
    const more = flagsOfAll(command, help.helpWidth ?? 80)
    return more === '' ? page : `${page}\n${more}`
  },
})
