/** The ledger on a record log (robustness §2), on disk or PostgreSQL's (R25). */
import pLimit, { type LimitFunction } from 'p-limit'
import type { Clock, Files, Hash, Random, SqlDatabase } from '#ports'
import { type Candidate, type CandidateState, mayBecome } from '#protocol/candidate'
import { StorageError } from '#protocol/errors'
import { openLog } from '#storage/log'
import { inspectSharedLog, storeBytes } from '#storage/postgres/inspect'
import type { SharedLogParts } from '#storage/postgres/log-state'
import { openSharedLog } from '#storage/postgres/shared-log'
import { openLogReader } from '#storage/reader'
import type { LogOptions, RecordLog, StoredRecord } from '#storage/record-log'
import { compactLedger, linesOf, restoreLine, snapshotState } from './compaction.js'
import type { CandidateEntry } from './entries.js'
import {
  type Admission,
  type Change,
  foldSlot,
  isSlotChange,
  type Ledger,
  type LedgerEvent,
  type LedgerListener,
  type LedgerSettings,
  type NewCandidate,
  type OpenSlots,
  type Slot,
} from './ledger.js'
import {
  apply,
  bytesOf,
  emptyState,
  isInner,
  knownKind,
  type LedgerRecord,
  type LedgerState,
  ledgerFacts,
  ledgerOf,
  ledgerReader,
  nonceKeyOf,
  recordOf,
  refuseOtherChain,
  roundKeyOf,
  toRecord,
  wholeOf,
} from './state.js'

export const storeLog = { format: { name: 'store', version: 1 }, knownKinds: knownKind } as const

export function foldLedger(also: (record: StoredRecord) => void = () => undefined) {
  const state = emptyState()
  return {
    state,
    facts: ledgerFacts(state),
    onRecord(record: StoredRecord) {
      try {
        apply(state, record)
      } catch (cause) {
        throw new StorageError(
          'store_damaged',
          `record ${record.sequence} (${record.kind}) contradicts the records before it: ${String(cause)}`,
          { hint: 'restore the store from a backup, and report this', cause },
        )
      }
      also(record)
    },
  }
}

interface Open {
  readonly clock: Clock
  readonly random: Random
  readonly log: RecordLog
  readonly state: LedgerState
  readonly listeners: Set<LedgerListener>
  readonly inOrder: LimitFunction
  claims: Claims
}

/** Before it is durable; void once the next group is decided. */
interface Claims {
  readonly group: number
  readonly byIdentity: Map<string, Candidate>
  readonly byKey: Map<string, string>
}

const noClaims = (group: number): Claims => ({ group, byIdentity: new Map(), byKey: new Map() })

export async function openLedger(
  { clock, random }: { clock: Clock; random: Random },
  log: RecordLog,
  state: LedgerState,
  settings: LedgerSettings,
): Promise<Ledger> {
  const inOrder = pLimit(1)
  const listeners: Open['listeners'] = new Set()
  const open: Open = { clock, random, log, state, listeners, inOrder, claims: noClaims(0) }
  const { chainId, genesisHash } = settings
  log.follow?.((records) => {
    for (const record of records) apply(state, record)
    report(open, records.flatMap(eventOf), true)
  })
  if (state.info === undefined) {
    if (genesisHash === undefined) throw new RangeError('a new store needs the genesis hash')
    const info = { storeId: random.uuid(), chainId, genesisHash }
    await write(open, () => (state.info ? [] : [{ kind: 'store.opened', info }]))
  }
  refuseOtherChain(state.info, settings)
  const reason = 'listed in the configuration'
  const listed = () =>
    [...new Set(settings.allowlist)]
      .filter((address) => !state.allowlist.has(address))
      .map((address) => ({ kind: 'allowlist.set', address, allowed: true, reason }) as const)
  if (listed().length > 0) await write(open, listed)
  return ledgerOf(log, state, settings, {
    admit: (candidate) => admit(open, candidate),
    replay: (id, mayRevive) => replay(open, id, mayRevive),
    catchUp: log.catchUp,
    commit: (...args) => inOrder(() => commit(open, ...args)),
    onChange(listener) {
      listeners.add(listener)
      return () => {
        listeners.delete(listener)
      }
    },
    async close() {
      await inOrder(async () => undefined)
      await log.close()
    },
  })
}

