import { parseArgs } from 'node:util'
import { Argument, Command, Option } from 'commander'
import { UsageError } from '#protocol/errors'
import type { Context } from './context.js'
import { colorChoices } from './output.js'
import { publicUrl, shellWord, visible } from './render.js'

export type MakeCommand = (context: Context) => Command

interface Taken<T> {
  readonly about: string
  readonly choices?: readonly string[]
  /** Throws UsageError for what it does not take; `before`: of the same flag, given before. */
  readonly parse?: (text: string, before?: never) => T
  readonly default?: string
}
interface FlagTaken<T> extends Taken<T> {
  readonly required?: true
  readonly conflicts?: readonly string[]
}

export type FlagTable = Readonly<Record<string, string | FlagTaken<unknown>>>
export type ArgTable = Readonly<Record<string, string | Taken<unknown>>>

type Camel<S> = S extends `${infer Head}-${infer Tail}` ? `${Head}${Capitalize<Camel<Tail>>}` : S
type Word<S> = S extends `${infer First}${' ' | '|' | '.'}${string}` ? Word<First> : S
type LongOf<S> = S extends `${string}--no-${infer Name}`
  ? Name
  : S extends `${string}--${infer Name}`
    ? Name
    : never
type Plain<S, One> = S extends `${string}...${string}` ? readonly One[] : One
type Valued<S, Spec> = Spec extends {
  readonly parse: (text: string, before?: never) => infer Parsed
}
  ? Parsed
  : Spec extends { readonly choices: readonly (infer Choice)[] }
    ? Choice
    : Plain<S, string>
type FlagValue<S, Spec> = S extends `${string}<${string}`
  ? Valued<S, Spec>
  : S extends `${string}[${string}`
    ? Valued<S, Spec> | true
    : boolean
type Sure = { readonly required: true } | { readonly default: string }

type Values<Table, Names extends keyof Table> = {
  readonly [S in Names as Camel<Word<LongOf<S>>>]: FlagValue<S, Table[S]>
}
type SureOf<Table> = { [S in keyof Table]: Table[S] extends Sure ? S : never }[keyof Table]

/** What commander makes of a table of flags: `--key-file <file>` is `keyFile?: string`. */
export type FlagsOf<Table> = Partial<Values<Table, Exclude<keyof Table, SureOf<Table>>>> &
  Values<Table, SureOf<Table>>
export type ArgsOf<Table> = {
  readonly [S in keyof Table as S extends `${'<' | '['}${infer Name}${'>' | ']'}`
    ? Camel<Word<Name>>
    : never]: S extends `[${string}...]` | `<${string}`
    ? Valued<S, Table[S]>
    : Valued<S, Table[S]> | undefined
}

const everyFlag = {
  '--gateway <url>': 'gateway URL',
  '--local <gateway.json>': 'run the gateway of this configuration in-process instead',
  '--profile <name>': 'configuration profile to use',
  '--home <dir>': 'folder for journal, keystores, trust and configuration',
  '--account <name>': 'keystore of the proposer',
  '--rpc-url <url>': 'JSON-RPC URL of a node',
  '--trust <file>': 'file of the pinned contracts',
  '--timeout <duration>': 'stop waiting after this time: 120, 90m or 2h30m',
  '--json': 'print one JSON document',
  '--ndjson': 'print one JSON line per item as it settles',
  '--field <path>': {
    about: 'one value of the JSON document, raw, such as candidate_id',
    conflicts: ['--ndjson'],
  },
  '-q, --quiet': 'suppress notes and progress',
  '-y, --yes': 'skip confirmation prompts',
  '-v, --verbose': 'show requests and responses on stderr, without secrets',
  '--color <auto|always|never>': {
    about: 'when to use colors; default: auto',
    choices: colorChoices,
  },
} as const
export type EveryFlag = FlagsOf<typeof everyFlag>

const readable = Object.fromEntries(
  [...Object.keys(everyFlag), '--config <file>'].map((spec) => {
    const { long, short, required } = new Option(spec)
    const type = required ? ('string' as const) : ('boolean' as const)
    return [long?.slice(2) ?? '', { type, ...(short && { short: short.slice(1) }) }]
  }),
)

