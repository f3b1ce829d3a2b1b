/** Proves a store in a database: its records, their fold, and the snapshot beside them. */
import type { SqlDatabase } from '../../ports.js'
import { inspectSharedLog } from '../../storage/postgres/inspect.js'
import type { StoredRecord } from '../../storage/record-log.js'
import { linesOf } from './shared-snapshot.js'
import { knownKind, type LedgerState, recordOf } from './state.js'
import { foldLedger } from './store.js'

/**
 * Reads everything; `onRecord` may throw RangeError for a record that breaks a rule. Rejects with
 * StorageError where the store cannot be read.
 */
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

/** What a snapshot says otherwise than the fold of the records; the order of lines is free. */
function differenceOf(state: LedgerState, lines: readonly string[]): string | undefined {
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
