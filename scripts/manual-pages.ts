/**
 * What `npm run manual` writes from the sources: the manual page, `man/proposer.1`, and
 * docs/reference/commands.md, from the text of --help; gateway.schema.json, from what reads
 * gateway.json; the tables of docs/reference/error-codes.md, from the rows in the code.
 */
import type { Command } from 'commander'
import * as z from 'zod'
import { profileKeys, variableOf } from '#commands/session/settings'
import { foldHelp } from '#commands/terminal/render'
import { type ExitCode, exit } from '#protocol/errors'

/** Contract §6, in the words of a person at the shell. */
const exitTexts: Readonly<Record<ExitCode, string>> = {
  [exit.done]: 'Done.',
  [exit.bug]: 'A bug of this program; please report it.',
  [exit.usage]: 'Usage, input or configuration: nothing was sent. A check found a fault.',
  [exit.refused]: 'Refused by the gateway: correct it. In a batch: some items.',
  [exit.unauthorized]: 'The wallet is not eligible, or the signature not authorized.',
  [exit.reconcile]: 'A conflict, or another open authorization: reconcile.',
  [exit.unknown]: 'The outcome is unknown: replay the saved payload, never sign again.',
  [exit.failed]: 'The candidate failed.',
  [exit.pending]: 'Still pending when the time limit was reached.',
  [exit.storage]: 'Store or journal damaged, locked or not writable.',
  [exit.deferred]: 'Not admitted, or no response: the same command later sends the same bytes.',
  [exit.interrupted]: 'Interrupted; nothing is unknown.',
}

const variables: readonly (readonly [string, string])[] = [
  ['PROPOSER_HOME', 'As --home: folder of journal, keystores, trust and configuration.'],
  ['PROPOSER_PROFILE', 'As --profile.'],
  ...Object.keys(profileKeys).map(
    (key) => [variableOf(key), `As the setting ${key} (proposer config).`] as const,
  ),
  ['PROPOSER_KEY_FILE', "File of the proposer's key: 0x and 64 hex digits, mode 0600."],
  ['PROPOSER_PRIVATE_KEY', 'The same key itself; warned about.'],
  ['PROPOSER_PASSWORD_FILE', 'As --password-file: password of the keystore, mode 0600.'],
  ['PROPOSER_EXECUTOR_KEY_FILE', "File of the executor's key of a gateway."],
  ['PROPOSER_STORE_URL_FILE', "File with the URL of a gateway's database, mode 0600."],
  ['PROPOSER_LOG_LEVEL', 'As --log-level of serve.'],
  ['PROPOSER_DEBUG', 'As --verbose: requests and responses on stderr, without secrets.'],
  ['PROPOSER_DEV_ORACLE', "As --oracle: version of the dev chain's oracle."],
  ['FORCE_COLOR', 'Use colors even if the output is not a terminal; 0 for none.'],
  ['NO_COLOR', 'No colors.'],
]

const files: readonly (readonly [string, string])[] = [
  ['config.json', 'Preferences; never keys.'],
  ['journal/', 'What was signed and sent, written before it leaves.'],
  ['keystores/', 'Encrypted keys.'],
  ['trust/<profile>.json', 'The pinned contracts.'],
  ['budget/', 'Rate-limit use of each gateway by this machine.'],
]

/** The page in roff. `program` has all its commands loaded. Throws nothing. */
export function manualPage(program: Command, version: string): string {
  const parts = [
    `.TH PROPOSER 1 "" "proposer ${version}" "User Commands"`,
    // Flags must not be torn at their hyphens, nor spread to a right margin.
    '.nh\n.ad l',
    '.SH NAME',
    `proposer \\- ${text(lowerFirst(program.description().split(':')[0] ?? ''))}`,
    '.SH SYNOPSIS',
    `.B proposer\n${text(program.usage())}`,
    '.SH DESCRIPTION',
    text(program.description()),
    '.PP',
    text(
      'Results go to standard output and nothing else does; notes, progress and errors go to standard error.',
    ),
    '.PP',
    text(
      'Where to begin: proposer demo shows the whole life of a proposal; proposer without a command shows what to do next.',
    ),
    '.SH COMMANDS',
    ...program.commands.flatMap(commandParts),
    '.SH FLAGS OF EVERY COMMAND',
    ...program.options.map(({ flags, description }) => item(flags, description)),
    item('-h, --help', 'print help'),
    '.SH EXIT STATUS',
    ...Object.entries(exitTexts).map(([code, meaning]) => item(code, meaning)),
    '.SH ENVIRONMENT',
    ...variables.map(([name, meaning]) => item(name, meaning)),
    '.SH FILES',
    text("Under the home folder (--home, PROPOSER_HOME, else the platform's data folder):"),
    ...files.map(([name, meaning]) => item(name, meaning)),
  ]
  return `${parts.join('\n')}\n`
}

function commandParts(command: Command): string[] {
  const help = command.createHelp()
  return [
    `.SS ${text(help.commandUsage(command))}`,
    text(command.description()),
    ...command.registeredArguments
      .filter(({ description }) => description !== '')
      .map((one) => item(help.argumentTerm(one), help.argumentDescription(one))),
    ...command.options
      .filter(({ hidden }) => !hidden)
      .map((one) => item(help.optionTerm(one), help.optionDescription(one))),
    ...afterText(command),
    ...command.commands.flatMap(commandParts),
  ]
}

/** Help as it is printed, with notes and examples behind it. */
function helpOf(command: Command): string {
  const written: string[] = []
  command.configureOutput({ writeOut: (piece) => written.push(piece) }).outputHelp()
  return written.join('')
}

