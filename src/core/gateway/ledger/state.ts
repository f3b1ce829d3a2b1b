/** Every durable record passes through `apply` in log order, at start-up and while serving. */
import type { Implementation } from '#chain/implementations'
import type { RegistryEntry } from '#chain/questions'
import type { Hex } from '#ports'
import { type Candidate, isActive, mayBecome, type Progress } from '#protocol/candidate'
import type { ReceiptKey } from '#protocol/receipt'
import { type Address, CandidateState } from '#protocol/schema'
import type { NewRecord, RecordPosition, StoredRecord } from '#storage/record-log'
import type {
  CandidateRef,
  Change,
  Decided,
  OpenSlots,
  OperatorDecision,
  Slot,
  SlotAttempt,
  SlotChange,
  StoreInfo,
  WalletFailure,
} from './ledger.js'

type ReceivedData = Omit<Candidate, 'progress'>

type Folded = Readonly<{ folded?: true }>
type Lead = Readonly<{ gateway: string; epoch: number }>

export type LedgerRecord =
  | (Change & Folded)
  | Readonly<
      | { kind: 'store.opened'; info: StoreInfo }
      | { kind: 'candidate.received'; candidate: ReceivedData }
      | ({ kind: 'candidate.whole'; candidate: Candidate } & Folded)
      | { kind: 'past'; atMs: number; was: Change }
      | { kind: 'executor.nonce'; executor: Address; nonce: number }
      | ({ kind: 'leader.elected' } & Lead)
      | ({ kind: 'leader.resigned' } & Decided & Lead)
    >

/** Written by this program alone, with checksums: their shape is trusted here (R11). */
export const recordOf = ({ kind, data }: Pick<StoredRecord, 'kind' | 'data'>): LedgerRecord =>
  ({ kind, ...(data as object) }) as LedgerRecord

export function datedRecord(record: Pick<StoredRecord, 'kind' | 'data' | 'timeMs'>): {
  readonly atMs: number
  readonly event: LedgerRecord
} {
  const event = recordOf(record)
  return event.kind === 'past'
    ? { atMs: event.atMs, event: event.was }
    : { atMs: record.timeMs, event }
}

export const dayOf = (timeMs: number) => Math.floor(timeMs / 86_400_000)

export const bytesOf = ({ signature }: Partial<Pick<Candidate, 'signature'>>): number =>
  (signature?.length ?? 0) + 1_536

export type LedgerState = ReturnType<typeof emptyState>

export const emptyState = () => ({
  info: undefined as StoreInfo | undefined,
  admissionEnabled: true,
  admissionDecision: undefined as OperatorDecision | undefined,
  finalized: undefined as { readonly number: bigint; readonly hash: Hex } | undefined,
  allowlist: new Map<Address, boolean>(),
  failures: new Map<Address, readonly WalletFailure[]>(),
  questions: new Map<Hex, RegistryEntry | null>(),
  implementations: new Map<Address, Implementation>(),
  receiptKeys: new Map<string, ReceiptKey>(),
  entries: newEntries(),
  live: new Set<CandidateEntry>(),
  active: undefined as readonly Candidate[] | undefined,
  byRound: new Map<string, CandidateEntry>(),
  byNonce: new Map<string, CandidateEntry>(),
  slots: new Map() as OpenSlots,
  slotOf: new Map<string, string>(),
  highestNonce: new Map<Address, number>(),
  nextSequence: 1,
  failedBytes: new Map<Address, { readonly day: number; readonly bytes: number }>(),
})

export const roundKeyOf = (proposer: Address, roundKey: string) => `${proposer}|${roundKey}`
export const nonceKeyOf = (proposer: Address, nonce: string) => `${proposer}|${nonce}`

export const isRetryable = (progress: Progress) =>
  progress.status === 'failed' && progress.failure.retryable

export type EndedHead = readonly [
  id: string,
  identity: string,
  roundKey: string,
  sequence: number,
  status: CandidateState,
  retryable: boolean,
]

