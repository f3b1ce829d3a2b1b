/**
 * The gateway's own view of the chain: what admission works from without waiting for an RPC round
 * trip (contract §2), and what the pipeline re-reads (contract §5). Unknown or stale state fails
 * closed (R16).
 */
import type { Round } from '../../chain/round.js'
import type { Address, Hex } from '../../ports.js'
import type { RoundRef } from '../../protocol/candidate.js'
import type { WitnessRound } from '../../protocol/witness.js'

/** A question with everything admission needs of its current round, prepared once per round. */
export interface Question {
  readonly questionId: Hex
  readonly slug: string | undefined
  readonly round: Round
  readonly ref: RoundRef
  readonly witness: WitnessRound
}

export interface ChainView {
  /** Why the chain's state is not known now; empty when it is (R16). One sentence each. */
  faults(): readonly string[]
  /**
   * The later of wall clock and head time, Unix seconds, rounded up (contract §2): what is less
   * than a second ahead has not come.
   */
  nowSeconds(): bigint
  /**
   * The question by id or slug, from memory; `undefined` also while it is due: changed, maybe, and
   * not read again yet.
   */
  known(identifier: string): Question | undefined
  /**
   * The question by id or slug; one that is seen for the first time or due is read from the chain
   * within 3 s, misses are remembered ≤ 10 s. `undefined` where no trusted requester knows it.
   * Throws UnavailableError `state_unavailable` where that could not be found out, and
   * `slug_unavailable` where it is not known which question the slug names.
   */
  question(identifier: string): Promise<Question | undefined>
  /**
   * Whether the Permit2 nonce is known to be spent or invalidated, from memory (contract §2,
   * `permit_nonce_used`).
   */
  nonceKnownUsed(owner: Address, nonce: bigint): boolean
  /**
   * Whether the account has code now (contract wallet or EIP-7702 delegation): read from the chain,
   * at most every 500 ms. Throws UnavailableError `state_unavailable` where no answer came within 3
   * s.
   */
  hasCode(account: Address): Promise<boolean>
  /**
   * The same from memory, up to a minute old for allowlisted wallets; `undefined` where it has to
   * be read.
   */
  knownCode(account: Address): boolean | undefined
  /**
   * EIP-1271 `isValidSignature` by eth_call, 3 s, 3M gas. Throws UnavailableError
   * `state_unavailable` where no answer came.
   */
  authorizes(wallet: Address, digest: Hex, signature: Hex): Promise<boolean>
}
