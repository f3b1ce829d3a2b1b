/** `operator`: the local toolkit on a gateway's store (contract §6). */
import { Command } from 'commander'
import type { Context } from '../terminal/context.js'
import { actCommand, actVerbs } from './acts.js'
import { candidatesListCommand, storeExportCommand } from './candidates.js'
import { backupCommand, copyCommand } from './copy.js'
import { explainCommand, showCommand } from './explain.js'
import { gatewaysCommand, resignCommand } from './gateways.js'
import { questionsListCommand, walletsListCommand } from './lists.js'
import { receiptKeysCommand, rotateCommand } from './receipts.js'
import { repairCommand } from './repair.js'
import { acceptLossCommand, storeInitCommand, upgradeCommand } from './shared-store.js'
import { budgetCommand, operatorStatusCommand, topCommand } from './status.js'
import { verifyCommand } from './store.js'

/** Names that commands had once; they do what stands for them now. */
const isOldName = (command: Command) => command.description().startsWith('another name of ')

export function operatorCommand(context: Context): Command {
  const act = (name: keyof typeof actVerbs) => actCommand(context, actVerbs[name])
  const group = (
    name: string,
    description: string,
    examples: readonly string[],
    commands: readonly Command[],
  ) => {
    const lines = examples.map((example) => `\n  proposer operator ${example}`).join('')
    const made = new Command(name)
      .description(description)
      .addHelpText('after', `\nExamples:${lines}`)
    for (const command of commands) made.addCommand(command, { hidden: isOldName(command) })
    return made
  }
  return group(
    'operator',
    'manage a gateway: allowlist, questions, candidates, store. Lists work whether it runs or not',
    [
      'status',
      'allow 0x8ba1f109551bd432803012645ac136ddd64dba72 --reason "contract signed"',
      'candidates explain 3f2b8c1e-8d5a-4a52-9c3d-0a1b2c3d4e5f',
      'pause --reason "node upgrade"',
    ],
    [
      operatorStatusCommand(context),
      topCommand(context),
      ...(['allow', 'disallow'] as const).map(act),
      walletsListCommand(context),
      ...(['pause', 'resume'] as const).map(act),
      group(
        'questions',
        'manage the question registry: slugs, requesters, requests',
        ['questions list', actVerbs.add.example, actVerbs.import.example],
        [questionsListCommand(context), ...(['add', 'import', 'remove'] as const).map(act)],
      ),
      group(
        'candidates',
        'list, explain and reject candidates',
        [
          'candidates list --state failed',
          'candidates list --csv > candidates.csv',
          'candidates explain 3f2b8c1e-8d5a-4a52-9c3d-0a1b2c3d4e5f',
          actVerbs.reject.example,
        ],
        [
          candidatesListCommand(context),
          showCommand(context),
          explainCommand(context),
          act('reject'),
        ],
      ),
      group(
        'store',
        'verify, back up, compact, repair and copy the store',
        [
          'store verify',
          'store backup /backup/monday',
          'store compact',
          'store copy --from ./gateway-store --to postgres://proposer@db.internal/proposer',
        ],
        [
          storeInitCommand(context),
          upgradeCommand(context),
          verifyCommand(context),
          backupCommand(context),
          act('compact'),
          storeExportCommand(context),
          copyCommand(context),
          repairCommand(context),
          acceptLossCommand(context),
        ],
      ),
      group(
        'trust',
        'pin the code of oracles and tokens',
        [actVerbs.repin.example],
        [act('repin')],
      ),
      group(
        'receipts',
        'list and rotate the key that answers are signed with',
        ['receipts list', 'receipts rotate --reason "yearly"'],
        [receiptKeysCommand(context), rotateCommand(context)],
      ),

      budgetCommand(context),
      gatewaysCommand(context),
      group(
        'leader',
        'manage the leader of several gateways on one PostgreSQL store',
        ['gateways', 'leader resign --reason "node upgrade"'],
        [resignCommand(context)],
      ),
    ],
  ).option('--config <gateway.json>', 'path of the configuration; default: gateway.json')
}
