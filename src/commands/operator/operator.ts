/** `operator`: the local toolkit on a gateway's store (contract §6). */
import { Command } from 'commander'
import type { Context } from '../terminal/context.js'
import { budgetCommand } from './budget.js'
import { candidatesCommand } from './candidates.js'
import { questionsCommand } from './questions.js'
import { storeCommand } from './store.js'
import { allowCommand, listCommand, switchCommand } from './wallets.js'

export const operatorCommand = (context: Context): Command =>
  new Command('operator')
    .description(
      "look after a gateway's store: who may propose, which questions, what became of candidates. Works while it serves and while it does not",
    )
    .option(
      '--config <gateway.json>',
      'the configuration whose store is meant; default: gateway.json',
    )
    .addHelpText(
      'after',
      '\nExamples:\n  proposer operator allow 0x8ba1f109551bd432803012645ac136ddd64dba72 --reason "contract signed"\n  proposer operator candidates explain 3f2b8c1e-8d5a-4a52-9c3d-0a1b2c3d4e5f\n  proposer operator pause --reason "node upgrade"',
    )
    .addCommand(allowCommand(context, 'allow'))
    .addCommand(allowCommand(context, 'disallow'))
    .addCommand(listCommand(context))
    .addCommand(switchCommand(context, 'pause'))
    .addCommand(switchCommand(context, 'resume'))
    .addCommand(questionsCommand(context))
    .addCommand(candidatesCommand(context))
    .addCommand(storeCommand(context))
    .addCommand(budgetCommand(context))
