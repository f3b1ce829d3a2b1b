/** Text for people: escaping of outside text (R20), tables that fit the terminal, amounts. */

/** C0, DEL, C1, line and paragraph separators, bidirectional controls and lone surrogates (robustness §5). */
const hidden =
  /[\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g

const codePoint = (character: string) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`

/** Outside text as one harmless line: every character that could move the cursor, reorder or hide text is spelled out (R20). */
export const visible = (text: string): string => text.replace(hidden, codePoint)

/** JSON of plain data whose text cannot act on a terminal (R20); the escapes stand inside strings only, so it parses to the same data. */
export function jsonText(data: object, indent: 0 | 2): string {
  // Indentation is the only control character JSON.stringify writes.
  return JSON.stringify(data, undefined, indent).replace(hidden, (character) => (character === '\n' ? '\n' : codePoint(character)))
}

/**
 * Lines of `label  value`, labels in one column. On a narrow terminal, or where nothing fits beside the label, the value gets a line of
 * its own, so that long hashes stay whole and can be copied. Values are escaped here.
 */
export function fields(rows: readonly (readonly [label: string, value: string | null | undefined])[], columns: number): string {
  const shown = rows.flatMap(([label, value]) => (value === null || value === undefined ? [] : [[label, visible(value)] as const]))
  const width = Math.max(0, ...shown.map(([label]) => label.length))
  return shown
    .map(([label, value]) =>
      width + 2 + value.length <= columns ? `${label.padEnd(width)}  ${value}` : `${label}\n  ${fold(value, columns - 2, '  ')}`,
    )
    .join('\n')
}

/** Paragraphs folded at blanks; a word longer than the line stays whole. `indent` is put before every line but the first. */
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

/** Raw token units as people read them: `750.5 USDC.e`, or the raw number where the token is unknown. */
export function amountText(raw: string, token?: { readonly decimals: number; readonly symbol: string }): string {
  if (!token || !/^\d+$/.test(raw)) return `${raw} (raw units)`
  const digits = raw.padStart(token.decimals + 1, '0')
  const whole = digits.slice(0, digits.length - token.decimals)
  const fraction = digits.slice(digits.length - token.decimals).replace(/0+$/, '')
  return `${whole}${fraction === '' ? '' : `.${fraction}`} ${token.symbol}`
}

/** Unix seconds as a date, where it is one that a calendar holds. */
export function dateText(seconds: string): string {
  const ms = Number(seconds) * 1000
  return Number.isFinite(ms) && Math.abs(ms) <= 8.64e15 ? `${new Date(ms).toISOString().replace('.000Z', 'Z')} (${seconds})` : seconds
}

/**
 * A URL without what may be a credential: scheme and host alone, `…` for the rest (R5). What is no URL shows nothing of itself.
 */
export function publicUrl(text: string): string {
  if (!URL.canParse(text)) return '(not a URL)'
  const url = new URL(text)
  const rest = url.username !== '' || url.password !== '' || url.pathname !== '/' || url.search !== '' || url.hash !== ''
  return rest ? `${url.protocol}//${url.host}/…` : `${url.protocol}//${url.host}`
}

/** A word as a POSIX shell takes it, quoted where it needs it. */
export const shellWord = (text: string): string => (/^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`)
