/**
 * A batch input cut into rows: NDJSON lines, elements of a JSON array, CSV records (contract §6).
 * Read in pieces, so that memory does not grow with the file; every limit of robustness §6 holds
 * before a row is parsed (R17).
 */
import { UsageError } from '../../protocol/errors.js'

/** An open file, or stdin spooled to one: the input is read twice. `name` is for messages. */
export interface BatchSource {
  readonly name: string
  /** Up to `length` bytes from `position`; fewer only at the end. */
  read(position: number, length: number): Promise<Uint8Array>
}

export const batchFormats = ['ndjson', 'json', 'csv'] as const
export type BatchFormat = (typeof batchFormats)[number]

/**
 * Where a row stands, from 1: on which line it begins, and which element it is of a JSON array,
 * whose lines may hold many.
 */
export interface Place {
  readonly line: number
  readonly element?: number
}

/** `line 3`, or `row 3` of an array. */
export const placeText = ({ line, element }: Place): string =>
  element === undefined ? `line ${line}` : `row ${element}`

/** One row as text. CSV rows come as cells. */
export interface TextRow extends Place {
  readonly text: string
  /** NDJSON: whether a line end followed. A row without one may be torn. */
  readonly whole: boolean
}

/** Robustness §6: what a batch input may hold. */
export const inputLimits = {
  bytes: 64 * 1024 * 1024,
  rows: 1_000_000,
  rowBytes: 64 * 1024,
} as const

const pieceBytes = 64 * 1024
const [lineFeed, carriageReturn, space, tab] = [0x0a, 0x0d, 0x20, 0x09] as const
const [quote, backslash, comma, colon] = [0x22, 0x5c, 0x2c, 0x3a] as const
const [openBrace, closeBrace, openBracket, closeBracket] = [0x7b, 0x7d, 0x5b, 0x5d] as const

/**
 * UsageError (exit 2) that names file and line or element. Text of the input is never repeated but
 * for field names (R5).
 */
export function inputFault(
  source: BatchSource,
  place: Place | number | undefined,
  code: string,
  detail: string,
  hint: string,
): UsageError {
  const at = typeof place === 'number' ? { line: place } : place
  const where = at === undefined ? source.name : `${source.name}, ${placeText(at)}`
  return new UsageError(code, `${where}: ${detail}`, { hint })
}

/**
 * Pieces of the file in order, without a byte order mark. UsageError `input_too_large` past 64 MiB.
 */
async function* piecesOf(source: BatchSource): AsyncGenerator<Uint8Array> {
  for (let position = 0; ; ) {
    const piece = await source.read(position, pieceBytes)
    if (piece.length === 0) return
    if (position + piece.length > inputLimits.bytes) throw tooLarge(source)
    const marked = position === 0 && piece[0] === 0xef && piece[1] === 0xbb && piece[2] === 0xbf
    position += piece.length
    yield marked ? piece.subarray(3) : piece
  }
}

/** UsageError `input_too_large`: more than a batch input may hold. */
export const tooLarge = (source: Pick<BatchSource, 'name'>): UsageError =>
  new UsageError('input_too_large', `${source.name} holds more than ${inputLimits.bytes} bytes`, {
    hint: 'split it into several files',
  })

/**
 * The format by the file's extension, else by its first byte: `[` JSON, `{` NDJSON, anything else
 * CSV.
 */
export async function formatOf(source: BatchSource): Promise<BatchFormat> {
  const [, extension] = /\.([a-z]+)$/i.exec(source.name) ?? []
  if (/^csv$/i.test(extension ?? '')) return 'csv'
  if (/^(ndjson|jsonl)$/i.test(extension ?? '')) return 'ndjson'
  const first = await firstByte(source)
  if (first === openBracket) return 'json'
  return first === openBrace || first === quote ? 'ndjson' : 'csv'
}

/** The first byte that is no blank; `undefined` for an empty input. */
export async function firstByte(source: BatchSource): Promise<number | undefined> {
  for await (const piece of piecesOf(source)) {
    const byte = piece.find((each) => !isBlank(each))
    if (byte !== undefined) return byte
  }
  return undefined
}

const isBlank = (byte: number) =>
  byte === space || byte === tab || byte === lineFeed || byte === carriageReturn

