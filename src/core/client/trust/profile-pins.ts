/** Pins of a built-in profile, for users who have no trust.json of their own (domain §6; R9). */

import { builtInProfile } from '../../chain/profiles.js'
import { UsageError } from '../../protocol/errors.js'
import type { Address } from '../../protocol/schema.js'
import { isAddress, zeroAddress } from '../../protocol/words.js'
import type { Trust } from './trust.js'

export type ProfilePins = Omit<Trust, 'signed_proposer'> & {
  readonly signed_proposer: Address | null
}

/** The pins of the built-in profile of this name, or `undefined` where there is none. */
export function profilePins(name: string): ProfilePins | undefined {
  const profile = builtInProfile(name)
  if (profile === undefined) return undefined
  return {
    chain_id: profile.chainId,
    permit2: profile.permit2,
    signed_proposer: profile.signedProposer ?? null,
    oracles: [...profile.oracles],
    requesters: profile.requesters.map((requester) => ({ ...requester })),
    tokens: [...profile.tokens],
    slugs: {},
  }
}

/**
 * A built-in profile as whole pins. `signedProposer` stands in where the profile knows none, and
 * has to agree where it does. Throws UsageError `signed_proposer_needed`, `bad_address`, or
 * `untrusted_signed_proposer` where it names another than the profile.
 */
export function wholePins(name: string, pins: ProfilePins, signedProposer?: string): Trust {
  if (
    signedProposer !== undefined &&
    (!isAddress(signedProposer) || signedProposer === zeroAddress)
  ) {
    throw new UsageError('bad_address', '--signed-proposer is not a contract address', {
      hint: 'give it as 0x and 40 hex digits, not all zero',
    })
  }
  const known = pins.signed_proposer
  if (known !== null && signedProposer !== undefined && signedProposer !== known) {
    throw new UsageError(
      'untrusted_signed_proposer',
      `--signed-proposer is ${signedProposer}, the profile ${name} has ${known}`,
      {
        hint: 'leave it out, or pin other contracts under another profile name with `proposer trust init --from <file>`',
      },
    )
  }
  const signed_proposer = signedProposer ?? known
  if (signed_proposer === null) {
    throw new UsageError(
      'signed_proposer_needed',
      `the profile ${name} pins every contract but signed_proposer, which no public source names`,
      {
        hint: `ask the operator for it, compare it with an independent source, then run \`proposer trust init --profile ${name} --signed-proposer 0x…\``,
      },
    )
  }
  return { ...pins, signed_proposer }
}
