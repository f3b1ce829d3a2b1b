import type { Candidate, CandidateState } from '#protocol/candidate'
import type { RecordPosition } from '#storage/record-log'
import type { CandidateRef } from './ledger.js'

/** `live` only while it is active or its slot is open. */
export interface CandidateEntry extends CandidateRef {
  status: CandidateState
  retryable: boolean
  receivedAt: RecordPosition
  progressAt: RecordPosition
  live: Candidate | undefined
}

const bySequence = (one: CandidateRef, other: CandidateRef) => one.sequence - other.sequence

export function newEntries() {
  const ended = newEndedTable()
  const near = new Map<string, CandidateEntry>()
  const nearByIdentity = new Map<string, CandidateEntry>()
  const keep = (entry: CandidateEntry) => {
    near.set(entry.id, entry)
    nearByIdentity.set(entry.identity, entry)
  }
  return {
    get: (id: string): CandidateEntry | undefined =>
      near.get(id) ?? presentAt(ended, rowOf(ended, id, idAt)),
    byIdentity: (identity: string): CandidateEntry | undefined =>
      nearByIdentity.get(identity) ?? presentAt(ended, rowOf(ended, identity, identityAt)),
    inRound(roundKey: string): readonly CandidateRef[] {
      const rows = readKey(roundKey, roundAt) ? presentRows(ended) : []
      const others = [...near.values()].filter((entry) => entry.roundKey === roundKey)
      return rows
        .filter((row) => hasKey(ended, row, roundAt))
        .map((row) => endedAt(ended, row))
        .concat(others)
        .sort(bySequence)
    },
    counts(): Record<CandidateState, number> {
      const counts = { received: 0, validated: 0, selected: 0, executed: 0, failed: 0 }
      for (const row of presentRows(ended)) counts[statusAt(ended, row)] += 1
      for (const { status } of near.values()) counts[status] += 1
      return counts
    },
    *newest(count = Number.POSITIVE_INFINITY): Generator<CandidateEntry> {
      const others = [...near.values()].sort(bySequence)
      const keys = keysInOrder(ended)
      for (let at = keys.length - 1, given = 0; given < count; given += 1) {
        const row = at < 0 ? -1 : (keys[at] ?? 0) % rowStride
        const other = others.at(-1)
        if (row >= 0 && (ended.sequences[row] ?? 0) > (other?.sequence ?? -1)) {
          yield endedAt(ended, row)
          at -= 1
        } else if (other !== undefined) {
          yield other
          others.pop()
        } else return
      }
    },
    near: (id: string): CandidateEntry | undefined => near.get(id),
    put(entry: CandidateEntry) {
      const row = rowOf(ended, entry.id, idAt)
      if (row >= 0) ended.flags[row] = (ended.flags[row] ?? 0) | absentFlag
      keep(entry)
    },
    putEnded(entry: CandidateEntry) {
      if (!putEnded(ended, entry)) keep(entry)
      else if (near.delete(entry.id)) nearByIdentity.delete(entry.identity)
    },
    cut() {
      const rows = presentRows(ended)
      const receivedAt = ended.receivedAt.slice(0, ended.rows)
      const progressAt = ended.progressAt.slice(0, ended.rows)
      const others = [...near.values()].map((entry) => ({ ...entry }))
      const positionsOf = (row: number) => ({
        receivedAt: receivedAt[row] ?? 0,
        progressAt: progressAt[row] ?? 0,
      })
      return {
        *entries(): Generator<CandidateEntry> {
          for (const row of rows) yield { ...endedAt(ended, row), ...positionsOf(row) }
          yield* others
        },
        moved(ordinal: number, position: RecordPosition) {
          const other = others[ordinal - rows.length]
          const row = rows[ordinal] ?? (other ? rowOf(ended, other.id, idAt) : -1)
          const before = other ?? positionsOf(row)
          const entry = other && near.get(other.id)
          if (entry !== undefined) {
            if (entry.receivedAt === before.receivedAt) entry.receivedAt = position
            if (entry.progressAt === before.progressAt) entry.progressAt = -1
          } else if (row >= 0) {
            if (ended.receivedAt[row] === before.receivedAt) ended.receivedAt[row] = position
            if (ended.progressAt[row] === before.progressAt) ended.progressAt[row] = -1
          }
        },
      }
    },
  }
}

const firstRows = 4_096
/** 2^24 rows, and 2^29 sequence numbers, in one number that sorts by the latter. */
const rowStride = 2 ** 24
const keyWords = 12
const [idAt, identityAt, roundAt] = [0, 4, 8]
const [retryableFlag, absentFlag] = [0x10, 0x20]
const states: readonly CandidateState[] = [
  'received',
  'validated',
  'selected',
  'executed',
  'failed',
]

type EndedTable = ReturnType<typeof newEndedTable>

const newColumns = (rows: number) => ({
  /** id, payload identity and round key: 16 bytes each, as four words. */
  keys: new Uint32Array(rows * keyWords),
  sequences: new Float64Array(rows),
  receivedAt: new Float64Array(rows),
  progressAt: new Float64Array(rows),
  flags: new Uint8Array(rows),
  /** Row + 1 by the last word of its id, and of its identity; 0 is free. Half are taken at most. */
  places: new Uint32Array(4 * rows),
})

