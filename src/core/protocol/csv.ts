/** CSV that we write: RFC 4180, and nothing that a spreadsheet would run (robustness §6, CSV out). */

import { visible } from './text.js'

type Value = string | number | boolean | null | undefined

/** One cell. Controls, tabs and line ends are spelled out; what begins like a formula gets a `'`. */
export function csvCell(value: Value): string {
  const text = visible(String(value ?? ''))
  const guarded = /^\s*[=+\-@＝＋－＠]/.test(text) ? `'${text}` : text
  return /[",;\r\n]/.test(guarded) ? `"${guarded.replaceAll('"', '""')}"` : guarded
}

/** One record with its line end. */
export const csvLine = (values: readonly Value[]): string => `${values.map(csvCell).join(',')}\r\n`
