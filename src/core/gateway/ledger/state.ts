/**
 * The state that a ledger's records fold into. Every durable record passes through `apply` in log
 * order, at start-up and while serving alike, so that there is one meaning of a record and not two.
 */
import type { RegistryEntry } from '../../chain/questions.js'
import type { Address, Hex } from '../../ports.js'
import {
  type Candidate,
  type CandidateState,
  isActive,
  mayBecome,
  type Progress,
} from '../../protocol/candidate.js'
import type { Position, RecordHead, StoredRecord } from '../../storage/record-log.js'
import { type Entries, type Entry, newEntries } from './entries.js'
import type { Change, Slot, StoreInfo } from './ledger.js'

/**
 * A candidate as the log holds it when it was admitted; its progress follows in records of its own.
 */
export type ReceivedData = Omit<Candidate, 'progress'>

/** Every kind of record a store of this version holds. */
export type LedgerRecord =
  | (Change & {
      /** Written by a compaction, which keeps what it stands for as `past`. */ readonly folded?: true
    })
  | { readonly kind: 'store.opened'; readonly info: StoreInfo }
  | { readonly kind: 'candidate.received'; readonly candidate: ReceivedData }
  /**
   * A candidate with its progress: put back by a replay of a retryable failure, or folded by a
   * compaction.
   */
  | { readonly kind: 'candidate.whole'; readonly candidate: Candidate; readonly folded?: true }
  /** What a record that a compaction has folded said, and when; no state hangs on it. */
  | { readonly kind: 'past'; readonly atMs: number; readonly was: Change }
  /** The highest nonce ever bound, kept by a compaction that drops the closed slots. */
  | { readonly kind: 'executor.nonce'; readonly executor: Address; readonly nonce: number }

const kinds: Record<LedgerRecord['kind'], true> = {
  'store.opened': true,
  'candidate.received': true,
  'candidate.whole': true,
  'candidate.progress': true,
  'candidate.checked': true,
  'slot.opened': true,
  'slot.attempt': true,
  'slot.sent': true,
  'slot.mined': true,
  'slot.closed': true,
  'executor.nonce': true,
  'allowlist.set': true,
  'admission.set': true,
  'question.set': true,
  'question.removed': true,
  'chain.finalized': true,
  'store.repaired': true,
  past: true,
}
/** Whether this version understands a record kind. */
export const knownKind = (kind: string): boolean => Object.hasOwn(kinds, kind)

export interface LedgerState {
  info: StoreInfo | undefined
  admissionEnabled: boolean
  finalized: { readonly number: bigint; readonly hash: Hex } | undefined
  /** False for a wallet that was once allowed and is not any more. */
  readonly allowlist: Map<Address, boolean>
  /** What operators added; `null` for what they took away. */
  readonly questions: Map<Hex, RegistryEntry | null>
  readonly entries: Entries
  /** Those whose body is in memory. */
  readonly live: Set<Entry>
  /** What `activeOf` has found, until the next record about a candidate. */
  active: readonly Candidate[] | undefined
  /** Active candidates by `proposer|roundKey` and by `proposer|nonce`. */
  readonly byRound: Map<string, Entry>
  readonly byNonce: Map<string, Entry>
  readonly slots: Map<string, Slot>
  /** Open slots by candidate. */
  readonly slotOf: Map<string, Slot>
  readonly highestNonce: Map<Address, number>
  nextSequence: number
}

/** The state of an empty store. */
export function emptyState(): LedgerState {
  return {
    info: undefined,
    admissionEnabled: true,
    finalized: undefined,
    allowlist: new Map(),
    questions: new Map(),
    entries: newEntries(),
    live: new Set(),
    active: undefined,
    byRound: new Map(),
    byNonce: new Map(),
    slots: new Map(),
    slotOf: new Map(),
    highestNonce: new Map(),
    nextSequence: 1,
  }
}

export const roundSlot = (proposer: Address, roundKey: string) => `${proposer}|${roundKey}`
export const nonceSlot = (proposer: Address, nonce: string) => `${proposer}|${nonce}`

/**
 * The live candidates that did not fail, in order of admission; the same list until something
 * changes.
 */
export function activeOf(state: LedgerState): readonly Candidate[] {
  if (state.active) return state.active
  const found: Candidate[] = []
  for (const { live, status } of state.live) if (live && status !== 'failed') found.push(live)
  // A replay puts a failed one at the end of `live`.
  state.active = found.sort((one, other) => one.sequence - other.sequence)
  return state.active
}

type Head = readonly [
  id: string,
  identity: string,
  roundKey: string,
  sequence: number,
  status: CandidateState,
  retryable: boolean,
]

/**
 * The head of a `candidate.whole` record: all that stays in memory of one that has come to its end
 * (T13).
 */
