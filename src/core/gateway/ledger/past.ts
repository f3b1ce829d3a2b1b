/**
 * What a compaction keeps of the records that its fold replaces: their facts and their times,
 * inert. State hangs on none of them; whoever asks what happened reads them as if they still lay
 * where they were.
 */
import type { StoredRecord } from '../../storage/record-log.js'
import type { Change } from './ledger.js'
import type { LedgerRecord, LedgerState } from './state.js'

/** A record as it was, with the time of its writing in Unix milliseconds. */
export interface Told {
  readonly atMs: number
  /**
   * `candidate.received` and `candidate.whole` tell of a candidate, everything else of a change.
   */
  readonly event: LedgerRecord
}

/**
 * What a stored record tells, wherever a compaction has put it. Nothing is checked: the log's
 * checksums guard the bytes.
 */
export function toldBy({
  kind,
  data,
  timeMs,
}: Pick<StoredRecord, 'kind' | 'data' | 'timeMs'>): Told {
  const event = { kind, ...(data as object) } as LedgerRecord
  return event.kind === 'past' ? { atMs: event.atMs, event: event.was } : { atMs: timeMs, event }
}

/**
 * Kinds that say what an operator did, and what they are about: the last word on each subject is
 * kept for good.
 */
function subjectOf(change: Change): string | undefined {
  switch (change.kind) {
    case 'allowlist.set':
      return `wallet ${change.address}`
    case 'admission.set':
      return 'admission'
    case 'question.set':
      return `question ${change.entry.questionId}`
    case 'question.removed':
      return `question ${change.questionId}`
    default:
      return undefined
  }
}

/** The change that a record was; `undefined` where the fold says all that it said. */
function changeOf(event: LedgerRecord): Change | undefined {
  switch (event.kind) {
    case 'store.opened':
    case 'candidate.received':
    case 'executor.nonce':
    case 'chain.finalized':
    case 'past':
      return undefined
    case 'candidate.whole':
      // Without the mark of a fold it is an exact replay that put the candidate back (contract §5).
      return event.folded === true
        ? undefined
        : { kind: 'candidate.progress', id: event.candidate.id, progress: event.candidate.progress }
    case 'slot.opened':
      return event.folded === true
        ? undefined
        : { kind: 'slot.opened', slot: { ...event.slot, attempts: [] } }
    case 'slot.attempt':
      // The signed bytes are for sending; an open slot keeps its own.
      return { ...event, attempt: { ...event.attempt, raw: '0x' } }
    case 'allowlist.set':
    case 'admission.set':
    case 'question.set':
    case 'question.removed':
      return event.folded === true ? undefined : event
    default:
      return event
  }
}

/**
 * The records of a log as `past` records, in their order: everything written at `keepSinceMs` or
 * later, whatever is about an active candidate or an open slot of `state`, the operator's last word
 * on each subject, and every loss that was accepted. Source: robustness §2, Snapshot/compaction.
 */
export async function* pastOf(
  records: AsyncIterable<StoredRecord>,
  state: LedgerState,
  keepSinceMs: number,
): AsyncGenerator<Extract<LedgerRecord, { kind: 'past' }>> {
  const live = new Set([...state.live].map(({ id }) => id))
  const open = new Set(state.slots.keys())
  const lastOld = new Map<string, Extract<LedgerRecord, { kind: 'past' }>>()
  for await (const record of records) {
    const { atMs, event } = toldBy(record)
    const was = changeOf(event)
    if (was === undefined) continue
    const past = { kind: 'past', atMs, was } as const
    const subject = subjectOf(was)
    const isKept = atMs >= keepSinceMs || was.kind === 'store.repaired' || isAbout(was, live, open)
    if (isKept) yield past
    if (subject === undefined) continue
    if (isKept) lastOld.delete(subject)
    else lastOld.set(subject, past)
  }
  yield* lastOld.values()
}

function isAbout(change: Change, live: ReadonlySet<string>, open: ReadonlySet<string>): boolean {
  if ('id' in change) return live.has(change.id)
  if (change.kind === 'slot.opened')
    return open.has(change.slot.id) || change.slot.candidateIds.some((id) => live.has(id))
  return 'slotId' in change && open.has(change.slotId)
}
