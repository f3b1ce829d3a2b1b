/** Batch input as a sheet: CSV whose header names our fields, and columns of whoever filled it in. */

import { didYouMean, nearest } from '#protocol/guess'
import { answersText, folded, type Labels } from '#protocol/outcome-words'
import { outcomeKeys } from '#protocol/proposal'
import type { OutcomeKey } from '#protocol/schema'
import { visible } from '#protocol/text'
import { type BatchSource, csvRows, inputFault } from './rows.js'

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
      `the row has ${cells.length} cells, the header has ${names.length}`,
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
