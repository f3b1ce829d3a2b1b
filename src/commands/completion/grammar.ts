/** Commands with their flags and arguments as data, read from the commander tree. */
import type { Command } from 'commander'
import { defaultChildOf } from '../terminal/help-layout.js'

export interface CommandGrammar {
  readonly summary: string
  /** The command below it that it is without one. */
  readonly alone?: string
  /** `identifier`, `candidate-id...` */
  readonly takes: readonly ArgumentGrammar[]
  readonly flags: readonly FlagGrammar[]
  readonly commands: { readonly [name: string]: CommandGrammar }
}

export interface ArgumentGrammar {
  readonly name: string
  readonly variadic?: boolean
  readonly choices?: readonly string[]
}

export interface FlagGrammar {
  /** As in the help: `-o, --output <file>`. */
  readonly flags: string
  readonly summary: string
  readonly choices?: readonly string[]
}

/** A command, its flags and all below it, without what is hidden from its help. Throws nothing. */
export function describe(command: Command): CommandGrammar {
  const alone = defaultChildOf(command)?.name()
  return {
    summary: command.summary() || command.description(),
    ...(alone !== undefined && { alone }),
    takes: command.registeredArguments.map((one): ArgumentGrammar => {
      return {
        name: one.name(),
        ...(one.variadic && { variadic: true }),
        ...(one.argChoices && { choices: [...one.argChoices] }),
      }
    }),
    flags: command.options
      .filter(({ hidden }) => !hidden)
      .map(({ flags, description, argChoices }): FlagGrammar => {
        return { flags, summary: description, ...(argChoices && { choices: [...argChoices] }) }
      }),
    commands: Object.fromEntries(command.commands.map((child) => [child.name(), describe(child)])),
  }
}

/** `-o` and `--output`. */
export const namesOf = ({ flags }: FlagGrammar): readonly string[] =>
  flags.split(/[ ,]+/).filter((word) => word.startsWith('-'))

/** What stands for the value, `file`; `undefined` where the flag takes none. */
export const placeholderOf = ({ flags }: FlagGrammar): string | undefined =>
  /[<[](.+?)[>\]]$/.exec(flags)?.[1]

/** Paths of the commands below the top that have this name: `operator candidates`. */
export function pathsTo(
  name: string,
  { commands }: CommandGrammar,
  before: readonly string[] = [],
): readonly string[] {
  return Object.entries(commands).flatMap(([own, command]) => {
    const path = [...before, own]
    return [
      ...(own === name && before.length > 0 ? [path.join(' ')] : []),
      ...pathsTo(name, command, path),
    ]
  })
}
