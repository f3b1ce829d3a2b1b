/**
 * Readers of answers that demand no more than the spec shows. It names few sub-fields and no time
 * format. So a member is looked for by what its name must hold, and a value is compared by what it
 * says.
 */
import { plainCode } from '#client/gateway/reading'
import { UsageError } from '#protocol/errors'
import { patterns, version } from '#protocol/words'

/** The gateway breaks the rule. Never with a signature in the message (R5). */
export class Fault extends Error {}

/** The rule could not be examined. */
export class NotSeen extends Error {}
export function notSeen(why: string): never {
  throw new NotSeen(why)
}
/** More items than a window of this gateway holds are not sent. */
export const isUnseen = (error: unknown): error is Error =>
  error instanceof NotSeen || (error instanceof UsageError && error.code === 'batch_over_budget')

/**
 * A member of parsed JSON by its dotted path, `undefined` where it is not there. Of `~total*bond|bond`
 * the first name that holds these words, or else that one.
 */
export function at(json: unknown, path: string): unknown {
  let here = json
  for (const step of path.split('.')) {
    if (!isStructure(here)) return undefined
    const names = Object.keys(here)
    const forms = step.startsWith('~') ? step.slice(1).split('|') : []
    const name = forms
      .map((form) => names.find((one) => new RegExp(form.replace('*', '.*'), 'i').test(one)))
      .find(is.text)
    here = Object.hasOwn(here, name ?? step)
      ? (here as Record<string, unknown>)[name ?? step]
      : undefined
  }
  return here
}

export function listAt(json: unknown, path: string): readonly unknown[] {
  const found = at(json, path)
  return Array.isArray(found) ? found : []
}

/** These come from the application itself, never from what stands before it (§7 rule 1). */
const ownStatuses = [200, 202, 400, 403, 409, 422]
/** Refusals of a malformed body or value (§7). */
export const malformed: readonly number[] = [400, 422]
/** A malformed part of a path is as good as one that names nothing. */
export const notServed: readonly number[] = [400, 404, 422]

/**
 * What holds of an answer: a member by its path, with the value that it has or a test of it; or
 * what is wrong, where that is false.
 */
export type AnswerFacts = Readonly<Record<string, unknown>>
export const eachFact = <T>(
  list: readonly T[],
  fact: (one: T, index: number) => readonly [fault: string, holds: boolean],
): AnswerFacts => Object.fromEntries(list.map(fact))

/** `sent`: method, route, and what was made wrong. */
type Answer = Pick<Seen, 'sent' | 'status' | 'headers' | 'text' | 'json'>

export class Seen {
  readonly sent!: string
  readonly status!: number
  readonly headers!: Headers
  readonly text!: string
  readonly json: unknown

  constructor(answer: Answer) {
    Object.assign(this, answer)
  }

  at(path: string): unknown {
    return at(this.json, path)
  }

  as(changes: Partial<Answer>): Seen {
    return new Seen({ ...this, ...changes })
  }

  with(wrong: string): Seen {
    return this.as({ sent: `${this.sent} with ${wrong}` })
  }

  in(path: string): Seen {
    return this.as({ json: this.at(path) })
  }

  get results(): readonly unknown[] {
    return listAt(this.json, 'results')
  }

  get codes(): readonly unknown[] {
    return this.results.map((one) => at(one, 'status_code'))
  }

  get listed() {
    return this.codes.map(String).join(', ')
  }

  /** In few words: its status, and its code or that it is no JSON. */
  get came() {
    const code = this.at('error.code')
    if (is.text(code)) return `${this.status} ${plainCode(code)}`
    return this.json === undefined ? `${this.status} without JSON` : String(this.status)
  }

  /** Fault unless the status is one of these, with JSON where it is the application's own. */
  expect(statuses: readonly number[]) {
    const isOwn = ownStatuses.includes(this.status)
    if (statuses.includes(this.status) && (this.json !== undefined || !isOwn)) return this.came
    throw this.fault(`got ${this.came}, expected ${statuses.join(' or ')}`)
  }

  /** NotSeen for a rule about something else than the status, which another check tells. */
  given(...statuses: readonly number[]): this {
    if (statuses.includes(this.status)) return this
    throw this.unanswered()
  }

