/** `eligibility`: asks the gateway whether a wallet may propose (spec §2.3, §4.1 rule 1). */
import { acceptedValue } from '#client/gateway/answer'
import { givenAddress } from '#protocol/address'
import { UnauthorizedError } from '#protocol/errors'
import { sessionVerb } from './session/session.js'

export const eligibilityCommand = sessionVerb({
  name: 'eligibility',
  about: 'check whether a wallet may propose; exit 4 if it may not',
  args: { '[address]': 'wallet address; default: the selected account' },
  flags: {
    '--password-file <file>':
      'file with the keystore password, if its file does not name the address',
  },
  examples: [
    'eligibility 0x8ba1f109551bd432803012645ac136ddd64dba72 --gateway https://gateway.example',
  ],
  async run({ output }, session, _flags, { address }) {
    const wallet = address === undefined ? await session.account.address() : givenAddress(address)
    const gateway = await session.gateway('read')
    const answer = acceptedValue(await gateway.eligibility(wallet, { signal: session.signal }))
    const { eligible } = answer
    output.show('eligibility', answer, [`${wallet} ${eligible ? 'may' : 'may not'} propose`])
    if (!eligible)
      throw new UnauthorizedError(
        'proposer_not_eligible',
        `${wallet} is not eligible at this gateway now`,
        'ask the operator of the gateway to allow this wallet, or choose another one with --account',
      )
  },
})
