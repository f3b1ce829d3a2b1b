/** A batch input cut into rows: NDJSON, a JSON array, CSV (contract §6). */
import { CsvError, parse } from 'csv-parse/sync'
import { findNodeAtLocation, type ParseError, parseTree } from 'jsonc-parser'
import { jsonOf } from '#protocol/capped'
import { type ProposerError, reworded, UsageError } from '#protocol/errors'
import { objectOf } from '#protocol/json'

export interface BatchSource {
  readonly name: string
  readonly bytes: Uint8Array
}

export const batchFormats = ['ndjson', 'json', 'csv'] as const
export type BatchFormat = (typeof batchFormats)[number]

export interface Place {
  readonly line: number
  readonly element?: number
}

export const placeText = ({ line, element }: Place) =>
  element === undefined ? `line ${line}` : `row ${element}`

export interface TextRow extends Place {
  readonly text: string
  /** A line end followed; else it may be torn. */
  readonly whole: boolean
}

export interface CsvRow extends Place {
  readonly cells: readonly string[]
  readonly fault?: UsageError
}

export const inputLimits = {
  bytes: 16 * 1024 * 1024,
  rows: 20_000,
  rowBytes: 64 * 1024,
} as const

/** Without text of the input (R5). */
export const faultAt = (place: Place, code: string, detail: string, hint?: string) =>
  new UsageError(code, `${placeText(place)}: ${detail}`, { hint, at: positionOf(place) })

export const positionOf = ({ line, element = line }: Place) => element

function decoded(bytes: Uint8Array) {
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes)
  } catch {
    const lines = new TextDecoder().decode(bytes).split('\n')
    const line = 1 + lines.findIndex((text) => text.includes('\ufffd'))
    throw faultAt({ line }, 'invalid_row', 'the row is not UTF-8', 'save the file as UTF-8')
  }
}

export function formatOf({ name, bytes }: BatchSource): BatchFormat {
  if (/\.csv$/i.test(name)) return 'csv'
  if (/\.(ndjson|jsonl)$/i.test(name)) return 'ndjson'
  const [first = ''] = new TextDecoder().decode(bytes).trimStart()
  return first === '[' ? 'json' : first === '{' || first === '"' ? 'ndjson' : 'csv'
}

function requireShort(place: Place, text: string) {
  if (new TextEncoder().encode(text).length <= inputLimits.rowBytes) return
  const what = `the row is longer than ${inputLimits.rowBytes} bytes`
  const hint = 'one row is one proposal; check for a missing line end or quote'
  throw faultAt(place, 'row_too_long', what, hint)
}

export const signedHint = 'give the rows themselves, or what `proposer batch sign` wrote with -o'

/** `schema`: of a printed document whose results are rows; default: any. */
export function* textRows(source: BatchSource, format = formatOf(source), schema?: string) {
  const text = decoded(source.bytes)
  const [, printed] = /^\s*\{\s*"schema"\s*:\s*"([^"]*)"\s*,\s*"results"\s*:/.exec(text) ?? []
  const what = 'it is the printed result of another command, which holds no rows'
  if (printed === undefined) yield* format === 'json' ? arrayRows(text) : lineRows(text)
  else if (printed === (schema ?? printed)) yield* arrayRows(text, ['results'])
  else throw new UsageError('invalid_row', what, signedHint)
}

function* lineRows(text: string): Generator<TextRow> {
  const lines = text.split('\n')
  for (const [at, line] of lines.entries()) {
    const row = { line: at + 1, text: line.trim(), whole: at + 1 < lines.length }
    requireShort(row, line)
    if (row.text !== '') yield row
  }
}

function* arrayRows(text: string, under: string[] = []): Generator<TextRow> {
  const root = treeOf(text)
  if (!root && /[\]}]\s*$/.test(text))
    throw new UsageError(
      'invalid_json_array',
      'it is not one JSON array: it has a syntax error',
      'give one JSON array of objects',
    )
  const list = root && findNodeAtLocation(root, under)
  if (list?.type !== 'array') {
    const missing = root ? 'it has no list' : 'its closing ] is missing'
    const what = `the JSON is cut off or of another kind: ${missing}`
    throw new UsageError('input_torn', what, 'give the whole file')
  }
  let [line, from] = [1, 0]
  for (const [at, { offset, length }] of (list.children ?? []).entries()) {
    line += text.slice(from, offset).split('\n').length - 1
    from = offset
    // Its own text: a signed item is sent as it stands.
    const row = { line, element: at + 1, text: text.slice(offset, offset + length), whole: true }
    requireShort(row, row.text)
    yield row
  }
}

function treeOf(text: string) {
  const errors: ParseError[] = []
  try {
    const root = parseTree(text, errors, { disallowComments: true })
    return errors.length === 0 ? root : undefined
  } catch (error) {
    // Nested more deeply than the stack is.
    if (error instanceof RangeError) return undefined
    throw error
  }
}

const csvFaults: Readonly<Record<string, string>> = {
  INVALID_OPENING_QUOTE: 'a quote is inside a cell that is not quoted',
  CSV_INVALID_CLOSING_QUOTE: 'text follows a closing quote',
  CSV_QUOTE_NOT_CLOSED: 'a quote is never closed',
}

/** A comma, or what a spreadsheet of another country writes. */
function delimiterOf(header: string) {
  const bare = header.replace(/"[^"]*"/g, '')
  const cells = (delimiter: string) => bare.split(delimiter).length
  return [',', ';', '\t'].reduce((best, each) => (cells(each) > cells(best) ? each : best))
}

