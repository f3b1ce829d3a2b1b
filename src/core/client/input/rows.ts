/**
 * A batch input, read once, cut into rows: NDJSON lines, elements of a JSON array, CSV records
 * (contract §6). Every limit of robustness §6 holds before a row is judged (R17). A sheet's header
 * names our fields, and columns of whoever filled it in.
 */
import { parse } from 'csv-parse/sync'
import { findNodeAtLocation, parseTree } from 'jsonc-parser'
import { UsageError } from '#protocol/errors'
import { didYouMean, nearest } from '#protocol/guess'
import { type Json, objectOf, readJson } from '#protocol/json'
import { answersText, folded, type Labels } from '#protocol/outcome-words'
import { outcomeKeys } from '#protocol/proposal'
import type { OutcomeKey } from '#protocol/schema'
import { counted, visible } from '#protocol/text'

export interface BatchSource {
  readonly name: string
  readonly bytes: Uint8Array
}
/** What a program gives, in the fields of a file. */
export interface GivenRows {
  readonly name: string
  readonly rows: readonly Json[]
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
  readonly value?: unknown
  /** Whether a line end followed. A row without one may be torn. */
  readonly whole: boolean
}

/** `line` is where it begins. */
interface CsvRow {
  readonly line: number
  readonly cells: readonly string[]
  readonly fault?: UsageError
}

export const inputLimits = {
  bytes: 16 * 1024 * 1024,
  rows: 20_000,
  rowBytes: 64 * 1024,
} as const

/** What names file and place, and never repeats text of the input (R5). */
export function inputFault(
  source: Pick<BatchSource, 'name'>,
  place: Place | undefined,
  code: string,
  detail: string,
  hint: string,
): UsageError {
  const where = place === undefined ? source.name : `${source.name}, ${placeText(place)}`
  const at = place?.element ?? place?.line ?? 0
  return new UsageError(code, `${where}: ${detail}`, { hint, at })
}

/** Anything but a fault of the input is thrown, as is all where nobody is told. */
export function orTold<T>(read: () => T, tell: ((fault: UsageError) => void) | undefined) {
  try {
    return read()
  } catch (error) {
    if (tell === undefined || !(error instanceof UsageError)) throw error
    tell(error)
    return undefined
  }
}

const decode = (bytes: Uint8Array) => new TextDecoder('utf-8', { fatal: true }).decode(bytes)

/** As far as it is UTF-8, and what refuses the line after it. */
function decoded(source: BatchSource) {
  const { bytes } = source
  try {
    return { text: decode(bytes) }
  } catch {
    for (let [from, line] = [0, 1]; ; line++) {
      const end = bytes.indexOf(0x0a, from)
      try {
        decode(bytes.subarray(from, end < 0 ? bytes.length : end))
      } catch {
        const [what, hint] = ['the row is not UTF-8', 'save the file as UTF-8']
        const fault = inputFault(source, { line }, 'invalid_row', what, hint)
        return { text: decode(bytes.subarray(0, from)), fault }
      }
      from = end + 1
    }
  }
}

export function formatOf({ name, bytes }: BatchSource): BatchFormat {
  const extension = /\.([a-z]+)$/i.exec(name)?.[1]?.toLowerCase()
  if (extension === 'csv') return 'csv'
  if (extension === 'ndjson' || extension === 'jsonl') return 'ndjson'
  const [first = ''] = new TextDecoder().decode(bytes).trimStart()
  return first === '[' ? 'json' : first === '{' || first === '"' ? 'ndjson' : 'csv'
}

function tooLong(source: BatchSource, place: Place, text: string) {
  if (new TextEncoder().encode(text).length <= inputLimits.rowBytes) return undefined
  const what = `the row is longer than ${inputLimits.rowBytes} bytes`
  const hint = 'one row is one proposal; check for a missing line end or quote'
  return inputFault(source, place, 'row_too_long', what, hint)
}

export function requireFew(source: Pick<BatchSource, 'name'>, count: number, place: Place) {
  if (count <= inputLimits.rows) return
  const what = `there are more than ${inputLimits.rows} rows`
  throw inputFault(source, place, 'too_many_rows', what, 'split it into several files')
}