function write(
  { log, state }: Open,
  decide: (group: number) => readonly LedgerRecord[],
  aboutBytes?: number,
  epoch?: number,
): Promise<unknown> {
  return log.append(
    (group) => decide(group).map(toRecord),
    (stored) => {
      for (const record of stored) apply(state, record)
    },
    aboutBytes,
    epoch,
  )
}

function eventOf(record: StoredRecord): LedgerEvent[] {
  const event = recordOf(record)
  if (isInner(event)) return []
  if (event.kind === 'candidate.received')
    return [{ ...event, candidate: { ...event.candidate, progress: { status: 'received' } } }]
  if (event.kind !== 'candidate.whole') return [event]
  const { id, progress } = event.candidate
  return [{ kind: 'candidate.progress', id, progress }]
}

function report({ listeners }: Open, events: readonly LedgerEvent[], isElsewhere = false) {
  for (const listener of listeners) listener(events, isElsewhere)
}

function claimsOf(open: Open, group: number): Claims {
  if (open.claims.group !== group) open.claims = noClaims(group)
  return open.claims
}

const keysOf = ({ proposer, round, nonce }: NewCandidate) =>
  [roundKeyOf(proposer, round.key), nonceKeyOf(proposer, nonce)] as const
type Keys = ReturnType<typeof keysOf>

type Met =
  | { kind: 'copy'; candidate: Candidate }
  | { kind: 'known'; entry: CandidateEntry }
  | Extract<Admission, { kind: 'conflict' }>

function met(
  state: LedgerState,
  identity: string,
  [round, nonce]: Keys,
  { byIdentity, byKey }: Claims,
): Met | undefined {
  const copy = byIdentity.get(identity)
  if (copy) return { kind: 'copy', candidate: copy }
  const entry = state.entries.byIdentity(identity)
  if (entry) return { kind: 'known', entry }
  const inRound = state.byRound.get(round)?.id ?? byKey.get(round)
  if (inRound) return { kind: 'conflict', candidateId: inRound, reason: 'round' }
  const withNonce = state.byNonce.get(nonce)?.id ?? byKey.get(nonce)
  return withNonce ? { kind: 'conflict', candidateId: withNonce, reason: 'nonce' } : undefined
}

async function admit(open: Open, candidate: NewCandidate): Promise<Admission> {
  const { state, log } = open
  const { identity } = candidate
  const keys = keysOf(candidate)
  let found = met(state, identity, keys, noClaims(0))
  let admitted: Candidate | undefined
  if (found === undefined) {
    await write(
      open,
      (group) => {
        const claims = claimsOf(open, group)
        admitted = undefined
        found = met(state, identity, keys, claims)
        if (found) return []
        const received = {
          ...candidate,
          id: open.random.uuid(),
          sequence: state.nextSequence + claims.byIdentity.size,
          receivedAtMs: open.clock.nowMs(),
        }
        admitted = { ...received, progress: { status: 'received' } }
        claims.byIdentity.set(identity, admitted)
        for (const key of keys) claims.byKey.set(key, received.id)
        return [{ kind: 'candidate.received', candidate: received }]
      },
      bytesOf(candidate),
    )
  }
  switch (found?.kind) {
    case 'conflict':
      return found
    case 'copy':
      return { kind: 'replayed', candidate: found.candidate }
    case 'known':
      return { kind: 'replayed', candidate: await wholeOf(log, state, found.entry) }
  }
  if (admitted === undefined) throw new Error('an admission was left undecided')
  report(open, [{ kind: 'candidate.received', candidate: admitted }])
  return { kind: 'admitted', candidate: admitted }
}

