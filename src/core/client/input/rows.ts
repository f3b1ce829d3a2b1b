/**
 * A batch input cut into rows: NDJSON lines, elements of a JSON array, CSV records (contract §6).
 * Lines and records are read in pieces, so that memory does not grow with the file. Every limit of
 * robustness §6 holds before a row is parsed (R17).
 */
import { parse } from 'csv-parse/sync'
import { UsageError } from '../../protocol/errors.js'

/** An open file, or stdin spooled to one: the input is read twice. `name` is for messages. */
export interface BatchSource {
  readonly name: string
  /** Up to `length` bytes from `position`; fewer only at the end. */
  read(position: number, length: number): Promise<Uint8Array>
}

export const batchFormats = ['ndjson', 'json', 'csv'] as const
export type BatchFormat = (typeof batchFormats)[number]

/** Where a row stands, from 1: its first line, and which element of a JSON array it is. */
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

/** One CSV record; `line` is where it begins. A malformed one has a fault and no cells. */
export interface CsvRow {
  readonly line: number
  readonly cells: readonly string[]
  readonly fault?: UsageError
}

/** What a batch input may hold (robustness §6). */
export const inputLimits = {
  bytes: 64 * 1024 * 1024,
  rows: 1_000_000,
  rowBytes: 64 * 1024,
} as const

const pieceBytes = 64 * 1024
const lineFeed = 0x0a

/** What names file and place, and never repeats text of the input (R5). */
export function inputFault(
  source: BatchSource,
  place: Place | undefined,
  code: string,
  detail: string,
  hint: string,
): UsageError {
  const where = place === undefined ? source.name : `${source.name}, ${placeText(place)}`
  const at = place?.element ?? place?.line ?? 0
  return new UsageError(code, `${where}: ${detail}`, { hint, at })
}

/** Pieces in order, without a byte order mark. UsageError `input_too_large` past 64 MiB. */
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

/** The format by the file's extension, else by its first character that is no blank. */
export async function formatOf(source: BatchSource): Promise<BatchFormat> {
  const extension = /\.([a-z]+)$/i.exec(source.name)?.[1]?.toLowerCase()
  if (extension === 'csv') return 'csv'
  if (extension === 'ndjson' || extension === 'jsonl') return 'ndjson'
  for await (const piece of piecesOf(source)) {
    const [first] = new TextDecoder().decode(piece).trimStart()
    if (first !== undefined) return first === '[' ? 'json' : '{"'.includes(first) ? 'ndjson' : 'csv'
  }
  return 'csv'
}

/** What a row must be before it is parsed. */
function newGuard(source: BatchSource) {
  const decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true })
  let rows = 0
  return {
    short(bytes: number, place: Place) {
      if (bytes > inputLimits.rowBytes)
        throw inputFault(
          source,
          place,
          'row_too_long',
          `the row is longer than ${inputLimits.rowBytes} bytes`,
          'one row is one proposal; check for a missing line end or quote',
        )
    },
    count(place: Place) {
      if (++rows > inputLimits.rows)
        throw inputFault(
          source,
          place,
          'too_many_rows',
          `there are more than ${inputLimits.rows} rows`,
          'split it into several files',
        )
    },
    /** With `stream` more is to come: a character may be cut. */
    decode(bytes: Uint8Array, place: Place | undefined, stream = false): string {
      try {
        return decoder.decode(bytes, { stream })
      } catch {
        // Which byte it was would not help to find it in an editor.
        const hint = 'save the file as UTF-8'
        throw inputFault(source, place, 'invalid_row', 'the row is not UTF-8', hint)
      }
    },
  }
}

const joined = (one: Uint8Array, other: Uint8Array): Uint8Array => {
  const both = new Uint8Array(one.length + other.length)
  both.set(one)
  both.set(other, one.length)
  return both
}

