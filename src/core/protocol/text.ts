/** C0, DEL, C1, separators of lines, bidirectional controls and lone surrogates (robustness §5). */
export const unsafeCharacters =
  /[\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g

export const codePoint = (character: string) =>
  `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`

/** What could move the cursor, reorder or hide text is spelled out (R20). */
export const visible = (text: string) => text.replace(unsafeCharacters, codePoint)

export const counted = (count: number | bigint, one: string): string =>
  `${count} ${one}${String(count) === '1' ? '' : 's'}`

export const shellWord = (text: string) =>
  /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`
