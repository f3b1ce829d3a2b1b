/**
 * Damage to JSON values, texts and bytes, the same for the same edits. Edits are small numbers that
 * fast-check draws, so that a failing run shrinks to few and simple ones; what they mean depends on
 * the value they meet, so that most of them hit a place that somebody reads.
 */
import fc from 'fast-check'

export const tokens = ['Zk7Canary', 'zk7-planted'] as const

/** One change: where, which kind, and with what. */
export type Edit = readonly [place: number, how: number, pick: number]

const edit = fc.tuple(fc.nat(1_023), fc.nat(255), fc.nat(4_095))

export const editsUpTo = (most: number, least = 0): fc.Arbitrary<readonly Edit[]> =>
  fc.array(edit, { minLength: least, maxLength: most })

const nested = (levels: number, kind: number): unknown => {
  let value: unknown = tokens[0]
  for (let level = 0; level < levels; level += 1)
    value = kind % 2 === 0 ? [value] : { [tokens[0]]: value }
  return value
}

const oddValues: readonly (() => unknown)[] = [
  () => tokens[0],
  () => tokens[1],
  () => null,
  () => true,
  () => 0,
  () => -1,
  () => 1.5,
  () => 2 ** 53,
  () => 2 ** 53 - 1,
  () => '',
  () => '0',
  () => '00',
  () => '-1',
  () => '1e3',
  () => ' 1',
  () => '0x',
  () => `0x${'0'.repeat(40)}`,
  () => `0x${'A'.repeat(40)}`,
  () => `0x${'0'.repeat(64)}`,
  () => `0x${'f'.repeat(64)}`,
  () => '9'.repeat(78),
  () => String(2n ** 256n),
  () => String(2n ** 256n - 1n),
  () => '9'.repeat(400),
  () => `0x${'ab'.repeat(8_193)}`,
  () => 'p1',
  () => 'p3',
  () => 'v2',
  () => 'eligibility',
  () => 'a'.repeat(201),
  () => '00000000-0000-4000-8000-000000000000',
  () => [],
  () => ({}),
  () => [[tokens[0]]],
  () => ({ [tokens[0]]: tokens[1] }),
  () => nested(7, 0),
  () => nested(9, 1),
  () => nested(40, 0),
  () => `${tokens[0]}\u0000`,
  () => `\u001b[31m${tokens[0]}\u202e`,
  () => '\ud800',
  () => `${tokens[0]}\r\nSet-Cookie: a=b`,
  () => Object.fromEntries(Array.from({ length: 70 }, (_, at) => [`k${at}`, at])),
  () => Array.from({ length: 101 }, () => tokens[1]),
]

const oddKeys = [
  tokens[0],
  tokens[1],
  'ancillary_data',
  'ancillaryData',
  'constructor',
  '__proto__x',
  '',
  'signature',
  'version',
  'nonce',
]

type Container = Record<string | number, unknown>
interface Place {
  readonly parent: Container | undefined
  readonly key: string | number
  readonly value: unknown
}

function placesOf(root: unknown): Place[] {
  const places: Place[] = [{ parent: undefined, key: '', value: root }]
  for (let at = 0; at < places.length && at < 2_000; at += 1) {
    const { value } = places[at] as Place
    if (typeof value !== 'object' || value === null) continue
    if (Array.isArray(value))
      for (const [key, entry] of value.entries())
        places.push({ parent: value as unknown as Container, key, value: entry })
    else
      for (const [key, entry] of Object.entries(value))
        places.push({ parent: value as Container, key, value: entry })
  }
  return places
}

const digits = '0123456789abcdef'

function nearText(text: string, how: number, pick: number): string {
  const at = text.length === 0 ? 0 : pick % text.length
  const put = (part: string) => `${text.slice(0, at)}${part}${text.slice(at + 1)}`
  switch (how % 9) {
    case 0:
      return put(digits[pick % 10] ?? '0')
    case 1:
      return put(digits[pick % 16] ?? '0')
    case 2:
      return text.slice(0, at)
    case 3:
      return `${text}${digits[pick % 16]}`
    case 4:
      return put((text[at] ?? '').toUpperCase())
    case 5:
      return `${text.slice(0, at)}${tokens[pick % 2]}${text.slice(at)}`
    case 6:
      return put(['\u0000', '\u001b', '\u202e', ' ', '.', '/', '%2e', '\ud83d'][pick % 8] ?? ' ')
    case 7:
      return text + text
    default:
      return ` ${text}`
  }
}