export function receiveEnded(
  state: LedgerState,
  [id, identity, roundKey, sequence, status, retryable]: readonly [...EndedHead, ...unknown[]],
  receivedAt: RecordPosition,
  progressAt: RecordPosition = -1,
) {
  // No spread here: it took an eighth of the opening of a million.
  state.entries.putEnded({
    id,
    identity,
    roundKey,
    sequence,
    status,
    retryable,
    receivedAt,
    progressAt,
    live: undefined,
  })
  state.nextSequence = Math.max(state.nextSequence, sequence + 1)
}

export function apply(state: LedgerState, record: StoredRecord) {
  const { position } = record
  if (record.kind === 'candidate.whole' && record.head !== undefined)
    receiveEnded(state, record.head as EndedHead, position)
  else {
    const event = recordOf(record)
    if (event.kind === 'candidate.progress' && event.progress.status === 'failed')
      countFailed(state, event.id, dayOf(record.timeMs))
    kinds[event.kind]?.(state, event as never, position)
    decide(state, event, record.timeMs)
  }
}

function countFailed(state: LedgerState, id: string, day: number) {
  const candidate = state.entries.get(id)?.live
  if (candidate === undefined) return
  const known = state.failedBytes.get(candidate.proposer)
  const before = known?.day === day ? known.bytes : 0
  state.failedBytes.set(candidate.proposer, { day, bytes: before + bytesOf(candidate) })
}

/** A fold comes before what it was folded from, and knows neither time nor reason. */
function decide(state: LedgerState, event: LedgerRecord, timeMs: number) {
  const { was, atMs } = event.kind === 'past' ? event : { was: event, atMs: timeMs }
  if (was.kind === 'admission.set' && !('folded' in was))
    state.admissionDecision = { atMs, reason: was.reason, by: was.by }
}

type Apply<Event> = (state: LedgerState, event: Event, position: RecordPosition) => void

const kinds: {
  readonly [Name in LedgerRecord['kind']]: Apply<Extract<LedgerRecord, { kind: Name }>> | undefined
} = {
  'store.opened'(state, { info }) {
    state.info = info
  },
  'candidate.received': (state, { candidate }, position) =>
    receive(state, { ...candidate, progress: { status: 'received' } }, position),
  'candidate.whole': (state, { candidate }, position) => receive(state, candidate, position),
  'candidate.progress': (state, { id, progress: next }, position) =>
    progress(state, id, next, position),
  'candidate.checked': undefined,
  'slot.opened': applySlot,
  'slot.attempt': applySlot,
  'slot.sent': applySlot,
  'slot.mined': applySlot,
  'slot.closed': applySlot,
  'executor.nonce': raiseNonce,
  'allowlist.set'({ allowlist, failures: all }, { address, allowed, failures = [] }) {
    allowlist.set(address, allowed)
    if (failures.length > 0) all.set(address, failures)
    else if (allowed) all.delete(address)
  },
  'admission.set'(state, { enabled }) {
    state.admissionEnabled = enabled
  },
  'question.set': ({ questions }, { entry }) => questions.set(entry.questionId, entry),
  'question.removed': ({ questions }, { questionId }) => questions.set(questionId, null),
  'implementation.set': ({ implementations }, { address, runs }) =>
    implementations.set(address, runs),
  'receipt.key': ({ receiptKeys }, { key }) => receiptKeys.set(key.kid, key),
  'chain.finalized'(state, { number, hash }) {
    state.finalized = { number: BigInt(number), hash }
  },
  'store.repaired': undefined,
  'leader.elected': undefined,
  'leader.resigned': undefined,
  past: undefined,
}
export const knownKind = (kind: string) => Object.hasOwn(kinds, kind)