/**
 * What a command line gives to these flags, and to --config, before commander has judged it; and
 * its first word.
 */
export function givenIn(argv: readonly string[]) {
  const end = argv.indexOf('--')
  const args = end < 0 ? [...argv] : argv.slice(0, end)
  const { values, positionals } = parseArgs({ args, options: readable, strict: false })
  return {
    has: (flag: string) => values[flag] !== undefined,
    value(flag: string) {
      const given = values[flag]
      return typeof given === 'string' ? given : undefined
    },
    word: positionals[0],
  }
}

export const addEveryFlag = (program: Command) => addFlags(program, everyFlag)

function addFlags(command: Command, flags: FlagTable) {
  for (const [spec, taken] of Object.entries(flags)) command.addOption(flagOf(spec, taken))
  return command
}

export interface VerbHead<Args, Flags> {
  readonly name: string
  readonly about: string
  readonly args?: Args
  readonly flags?: Flags
  readonly help?: string
}

interface VerbTable<Over, Args, Flags, Above> extends VerbHead<Args, Flags> {
  readonly above?: Above
  readonly examples: readonly string[]
  readonly verbs?: readonly MakeCommand[]
  readonly standIn?: MakeCommand
  /** Flags that what is opened gets in place of those of the line. */
  readonly fixed?: object
  readonly run?: (
    over: Over,
    flags: FlagsOf<Flags> & FlagsOf<Above> & EveryFlag,
    args: ArgsOf<Args>,
  ) => unknown
}

const standIns = new WeakSet<Command>()
const asStandIn = (child: Command) => {
  standIns.add(child)
  return child
}
export const standInOf = ({ commands }: Command) => commands.find((one) => standIns.has(one))

/** Verbs over something that is opened for them. `Group`: the flags of the group they stand in. */
export const verbOver =
  <Over, Group extends FlagTable = Record<never, string>>(
    open: (
      context: Context,
      flags: EveryFlag,
      use: (over: Over) => Promise<unknown>,
    ) => Promise<unknown>,
  ) =>
  <
    const Args extends ArgTable = Record<never, string>,
    const Flags extends FlagTable = Record<never, string>,
    const Above extends FlagTable = Group,
  >(
    made: VerbTable<Over, Args, Flags, Above>,
  ): MakeCommand =>
  (context) => {
    const { name, about, args = {}, flags = {}, verbs = [], standIn, fixed, run } = made
    const command = new Command(name).description(about).addHelpText('after', helpText(made))
    for (const [spec, taken] of Object.entries<ArgTable[string]>(args))
      command.addArgument(filled(new Argument(spec), taken))
    addFlags(command, flags)
    if (standIn !== undefined) command.addCommand(asStandIn(standIn(context)), { isDefault: true })
    for (const make of verbs) {
      const child = make(context)
      // Names that commands had once; they do what stands for them now.
      const hidden = child.description().startsWith('another name of ')
      command.addCommand(child, { hidden })
    }
    return run === undefined
      ? command
      : command.action(async (...given: unknown[]) => {
          const { registeredArguments } = command
          const named = registeredArguments.map((one, at) => [attributeOf(one.name()), given[at]])
          await open(context, { ...command.optsWithGlobals(), ...fixed }, async (over) =>
            run(over, command.optsWithGlobals(), Object.fromEntries(named)),
          )
        })
  }

export const verb = verbOver<Context>((context, _flags, use) => use(context))

export const parserOf =
  <T>(name: string, read: (text: string) => T | undefined, ...[code, what, hint]: ReadFault) =>
  (text: string) => {
    const value = read(text)
    if (value !== undefined) return value
    throw new UsageError(code, `${name} "${text.slice(0, 80)}" is not ${what}`, hint)
  }
type ReadFault = readonly [code: string, what: string, hint: string]

export const repeated =
  <T>(parse: (text: string) => T) =>
  (text: string, before: readonly T[] = []) => [...before, parse(text)]

export const attributeOf = (name: string) =>
  (/^[^|.]*/.exec(name)?.[0] ?? name).replace(/-(\w)/g, (_, letter: string) => letter.toUpperCase())