function applyOne(root: unknown, [place, how, pick]: Edit): unknown {
  const places = placesOf(root)
  const { parent, key, value } = places[place % places.length] as Place
  const replace = (next: unknown): unknown => {
    if (parent === undefined) return next
    parent[key] = next
    return root
  }
  switch (how % 12) {
    case 0:
    case 1:
      return replace(oddValues[pick % oddValues.length]?.())
    case 2:
    case 3:
    case 4:
      return typeof value === 'string'
        ? replace(nearText(value, pick, pick >> 3))
        : replace(oddValues[pick % oddValues.length]?.())
    case 5: {
      if (parent === undefined) return root
      if (Array.isArray(parent)) parent.splice(Number(key), 1)
      else delete parent[key]
      return root
    }
    case 6: {
      const target =
        typeof value === 'object' && value !== null && !Array.isArray(value)
          ? (value as Container)
          : undefined
      if (target)
        target[oddKeys[pick % oddKeys.length] ?? ''] = oddValues[(pick >> 4) % oddValues.length]?.()
      else if (Array.isArray(value))
        for (let more = 0; more <= pick % 120; more += 1) value.push(value[0])
      return root
    }
    case 7: {
      if (parent === undefined || Array.isArray(parent)) return replace([value])
      delete parent[key]
      parent[pick % 2 === 0 ? `${key}${tokens[0]}` : String(key).toUpperCase()] = value
      return root
    }
    case 8:
      return replace(pick % 2 === 0 ? [value] : { value })
    case 9: {
      const other = places[pick % places.length] as Place
      if (
        other.parent === undefined ||
        parent === undefined ||
        contains(value, other.parent) ||
        contains(other.value, parent)
      )
        return root
      const kept = other.value
      other.parent[other.key] = value
      parent[key] = kept
      return root
    }
    case 10:
      if (typeof value === 'string')
        return replace(/^\d{1,15}$/.test(value) ? Number(value) : value.length)
      return replace(
        typeof value === 'number' ? String(value) : JSON.stringify(value)?.slice(0, 500),
      )
    default:
      return typeof value === 'number'
        ? replace(value + (pick % 3) - 1)
        : replace(typeof value === 'string' ? nearText(value, 1, pick) : null)
  }
}

function contains(value: unknown, sought: unknown): boolean {
  if (value === sought) return true
  if (typeof value !== 'object' || value === null) return false
  return Object.values(value).some((entry) => contains(entry, sought))
}

export function edited(value: unknown, edits: readonly Edit[]): unknown {
  return edits.reduce(applyOne, structuredClone(value))
}

export function withOtherDigit(value: unknown, [place, , pick]: Edit): unknown {
  const copy: unknown = structuredClone(value)
  const numeric = placesOf(copy).filter(
    (one) => typeof one.value === 'string' && /\d/.test(one.value),
  )
  const chosen = numeric[place % Math.max(1, numeric.length)]
  if (chosen?.parent === undefined || typeof chosen.value !== 'string') return copy
  const { value: text } = chosen
  // The last digits: leading ones are the prefix, or make the number too large for its type.
  const at = text.length - 1 - (pick % Math.max(1, text.length - 3))
  const known = text[at] ?? ''
  if (/\d/.test(known))
    chosen.parent[chosen.key] =
      `${text.slice(0, at)}${(Number(known) + 1 + (pick % 9)) % 10}${text.slice(at + 1)}`
  return copy
}

const textParts = [
  '{',
  '}',
  '[',
  ']',
  '"',
  ':',
  ',',
  '\\',
  '\u0000',
  '\n',
  '-0',
  '1.0',
  '1e3',
  '9007199254740993',
  'NaN',
  'null',
  '\\ud800',
  '\\u0000',
  `"${tokens[0]}":1,`,
  '"__proto__":{},',
  '"constructor":1,',
  '\ufeff',
  '//',
  tokens[0],
]

export function editedText(text: string, edits: readonly Edit[]): string {
  return edits.reduce((now, [place, how, pick]) => {
    const at = now.length === 0 ? 0 : (place * 31 + pick) % now.length
    const part = textParts[pick % textParts.length] ?? ''
    switch (how % 7) {
      case 0:
        return now.slice(0, at)
      case 1:
        return now.slice(0, at) + now.slice(at + 1 + (pick % 4))
      case 2:
      case 3:
        return now.slice(0, at) + part + now.slice(at)
      case 4:
        return now + part
      case 5:
        return `{"${tokens[0]}":1,${now.slice(1)}`
      default: {
        const end = now.indexOf(',')
        return end < 0 ? part + now : `${now.slice(0, 1)}${now.slice(1, end)},${now.slice(1)}`
      }
    }
  }, text)
}

export function editedBytes(bytes: Uint8Array, edits: readonly Edit[]): Uint8Array<ArrayBuffer> {
  let now = Uint8Array.from(bytes)
  for (const each of edits) now = editOfBytes(now, each)
  return now
}

function editOfBytes(
  bytes: Uint8Array<ArrayBuffer>,
  [place, how, pick]: Edit,
): Uint8Array<ArrayBuffer> {
  const at = bytes.length === 0 ? 0 : (place * 31 + pick) % bytes.length
  const join = (...parts: readonly Uint8Array[]) => Uint8Array.from(Buffer.concat(parts))
  switch (how % 5) {
    case 0:
      return bytes.slice(0, at)
    case 1:
      return join(
        bytes.subarray(0, at),
        Uint8Array.of((bytes[at] ?? 0) ^ (1 << (pick % 8))),
        bytes.subarray(at + 1),
      )
    case 2:
      return join(bytes.subarray(0, at), Uint8Array.of(pick & 255), bytes.subarray(at))
    case 3:
      return join(bytes, Uint8Array.of(pick & 255, 0xff, 0xc0))
    default:
      return join(bytes.subarray(0, at), bytes.subarray(at + 1 + (pick % 16)))
  }
}