export function* lineRows(source: BatchSource): Generator<TextRow> {
  const { text: all, fault } = decoded(source)
  const lines = all.split('\n')
  for (const [at, line] of lines.entries()) {
    const row = { line: at + 1, text: line.trim(), whole: at + 1 < lines.length }
    const long = tooLong(source, row, line)
    if (long) throw long
    if (row.text !== '') yield row
  }
  if (fault) throw fault
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

/** So many malformed records of one file are told: each costs a reading of what follows it. */
const mostMalformed = 100

/** RFC 4180; the header tells the delimiter. Spreadsheets end a sheet with blank records. */
function* csvRows(source: BatchSource): Generator<CsvRow> {
  const { text, fault } = decoded(source)
  let rest = text.replaceAll('\r\n', '\n')
  const delimiter = delimiterOf(rest.trimStart().split('\n', 1)[0] ?? '')
  let before = 0
  const rowOf = (last: number, raw: string, cells: readonly string[], code?: string) => {
    const line = before + last + 1 - raw.trimStart().replace(/\n$/, '').split('\n').length
    const wrong = csvFault(source, line, raw, code)
    return wrong ? { line, cells: [], fault: wrong } : { line, cells }
  }
  for (let malformed = 0; malformed < mostMalformed; malformed++) {
    let broken: { readonly code: string; readonly last: number; readonly raw: string } | undefined
    const records = parse(rest, {
      delimiter,
      info: true,
      raw: true,
      record_delimiter: '\n',
      relax_column_count: true,
      skip_records_with_empty_values: true,
      skip_records_with_error: true,
      on_skip: (error, raw = '') => {
        if (error) broken ??= { code: error.code, last: Number(error.lines), raw }
        return undefined
      },
    }) as unknown as readonly CsvRecord[]
    const end = broken?.last ?? Number.POSITIVE_INFINITY
    for (const { info, raw, record } of records)
      if (info.lines < end) yield rowOf(info.lines, raw, record)
    if (broken === undefined) break
    yield rowOf(broken.last, broken.raw, [], broken.code)
    if (broken.code === 'CSV_QUOTE_NOT_CLOSED') break
    // What is read beyond it may be cut wrong.
    rest = rest.split('\n').slice(end).join('\n')
    before += end
  }
  if (fault) throw fault
}

function csvFault(source: BatchSource, line: number, raw: string, code: string | undefined) {
  const long = tooLong(source, { line }, raw)
  if (long !== undefined || code === undefined) return long
  const what = csvFaults[code] ?? 'the record is malformed'
  const hint = 'quote the whole cell and double the quotes inside it'
  return inputFault(source, { line }, 'invalid_csv', what, hint)
}

interface CsvRecord {
  readonly info: { readonly lines: number }
  readonly raw: string
  readonly record: readonly string[]
}

/** `strict`: as `readJson` reads a body, no key twice. */
export function* arrayRows(source: BatchSource, under?: string, strict = true): Generator<TextRow> {
  const { text, fault } = decoded(source)
  if (fault) throw fault
  const wrong = (code: string, detail: string, hint: string) =>
    inputFault(source, undefined, code, detail, hint)
  const torn = (missing: string) => {
    const what = `the JSON is cut off or of another kind: ${missing}`
    return wrong('input_torn', what, 'give the whole file')
  }
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch {
    // V8 quotes the text in its message (R5).
    if (!/[\]}]\s*$/.test(text)) throw torn('its closing ] is missing')
    const hint = 'give one JSON array of objects'
    throw wrong('invalid_json_array', 'it is not one JSON array: it has a syntax error', hint)
  }
  const read = strict ? readJson(new TextEncoder().encode(text)) : undefined
  if (read?.ok === false)
    throw wrong(
      'invalid_json_array',
      `it is not one JSON array: ${read.detail.replace(/^.*?JSON: |;.*$/g, '')}`,
      'give one JSON array of objects, with each key once',
    )
  const list =
    under === undefined ? value : (value as Readonly<Record<string, unknown>> | null)?.[under]
  if (!Array.isArray(list)) throw torn(`it has no list${under ? ` under "${under}"` : ''}`)
  const root = parseTree(text)
  const nodes = (root && findNodeAtLocation(root, under === undefined ? [] : [under]))?.children
  let [line, from] = [1, 0]
  for (const [at, { offset, length }] of (nodes ?? []).entries()) {
    line += text.slice(from, offset).split('\n').length - 1
    from = offset
    // Its own text: a signed item is sent as it stands.
    const row = { line, element: at + 1, text: text.slice(offset, offset + length), whole: true }
    const long = tooLong(source, row, row.text)
    if (long) throw long
    yield { ...row, value: list[at] }
  }
}

export function documentSchema({ bytes }: BatchSource) {
  const head = new TextDecoder().decode(bytes.subarray(0, 1_024))
  return /^\s*\{\s*"schema"\s*:\s*"([^"]*)"\s*,\s*"results"\s*:/.exec(head)?.[1]
}

export type InputFaults = ReturnType<typeof newFaults>

/** So many are told one by one, the first of the input; the rest is counted. */
const mostTold = 20

