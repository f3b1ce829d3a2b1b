/** Candidates as the log holds them. */
import type { Candidate } from '../../protocol/candidate.js'
import { ProposerError, StorageError } from '../../protocol/errors.js'
import type { NewRecord, RecordLog, RecordPosition } from '../../storage/record-log.js'
import type { CandidateEntry } from './entries.js'
import { type LedgerRecord, type LedgerState, recordOf } from './state.js'

export const toRecord = ({ kind, ...data }: LedgerRecord): NewRecord => ({ kind, data })

/** A candidate from memory, or from its two records. */
export async function wholeOf(
  log: Pick<RecordLog, 'read'>,
  state: LedgerState,
  known: CandidateEntry,
): Promise<Candidate> {
  for (let entry = known; ; ) {
    try {
      return entry.live ?? (await readWhole(log, entry))
    } catch (error) {
      // A compaction moved the records between the look-up and the read: the state has the new
      // positions.
      const isRetired = error instanceof ProposerError && error.code === 'position_retired'
      const now = isRetired ? state.entries.get(entry.id) : undefined
      if (now === undefined || now.receivedAt === entry.receivedAt) throw error
      entry = now
    }
  }
}

/** A candidate from its two records. Rejects with `store_damaged` where they are not there. */
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

function misplaced(entry: CandidateEntry, position: RecordPosition): StorageError {
  return new StorageError(
    'store_damaged',
    `no record of candidate ${entry.id} is at position ${position}`,
    { httpStatus: 500, hint: 'stop the gateway and restore the store from a backup' },
  )
}
