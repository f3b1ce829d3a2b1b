import type { Hex } from '#ports'
import type { RoundRef } from '#protocol/candidate'
import { keccak } from '#protocol/keccak'
import { pick } from '#protocol/pick'
import type { Address, BatchSigningData, Outcome } from '#protocol/schema'
import { fromHex, primaryType, toHex, type WitnessRequest, wireTypes } from '#protocol/witness'
import { roundStates } from './constants.js'

/** (domain §5) */
export const requesterKinds = [
  'uma-ctf-adapter',
  'uma-ctf-adapter-negrisk',
  'oo-reporter',
  'direct',
] as const
export type RequesterKind = (typeof requesterKinds)[number]

export interface Contracts {
  readonly chainId: number
  readonly permit2: Address
  readonly signedProposer: Address
  readonly oracles: readonly Address[]
  readonly requesters: readonly { readonly address: Address; readonly kind: RequesterKind }[]
  readonly tokens: readonly Address[]
}

export const domainOf = (contracts: Contracts) =>
  pick(contracts, 'chainId', 'permit2', 'signedProposer')

export type RequestState = keyof typeof roundStates
export const requestStates = Object.keys(roundStates) as readonly RequestState[]

/** Raw token units; `timestamp`: Unix seconds. */
export interface Round extends WitnessRequest {
  readonly questionId: Hex
  readonly kind: RequesterKind
  readonly state: RequestState
  /** Policy refuses it (domain §5.1). */
  readonly paused: boolean
  readonly token: { readonly address: Address; readonly symbol: string; readonly decimals: number }
  /** Custom or own bond plus final fee (domain §4). */
  readonly totalBondRaw: bigint
  readonly rewardRaw: bigint
  readonly proposer?: Address | undefined
  /** An earlier round ended without an answer (domain §5). */
  readonly isReopened: boolean
  /** Only his clarifications count (domain §10). */
  readonly creator?: Address | undefined
  readonly outcomes: readonly Outcome[]
  readonly blockNumber: bigint
}

export const batchSigningDataOf = (round: Round, contracts: Contracts): BatchSigningData => ({
  question_id: round.questionId,
  request: {
    question_id: round.questionId,
    ...pick(round, 'oracle', 'requester', 'timestamp'),
    identifier: { raw: round.identifier },
    ancillary_data: round.ancillaryData,
  },
  identifier: { raw: round.identifier },
  price: {
    allowed_values: round.outcomes.filter(({ allowed }) => allowed).map(({ price }) => price),
  },
  bond: { token: round.token.address, required_bond: String(round.totalBondRaw) },
  contracts: { permit2: contracts.permit2, signed_proposer: contracts.signedProposer },
  signing: {
    chain_id: contracts.chainId,
    max_payment: '0',
    primary_type: primaryType,
    types: wireTypes(false),
  },
})

/** 32 hex digits (R3). */
export function roundRef(
  { chainId }: Pick<Contracts, 'chainId'>,
  questionId: Hex,
  request: Omit<WitnessRequest, 'ancillaryData'>,
  ancillaryHash: Hex,
): RoundRef {
  const { oracle, requester, identifier, timestamp } = request
  const round = { oracle, requester, identifier, timestamp, ancillaryHash }
  const text = [chainId, ...Object.values(round)].join('|')
  const key = toHex(keccak(new TextEncoder().encode(text))).slice(2, 34)
  return { key, questionId, ...round }
}

export const keccakHex = (bytes: Hex) => toHex(keccak(fromHex(bytes)))
