/**
 * Every command with its flags, as data: a tab key cannot wait for the commands themselves to load. `grammar.json` is written from them by
 * `npm run manual`, and a test holds both together.
 */
import stored from './grammar.json' with { type: 'json' }

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

/** The whole program; its `flags` are those of every command. */
export const grammar: CommandGrammar = stored

/** `-o` and `--output`. */
export const namesOf = ({ flags }: FlagGrammar): readonly string[] => flags.split(/[ ,]+/).filter((word) => word.startsWith('-'))

/** What stands for the value, `file`; `undefined` where the flag takes none. */
export const placeholderOf = ({ flags }: FlagGrammar): string | undefined => /[<[](.+?)[>\]]$/.exec(flags)?.[1]

/** Paths of the commands below the top that have this name: `operator candidates`. */
export function pathsTo(name: string, { commands } = grammar, before: readonly string[] = []): readonly string[] {
  return Object.entries(commands).flatMap(([own, command]) => {
    const path = [...before, own]
    return [...(own === name && before.length > 0 ? [path.join(' ')] : []), ...pathsTo(name, command, path)]
  })
}