  unanswered(more = '') {
    return new NotSeen(`${this.sent} was answered ${this.came}${more}`)
  }

  fault(what: string) {
    return new Fault(`sent ${this.sent}; ${what}`)
  }

  /** Fault with what was sent and the first of these that does not hold; the members that do. */
  holds(facts: AnswerFacts): readonly string[] {
    return Object.entries(facts).flatMap(([name, wanted]) => {
      if (wanted === false) throw this.fault(name)
      const value = this.at(name)
      const path = name.replace(/~(.*\|)?/, '')
      const isThere = wanted === is.absent || wanted === undefined
      if (wanted === true || (is.test(wanted) ? wanted(value) : value === wanted))
        return wanted === true || isThere ? [] : [path]
      const other = is.test(wanted) ? 'malformed' : `not ${String(wanted).slice(0, 100)}`
      const fault = isThere ? 'there' : value === undefined ? 'missing' : other
      throw this.fault(`got ${this.status}, in which ${path} is ${fault}`)
    })
  }

  /** Hex longer than a hash: a signature, or a transaction that could be sent (§2.6). */
  get hasLongHex() {
    return /[0-9a-fA-F]{65,}/.test(this.text)
  }
}

const isStructure = (value: unknown): value is object => typeof value === 'object' && value !== null
const isObject = (value: unknown): value is Record<string, unknown> =>
  isStructure(value) && !Array.isArray(value)

/**
 * An unsigned integer as decimal text, from text or a JSON number; `undefined` for anything else.
 */
export function integer(value: unknown) {
  if (is.uint(value)) return value
  return Number.isSafeInteger(value) && Number(value) >= 0 ? String(value) : undefined
}

/**
 * Milliseconds of a time: RFC 3339 in any form, or Unix seconds or milliseconds; `undefined` for
 * what is no time.
 */
export function timeMs(value: unknown) {
  const number = integer(value)
  if (number !== undefined) return Number(number) < 1e11 ? Number(number) * 1_000 : Number(number)
  if (typeof value !== 'string') return undefined
  // Date.parse reads no more than milliseconds everywhere.
  const ms = Date.parse(value.replace(/(\.\d{3})\d+/, '$1'))
  return Number.isNaN(ms) ? undefined : ms
}

/** Two routes may tell one instant with other precision. */
export const sameInstant = (one: unknown) => (other: unknown) =>
  Math.abs((timeMs(one) ?? Number.NaN) - (timeMs(other) ?? Number.NaN)) < 1_000

const fits =
  (form: RegExp) =>
  (value: unknown): value is string =>
    typeof value === 'string' && form.test(value)

export const is = {
  address: fits(patterns.address),
  hash: fits(patterns.bytes32),
  uuid: fits(/^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i),
  uint: fits(patterns.uint256),
  text: (value: unknown): value is string => typeof value === 'string',
  word: fits(/./s),
  flag: (value: unknown): value is boolean => typeof value === 'boolean',
  instant: (value: unknown) => timeMs(value) !== undefined,
  structure: isStructure,
  nullable: (value: unknown) => value === null || isObject(value),
  none: (value: unknown): value is null => value === null,
  there: (value: unknown) => value !== undefined,
  /** Another builder may tell null for what is not there. */
  given: (value: unknown) => value !== undefined && value !== null,
  absent: (value: unknown) => value === undefined || value === null,
  /** §9: exactly these three. */
  version: (value: unknown) =>
    isObject(value) &&
    Object.keys(value).length === Object.keys(version).length &&
    Object.entries(version).every(([name, own]) => value[name] === own),
  test: (value: unknown): value is (value: unknown) => boolean => typeof value === 'function',
} as const

/** What an acknowledgement has (§2.5, §2.7). */
export const acknowledgement: AnswerFacts = {
  candidate_id: is.uuid,
  status: is.word,
  received_at: is.instant,
  status_url: is.there,
}

/** What a status has at any time (§2.6, §2.7). */
export const statusMembers: AnswerFacts = {
  status: is.word,
  submission: is.nullable,
  failure: is.nullable,
}