async function replay(open: Open, id: string, revives = true): Promise<Candidate> {
  const { log, state } = open
  const known = state.entries.get(id)
  if (!known) throw new RangeError(`no candidate ${id}`)
  if (!known.retryable || !revives) return wholeOf(log, state, known)
  return open.inOrder(async () => {
    const candidate = await wholeOf(log, state, state.entries.get(id) ?? known)
    // What is durable says no already: a disk that takes no writes does not matter.
    if (!mayRevive(state, candidate, noClaims(0))) return candidate
    const revived: Candidate = { ...candidate, progress: { status: 'received' } }
    let isRevived = false
    await write(
      open,
      (group) => {
        const claims = claimsOf(open, group)
        isRevived = mayRevive(state, candidate, claims)
        if (!isRevived) return []
        for (const key of keysOf(candidate)) claims.byKey.set(key, id)
        return [{ kind: 'candidate.whole', candidate: revived }]
      },
      bytesOf(candidate),
    )
    if (!isRevived) return candidate
    report(open, [{ kind: 'candidate.progress', id, progress: revived.progress }])
    return revived
  })
}

function mayRevive(state: LedgerState, candidate: Candidate, { byKey }: Claims) {
  const entry = state.entries.get(candidate.id)
  const [round, nonce] = keysOf(candidate)
  return (
    entry?.status === 'failed' &&
    entry.retryable &&
    !state.slotOf.has(candidate.id) &&
    !state.byRound.has(round) &&
    !state.byNonce.has(nonce) &&
    !byKey.has(round) &&
    !byKey.has(nonce)
  )
}

async function commit(
  open: Open,
  changes: readonly Change[],
  basis: readonly Candidate[] = [],
  epoch?: number,
) {
  const { state } = open
  let stands = true
  const decide = () => {
    stands = basis.every(({ id, progress }) => state.entries.get(id)?.status === progress.status)
    if (!stands) return []
    const fault = changeFault(state, changes)
    if (fault) throw new RangeError(fault)
    return changes
  }
  if (changes.length === 0) decide()
  else await write(open, decide, JSON.stringify(changes).length, epoch)
  if (stands && changes.length > 0) report(open, changes)
  return stands
}

/** Before anything is written: a record that `apply` refuses would make the log unreadable. */
function changeFault(state: LedgerState, changes: readonly Change[]) {
  const statuses = new Map<string, CandidateState>()
  const slots = new Map(state.slots)
  for (const change of changes) {
    const fault = isSlotChange(change)
      ? slotFault(state, slots, change)
      : 'id' in change
        ? candidateFault(state, statuses, change)
        : undefined
    if (fault !== undefined) return fault
  }
  return undefined
}

const endedFault = (state: LedgerState, id: string) =>
  state.entries.get(id)?.live ? undefined : `candidate ${id} is unknown or has ended`

function candidateFault(
  state: LedgerState,
  statuses: Map<string, CandidateState>,
  change: Extract<Change, { id: string }>,
) {
  const { id } = change
  const entry = state.entries.get(id)
  if (!entry?.live || change.kind !== 'candidate.progress') return endedFault(state, id)
  const from = statuses.get(id) ?? entry.status
  const { status } = change.progress
  if (!mayBecome(from, status)) return `candidate ${id} cannot go from ${from} to ${status}`
  statuses.set(id, status)
  return undefined
}

function slotFault(state: LedgerState, slots: OpenSlots, change: Parameters<typeof foldSlot>[1]) {
  if (change.kind === 'slot.opened') {
    const fault = openingFault(state, slots, change.slot)
    if (fault !== undefined) return fault
  } else {
    const slot = slots.get(change.slotId)
    if (change.kind === 'slot.sent' || change.kind === 'slot.mined') {
      if (!slot?.attempts.some(({ hash }) => hash === change.hash))
        return `slot ${change.slotId} has no attempt ${change.hash}`
    } else if (slot === undefined) return `slot ${change.slotId} is not open`
  }
  foldSlot(slots, change)
  return undefined
}

function openingFault(
  state: LedgerState,
  slots: OpenSlots,
  { id, executor, nonce, candidateIds }: Slot,
) {
  if (slots.has(id)) return `slot ${id} is already open`
  const isBound = [...state.slots.values()].some(
    (slot) => slot.executor === executor && slot.nonce === nonce,
  )
  // A filler may lie below; a proposal never gets a nonce that may have served another one (R3).
  const isFiller = candidateIds.length === 0 && !isBound
  if (!isFiller && nonce <= (state.highestNonce.get(executor) ?? -1))
    return `nonce ${nonce} was bound before`
  for (const candidateId of candidateIds) {
    const fault = endedFault(state, candidateId)
    if (fault !== undefined) return fault
    if (state.slotOf.has(candidateId)) return `candidate ${candidateId} has an open slot`
  }
  return undefined
}