export const isInner = (event: LedgerRecord) =>
  event.kind === 'store.opened' ||
  event.kind === 'executor.nonce' ||
  event.kind === 'leader.elected' ||
  event.kind === 'leader.resigned' ||
  event.kind === 'past'

function applySlot(state: LedgerState, change: SlotChange) {
  const slot = foldSlot(state.slots, change)
  if (slot === undefined)
    throw new RangeError(`no open slot ${'slotId' in change ? change.slotId : ''}`)
  if (change.kind === 'slot.opened') {
    for (const id of slot.candidateIds) state.slotOf.set(id, slot.id)
    raiseNonce(state, slot)
  } else if (change.kind === 'slot.closed') {
    for (const id of slot.candidateIds) {
      if (state.slotOf.get(id) === slot.id) state.slotOf.delete(id)
      release(state, entryOf(state, id))
    }
    for (const failure of change.failures ?? []) noteFailure(state, failure)
  }
}

const keptFailureSeconds = 2 * 86_400

function noteFailure({ failures }: LedgerState, failure: WalletFailure) {
  const { wallet, atSeconds } = failure
  const kept = (failures.get(wallet) ?? []).filter(
    (one) => atSeconds - one.atSeconds < keptFailureSeconds,
  )
  failures.set(wallet, [...kept, failure])
}

function receive(state: LedgerState, candidate: Candidate, receivedAt: RecordPosition) {
  const { id, identity, sequence, round } = candidate
  const { status } = candidate.progress
  const entry: CandidateEntry = {
    id,
    identity,
    roundKey: round.key,
    sequence,
    status,
    retryable: isRetryable(candidate.progress),
    receivedAt,
    progressAt: -1,
    live: candidate,
  }
  const known = state.entries.near(id)
  if (known) state.live.delete(known)
  state.entries.put(entry)
  state.live.add(entry)
  state.active = undefined
  state.nextSequence = Math.max(state.nextSequence, sequence + 1)
  if (isActive(status)) index(state, entry, candidate)
  release(state, entry)
}

function progress(state: LedgerState, id: string, next: Progress, position: RecordPosition) {
  const entry = entryOf(state, id)
  const candidate = entry.live
  if (!candidate) throw new RangeError(`candidate ${id} is not in memory`)
  if (!mayBecome(entry.status, next.status))
    throw new RangeError(`candidate ${id} cannot go from ${entry.status} to ${next.status}`)
  entry.status = next.status
  entry.retryable = isRetryable(next)
  entry.progressAt = position
  entry.live = { ...candidate, progress: next }
  state.active = undefined
  if (isActive(next.status)) index(state, entry, candidate)
  else unindex(state, entry, candidate)
  release(state, entry)
}

function index(state: LedgerState, entry: CandidateEntry, candidate: Candidate) {
  state.byRound.set(roundKeyOf(candidate.proposer, entry.roundKey), entry)
  state.byNonce.set(nonceKeyOf(candidate.proposer, candidate.nonce), entry)
}

function unindex(state: LedgerState, entry: CandidateEntry, candidate: Candidate) {
  const round = roundKeyOf(candidate.proposer, entry.roundKey)
  const nonce = nonceKeyOf(candidate.proposer, candidate.nonce)
  if (state.byRound.get(round) === entry) state.byRound.delete(round)
  if (state.byNonce.get(nonce) === entry) state.byNonce.delete(nonce)
}

function release(state: LedgerState, entry: CandidateEntry) {
  if (isActive(entry.status) || state.slotOf.has(entry.id)) return
  entry.live = undefined
  state.live.delete(entry)
  state.active = undefined
  state.entries.putEnded(entry)
}

function raiseNonce(state: LedgerState, { executor, nonce }: Pick<Slot, 'executor' | 'nonce'>) {
  state.highestNonce.set(executor, Math.max(nonce, state.highestNonce.get(executor) ?? -1))
}

function entryOf(state: LedgerState, id: string): CandidateEntry {
  const entry = state.entries.get(id)
  if (!entry) throw new RangeError(`no candidate ${id}`)
  return entry
}

