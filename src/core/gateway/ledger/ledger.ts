/**
 * The gateway's ledger: events in, state out. It keeps in memory what is active and what admission
 * needs; an ended candidate is read on demand, so that a million fit (robustness §2).
 */

import type { Implementation } from '../../chain/implementations.js'
import type { RegistryEntry } from '../../chain/questions.js'
import type { ChainReceipt, Hex } from '../../ports.js'
import type { Candidate, CandidateState, Progress } from '../../protocol/candidate.js'
import type { ReceiptKey } from '../../protocol/receipt.js'
import type { Address } from '../../protocol/schema.js'

export interface CandidateRef {
  readonly id: string
  readonly identity: string
  readonly roundKey: string
  readonly sequence: number
  readonly status: CandidateState
  /** Failed with `retryable`: an exact replay puts it back to received (contract §5). */
  readonly retryable: boolean
}

/** Fees in wei as decimal strings. */
export interface SlotAttempt {
  readonly hash: Hex
  /** The signed bytes; durable before the first send (R15), never shown (R5). */
  readonly raw: Hex
  readonly kind: 'propose' | 'cancel'
  readonly candidateIds: readonly string[]
  readonly maxFeePerGas: string
  readonly maxPriorityFeePerGas: string
  readonly preparedAtMs: number
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
  readonly minedIn?: Hex
}

/** How a slot ended, in finalized state. `hash`: the transaction that consumed the nonce. */
export interface SlotOutcome {
  readonly kind: 'executed' | 'reverted' | 'cancelled' | 'foreign'
  readonly hash: Hex | null
}

/**
 * What validation read of the chain, as of one block: kept for whoever asks what happened to a
 * candidate. A figure that was not read is absent.
 */
export interface CandidateCheck {
  readonly blockNumber: string
  readonly verdict: 'valid' | 'failed' | 'closed' | 'wait' | 'operator'
  readonly detail: string | null
  readonly figures: Readonly<Record<string, string | boolean>>
}

/**
 * Gas that a wallet cost the executor for nothing. `own`: its own proposal failed, by what only it
 * can have done. `shared`: it was in a transaction that reverted, or was outrun, and nothing is
 * proven against it. `cancelled`: its nonce was given back by a self-transfer.
 */
export interface WalletFailure {
  readonly wallet: Address
  readonly kind: 'own' | 'shared' | 'cancelled'
  readonly gasUsed: string
  readonly atSeconds: number
}

export interface MinedReceipt {
  readonly hash: Hex
  readonly blockNumber: string
  readonly blockHash: Hex
  readonly status: ChainReceipt['status']
  readonly gasUsed: string
  readonly gasPriceWei?: string | undefined
}

export type SlotChange =
  | { readonly kind: 'slot.opened'; readonly slot: Slot }
  | { readonly kind: 'slot.attempt'; readonly slotId: string; readonly attempt: SlotAttempt }
  | {
      readonly kind: 'slot.sent'
      readonly slotId: string
      readonly hash: Hex
      readonly sentAtMs: number
    }
  | ({ readonly kind: 'slot.mined'; readonly slotId: string } & MinedReceipt)
  | {
      readonly kind: 'slot.closed'
      readonly slotId: string
      readonly outcome: SlotOutcome
      /** Earlier versions neither write nor read it. */
      readonly failures?: readonly WalletFailure[]
    }

/** Why, and who; records of earlier versions do not tell who. */
export interface Decided {
  readonly reason: string
  readonly by?: string | undefined
}

type OperatorChange = Decided &
  (
    | {
        readonly kind: 'allowlist.set'
        readonly address: Address
        readonly allowed: boolean
        /** Only in a fold; an operator who allows a wallet forgives what it has cost. */
        readonly failures?: readonly WalletFailure[]
      }
    | { readonly kind: 'admission.set'; readonly enabled: boolean }
    | { readonly kind: 'question.set'; readonly entry: RegistryEntry }
    | { readonly kind: 'question.removed'; readonly questionId: Hex }
    | {
        readonly kind: 'implementation.set'
        readonly address: Address
        readonly runs: Implementation
      }
    | { readonly kind: 'receipt.key'; readonly key: ReceiptKey }
    /** The loss of what was behind `offset` of `file` was accepted; it is kept in `saved`. */
    | {
        readonly kind: 'store.repaired'
        readonly file: string
        readonly offset: number
        readonly lostBytes: number
        readonly saved: readonly string[]
      }
  )

/** Everything that may happen after admission. A commit is one durable, atomic record. */
export type Change =
  | SlotChange
  | OperatorChange
  | {
      readonly kind: 'candidate.progress'
      readonly id: string
      readonly progress: Progress
      readonly by?: string | undefined
    }
  | { readonly kind: 'candidate.checked'; readonly id: string; readonly check: CandidateCheck }
  /** The newest finalized block seen: a node below it is on a wrong view (R16). */
  | { readonly kind: 'chain.finalized'; readonly number: string; readonly hash: Hex }