/** Collects one row's bytes across pieces and refuses it as soon as it is too long. */
function newRowBuffer(source: BatchSource) {
  const decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true })
  const bytes = new Uint8Array(inputLimits.rowBytes)
  let length = 0
  let rows = 0
  return {
    get length() {
      return length
    },
    add(piece: Uint8Array, line: Place | number) {
      if (length + piece.length > bytes.length) {
        throw inputFault(
          source,
          line,
          'row_too_long',
          `the row is longer than ${inputLimits.rowBytes} bytes`,
          'one row is one proposal; look for a line end or a quote that is missing',
        )
      }
      bytes.set(piece, length)
      length += piece.length
    },
    clear() {
      length = 0
    },
    /** The row's text; starts the next one. */
    take(line: Place | number): string {
      if (++rows > inputLimits.rows) {
        throw inputFault(
          source,
          line,
          'too_many_rows',
          `there are more than ${inputLimits.rows} rows`,
          'split it into several files',
        )
      }
      try {
        const text = decoder.decode(bytes.subarray(0, length))
        length = 0
        return text
      } catch {
        // Which byte it was would not help to find it in an editor.
        throw inputFault(
          source,
          line,
          'invalid_row',
          'the row is not UTF-8',
          'save the file as UTF-8',
        )
      }
    },
  }
}

/**
 * Lines that hold more than blanks, a piece's worth at a time. Either line end; UsageError with the
 * line number.
 */
export async function* lineRows(source: BatchSource): AsyncGenerator<TextRow[]> {
  const row = newRowBuffer(source)
  let line = 1
  for await (const piece of piecesOf(source)) {
    const rows: TextRow[] = []
    let from = 0
    for (let end = piece.indexOf(lineFeed); end >= 0; end = piece.indexOf(lineFeed, from)) {
      row.add(piece.subarray(from, end), line)
      from = end + 1
      if (row.length > 0) pushLine(rows, row.take(line), line, true)
      line++
    }
    row.add(piece.subarray(from), line)
    yield rows
  }
  const last: TextRow[] = []
  if (row.length > 0) pushLine(last, row.take(line), line, false)
  yield last
}

function pushLine(rows: TextRow[], text: string, line: number, whole: boolean): void {
  const trimmed = text.trim()
  if (trimmed !== '') rows.push({ line, text: trimmed, whole })
}

/**
 * Elements of the JSON array that the file is, or of the one under the key `under` of the object
 * that it is, as they stand in the file. Only brackets and strings are looked at here: each element
 * is parsed by the caller. UsageError `invalid_json_array`, `input_torn`.
 */
export async function* arrayRows(source: BatchSource, under?: string): AsyncGenerator<TextRow[]> {
  const row = newRowBuffer(source)
  const wrong = (line: number, detail: string) =>
    inputFault(source, line, 'invalid_json_array', detail, 'give one JSON array of objects')
  const opens = under === undefined ? (byte: number) => byte === openBracket : newKeySearch(under)
  let state = 'before' as ArrayState
  let element = newElement()
  let line = 1
  let place = { line: 1, element: 0 }
  for await (const piece of piecesOf(source)) {
    const rows: TextRow[] = []
    let from = 0
    for (let at = 0; at < piece.length; at++) {
      const byte = piece[at] ?? 0
      if (state === 'element') {
        const end = element(byte)
        if (end !== 'more') {
          row.add(piece.subarray(from, end === 'with' ? at + 1 : at), place)
          rows.push({ ...place, text: row.take(place), whole: true })
          state = 'after'
        }
        if (end !== 'before') {
          if (byte === lineFeed) line++
          continue
        }
      }
      if (byte === lineFeed) line++
      if (isBlank(byte)) continue
      if (state === 'before') {
        if (opens(byte)) state = 'first'
        else if (under === undefined) throw wrong(line, 'it does not begin with [')
      } else if (state === 'after') {
        if (byte !== comma && byte !== closeBracket)
          throw wrong(line, 'two elements stand without a comma between them')
        state = byte === comma ? 'next' : 'end'
      } else if (state === 'end') {
        if (under === undefined) throw wrong(line, 'something follows the closing ]')
      } else if (state === 'first' && byte === closeBracket) {
        state = 'end'
      } else {
        if (byte === comma || byte === closeBracket || byte === closeBrace)
          throw wrong(line, 'an element is missing')
        state = 'element'
        place = { line, element: place.element + 1 }
        from = at
        element = newElement()
        element(byte)
      }
    }
    if (state === 'element') row.add(piece.subarray(from), place)
    yield rows
  }
  if (state === 'end') return
  const missing =
    state === 'before' && under !== undefined
      ? `it has no list under "${under}"`
      : 'its closing ] is missing'
  throw inputFault(
    source,
    line,
    'input_torn',
    `the JSON is cut off or of another kind: ${missing}`,
    'give the whole file',
  )
}

/**
 * The schema of a document that is one object over the whole file with its results first, as
 * `--json` prints them; else `undefined`.
 */
