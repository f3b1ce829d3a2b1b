/** Text for people: escaping of outside text (R20), tables that fit the terminal, amounts. */

import type { ChalkInstance } from 'chalk'
import type { Finding } from '#checks/finding'
import { codePoint, unsafeCharacters, visible } from '#protocol/text'

export { amountText, amountWithRaw, type TokenUnits } from '#protocol/amount'
export { durationText } from '#protocol/duration'
export { counted, shellWord, visible } from '#protocol/text'

/** JSON whose text cannot act on a terminal (R20); it parses to the same data. */
export function jsonText(data: object, indent: 0 | 2) {
  // Indentation is the only control character JSON.stringify writes.
  return JSON.stringify(data, undefined, indent).replace(unsafeCharacters, (character) =>
    character === '\n' ? '\n' : codePoint(character),
  )
}

export const errorData = (
  error: { readonly code: string; readonly detail: string } | null | undefined,
) => (error ? { code: error.code, detail: error.detail } : null)

/** Lines of `label value`, escaped here. */
export function fields(
  rows: readonly (readonly [label: string, value: string | null | undefined])[],
  columns: number,
) {
  const shown = rows.flatMap(([label, value]) =>
    value === null || value === undefined ? [] : [[label, visible(value)] as const],
  )
  const width = Math.max(0, ...shown.map(([label]) => label.length))
  return shown
    .map(([label, value]) =>
      width + 2 + value.length <= columns
        ? `${label.padEnd(width)}  ${value}`
        : `${label}\n  ${fold(value, columns - 2, '  ')}`,
    )
    .join('\n')
}

/** A word longer than the line stays whole. `indent` is before every line but the first. */
export function fold(text: string, columns: number, indent = '') {
  const lines: string[] = []
  let line = ''
  for (const word of visible(text).split(' ')) {
    const room = columns - (lines.length === 0 ? 0 : indent.length)
    if (line !== '' && line.length + 1 + word.length > room) {
      lines.push(line)
      line = word
    } else line = line === '' ? word : `${line} ${word}`
  }
  return [...lines, line].join(`\n${indent}`)
}

/** Folded, but for commands in backticks, which stay whole to be pasted. */
export function foldAround(text: string, columns: number, indent = '') {
  const glued = text.replace(/`[^`]*`/g, (command) => command.replaceAll(' ', glue))
  return fold(glued, columns, indent).replaceAll(glue, ' ')
}
/** A no-break space: no text of ours has one. */
export const glue = '\u00a0'

/** Paragraphs are folded; commands continue with a backslash, before a flag if they can. */
export const foldHelp = (text: string, columns: number) =>
  text
    .split('\n')
    .map((line) =>
      line.length <= columns
        ? line
        : line.startsWith('  proposer ')
          ? foldCommand(line, columns)
          : foldProse(line, columns),
    )
    .join('\n')

function foldProse(line: string, columns: number) {
  const indent = ' '.repeat(line.length - line.trimStart().length)
  return `${indent}${fold(line.trimStart(), columns - indent.length).replaceAll('\n', `\n${indent}`)}`
}

function foldCommand(command: string, columns: number) {
  const pieces = command.match(/--?[\w-]+ (?!-)(?:"[^"]*"|\S)+|(?:"[^"]*"|\S)+/g) ?? []
  const lines: string[] = []
  let line = ' '
  for (const piece of pieces) {
    if (line.trim() !== '' && line.length + piece.length + 1 > columns - 2) {
      lines.push(line)
      line = '     '
    }
    line += ` ${piece}`
  }
  return [...lines, line].join(' \\\n')
}

export const timeText = (iso: string) =>
  iso.replace(/^(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d)(\.\d+)?Z$/, '$1 $2Z')

/** `2026-11-20 17:01:30Z (unix 1795194090)`, where a calendar holds such a date. */
export function dateText(seconds: string) {
  const ms = Number(seconds) * 1000
  return Number.isFinite(ms) && Math.abs(ms) <= 8.64e15
    ? `${timeText(new Date(ms).toISOString())} (unix ${seconds})`
    : seconds
}

/** Scheme and host alone, `…` for the rest, which may be a credential (R5). */
export function publicUrl(text: string) {
  if (!URL.canParse(text)) return '(not a URL)'
  const { protocol, host, username, password, pathname, search, hash } = new URL(text)
  const rest = [username, password, pathname, search, hash].join('')
  return `${protocol}//${host}${rest === '/' ? '' : '/…'}`
}

