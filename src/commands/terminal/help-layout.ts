/** How help looks: nothing wider than the terminal, no word broken. */
import { type Argument, type Command, Help, type HelpConfiguration, type Option } from 'commander'
import { fold } from './render.js'
import { standInOf } from './verb.js'

/** Longer terms stand on a line of their own, and push no other text aside. */
const widestTerm = 26

export function termColumn(terms: readonly string[], columns: number): number {
  const most = Math.min(widestTerm, Math.floor(columns * 0.4))
  return Math.max(0, ...terms.map(({ length }) => length).filter((length) => length <= most))
}

const titles: Readonly<Record<string, string>> = {
  'Options:': 'Flags:',
  'Global Options:': 'Flags of the whole group:',
}

function flagsOfAll(command: Command, columns: number): string {
  let program = command
  while (program.parent !== null) program = program.parent
  if (program === command) return ''
  const names = program.options
    .filter(({ long }) => long !== '--version')
    .map(({ flags }) => flags.replace(', ', '|').replace(' ', glue))
  const list = fold(names.join(', '), columns - 2, '  ').replaceAll(glue, ' ')
  return `Flags of every command, described in \`proposer help flags\`:\n  ${list}\n`
}
/** A no-break space: no text of ours has one. */
const glue = '\u00a0'

function described({ description, argChoices, defaultValue }: Option | Argument): string {
  const isShown = typeof defaultValue === 'string' || typeof defaultValue === 'number'
  return [
    description,
    ...(argChoices ? [`one of ${argChoices.join(', ')}`] : []),
    ...(isShown ? [`default: ${defaultValue}`] : []),
  ].join('; ')
}

export const helpLayout = (bold: (title: string) => string): HelpConfiguration => ({
  showGlobalOptions: true,
  styleTitle: (title) => bold(titles[title] ?? title),
  commandUsage: (command) =>
    Help.prototype.commandUsage.call(new Help(), command).replace('[options]', '[flags]'),
  // Each of them takes flags: to say so of each tells nothing.
  subcommandTerm: (command) =>
    Help.prototype.subcommandTerm.call(new Help(), command).replace(' [options]', ''),
  visibleOptions: (command) => [
    ...(standInOf(command)?.options ?? []),
    ...Help.prototype.visibleOptions.call(new Help(), command),
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

/** Paragraphs are folded; commands are continued with a backslash, before a flag if they can. */
export const foldHelp = (text: string, columns: number): string =>
  text
    .split('\n')
    .map((line) =>
      line.length <= columns
        ? line
        : line.startsWith('  proposer ')
          ? foldCommand(line, columns)
          : foldProse(line, columns),
    )
    .join('\n')

function foldProse(line: string, columns: number): string {
  const indent = ' '.repeat(line.length - line.trimStart().length)
  return `${indent}${fold(line.trimStart(), columns - indent.length).replaceAll('\n', `\n${indent}`)}`
}

function foldCommand(command: string, columns: number): string {
  // A flag stays beside its value, and what is quoted whole.
  const pieces = command.match(/--?[\w-]+ (?!-)(?:"[^"]*"|\S)+|(?:"[^"]*"|\S)+/g) ?? []
  const lines: string[] = []
  let line = ' '
  for (const piece of pieces) {
    if (line.trim() !== '' && line.length + piece.length + 1 > columns - 2) {
      lines.push(line)
      line = '     '
    }
    line += ` ${piece}`
  }
  return [...lines, line].join(' \\\n')
}