/** Notes and examples stand as they are in the help. */
function afterText(command: Command): string[] {
  const lines = helpOf(command).slice(command.helpInformation().length).trim()
  return lines === ''
    ? []
    : ['.PP', '.nf', ...foldHelp(lines, exampleColumns).split('\n').map(text), '.fi']
}
/** What is not filled stands indented by seven on a page of 80. */
const exampleColumns = 72

/**
 * The same in Markdown: a list of the commands, then the help of each and of its subcommands.
 * Throws nothing.
 */
export function commandsPage(program: Command): string {
  const commands = program.commands.map(
    (one) => `- [\`${one.name()}\`](#proposer-${one.name()}): ${one.summary()}`,
  )
  return [
    '# Commands',
    'This page is the text of `--help`. `npm run manual` writes it.',
    commands.join('\n'),
    '## Flags of every command',
    program.options.map(({ flags, description }) => `- \`${flags}\`: ${description}`).join('\n'),
    ...program.commands.flatMap((command) => commandSections(command, 'proposer', 2)),
  ]
    .join('\n\n')
    .concat('\n')
}

function commandSections(command: Command, parent: string, level: number): string[] {
  const name = `${parent} ${command.name()}`
  // The flags of every command stand once, at the head of the page.
  const paragraphs = helpOf(command).trim().split('\n\n')
  const help = paragraphs.filter((one) => !one.startsWith('Flags of every command')).join('\n\n')
  const fenced = `\`\`\`text\n${foldHelp(help, 80)}\n\`\`\``
  return [
    `${'#'.repeat(level)} ${name}`,
    fenced,
    ...command.commands.flatMap((child) => commandSections(child, name, 3)),
  ]
}

const item = (term: string, meaning: string) => `.TP\n.B ${text(term)}\n${text(meaning)}`
const lowerFirst = (sentence: string) => sentence.charAt(0).toLowerCase() + sentence.slice(1)

/**
 * Roff takes these characters for its own; what is not ASCII is named, so that no encoding matters.
 */
function text(plain: string): string {
  return plain
    .replaceAll('\\', '\\e')
    .replaceAll('-', '\\-')
    .replaceAll('`', '\\(ga')
    .replace(/^[.']/, '\\&$&')
    .replaceAll("'", '\\(aq')
    .replace(
      /[^\n -~]/gu,
      (character) =>
        `\\[u${(character.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, '0')}]`,
    )
}

/**
 * The JSON Schema of gateway.json for editors, from the schema that reads it. What depends on two
 * keys at once, or cannot be said in JSON Schema, only the reader refuses.
 */
export function configSchemaText(configFile: z.ZodType): string {
  const schema = z.toJSONSchema(configFile, { target: 'draft-7', io: 'input' })
  const { chain, executor } = schema.properties as Record<string, z.core.JSONSchema.JSONSchema>
  const pins = chain?.required?.filter((key) => key !== 'rpc_urls')
  Object.assign(chain ?? {}, {
    required: ['rpc_urls'],
    anyOf: [{ required: ['profile'] }, { required: pins }],
  })
  schema.not = { required: ['store', 'store_file'] }
  const keys = ['key_file', 'account', 'signer', 'pkcs11']
  const pairs = keys.flatMap((one, at) => keys.slice(at + 1).map((other) => [one, other]))
  Object.assign(executor ?? {}, { not: { anyOf: pairs.map((required) => ({ required })) } })
  return `${JSON.stringify({ title: 'gateway.json of proposer', ...schema }, null, 2)}\n`
}

interface CodeRow {
  readonly retryable?: boolean | undefined
  readonly when: string
  readonly status?: number
  readonly nextAction?: string
}
const laterOf = ({ retryable }: CodeRow) =>
  retryable === undefined ? 'by cause' : retryable ? 'yes' : 'no'

/** The page with both tables as the code has them; the rest of it stays. */
export function withCodes(
  page: string,
  wireFailures: Readonly<Record<string, CodeRow>>,
  failures: Readonly<Record<string, CodeRow>>,
): string {
  const wire = Object.entries(wireFailures).map(([code, row]) => [
    `\`${code}\``,
    String(row.status),
    laterOf({ ...row, retryable: [408, 429, 503].includes(row.status ?? 0) }),
    row.when,
  ])
  const ends = Object.entries(failures).map(([code, row]) => [
    `\`${code}\``,
    row.when,
    laterOf(row),
    `\`${row.nextAction}\``,
  ])
  const withWire = withTable(
    page,
    'Codes of the gateway',
    ['Code', 'Status', 'Later', 'When'],
    wire,
  )
  const columns = ['Code', 'What happened', 'Later', '`next_action`']
  return withTable(withWire, 'Codes of a failed candidate', columns, ends)
}

/** The first table below a heading, in the widths that the formatter gives it. */
function withTable(
  page: string,
  heading: string,
  columns: readonly string[],
  rows: readonly (readonly string[])[],
): string {
  const widths = columns.map((column, at) =>
    Math.max(column.length, ...rows.map((row) => row[at]?.length ?? 0)),
  )
  const line = (cells: readonly string[], filler: string) =>
    `| ${cells.map((cell, at) => cell.padEnd(widths[at] ?? 0, filler)).join(' | ')} |\n`
  const dashes = columns.map(() => '')
  const table = [line(columns, ' '), line(dashes, '-'), ...rows.map((row) => line(row, ' '))]
  const start = page.indexOf('\n|', page.indexOf(`## ${heading}`)) + 1
  const end = page.indexOf('\n\n', start) + 1
  return page.slice(0, start) + table.join('') + page.slice(end)
}