export function newFaults({ name }: Pick<BatchSource, 'name'>) {
  let told: UsageError[] = []
  let count = 0
  let refusal: UsageError | undefined
  const places = new Set<number>()
  const addBeside = (fault: UsageError) => {
    count++
    if (fault.meta.at !== undefined) places.add(fault.meta.at)
    told = [...told, fault].sort((one, other) => placeOf(one) - placeOf(other)).slice(0, mostTold)
  }
  return {
    add(fault: UsageError) {
      if (refusal === undefined || placeOf(fault) < placeOf(refusal)) refusal = fault
      addBeside(fault)
    },
    addBeside,
    get refuses() {
      return refusal !== undefined
    },
    isAt: (at: number) => places.has(at),
    throwAny() {
      if (refusal === undefined) return
      if (count === 1) throw refusal
      const lines = told.flatMap(({ detail, meta: { hint } }, at) => {
        const own = detail.startsWith(name)
          ? detail.slice(name.length).replace(/^[,:] /, '')
          : detail
        // Several lines of one fault have one hint, below the last of them.
        return hint === undefined || hint === told[at + 1]?.meta.hint
          ? own
          : [own, `  hint: ${hint}`]
      })
      if (count > told.length) lines.push(`and ${count - told.length} more`)
      const detail = `${name}: ${count} faults, and nothing was signed or sent`
      const hint = 'correct these lines, then run the same command'
      throw new UsageError(refusal.code, detail, { lines, hint })
    },
  }
}

/** What is said of the whole input stands first. */
const placeOf = (fault: UsageError) => fault.meta.at ?? 0

export interface PlacedId extends Place {
  readonly id: string
}

/**
 * Bare ones a line, a JSON array, a column, or the `field` (at the top or in `candidate`) of
 * objects. Results without an id are left out; what is no id is the caller's to refuse.
 */
export function readIds(
  source: BatchSource,
  field: 'identifier' | 'candidate_id',
  format: BatchFormat = formatOf(source),
): readonly PlacedId[] {
  if (format === 'csv') return fromColumn(source, field)
  const isDocument =
    format === 'ndjson' && field === 'candidate_id' && documentSchema(source) !== undefined
  const rows = isDocument
    ? arrayRows(source, 'results', false)
    : format === 'json'
      ? arrayRows(source, undefined, false)
      : lineRows(source)
  return [...rows].flatMap((row) => idOf(source, row, field))
}

function fromColumn(source: BatchSource, field: string) {
  const [header, ...others] = [...csvRows(source)].map((row) => {
    if (row.fault !== undefined) throw row.fault
    return { line: row.line, cells: row.cells.map((cell) => cell.trim()) }
  })
  if (header === undefined) return []
  const named = header.cells.indexOf(field)
  if (named < 0 && header.cells.length > 1) {
    const detail = `the header has no column ${field}`
    throw inputFault(source, header, 'invalid_csv', detail, `name the column ${field}`)
  }
  return [...(named < 0 ? [header] : []), ...others].flatMap(({ line, cells }) => {
    const id = cells[Math.max(0, named)] ?? ''
    return id === '' ? [] : [{ line, id }]
  })
}

