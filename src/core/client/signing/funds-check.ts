/** What the chain says of a wallet before it signs. Apart from the other checks, so that signing without a chain does without viem. */
import { erc20Abi } from '../../chain/contracts.js'
import { readContract } from '../../chain/reading.js'
import { type Address, type Chain, ChainError, type Hex } from '../../ports.js'
import { UsageError } from '../../protocol/errors.js'
import type { JournalView } from '../journal/journal.js'
import { nonceSpentOnChain } from '../journal/nonces.js'
import { claimsOn, openClaims, reservedRaw } from '../wallet/funds.js'
import type { AuthorizeParts, Intent } from './authorize.js'
import { onChain } from './context.js'

/**
 * Nonce free, balance ≥ everything open plus this (robustness §6); raw units. Gives notes: a missing allowance can be given later.
 * UsageError `nonce_spent`, `insufficient_balance`; UnavailableError where the chain does not answer.
 */
export async function checkFunds(
  chain: Chain,
  parts: AuthorizeParts,
  intent: Intent,
  wanted: { readonly nonce: bigint; readonly amountRaw: bigint; readonly token: Address },
  view: JournalView,
): Promise<string[]> {
  const permit2 = parts.trust.permit2 as Hex
  if (await nonceSpentOnChain(chain, permit2, intent.proposer, wanted.nonce)) {
    throw new UsageError('nonce_spent', `Permit2 has nonce ${wanted.nonce} of ${intent.proposer} as used or cancelled`, {
      hint: 'leave --nonce out: a fresh one is chosen',
    })
  }
  const [balance, allowance] = await onChain(async () => {
    const head = await chain.block('latest')
    if (head === null) throw new ChainError('unavailable', 'the chain has no head')
    return Promise.all([
      readContract(chain, head.number, wanted.token, erc20Abi, 'balanceOf', [intent.proposer]),
      readContract(chain, head.number, wanted.token, erc20Abi, 'allowance', [intent.proposer, permit2]),
    ])
  })
  const open = openClaims(view, parts.ports.clock.nowMs()).filter(({ id }) => id !== intent.supersede)
  const reserved = reservedRaw(claimsOn(open, { chainId: parts.trust.chain_id, owner: intent.proposer, token: wanted.token }))
  const needed = reserved + wanted.amountRaw
  if (balance < needed) {
    throw new UsageError(
      'insufficient_balance',
      `${intent.proposer} holds ${balance} of token ${wanted.token}; this needs ${wanted.amountRaw} beside ${reserved} reserved by open authorizations`,
      { hint: 'fund the wallet, or settle what is open (`proposer journal list`)' },
    )
  }
  if (allowance >= needed) return []
  return [
    `the allowance for Permit2 is ${allowance}, ${needed} is needed before execution: the owner approves ${permit2} for token ${wanted.token}`,
  ]
}
