/** Text for people: escaping of outside text (R20), tables that fit the terminal, amounts. */
import { codePoint, unsafeCharacters, visible } from '../../core/protocol/text.js'

export { amountText, amountWithRaw, type TokenUnits } from '../../core/protocol/amount.js'
export { counted, shellWord, visible } from '../../core/protocol/text.js'

/**
 * JSON of plain data whose text cannot act on a terminal (R20); the escapes stand inside strings
 * only, so it parses to the same data.
 */
export function jsonText(data: object, indent: 0 | 2): string {
  // Indentation is the only control character JSON.stringify writes.
  return JSON.stringify(data, undefined, indent).replace(unsafeCharacters, (character) =>
    character === '\n' ? '\n' : codePoint(character),
  )
}

/**
 * Lines of `label value`, labels in one column. On a narrow terminal, or where nothing fits beside
 * the label, the value gets a line of its own. So long hashes stay whole and can be copied. Values
 * are escaped here.
 */
export function fields(
  rows: readonly (readonly [label: string, value: string | null | undefined])[],
  columns: number,
): string {
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

/**
 * Paragraphs folded at blanks; a word longer than the line stays whole. `indent` is put before
 * every line but the first.
 */
export function fold(text: string, columns: number, indent = ''): string {
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
export function foldAround(text: string, columns: number, indent = ''): string {
  const glued = text.replace(/`[^`]*`/g, (command) => command.replaceAll(' ', glue))
  return fold(glued, columns, indent).replaceAll(glue, ' ')
}
/** A no-break space: no text of ours has one. */
const glue = '\u00a0'

/** Seconds as people say them: `4 s`, `3 min`, `2 h`. */
export function ageText(seconds: number): string {
  if (seconds < 100) return `${Math.floor(seconds)} s`
  return seconds < 6_000 ? `${Math.floor(seconds / 60)} min` : `${Math.floor(seconds / 3_600)} h`
}

/**
 * An instant as people read it, in UTC and whole seconds: `2026-11-20 17:01:30Z`. What is no
 * instant is reported as it is.
 */
export const timeText = (iso: string): string =>
  iso.replace(/^(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d)(\.\d+)?Z$/, '$1 $2Z')

/** Unix seconds as `2026-11-20 17:01:30Z (unix 1795194090)`, where a calendar holds such a date. */
export function dateText(seconds: string): string {
  const ms = Number(seconds) * 1000
  return Number.isFinite(ms) && Math.abs(ms) <= 8.64e15
    ? `${timeText(new Date(ms).toISOString())} (unix ${seconds})`
    : seconds
}

/**
 * A URL without what may be a credential: scheme and host alone, `…` for the rest (R5). What is no
 * URL shows nothing of itself.
 */
export function publicUrl(text: string): string {
  if (!URL.canParse(text)) return '(not a URL)'
  const url = new URL(text)
  const rest =
    url.username !== '' ||
    url.password !== '' ||
    url.pathname !== '/' ||
    url.search !== '' ||
    url.hash !== ''
  return rest ? `${url.protocol}//${url.host}/…` : `${url.protocol}//${url.host}`
}