/** Lines, a piece's worth at a time, blank ones too. */
async function* linesOf(
  source: BatchSource,
  guard: ReturnType<typeof newGuard>,
): AsyncGenerator<TextRow[]> {
  let rest: Uint8Array = new Uint8Array()
  let line = 1
  const take = (bytes: Uint8Array, whole: boolean): TextRow => {
    guard.short(bytes.length, { line })
    return { line, text: guard.decode(bytes, { line: line++ }), whole }
  }
  for await (const piece of piecesOf(source)) {
    const bytes = joined(rest, piece)
    const lines: TextRow[] = []
    let from = 0
    for (let end = bytes.indexOf(lineFeed); end >= 0; end = bytes.indexOf(lineFeed, from)) {
      lines.push(take(bytes.subarray(from, end), true))
      from = end + 1
    }
    rest = bytes.slice(from)
    guard.short(rest.length, { line })
    yield lines
  }
  if (rest.length > 0) yield [take(rest, false)]
}

/** Lines that hold more than blanks. Either line end; UsageError with the line number. */
export async function* lineRows(source: BatchSource): AsyncGenerator<TextRow[]> {
  const guard = newGuard(source)
  for await (const lines of linesOf(source, guard)) {
    const rows = lines
      .map((row) => ({ ...row, text: row.text.trim() }))
      .filter(({ text }) => text !== '')
    for (const row of rows) guard.count(row)
    yield rows
  }
}

const csvFaults: Readonly<Record<string, string>> = {
  INVALID_OPENING_QUOTE: 'a quote is inside a cell that is not quoted',
  CSV_INVALID_CLOSING_QUOTE: 'text follows a closing quote',
}

/** What stands between the cells: a comma, or what a spreadsheet of another country writes. */
function delimiterOf(header: string): string {
  const bare = header.replace(/"[^"]*"/g, '')
  const cells = (delimiter: string) => bare.split(delimiter).length
  return [',', ';', '\t'].reduce((best, each) => (cells(each) > cells(best) ? each : best))
}

/**
 * Records of a CSV file (RFC 4180), the first one the header's, which tells the delimiter. Either
 * line end; blank lines are skipped; cells are taken as they are. UsageError `invalid_csv` for a quote
 * that is never closed.
 */
export async function* csvRows(source: BatchSource): AsyncGenerator<CsvRow[]> {
  const guard = newGuard(source)
  let open: { readonly line: number; text: string } | undefined
  let delimiter: string | undefined
  for await (const lines of linesOf(source, guard)) {
    const records: { readonly line: number; readonly text: string }[] = []
    for (const { line, text } of lines) {
      const record = { line: open?.line ?? line, text: open ? `${open.text}\n${text}` : text }
      guard.short(record.text.length, record)
      // Quotes inside quotes are doubled: of a whole record there is an even number.
      open = record.text.split('"').length % 2 === 0 ? record : undefined
      if (open !== undefined || record.text.trim() === '') continue
      guard.count(record)
      delimiter ??= delimiterOf(record.text)
      records.push({ line: record.line, text: record.text.replace(/\r$/, '') })
    }
    yield cellsOf(source, records, delimiter ?? ',')
  }
  if (open === undefined) return
  const hint = 'close it; a quote inside quotes is doubled'
  throw inputFault(source, open, 'invalid_csv', 'a quote is never closed', hint)
}

function cellsOf(
  source: BatchSource,
  records: readonly { readonly line: number; readonly text: string }[],
  delimiter: string,
): CsvRow[] {
  const cells = (texts: readonly string[]) =>
    parse(texts.join('\n'), { delimiter, relax_column_count: true, record_delimiter: '\n' })
  try {
    const all = cells(records.map(({ text }) => text))
    return records.map(({ line }, at) => ({ line, cells: all[at] ?? [] }))
  } catch {
    // One of them is malformed: each by itself tells which.
    return records.map(({ line, text }) => {
      try {
        return { line, cells: cells([text])[0] ?? [] }
      } catch (cause) {
        const code = cause instanceof Error && 'code' in cause ? String(cause.code) : ''
        const detail = csvFaults[code] ?? 'the record is malformed'
        const hint = 'quote the whole cell and double the quotes inside it'
        return { line, cells: [], fault: inputFault(source, { line }, 'invalid_csv', detail, hint) }
      }
    })
  }
}

