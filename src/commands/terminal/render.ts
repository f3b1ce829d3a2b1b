/** Text for people: escaping of outside text (R20), tables that fit the terminal, amounts. */
import { codePoint, unsafeCharacters, visible } from '#protocol/text'

export { amountText, amountWithRaw, type TokenUnits } from '#protocol/amount'
export { counted, shellWord, visible } from '#protocol/text'

/** JSON whose text cannot act on a terminal (R20); it parses to the same data. */
export function jsonText(data: object, indent: 0 | 2): string {
  // Indentation is the only control character JSON.stringify writes.
  return JSON.stringify(data, undefined, indent).replace(unsafeCharacters, (character) =>
    character === '\n' ? '\n' : codePoint(character),
  )
}

/** Of a failure in a document. */
export const errorData = (error: { readonly code: string; readonly detail: string } | undefined) =>
  error ? { code: error.code, detail: error.detail } : null

/**
 * Lines of `label value`. What does not fit beside its label gets a line of its own, whole, to be
 * copied. Values are escaped here.
 */
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
const glue = '\u00a0'

/** Seconds as people say them: `4 s`, `3 min`, `2 h`. */
export function ageText(seconds: number): string {
  if (seconds < 100) return `${Math.floor(seconds)} s`
  return seconds < 6_000 ? `${Math.floor(seconds / 60)} min` : `${Math.floor(seconds / 3_600)} h`
}

/** In UTC and whole seconds: `2026-11-20 17:01:30Z`; what is no instant as it is. */
export const timeText = (iso: string): string =>
  iso.replace(/^(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d)(\.\d+)?Z$/, '$1 $2Z')

/** `2026-11-20 17:01:30Z (unix 1795194090)`, where a calendar holds such a date. */
export function dateText(seconds: string): string {
  const ms = Number(seconds) * 1000
  return Number.isFinite(ms) && Math.abs(ms) <= 8.64e15
    ? `${timeText(new Date(ms).toISOString())} (unix ${seconds})`
    : seconds
}

/** Scheme and host alone, `…` for the rest, which may be a credential (R5). */
export function publicUrl(text: string) {
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
