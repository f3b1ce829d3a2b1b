/** The grammar that the commands themselves spell out; `npm run manual` keeps it in `grammar.json`. */
import type { Command } from 'commander'
import { defaultChildOf } from '../view/help-layout.js'
import type { ArgumentGrammar, CommandGrammar, FlagGrammar } from './grammar.js'

/** A command, its flags and all below it, without what is hidden from its help. Throws nothing. */
export function describe(command: Command): CommandGrammar {
  const alone = defaultChildOf(command)?.name()
  return {
    summary: command.summary() || command.description(),
    ...(alone !== undefined && { alone }),
    takes: command.registeredArguments.map((one): ArgumentGrammar => {
      return { name: one.name(), ...(one.variadic && { variadic: true }), ...(one.argChoices && { choices: [...one.argChoices] }) }
    }),
    flags: command.options
      .filter(({ hidden }) => !hidden)
      .map(({ flags, description, argChoices }): FlagGrammar => {
        return { flags, summary: description, ...(argChoices && { choices: [...argChoices] }) }
      }),
    commands: Object.fromEntries(command.commands.map((child) => [child.name(), describe(child)])),
  }
}
