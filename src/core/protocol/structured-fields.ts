/**
 * Structured Fields (RFC 8941), as far as signatures and digests of messages use them. No
 * decimals.
 */

export type BareItem =
  | string
  | number
  | boolean
  | { readonly token: string }
  | { readonly bytes: Uint8Array }

type Parameters = ReadonlyMap<string, BareItem>

export interface FieldItem {
  readonly value: BareItem
  readonly parameters: Parameters
}
export interface InnerList {
  readonly items: readonly FieldItem[]
  readonly parameters: Parameters
}
export type FieldMember = FieldItem | InnerList

/** `undefined` from a reader: it is malformed. */
interface Cursor {
  readonly text: string
  at: number
}

function take(cursor: Cursor, pattern: RegExp): string | undefined {
  pattern.lastIndex = cursor.at
  const [found] = pattern.exec(cursor.text) ?? []
  if (found !== undefined) cursor.at += found.length
  return found
}

/** The last one of a key holds (RFC 8941, section 4.2.2). */
export function parseDictionary(text: string): ReadonlyMap<string, FieldMember> | undefined {
  const cursor: Cursor = { text, at: 0 }
  const members = new Map<string, FieldMember>()
  take(cursor, / */y)
  if (cursor.at === text.length) return members
  for (;;) {
    const key = take(cursor, /[a-z*][a-z0-9_.*-]*/y)
    if (key === undefined) return undefined
    const member = take(cursor, /=/y) === undefined ? flag(cursor) : readMember(cursor)
    if (member === undefined) return undefined
    members.delete(key)
    members.set(key, member)
    take(cursor, /[ \t]*/y)
    if (cursor.at === text.length) return members
    if (take(cursor, /,[ \t]*/y) === undefined) return undefined
  }
}

function flag(cursor: Cursor): FieldItem | undefined {
  const parameters = readParameters(cursor)
  return parameters && { value: true, parameters }
}

function readMember(cursor: Cursor): FieldMember | undefined {
  if (take(cursor, /\( */y) === undefined) return readItem(cursor)
  const items: FieldItem[] = []
  while (take(cursor, /\)/y) === undefined) {
    const item = readItem(cursor)
    if (item === undefined) return undefined
    items.push(item)
    if (take(cursor, / +|(?=\))/y) === undefined) return undefined
  }
  const parameters = readParameters(cursor)
  return parameters && { items, parameters }
}

function readItem(cursor: Cursor): FieldItem | undefined {
  const value = readBare(cursor)
  const parameters = value === undefined ? undefined : readParameters(cursor)
  return value === undefined || parameters === undefined ? undefined : { value, parameters }
}

function readParameters(cursor: Cursor): Parameters | undefined {
  const parameters = new Map<string, BareItem>()
  while (take(cursor, /; */y) !== undefined) {
    const key = take(cursor, /[a-z*][a-z0-9_.*-]*/y)
    if (key === undefined) return undefined
    const value = take(cursor, /=/y) === undefined ? true : readBare(cursor)
    if (value === undefined) return undefined
    parameters.delete(key)
    parameters.set(key, value)
  }
  return parameters
}

function readBare(cursor: Cursor): BareItem | undefined {
  const quoted = take(cursor, /"(?:[\x20\x21\x23-\x5b\x5d-\x7e]|\\["\\])*"/y)
  if (quoted !== undefined) return quoted.slice(1, -1).replaceAll(/\\(.)/g, '$1')
  const bytes = take(cursor, /:[A-Za-z0-9+/]*={0,2}:/y)
  if (bytes !== undefined) {
    const decoded = bytesOfBase64(bytes.slice(1, -1))
    return decoded && { bytes: decoded }
  }
  // A decimal is left half read, and so refused by what comes next.
  const integer = take(cursor, /-?\d{1,15}(?![.\d])/y)
  if (integer !== undefined) return Number(integer)
  const boolean = take(cursor, /\?[01]/y)
  if (boolean !== undefined) return boolean === '?1'
  const token = take(cursor, /[A-Za-z*][!#$%&'*+.^_`|~0-9A-Za-z:/-]*/y)
  return token === undefined ? undefined : { token }
}

/** RFC 8941, section 4.1.1.1. */
export const serializeInnerList = ({ items, parameters }: InnerList): string =>
  `(${items.map(serializeItem).join(' ')})${serializeParameters(parameters)}`

export const serializeItem = ({ value, parameters }: FieldItem): string =>
  serializeBare(value) + serializeParameters(parameters)

const serializeParameters = (parameters: Parameters): string =>
  [...parameters]
    .map(([key, value]) => (value === true ? `;${key}` : `;${key}=${serializeBare(value)}`))
    .join('')

function serializeBare(value: BareItem): string {
  if (typeof value === 'string') return `"${value.replaceAll(/["\\]/g, '\\$&')}"`
  if (typeof value === 'number') return String(value)
  if (typeof value === 'boolean') return value ? '?1' : '?0'
  return 'token' in value ? value.token : `:${base64OfBytes(value.bytes)}:`
}

export const base64OfBytes = (bytes: Uint8Array): string =>
  btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(''))

/** Padded or not. */
export function bytesOfBase64(text: string): Uint8Array | undefined {
  const bare = text.replace(/=+$/, '')
  if (!/^[A-Za-z0-9+/]*$/.test(bare) || bare.length % 4 === 1) return undefined
  const bytes = Uint8Array.from(atob(bare), (character) => character.charCodeAt(0))
  // Bits that stand for nothing must be zero, else two texts would be the same bytes.
  return base64OfBytes(bytes).replace(/=+$/, '') === bare ? bytes : undefined
}