export const toRecord = ({ kind, ...data }: LedgerRecord): NewRecord => ({ kind, data })

export function foldSlot(slots: OpenSlots, change: SlotChange): Slot | undefined {
  const slot = change.kind === 'slot.opened' ? change.slot : slots.get(change.slotId)
  const next = slot && slotAfter(slot, change)
  if (change.kind === 'slot.closed') slots.delete(change.slotId)
  else if (next) slots.set(next.id, next)
  return next
}

function slotAfter(slot: Slot, change: SlotChange): Slot {
  const { attempts } = slot
  if (change.kind === 'slot.attempt') return { ...slot, attempts: [...attempts, change.attempt] }
  if (change.kind === 'slot.mined') return { ...slot, minedIn: change.blockHash }
  if (change.kind !== 'slot.sent') return slot
  const { hash, sentAtMs } = change
  return {
    ...slot,
    attempts: attempts.map((one) => (one.hash === hash ? { ...one, sentAtMs } : one)),
  }
}

export const isSlotChange = <T extends { kind: string }>(
  event: T,
): event is Extract<T, { kind: SlotChange['kind'] }> => event.kind.startsWith('slot.')

export const attemptOf = (slot: Slot | undefined, hash: string | null): SlotAttempt | undefined =>
  slot?.attempts.find((attempt) => attempt.hash === hash)

/** `live` only while it is active or its slot is open. */
export interface CandidateEntry extends CandidateRef {
  status: CandidateState
  retryable: boolean
  receivedAt: RecordPosition
  progressAt: RecordPosition
  live: Candidate | undefined
}

const bySequence = (one: CandidateRef, other: CandidateRef) => one.sequence - other.sequence

export function newEntries() {
  const ended = newEndedTable()
  const near = new Map<string, CandidateEntry>()
  const nearByIdentity = new Map<string, CandidateEntry>()
  const keep = (entry: CandidateEntry) => {
    near.set(entry.id, entry)
    nearByIdentity.set(entry.identity, entry)
  }
  return {
    get: (id: string): CandidateEntry | undefined =>
      near.get(id) ?? presentAt(ended, rowOf(ended, id, idAt)),
    byIdentity: (identity: string): CandidateEntry | undefined =>
      nearByIdentity.get(identity) ?? presentAt(ended, rowOf(ended, identity, identityAt)),
    inRound(roundKey: string): readonly CandidateRef[] {
      const rows = readKey(roundKey, roundAt) ? presentRows(ended) : []
      const others = [...near.values()].filter((entry) => entry.roundKey === roundKey)
      return rows
        .filter((row) => hasKey(ended, row, roundAt))
        .map((row) => endedAt(ended, row))
        .concat(others)
        .sort(bySequence)
    },
    counts(): Record<CandidateState, number> {
      const counts = { received: 0, validated: 0, selected: 0, executed: 0, failed: 0 }
      for (const row of presentRows(ended)) counts[statusAt(ended, row)] += 1
      for (const { status } of near.values()) counts[status] += 1
      return counts
    },
    *newest(count = Number.POSITIVE_INFINITY): Generator<CandidateEntry> {
      const others = [...near.values()].sort(bySequence)
      const keys = keysInOrder(ended)
      for (let at = keys.length - 1, given = 0; given < count; given += 1) {
        const row = at < 0 ? -1 : (keys[at] ?? 0) % rowStride
        const other = others.at(-1)
        if (row >= 0 && (ended.sequences[row] ?? 0) > (other?.sequence ?? -1)) {
          yield endedAt(ended, row)
          at -= 1
        } else if (other !== undefined) {
          yield other
          others.pop()
        } else return
      }
    },
    near: (id: string): CandidateEntry | undefined => near.get(id),
    put(entry: CandidateEntry) {
      const row = rowOf(ended, entry.id, idAt)
      if (row >= 0) ended.flags[row] = (ended.flags[row] ?? 0) | absentFlag
      keep(entry)
    },
    putEnded(entry: CandidateEntry) {
      if (!putEnded(ended, entry)) keep(entry)
      else if (near.delete(entry.id)) nearByIdentity.delete(entry.identity)
    },
    cut() {
      const rows = presentRows(ended)
      const receivedAt = ended.receivedAt.slice(0, ended.rows)
      const progressAt = ended.progressAt.slice(0, ended.rows)
      const others = [...near.values()].map((entry) => ({ ...entry }))
      const positionsOf = (row: number) => ({
        receivedAt: receivedAt[row] ?? 0,
        progressAt: progressAt[row] ?? 0,
      })
      return {
        *entries(): Generator<CandidateEntry> {
          for (const row of rows) yield { ...endedAt(ended, row), ...positionsOf(row) }
          yield* others
        },
        moved(ordinal: number, position: RecordPosition) {
          const other = others[ordinal - rows.length]
          const row = rows[ordinal] ?? (other ? rowOf(ended, other.id, idAt) : -1)
          const before = other ?? positionsOf(row)
          const entry = other && near.get(other.id)
          if (entry !== undefined) {
            if (entry.receivedAt === before.receivedAt) entry.receivedAt = position
            if (entry.progressAt === before.progressAt) entry.progressAt = -1
          } else if (row >= 0) {
            if (ended.receivedAt[row] === before.receivedAt) ended.receivedAt[row] = position
            if (ended.progressAt[row] === before.progressAt) ended.progressAt[row] = -1
          }
        },
      }
    },
  }
}