export async function documentSchema(source: BatchSource): Promise<string | undefined> {
  const head = new TextDecoder().decode(await source.read(0, 1_024))
  return /^\ufeff?\s*\{\s*"schema"\s*:\s*"([^"]*)"\s*,\s*"results"\s*:/.exec(head)?.[1]
}

type ArrayState = 'before' | 'first' | 'element' | 'after' | 'next' | 'end'

/** Whether the element goes on after a byte, ends with it, or has ended before it. */
function newElement(): (byte: number) => 'more' | 'with' | 'before' {
  let depth = 0
  let inString = false
  let escaped = false
  return (byte) => {
    if (escaped) {
      escaped = false
      return 'more'
    }
    if (inString) {
      if (byte === backslash) escaped = true
      else if (byte === quote) inString = false
      return inString || depth > 0 ? 'more' : 'with'
    }
    if (byte === quote) inString = true
    else if (byte === openBrace || byte === openBracket) depth++
    else if (byte === closeBrace || byte === closeBracket) {
      if (depth === 0) return 'before'
      return --depth === 0 ? 'with' : 'more'
    } else if (depth === 0 && (byte === comma || isBlank(byte))) return 'before'
    return 'more'
  }
}

/** Tells at which byte the list under a key of the outermost object opens. */
function newKeySearch(key: string): (byte: number) => boolean {
  let depth = 0
  let inString = false
  let escaped = false
  let text = ''
  let named = false
  return (byte) => {
    if (inString) {
      if (escaped) escaped = false
      else if (byte === backslash) escaped = true
      else if (byte === quote) inString = false
      else if (text.length <= key.length) text += String.fromCharCode(byte)
      return false
    }
    if (byte === quote) {
      inString = true
      text = ''
    } else if (byte === colon) named = depth === 1 && text === key
    else if (byte === openBracket && depth === 1 && named) return true
    else if (byte === openBrace || byte === openBracket) depth++
    else if (byte === closeBrace || byte === closeBracket) depth--
    else if (byte === comma) named = false
    return false
  }
}

/** One CSV record; `line` is where it begins. */
export interface CsvRow {
  readonly line: number
  readonly cells: readonly string[]
}

/**
 * Records of a CSV file (RFC 4180: commas, quotes doubled inside quotes, either line end), the
 * first one the header's. Cells are taken as they are, formulas too. Blank lines are skipped.
 * UsageError `invalid_csv` with the line number.
 */
export async function* csvRows(source: BatchSource): AsyncGenerator<CsvRow[]> {
  const row = newRowBuffer(source)
  let line = 1
  let startLine = 1
  let inQuotes = false
  const take = (rows: CsvRow[]) => {
    if (row.length === 0) return
    const text = row.take(startLine).replace(/\r$/, '')
    if (text.trim() !== '') rows.push({ line: startLine, cells: cellsOf(source, startLine, text) })
  }
  for await (const piece of piecesOf(source)) {
    const rows: CsvRow[] = []
    let from = 0
    for (let at = 0; at < piece.length; at++) {
      const byte = piece[at]
      if (byte === quote) inQuotes = !inQuotes
      else if (byte === lineFeed) {
        line++
        if (inQuotes) continue
        row.add(piece.subarray(from, at), startLine)
        take(rows)
        from = at + 1
        startLine = line
      }
    }
    row.add(piece.subarray(from), startLine)
    yield rows
  }
  if (inQuotes)
    throw inputFault(
      source,
      startLine,
      'invalid_csv',
      'a quote is never closed',
      'close it; a quote inside quotes is doubled',
    )
  const last: CsvRow[] = []
  take(last)
  yield last
}

function cellsOf(source: BatchSource, line: number, text: string): string[] {
  const wrong = (detail: string) =>
    inputFault(
      source,
      line,
      'invalid_csv',
      detail,
      'quote the whole cell and double the quotes inside it',
    )
  const cells: string[] = []
  for (let at = 0; ; at++) {
    if (text[at] === '"') {
      let cell = ''
      let from = at + 1
      let end = text.indexOf('"', from)
      while (end >= 0 && text[end + 1] === '"') {
        cell += text.slice(from, end + 1)
        from = end + 2
        end = text.indexOf('"', from)
      }
      if (end < 0) throw wrong('a quote is never closed')
      cells.push(cell + text.slice(from, end))
      at = end + 1
      if (at < text.length && text[at] !== ',') throw wrong('text follows a closing quote')
    } else {
      const next = text.indexOf(',', at)
      const end = next < 0 ? text.length : next
      const cell = text.slice(at, end)
      if (cell.includes('"')) throw wrong('a quote stands inside a cell that is not quoted')
      cells.push(cell)
      at = end
    }
    if (at >= text.length) return cells
  }
}