/**
 * A hundred bytes each, found by open addressing. A million objects in maps take four times the
 * memory, and the garbage collector's time with it.
 */
const newEndedTable = () => ({ ...newColumns(firstRows), rows: 0 })

const wanted = new Uint32Array(keyWords)

const digits = Int8Array.from({ length: 128 }, (_, code) =>
  '0123456789abcdef'.indexOf(String.fromCharCode(code)),
)

/**
 * The 32 lowercase hex digits of a key, an id's with the hyphens of a UUID, into `wanted`; false for
 * any other text. A million are read in a row.
 */
function readKey(text: string, at: number) {
  const isUuid = at === idAt
  if (text.length !== (isUuid ? 36 : 32)) return false
  let seen = 0
  let value = 0
  for (let count = 0, place = 0; count < 32; count += 1, place += 1) {
    if (isUuid && (count === 8 || count === 12 || count === 16 || count === 20)) {
      if (text.charCodeAt(place) !== 0x2d) return false
      place += 1
    }
    const digit = digits[text.charCodeAt(place)] ?? -1
    seen |= digit
    value = (value << 4) | digit
    if ((count & 7) === 7) wanted[at + (count >> 3)] = value
  }
  return seen >= 0
}

const hexAt = ({ keys }: EndedTable, at: number) => {
  let text = ''
  for (let word = at; word < at + 4; word += 1)
    text += (keys[word] ?? 0).toString(16).padStart(8, '0')
  return text
}

function hasKey({ keys }: EndedTable, row: number, at: number) {
  const from = row * keyWords + at
  return (
    keys[from] === wanted[at] &&
    keys[from + 1] === wanted[at + 1] &&
    keys[from + 2] === wanted[at + 2] &&
    keys[from + 3] === wanted[at + 3]
  )
}

function find(table: EndedTable, at: number) {
  const { places } = table
  const mask = places.length - 1
  for (let place = (wanted[at + 3] ?? 0) & mask; ; place = (place + 1) & mask) {
    const row = (places[place] ?? 0) - 1
    if (row < 0 || hasKey(table, row, at)) return row
  }
}

const rowOf = (table: EndedTable, key: string, at: number) =>
  readKey(key, at) ? find(table, at) : -1

function enter({ keys, places }: EndedTable, row: number, at: number) {
  const mask = places.length - 1
  let place = (keys[row * keyWords + at + 3] ?? 0) & mask
  while (places[place] !== 0) place = (place + 1) & mask
  places[place] = row + 1
}

function grow(table: EndedTable) {
  const { rows } = table
  if (rows < table.flags.length) return
  const old = { ...table }
  Object.assign(table, newColumns(2 * rows))
  for (const column of ['keys', 'sequences', 'receivedAt', 'progressAt', 'flags'] as const)
    table[column].set(old[column])
  for (let row = 0; row < rows; row += 1) {
    enter(table, row, idAt)
    enter(table, row, identityAt)
  }
}

const isAbsent = ({ flags }: EndedTable, row: number) => ((flags[row] ?? 0) & absentFlag) !== 0

const statusAt = ({ flags }: EndedTable, row: number) =>
  states[(flags[row] ?? 0) & 0x0f] ?? 'failed'

function endedAt(table: EndedTable, row: number): CandidateEntry {
  const id = hexAt(table, row * keyWords + idAt)
  return {
    id: `${id.slice(0, 8)}-${id.slice(8, 12)}-${id.slice(12, 16)}-${id.slice(16, 20)}-${id.slice(20)}`,
    identity: hexAt(table, row * keyWords + identityAt),
    roundKey: hexAt(table, row * keyWords + roundAt),
    status: statusAt(table, row),
    retryable: ((table.flags[row] ?? 0) & retryableFlag) !== 0,
    sequence: table.sequences[row] ?? 0,
    receivedAt: table.receivedAt[row] ?? 0,
    progressAt: table.progressAt[row] ?? 0,
    live: undefined,
  }
}

const presentAt = (table: EndedTable, row: number) =>
  row < 0 || isAbsent(table, row) ? undefined : endedAt(table, row)

function putEnded(table: EndedTable, ref: CandidateEntry) {
  const { id, identity, roundKey } = ref
  if (!readKey(id, idAt) || !readKey(identity, identityAt) || !readKey(roundKey, roundAt))
    return false
  let row = find(table, idAt)
  if (row < 0) {
    grow(table)
    row = table.rows
    table.rows += 1
    table.keys.set(wanted, row * keyWords)
    enter(table, row, idAt)
    enter(table, row, identityAt)
  }
  table.sequences[row] = ref.sequence
  table.receivedAt[row] = ref.receivedAt
  table.progressAt[row] = ref.progressAt
  table.flags[row] = states.indexOf(ref.status) | (ref.retryable ? retryableFlag : 0)
  return true
}

function presentRows(table: EndedTable): readonly number[] {
  const present: number[] = []
  for (let row = 0; row < table.rows; row += 1) if (!isAbsent(table, row)) present.push(row)
  return present
}

function keysInOrder(table: EndedTable) {
  const rows = presentRows(table)
  const keys = new Float64Array(rows.length)
  for (const [at, row] of rows.entries()) keys[at] = (table.sequences[row] ?? 0) * rowStride + row
  return keys.sort()
}
