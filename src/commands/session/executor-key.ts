/** The executor's key as the command line names it (contract §7). */
import type { CheckedKeySource } from '#host/executor-key'
import { fromCwd } from '#io/home'
import type { Context } from '../terminal/context.js'
import type { FlagsOf } from '../terminal/verb.js'
import type { executorFlags } from './flags.js'
import { readPassword } from './key-source.js'

/** The account of the flag, then PROPOSER_EXECUTOR_KEY_FILE; what gateway.json names comes after both. */
export function executorKeyOf(
  context: Context,
  home: string,
  { executorAccount, executorPasswordFile }: FlagsOf<typeof executorFlags>,
): CheckedKeySource {
  const variable = context.env.PROPOSER_EXECUTOR_KEY_FILE ?? ''
  return {
    home,
    account: executorAccount,
    keyFile: variable === '' ? undefined : fromCwd(context.cwd, variable),
    isPasswordInFile: executorPasswordFile !== undefined,
    password: (name) =>
      readPassword(
        context,
        executorPasswordFile,
        `Password of the executor ${name}: `,
        '--executor-password-file',
      ),
  }
}