export type LedgerEvent =
  | Change
  | { readonly kind: 'candidate.received'; readonly candidate: Candidate }

/** `isElsewhere`: another gateway on the same store wrote it. */
export type LedgerListener = (changes: readonly LedgerEvent[], isElsewhere: boolean) => void

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

export interface LedgerSettings {
  readonly chainId: number
  /** `undefined` where the node could not be asked; then the store has to exist. */
  readonly genesisHash: Hex | undefined
  /**
   * gateway.json's allowlist: wallets the store has never heard of are allowed, those an operator
   * took off stay off (contract §7).
   */
  readonly allowlist: readonly Address[]
  /** gateway.json's `admission.enabled`; the operator's own switch lies in the store. */
  readonly admissionEnabled: boolean
}

export interface AdmissionDecision extends Decided {
  readonly atMs: number
}

export interface LedgerFacts {
  /** `undefined` only for a store that does not exist yet, opened for looking. */
  readonly info: StoreInfo | undefined
  /** The operator's own admission switch; the configuration has another, and both must be on. */
  readonly admissionSwitch: boolean
  readonly admissionDecision: AdmissionDecision | undefined
  /** What operators added to questions.json; `null` for what they took from it. */
  readonly questions: ReadonlyMap<Hex, RegistryEntry | null>
  readonly implementations: ReadonlyMap<Address, Implementation>
  /** Public keys of receipts by their ids, oldest first; the last without an end signs. */
  readonly receiptKeys: ReadonlyMap<string, ReceiptKey>
  readonly finalized: { readonly number: bigint; readonly hash: Hex } | undefined
  /** What wallets cost the executor for nothing, oldest first; a day of it at least. */
  readonly failures: ReadonlyMap<Address, readonly WalletFailure[]>
  byIdentity(identity: string): CandidateRef | undefined
  byId(id: string): CandidateRef | undefined
  activeInRound(proposer: Address, roundKey: string): CandidateRef | undefined
  activeWithNonce(proposer: Address, nonce: string): CandidateRef | undefined
  eligible(proposer: Address): boolean
  /** About what failed proposals of a wallet have added to the store on this day (UTC). */
  failedBytes(proposer: Address, nowMs: number): number
  byRound(roundKey: string): readonly CandidateRef[]
  newest(count?: number): Iterable<CandidateRef>
  counts(): Record<CandidateState, number>
  /**
   * Received, validated and selected candidates, and executed ones whose slot is still open; in
   * order of admission.
   */
  active(): readonly Candidate[]
  slots(): readonly Slot[]
  slotOf(candidateId: string): Slot | undefined
  /** Highest executor nonce ever bound to a slot of this executor, or -1. */
  highestNonce(executor: Address): number
}

export interface Ledger extends LedgerFacts {
  readonly admissionEnabled: boolean
  readonly allowlist: ReadonlySet<Address>
  /** Set once the store can no longer be written (R10, R12). */
  readonly failed: Error | undefined
  /** The disk is full: nothing is admitted until a probe finds space (robustness §2). */
  readonly isFull: boolean
  readonly down: string | undefined
  /**
   * Commits a candidate. Copies and conflicts are looked for at the log's end. So of eight copies
   * exactly one is admitted and the others wait for its commit (R2). Calls are decided in their
   * order. Resolves once durable (R1). Throws `store_unavailable` where nothing was committed and
   * `store_failed` where that is not known (R10).
   */
  admit(candidate: NewCandidate): Promise<Admission>
  /**
   * An exact replay. A failed, retryable candidate goes back to received unless its proposer has
   * another active payload in the round; anything else is returned as it is, all of it where
   * `mayRevive` is false. Durable when it resolves.
   */
  replay(id: string, mayRevive?: boolean): Promise<Candidate>
  get(id: string): Promise<Candidate | undefined>
  /**
   * When the newest progress of a candidate was written, in Unix milliseconds; `undefined` where
   * there is none, or a compaction has folded it.
   */
  progressedAtMs(id: string): Promise<number | undefined>
  /**
   * One durable, atomic commit; applied to memory only after it is durable. `basis`: candidates on
   * whose status the changes rest; where one of them has moved on, nothing is written and the
   * answer is false. `epoch`: of a leader, which writes nothing once another leads
   * (`store_fenced`). Throws RangeError for a transition that there is not (contract §5).
   */
  commit(changes: readonly Change[], basis?: readonly Candidate[], epoch?: number): Promise<boolean>
  /**
   * Where several gateways write: resolves once all is known that was written up to record `n`, or
   * up to now. Rejects with `store_unavailable`.
   */
  readonly catchUp?: ((n?: number) => Promise<void>) | undefined
  onChange(listener: LedgerListener): () => void
  close(): Promise<void>
}