export interface OpenStore {
  readonly ledger: Ledger
  readonly log: RecordLog
  compact(keepSinceMs: number): Promise<void>
}

interface StorePorts {
  readonly clock: Clock
  readonly random: Random
  readonly hash: Hash
  readonly files: Files
}

interface OpenOptions extends Pick<LogOptions, 'fence' | 'onNote'> {
  settings(isNew: boolean): Promise<LedgerSettings>
}

async function orClosed<T>(log: { close(): Promise<void> }, work: () => Promise<T>) {
  try {
    return await work()
  } catch (error) {
    await log.close()
    throw error
  }
}

export async function openStore(
  ports: StorePorts,
  folder: string,
  { settings, ...options }: OpenOptions,
): Promise<OpenStore> {
  const { state, onRecord } = foldLedger()
  const log = await openLog(ports, folder, { ...storeLog, ...options }, onRecord)
  return orClosed(log, async () => ({
    log,
    ledger: await openLedger(ports, log, state, await settings(state.info === undefined)),
    compact: (keepSinceMs) => compactLedger(log, state, keepSinceMs),
  }))
}

export async function openSharedStore(
  ports: Pick<StorePorts, 'clock' | 'random'>,
  database: SqlDatabase,
  {
    settings,
    ...parts
  }: Pick<OpenOptions, 'settings'> & Pick<SharedLogParts, 'onObservation' | 'seen'>,
) {
  const { state, onRecord } = foldLedger()
  const onSnapshot = (line: string) => restoreLine(state, line)
  const own = { database, knownKinds: knownKind, onRecord, onSnapshot }
  const log = await openSharedLog({ ...ports, ...own, ...parts })
  return orClosed(log, async () => ({
    log,
    ledger: await openLedger(ports, log, state, await settings(state.info === undefined)),
    compact: () => snapshotState(log, state),
    bytes: () => storeBytes(log),
  }))
}

export async function readStore(
  ports: Pick<StorePorts, 'hash' | 'files'>,
  folder: string,
  settings: LedgerSettings,
  also?: (record: StoredRecord) => void,
): Promise<Ledger> {
  const { state, onRecord } = foldLedger(also)
  const reader = await openLogReader(ports, folder, storeLog)
  return orClosed(reader, async () => {
    await reader.replay(onRecord)
    return ledgerReader(reader, state, settings)
  })
}

export async function readSharedStore(
  ports: Pick<StorePorts, 'clock' | 'random'>,
  database: SqlDatabase,
  settings: LedgerSettings,
  { seen, onRecord: also }: Partial<Pick<SharedLogParts, 'seen' | 'onRecord'>> = {},
): Promise<Ledger> {
  const { state, onRecord } = foldLedger(also)
  const log = await openSharedLog({ ...ports, database, knownKinds: knownKind, seen, onRecord })
  return orClosed(log, async () => ledgerReader(log, state, settings))
}

export async function inspectSharedStore(
  database: SqlDatabase,
  also: (record: StoredRecord) => void,
) {
  const { state, facts, onRecord } = foldLedger(also)
  const inspection = await inspectSharedLog(database, {
    knownKinds: knownKind,
    onRecord,
    snapshotFault: (lines) => differenceOf(state, lines),
  })
  return { inspection, facts }
}

function differenceOf(state: LedgerState, lines: readonly string[]) {
  const kept = new Set(lines)
  let count = 0
  for (const line of linesOf(state)) {
    count += 1
    if (!kept.delete(line)) return `it lacks ${line.slice(0, 120)}`
  }
  const [more] = kept
  if (more !== undefined) return `it has ${more.slice(0, 120)} besides`
  return count === lines.length ? undefined : `it has ${lines.length} lines, the fold ${count}`
}
