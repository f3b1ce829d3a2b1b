/** Inputs of `batch context` and `batch status`: lists of ids, or anything of ours that holds them. */
import { objectOf } from '../../protocol/json.js'
import {
  arrayRows,
  type BatchFormat,
  type BatchSource,
  csvRows,
  documentSchema,
  formatOf,
  inputFault,
  lineRows,
  type Place,
  type TextRow,
} from './rows.js'

export interface PlacedId extends Place {
  readonly id: string
}

/**
 * Bare ones a line, strings of a JSON array, a column of a CSV, or the `field` (at the top, or in
 * `candidate`) of objects. Results of `batch submit` too, whose items without an id are left out.
 * What is not an id is the caller's to refuse.
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

function fromColumn(source: BatchSource, field: string): readonly PlacedId[] {
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

function idOf(source: BatchSource, row: TextRow, field: string): PlacedId[] {
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
    // Not quoted: it stands for itself.
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
