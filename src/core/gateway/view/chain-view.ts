/**
 * What admission works from without an RPC round trip (contract §2). Unknown state fails closed
 * (R16).
 */

import type { Round } from '#chain/round'
import type { Hex } from '#ports'
import type { RoundRef } from '#protocol/candidate'
import type { Address } from '#protocol/schema'
import type { WitnessRound } from '#protocol/witness'

export interface Question {
  readonly questionId: Hex
  readonly slug: string | undefined
  readonly round: Round
  readonly ref: RoundRef
  readonly witness: WitnessRound
}

/** What waits for the chain throws `state_unavailable` after 3 s. */
export interface ChainView {
  faults(): readonly string[]
  /** The later of wall clock and head time, rounded up (contract §2). */
  nowSeconds(): bigint
  /** By id or slug; `undefined` also while it may have changed. */
  known(identifier: string): Question | undefined
  /**
   * Misses are remembered ≤ 10 s. `slug_unavailable`: it is not known which question the slug
   * names.
   */
  question(identifier: string): Promise<Question | undefined>
  readAhead(identifiers: readonly string[]): void
  nonceKnownUsed(owner: Address, nonce: bigint): boolean
  /** Wallet or EIP-7702; read at most every 500 ms. */
  hasCode(account: Address): Promise<boolean>
  knownCode(account: Address): boolean | undefined
  /** EIP-1271 `isValidSignature` by eth_call, 3M gas. */
  authorizes(wallet: Address, digest: Hex, signature: Hex): Promise<boolean>
}
