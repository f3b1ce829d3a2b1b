/**
 * Payouts that the oracle could not make: it keeps them until their owner fetches them (domain §10,
 * deferred payouts).
 */
import { encodeFunctionData } from 'viem'
import { oracleAbi } from '../../chain/contracts.js'
import { readToken } from '../../chain/questions.js'
import { readContract } from '../../chain/reading.js'
import { onChain } from '../../chain/unavailable.js'
import type { Chain } from '../../ports.js'
import { amountWithRaw, type TokenUnits } from '../../protocol/amount.js'
import type { Address } from '../../protocol/schema.js'
import { pinnedHeads } from '../funds/funds.js'
import type { Trust } from '../trust/trust.js'
import type { OwnTransaction } from './transactions.js'

export interface DeferredPayout extends TokenUnits {
  readonly wallet: Address
  readonly oracle: Address
  readonly token: Address
  readonly amountRaw: bigint
}

/**
 * Every deferred payout of the wallets at the pinned oracles, in the pinned tokens, as of the
 * latest block.
 */
export async function deferredPayouts(
  chain: Chain,
  trust: Trust,
  wallets: readonly Address[],
): Promise<readonly DeferredPayout[]> {
  const at = (await pinnedHeads(chain, trust)).latest.number
  return onChain(async () => {
    const units = await Promise.all(trust.tokens.map((token) => readToken(chain, token, at)))
    const all = wallets.flatMap((wallet) =>
      trust.oracles.flatMap((oracle) =>
        units.map(async ({ address: token, symbol, decimals }): Promise<DeferredPayout> => {
          const asked = [token, wallet] as const
          const amountRaw = await readContract(
            chain,
            at,
            oracle,
            oracleAbi,
            'deferredPayouts',
            asked,
          )
          return { wallet, oracle, token, symbol, decimals, amountRaw }
        }),
      ),
    )
    return (await Promise.all(all)).filter(({ amountRaw }) => amountRaw > 0n)
  })
}

/** The call by which the wallet itself fetches a payout; nobody else may. */
export function payoutClaim(payout: DeferredPayout, to: Address): OwnTransaction {
  const { oracle, token, wallet, amountRaw } = payout
  const goesTo = to === wallet ? '' : ` to ${to}`
  return {
    to: oracle,
    data: encodeFunctionData({
      abi: oracleAbi,
      functionName: 'claimDeferredPayout',
      args: [token, to],
    }),
    what: `claim the deferred payout of ${amountWithRaw(String(amountRaw), payout)}${goesTo}`,
  }
}
