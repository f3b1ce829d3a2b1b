/** Every durable record passes through `apply` in log order, at start-up and while serving. */
import type { Implementation } from '#chain/implementations'
import type { RegistryEntry } from '#chain/questions'
import type { Hex } from '#ports'
import {
  type Candidate,
  type CandidateState,
  isActive,
  mayBecome,
  type Progress,
} from '#protocol/candidate'
import { ProposerError, StorageError } from '#protocol/errors'
import type { ReceiptKey } from '#protocol/receipt'
import type { Address } from '#protocol/schema'
import type {
  NewRecord,
  RecordLog,
  RecordLogReader,
  RecordPosition,
  StoredRecord,
} from '#storage/record-log'
import { type CandidateEntry, newEntries } from './entries.js'
import {
  type Change,
  type Decided,
  foldSlot,
  type Ledger,
  type LedgerFacts,
  type LedgerSettings,
  type OpenSlots,
  type OperatorDecision,
  type Slot,
  type SlotChange,
  type StoreInfo,
  type WalletFailure,
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

const dayOf = (timeMs: number) => Math.floor(timeMs / 86_400_000)

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

function activeOf(state: LedgerState): readonly Candidate[] {
  if (state.active === undefined) {
    const active: Candidate[] = []
    for (const { live, status } of state.live) if (live && status !== 'failed') active.push(live)
    state.active = active.sort((one, other) => one.sequence - other.sequence)
  }
  return state.active
}

const isRetryable = (progress: Progress) =>
  progress.status === 'failed' && progress.failure.retryable

export type EndedHead = readonly [
  id: string,
  identity: string,
  roundKey: string,
  sequence: number,
  status: CandidateState,
  retryable: boolean,
]

export const headOf = ({ id, identity, round, sequence, progress }: Candidate): EndedHead => [
  id,
  identity,
  round.key,
  sequence,
  progress.status,
  isRetryable(progress),
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
    kinds[event.kind].apply?.(state, event as never, position)
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

interface Kind<Event> {
  apply?(state: LedgerState, event: Event, position: RecordPosition): void
  subject?(event: Event): string
}

const slotKind: Kind<SlotChange> = { apply: applySlot }

const kinds: {
  readonly [Name in LedgerRecord['kind']]: Kind<Extract<LedgerRecord, { kind: Name }>>
} = {
  'store.opened': {
    apply(state, { info }) {
      state.info = info
    },
  },
  'candidate.received': {
    apply: (state, { candidate }, position) =>
      receive(state, { ...candidate, progress: { status: 'received' } }, position),
  },
  'candidate.whole': {
    apply: (state, { candidate }, position) => receive(state, candidate, position),
  },
  'candidate.progress': {
    apply: (state, { id, progress: next }, position) => progress(state, id, next, position),
  },
  'candidate.checked': {},
  'slot.opened': slotKind,
  'slot.attempt': slotKind,
  'slot.sent': slotKind,
  'slot.mined': slotKind,
  'slot.closed': slotKind,
  'executor.nonce': { apply: raiseNonce },
  'allowlist.set': {
    subject: ({ address }) => `wallet ${address}`,
    apply({ allowlist, failures: all }, { address, allowed, failures = [] }) {
      allowlist.set(address, allowed)
      if (failures.length > 0) all.set(address, failures)
      else if (allowed) all.delete(address)
    },
  },
  'admission.set': {
    subject: () => 'admission',
    apply(state, { enabled }) {
      state.admissionEnabled = enabled
    },
  },
  'question.set': {
    subject: ({ entry }) => `question ${entry.questionId}`,
    apply: ({ questions }, { entry }) => void questions.set(entry.questionId, entry),
  },
  'question.removed': {
    subject: ({ questionId }) => `question ${questionId}`,
    apply: ({ questions }, { questionId }) => void questions.set(questionId, null),
  },
  'implementation.set': {
    subject: ({ address }) => `code of ${address}`,
    apply: ({ implementations }, { address, runs }) => void implementations.set(address, runs),
  },
  'receipt.key': {
    subject: ({ key }) => `receipt key ${key.kid}`,
    apply: ({ receiptKeys }, { key }) => void receiptKeys.set(key.kid, key),
  },
  'chain.finalized': {
    apply(state, { number, hash }) {
      state.finalized = { number: BigInt(number), hash }
    },
  },
  'store.repaired': {},
  'leader.elected': {},
  'leader.resigned': {},
  past: {},
}
export const knownKind = (kind: string) => Object.hasOwn(kinds, kind)

export const subjectOf = (change: Change) => kinds[change.kind].subject?.(change as never)

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

export async function wholeOf(
  log: Pick<RecordLog, 'read'>,
  state: LedgerState,
  known: CandidateEntry,
): Promise<Candidate> {
  for (let entry = known; ; ) {
    try {
      return entry.live ?? (await readWhole(log, entry))
    } catch (error) {
      // A compaction moved the records meanwhile: the state has the new positions.
      const isRetired = error instanceof ProposerError && error.code === 'position_retired'
      const now = isRetired ? state.entries.get(entry.id) : undefined
      if (now === undefined || now.receivedAt === entry.receivedAt) throw error
      entry = now
    }
  }
}

export async function readWhole(
  log: Pick<RecordLog, 'read'>,
  entry: CandidateEntry,
): Promise<Candidate> {
  const { receivedAt, progressAt } = entry
  const [first, last] = await Promise.all([
    log.read(receivedAt),
    progressAt < 0 ? undefined : log.read(progressAt),
  ])
  const received = recordOf(first)
  const newest = last && recordOf(last)
  if (received.kind !== 'candidate.received' && received.kind !== 'candidate.whole')
    throw misplaced(entry, receivedAt)
  if (newest === undefined)
    return received.kind === 'candidate.whole'
      ? received.candidate
      : { ...received.candidate, progress: { status: 'received' } }
  if (newest.kind !== 'candidate.progress' || newest.id !== entry.id)
    throw misplaced(entry, progressAt)
  return { ...received.candidate, progress: newest.progress }
}

const misplaced = ({ id }: CandidateEntry, position: RecordPosition) =>
  new StorageError('store_damaged', `no record of candidate ${id} is at position ${position}`, {
    httpStatus: 500,
    hint: 'stop the gateway and restore the store from a backup',
  })

/** For looking only (R24); a store that does not exist yet has the configured allowlist. */
export function ledgerReader(
  log: Pick<RecordLogReader, 'read' | 'close'>,
  state: LedgerState,
  settings: LedgerSettings,
): Ledger {
  refuseOtherChain(state.info, settings)
  for (const address of settings.allowlist)
    if (!state.allowlist.has(address)) state.allowlist.set(address, true)
  const readOnly = () =>
    Promise.reject(
      new StorageError('store_read_only', 'this store is open read-only', {
        httpStatus: 503,
        hint: 'use a command that starts the gateway, or send the request to the running one',
      }),
    )
  return ledgerOf(log, state, settings, {
    admit: readOnly,
    async replay(id) {
      const entry = state.entries.get(id)
      return entry ? wholeOf(log, state, entry) : readOnly()
    },
    commit: readOnly,
    onChange: () => () => undefined,
    close: () => log.close(),
  })
}

export function ledgerOf(
  log: RecordLog | Pick<RecordLogReader, 'read'>,
  state: LedgerState,
  settings: LedgerSettings,
  verbs: Pick<Ledger, 'catchUp' | 'admit' | 'replay' | 'commit' | 'onChange' | 'close'>,
): Ledger {
  const writer = 'closed' in log ? log : undefined
  const own: Omit<Ledger, keyof LedgerFacts> = {
    ...verbs,
    get failed() {
      return writer?.failed
    },
    get down() {
      return writer?.down
    },
    get isFull() {
      // A log that failed is closed too, and no room on the disk opens it again.
      return writer?.closed === true && writer.failed === undefined
    },
    get admissionEnabled() {
      return state.admissionEnabled && settings.admissionEnabled
    },
    get allowlist() {
      const allowed = [...state.allowlist].filter(([, isAllowed]) => isAllowed)
      return new Set(allowed.map(([address]) => address))
    },
    get: async (id) => {
      const entry = state.entries.get(id)
      return entry && wholeOf(log, state, entry)
    },
    async progressedAtMs(id) {
      const at = state.entries.get(id)?.progressAt ?? -1
      if (at < 0) return undefined
      try {
        return (await log.read(at)).timeMs
      } catch (error) {
        if (error instanceof ProposerError && error.code === 'position_retired') return undefined
        throw error
      }
    },
  }
  const facts = ledgerFacts(state) as Ledger
  return Object.defineProperties(facts, Object.getOwnPropertyDescriptors(own))
}

export const ledgerFacts = (state: LedgerState): LedgerFacts => ({
  get info() {
    return state.info
  },
  get admissionSwitch() {
    return state.admissionEnabled
  },
  get admissionDecision() {
    return state.admissionDecision
  },
  get finalized() {
    return state.finalized
  },
  questions: state.questions,
  implementations: state.implementations,
  failures: state.failures,
  receiptKeys: state.receiptKeys,
  byIdentity: state.entries.byIdentity,
  byId: state.entries.get,
  activeInRound: (proposer, roundKey) => state.byRound.get(roundKeyOf(proposer, roundKey)),
  activeWithNonce: (proposer, nonce) => state.byNonce.get(nonceKeyOf(proposer, nonce)),
  eligible: (proposer) => state.allowlist.get(proposer) === true,
  failedBytes(proposer, nowMs) {
    const known = state.failedBytes.get(proposer)
    return known?.day === dayOf(nowMs) ? known.bytes : 0
  },
  byRound: state.entries.inRound,
  newest: state.entries.newest,
  counts: state.entries.counts,
  active: () => activeOf(state),
  slots: () => [...state.slots.values()].sort((a, b) => a.nonce - b.nonce),
  slotOf: (candidateId) => state.slots.get(state.slotOf.get(candidateId) ?? ''),
  highestNonce: (executor) => state.highestNonce.get(executor) ?? -1,
})

export function refuseOtherChain(
  info: StoreInfo | undefined,
  { chainId, genesisHash = info?.genesisHash }: LedgerSettings,
) {
  if (!info || (info.chainId === chainId && info.genesisHash === genesisHash)) return
  throw new StorageError(
    'store_other_chain',
    `this store belongs to chain ${info.chainId} (genesis ${info.genesisHash}); the node is on chain ${chainId} (genesis ${genesisHash})`,
    'point chain.rpc_urls at the chain of the store, or use another store',
  )
}
