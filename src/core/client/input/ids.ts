/** Inputs of `batch context` and `batch status`: lists of ids, or anything of ours that holds them. */
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
 * Ids of one kind, in order. Bare ones a line, strings of a JSON array, a column of a CSV, or the
 * `field` (at the top, or in `candidate`) of objects. Results of `batch submit` too, whose items
 * without an id are left out. UsageError as `readBatch`; what is not an id is the caller's to
 * refuse.
 */
export async function* readIds(
  source: BatchSource,
  field: 'identifier' | 'candidate_id',
  format?: BatchFormat,
): AsyncGenerator<PlacedId[]> {
  const chosen = format ?? (await formatOf(source))
  if (chosen === 'csv') return yield* fromColumn(source, field)
  const isDocument =
    chosen === 'ndjson' && field === 'candidate_id' && (await documentSchema(source)) !== undefined
  const rows = isDocument
    ? arrayRows(source, 'results')
    : chosen === 'json'
      ? arrayRows(source)
      : lineRows(source)
  for await (const some of rows) yield some.flatMap((row) => idOf(source, row, field))
}

async function* fromColumn(source: BatchSource, field: string): AsyncGenerator<PlacedId[]> {
  let column: number | undefined
  for await (const records of csvRows(source)) {
    yield records.flatMap(({ line, cells, fault }) => {
      if (fault !== undefined) throw fault
      if (column === undefined) {
        const named = cells.map((cell) => cell.trim()).indexOf(field)
        if (named < 0 && cells.length > 1) {
          const detail = `the header has no column ${field}`
          throw inputFault(source, { line }, 'invalid_csv', detail, `name the column ${field}`)
        }
        column = Math.max(0, named)
        if (named >= 0) return []
      }
      const id = cells[column]?.trim() ?? ''
      return id === '' ? [] : [{ line, id }]
    })
  }
}

function idOf(source: BatchSource, { text, whole, ...place }: TextRow, field: string): PlacedId[] {
  const fault = (detail: string) => {
    const code = whole ? 'invalid_row' : 'input_torn'
    return inputFault(source, place, code, detail, `give one ${field} per line`)
  }
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch {
    if (/^[{["]/.test(text)) throw fault(whole ? 'the row is not JSON' : 'the last line is cut off')
    // Not quoted: it stands for itself.
    value = text
  }
  if (typeof value !== 'object' || value === null)
    return [{ ...place, id: typeof value === 'string' ? value : text }]
  const row = value as Readonly<Record<string, unknown>>
  const found = [row, row.candidate].map((one) => stringAt(one, field)).find((one) => one)
  if (found !== undefined) return [{ ...place, id: found }]
  // A result without a candidate, or the summary after the results.
  if (['outcome', 'summary', 'error'].some((name) => Object.hasOwn(row, name))) return []
  throw fault(`the row has no ${field}`)
}

function stringAt(value: unknown, field: string): string | undefined {
  if (typeof value !== 'object' || value === null || !Object.hasOwn(value, field)) return undefined
  const found = (value as Readonly<Record<string, unknown>>)[field]
  return typeof found === 'string' ? found : undefined
}
