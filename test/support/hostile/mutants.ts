/**
 * An answer with one thing changed, for each thing that can be changed: what a lying gateway could
 * make of it (T11).
 */

export const evil =
  '\u0000\u0007\b\r\u001b[2J\u001b]8;;https://evil.example\u0007link\u001b]8;;\u001b\\\u001b]52;c;ZXZpbA==\u0007\u007f\u0085\u009b31m\u2028\u2029\u061c\u200e\u202e\u2066\ufeff\ud800'

/** What acts on a terminal, and half a character. */
export const acting =
  /[\u0000-\u0009\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/
/** How our own table redraws itself, and how a line of CSV ends; none of it is in the evil text. */
export const ownMoves = /\u001b\[(?:K|J|\d+A\r)|\r(?=\n)/g

export interface Leaf {
  /** Dotted. */
  readonly path: string
  readonly value: unknown
}

export function leavesOf(json: unknown, path: readonly string[] = []): readonly Leaf[] {
  if (typeof json !== 'object' || json === null) return [{ path: path.join('.'), value: json }]
  return Object.entries(json).flatMap(([key, inner]) => leavesOf(inner, [...path, key]))
}

export function withLeaf(
  json: unknown,
  path: string,
  change: (value: unknown) => unknown,
): unknown {
  const copy: unknown = structuredClone(json)
  const names = path.split('.')
  const last = names.pop() ?? ''
  const holder = names.reduce<unknown>(
    (at, name) => (typeof at === 'object' && at !== null ? Reflect.get(at, name) : undefined),
    copy,
  )
  if (typeof holder !== 'object' || holder === null || !Object.hasOwn(holder, last)) return copy
  const value = change(Reflect.get(holder, last))
  if (value === undefined) Reflect.deleteProperty(holder, last)
  else Reflect.set(holder, last, value)
  return copy
}

export interface Mutant {
  readonly path: string
  readonly value: unknown
  change(body: unknown): unknown
}

const changes: readonly (readonly [how: string, change: (value: unknown) => unknown])[] = [
  ['gone', () => undefined],
  ['null', () => null],
  ['of another type', (value) => (typeof value === 'string' ? 7 : 'seven')],
  ['elsewhere', (value) => (typeof value === 'string' ? 'https://elsewhere.example/' : [])],
  ['evil', (value) => `${String(value)}${evil}`],
  [
    'of another',
    (value) =>
      typeof value === 'string'
        ? value.replace(/[0-9a-f](?=\W*$)/, (digit) => (digit === '1' ? '2' : '1'))
        : 1,
  ],
]

export function mutants(honest: object): readonly Mutant[] {
  return leavesOf(honest).flatMap(({ path, value }) =>
    changes
      .filter(([, change]) => change(value) !== value)
      .map(([how, change]) => ({
        path: `${path} ${how}`,
        value: withLeaf(honest, path, change),
        change: (body: unknown) => withLeaf(body, path, change),
      })),
  )
}
