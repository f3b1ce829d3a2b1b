/**
 * Candidates at their end, a hundred bytes each: columns of numbers in pages, found by open
 * addressing. A million objects in maps take four times the memory, and the garbage collector's
 * time with it.
 */
import type { CandidateState } from '../../protocol/candidate.js'
import type { Position } from '../../storage/record-log.js'
import type { CandidateRef } from './ledger.js'

/** What is remembered of a candidate that is at its end. */
export interface EndedRef extends CandidateRef {
  readonly sequence: number
  readonly receivedAt: Position
  readonly progressAt: Position
}

/** Rows as they stood at one moment, with the places of their records. */
export interface EndedCut {
  readonly rows: Uint32Array
  readonly receivedAt: Float64Array
  readonly progressAt: Float64Array
}

const pageRows = 4_096
/** 2^24 rows, and 2^29 sequence numbers, in one number that sorts by the latter. */
const rowStride = 2 ** 24
/** id, payload identity and round key: 16 bytes each, as four words. */
const keyWords = 12
const [idAt, identityAt, roundAt] = [0, 4, 8]

interface Page {
  readonly keys: Uint32Array
  readonly sequences: Float64Array
  readonly receivedAt: Float64Array
  readonly progressAt: Float64Array
  /** Place in `states`, and the marks below. */
  readonly flags: Uint8Array
}

const states: readonly CandidateState[] = [
  'received',
  'validated',
  'selected',
  'executed',
  'failed',
]
const [retryableFlag, awayFlag] = [0x10, 0x20]

/** The value of a lowercase hex digit by its character, -1 for every other. */
const digits = Int8Array.from({ length: 128 }, (_, code) =>
  '0123456789abcdef'.indexOf(String.fromCharCode(code)),
)

/**
 * Reads 32 lowercase hex digits as four words from `at` on; with the hyphens of a UUID where asked.
 * False for any other text.
 */
function readKey(text: string, isUuid: boolean, words: Uint32Array, at: number): boolean {
  if (text.length !== (isUuid ? 36 : 32)) return false
  let place = 0
  for (let word = 0; word < 4; word += 1) {
    let value = 0
    for (let digit = 0; digit < 8; digit += 1) {
      if (isUuid && (place === 8 || place === 13 || place === 18 || place === 23)) {
        if (text.charCodeAt(place) !== 0x2d) return false
        place += 1
      }
      const next = digits[text.charCodeAt(place)] ?? -1
      if (next < 0) return false
      value = (value << 4) | next
      place += 1
    }
    words[at + word] = value
  }
  return true
}

const bytes = Array.from({ length: 256 }, (_, byte) => byte.toString(16).padStart(2, '0'))

function hexAt(words: Uint32Array, at: number): string {
  let text = ''
  for (let place = at; place < at + 4; place += 1) {
    const word = words[place] ?? 0
    text += `${bytes[word >>> 24]}${bytes[(word >>> 16) & 0xff]}${bytes[(word >>> 8) & 0xff]}${bytes[word & 0xff]}`
  }
  return text
}

function uuidAt(words: Uint32Array, at: number): string {
  const text = hexAt(words, at)
  return `${text.slice(0, 8)}-${text.slice(8, 12)}-${text.slice(12, 16)}-${text.slice(16, 20)}-${text.slice(20)}`
}

function newPage(): Page {
  return {
    keys: new Uint32Array(pageRows * keyWords),
    sequences: new Float64Array(pageRows),
    receivedAt: new Float64Array(pageRows),
    progressAt: new Float64Array(pageRows),
    flags: new Uint8Array(pageRows),
  }
}