export function headOf({ id, identity, round, sequence, progress }: Candidate): Head {
  return [
    id,
    identity,
    round.key,
    sequence,
    progress.status,
    progress.status === 'failed' && progress.failure.retryable,
  ]
}

/**
 * Takes in a candidate by its head alone, which only a compaction writes, and only of those that it
 * finds ended.
 */
function receiveEnded(state: LedgerState, head: RecordHead, position: Position): void {
  const [id, identity, roundKey, sequence, status, retryable] = head as Head
  state.entries.putEnded({
    id,
    identity,
    roundKey,
    sequence,
    status,
    retryable,
    receivedAt: position,
    progressAt: -1,
    live: undefined,
  })
  state.nextSequence = Math.max(state.nextSequence, sequence + 1)
}

/**
 * Folds one durable record into the state. Throws RangeError for a record that contradicts what
 * came before it.
 */
export function apply(state: LedgerState, record: StoredRecord): void {
  if (record.kind === 'candidate.whole' && record.head !== undefined) {
    receiveEnded(state, record.head, record.position)
    return
  }
  // Records are written by this program alone and carry checksums; their shape is trusted here (R11
  // guards the bytes).
  const event = { kind: record.kind, ...(record.data as object) } as LedgerRecord
  switch (event.kind) {
    case 'store.opened':
      state.info = event.info
      return
    case 'candidate.received':
      receive(state, { ...event.candidate, progress: { status: 'received' } }, record.position)
      return
    case 'candidate.whole':
      receive(state, event.candidate, record.position)
      return
    case 'candidate.progress':
      progress(state, entryOf(state, event.id), event.progress, record.position)
      return
    case 'slot.opened':
      setSlot(state, event.slot)
      raiseNonce(state, event.slot.executor, event.slot.nonce)
      return
    case 'slot.attempt': {
      const slot = slotOf(state, event.slotId)
      setSlot(state, { ...slot, attempts: [...slot.attempts, event.attempt] })
      return
    }
    case 'slot.sent': {
      const slot = slotOf(state, event.slotId)
      const attempts = slot.attempts.map((attempt) =>
        attempt.hash === event.hash ? { ...attempt, sentAtMs: event.sentAtMs } : attempt,
      )
      setSlot(state, { ...slot, attempts })
      return
    }
    case 'slot.mined':
      setSlot(state, { ...slotOf(state, event.slotId), minedIn: event.blockHash })
      return
    case 'slot.closed': {
      const slot = slotOf(state, event.slotId)
      state.slots.delete(slot.id)
      for (const id of slot.candidateIds) {
        if (state.slotOf.get(id)?.id === slot.id) state.slotOf.delete(id)
        release(state, entryOf(state, id))
      }
      return
    }
    case 'executor.nonce':
      raiseNonce(state, event.executor, event.nonce)
      return
    case 'allowlist.set':
      state.allowlist.set(event.address, event.allowed)
      return
    case 'candidate.checked':
    case 'store.repaired':
    case 'past':
      // Told by whoever reads the log; no state hangs on it.
      return
    case 'question.set':
      state.questions.set(event.entry.questionId, event.entry)
      return
    case 'question.removed':
      state.questions.set(event.questionId, null)
      return
    case 'admission.set':
      state.admissionEnabled = event.enabled
      return
    case 'chain.finalized':
      state.finalized = { number: BigInt(event.number), hash: event.hash }
      return
  }
}

function receive(state: LedgerState, candidate: Candidate, position: Position): void {
  const entry: Entry = {
    id: candidate.id,
    identity: candidate.identity,
    roundKey: candidate.round.key,
    sequence: candidate.sequence,
    status: candidate.progress.status,
    retryable: candidate.progress.status === 'failed' && candidate.progress.failure.retryable,
    receivedAt: position,
    progressAt: -1,
    live: candidate,
  }
  const known = state.entries.near(entry.id)
  if (known) state.live.delete(known)
  state.entries.put(entry)
  state.live.add(entry)
  state.active = undefined
  state.nextSequence = Math.max(state.nextSequence, candidate.sequence + 1)
  if (isActive(entry.status)) index(state, entry, candidate)
  release(state, entry)
}

function progress(state: LedgerState, entry: Entry, next: Progress, position: Position): void {
  const candidate = entry.live
  if (!candidate) throw new RangeError(`candidate ${entry.id} is not in memory`)
  const before = entry.status
  if (!mayBecome(before, next.status))
    throw new RangeError(`candidate ${entry.id} cannot go from ${before} to ${next.status}`)
  entry.status = next.status
  entry.retryable = next.status === 'failed' && next.failure.retryable
  entry.progressAt = position
  entry.live = { ...candidate, progress: next }
  state.active = undefined
  if (isActive(next.status)) index(state, entry, candidate)
  else unindex(state, entry, candidate)
  release(state, entry)
}

