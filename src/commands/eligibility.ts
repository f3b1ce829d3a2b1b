/** `eligibility`: asks the gateway whether a wallet may propose (spec §2.3, §4.1 rule 1). */

import { Command } from 'commander'
import { acceptedValue } from '../core/client/gateway/answer.js'
import { givenAddress } from '../core/protocol/address.js'
import { UnauthorizedError } from '../core/protocol/errors.js'
import { type SessionFlags, withSession } from './session/session.js'
import type { Context } from './terminal/context.js'
import { fold } from './terminal/render.js'

export const eligibilityCommand = (context: Context): Command =>
  new Command('eligibility')
    .description('check whether a wallet may propose; exit 4 if it may not')
    .argument('[address]', 'wallet address; default: the selected account')
    .option(
      '--password-file <file>',
      'file with the keystore password, if its file does not name the address',
    )
    .addHelpText(
      'after',
      '\nExample:\n  proposer eligibility 0x8ba1f109551bd432803012645ac136ddd64dba72 --gateway https://gateway.example',
    )
    .action(async (address: string | undefined, _own: unknown, command: Command) => {
      await withSession(context, command.optsWithGlobals<SessionFlags>(), async (session) => {
        const wallet =
          address === undefined ? await session.account.address() : givenAddress(address)
        const gateway = await session.gateway('read')
        const answer = acceptedValue(await gateway.eligibility(wallet, { signal: session.signal }))
        const { output } = context
        output.result('eligibility', answer, ({ eligible }) =>
          fold(`${wallet} ${eligible ? 'may propose' : 'may not propose'}`, output.columns, '  '),
        )
        if (answer.eligible) return
        throw new UnauthorizedError(
          'proposer_not_eligible',
          `${wallet} is not eligible at this gateway now`,
          {
            hint: 'ask the operator of the gateway to allow this wallet, or choose another one with --account',
          },
        )
      })
    })