export interface Column<Row> {
  readonly head: string
  readonly cell: (row: Row) => string | null | undefined
  /** May be cut to this many characters. Without it the column stays whole, to be copied. */
  readonly least?: number
  /** Left out where the line is too short, the highest first; without it never. */
  readonly rank?: number
  readonly right?: boolean
  readonly colour?: (row: Row) => 'green' | 'red' | 'yellow' | 'cyan' | 'white'
}

export interface Screen {
  readonly columns: number
  readonly paint: ChalkInstance
  readonly isTerminal: boolean
}

const gap = '  '

/**
 * No line is longer than the terminal: columns are cut and left out by their rank, and the last
 * line says which. In a pipe nothing is cut.
 */
export function tableText<Row>(
  columns: readonly Column<Row>[],
  rows: readonly Row[],
  screen: Screen,
) {
  const shown = columns.map((column) => measured(column, rows)).filter(({ isEmpty }) => !isEmpty)
  const { paint } = screen
  if (!screen.isTerminal) return lined(shown, paint).join('\n')
  const whole = fitting(shown, screen.columns)
  const isWhole = lineWidth(whole) <= screen.columns
  const [first, ...others] = shown
  if (first === undefined) return ''
  const [head = first] = fitting([first], screen.columns)
  const fitted = isWhole ? whole : [head, ...fitting(others, screen.columns - gap.length)]
  const below = isWhole ? [] : lined(fitted.slice(1), paint)
  const lines = lined(isWhole ? fitted : [head], paint).flatMap((line, at) =>
    [line, `${gap}${below[at] ?? ''}`.trimEnd()].filter(Boolean),
  )
  const leftOut = shown.filter(({ column }) => fitted.every((one) => one.column !== column))
  const lacks = `no room for ${leftOut.map(({ column }) => column.head).join(', ')}; --json has all`
  if (leftOut.length > 0) lines.push(paint.dim(fold(lacks, screen.columns, gap)))
  return lines.join('\n')
}

type Measured<Row> = ReturnType<typeof measured<Row>>

function measured<Row>(column: Column<Row>, rows: readonly Row[]) {
  const cells = rows.map((row) => visible(column.cell(row) ?? ''))
  const width = cells.reduce((most, cell) => Math.max(most, widthOf(cell)), column.head.length)
  return { column, rows, cells, width, isEmpty: cells.every((cell) => cell === '') }
}

const lineWidth = (columns: readonly { readonly width: number }[]) =>
  columns.reduce((sum, { width }) => sum + width + gap.length, -gap.length)

function fitting<Row>(all: readonly Measured<Row>[], room: number) {
  const leastOf = ({ column, width }: Measured<Row>) => Math.min(width, column.least ?? width)
  const isTooWide = (columns: readonly Measured<Row>[]) =>
    lineWidth(columns.map((one) => ({ width: leastOf(one) }))) > room
  let kept = all
  while (isTooWide(kept)) {
    const rank = Math.max(...kept.map(({ column }) => column.rank ?? 0))
    if (rank <= 0) break
    kept = kept.filter(({ column }) => column.rank !== rank)
  }
  const widths = kept.map(({ width }) => width)
  for (let over = lineWidth(kept) - room; over > 0; over--) {
    const spare = kept.map((one, at) => ((widths[at] ?? 0) > leastOf(one) ? (widths[at] ?? 0) : 0))
    const widest = spare.indexOf(Math.max(...spare))
    if ((spare[widest] ?? 0) === 0) break
    widths[widest] = (widths[widest] ?? 0) - 1
  }
  return kept.map((one, at) => ({ ...one, width: widths[at] ?? one.width }))
}

