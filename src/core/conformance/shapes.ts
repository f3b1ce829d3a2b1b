/**
 * Readers of answers that demand no more than the spec shows. It names few sub-fields and no time
 * format. So a member is looked for by what its name must hold, and a value is compared by what it
 * says.
 */
import { version } from '../protocol/words.js'
import { at, expectThat, type Seen } from './rule.js'

const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

export const member = (target: unknown, name: RegExp): readonly [string, unknown] | undefined =>
  isObject(target) ? Object.entries(target).find(([key]) => name.test(key)) : undefined

export const memberOf = (target: unknown, name: RegExp): unknown => member(target, name)?.[1]

/**
 * An unsigned integer as decimal text, from text or a JSON number; `undefined` for anything else.
 */
export function integer(value: unknown): string | undefined {
  if (typeof value === 'string' && /^(0|[1-9]\d{0,77})$/.test(value)) return value
  return Number.isSafeInteger(value) && Number(value) >= 0 ? String(value) : undefined
}

/**
 * Milliseconds of a time: RFC 3339 in any form, or Unix seconds or milliseconds; `undefined` for
 * what is no time.
 */
export function timeMs(value: unknown): number | undefined {
  const number = integer(value)
  if (number !== undefined) return Number(number) < 1e11 ? Number(number) * 1_000 : Number(number)
  if (typeof value !== 'string') return undefined
  // Date.parse reads no more than milliseconds everywhere.
  const ms = Date.parse(value.replace(/(\.\d{3})\d+/, '$1'))
  return Number.isNaN(ms) ? undefined : ms
}

export function sameInstant(one: unknown, other: unknown): boolean {
  const [a, b] = [timeMs(one), timeMs(other)]
  return a !== undefined && b !== undefined && Math.abs(a - b) < 1_000
}

const fits =
  <T extends string>(form: RegExp) =>
  (value: unknown): value is T =>
    typeof value === 'string' && form.test(value)

export const fitsAddress = fits<`0x${string}`>(/^0x[0-9a-f]{40}$/)
export const isHash = fits<`0x${string}`>(/^0x[0-9a-f]{64}$/)
export const fitsBytes = fits<`0x${string}`>(/^0x([0-9a-f]{2})*$/)
export const isUuid = fits(/^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i)
export const isText = (value: unknown): value is string => typeof value === 'string'
export const isWord = (value: unknown): value is string => isText(value) && value !== ''
export const isFlag = (value: unknown): value is boolean => typeof value === 'boolean'
export const isUint = (value: unknown): value is string =>
  isText(value) && integer(value) !== undefined
export const isInstant = (value: unknown): boolean => timeMs(value) !== undefined
export const isNullable = (value: unknown): boolean => value === null || isObject(value)
export const isStructure = (value: unknown): value is object =>
  typeof value === 'object' && value !== null
export const isThere = (value: unknown): boolean => value !== undefined
/** Whether there is something: another builder may tell null for what is not there. */
export const isGiven = (value: unknown): boolean => value !== undefined && value !== null

export type Members = Readonly<Record<string, (value: unknown) => boolean>>

/** What an acknowledgement has (§2.5, §2.7). */
export const acknowledgement: Members = {
  candidate_id: isUuid,
  status: isWord,
  received_at: isInstant,
  status_url: isThere,
}

/** What a status has at any time (§2.6, §2.7). */
export const statusMembers: Members = {
  status: isWord,
  submission: isNullable,
  failure: isNullable,
}

export function expectMembers(seen: Seen, members: Members, json: unknown = seen.json): void {
  for (const [path, holds] of Object.entries(members)) {
    const value = at(json, ...path.split('.'))
    const fault = value === undefined ? 'missing' : 'malformed'
    expectThat(holds(value), seen, `got ${seen.status}, in which ${path} is ${fault}`)
  }
}

/** §9: exactly these three. */
export function expectVersion(seen: Seen): string {
  const actual = at(seen.json, 'version')
  const own = Object.entries(version)
  const isExact =
    isObject(actual) &&
    Object.keys(actual).length === own.length &&
    own.every(([name, value]) => actual[name] === value)
  expectThat(isExact, seen, `got ${seen.status}, in which version is missing or different`)
  return 'version'
}

/** Hex longer than a hash: a signature, or a transaction that could be sent (§2.6). */
export const hasLongHex = ({ text }: Seen): boolean => /[0-9a-fA-F]{65,}/.test(text)
