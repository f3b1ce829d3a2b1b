/**
 * Of request bodies (robustness §4). One scan sees what a parsed value no longer shows, one walk
 * what the text hides behind escapes.
 */

export type Json = Readonly<Record<string, unknown>>

export const objectOf = (value: unknown): Json | undefined =>
  typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as Json) : undefined

export type JsonRead =
  | { readonly ok: true; readonly value: unknown }
  | { readonly ok: false; readonly detail: string }

export const jsonLimits = { depth: 8, keysPerObject: 64 } as const

// ignoreBOM keeps a BOM in the text, where it is seen and refused.
const decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true })

const plainInteger = /^(0|[1-9]\d{0,15})$/
const numberForm = /[-+.eE\d]+/y
const forbiddenKeys: ReadonlySet<unknown> = new Set(['__proto__', 'constructor', 'prototype'])

const fail = (detail: string): JsonRead => ({
  ok: false,
  detail: `the body is not acceptable JSON: ${detail}`,
})

/**
 * `detail` never repeats what was sent. Refused beside broken JSON: a BOM, lone surrogates, NUL, a
 * key twice (however escaped), `__proto__` and the like, more than 8 levels or 64 keys, any number
 * but a plain integer up to 2^53 − 1.
 */
export function readJson(bytes: Uint8Array): JsonRead {
  if (bytes.length === 0) return fail('it is empty; send a JSON object')
  let text: string
  try {
    text = decoder.decode(bytes)
  } catch {
    return fail('it is not valid UTF-8; encode it as UTF-8')
  }
  if (text.charCodeAt(0) === 0xfeff)
    return fail('it begins with a byte order mark; send it without')
  const escaped = text.includes('\\')
  const scanned = scan(text, escaped)
  if (typeof scanned === 'string') return fail(scanned)
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch {
    // JSON.parse quotes the text in its message (robustness §4).
    return fail('it has a syntax error; send exactly one JSON object and nothing after it')
  }
  const walked = walk(value, text.includes('\\u'))
  if (typeof walked === 'string') return fail(walked)
  // Each member has one colon; a parsed object holds each key once, however it was spelled.
  if (walked !== scanned) return fail('a key occurs twice in one object; send each key once')
  return { ok: true, value }
}

const quote = 0x22
const backslash = 0x5c

/** What is no JSON is left to JSON.parse. */
function scan(text: string, escaped: boolean) {
  const keys = new Array<number>(jsonLimits.depth + 1).fill(0)
  let depth = 0
  let members = 0
  for (let at = 0; at < text.length; at += 1) {
    const code = text.charCodeAt(at)
    if (code === quote) {
      at = endOfString(text, at, escaped)
      if (at < 0) return 'a string is not terminated; send the complete body'
    } else if (code === 0x7b || code === 0x5b) {
      depth += 1
      if (depth > jsonLimits.depth)
        return `it is nested more than ${jsonLimits.depth} levels deep; send the documented shape`
      keys[depth] = 0
    } else if (code === 0x7d || code === 0x5d) {
      depth = Math.max(0, depth - 1)
    } else if (code === 0x3a) {
      members += 1
      const count = (keys[depth] ?? 0) + 1
      if (count > jsonLimits.keysPerObject)
        return `an object has more than ${jsonLimits.keysPerObject} keys; send the documented fields only`
      keys[depth] = count
    } else if ((code >= 0x30 && code <= 0x39) || code === 0x2d) {
      numberForm.lastIndex = at
      const lexeme = numberForm.exec(text)?.[0] ?? ''
      if (!plainInteger.test(lexeme) || !Number.isSafeInteger(Number(lexeme))) {
        return 'a number is not a plain integer from 0 to 9007199254740991; write it without sign, point or exponent'
      }
      at += lexeme.length - 1
    }
  }
  return members
}

function endOfString(text: string, open: number, escaped: boolean) {
  let close = text.indexOf('"', open + 1)
  if (!escaped) return close
  while (close > 0) {
    let before = close
    while (text.charCodeAt(before - 1) === backslash) before -= 1
    // An even run of backslashes escapes itself only.
    if ((close - before) % 2 === 0) return close
    close = text.indexOf('"', close + 1)
  }
  return close
}

function walk(value: unknown, mayHideCharacters: boolean): number | string {
  if (typeof value === 'string') return mayHideCharacters ? (textFault(value) ?? 0) : 0
  if (typeof value !== 'object' || value === null) return 0
  let count = 0
  for (const [key, entry] of Array.isArray(value) ? value.entries() : Object.entries(value)) {
    if (forbiddenKeys.has(key))
      return 'an object has a key that no request has; send the documented fields only'
    if (typeof key === 'string') count += 1
    for (const part of [key, entry]) {
      const inner = walk(part, mayHideCharacters)
      if (typeof inner === 'string') return inner
      count += inner
    }
  }
  return count
}

const loneSurrogate = /\p{Surrogate}/u
/** Only escapes bring these in: UTF-8 has no surrogates, and JSON allows no bare NUL. */
function textFault(text: string) {
  if (text.includes('\u0000')) return 'a string holds a NUL character; remove it'
  if (loneSurrogate.test(text))
    return 'a string holds half of a surrogate pair; send whole characters'
  return undefined
}
