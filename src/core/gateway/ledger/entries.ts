/**
 * Every candidate of a store by its id and by its payload: those that live as objects, those at
 * their end in columns.
 */
import type { Candidate, CandidateState } from '../../protocol/candidate.js'
import type { RecordPosition } from '../../storage/record-log.js'
import {
  countEnded,
  cutEnded,
  type EndedRef,
  endedAt,
  endedById,
  endedByIdentity,
  endedInRound,
  endedRow,
  leaveEnded,
  moveEnded,
  newEndedTable,
  newestEnded,
  putEnded,
} from './ended.js'
import type { CandidateRef } from './ledger.js'

/** What stays in memory of a candidate. `live` only while it is active or its slot is open. */
export interface CandidateEntry extends CandidateRef {
  status: CandidateState
  retryable: boolean
  receivedAt: RecordPosition
  /** Where its newest progress lies; -1 while there is none. */
  progressAt: RecordPosition
  live: Candidate | undefined
}

const asEntry = (ref: EndedRef | undefined): CandidateEntry | undefined =>
  ref && { ...ref, live: undefined }
const bySequence = (one: CandidateRef, other: CandidateRef) => one.sequence - other.sequence

/** No candidates. What `get` and the others hand out of an ended candidate is a copy. */
export function newEntries() {
  const ended = newEndedTable()
  /** The live ones, and those with keys of another form than this version gives them. */
  const near = new Map<string, CandidateEntry>()
  const nearByIdentity = new Map<string, CandidateEntry>()
  const keep = (entry: CandidateEntry) => {
    near.set(entry.id, entry)
    nearByIdentity.set(entry.identity, entry)
  }
  return {
    get size() {
      return near.size + ended.rows - ended.absent
    },
    get: (id: string): CandidateEntry | undefined => near.get(id) ?? asEntry(endedById(ended, id)),
    byIdentity: (identity: string): CandidateEntry | undefined =>
      nearByIdentity.get(identity) ?? asEntry(endedByIdentity(ended, identity)),
    /** Those of a round, in order of admission. */
    inRound: (roundKey: string): readonly CandidateRef[] =>
      [
        ...endedInRound(ended, roundKey),
        ...[...near.values()].filter((entry) => entry.roundKey === roundKey),
      ].sort(bySequence),
    counts(): Record<CandidateState, number> {
      const counts = { received: 0, validated: 0, selected: 0, executed: 0, failed: 0 }
      countEnded(ended, counts)
      for (const { status } of near.values()) counts[status] += 1
      return counts
    },
    /** At most `count`, from the one admitted last back. */
    *newest(count = Number.POSITIVE_INFINITY): Generator<CandidateEntry> {
      const others = [...near.values()].sort(bySequence)
      const rows = newestEnded(ended)
      let next = rows.next()
      for (let given = 0; given < count; given += 1) {
        const other = others.at(-1)
        if (next.done !== true && next.value.sequence > (other?.sequence ?? -1)) {
          yield { ...next.value, live: undefined }
          next = rows.next()
        } else if (other !== undefined) {
          yield other
          others.pop()
        } else return
      }
    },
    /** The entry itself of a live candidate. */
    near: (id: string): CandidateEntry | undefined => near.get(id),
    /** Takes in an entry that may change. */
    put(entry: CandidateEntry): void {
      leaveEnded(ended, entry.id)
      keep(entry)
    },
    /** Takes in, or keeps more cheaply, what changes no more. */
    putEnded(entry: CandidateEntry): void {
      if (!putEnded(ended, entry)) keep(entry)
      else if (near.delete(entry.id)) nearByIdentity.delete(entry.identity)
    },
    /** All of them as they are now, for a walk that takes its time, in an order that stays. */
    cut(): {
      readonly size: number
      entries(): Generator<CandidateEntry>
      /** Tells the new position of the n-th. */
      moved(ordinal: number, position: RecordPosition): void
    } {
      const cut = cutEnded(ended)
      const others = [...near.values()].map((entry) => ({ ...entry }))
      const positionsOf = (row: number) => ({
        receivedAt: cut.receivedAt[row] ?? 0,
        progressAt: cut.progressAt[row] ?? 0,
      })
      return {
        size: cut.rows.length + others.length,
        *entries() {
          for (const row of cut.rows)
            yield { ...endedAt(ended, row), ...positionsOf(row), live: undefined }
          yield* others
        },
        moved(ordinal, position) {
          const other = others[ordinal - cut.rows.length]
          const row = cut.rows[ordinal] ?? (other ? endedRow(ended, other.id) : -1)
          const entry = other && near.get(other.id)
          if (entry !== undefined) {
            if (entry.receivedAt === other?.receivedAt) entry.receivedAt = position
            if (entry.progressAt === other?.progressAt) entry.progressAt = -1
          } else if (row >= 0) moveEnded(ended, other ?? positionsOf(row), row, position)
        },
      }
    },
  }
}

export type Entries = ReturnType<typeof newEntries>
