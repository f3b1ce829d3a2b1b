/** Built-in sets of contracts; each address has a source (domain §6). */
import type { Hex } from '#ports'
import { amountText } from '#protocol/amount'
import type { Address } from '#protocol/schema'
import { canonicalPermit2 } from './constants.js'
import type { Contracts } from './round.js'

export interface Profile extends Omit<Contracts, 'signedProposer'> {
  readonly explorer?: string
  readonly signedProposer?: Address
  readonly tokenUnits: { readonly symbol: string; readonly decimals: number }
  readonly requestPages?: string
  readonly gammaUrl?: string
  readonly coin: string
  /** They rest on one source. */
  readonly unconfirmed: readonly { readonly address: Address; readonly why: string }[]
}

export const profileNames = ['polygon', 'dev'] as const
type ProfileName = (typeof profileNames)[number]

/** Medium confidence: a public monitoring record (domain §5.2, §6). */
const polygonReporter: Address = '0x53703dd6129d723066b6362510e5ae2fecd48218'

const profiles: Readonly<Record<ProfileName, Profile>> = {
  polygon: {
    chainId: 137,
    explorer: 'https://polygonscan.com',
    permit2: canonicalPermit2,
    // UMIP-189, UMA's scripts.
    oracles: ['0x2c0367a9db231ddebd88a94b4f6461a6e47c58b1'],
    // Older adapters ask the classic oracle, which SignedProposer cannot serve (domain §5.1).
    requesters: [
      // Adapters v4: Polymarket, UMA's tests.
      { address: '0x65070be91477460d8a7aeeb94ef92fe056c2f2a7', kind: 'uma-ctf-adapter' },
      { address: '0x69c47de9d4d3dad79590d61b9e05918e03775f24', kind: 'uma-ctf-adapter-negrisk' },
      { address: polygonReporter, kind: 'oo-reporter' },
    ],
    tokens: ['0x2791bca1f2de4661ed88a30c99a7a9449aa84174'],
    tokenUnits: { symbol: 'USDC.e', decimals: 6 },
    requestPages: 'https://oracle.uma.xyz/request',
    gammaUrl: 'https://gamma-api.polymarket.com',
    coin: 'POL',
    unconfirmed: [
      {
        address: polygonReporter,
        why: 'this reporter could not be verified on chain: it exposes no oracle address',
      },
    ],
  },
  dev: {
    chainId: 31337,
    permit2: canonicalPermit2,
    signedProposer: '0x48563c004803795901f3b54726566daf179a36b2',
    oracles: ['0x8dd27c9d1535a827423f6cbf08acf42773192062'],
    requesters: [
      { address: '0xded49abd7d87389d554cc2e5c6b841f9b9911cfe', kind: 'uma-ctf-adapter' },
    ],
    tokens: ['0xf69283549d79299a297b8db39158be50a945f556'],
    tokenUnits: { symbol: 'USDC.e', decimals: 6 },
    coin: 'POL',
    unconfirmed: [],
  },
}

const profileOf = (chainId: number) =>
  Object.values(profiles).find((one) => one.chainId === chainId)

export const explorerOf = (chainId: number) => profileOf(chainId)?.explorer

/** By transaction and log index of its ProposePrice (domain §10). */
export function requestPage(chainId: number, transactionHash: Hex, eventIndex: number) {
  const pages = profileOf(chainId)?.requestPages
  const asked = `transactionHash=${transactionHash}&eventIndex=${eventIndex}&chainId=${chainId}`
  // UMA's tools name the managed oracle so, too.
  return pages === undefined ? undefined : `${pages}?${asked}&oracleType=OptimisticV2`
}

export function builtInProfile(name: string | undefined) {
  return profileNames.some((known) => known === name) ? profiles[name as ProfileName] : undefined
}

export function knownToken(chainId: number, address: string) {
  const profile = profileOf(chainId)
  return profile?.tokens.some((token) => token === address) ? profile.tokenUnits : undefined
}

export const knownAmount = (raw: bigint, chainId: number, token: string) =>
  amountText(String(raw), knownToken(chainId, token))

export const coinOf = (chainId: number) => profileOf(chainId)?.coin

export const coinText = (wei: bigint, chainId: number) =>
  amountText(String((wei + 10n ** 12n - 1n) / 10n ** 12n), {
    symbol: coinOf(chainId) ?? "of the chain's coin",
    decimals: 6,
  })

export function unconfirmedAmong(name: string | undefined, addresses: readonly string[]) {
  const pins = builtInProfile(name)?.unconfirmed ?? []
  return pins
    .filter(({ address }) => addresses.includes(address))
    .map(
      ({ address, why }) =>
        `profile ${name}: ${address}: ${why}; compare it with an independent source, or leave it out`,
    )
}

/** 8,139 bytes of text on Polygon, and a margin (domain §8). */
export const ordinaryGas = 1_000_000n
/** And some hundred signature checks in a wallet's code (EIP-1271). */
export const defaultProposalGas = 1_500_000
/** 100 proposals of one wallet at once: four transactions of some 10 M, and a fifth. */
export const defaultFailedGas = 50_000_000