const firstRows = 4_096
/** 2^24 rows, and 2^29 sequence numbers, in one number that sorts by the latter. */
const rowStride = 2 ** 24
const keyWords = 12
const [idAt, identityAt, roundAt] = [0, 4, 8]
const [retryableFlag, absentFlag] = [0x10, 0x20]
const states = CandidateState.options

type EndedTable = ReturnType<typeof newEndedTable>

const newColumns = (rows: number) => ({
  /** id, payload identity and round key: 16 bytes each, as four words. */
  keys: new Uint32Array(rows * keyWords),
  sequences: new Float64Array(rows),
  receivedAt: new Float64Array(rows),
  progressAt: new Float64Array(rows),
  flags: new Uint8Array(rows),
  /** Row + 1 by the last word of its id, and of its identity; 0 is free. Half are taken at most. */
  places: new Uint32Array(4 * rows),
})

/**
 * A hundred bytes each, found by open addressing. A million objects in maps take four times the
 * memory, and the garbage collector's time with it.
 */
const newEndedTable = () => ({ ...newColumns(firstRows), rows: 0 })

const wanted = new Uint32Array(keyWords)

const digits = Int8Array.from({ length: 128 }, (_, code) =>
  '0123456789abcdef'.indexOf(String.fromCharCode(code)),
)

/**
 * The 32 lowercase hex digits of a key, an id's with the hyphens of a UUID, into `wanted`; false for
 * any other text. A million are read in a row.
 */
function readKey(text: string, at: number) {
  const isUuid = at === idAt
  if (text.length !== (isUuid ? 36 : 32)) return false
  let seen = 0
  let value = 0
  for (let count = 0, place = 0; count < 32; count += 1, place += 1) {
    if (isUuid && (count === 8 || count === 12 || count === 16 || count === 20)) {
      if (text.charCodeAt(place) !== 0x2d) return false
      place += 1
    }
    const digit = digits[text.charCodeAt(place)] ?? -1
    seen |= digit
    value = (value << 4) | digit
    if ((count & 7) === 7) wanted[at + (count >> 3)] = value
  }
  return seen >= 0
}

const hexAt = ({ keys }: EndedTable, at: number) => {
  let text = ''
  for (let word = at; word < at + 4; word += 1)
    text += (keys[word] ?? 0).toString(16).padStart(8, '0')
  return text
}

