/**
 * The gateway's ledger: events in, state out. It stands on a `RecordLog` and keeps in memory only
 * what admission needs; everything else of a candidate that has come to its end is read on demand,
 * so that a million fit (robustness §2). What is active lives in memory whole.
 */
import type { RegistryEntry } from '../../chain/questions.js'
import type { Address, ChainReceipt, Hex } from '../../ports.js'
import type { Candidate, CandidateState, Progress } from '../../protocol/candidate.js'

/** What is remembered of every candidate. */
export interface CandidateRef {
  readonly id: string
  readonly identity: string
  readonly roundKey: string
  readonly status: CandidateState
  /** Failed with `retryable`: an exact replay puts it back to received (contract §5). */
  readonly retryable: boolean
}

/** One signed transaction of a slot. Fees in wei as decimal strings. */
export interface SlotAttempt {
  readonly hash: Hex
  /** The signed bytes; durable before the first send (R15), never shown (R5). */
  readonly raw: Hex
  readonly kind: 'propose' | 'cancel'
  /** Candidates whose proposals the calldata carries; empty for a cancel. */
  readonly candidateIds: readonly string[]
  readonly maxFeePerGas: string
  readonly maxPriorityFeePerGas: string
  readonly preparedAtMs: number
  /** First hand-over to a node; `null` while only prepared. */
  readonly sentAtMs: number | null
}

/**
 * One executor nonce and everything that was ever signed under it (R3). It may carry proposals of
 * several rounds, one each.
 */
export interface Slot {
  readonly id: string
  readonly executor: Address
  readonly nonce: number
  readonly candidateIds: readonly string[]
  readonly openedAtMs: number
  readonly attempts: readonly SlotAttempt[]
  /** Hash of the block of the newest receipt on record. */
  readonly minedIn?: Hex
}

/**
 * How a slot ended, in finalized state. `hash` is the transaction that consumed the nonce, where it
 * is known.
 */
export interface SlotOutcome {
  readonly kind: 'executed' | 'reverted' | 'cancelled' | 'foreign'
  readonly hash: Hex | null
}

/**
 * What validation read of the chain, as of one block: kept for whoever asks what happened to a
 * candidate. Amounts and times as decimal strings in raw units and Unix seconds; what was not
 * reached is absent.
 */
export interface CandidateCheck {
  readonly blockNumber: string
  readonly verdict: 'valid' | 'failed' | 'closed' | 'wait' | 'operator'
  readonly detail: string | null
  readonly figures: Readonly<Record<string, string | boolean>>
}

/** Everything that may happen after admission. A commit is one durable, atomic record. */
export type Change =
  | { readonly kind: 'candidate.progress'; readonly id: string; readonly progress: Progress }
  | { readonly kind: 'slot.opened'; readonly slot: Slot }
  | { readonly kind: 'slot.attempt'; readonly slotId: string; readonly attempt: SlotAttempt }
  | {
      readonly kind: 'slot.sent'
      readonly slotId: string
      readonly hash: Hex
      readonly sentAtMs: number
    }
  /**
   * A receipt that was counted on. `gasPriceWei`: what was paid for gas; absent where the node did
   * not tell.
   */
  | {
      readonly kind: 'slot.mined'
      readonly slotId: string
      readonly hash: Hex
      readonly blockNumber: string
      readonly blockHash: Hex
      readonly status: ChainReceipt['status']
      readonly gasUsed: string
      readonly gasPriceWei?: string | undefined
    }
  | { readonly kind: 'slot.closed'; readonly slotId: string; readonly outcome: SlotOutcome }
  | { readonly kind: 'candidate.checked'; readonly id: string; readonly check: CandidateCheck }
  | {
      readonly kind: 'allowlist.set'
      readonly address: Address
      readonly allowed: boolean
      readonly reason: string
    }
  | { readonly kind: 'admission.set'; readonly enabled: boolean; readonly reason: string }
  /** An operator's addition to questions.json, or its removal. */
  | { readonly kind: 'question.set'; readonly entry: RegistryEntry; readonly reason: string }
  | { readonly kind: 'question.removed'; readonly questionId: Hex; readonly reason: string }
  /**
   * An operator accepted the loss of what lay from `offset` of `file` on; it lies in `saved`
   * (robustness §2). Written by the repair.
   */
  | {
      readonly kind: 'store.repaired'
      readonly file: string
      readonly offset: number
      readonly lostBytes: number
      readonly saved: readonly string[]
      readonly reason: string
    }
  /** The newest finalized block seen: a node below it is on a wrong view (R16). */
  | { readonly kind: 'chain.finalized'; readonly number: string; readonly hash: Hex }