/**
 * Strings whole, punctuation of JSON, line ends, and whatever else stands together. A string can be
 * read in one way only, so that one without an end costs no more than its length.
 */
const jsonTokens = /"[^"\\]*(?:\\[\s\S][^"\\]*)*"|[[\]{}:,\n]|[^\s[\]{}:,"]+|"/g

/**
 * Elements, as they stand in the file, of the JSON array that the file is or that its object has
 * under the key `under`. Each is parsed by the caller. UsageError `invalid_json_array`,
 * `input_torn`.
 */
export async function* arrayRows(source: BatchSource, under?: string): AsyncGenerator<TextRow[]> {
  const guard = newGuard(source)
  let [text, rows]: [string, TextRow[]] = ['', []]
  for await (const piece of piecesOf(source)) text += guard.decode(piece, undefined, true)
  text += guard.decode(new Uint8Array(), undefined)
  for (const row of elementsOf(source, text, under)) {
    guard.count(row)
    guard.short(new TextEncoder().encode(row.text).length, row)
    rows.push(row)
    if (rows.length < rowsAtOnce) continue
    yield rows
    rows = []
  }
  yield rows
}

const rowsAtOnce = 500

function* elementsOf(source: BatchSource, text: string, under?: string): Generator<TextRow> {
  let state: 'before' | 'first' | 'element' | 'after' | 'next' | 'end' = 'before'
  let [line, depth, element, key, start] = [1, 0, 0, '', 0]
  let place: Place = { line, element }
  const wrong = (detail: string) => {
    const hint = 'give one JSON array of objects'
    return inputFault(source, { line }, 'invalid_json_array', detail, hint)
  }
  for (const { 0: token, index } of text.matchAll(jsonTokens)) {
    const step = '[{'.includes(token) ? 1 : ']}'.includes(token) ? -1 : 0
    if (token === '\n') line++
    else if (state === 'before') {
      const isKeyed = depth === 1 && key === `${JSON.stringify(under)}:`
      if (token === '[' && (under === undefined ? depth === 0 : isKeyed)) state = 'first'
      else if (under === undefined) throw wrong('it does not begin with [')
      else [depth, key] = [depth + step, token === ':' ? `${key}:` : token]
      if (state === 'first') depth = 0
    } else if (state === 'after') {
      if (token !== ',' && token !== ']') throw wrong('a comma is missing between two elements')
      state = token === ',' ? 'next' : 'end'
    } else if (state === 'end') {
      if (under === undefined) throw wrong('something follows the closing ]')
    } else if (state === 'first' && token === ']') state = 'end'
    else {
      // A string without an end.
      if (token === '"') break
      if (state !== 'element') {
        if (',]}:'.includes(token)) throw wrong('an element is missing')
        state = 'element'
        element++
        place = { line, element }
        start = index
      }
      depth += step
      if (depth > 0) continue
      state = 'after'
      yield { ...place, text: text.slice(start, index + token.length), whole: true }
    }
  }
  if (state === 'end') return
  const missing =
    state === 'before' && under !== undefined
      ? `it has no list under "${under}"`
      : 'its closing ] is missing'
  const detail = `the JSON is cut off or of another kind: ${missing}`
  throw inputFault(source, { line }, 'input_torn', detail, 'give the whole file')
}

/** The schema of a document with its results first, as `--json` prints them; else `undefined`. */
export async function documentSchema(source: BatchSource): Promise<string | undefined> {
  const head = new TextDecoder().decode(await source.read(0, 1_024))
  return /^\ufeff?\s*\{\s*"schema"\s*:\s*"([^"]*)"\s*,\s*"results"\s*:/.exec(head)?.[1]
}
