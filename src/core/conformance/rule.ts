/**
 * What a check is, and readers of answers that demand no more than the spec shows. It names few
 * sub-fields and no time format. So a member is looked for by what its name must hold, and a value
 * is compared by what it says.
 */
import { plainCode } from '#client/gateway/reading'
import { version } from '#protocol/words'
import type { Bench } from './bench.js'
import type { ProbeCall } from './probe.js'

/**
 * What a check may do. `read`: nothing that could be admitted. `admit`: signs, but only what cannot
 * execute. `execute`: a proposal that goes on chain. `overrun`: spends more than the budget, and
 * waits it out.
 */
export type Tier = 'read' | 'admit' | 'execute' | 'overrun'

/** An answer to be looked at; what several checks ask for is asked for once. */
export type ProbeExchange = (bench: Bench) => Promise<Seen>
/**
 * What was seen, for a report. Throws Fault where the rule is broken, NotSeen where it could not be
 * examined.
 */
export type Run = (bench: Bench) => Promise<string>
type Told = AnswerFacts | string
/** What must hold of an answer; or what is to be said of it in a report. */
export type Expect = (json: unknown, bench: Bench, seen: Seen) => Told | Promise<Told>

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

/**
 * What a rule says, what is sent, and what must hold of the answer, or is said of it. A number is
 * what that is charged where it is not one item.
 */
export type RuleRow = readonly [says: string, ask: ProbeExchange | Run, ...How[]]
type How = string | number | Expect
export type RuleRows = Readonly<Record<string, RuleRow>>

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