function lined<Row>(columns: readonly Measured<Row>[], paint: ChalkInstance) {
  const line = (textOf: (one: Measured<Row>) => string) => columns.map(textOf).join(gap).trimEnd()
  const count = columns[0]?.rows.length ?? 0
  return [
    paint.dim(
      line(({ column, width }) =>
        placed(cut(column.head.toUpperCase(), width), width, column.right),
      ),
    ),
    ...Array.from({ length: count }, (_, at) =>
      line(({ column, rows, cells, width }) => {
        const text = placed(cut(cells[at] ?? '', width), width, column.right)
        const row = rows[at]
        // Blanks have no colour: where they end the line they go.
        return column.colour === undefined || row === undefined || text.trim() === ''
          ? text
          : text.replace(text.trim(), (word) => paint[column.colour?.(row) ?? 'white'](word))
      }),
    ),
  ]
}

const placed = (text: string, width: number, right = false) => {
  const blanks = ' '.repeat(Math.max(0, width - widthOf(text)))
  return right ? `${blanks}${text}` : `${text}${blanks}`
}

/** Text cut to a width with `…` at its end; no character is cut in two. */
export function cut(text: string, width: number) {
  if (widthOf(text) <= width) return text
  if (width < 1) return ''
  let [kept, used] = ['', 0]
  for (const character of text) {
    used += widthOf(character)
    if (used > width - 1) break
    kept += character
  }
  return `${kept}…`
}

/** What a terminal draws two cells wide: East Asian characters and emoji. */
const twoCells =
  /[\u1100-\u115f\u2e80-\u303e\u3041-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6]|[\u{20000}-\u{3fffd}]|\p{Emoji_Presentation}/u

export function widthOf(text: string) {
  if (/^[\u0020-\u00ff]*$/.test(text)) return text.length
  let width = 0
  for (const character of text)
    width += /\p{Mark}/u.test(character) ? 0 : twoCells.test(character) ? 2 : 1
  return width
}

/** The findings with fixes that act on what was examined, wherever they are pasted. */
export const withPastedFixes = (
  { pasted = (text) => text }: { readonly pasted?: (text: string) => string },
  findings: readonly Finding[],
) => findings.map((one) => ({ ...one, fix: pasted(one.fix) }))

export const passesCounted = (findings: readonly Finding[]) =>
  findings.flatMap((finding) => {
    if (finding.result !== 'pass') return [finding]
    const group = findings.filter(({ id, result }) => result === 'pass' && id === finding.id)
    if (group[0] !== finding) return []
    const detail = `all ${group.length} checks passed (--json lists them)`
    return [group.length === 1 ? finding : { ...finding, detail }]
  })

type Named = Finding & { readonly name?: string }

const shown = {
  pass: ['ok  ', 'green'],
  note: ['note', 'gray'],
  warn: ['WARN', 'yellow'],
  fail: ['FAIL', 'red'],
  skip: ['skip', 'gray'],
} as const

/** What one reason skipped is told once; a fix that stands above is not repeated. */
export const findingsText = (findings: readonly Named[]) => (screen: Screen) => {
  const { columns, paint } = screen
  const merged: Finding[] = []
  for (const { name, ...found } of findings) {
    const one = name === undefined ? found : { ...found, id: name }
    const last = merged.at(-1)
    const isLike = last?.result === 'skip' && one.result === 'skip' && last.detail === one.detail
    if (isLike) merged[merged.length - 1] = { ...last, id: `${last.id}, ${one.id}` }
    else merged.push(one)
  }
  const folded = (text: string) => fold(text, columns - 6, '      ')
  return merged
    .flatMap(({ result, id, detail, fix }, at) => {
      const [word, colour] = shown[result]
      const isNew = fix !== '' && fix !== merged[at - 1]?.fix
      return [
        `${paint[colour](word)}  ${folded(`${id}: ${detail}`)}`,
        ...(isNew ? [`      ${folded(`fix: ${fix}`)}`] : []),
      ]
    })
    .join('\n')
}