function index(state: LedgerState, entry: Entry, candidate: Candidate): void {
  state.byRound.set(roundSlot(candidate.proposer, entry.roundKey), entry)
  state.byNonce.set(nonceSlot(candidate.proposer, candidate.nonce), entry)
}

function unindex(state: LedgerState, entry: Entry, candidate: Candidate): void {
  const round = roundSlot(candidate.proposer, entry.roundKey)
  const nonce = nonceSlot(candidate.proposer, candidate.nonce)
  if (state.byRound.get(round) === entry) state.byRound.delete(round)
  if (state.byNonce.get(nonce) === entry) state.byNonce.delete(nonce)
}

/**
 * Lets go of a candidate's body once nothing can happen to it any more; it is read on demand from
 * then on.
 */
function release(state: LedgerState, entry: Entry): void {
  if (isActive(entry.status) || state.slotOf.has(entry.id)) return
  entry.live = undefined
  state.live.delete(entry)
  state.active = undefined
  state.entries.putEnded(entry)
}

function setSlot(state: LedgerState, slot: Slot): void {
  state.slots.set(slot.id, slot)
  for (const id of slot.candidateIds) state.slotOf.set(id, slot)
}

function raiseNonce(state: LedgerState, executor: Address, nonce: number): void {
  state.highestNonce.set(executor, Math.max(nonce, state.highestNonce.get(executor) ?? -1))
}

function entryOf(state: LedgerState, id: string): Entry {
  const entry = state.entries.get(id)
  if (!entry) throw new RangeError(`no candidate ${id}`)
  return entry
}

function slotOf(state: LedgerState, id: string): Slot {
  const slot = state.slots.get(id)
  if (!slot) throw new RangeError(`no open slot ${id}`)
  return slot
}

/**
 * Why a set of changes must not be committed on this state, or `undefined`. Judged before anything
 * is written, since a record that `apply` refuses would make the log unreadable.
 */
export function changeFault(state: LedgerState, changes: readonly Change[]): string | undefined {
  const statuses = new Map<string, CandidateState>()
  const slots = new Map<string, readonly Hex[]>(
    [...state.slots.values()].map((slot) => [slot.id, slot.attempts.map((a) => a.hash)]),
  )
  for (const change of changes) {
    switch (change.kind) {
      case 'candidate.progress': {
        const entry = state.entries.get(change.id)
        if (!entry?.live) return `candidate ${change.id} is unknown or at its end`
        const from = statuses.get(change.id) ?? entry.status
        if (!mayBecome(from, change.progress.status))
          return `candidate ${change.id} cannot go from ${from} to ${change.progress.status}`
        statuses.set(change.id, change.progress.status)
        break
      }
      case 'slot.opened': {
        if (slots.has(change.slot.id)) return `slot ${change.slot.id} is open already`
        const { executor, nonce, candidateIds } = change.slot
        // What carries no proposal may fill a gap below; a proposal never gets a nonce that may
        // have served another one (R3).
        const isFiller =
          candidateIds.length === 0 &&
          ![...state.slots.values()].some(
            (slot) => slot.executor === executor && slot.nonce === nonce,
          )
        if (!isFiller && nonce <= (state.highestNonce.get(executor) ?? -1))
          return `nonce ${nonce} was bound before`
        for (const id of change.slot.candidateIds) {
          if (!state.entries.get(id)?.live) return `candidate ${id} is unknown or at its end`
          if (state.slotOf.has(id)) return `candidate ${id} has an open slot`
        }
        slots.set(change.slot.id, [])
        break
      }
      case 'slot.attempt': {
        const hashes = slots.get(change.slotId)
        if (!hashes) return `slot ${change.slotId} is not open`
        slots.set(change.slotId, [...hashes, change.attempt.hash])
        break
      }
      case 'slot.sent':
        if (!slots.get(change.slotId)?.includes(change.hash))
          return `slot ${change.slotId} has no attempt ${change.hash}`
        break
      case 'slot.mined':
        if (!slots.get(change.slotId)?.includes(change.hash))
          return `slot ${change.slotId} has no attempt ${change.hash}`
        break
      case 'candidate.checked':
        if (!state.entries.get(change.id)?.live)
          return `candidate ${change.id} is unknown or at its end`
        break
      case 'slot.closed':
        if (!slots.delete(change.slotId)) return `slot ${change.slotId} is not open`
        break
      case 'allowlist.set':
      case 'admission.set':
      case 'question.set':
      case 'question.removed':
      case 'chain.finalized':
      case 'store.repaired':
        break
    }
  }
  return undefined
}
