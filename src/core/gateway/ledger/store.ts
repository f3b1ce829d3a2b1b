/** A ledger's stores, on disk or in PostgreSQL (R25): opened, read, folded, compared and proved. */
import { keccak256 } from 'viem'
import type { Clock, Files, Hash, Random, SqlDatabase } from '#ports'
import type { Candidate } from '#protocol/candidate'
import { openLog } from '#storage/log'
import { inspectSharedLog, storeBytes } from '#storage/postgres/inspect'
import type { SharedLogParts } from '#storage/postgres/log-state'
import { openSharedLog, type SharedLog } from '#storage/postgres/shared-log'
import { openLogReader } from '#storage/reader'
import type {
  CompactableLog,
  LogOptions,
  NewRecord,
  RecordLog,
  StoredRecord,
} from '#storage/record-log'
import type { Change, Ledger, LedgerSettings, SlotAttempt } from './ledger.js'
import {
  apply,
  datedRecord,
  type EndedHead,
  isInner,
  isRetryable,
  knownKind,
  type LedgerRecord,
  type LedgerState,
  receiveEnded,
  recordOf,
  toRecord,
} from './state.js'
import { foldLedger, ledgerReader, openLedger, readWhole, storeLog } from './writer.js'

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
) {
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
) {
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

type Past = Extract<LedgerRecord, { kind: 'past' }>

function changeOf(event: LedgerRecord): Change | undefined {
  if (isInner(event) || ('folded' in event && event.folded === true)) return undefined
  switch (event.kind) {
    case 'candidate.received':
    case 'chain.finalized':
      return undefined
    case 'candidate.whole': {
      const { id, progress } = event.candidate
      return { kind: 'candidate.progress', id, progress }
    }
    case 'slot.opened':
      return { kind: 'slot.opened', slot: { ...event.slot, attempts: [] } }
    case 'slot.attempt':
      // The signed bytes are for sending; an open slot keeps its own.
      return { ...event, attempt: { ...event.attempt, raw: '0x' } }
    default:
      return event
  }
}

function subjectOf(change: Change) {
  switch (change.kind) {
    case 'allowlist.set':
      return `wallet ${change.address}`
    case 'admission.set':
      return 'admission'
    case 'question.set':
      return `question ${change.entry.questionId}`
    case 'question.removed':
      return `question ${change.questionId}`
    case 'implementation.set':
      return `code of ${change.address}`
    case 'receipt.key':
      return `receipt key ${change.key.kid}`
    default:
      return undefined
  }
}

/**
 * What was written at `keepSinceMs` or later, every loss that was accepted, all about an active
 * candidate or an open slot, and the operator's last word on each subject (robustness §2).
 */
async function* pastOf(
  records: AsyncIterable<StoredRecord>,
  live: ReadonlySet<string>,
  open: ReadonlySet<string>,
  keepSinceMs: number,
): AsyncGenerator<Past> {
  const lastWords = new Map<string, Past>()
  for await (const record of records) {
    const { atMs, event } = datedRecord(record)
    const was = changeOf(event)
    if (was === undefined) continue
    const past = { kind: 'past', atMs, was } as const
    const subject = subjectOf(was)
    const isKept = atMs >= keepSinceMs || was.kind === 'store.repaired' || isAbout(was, live, open)
    if (isKept) yield past
    if (subject === undefined) continue
    if (isKept) lastWords.delete(subject)
    else lastWords.set(subject, past)
  }
  yield* lastWords.values()
}

function isAbout(change: Change, live: ReadonlySet<string>, open: ReadonlySet<string>) {
  if ('id' in change) return live.has(change.id)
  if (change.kind === 'slot.opened')
    return open.has(change.slot.id) || change.slot.candidateIds.some((id) => live.has(id))
  return 'slotId' in change && open.has(change.slotId)
}

function headRecords(state: LedgerState): readonly LedgerRecord[] {
  const { info, finalized } = state
  const folded = { reason: 'compaction', folded: true } as const
  const records: LedgerRecord[] = []
  if (info) records.push({ kind: 'store.opened', info })
  records.push({ kind: 'admission.set', enabled: state.admissionEnabled, ...folded })
  if (finalized)
    records.push({ ...finalized, kind: 'chain.finalized', number: String(finalized.number) })
  for (const [address, allowed] of state.allowlist) {
    const failures = state.failures.get(address)
    const held = failures && { failures }
    records.push({ kind: 'allowlist.set', address, allowed, ...held, ...folded })
  }
  for (const [questionId, entry] of state.questions)
    records.push(
      entry === null
        ? { kind: 'question.removed', questionId, ...folded }
        : { kind: 'question.set', entry, ...folded },
    )
  for (const [address, runs] of state.implementations)
    records.push({ kind: 'implementation.set', address, runs, ...folded })
  for (const key of state.receiptKeys.values())
    records.push({ kind: 'receipt.key', key, ...folded })
  for (const [executor, nonce] of state.highestNonce)
    records.push({ kind: 'executor.nonce', executor, nonce })
  for (const slot of state.slots.values()) records.push({ kind: 'slot.opened', slot, folded: true })
  return records
}

export const headOf = ({ id, identity, round, sequence, progress }: Candidate): EndedHead => [
  id,
  identity,
  round.key,
  sequence,
  progress.status,
  isRetryable(progress),
]

export async function compactLedger(log: CompactableLog, state: LedgerState, keepSinceMs = 0) {
  let cut: ReturnType<LedgerState['entries']['cut']> | undefined
  let before = 0
  await log.compact(
    () => {
      const head = headRecords(state)
      before = head.length
      const candidates = state.entries.cut()
      cut = candidates
      const live = new Set([...state.live].map(({ id }) => id))
      const past = pastOf(log.scan(), live, new Set(state.slots.keys()), keepSinceMs)
      return (async function* (): AsyncGenerator<NewRecord> {
        for (const record of head) yield toRecord(record)
        for (const entry of candidates.entries()) {
          const candidate = entry.live ?? (await readWhole(log, entry))
          const record = toRecord({ kind: 'candidate.whole', candidate, folded: true })
          yield entry.live === undefined ? { ...record, head: headOf(candidate) } : record
        }
        for await (const record of past) yield toRecord(record)
      })()
    },
    (ordinal, position) => cut?.moved(ordinal - before, position),
  )
}

type Line =
  | readonly [...EndedHead, receivedAt: number, progressAt: number]
  | { readonly record: LedgerRecord }
  | {
      readonly candidate: Candidate
      readonly receivedAt: number
      readonly progressAt: number
    }

export function restoreLine(state: LedgerState, text: string) {
  const line = JSON.parse(text) as Line
  if ('length' in line) {
    receiveEnded(state, line, line[6], line[7])
  } else if ('record' in line) {
    apply(state, { ...toRecord(line.record), sequence: 0, timeMs: 0, position: 0 })
  } else {
    const { candidate, receivedAt, progressAt } = line
    const record = toRecord({ kind: 'candidate.whole', candidate })
    apply(state, { ...record, sequence: 0, timeMs: 0, position: receivedAt })
    const entry = state.entries.near(candidate.id)
    if (entry) entry.progressAt = progressAt
  }
}

export function linesOf(state: LedgerState): Iterable<string> {
  const head = [...headRecords(state), ...lastDecision(state)]
  const candidates = state.entries.cut()
  return (function* () {
    for (const record of head) yield JSON.stringify({ record } satisfies Line)
    for (const entry of candidates.entries()) {
      const { id, identity, roundKey, sequence, status, retryable } = entry
      const { receivedAt, progressAt, live } = entry
      const line: Line = live
        ? { candidate: live, receivedAt, progressAt }
        : [id, identity, roundKey, sequence, status, retryable, receivedAt, progressAt]
      yield JSON.stringify(line)
    }
  })()
}

function lastDecision({ admissionEnabled, admissionDecision }: LedgerState): LedgerRecord[] {
  if (admissionDecision === undefined) return []
  const { atMs, ...words } = admissionDecision
  const was = { kind: 'admission.set', enabled: admissionEnabled, ...words } as const
  return [{ kind: 'past', atMs, was }]
}

export const snapshotState = (log: SharedLog, state: LedgerState) => log.putSnapshot(linesOf(state))

/** What must hold of a store beyond its checksums (R2, R3), fed with every record in order. */
export function createAudit() {
  const counts = new Map<string, number>()
  const holders = new Map<string, string>()
  const requireOne = (name: string, holder: string, detail: string) => {
    const known = holders.get(name) ?? holder
    if (known !== holder) throw new RangeError(`${detail}, that of ${known}`)
    holders.set(name, holder)
  }
  return {
    counts: counts as ReadonlyMap<string, number>,
    onRecord(record: StoredRecord) {
      counts.set(record.kind, (counts.get(record.kind) ?? 0) + 1)
      const event = recordOf(record)
      if (event.kind === 'candidate.received' || event.kind === 'candidate.whole') {
        const { id, identity, sequence } = event.candidate
        if (event.kind === 'candidate.received' && holders.has(`id ${id}`))
          throw new RangeError(`${identity} was admitted before`)
        requireOne(`identity ${identity}`, id, `candidate ${id} is a known payload`)
        requireOne(`id ${id}`, identity, `candidate ${id} stands for a second payload`)
        requireOne(`sequence ${sequence}`, id, `candidate ${id} has sequence number ${sequence}`)
      } else if (event.kind === 'slot.opened') {
        const { id, executor, nonce, candidateIds, attempts } = event.slot
        // What carries no proposal may fill a gap again, after a lost chain took its end along.
        if (candidateIds.length > 0)
          requireOne(`${executor} ${nonce}`, id, `slot ${id} binds nonce ${nonce} of ${executor}`)
        attempts.forEach(requireHash)
      } else if (event.kind === 'slot.attempt') requireHash(event.attempt)
    },
  }
}

function requireHash({ hash, raw }: SlotAttempt) {
  if (raw !== '0x' && keccak256(raw) !== hash)
    throw new RangeError(`transaction ${hash} is recorded with the bytes of ${keccak256(raw)}`)
}
