import type { Candidate, CandidateState } from '#protocol/candidate'
import type { RecordPosition } from '#storage/record-log'
import type { CandidateRef } from './ledger.js'

/** `live` only while it is active or its slot is open. */
export interface CandidateEntry extends CandidateRef {
  status: CandidateState
  retryable: boolean
  receivedAt: RecordPosition
  /** -1 while there is none. */
  progressAt: RecordPosition
  live: Candidate | undefined
}

const bySequence = (one: CandidateRef, other: CandidateRef) => one.sequence - other.sequence

export function newEntries() {
  const ended = newEndedTable()
  /** And those with keys of another form than this version gives them. */
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
    get: (id: string): CandidateEntry | undefined => near.get(id) ?? endedById(ended, id),
    byIdentity: (identity: string): CandidateEntry | undefined =>
      nearByIdentity.get(identity) ?? endedByIdentity(ended, identity),
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
    *newest(count = Number.POSITIVE_INFINITY): Generator<CandidateEntry> {
      const others = [...near.values()].sort(bySequence)
      const rows = newestEnded(ended)
      let next = rows.next()
      for (let given = 0; given < count; given += 1) {
        const other = others.at(-1)
        if (next.done !== true && next.value.sequence > (other?.sequence ?? -1)) {
          yield next.value
          next = rows.next()
        } else if (other !== undefined) {
          yield other
          others.pop()
        } else return
      }
    },
    near: (id: string): CandidateEntry | undefined => near.get(id),
    put(entry: CandidateEntry) {
      leaveEnded(ended, entry.id)
      keep(entry)
    },
    putEnded(entry: CandidateEntry) {
      if (!putEnded(ended, entry)) keep(entry)
      else if (near.delete(entry.id)) nearByIdentity.delete(entry.identity)
    },
    /** As they are now, for a walk that takes its time. */
    cut() {
      const cut = cutEnded(ended)
      const others = [...near.values()].map((entry) => ({ ...entry }))
      const positionsOf = (row: number) => ({
        receivedAt: cut.receivedAt[row] ?? 0,
        progressAt: cut.progressAt[row] ?? 0,
      })
      return {
        *entries(): Generator<CandidateEntry> {
          for (const row of cut.rows) yield { ...endedAt(ended, row), ...positionsOf(row) }
          yield* others
        },
        moved(ordinal: number, position: RecordPosition) {
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

type Columns = ReturnType<typeof newColumns>

const newColumns = (rows: number) => ({
  /** id, payload identity and round key: 16 bytes each, as four words. */
  keys: new Uint32Array(rows * keyWords),
  sequences: new Float64Array(rows),
  receivedAt: new Float64Array(rows),
  progressAt: new Float64Array(rows),
  flags: new Uint8Array(rows),
})

type EndedTable = ReturnType<typeof newEndedTable>

/**
 * A hundred bytes each, found by open addressing. A million objects in maps take four times the
 * memory, and the garbage collector's time with it.
 */
const newEndedTable = () => ({
  ...newColumns(firstRows),
  rows: 0,
  absent: 0,
  /** Row + 1 by the last word of a key; 0 is free. At most half of the places are taken. */
  byId: new Uint32Array(2 * firstRows),
  byIdentity: new Uint32Array(2 * firstRows),
})

const wanted = new Uint32Array(keyWords)

const digits = Int8Array.from({ length: 128 }, (_, code) =>
  '0123456789abcdef'.indexOf(String.fromCharCode(code)),
)

/** Where each four of its 32 lowercase hex digits begin. */
interface KeyForm {
  readonly length: number
  readonly places: readonly number[]
  readonly hyphens: readonly number[]
}
const plainForm: KeyForm = { length: 32, places: [0, 4, 8, 12, 16, 20, 24, 28], hyphens: [] }
const uuidForm: KeyForm = {
  length: 36,
  places: [0, 4, 9, 14, 19, 24, 28, 32],
  hyphens: [8, 13, 18, 23],
}

/** False for any other text. A million are read in a row. */
function readKey(text: string, at: number, form: KeyForm) {
  const { length, places, hyphens } = form
  if (text.length !== length) return false
  for (const place of hyphens) if (text.charCodeAt(place) !== 0x2d) return false
  let seen = 0
  for (let half = 0; half < 8; half += 1) {
    const from = places[half] ?? 0
    let value = 0
    for (let place = from; place < from + 4; place += 1) {
      const digit = digits[text.charCodeAt(place)] ?? -1
      seen |= digit
      value = (value << 4) | digit
    }
    const word = at + (half >> 1)
    wanted[word] = half % 2 === 0 ? value << 16 : (wanted[word] ?? 0) | value
  }
  return seen >= 0
}

const hexAt = ({ keys }: Columns, at: number) => {
  let text = ''
  for (let word = at; word < at + 4; word += 1)
    text += (keys[word] ?? 0).toString(16).padStart(8, '0')
  return text
}

const uuidAt = (table: Columns, at: number) => {
  const text = hexAt(table, at)
  return `${text.slice(0, 8)}-${text.slice(8, 12)}-${text.slice(12, 16)}-${text.slice(16, 20)}-${text.slice(20)}`
}

function hasKey({ keys }: Columns, row: number, at: number) {
  const from = row * keyWords + at
  return (
    keys[from] === wanted[at] &&
    keys[from + 1] === wanted[at + 1] &&
    keys[from + 2] === wanted[at + 2] &&
    keys[from + 3] === wanted[at + 3]
  )
}

function find(table: EndedTable, places: Uint32Array, at: number) {
  const mask = places.length - 1
  for (let place = (wanted[at + 3] ?? 0) & mask; ; place = (place + 1) & mask) {
    const row = (places[place] ?? 0) - 1
    if (row < 0 || hasKey(table, row, at)) return row
  }
}

function enter({ keys }: Columns, places: Uint32Array, row: number, at: number) {
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
  table.byId = new Uint32Array(4 * rows)
  table.byIdentity = new Uint32Array(4 * rows)
  for (let row = 0; row < rows; row += 1) {
    enter(table, table.byId, row, idAt)
    enter(table, table.byIdentity, row, identityAt)
  }
}

const isAbsent = ({ flags }: Columns, row: number) => ((flags[row] ?? 0) & absentFlag) !== 0

function endedAt(table: EndedTable, row: number): CandidateEntry {
  const flag = table.flags[row] ?? 0
  return {
    id: uuidAt(table, row * keyWords + idAt),
    identity: hexAt(table, row * keyWords + identityAt),
    roundKey: hexAt(table, row * keyWords + roundAt),
    status: states[flag & 0x0f] ?? 'failed',
    retryable: (flag & retryableFlag) !== 0,
    sequence: table.sequences[row] ?? 0,
    receivedAt: table.receivedAt[row] ?? 0,
    progressAt: table.progressAt[row] ?? 0,
    live: undefined,
  }
}

const endedRow = (table: EndedTable, id: string) =>
  readKey(id, idAt, uuidForm) ? find(table, table.byId, idAt) : -1

const refAt = (table: EndedTable, row: number) =>
  row < 0 || isAbsent(table, row) ? undefined : endedAt(table, row)

const endedById = (table: EndedTable, id: string) => refAt(table, endedRow(table, id))

const endedByIdentity = (table: EndedTable, identity: string) =>
  refAt(
    table,
    readKey(identity, identityAt, plainForm) ? find(table, table.byIdentity, identityAt) : -1,
  )

function putEnded(table: EndedTable, ref: CandidateEntry) {
  if (!readKey(ref.id, idAt, uuidForm)) return false
  if (!readKey(ref.identity, identityAt, plainForm)) return false
  if (!readKey(ref.roundKey, roundAt, plainForm)) return false
  let row = find(table, table.byId, idAt)
  if (row < 0) {
    grow(table)
    row = table.rows
    table.rows += 1
    table.keys.set(wanted, row * keyWords)
    enter(table, table.byId, row, idAt)
    enter(table, table.byIdentity, row, identityAt)
  } else if (isAbsent(table, row)) table.absent -= 1
  table.sequences[row] = ref.sequence
  table.receivedAt[row] = ref.receivedAt
  table.progressAt[row] = ref.progressAt
  table.flags[row] = states.indexOf(ref.status) | (ref.retryable ? retryableFlag : 0)
  return true
}

function leaveEnded(table: EndedTable, id: string) {
  const row = endedRow(table, id)
  if (row < 0 || isAbsent(table, row)) return
  table.flags[row] = (table.flags[row] ?? 0) | absentFlag
  table.absent += 1
}

function presentRows(table: EndedTable): readonly number[] {
  const present: number[] = []
  for (let row = 0; row < table.rows; row += 1) if (!isAbsent(table, row)) present.push(row)
  return present
}

function endedInRound(table: EndedTable, roundKey: string) {
  const found: CandidateEntry[] = []
  if (!readKey(roundKey, roundAt, plainForm)) return found
  for (const row of presentRows(table))
    if (hasKey(table, row, roundAt)) found.push(endedAt(table, row))
  return found
}

function countEnded(table: EndedTable, counts: Record<CandidateState, number>) {
  for (const row of presentRows(table))
    counts[states[(table.flags[row] ?? 0) & 0x0f] ?? 'failed'] += 1
}

/** Few of a million are built where the caller stops. A compaction leaves them in order. */
function* newestEnded(table: EndedTable): Generator<CandidateEntry> {
  const { rows, sequences } = table
  const keys = new Float64Array(rows)
  let count = 0
  let isInOrder = true
  for (let row = 0; row < rows; row += 1) {
    if (isAbsent(table, row)) continue
    const key = (sequences[row] ?? 0) * rowStride + row
    isInOrder &&= count === 0 || key > (keys[count - 1] ?? 0)
    keys[count] = key
    count += 1
  }
  const present = keys.subarray(0, count)
  if (!isInOrder) present.sort()
  for (let at = count - 1; at >= 0; at -= 1) yield endedAt(table, (present[at] ?? 0) % rowStride)
}

function cutEnded(table: EndedTable) {
  const { rows, receivedAt, progressAt } = table
  return {
    rows: presentRows(table),
    receivedAt: receivedAt.slice(0, rows),
    progressAt: progressAt.slice(0, rows),
  }
}

function moveEnded(
  { receivedAt, progressAt }: EndedTable,
  before: Pick<CandidateEntry, 'receivedAt' | 'progressAt'>,
  row: number,
  position: RecordPosition,
) {
  if (receivedAt[row] === before.receivedAt) receivedAt[row] = position
  if (progressAt[row] === before.progressAt) progressAt[row] = -1
}
