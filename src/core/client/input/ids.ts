/**
 * Inputs of `batch context` and `batch status`: lists of ids, or anything of ours that holds them.
 */
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

/** An id and where it stands in the input. */
export interface PlacedId extends Place {
  readonly id: string
}

/**
 * Ids of one kind, in order: bare ones a line, strings of a JSON array, a column of a CSV, or the
 * `field` (at the top, or in `candidate`) of objects; results of `batch submit` too, whose items
 * without an id are left out. UsageError as `readBatch`; what is not an id is the caller's to
 * refuse.
 */
export async function* readIds(
  source: BatchSource,
  field: 'identifier' | 'candidate_id',
  format?: BatchFormat,
): AsyncGenerator<PlacedId[]> {
  const chosen = format ?? (await formatOf(source))
  if (chosen === 'csv') {
    let column = -1
    let first = true
    for await (const records of csvRows(source)) {
      yield records.flatMap(({ line, cells }) => {
        if (first) {
          first = false
          column = cells.map((cell) => cell.trim()).indexOf(field)
          if (column >= 0) return []
          if (cells.length > 1)
            throw inputFault(
              source,
              line,
              'invalid_csv',
              `the header has no column ${field}`,
              `name the column ${field}`,
            )
          column = 0
        }
        const id = cells[column]?.trim() ?? ''
        return id === '' ? [] : [{ line, id }]
      })
    }
    return
  }
  const document =
    chosen === 'ndjson' && field === 'candidate_id' && (await documentSchema(source)) !== undefined
  for await (const rows of document
    ? arrayRows(source, 'results')
    : chosen === 'json'
      ? arrayRows(source)
      : lineRows(source)) {
    yield rows.flatMap((row) => idOf(source, row, field))
  }
}

function idOf(source: BatchSource, { text, whole, ...place }: TextRow, field: string): PlacedId[] {
  const fault = (detail: string) =>
    inputFault(
      source,
      place,
      whole ? 'invalid_row' : 'input_torn',
      detail,
      `give one ${field} per line`,
    )
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch {
    // Not quoted: it stands for itself.
    if (/^[{["]/.test(text)) throw fault(whole ? 'the row is not JSON' : 'the last line is cut off')
    return [{ ...place, id: text }]
  }
  if (typeof value === 'string') return [{ ...place, id: value }]
  if (typeof value !== 'object' || value === null) return [{ ...place, id: text }]
  const found =
    stringAt(value, field) ?? ('candidate' in value ? stringAt(value.candidate, field) : undefined)
  if (found !== undefined) return [{ ...place, id: found }]
  // A result without a candidate, or the summary after the results.
  if ('outcome' in value || 'summary' in value || 'error' in value) return []
  throw fault(`the row has no ${field}`)
}

function stringAt(value: unknown, field: string): string | undefined {
  if (typeof value !== 'object' || value === null) return undefined
  const found: unknown = Object.entries(value).find(([name]) => name === field)?.[1]
  return typeof found === 'string' ? found : undefined
}
