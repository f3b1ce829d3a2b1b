/** Many results, one at a time, so that none has to be held (R17). */
import { type Block, type Output, together } from './output.js'
import { jsonText, visible } from './render.js'

export interface ResultStream {
  item(data: object, cells?: () => readonly string[]): void
  block(block: Block): void
  gap(): void
  end(rest: object, blocks: readonly Block[]): void
}

/**
 * With --json written piece by piece; with --ndjson a line an item and the rest last; for people
 * a line an item.
 */
export function newResults(
  output: Output,
  kind: string,
  list: string,
  head: object = {},
): ResultStream {
  const schema = `proposer.${kind}/1`
  const { isForPeople, isByLine } = output
  let begun = false
  const open = () => {
    const before = membersOf(head).map((member) => `  ${member},\n`)
    if (!begun) output.text(`{\n  "schema": "${schema}",\n${before.join('')}  "${list}": [`)
    begun = true
  }
  let items = 0
  const block = (one: Block) => {
    const text = isForPeople ? together([one])(output) : ''
    if (text !== '') output.text(`${text}\n`)
  }
  return {
    item(data, cells) {
      items++
      if (isByLine) return output.line(data)
      if (isForPeople) return block(cells && (() => rowText(cells(), output.columns)))
      open()
      output.text(`${items === 1 ? '' : ','}\n    ${jsonText(data, 0)}`)
    },
    block,
    gap() {
      if (isForPeople) output.text('\n')
    },
    end(rest, blocks) {
      if (isByLine) return output.line({ schema, ...head, ...rest })
      if (isForPeople) return block(together(blocks))
      open()
      const members = membersOf(rest).map((member) => `,\n  ${member}`)
      output.text(`${items === 0 ? ']' : '\n  ]'}${members.join('')}\n}\n`)
    },
  }
}

const membersOf = (data: object) =>
  Object.entries(data).map(
    ([name, value]) =>
      `${JSON.stringify(name)}: ${jsonText({ value }, 0).slice('{"value":'.length, -1)}`,
  )

/** Cells on as few lines as they fit; an id is never broken, so that it can be copied. */
function rowText(cells: readonly string[], columns: number) {
  const lines: string[] = []
  for (const cell of cells.map(visible)) {
    if (cell === '') continue
    const last = lines.pop()
    if (last === undefined) lines.push(cell)
    else if (last.length + 2 + cell.length <= columns) lines.push(`${last}  ${cell}`)
    else lines.push(last, `  ${cell}`)
  }
  return lines.join('\n')
}

export function progressText(
  done: number,
  total: number,
  counts: readonly (readonly [string, number])[],
) {
  const width = 20
  const full = total === 0 ? width : Math.floor((done * width) / total)
  const parts = counts.filter(([, count]) => count > 0).map(([name, count]) => `${count} ${name}`)
  return `[${'='.repeat(full)}${' '.repeat(width - full)}] ${done} of ${total}${parts.length === 0 ? '' : `: ${parts.join(', ')}`}`
}

export type CsvValue = string | number | boolean | object | null | undefined

/** A header, then a line a row; lists are joined by blanks, `null` is an empty cell. */
export const csvText = (
  names: readonly string[],
  rows: readonly Readonly<Record<string, CsvValue>>[],
) => csvLine(names) + rows.map((row) => csvLine(names.map((name) => row[name]))).join('')

export const csvLine = (values: readonly CsvValue[]) => `${values.map(cell).join(',')}\r\n`

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