/** RFC 4180. Spreadsheets end a sheet with blank records. */
export function* csvRows({ bytes }: BatchSource): Generator<CsvRow> {
  const lines = decoded(bytes).replaceAll('\r\n', '\n').split('\n')
  const delimiter = delimiterOf(lines.find((line) => line.trim() !== '') ?? '')
  const format = { delimiter, record_delimiter: '\n', relax_column_count: true }
  for (let at = 0; at < lines.length; ) {
    const [from, line] = [at, at + 1]
    let quotes = 0
    // Where they are odd, a cell goes on in the next line.
    do quotes += (lines[at++] ?? '').split('"').length - 1
    while (quotes % 2 === 1 && at < lines.length)
    const text = lines.slice(from, at).join('\n')
    try {
      requireShort({ line }, text)
      const [cells = []]: string[][] = parse(text, format)
      if (cells.some((cell) => cell.trim() !== '')) yield { line, cells }
    } catch (error) {
      // What follows is read afresh.
      at = line
      yield { line, cells: [], fault: csvFault(error, { line }) }
    }
  }
}

function csvFault(error: unknown, place: Place) {
  if (error instanceof UsageError) return error
  if (!(error instanceof CsvError)) throw error
  const what = csvFaults[error.code] ?? 'the record is malformed'
  const hint = 'quote the whole cell and double the quotes inside it'
  return faultAt(place, 'invalid_csv', what, hint)
}

export type InputFaults = ReturnType<typeof newFaults>

export function newFaults({ name }: Pick<BatchSource, 'name'>) {
  const all: { readonly fault: ProposerError; readonly refuses: boolean }[] = []
  const places = new Set<number>()
  /** One that does not refuse is told beside others. `place`: where it has none. */
  const add = (error: ProposerError, place?: Place, refuses = true) => {
    const { code, detail, meta } = error
    const isPlaced = !place || meta.at !== undefined
    const fault = isPlaced ? error : faultAt(place, code, detail, meta.hint)
    all.push({ fault, refuses })
    places.add(atOf(fault))
  }
  return {
    add,
    during<T>(read: () => T, place?: Place) {
      try {
        return read()
      } catch (error) {
        if (!(error instanceof UsageError)) throw error
        add(error, place)
        return undefined
      }
    },
    get refuses() {
      return all.some(({ refuses }) => refuses)
    },
    isAt: (place: Place) => places.has(positionOf(place)),
    throwAny() {
      all.sort((one, other) => atOf(one.fault) - atOf(other.fault))
      const refusal = all.find(({ refuses }) => refuses)?.fault
      if (!refusal) return
      const { code, detail } = refusal
      const where = /^(line|row) /.test(detail) ? `${name}, ` : `${name}: `
      if (all.length === 1) throw reworded(refusal, `${where}${detail}`)
      const told = all.slice(0, 20).map(({ fault }) => fault)
      const lines = told.flatMap(({ detail, meta: { hint } }, at) =>
        // One hint below several lines of one fault.
        hint === undefined || hint === told[at + 1]?.meta.hint
          ? detail
          : [detail, `  hint: ${hint}`],
      )
      if (all.length > told.length) lines.push(`and ${all.length - told.length} more`)
      const sum = `${name}: ${all.length} faults, and nothing was signed or sent`
      const hint = 'correct these lines, then run the same command'
      throw new UsageError(code, sum, { lines, hint })
    },
  }
}

const atOf = ({ meta }: ProposerError) => meta.at ?? 0

/** What is no id is the caller's to refuse. */
export function readIds(source: BatchSource, field: string, format = formatOf(source)) {
  const faults = newFaults(source)
  const ids: (Place & { readonly id: string })[] = []
  faults.during(() => {
    const rows = format === 'csv' ? columnOf(source, field) : textRows(source, format)
    for (const { text, whole, ...place } of rows) {
      const id = faults.during(() => idIn(text, whole, field), place)
      if (id !== undefined) ids.push({ ...place, id })
    }
  })
  return { ids, faults }
}

/** A sheet of one column needs no header. */
function* columnOf(source: BatchSource, field: string): Generator<TextRow> {
  let at: number | undefined
  for (const row of csvRows(source)) {
    if (row.fault) throw row.fault
    const cells = row.cells.map((cell) => cell.trim())
    if (at === undefined) {
      at = Math.max(0, cells.indexOf(field))
      if (cells.includes(field)) continue
      const detail = `the header has no column ${field}`
      if (cells.length > 1) throw faultAt(row, 'invalid_csv', detail, `name the column ${field}`)
    }
    const text = cells[at] ?? ''
    if (text !== '') yield { line: row.line, text, whole: true }
  }
}

function idIn(text: string, whole: boolean, field: string) {
  const fault = (detail: string) =>
    new UsageError(whole ? 'invalid_row' : 'input_torn', detail, `give one ${field} per line`)
  const value = jsonOf(text)
  if (value === undefined && /^[{["]/.test(text))
    throw fault(whole ? 'the row is not JSON' : 'the last line is cut off')
  const object = objectOf(value)
  if (!object) return typeof value === 'string' ? value : text
  const isId = (one: unknown) => typeof one === 'string' && one !== ''
  const id = [object[field], objectOf(object.candidate)?.[field]].find(isId)
  // A result without a candidate, or the summary after the results.
  if (id === undefined && !['outcome', 'summary', 'error'].some((name) => name in object))
    throw fault(`the row has no ${field}`)
  return id as string | undefined
}
