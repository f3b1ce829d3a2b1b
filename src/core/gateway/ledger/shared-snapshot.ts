/**
 * A shared store's state as of one record, so that opening it reads few of them. Records are never
 * dropped for it: positions stay what they are.
 */
import type { Candidate } from '../../protocol/candidate.js'
import type { SharedLog } from '../../storage/postgres/shared-log.js'
import { headRecords } from './compaction.js'
import { apply, type EndedHead, type LedgerRecord, type LedgerState } from './state.js'
import { toRecord } from './whole.js'

/** An ended candidate, and where its records lie. */
type EndedLine = readonly [...EndedHead, receivedAt: number, progressAt: number]

/** A line of a snapshot. */
type Line =
  | EndedLine
  | { readonly record: LedgerRecord }
  | {
      readonly candidate: Candidate
      readonly receivedAt: number
      readonly progressAt: number
    }

/** Takes in one line. Throws RangeError for one that contradicts those before it. */
export function restoreLine(state: LedgerState, text: string): void {
  const line = JSON.parse(text) as Line
  if (isEnded(line)) {
    const [id, identity, roundKey, sequence, status, retryable, receivedAt, progressAt] = line
    const ref = { id, identity, roundKey, sequence, status, retryable }
    state.entries.putEnded({ ...ref, receivedAt, progressAt, live: undefined })
    state.nextSequence = Math.max(state.nextSequence, sequence + 1)
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

const isEnded = (line: Line): line is EndedLine => Array.isArray(line)

/** Lines of the state as it is now; to be taken in this order. */
export function linesOf(state: LedgerState): { lines(): Generator<string> } {
  const head = [...headRecords(state), ...lastDecision(state)]
  const candidates = state.entries.cut()
  return {
    *lines() {
      for (const record of head) yield JSON.stringify({ record } satisfies Line)
      for (const entry of candidates.entries()) {
        const { id, identity, roundKey, sequence, status, retryable } = entry
        const { receivedAt, progressAt, live } = entry
        const line: Line = live
          ? { candidate: live, receivedAt, progressAt }
          : [id, identity, roundKey, sequence, status, retryable, receivedAt, progressAt]
        yield JSON.stringify(line)
      }
    },
  }
}

/** When and why admission was switched last, which the fold of it does not say. */
function lastDecision({ admissionEnabled, admissionDecision }: LedgerState): LedgerRecord[] {
  if (admissionDecision === undefined) return []
  const { atMs, ...words } = admissionDecision
  const was = { kind: 'admission.set', enabled: admissionEnabled, ...words } as const
  return [{ kind: 'past', atMs, was }]
}

/** Writes a snapshot of the state as it is now. Rejects with StorageError. */
export const snapshotState = (log: SharedLog, state: LedgerState): Promise<void> =>
  log.putSnapshot(linesOf(state).lines())
