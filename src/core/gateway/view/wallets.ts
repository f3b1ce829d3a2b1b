/**
 * Whether there is code at an address, and what it says of a signature (contract §2, domain
 * §3.3).
 */

import { encodeFunctionData } from 'viem'
import { eip1271MagicValue, erc1271Abi } from '#chain/contracts'
import { type Chain, type ChainCall, ChainError, type Clock, type Hex } from '#ports'
import { boundedCache } from '#protocol/bounded-cache'
import type { Address } from '#protocol/schema'
import { orUnavailable, singleFlight, within } from './time-limits.js'

/** EIP-1271 by eth_call (robustness §5). */
const walletCallMs = 3_000
const walletCallGas = 3_000_000n
/** Deployment and EIP-7702 leave no log. */
const refreshAfterMs = 60_000
/** While nobody waits. */
const idleRefreshAfterMs = 240_000
const staleAfterMs = 300_000
const refreshAtOnce = 100
const rememberedWallets = 10_000
/** For refusals (R19). */
const rereadMs = 500

export type Wallets = ReturnType<typeof newWallets>

export const newWallets = (chain: Chain, clock: Clock) => ({
  chain,
  clock,
  codes: boundedCache<Address, { readonly has: boolean; readonly atMs: number }>(rememberedWallets),
  reading: new Map<Address, Promise<boolean>>(),
})

/** As Permit2 reads it: the magic value and zeros. */
export function isMagicAnswer(answer: Hex) {
  return answer.slice(0, 66) === `${eip1271MagicValue}${'0'.repeat(56)}`
}

export function isValidSignatureCall(wallet: Address, digest: Hex, signature: Hex): ChainCall {
  const args = [digest, signature] as const
  const data = encodeFunctionData({ abi: erc1271Abi, functionName: 'isValidSignature', args })
  return { to: wallet, data, gas: walletCallGas }
}

export function knownCode({ codes, clock }: Wallets, account: Address, limitMs = staleAfterMs) {
  const found = codes.peek(account)
  return found && clock.monotonicMs() - found.atMs < limitMs ? found.has : undefined
}

async function readCode({ chain, clock, codes }: Wallets, account: Address) {
  const has = (await chain.code(account)) !== '0x'
  codes.set(account, { has, atMs: clock.monotonicMs() })
  return has
}

export function hasCode(wallets: Wallets, account: Address) {
  const { clock, codes } = wallets
  const read = async () => {
    const nextMs = (codes.peek(account)?.atMs ?? Number.NEGATIVE_INFINITY) + rereadMs
    const waitMs = nextMs - clock.monotonicMs()
    if (waitMs > 0) await clock.sleep(waitMs)
    return readCode(wallets, account)
  }
  return orUnavailable(
    within(clock, walletCallMs, () => singleFlight(wallets.reading, account, read)),
    `the code at ${account}`,
  )
}

export function authorizes(
  { chain, clock }: Wallets,
  wallet: Address,
  digest: Hex,
  signature: Hex,
) {
  const call = async () => {
    try {
      return isMagicAnswer(await chain.call(isValidSignatureCall(wallet, digest, signature)))
    } catch (error) {
      // A refusal in whatever form is an answer: no.
      if (error instanceof ChainError && error.kind === 'reverted') return false
      throw error
    }
  }
  return orUnavailable(
    within(clock, walletCallMs, call),
    `the signature check of the wallet ${wallet}`,
  )
}

export async function refreshCodes(wallets: Wallets, accounts: Iterable<Address>, isIdle: boolean) {
  const due: Address[] = []
  const limitMs = isIdle ? idleRefreshAfterMs : refreshAfterMs
  for (const account of accounts) {
    if (knownCode(wallets, account, limitMs) === undefined) due.push(account)
    if (due.length === refreshAtOnce) break
  }
  await Promise.all(
    due.map((account) =>
      readCode(wallets, account).catch((error: unknown) => {
        if (!(error instanceof ChainError)) throw error
      }),
    ),
  )
}
