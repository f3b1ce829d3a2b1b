/**
 * Every candidate of a store by its id and by its payload: those that live as objects, those at
 * their end in columns.
 */
import type { Candidate, CandidateState } from '../../protocol/candidate.js'
import type { Position } from '../../storage/record-log.js'
import { type EndedRef, newEndedTable } from './ended.js'
import type { CandidateRef } from './ledger.js'

/** What stays in memory of a candidate. `live` only while it is active or its slot is open. */
export interface Entry extends CandidateRef {
  status: CandidateState
  retryable: boolean
  readonly sequence: number
  receivedAt: Position
  /** Where its newest progress lies; -1 while there is none. */
  progressAt: Position
  live: Candidate | undefined
}

const asEntry = (ref: EndedRef | undefined): Entry | undefined => ref && { ...ref, live: undefined }

/** No candidates. What `get` and the others hand out of an ended candidate is a copy. */
export function newEntries() {
  const ended = newEndedTable()
  /** The live ones, and those with keys of another form than this version gives them. */
  const near = new Map<string, Entry>()
  const nearByIdentity = new Map<string, Entry>()

  function moved(
    id: string,
    { receivedAt, progressAt }: Pick<Entry, 'receivedAt' | 'progressAt'>,
    position: Position,
  ): void {
    const entry = near.get(id)
    if (entry === undefined) {
      const row = ended.rowOf(id)
      if (row >= 0) ended.moved(row, receivedAt, progressAt, position)
      return
    }
    if (entry.receivedAt === receivedAt) entry.receivedAt = position
    if (entry.progressAt === progressAt) entry.progressAt = -1
  }

  return {
    get size() {
      return near.size + ended.size
    },
    get: (id: string): Entry | undefined => near.get(id) ?? asEntry(ended.get(id)),
    byIdentity: (identity: string): Entry | undefined =>
      nearByIdentity.get(identity) ?? asEntry(ended.byIdentity(identity)),
    *values(): Generator<Entry> {
      for (const ref of ended.values()) yield { ...ref, live: undefined }
      yield* near.values()
    },
    *keys(): Generator<string> {
      for (const { id } of ended.values()) yield id
      yield* near.keys()
    },
    /** At most `count`, from the one admitted last back. */
    *newest(count: number): Generator<Entry> {
      const others = [...near.values()].sort((one, other) => one.sequence - other.sequence)
      const far = ended.newest()
      let next = far.next()
      for (let told = 0; told < count; told += 1) {
        const other = others.at(-1)
        if (next.done !== true && next.value.sequence > (other?.sequence ?? -1)) {
          yield { ...next.value, live: undefined }
          next = far.next()
        } else if (other !== undefined) {
          yield other
          others.pop()
        } else return
      }
    },
    /** The entry itself of a live candidate. */
    near: (id: string): Entry | undefined => near.get(id),
    /** Takes in an entry that may change. */
    put(entry: Entry): void {
      ended.leave(entry.id)
      near.set(entry.id, entry)
      nearByIdentity.set(entry.identity, entry)
    },
    /** Takes in, or keeps more cheaply, what changes no more. */
    putEnded(entry: Entry): void {
      if (ended.put(entry)) {
        if (near.delete(entry.id)) nearByIdentity.delete(entry.identity)
      } else {
        near.set(entry.id, entry)
        nearByIdentity.set(entry.identity, entry)
      }
    },
    /** All of them as they are now, for a walk that takes its time, in an order that stays. */
    cut(): {
      readonly size: number
      entries(): Generator<Entry>
      moved(ordinal: number, position: Position): void
    } {
      const rows = ended.cut()
      const others = [...near.values()].map((entry) => ({ ...entry }))
      const placesAt = (index: number) => ({
        receivedAt: rows.receivedAt[index] ?? 0,
        progressAt: rows.progressAt[index] ?? 0,
      })
      return {
        size: rows.rows.length + others.length,
        *entries() {
          for (const [index, row] of rows.rows.entries())
            yield { ...ended.at(row), ...placesAt(index), live: undefined }
          yield* others
        },
        moved(ordinal, position) {
          const row = rows.rows[ordinal]
          const other = others[ordinal - rows.rows.length]
          if (row !== undefined) {
            const { receivedAt, progressAt } = placesAt(ordinal)
            ended.moved(row, receivedAt, progressAt, position)
          } else if (other !== undefined) moved(other.id, other, position)
        },
      }
    },
  }
}

export type Entries = ReturnType<typeof newEntries>
