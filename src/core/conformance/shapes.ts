/**
 * Readers of answers that demand no more than the spec shows: it names few sub-fields and no time
 * format, so that a member is looked for by what its name must hold, and a value is compared by
 * what it says.
 */
import { version } from '../protocol/schema.js'
import { at, expectThat, type Seen } from './rule.js'

const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

/** The first member whose name fits: `[name, value]`, or `undefined`. */
export function member(target: unknown, name: RegExp): readonly [string, unknown] | undefined {
  return isObject(target) ? Object.entries(target).find(([key]) => name.test(key)) : undefined
}

/** The value of the first member whose name fits. */
export const memberOf = (target: unknown, name: RegExp): unknown => member(target, name)?.[1]

/**
 * An unsigned integer as decimal text, from text or a JSON number; `undefined` for anything else.
 */
export function integer(value: unknown): string | undefined {
  if (typeof value === 'string' && /^(0|[1-9]\d{0,77})$/.test(value)) return value
  return typeof value === 'number' && Number.isSafeInteger(value) && value >= 0
    ? String(value)
    : undefined
}

/**
 * Milliseconds of a time: RFC 3339 in any form, or Unix seconds or milliseconds; `undefined` for
 * what is no time.
 */
export function instantMs(value: unknown): number | undefined {
  const number = integer(value)
  if (number !== undefined) return Number(number) < 1e11 ? Number(number) * 1_000 : Number(number)
  // Date.parse reads no more than milliseconds everywhere.
  const ms =
    typeof value === 'string' ? Date.parse(value.replace(/(\.\d{3})\d+/, '$1')) : Number.NaN
  return Number.isNaN(ms) ? undefined : ms
}

/** Two routes may tell one instant with other precision. */
export function sameInstant(one: unknown, other: unknown): boolean {
  const [a, b] = [instantMs(one), instantMs(other)]
  return a !== undefined && b !== undefined && Math.abs(a - b) < 1_000
}

export const isAddress = (value: unknown): value is `0x${string}` =>
  typeof value === 'string' && /^0x[0-9a-f]{40}$/.test(value)
export const isHash = (value: unknown): value is `0x${string}` =>
  typeof value === 'string' && /^0x[0-9a-f]{64}$/.test(value)
export const isBytes = (value: unknown): value is `0x${string}` =>
  typeof value === 'string' && /^0x([0-9a-f]{2})*$/.test(value)
export const isUuid = (value: unknown): value is string =>
  typeof value === 'string' && /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i.test(value)
export const isWord = (value: unknown): value is string => typeof value === 'string' && value !== ''
export const isUint = (value: unknown): value is string =>
  typeof value === 'string' && integer(value) !== undefined
export const isInstant = (value: unknown): boolean => instantMs(value) !== undefined
export const isNullable = (value: unknown): boolean => value === null || isObject(value)
/** Anything but `undefined`. */
export const isThere = (value: unknown): boolean => value !== undefined

/** What must hold of a member, by its dotted path. */
export type Members = Readonly<Record<string, (value: unknown) => boolean>>

/** Fault naming the first member that is missing or of another form. */
export function expectMembers(seen: Seen, members: Members, json: unknown = seen.json): void {
  for (const [path, holds] of Object.entries(members)) {
    const value = at(json, ...path.split('.'))
    expectThat(
      holds(value),
      seen,
      `came ${seen.status}, in which ${path} is ${value === undefined ? 'missing' : 'of another form'}`,
    )
  }
}

/** §9: exactly these three. */
export function expectVersion(seen: Seen): string {
  const told = at(seen.json, 'version')
  const names = Object.keys(version) as (keyof typeof version)[]
  const isExact =
    isObject(told) &&
    Object.keys(told).length === names.length &&
    names.every((name) => told[name] === version[name])
  expectThat(isExact, seen, `came ${seen.status}, in which version is missing or another one`)
  return 'version'
}

/** Whether there is something: another builder may tell null for what is not there. */
export const isGiven = (value: unknown): boolean => value !== undefined && value !== null
