/**
 * What the chain says of a wallet before it signs. Apart from the other checks, so that signing
 * without a chain does without viem.
 */
import type { Address, Chain } from '../../ports.js'
import { UsageError } from '../../protocol/errors.js'
import { fundsOf, nonceSpentOnChain } from '../funds/funds.js'
import type { JournalView } from '../journal/journal.js'
import type { AuthorizeParts, Intent } from './authorize.js'

/**
 * Nonce free; balance and Permit2 allowance each ≥ everything open plus this (spec §5, robustness
 * §6); raw units. UsageError `nonce_spent`, `insufficient_balance`, `insufficient_allowance`;
 * UnavailableError where the chain does not answer.
 */
export async function checkFunds(
  chain: Chain,
  { trust }: Pick<AuthorizeParts, 'trust'>,
  { proposer, supersede }: Pick<Intent, 'proposer' | 'supersede'>,
  wanted: { readonly nonce: bigint; readonly amountRaw: bigint; readonly token: Address },
  view: JournalView,
): Promise<void> {
  const { nonce, amountRaw, token } = wanted
  if (await nonceSpentOnChain(chain, trust.permit2 as Address, proposer, nonce)) {
    throw new UsageError(
      'nonce_spent',
      `Permit2 has nonce ${nonce} of ${proposer} as used or cancelled`,
      {
        hint: 'leave --nonce out: a fresh one is chosen',
      },
    )
  }
  const { balanceRaw, allowanceRaw, reservedRaw } = await fundsOf(
    chain,
    trust,
    view,
    proposer,
    token,
    { except: supersede },
  )
  const needs = `this needs ${amountRaw} beside ${reservedRaw} reserved by open authorizations`
  if (balanceRaw < reservedRaw + amountRaw) {
    throw new UsageError(
      'insufficient_balance',
      `${proposer} holds ${balanceRaw} of token ${token}; ${needs}`,
      {
        hint: 'fund the wallet, or settle what is open (`proposer journal list`)',
      },
    )
  }
  if (allowanceRaw < reservedRaw + amountRaw) {
    throw new UsageError(
      'insufficient_allowance',
      `${proposer} lets Permit2 move ${allowanceRaw} of token ${token}; ${needs}`,
      {
        hint: 'let Permit2 move more with `proposer funds approve`, or settle what is open (`proposer journal list`)',
      },
    )
  }
}
