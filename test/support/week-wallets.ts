/**
 * Who proposes in the simulated week: accounts, contract wallets and delegated accounts, rich and
 * poor; and how they sign.
 */

import { hashStruct, hashTypedData, keccak256, maxUint256, stringToHex } from 'viem'
import { privateKeyToAccount } from 'viem/accounts'
import type { Hex } from '#ports'
import type { Address } from '#protocol/schema'
import { permitTypes } from './dev-chain-vectors.js'

export function weekAddress(name: string): Address {
  return `0x${keccak256(stringToHex(`week ${name}`)).slice(26)}`
}

export interface WeekWallet {
  readonly name: string
  readonly address: Address
  readonly signer: Address
  readonly key: Hex
  readonly contract: boolean
  readonly fundsRaw: bigint
  readonly allowanceRaw: bigint
  readonly listed: boolean
}

const tokens = 10n ** 6n

function wallet(
  name: string,
  more: Partial<Pick<WeekWallet, 'contract' | 'fundsRaw' | 'allowanceRaw' | 'listed'>> = {},
): WeekWallet {
  const key = keccak256(stringToHex(`week wallet ${name}`))
  const signer = privateKeyToAccount(key).address.toLowerCase() as Address
  const contract = more.contract === true
  const address = contract ? weekAddress(`contract wallet ${name}`) : signer
  return {
    name,
    key,
    signer,
    address,
    contract,
    fundsRaw: 40_000n * tokens,
    allowanceRaw: maxUint256,
    listed: true,
    ...more,
  }
}

export const weekWallets = {
  anna: wallet('anna'),
  bert: wallet('bert'),
  cora: wallet('cora'),
  dora: wallet('dora'),
  /** Two usual bonds and a bit. */
  poor: wallet('poor', { fundsRaw: 1_600n * tokens }),
  pauper: wallet('pauper', { fundsRaw: 800n * tokens }),
  /** Allows Permit2 three usual bonds. */
  wary: wallet('wary', { allowanceRaw: 2_300n * tokens }),
  safe: wallet('safe', { contract: true }),
  moody: wallet('moody', { contract: true }),
  smart: wallet('smart'),
  mute: wallet('mute'),
  stranger: wallet('stranger', { listed: false }),
} as const satisfies Record<string, WeekWallet>

export interface Authorized {
  readonly proposal: {
    readonly oracle: Address
    readonly requester: Address
    readonly identifier: Hex
    readonly timestamp: bigint
    readonly ancillaryData: Hex
    readonly proposedPrice: bigint
    readonly maxPayment: bigint
  }
  readonly permit: {
    readonly permitted: { readonly token: Address; readonly amount: bigint }
    readonly nonce: bigint
    readonly deadline: bigint
  }
}

export async function signedBy(
  { key }: WeekWallet,
  { proposal, permit }: Authorized,
  domain: { readonly chainId: number; readonly permit2: Address; readonly spender: Address },
): Promise<{ readonly digest: Hex; readonly signature: Hex }> {
  const data = {
    domain: { name: 'Permit2', chainId: domain.chainId, verifyingContract: domain.permit2 },
    types: permitTypes,
    primaryType: 'PermitWitnessTransferFrom',
    message: { ...permit, spender: domain.spender, witness: proposal },
  } as const
  return {
    digest: hashTypedData(data),
    signature: await privateKeyToAccount(key).signTypedData(data),
  }
}

export function witnessOf(proposal: Authorized['proposal']): Hex {
  return hashStruct({ types: permitTypes, primaryType: 'Proposal', data: proposal })
}