function idOf(source: BatchSource, row: TextRow, field: string) {
  const { text, whole, value: element, ...place } = row
  const fault = (detail: string) => {
    const code = whole ? 'invalid_row' : 'input_torn'
    return inputFault(source, place, code, detail, `give one ${field} per line`)
  }
  let value = element
  try {
    value ??= JSON.parse(text)
  } catch {
    if (/^[{["]/.test(text)) throw fault(whole ? 'the row is not JSON' : 'the last line is cut off')
    value = text
  }
  if (typeof value !== 'object' || value === null)
    return [{ ...place, id: typeof value === 'string' ? value : text }]
  const found = [value, objectOf(value)?.candidate]
    .map((one) => objectOf(one)?.[field])
    .find((one) => typeof one === 'string' && one !== '')
  if (typeof found === 'string') return [{ ...place, id: found }]
  // A result without a candidate, or the summary after the results.
  if (['outcome', 'summary', 'error'].some((name) => Object.hasOwn(value as object, name)))
    return []
  throw fault(`the row has no ${field}`)
}

export type Columns = Readonly<Record<string, string>>

function cellOf(columns: Columns | undefined, name: string) {
  const own = Object.entries(columns ?? {}).find(([column]) => column.toLowerCase() === name)
  return own?.[1].trim() ?? ''
}

export const saysQuestion = (columns: Columns | undefined) =>
  cellOf(columns, 'title') !== '' || cellOf(columns, 'labels') !== ''

/** Compared as a worksheet has them, without regard to case, Unicode form and blanks. */
export function otherQuestion(
  columns: Columns | undefined,
  question: { readonly title: string | undefined; readonly labels: Labels },
) {
  const [title, labels] = [cellOf(columns, 'title'), cellOf(columns, 'labels')]
  const isSame = (cell: string, own: string) =>
    [own, visible(own), `'${visible(own)}`].some((each) => folded(each) === folded(cell))
  if (title !== '' && question.title !== undefined && !isSame(title, question.title))
    return `its title is not that of the question, which is ${JSON.stringify(question.title)}`
  const named = [...labels.matchAll(/\s*(.*?)\s*\((p[123])\)\s*[;,]?\s*/gs)]
  const isWhole = named.map(([text]) => text).join('') === labels
  const isOwn = ([, label = '', key]: (typeof named)[number]) =>
    isSame(label, question.labels[key as OutcomeKey])
  if (labels === '' || (isWhole && named.every(isOwn))) return undefined
  const answers = outcomeKeys.map((outcome) => ({ outcome, label: question.labels[outcome] }))
  return `its labels are not those of the question, which are ${answersText(answers)}`
}

interface SheetFields {
  readonly intent: readonly string[]
  readonly signed: readonly string[]
}

export type SheetRow = ReturnType<typeof sheetRows> extends Generator<infer Row> ? Row : never

/** A column spelled nearly like ours is refused: carried along, it would say nothing. */
export function* sheetRows(source: BatchSource, ours: SheetFields) {
  let names: readonly string[] | undefined
  for (const row of csvRows(source)) {
    if (names !== undefined) yield { ...row, names }
    else if (row.fault !== undefined) throw row.fault
    else names = headerOf(source, row.line, row.cells, ours)
  }
}

function headerOf(source: BatchSource, line: number, cells: readonly string[], ours: SheetFields) {
  const known = [...ours.intent, ...ours.signed]
  const wrong = (detail: string) => {
    const hint = `a header identifier,outcome is enough; our columns are ${ours.intent.join(', ')}; of signed items ${ours.signed.join(', ')}; any other is carried along`
    return inputFault(source, { line }, 'invalid_csv', detail, hint)
  }
  const names = cells.map((cell, at) => {
    const name = cell.trim()
    const own = known.find((each) => each === name.toLowerCase())
    if (own !== undefined) return own
    const meant = nearest(name.replace(/[ -]/g, '_'), known)
    if (meant.length > 0)
      throw wrong(
        `the header has a column ${JSON.stringify(name.slice(0, 40))}: ${didYouMean(meant)}`,
      )
    return name === '' ? `column_${at + 1}` : name
  })
  const twice = names.find((name, at) => names.indexOf(name) !== at)
  if (twice !== undefined) throw wrong(`the header has the column ${twice} twice`)
  const has = (name: string) => names.includes(name)
  if (!has('identifier') && !has('slug')) throw wrong('the header has no column identifier')
  if (!has('outcome') && !has('proposed_price'))
    throw wrong('the header has no column outcome (or proposed_price)')
  return names
}

/** A permit's deadline is a number in the item (§2.7). */
export function readCells(
  source: BatchSource,
  { line, cells, names, fault }: SheetRow,
  ours: SheetFields,
) {
  const wrong = (detail: string, hint: string) =>
    inputFault(source, { line }, 'invalid_row', detail, hint)
  if (fault !== undefined) throw fault
  if (cells.length !== names.length)
    throw wrong(
      `the row has ${counted(cells.length, 'cell')}, the header has ${names.length}`,
      'give every row as many cells as the header has; quote a cell that holds the delimiter',
    )
  const fields: Record<string, unknown> = {}
  const permit: Record<string, unknown> = {}
  const columns: [string, string][] = []
  for (const [at, name] of names.entries()) {
    const cell = cells[at] ?? ''
    if (cell.includes('\0')) throw wrong(`${name} holds a NUL`, 'save the sheet as CSV in UTF-8')
    if (/^\s*=/.test(cell))
      throw wrong(`${name} holds a formula`, 'save the values of the sheet, not its formulas')
    const isOurs = ours.intent.includes(name) || ours.signed.includes(name)
    const value = name === 'client_ref' ? cell : cell.trim()
    if (!isOurs) columns.push([name, cell])
    else if (value !== '') {
      const isNumber = name === 'permit.deadline' && /^\d{1,15}$/.test(value)
      if (name.startsWith('permit.')) permit[name.slice(7)] = isNumber ? Number(value) : value
      else fields[name] = value
    }
  }
  if (Object.keys(permit).length > 0) fields.permit = permit
  // No name is that of a prototype.
  return { fields, columns: Object.fromEntries(columns) as Columns }
}