function hasKey({ keys }: EndedTable, row: number, at: number) {
  const from = row * keyWords + at
  return (
    keys[from] === wanted[at] &&
    keys[from + 1] === wanted[at + 1] &&
    keys[from + 2] === wanted[at + 2] &&
    keys[from + 3] === wanted[at + 3]
  )
}

function find(table: EndedTable, at: number) {
  const { places } = table
  const mask = places.length - 1
  for (let place = (wanted[at + 3] ?? 0) & mask; ; place = (place + 1) & mask) {
    const row = (places[place] ?? 0) - 1
    if (row < 0 || hasKey(table, row, at)) return row
  }
}

const rowOf = (table: EndedTable, key: string, at: number) =>
  readKey(key, at) ? find(table, at) : -1

function enter({ keys, places }: EndedTable, row: number, at: number) {
  const mask = places.length - 1
  let place = (keys[row * keyWords + at + 3] ?? 0) & mask
  while (places[place] !== 0) place = (place + 1) & mask
  places[place] = row + 1
}

function grow(table: EndedTable) {
  const { rows } = table
  if (rows < table.flags.length) return
  const old = { ...table }
  Object.assign(table, newColumns(2 * rows))
  for (const column of ['keys', 'sequences', 'receivedAt', 'progressAt', 'flags'] as const)
    table[column].set(old[column])
  for (let row = 0; row < rows; row += 1) {
    enter(table, row, idAt)
    enter(table, row, identityAt)
  }
}

const isAbsent = ({ flags }: EndedTable, row: number) => ((flags[row] ?? 0) & absentFlag) !== 0

const statusAt = ({ flags }: EndedTable, row: number) =>
  states[(flags[row] ?? 0) & 0x0f] ?? 'failed'

function endedAt(table: EndedTable, row: number): CandidateEntry {
  const id = hexAt(table, row * keyWords + idAt)
  return {
    id: `${id.slice(0, 8)}-${id.slice(8, 12)}-${id.slice(12, 16)}-${id.slice(16, 20)}-${id.slice(20)}`,
    identity: hexAt(table, row * keyWords + identityAt),
    roundKey: hexAt(table, row * keyWords + roundAt),
    status: statusAt(table, row),
    retryable: ((table.flags[row] ?? 0) & retryableFlag) !== 0,
    sequence: table.sequences[row] ?? 0,
    receivedAt: table.receivedAt[row] ?? 0,
    progressAt: table.progressAt[row] ?? 0,
    live: undefined,
  }
}

const presentAt = (table: EndedTable, row: number) =>
  row < 0 || isAbsent(table, row) ? undefined : endedAt(table, row)

function putEnded(table: EndedTable, ref: CandidateEntry) {
  const { id, identity, roundKey } = ref
  if (!readKey(id, idAt) || !readKey(identity, identityAt) || !readKey(roundKey, roundAt))
    return false
  let row = find(table, idAt)
  if (row < 0) {
    grow(table)
    row = table.rows
    table.rows += 1
    table.keys.set(wanted, row * keyWords)
    enter(table, row, idAt)
    enter(table, row, identityAt)
  }
  table.sequences[row] = ref.sequence
  table.receivedAt[row] = ref.receivedAt
  table.progressAt[row] = ref.progressAt
  table.flags[row] = states.indexOf(ref.status) | (ref.retryable ? retryableFlag : 0)
  return true
}

function presentRows(table: EndedTable): readonly number[] {
  const present: number[] = []
  for (let row = 0; row < table.rows; row += 1) if (!isAbsent(table, row)) present.push(row)
  return present
}

function keysInOrder(table: EndedTable) {
  const rows = presentRows(table)
  const keys = new Float64Array(rows.length)
  for (const [at, row] of rows.entries()) keys[at] = (table.sequences[row] ?? 0) * rowStride + row
  return keys.sort()
}