/** What `onChange` tells: changes, and candidates newly admitted. */
export type LedgerEvent =
  | Change
  | { readonly kind: 'candidate.received'; readonly candidate: Candidate }

export type NewCandidate = Omit<Candidate, 'id' | 'sequence' | 'receivedAtMs' | 'progress'>

export type Admission =
  | { readonly kind: 'admitted'; readonly candidate: Candidate }
  /** The same payload was committed before, or by a copy in flight (R2). */
  | { readonly kind: 'replayed'; readonly candidate: Candidate }
  | { readonly kind: 'conflict'; readonly candidateId: string; readonly reason: 'round' | 'nonce' }

export interface StoreInfo {
  readonly storeId: string
  readonly chainId: number
  readonly genesisHash: Hex
}

export interface Ledger {
  /** `undefined` only for a store that does not exist yet, opened for looking. */
  readonly info: StoreInfo | undefined

  // — admission: synchronous look-ups in memory —
  byIdentity(identity: string): CandidateRef | undefined
  byId(id: string): CandidateRef | undefined
  /** The active candidate of a proposer in a round. */
  activeInRound(proposer: Address, roundKey: string): CandidateRef | undefined
  /** The active candidate with this Permit2 nonce, whatever its round. */
  activeWithNonce(proposer: Address, nonce: string): CandidateRef | undefined
  eligible(proposer: Address): boolean
  readonly admissionEnabled: boolean
  /** The operator's own switch; the configuration has another, and both must be on. */
  readonly admissionSwitch: boolean
  readonly allowlist: ReadonlySet<Address>
  /** What operators added to questions.json and what they took from it. */
  readonly questions: ReadonlyMap<Hex, RegistryEntry | null>

  /**
   * Commits a candidate. Copies and conflicts are looked for at the log's end, so that of eight
   * copies exactly one is admitted and the others wait for its commit (R2). Calls are decided in
   * their order. Resolves once durable (R1). Throws `store_unavailable` where nothing was committed
   * and `store_failed` where that is not known (R10).
   */
  admit(candidate: NewCandidate): Promise<Admission>
  /**
   * An exact replay: a failed, retryable candidate goes back to received unless its proposer has
   * another active payload in the round; anything else is returned as it is. Durable when it
   * resolves.
   */
  replay(id: string): Promise<Candidate>
  /** A candidate whole, read from the log where it is no longer active. */
  get(id: string): Promise<Candidate | undefined>

  // — pipeline —
  /**
   * Received, validated and selected candidates, and executed ones whose slot is still open; in
   * order of admission.
   */
  active(): readonly Candidate[]
  /** Open slots in order of their nonces. */
  slots(): readonly Slot[]
  /** Highest executor nonce ever bound to a slot of this executor, or -1. */
  highestNonce(executor: Address): number
  readonly finalized: { readonly number: bigint; readonly hash: Hex } | undefined
  /**
   * One durable, atomic commit; applied to memory only after it is durable. `basis`: candidates on
   * whose status the changes rest; where one of them has moved on, nothing is written and the
   * answer is false. Throws RangeError for a transition contract §5 does not know.
   */
  commit(changes: readonly Change[], basis?: readonly Candidate[]): Promise<boolean>
  /** Called after each admission and commit, with what changed. */
  onChange(listener: (changes: readonly LedgerEvent[]) => void): () => void
  /** Set once the store can no longer be written (R10, R12). */
  readonly failed: Error | undefined
  /**
   * The disk is full: nothing is admitted until a probe finds space (robustness §2, Write error).
   */
  readonly isFull: boolean
  close(): Promise<void>
}
