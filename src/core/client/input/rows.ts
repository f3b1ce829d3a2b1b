/** A batch input cut into rows: NDJSON lines, elements of a JSON array, CSV records (contract §6). */
import { CsvError, parse } from 'csv-parse/sync'
import { findNodeAtLocation, type ParseError, parseTree } from 'jsonc-parser'
import { jsonOf } from '#protocol/capped'
import { type ProposerError, reworded, UsageError } from '#protocol/errors'
import { objectOf } from '#protocol/json'
import { answersText, folded, type Labels } from '#protocol/outcome-words'
import { outcomeKeys } from '#protocol/proposal'
import { visible } from '#protocol/text'

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
  /** Whether a line end followed. A row without one may be torn. */
  readonly whole: boolean
}

export interface CsvRow {
  readonly line: number
  readonly cells: readonly string[]
  readonly fault?: UsageError
}

export const inputLimits = {
  bytes: 16 * 1024 * 1024,
  rows: 20_000,
  rowBytes: 64 * 1024,
} as const

/** It never repeats text of the input (R5). */
export const faultAt = (place: Place, code: string, detail: string, hint?: string) =>
  new UsageError(code, `${placeText(place)}: ${detail}`, { hint, at: positionOf(place) })

export const positionOf = ({ line, element = line }: Place) => element

function decoded(bytes: Uint8Array) {
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes)
  } catch {
    const lossy = new TextDecoder('utf-8', { ignoreBOM: true }).decode(bytes)
    const again = new TextEncoder().encode(lossy)
    const at = bytes.findIndex((byte, index) => byte !== again[index])
    const line = 1 + bytes.subarray(0, at).filter((byte) => byte === 0x0a).length
    throw faultAt({ line }, 'invalid_row', 'the row is not UTF-8', 'save the file as UTF-8')
  }
}

export function formatOf({ name, bytes }: BatchSource): BatchFormat {
  const extension = /\.([a-z]+)$/i.exec(name)?.[1]?.toLowerCase()
  if (extension === 'csv') return 'csv'
  if (extension === 'ndjson' || extension === 'jsonl') return 'ndjson'
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

/** `schema`: the only one of a printed document whose results are meant. */
export function* textRows(
  { bytes }: BatchSource,
  format: BatchFormat,
  schema?: string,
): Generator<TextRow> {
  const text = decoded(bytes)
  const [, printed] = /^\s*\{\s*"schema"\s*:\s*"([^"]*)"\s*,\s*"results"\s*:/.exec(text) ?? []
  const what = 'it is the printed result of another command, which holds no rows'
  if (printed !== undefined && printed !== (schema ?? printed))
    throw new UsageError('invalid_row', what, signedHint)
  if (printed !== undefined) yield* arrayRows(text, 'results')
  else yield* format === 'json' ? arrayRows(text) : lineRows(text)
}

function* lineRows(text: string) {
  const lines = text.split('\n')
  for (const [at, line] of lines.entries()) {
    const row = { line: at + 1, text: line.trim(), whole: at + 1 < lines.length }
    requireShort(row, line)
    if (row.text !== '') yield row
  }
}

function* arrayRows(text: string, under?: string): Generator<TextRow> {
  const torn = (missing: string) => {
    const what = `the JSON is cut off or of another kind: ${missing}`
    return new UsageError('input_torn', what, 'give the whole file')
  }
  const root = treeOf(text)
  if (root === undefined && !/[\]}]\s*$/.test(text)) throw torn('its closing ] is missing')
  if (root === undefined)
    throw new UsageError(
      'invalid_json_array',
      'it is not one JSON array: it has a syntax error',
      'give one JSON array of objects',
    )
  const list = findNodeAtLocation(root, under === undefined ? [] : [under])
  if (list?.type !== 'array') throw torn(`it has no list${under ? ` under "${under}"` : ''}`)
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

/** What stands between the cells: a comma, or what a spreadsheet of another country writes. */
function delimiterOf(header: string) {
  const bare = header.replace(/"[^"]*"/g, '')
  const cells = (delimiter: string) => bare.split(delimiter).length
  return [',', ';', '\t'].reduce((best, each) => (cells(each) > cells(best) ? each : best))
}

/** Each costs a reading of what follows it. */
const mostMalformed = 100

/** RFC 4180. Spreadsheets end a sheet with blank records. */
export function* csvRows({ bytes }: BatchSource): Generator<CsvRow> {
  const lines = decoded(bytes).replaceAll('\r\n', '\n').split('\n')
  const delimiter = delimiterOf(lines.find((line) => line.trim() !== '') ?? '')
  let read = 0
  for (let malformed = 0; malformed < mostMalformed; malformed++) {
    const before = read
    let code: string | undefined
    for (const record of recordsOf(lines.slice(before).join('\n'), delimiter)) {
      const { cells } = record
      const line = read + 1
      read = before + record.last
      code = record.code
      requireShort({ line }, lines.slice(line - 1, read).join('\n'))
      const what = code && (csvFaults[code] ?? 'the record is malformed')
      const hint = 'quote the whole cell and double the quotes inside it'
      if (what) yield { line, cells, fault: faultAt({ line }, 'invalid_csv', what, hint) }
      else if (cells.some((cell) => cell.trim() !== '')) yield { line, cells }
    }
    if (code === undefined || code === 'CSV_QUOTE_NOT_CLOSED') return
  }
}

