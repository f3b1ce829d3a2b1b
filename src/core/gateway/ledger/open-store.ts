import type { Clock, Files, Hash, Random, SqlDatabase } from '#ports'
import { openLog } from '#storage/log'
import { inspectSharedLog, storeBytes } from '#storage/postgres/inspect'
import type { SharedLogParts } from '#storage/postgres/log-state'
import { openSharedLog } from '#storage/postgres/shared-log'
import { openLogReader } from '#storage/reader'
import type { LogOptions, RecordLog, StoredRecord } from '#storage/record-log'
import { compactLedger, linesOf, restoreLine, snapshotState } from './compaction.js'
import type { Ledger, LedgerSettings } from './ledger.js'
import { knownKind, type LedgerState, ledgerReader, recordOf } from './state.js'
import { foldLedger, openLedger, storeFormat } from './store.js'

export const storeLog = { format: storeFormat, knownKinds: knownKind } as const

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

/** Under a lock that the caller holds. */
export async function openStore(
  { clock, random, hash, files }: StorePorts,
  folder: string,
  { settings, ...options }: OpenOptions,
): Promise<OpenStore> {
  const { state, onRecord } = foldLedger()
  const log = await openLog({ files, clock, hash }, folder, { ...storeLog, ...options }, onRecord)
  return orClosed(log, async () => ({
    log,
    ledger: await openLedger(
      { clock, random },
      log,
      state,
      await settings(state.info === undefined),
    ),
    compact: (keepSinceMs) => compactLedger(log, state, keepSinceMs),
  }))
}

/** Folding keeps every record, and writes what the next opening starts from. */
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
  const log = await openSharedLog({
    ...ports,
    database,
    knownKinds: knownKind,
    onRecord,
    onSnapshot,
    ...parts,
  })
  return orClosed(log, async () => ({
    log,
    ledger: await openLedger(ports, log, state, await settings(state.info === undefined)),
    compact: () => snapshotState(log, state),
    bytes: () => storeBytes(log),
  }))
}

/** For looking only (R24). A store that does not exist yet reads as empty. */
export async function readStore(
  { hash, files }: Pick<StorePorts, 'hash' | 'files'>,
  folder: string,
  settings: LedgerSettings,
  onRecord: (record: StoredRecord) => void = () => undefined,
): Promise<Ledger> {
  const fold = foldLedger()
  const reader = await openLogReader({ files, hash }, folder, storeLog)
  return orClosed(reader, async () => {
    await reader.replay((record) => {
      fold.onRecord(record)
      onRecord(record)
    })
    return ledgerReader(reader, fold.state, settings)
  })
}

export async function readSharedStore(
  ports: Pick<StorePorts, 'clock' | 'random'>,
  database: SqlDatabase,
  settings: LedgerSettings,
  { seen, onRecord }: Partial<Pick<SharedLogParts, 'seen' | 'onRecord'>> = {},
): Promise<Ledger> {
  const fold = foldLedger()
  const log = await openSharedLog({
    ...ports,
    database,
    knownKinds: knownKind,
    seen,
    onRecord(record) {
      fold.onRecord(record)
      onRecord?.(record)
    },
  })
  return orClosed(log, async () => ledgerReader(log, fold.state, settings))
}

export async function inspectSharedStore(
  database: SqlDatabase,
  onRecord: (record: StoredRecord) => void,
) {
  const { state, facts, ...fold } = foldLedger()
  const identities = new Set<string>()
  const inspection = await inspectSharedLog(database, {
    knownKinds: knownKind,
    onRecord(record) {
      fold.onRecord(record)
      onRecord(record)
      const event = recordOf(record)
      if (event.kind !== 'candidate.received') return
      const { identity } = event.candidate
      if (identities.has(identity)) throw new RangeError(`${identity} was admitted before`)
      identities.add(identity)
    },
    snapshotFault: (lines) => differenceOf(state, lines),
  })
  return { inspection, facts }
}

function differenceOf(state: LedgerState, lines: readonly string[]) {
  const kept = new Set(lines)
  let count = 0
  for (const line of linesOf(state).lines()) {
    count += 1
    if (!kept.delete(line)) return `it lacks ${line.slice(0, 120)}`
  }
  const [more] = kept
  if (more !== undefined) return `it has ${more.slice(0, 120)} besides`
  return count === lines.length ? undefined : `it has ${lines.length} lines, the fold ${count}`
}