function flagOf(spec: string, taken: FlagTable[string]) {
  const option = filled(new Option(spec), taken)
  if (typeof taken === 'string') return option
  const { required, conflicts = [] } = taken
  return option
    .makeOptionMandatory(required === true)
    .conflicts(conflicts.map((flag) => new Option(flag).attributeName()))
}

function filled<Of extends Option | Argument>(one: Of, taken: FlagTable[string]) {
  if (typeof taken === 'string') {
    one.description = taken
    return one
  }
  const { about, choices, parse, default: byDefault } = taken
  one.description = about
  if (choices !== undefined) one.choices(choices)
  if (parse !== undefined)
    one.argParser((text: string, before: unknown) => parse(text, before as never))
  if (byDefault !== undefined) one.default(byDefault)
  return one
}

function helpText({
  help,
  examples,
}: Pick<VerbTable<unknown, unknown, unknown, unknown>, 'help' | 'examples'>) {
  const lines = examples.map((line) =>
    /(^|[^\w-])proposer /.test(line) ? line : `proposer ${line}`,
  )
  const shown = [`Example${lines.length === 1 ? '' : 's'}:`, ...lines.map((line) => `  ${line}`)]
  return `\n${help === undefined ? '' : `${help}\n\n`}${shown.join('\n')}`
}

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

const ownersVerbs = new Set(['operator', 'serve'])

export const withFlags = (hint: string, argv: readonly string[]) =>
  hint
    .split('`')
    .map((part, index) => (index % 2 === 1 ? commandWithFlags(part, argv) : part))
    .join('`')

function commandWithFlags(command: string, argv: readonly string[]) {
  const [program, verb = ''] = command.split(' ', 2)
  if (program !== 'proposer' || !/^[a-z]/.test(verb)) return command
  const given = givenIn(argv)
  // A chain that is started has a URL of its own.
  const own = command === 'proposer devchain' ? ['--rpc-url'] : command.match(/--[a-z-]+/g)
  const named = new Set(own)
  const isOwners = ownersVerbs.has(verb)
  const isPlaced = isOwners || named.has('--gateway') || named.has('--local')
  const asksNobody = verb === 'account' || verb === 'devchain'
  const placed = isPlaced ? ['gateway', 'local'] : []
  const left: readonly string[] = asksNobody ? ['gateway', 'local', 'rpc-url', 'trust'] : placed
  const isTaken = (flag: (typeof kept)[number]) =>
    flag === 'config' ? isOwners && !named.has('--dev') : !left.includes(flag)
  return kept.filter(isTaken).reduce<string>((text, flag) => {
    const value = given.value(flag) ?? (flag === 'config' ? given.value('local') : undefined)
    if (value === undefined || named.has(`--${flag}`)) return text
    return `${text} --${flag} ${shown(value, flag === 'gateway' || flag === 'rpc-url')}`
  }, command)
}

/** What a URL has beyond its host may be a credential (R5): that has to be typed again. */
function shown(value: string, isUrl: boolean): string {
  if (!isUrl || publicUrl(value) === value.replace(/\/$/, '')) return shellWord(value)
  return '<url>'
}

/** What of a table is given, as words of a command: ` --fit --signer <url>`. */
export const flagWords = (table: FlagTable, flags: Readonly<Record<string, unknown>>) =>
  Object.keys(table)
    .map((spec) => {
      const option = new Option(spec)
      const value = flags[option.attributeName()]
      if (typeof value === 'string') return ` ${option.long} ${shown(value, /<url>/.test(spec))}`
      return value === !option.negate ? ` ${option.long}` : ''
    })
    .join('')

/** A path as a word; one that begins with a dash would read as a flag. */
export const fileWord = (path: string) =>
  shellWord(path.startsWith('-') && path !== '-' ? `./${path}` : path)

export const dryRunFlag = { '--dry-run': 'show what would be done; do nothing' } as const

export function showDryRun(context: Context, would: string, data: object = {}): undefined {
  context.output.result(
    'preview',
    { dry_run: true, would, ...data },
    () => `would ${visible(would)}`,
  )
}