interface CsvRecord {
  readonly cells: readonly string[]
  readonly last: number
  readonly code?: string
}

/** Beyond a malformed one a parser may cut wrong. */
function recordsOf(text: string, delimiter: string) {
  const records: CsvRecord[] = []
  try {
    parse(text, {
      delimiter,
      record_delimiter: '\n',
      relax_column_count: true,
      on_record(cells: readonly string[], { lines: last }) {
        records.push({ cells, last })
        return undefined
      },
    })
    return records
  } catch (error) {
    if (!(error instanceof CsvError)) throw error
    return [...records, { cells: [], last: Number(error.lines), code: error.code }]
  }
}

export type InputFaults = ReturnType<typeof newFaults>

const mostTold = 20

export function newFaults({ name }: Pick<BatchSource, 'name'>) {
  const all: { readonly fault: ProposerError; readonly refuses: boolean }[] = []
  const places = new Set<number>()
  /** One that does not refuse is told beside those that do. `place`: where it has none. */
  const add = (error: ProposerError, place?: Place, refuses = true) => {
    const { code, detail, meta } = error
    const isPlaced = place === undefined || meta.at !== undefined
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
      if (refusal === undefined) return
      const { code, detail } = refusal
      const where = /^(line|row) /.test(detail) ? `${name}, ` : `${name}: `
      if (all.length === 1) throw reworded(refusal, `${where}${detail}`)
      const told = all.slice(0, mostTold).map(({ fault }) => fault)
      const lines = told.flatMap(({ detail, meta: { hint } }, at) =>
        // Several lines of one fault have one hint, below the last of them.
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
export function readIds(
  source: BatchSource,
  field: 'identifier' | 'candidate_id',
  format: BatchFormat = formatOf(source),
) {
  const faults = newFaults(source)
  const idIn = (row: TextRow) => faults.during(() => idOf(row, field), row) ?? []
  const read = () =>
    format === 'csv' ? idsInColumn(source, field) : [...textRows(source, format)].flatMap(idIn)
  return { ids: faults.during(read) ?? [], faults }
}

type PlacedId = Place & { readonly id: string }

function idsInColumn(source: BatchSource, field: string) {
  const rows = [...csvRows(source)]
  for (const { fault } of rows) if (fault !== undefined) throw fault
  const [header] = rows
  const names = header?.cells.map((cell) => cell.trim()) ?? []
  const at = names.indexOf(field)
  if (header !== undefined && at < 0 && names.length > 1) {
    const detail = `the header has no column ${field}`
    throw faultAt(header, 'invalid_csv', detail, `name the column ${field}`)
  }
  return rows.slice(at < 0 ? 0 : 1).flatMap(({ line, cells }) => {
    const id = cells[Math.max(0, at)]?.trim() ?? ''
    return id === '' ? [] : [{ line, id }]
  })
}

function idOf({ text, whole, ...place }: TextRow, field: string): readonly PlacedId[] {
  const fault = (detail: string) =>
    new UsageError(whole ? 'invalid_row' : 'input_torn', detail, `give one ${field} per line`)
  const value = jsonOf(text)
  if (value === undefined && /^[{["]/.test(text))
    throw fault(whole ? 'the row is not JSON' : 'the last line is cut off')
  const object = objectOf(value)
  if (object === undefined) return [{ ...place, id: typeof value === 'string' ? value : text }]
  const id = [object, objectOf(object.candidate)]
    .map((one) => one?.[field])
    .find((one) => typeof one === 'string' && one !== '')
  if (typeof id === 'string') return [{ ...place, id }]
  // A result without a candidate, or the summary after the results.
  if (['outcome', 'summary', 'error'].some((name) => name in object)) return []
  throw fault(`the row has no ${field}`)
}

export type Columns = Readonly<Record<string, string>>

function cellOf(columns: Columns | undefined, name: string) {
  const own = Object.entries(columns ?? {}).find(([column]) => column.toLowerCase() === name)
  return folded(own?.[1] ?? '')
}

export const saysQuestion = (columns: Columns | undefined) =>
  cellOf(columns, 'title') !== '' || cellOf(columns, 'labels') !== ''

/** Compared as a worksheet has them, without regard to case, Unicode form and blanks. */
export function otherQuestion(
  columns: Columns | undefined,
  { title, labels }: { readonly title: string | undefined; readonly labels: Labels },
) {
  const spellings = (own: string) => [folded(own), folded(visible(own))]
  const shown = cellOf(columns, 'title')
  // A worksheet guards what looks like a formula.
  const isTitle = [shown, shown.replace(/^'/, '')].some((one) =>
    spellings(title ?? '').includes(one),
  )
  if (shown !== '' && title !== undefined && !isTitle)
    return `its title is not that of the question, which is ${JSON.stringify(title)}`
  const rest = outcomeKeys
    .flatMap((key) => spellings(labels[key]).map((label) => `${label} (${key})`))
    .reduce((text, answer) => text.replace(answer, ''), cellOf(columns, 'labels'))
  if (/^[\s;,']*$/.test(rest)) return undefined
  const answers = outcomeKeys.map((outcome) => ({ outcome, label: labels[outcome] }))
  return `its labels are not those of the question, which are ${answersText(answers)}`
}
