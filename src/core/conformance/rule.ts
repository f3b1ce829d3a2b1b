/**
 * Readers of answers that demand no more than the spec shows. It names few sub-fields and no time
 * format. So a member is looked for by what its name must hold, and a value is compared by what it
 * says.
 */
import { plainCode } from '../client/gateway/reading.js'
import { version } from '../protocol/words.js'
import type { Bench } from './bench.js'

/**
 * What a check may do. `read`: nothing that could be admitted. `admit`: signs, but only what cannot
 * execute. `execute`: a proposal that goes on chain. `overrun`: spends more than the budget, and
 * waits it out.
 */
export type Tier = 'read' | 'admit' | 'execute' | 'overrun'

/**
 * What was seen, for a report. Throws Fault where the rule is broken, NotSeen where it could not be
 * examined.
 */
export type Run = (bench: Bench) => Promise<string>
export interface Rule {
  readonly id: string
  /** Where the spec says it. */
  readonly section: string
  readonly tier: Tier
  /** About how many items it is charged (§8 rule 2), where others have not paid for it already. */
  readonly items: number
  readonly says: string
  readonly run: Run
}

type Check = readonly [says: string, items: number, run: Run]
export type Stated = Readonly<Record<string, Check>>

/** What a rule says, what it is charged where that is not one item, and how it is examined. */
export const rule = (says: string, ...how: readonly [Run] | readonly [number, Run]): Check =>
  how.length === 1 ? [says, 1, ...how] : [says, ...how]

const sections: Readonly<Record<string, string>> = {
  '4.2.1-items-101': '§4.2 rule 4',
  '4.2.1-identifiers-101': '§4.2 rule 4',
  '4.2.1-proposals-101': '§4.2 rule 4',
  '7-item-errors': '§7 rule 4',
  '4.1.3-unprepared': '§1',
  '9-acknowledgement-version': '§2.5',
  '4.2.5-conflict': '§4.1 rule 3',
  '8-whole-batch-refused': '§8 rule 5',
  '8-refused-call-charged': '§8 rule 4',
}

/** `2.7-x` is of §2.7, `4.1.3-x` of §4.1 rule 3, `3.2-x` of §3 rule 2. */
function sectionOf(id: string): string {
  const [chapter = '', part, rule] = (id.split('-')[0] ?? '').split('.')
  if (chapter === 'receipt') return 'receipts'
  if (chapter === '3') return `§3 rule ${part}`
  return `§${part === undefined ? chapter : `${chapter}.${part}`}${rule === undefined ? '' : ` rule ${rule}`}`
}

export const rulesOf = (tier: Tier, stated: Stated): readonly Rule[] =>
  Object.entries(stated).map(([id, [says, items, run]]) => ({
    id,
    section: sections[id] ?? sectionOf(id),
    tier,
    items,
    says,
    run,
  }))

/** The gateway breaks the rule. Never with a signature in the message (R5). */
export class Fault extends Error {}

export class NotSeen extends Error {}

export interface Seen {
  /** What was sent: method, route, and the field that was made wrong. */
  readonly sent: string
  readonly status: number
  readonly headers: Headers
  readonly text: string
  readonly json: unknown
}

/**
 * A member of parsed JSON by its path, `undefined` where it is not there. Array members go by their
 * number.
 */
export function at(json: unknown, ...path: readonly (string | number)[]): unknown {
  let here = json
  for (const key of path) {
    if (typeof here !== 'object' || here === null || !Object.hasOwn(here, key)) return undefined
    here = (here as Record<string | number, unknown>)[key]
  }
  return here
}

/** A list in parsed JSON; empty where there is none. */
export function listAt(json: unknown, ...path: readonly (string | number)[]): readonly unknown[] {
  const found = at(json, ...path)
  return Array.isArray(found) ? found : []
}

export const codesOf = (seen: Seen): readonly unknown[] =>
  listAt(seen.json, 'results').map((one) => at(one, 'status_code'))

/** An answer in few words: its status, and its code or that it is no JSON. */
export function came(seen: Seen): string {
  const code = at(seen.json, 'error', 'code')
  if (typeof code === 'string') return `${seen.status} ${plainCode(code)}`
  return seen.json === undefined ? `${seen.status} without JSON` : String(seen.status)
}

/** These come from the application itself, never from what stands before it (§7 rule 1). */
const ownStatuses = [200, 202, 400, 403, 409, 422]

/** Throws Fault unless the status is one of these, with JSON where it is the application's own. */
export function expectStatus(seen: Seen, ...statuses: readonly number[]): string {
  const isOwn = ownStatuses.includes(seen.status)
  if (statuses.includes(seen.status) && (seen.json !== undefined || !isOwn)) return came(seen)
  throw new Fault(`sent ${seen.sent}; got ${came(seen)}, expected ${statuses.join(' or ')}`)
}

/** Throws Fault with what was sent, unless it holds. */
export function expectThat(holds: boolean, seen: Pick<Seen, 'sent'>, otherwise: string): void {
  if (!holds) throw new Fault(`sent ${seen.sent}; ${otherwise}`)
}

/** NotSeen for a rule about something else than the status, which another check tells. */
export function given(seen: Seen, ...statuses: readonly number[]): Seen {
  if (statuses.includes(seen.status)) return seen
  throw new NotSeen(`${seen.sent} was answered ${came(seen)}`)
}

export const wrongly = (seen: Seen, wrong: string): Seen => ({
  ...seen,
  sent: `${seen.sent} with ${wrong}`,
})

/** Refusals of a malformed body or value (§7). */
export const malformed = [400, 422] as const
/** A malformed part of a path is as good as one that names nothing. */
export const notServed = [400, 404, 422] as const

/** Runs once, however many rules ask. */
export function once<T>(make: () => Promise<T>): () => Promise<T> {
  let made: Promise<T> | undefined
  return () => {
    made ??= make()
    return made
  }
}

/**
 * How long the permits of a run live: the gateway wants five minutes beyond admission (§2.1), and
 * they should not hold questions for long.
 */
export const lifeSeconds = 900n

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

/** Two routes may tell one instant with other precision. */
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

/** Fault naming the first member that is missing or malformed. */
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