export const rulesOf = (tier: Tier, checks: RuleRows): readonly Rule[] =>
  Object.entries(checks).map(([id, [says, ask, ...how]]) => ({
    id,
    section: sections[id] ?? sectionOf(id),
    tier,
    items: how.find((one) => typeof one === 'number') ?? 1,
    says,
    async run(bench) {
      const seen = await ask(bench)
      if (is.text(seen)) return seen
      let actual = ''
      for (const one of how) {
        const told = typeof one === 'function' ? await one(seen.json, bench, seen) : one
        if (is.text(told)) actual = told
        else if (typeof told === 'object') expectAll(seen, told)
      }
      return actual
    },
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

/** A member of parsed JSON by its dotted path, `undefined` where it is not there. */
export function at(json: unknown, path: string | number): unknown {
  let here = json
  for (const key of String(path).split('.')) {
    if (!isStructure(here) || !Object.hasOwn(here, key)) return undefined
    here = (here as Record<string, unknown>)[key]
  }
  return here
}

/** A list in parsed JSON; empty where there is none. */
export function listAt(json: unknown, path: string): readonly unknown[] {
  const found = at(json, path)
  return Array.isArray(found) ? found : []
}

export const resultsIn = (json: unknown): readonly unknown[] => listAt(json, 'results')
export const codesIn = (json: unknown): readonly unknown[] =>
  resultsIn(json).map((one) => at(one, 'status_code'))

/** An answer in few words: its status, and its code or that it is no JSON. */
export function came({ status, json }: Seen): string {
  const code = at(json, 'error.code')
  if (typeof code === 'string') return `${status} ${plainCode(code)}`
  return json === undefined ? `${status} without JSON` : String(status)
}

/** These come from the application itself, never from what stands before it (§7 rule 1). */
const ownStatuses = [200, 202, 400, 403, 409, 422]
/** Refusals of a malformed body or value (§7). */
export const malformed = [400, 422] as const
/** A malformed part of a path is as good as one that names nothing. */
export const notServed = [400, 404, 422] as const

/** Throws Fault unless the status is one of these, with JSON where it is the application's own. */
export function expectStatus(seen: Seen, ...statuses: readonly number[]): string {
  const isOwn = ownStatuses.includes(seen.status)
  if (statuses.includes(seen.status) && (seen.json !== undefined || !isOwn)) return came(seen)
  throw new Fault(`sent ${seen.sent}; got ${came(seen)}, expected ${statuses.join(' or ')}`)
}

/** What holds of an answer, by what is wrong where it does not. */
export type AnswerFacts = Readonly<Record<string, boolean>>

/** Throws Fault with what was sent and the first of these that does not hold. */
export function expectAll({ sent }: Pick<Seen, 'sent'>, facts: AnswerFacts): void {
  for (const [fault, holds] of Object.entries(facts))
    if (!holds) throw new Fault(`sent ${sent}; ${fault}`)
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

/** RuleRows of one answer. */
export const about = (
  exchange: ProbeExchange,
  rows: Readonly<Record<string, readonly [says: string, ...How[]]>>,
): RuleRows =>
  Object.fromEntries(
    Object.entries(rows).map(([id, [says, ...how]]) => [id, [says, exchange, ...how]]),
  )

export const answers =
  (...statuses: readonly number[]): Expect =>
  (_json, _bench, seen) =>
    expectStatus(seen, ...statuses)

export const has =
  (members: Members, path?: string): Expect =>
  (json, _bench, seen) => {
    expectMembers(seen, members, path === undefined ? json : at(json, path))
    return 'all named'
  }

/** A check of calls that must all be answered so; what came last is told, where nothing else is. */
export const refuses =
  (
    statuses: readonly number[],
    wrong: string | undefined,
    calls: (bench: Bench) => readonly ProbeCall[] | Promise<readonly ProbeCall[]>,
    detail?: string,
  ): Run =>
  async (bench) => {
    let actual = ''
    for (const call of await calls(bench))
      actual = expectStatus(await bench.probe.send(call, wrong), ...statuses)
    return detail ?? actual
  }

const isStructure = (value: unknown): value is object => typeof value === 'object' && value !== null
const isObject = (value: unknown): value is Record<string, unknown> =>
  isStructure(value) && !Array.isArray(value)

export const member = (target: unknown, name: RegExp): readonly [string, unknown] | undefined =>
  isObject(target) ? Object.entries(target).find(([key]) => name.test(key)) : undefined

export const memberOf = (target: unknown, name: RegExp): unknown => member(target, name)?.[1]

/**
 * An unsigned integer as decimal text, from text or a JSON number; `undefined` for anything else.
 */
export function integer(value: unknown): string | undefined {
  if (is.uint(value)) return value
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

/** What a value may be. */
export const is = {
  address: fits<`0x${string}`>(/^0x[0-9a-f]{40}$/),
  hash: fits<`0x${string}`>(/^0x[0-9a-f]{64}$/),
  bytes: fits<`0x${string}`>(/^0x([0-9a-f]{2})*$/),
  uuid: fits(/^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i),
  uint: fits(/^(0|[1-9]\d{0,77})$/),
  text: (value: unknown): value is string => typeof value === 'string',
  word: fits(/./s),
  flag: (value: unknown): value is boolean => typeof value === 'boolean',
  instant: (value: unknown): boolean => timeMs(value) !== undefined,
  structure: isStructure,
  nullable: (value: unknown): boolean => value === null || isObject(value),
  none: (value: unknown): value is null => value === null,
  there: (value: unknown): boolean => value !== undefined,
  /** Another builder may tell null for what is not there. */
  given: (value: unknown): boolean => value !== undefined && value !== null,
} as const

export type Members = Readonly<Record<string, (value: unknown) => boolean>>

/** What an acknowledgement has (§2.5, §2.7). */
export const acknowledgement: Members = {
  candidate_id: is.uuid,
  status: is.word,
  received_at: is.instant,
  status_url: is.there,
}

/** What a status has at any time (§2.6, §2.7). */
export const statusMembers: Members = {
  status: is.word,
  submission: is.nullable,
  failure: is.nullable,
}

/** Fault naming the first member that is missing or malformed. */
export function expectMembers(seen: Seen, members: Members, json: unknown = seen.json): void {
  for (const [path, holds] of Object.entries(members)) {
    const value = at(json, path)
    const fault = value === undefined ? 'missing' : 'malformed'
    expectAll(seen, { [`got ${seen.status}, in which ${path} is ${fault}`]: holds(value) })
  }
}

/** §9: exactly these three. */
export const hasVersion: Expect = (json, _bench, seen) => {
  const actual = at(json, 'version')
  const own = Object.entries(version)
  const isExact =
    isObject(actual) &&
    Object.keys(actual).length === own.length &&
    own.every(([name, value]) => actual[name] === value)
  expectAll(seen, { [`got ${seen.status}, in which version is missing or different`]: isExact })
  return 'version'
}

/** Hex longer than a hash: a signature, or a transaction that could be sent (§2.6). */
export const hasLongHex = ({ text }: Seen): boolean => /[0-9a-fA-F]{65,}/.test(text)
