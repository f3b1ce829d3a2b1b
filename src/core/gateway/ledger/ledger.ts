/**
 * Events in, state out. Active candidates are in memory, ended ones are read on demand, so that a
 * million fit (robustness §2). The life of a slot is folded from its records: the one meaning of
 * `slot.*` records.
 */
import type { Implementation } from '#chain/implementations'
import type { RegistryEntry } from '#chain/questions'
import type { ChainReceipt, Hex } from '#ports'
import type { Candidate, CandidateState, Progress } from '#protocol/candidate'
import type { ReceiptKey } from '#protocol/receipt'
import type { Address } from '#protocol/schema'
import type { SignedAs, slotEnds } from '#protocol/vitals'

export interface CandidateRef {
  readonly id: string
  readonly identity: string
  readonly roundKey: string
  readonly sequence: number
  readonly status: CandidateState
  /** An exact replay puts it back to received (contract §5). */
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

/**
 * One executor nonce and everything signed under it (R3); proposals of several rounds, one each.
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

/** In finalized state. `hash`: what consumed the nonce. */
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
  /** A node below it is on a wrong view (R16). */
  | { readonly kind: 'chain.finalized'; readonly number: string; readonly hash: Hex }

export type LedgerEvent =
  | Change
  | { readonly kind: 'candidate.received'; readonly candidate: Candidate }

export type LedgerListener = (changes: readonly LedgerEvent[], isElsewhere: boolean) => void

export type NewCandidate = Omit<Candidate, 'id' | 'sequence' | 'receivedAtMs' | 'progress'>

export type Admission =
  | { readonly kind: 'admitted'; readonly candidate: Candidate }
  /** Committed before, or by a copy in flight (R2). */
  | { readonly kind: 'replayed'; readonly candidate: Candidate }
  | { readonly kind: 'conflict'; readonly candidateId: string; readonly reason: 'round' | 'nonce' }

export interface StoreInfo {
  readonly storeId: string
  readonly chainId: number
  readonly genesisHash: Hex
}

export interface LedgerSettings {
  readonly chainId: number
  /** Where the node could not be asked, the store has to exist. */
  readonly genesisHash: Hex | undefined
  readonly allowlist: readonly Address[]
  /** gateway.json's; the operator's own switch lies in the store, and both must be on. */
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
  /** Oldest first; the last without an end signs. */
  readonly receiptKeys: ReadonlyMap<string, ReceiptKey>
  readonly finalized: { readonly number: bigint; readonly hash: Hex } | undefined
  /** Oldest first; a day of it at least. */
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
  /** And executed ones whose slot is still open; in order of admission. */
  active(): readonly Candidate[]
  slots(): readonly Slot[]
  slotOf(candidateId: string): Slot | undefined
  /** -1 where none was ever bound. */
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
  /**
   * A retryable failure goes back to received unless its proposer has another active payload in the
   * round; durable when it resolves.
   */
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

export function foldSlot(slots: OpenSlots, change: SlotChange): Slot | undefined {
  if (change.kind === 'slot.opened') return set(slots, change.slot)
  const slot = slots.get(change.slotId)
  if (slot === undefined) return undefined
  switch (change.kind) {
    case 'slot.attempt':
      return set(slots, { ...slot, attempts: [...slot.attempts, change.attempt] })
    case 'slot.sent': {
      const { hash, sentAtMs } = change
      const attempts = slot.attempts.map((one) => (one.hash === hash ? { ...one, sentAtMs } : one))
      return set(slots, { ...slot, attempts })
    }
    case 'slot.mined':
      return set(slots, { ...slot, minedIn: change.blockHash })
    case 'slot.closed':
      slots.delete(slot.id)
      return slot
  }
}

function set(slots: OpenSlots, slot: Slot): Slot {
  slots.set(slot.id, slot)
  return slot
}

export const isSlotChange = <T extends { readonly kind: string }>(
  event: T,
): event is Extract<T, { readonly kind: SlotChange['kind'] }> => event.kind.startsWith('slot.')

export const attemptOf = (slot: Slot | undefined, hash: string | null): SlotAttempt | undefined =>
  slot?.attempts.find((attempt) => attempt.hash === hash)

export function signedAs(slot: Slot, attempt: SlotAttempt): SignedAs {
  const before = slot.attempts[slot.attempts.indexOf(attempt) - 1]
  if (attempt.kind === 'cancel') return 'cancel'
  if (before === undefined) return 'first'
  if (attempt.candidateIds.length < before.candidateIds.length) return 'trim'
  const isHigher = BigInt(attempt.maxFeePerGas) > BigInt(before.maxFeePerGas)
  return before.sentAtMs !== null || isHigher ? 'fee_bump' : 'anew'
}