/** An empty table. */
export function newEndedTable() {
  const pages: Page[] = []
  let rows = 0
  let away = 0
  // Row + 1 by the last word of a key, which is as good as random; 0 is a free place. At most half
  // of the places are taken.
  let byId = new Uint32Array(2 * pageRows)
  let byIdentity = new Uint32Array(2 * pageRows)
  const wanted = new Uint32Array(keyWords)

  const pageOf = (row: number): Page => {
    const page = pages[Math.floor(row / pageRows)]
    if (!page) throw new RangeError(`no row ${row}`)
    return page
  }

  /** The row whose key at `at` is the wanted one, or -1. */
  function find(places: Uint32Array, at: number): number {
    const mask = places.length - 1
    for (let place = (wanted[at + 3] ?? 0) & mask; ; place = (place + 1) & mask) {
      const row = (places[place] ?? 0) - 1
      if (row < 0) return -1
      const { keys } = pageOf(row)
      const from = (row % pageRows) * keyWords + at
      if (
        keys[from] === wanted[at] &&
        keys[from + 1] === wanted[at + 1] &&
        keys[from + 2] === wanted[at + 2] &&
        keys[from + 3] === wanted[at + 3]
      )
        return row
    }
  }

  function enter(places: Uint32Array, row: number, at: number): void {
    const mask = places.length - 1
    let place = (pageOf(row).keys[(row % pageRows) * keyWords + at + 3] ?? 0) & mask
    while (places[place] !== 0) place = (place + 1) & mask
    places[place] = row + 1
  }

  function makeRoom(): void {
    if (rows % pageRows === 0) pages.push(newPage())
    if (2 * (rows + 1) <= byId.length) return
    byId = new Uint32Array(2 * byId.length)
    byIdentity = new Uint32Array(2 * byIdentity.length)
    for (let row = 0; row < rows; row += 1) {
      enter(byId, row, idAt)
      enter(byIdentity, row, identityAt)
    }
  }

  function refAt(row: number): EndedRef {
    const { keys, sequences, receivedAt, progressAt, flags } = pageOf(row)
    const index = row % pageRows
    const flag = flags[index] ?? 0
    return {
      id: uuidAt(keys, index * keyWords + idAt),
      identity: hexAt(keys, index * keyWords + identityAt),
      roundKey: hexAt(keys, index * keyWords + roundAt),
      status: states[flag & 0x0f] ?? 'failed',
      retryable: (flag & retryableFlag) !== 0,
      sequence: sequences[index] ?? 0,
      receivedAt: receivedAt[index] ?? 0,
      progressAt: progressAt[index] ?? 0,
    }
  }

  const isAway = (row: number) => ((pageOf(row).flags[row % pageRows] ?? 0) & awayFlag) !== 0
  const rowOf = (id: string) => (readKey(id, true, wanted, idAt) ? find(byId, idAt) : -1)
  const inForce = (row: number) => (row < 0 || isAway(row) ? undefined : refAt(row))

  return {
    get size() {
      return rows - away
    },
    get: (id: string) => inForce(rowOf(id)),
    byIdentity: (identity: string) =>
      inForce(readKey(identity, false, wanted, identityAt) ? find(byIdentity, identityAt) : -1),

    /**
     * Takes a candidate in, or anew. False where its keys are not of the form that this version
     * gives them.
     */
    put(ref: EndedRef): boolean {
      if (!readKey(ref.id, true, wanted, idAt) || !readKey(ref.identity, false, wanted, identityAt))
        return false
      if (!readKey(ref.roundKey, false, wanted, roundAt)) return false
      let row = find(byId, idAt)
      if (row < 0) {
        makeRoom()
        row = rows
        rows += 1
        pageOf(row).keys.set(wanted, (row % pageRows) * keyWords)
        enter(byId, row, idAt)
        enter(byIdentity, row, identityAt)
      } else if (isAway(row)) away -= 1
      const page = pageOf(row)
      const index = row % pageRows
      page.sequences[index] = ref.sequence
      page.receivedAt[index] = ref.receivedAt
      page.progressAt[index] = ref.progressAt
      page.flags[index] = states.indexOf(ref.status) | (ref.retryable ? retryableFlag : 0)
      return true
    },

    /** Lets a candidate go that is active again; its row waits for it. */
    leave(id: string): void {
      const row = rowOf(id)
      if (row < 0 || isAway(row)) return
      const { flags } = pageOf(row)
      flags[row % pageRows] = (flags[row % pageRows] ?? 0) | awayFlag
      away += 1
    },

    *values(): Generator<EndedRef> {
      for (let row = 0; row < rows; row += 1) if (!isAway(row)) yield refAt(row)
    },

    at: refAt,

    /**
     * From the highest sequence number down. Few of a million are built where the caller stops
     * early.
     */
    *newest(): Generator<EndedRef> {
      const keys = new Float64Array(rows - away)
      let count = 0
      for (let row = 0; row < rows; row += 1) {
        if (isAway(row)) continue
        keys[count] = (pageOf(row).sequences[row % pageRows] ?? 0) * rowStride + row
        count += 1
      }
      keys.sort()
      for (let index = count - 1; index >= 0; index -= 1)
        yield refAt((keys[index] ?? 0) % rowStride)
    },

    /** What is there now, for a walk that takes its time. */
    cut(): EndedCut {
      const cut = {
        rows: new Uint32Array(rows - away),
        receivedAt: new Float64Array(rows - away),
        progressAt: new Float64Array(rows - away),
      }
      let count = 0
      for (let row = 0; row < rows; row += 1) {
        if (isAway(row)) continue
        const page = pageOf(row)
        cut.rows[count] = row
        cut.receivedAt[count] = page.receivedAt[row % pageRows] ?? 0
        cut.progressAt[count] = page.progressAt[row % pageRows] ?? 0
        count += 1
      }
      return cut
    },

    /**
     * Tells the new place of what lay at `receivedAt` and `progressAt`; what was written since then
     * stays where it is.
     */
    moved(row: number, receivedAt: Position, progressAt: Position, position: Position): void {
      const page = pageOf(row)
      const index = row % pageRows
      if (page.receivedAt[index] === receivedAt) page.receivedAt[index] = position
      if (page.progressAt[index] === progressAt) page.progressAt[index] = -1
    },

    rowOf,
  }
}
