/** CSV as RFC 4180 has it, lines ended by CRLF. Whatever goes out, goes through here. */
import { visible } from './render.js'

export type CsvValue = string | number | boolean | object | null | undefined

/** A header, then a line a row; lists are joined by blanks, `null` is an empty cell. */
export const csvText = (
  names: readonly string[],
  rows: readonly Readonly<Record<string, CsvValue>>[],
): string => csvLine(names) + rows.map((row) => csvLine(names.map((name) => row[name]))).join('')

export const csvLine = (values: readonly CsvValue[]): string => `${values.map(cell).join(',')}\r\n`

function cell(value: CsvValue): string {
  if (value === null || value === undefined) return ''
  const isObject = typeof value === 'object' && !Array.isArray(value)
  const text = visible(
    Array.isArray(value) ? value.join(' ') : isObject ? JSON.stringify(value) : String(value),
  )
  // A spreadsheet would run what begins like a formula (robustness §6, CSV out).
  const isFormula = /^\s*[=+\-@＝＋－＠]/.test(text) && !/^-\d+$/.test(text)
  const guarded = isFormula ? `'${text}` : text
  return /[",;\r\n]/.test(guarded) ? `"${guarded.replaceAll('"', '""')}"` : guarded
}
