/** What is written to a ledger and read of it, on a record log (robustness §2). */
import pLimit from 'p-limit'
import type { Clock, Random } from '#ports'
import { type Candidate, type CandidateState, mayBecome } from '#protocol/candidate'
import { ProposerError, StorageError } from '#protocol/errors'
import { pick } from '#protocol/pick'
import type { RecordLog, RecordLogReader, RecordPosition, StoredRecord } from '#storage/record-log'
import type {
  Admission,
  Change,
  Ledger,
  LedgerEvent,
  LedgerFacts,
  LedgerListener,
  LedgerSettings,
  NewCandidate,
  OpenSlots,
  Slot,
  StoreInfo,
} from './ledger.js'
import {
  apply,
  bytesOf,
  type CandidateEntry,
  dayOf,
  emptyState,
  foldSlot,
  isInner,
  isSlotChange,
  knownKind,
  type LedgerRecord,
  type LedgerState,
  nonceKeyOf,
  recordOf,
  roundKeyOf,
  toRecord,
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

type Open = ReturnType<typeof newOpen>

const newOpen = (ports: { clock: Clock; random: Random }, log: RecordLog, state: LedgerState) => ({
  ...ports,
  log,
  state,
  listeners: new Set<LedgerListener>(),
  inOrder: pLimit(1),
  claims: noClaims(0),
})

type Claims = ReturnType<typeof noClaims>

/** Before it is durable; void once the next group is decided. */
const noClaims = (group: number) => ({
  group,
  byIdentity: new Map<string, Candidate>(),
  byKey: new Map<string, string>(),
})

export async function openLedger(
  ports: Parameters<typeof newOpen>[0],
  log: RecordLog,
  state: LedgerState,
  settings: LedgerSettings,
): Promise<Ledger> {
  const open = newOpen(ports, log, state)
  const { inOrder, listeners } = open
  const { chainId, genesisHash } = settings
  log.follow?.((records) => {
    for (const record of records) apply(state, record)
    report(open, records.flatMap(eventOf), true)
  })
  if (state.info === undefined) {
    if (genesisHash === undefined) throw new RangeError('a new store needs the genesis hash')
    const info = { storeId: open.random.uuid(), chainId, genesisHash }
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

function claimsOf(open: Open, group: number) {
  if (open.claims.group !== group) open.claims = noClaims(group)
  return open.claims
}

const keysOf = ({ proposer, round, nonce }: NewCandidate) =>
  [roundKeyOf(proposer, round.key), nonceKeyOf(proposer, nonce)] as const
type Keys = ReturnType<typeof keysOf>

function met(
  state: LedgerState,
  identity: string,
  [round, nonce]: Keys,
  { byIdentity, byKey }: Claims,
): Admission | { kind: 'known'; entry: CandidateEntry } | undefined {
  const copy = byIdentity.get(identity)
  if (copy) return { kind: 'replayed', candidate: copy }
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
  if (found?.kind === 'known')
    return { kind: 'replayed', candidate: await wholeOf(log, state, found.entry) }
  if (found) return found
  if (admitted === undefined) throw new Error('an admission was left undecided')
  report(open, [{ kind: 'candidate.received', candidate: admitted }])
  return { kind: 'admitted', candidate: admitted }
}

async function replay(open: Open, id: string, revives = true) {
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

function activeOf(state: LedgerState): readonly Candidate[] {
  if (state.active === undefined) {
    const active: Candidate[] = []
    for (const { live, status } of state.live) if (live && status !== 'failed') active.push(live)
    state.active = active.sort((one, other) => one.sequence - other.sequence)
  }
  return state.active
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
  ...pick(state, 'questions', 'implementations', 'failures', 'receiptKeys'),
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
