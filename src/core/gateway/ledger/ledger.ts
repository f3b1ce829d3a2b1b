/** Events in, state out. Active candidates are in memory, so that a million fit (robustness §2). */
import type { Implementation } from '#chain/implementations'
import type { RegistryEntry } from '#chain/questions'
import type { ChainReceipt, Hex } from '#ports'
import type { Candidate, CandidateState, Progress } from '#protocol/candidate'
import type { ReceiptKey } from '#protocol/receipt'
import type { Address } from '#protocol/schema'
import type { slotEnds } from '#protocol/vitals'

export interface CandidateRef {
  readonly id: string
  readonly identity: string
  readonly roundKey: string
  readonly sequence: number
  readonly status: CandidateState
  readonly retryable: boolean
}

export interface SlotAttempt {
  readonly hash: Hex
  /** Durable before the first send (R15), never shown (R5). */
  readonly raw: Hex
  readonly kind: 'propose' | 'cancel'
  readonly candidateIds: readonly string[]
  readonly maxFeePerGas: string
  readonly maxPriorityFeePerGas: string
  readonly preparedAtMs: number
  readonly sentAtMs: number | null
}

/** One executor nonce and everything signed under it (R3). */
export interface Slot {
  readonly id: string
  readonly executor: Address
  readonly nonce: number
  readonly candidateIds: readonly string[]
  readonly openedAtMs: number
  readonly attempts: readonly SlotAttempt[]
  readonly minedIn?: Hex
}

export interface SlotOutcome {
  readonly kind: (typeof slotEnds)[number]
  readonly hash: Hex | null
}

/** What validation read, as of one block. A figure that was not read is absent. */
export interface CandidateCheck {
  readonly blockNumber: string
  readonly verdict: 'valid' | 'failed' | 'closed' | 'wait' | 'operator'
  readonly detail: string | null
  readonly figures: Readonly<Record<string, string | boolean>>
}

/**
 * `own`: by what only the wallet can have done. `shared`: nothing is proven against it.
 * `cancelled`: its nonce was given back.
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

export type SlotChange = Readonly<
  | { kind: 'slot.opened'; slot: Slot }
  | { kind: 'slot.attempt'; slotId: string; attempt: SlotAttempt }
  | { kind: 'slot.sent'; slotId: string; hash: Hex; sentAtMs: number }
  | ({ kind: 'slot.mined'; slotId: string } & MinedReceipt)
  | {
      kind: 'slot.closed'
      slotId: string
      outcome: SlotOutcome
      failures?: readonly WalletFailure[]
    }
>

export interface Decided {
  readonly reason: string
  readonly by?: string | undefined
}

type OperatorChange = Decided &
  Readonly<
    | {
        kind: 'allowlist.set'
        address: Address
        allowed: boolean
        /** Only in a fold; an operator who allows a wallet forgives what it has cost. */
        failures?: readonly WalletFailure[]
      }
    | { kind: 'admission.set'; enabled: boolean }
    | { kind: 'question.set'; entry: RegistryEntry }
    | { kind: 'question.removed'; questionId: Hex }
    | { kind: 'implementation.set'; address: Address; runs: Implementation }
    | { kind: 'receipt.key'; key: ReceiptKey }
    /** The loss of what was behind `offset` of `file` was accepted; it is kept in `saved`. */
    | {
        kind: 'store.repaired'
        file: string
        offset: number
        lostBytes: number
        saved: readonly string[]
      }
  >

export type Change =
  | SlotChange
  | OperatorChange
  | Readonly<
      | {
          kind: 'candidate.progress'
          id: string
          progress: Progress
          by?: string | undefined
        }
      | { kind: 'candidate.checked'; id: string; check: CandidateCheck }
      /** A node below it is on a wrong view (R16). */
      | { kind: 'chain.finalized'; number: string; hash: Hex }
    >

export type LedgerEvent = Change | Readonly<{ kind: 'candidate.received'; candidate: Candidate }>

export type LedgerListener = (changes: readonly LedgerEvent[], isElsewhere: boolean) => void

export type NewCandidate = Omit<Candidate, 'id' | 'sequence' | 'receivedAtMs' | 'progress'>

/** Replayed: committed before, or by a copy in flight (R2). */
export type Admission = Readonly<
  | { kind: 'admitted' | 'replayed'; candidate: Candidate }
  | { kind: 'conflict'; candidateId: string; reason: 'round' | 'nonce' }
>

export interface StoreInfo {
  readonly storeId: string
  readonly chainId: number
  readonly genesisHash: Hex
}

export interface LedgerSettings {
  readonly chainId: number
  readonly genesisHash: Hex | undefined
  readonly allowlist: readonly Address[]
  readonly admissionEnabled: boolean
}

export interface OperatorDecision extends Decided {
  readonly atMs: number
}

export interface LedgerFacts {
  readonly info: StoreInfo | undefined
  readonly admissionSwitch: boolean
  readonly admissionDecision: OperatorDecision | undefined
  readonly questions: ReadonlyMap<Hex, RegistryEntry | null>
  readonly implementations: ReadonlyMap<Address, Implementation>
  readonly receiptKeys: ReadonlyMap<string, ReceiptKey>
  readonly finalized: { readonly number: bigint; readonly hash: Hex } | undefined
  readonly failures: ReadonlyMap<Address, readonly WalletFailure[]>
  byIdentity(identity: string): CandidateRef | undefined
  byId(id: string): CandidateRef | undefined
  activeInRound(proposer: Address, roundKey: string): CandidateRef | undefined
  activeWithNonce(proposer: Address, nonce: string): CandidateRef | undefined
  eligible(proposer: Address): boolean
  failedBytes(proposer: Address, nowMs: number): number
  byRound(roundKey: string): readonly CandidateRef[]
  newest(count?: number): Iterable<CandidateRef>
  counts(): Record<CandidateState, number>
  active(): readonly Candidate[]
  slots(): readonly Slot[]
  slotOf(candidateId: string): Slot | undefined
  highestNonce(executor: Address): number
}

export interface Ledger extends LedgerFacts {
  readonly admissionEnabled: boolean
  readonly allowlist: ReadonlySet<Address>
  readonly failed: Error | undefined
  /** Nothing is admitted until a probe finds space (robustness §2). */
  readonly isFull: boolean
  readonly down: string | undefined
  /**
   * Copies and conflicts are looked for at the log's end: of eight copies one is admitted, the
   * others wait for its commit (R2). Resolves once durable (R1). `store_unavailable`: nothing was
   * committed; `store_failed`: that is not known (R10).
   */
  admit(candidate: NewCandidate): Promise<Admission>
  /** A retryable failure goes back to received, unless its proposer has another in the round. */
  replay(id: string, mayRevive?: boolean): Promise<Candidate>
  get(id: string): Promise<Candidate | undefined>
  progressedAtMs(id: string): Promise<number | undefined>
  /**
   * Durable and atomic. Where one of `basis` has moved on, nothing is written: false. `epoch`: of a
   * leader (`store_fenced`). RangeError for a transition that there is not (contract §5).
   */
  commit(changes: readonly Change[], basis?: readonly Candidate[], epoch?: number): Promise<boolean>
  /** Resolves once all is known that was written up to record `n`, or up to now. */
  readonly catchUp?: ((n?: number) => Promise<void>) | undefined
  onChange(listener: LedgerListener): () => void
  close(): Promise<void>
}

export type OpenSlots = Map<string, Slot>
