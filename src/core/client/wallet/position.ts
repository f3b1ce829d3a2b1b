/**
 * What became of a proposal after it was executed: money on the oracle, at risk until it is settled
 * (contract §9; domain §4, §10).
 */
import type { RequestState } from '../../chain/round.js'
import { type OracleRequest, type StakeStanding, standingIn } from '../../chain/stakes.js'
import type { Hex } from '../../ports.js'
import type { Address } from '../../protocol/schema.js'

export interface RoundProposal {
  readonly proposer: Address
  readonly price: string
  readonly isFinal: boolean
  readonly bySignature: boolean
  /** Absent where the node shows no log of it. `eventIndex`: of ProposePrice in its block. */
  readonly mined:
    | { readonly transactionHash: Hex; readonly blockNumber: bigint; readonly eventIndex: number }
    | undefined
}

export interface RoundStanding {
  readonly state: RequestState
  readonly proposal: RoundProposal | undefined
  readonly terms?: OracleRequest
  /** What an undisputed proposal earns now, raw token units; a dispute may have refunded it. */
  readonly rewardRaw?: bigint
}

export interface StakePosition extends StakeStanding {
  readonly terms: OracleRequest
  readonly hasNewRound: boolean
}

/** Whether a round holds a proposal: by its owner, of its price, through its signature. */
export function holdsProposal(
  { proposal }: RoundStanding,
  { proposer, price }: { readonly proposer: string; readonly price: string },
): boolean {
  if (proposal?.proposer !== proposer || proposal.price !== price) return false
  return proposal.bySignature || proposal.mined === undefined
}

/**
 * The position of an executed proposal by its own round, at `nowSeconds` of the chain; `undefined`
 * where that round could not be read.
 */
export function stakeIn(
  own: RoundStanding | undefined,
  hasNewRound: boolean,
  nowSeconds: bigint,
): StakePosition | undefined {
  if (own?.terms === undefined) return undefined
  const { terms, state, proposal } = own
  const { resolvedPrice, disputableUntil } = terms
  const isDisputed = terms.disputer !== undefined
  const round = { state, price: proposal?.price, resolvedPrice, isDisputed, disputableUntil }
  return { ...standingIn(round, hasNewRound, nowSeconds), terms, hasNewRound }
}
