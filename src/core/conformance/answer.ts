import { plainCode } from '#client/gateway/reading'
import type { HttpAnswer } from '#ports'
import { UsageError } from '#protocol/errors'
import { patterns, version } from '#protocol/words'

export class Fault extends Error {}

/** The rule could not be examined. */
export class NotSeen extends Error {}
export function notSeen(why: string): never {
  throw new NotSeen(why)
}
/** What we refuse ourselves, such as more items than a window holds, was not sent. */
export const isUnseen = (error: unknown): error is Error =>
  error instanceof NotSeen || error instanceof UsageError

/**
 * A member by its dotted path. The spec names few: of `~total*bond|bond` it is the first whose name
 * holds these words, or else that one.
 */
export function at(json: unknown, path: string): unknown {
  return path.split('.').reduce<unknown>((here, step) => {
    if (!is.structure(here)) return undefined
    const name = step.startsWith('~') ? nameLike(Object.keys(here), step.slice(1)) : step
    return Object.hasOwn(here, name) ? (here as Record<string, unknown>)[name] : undefined
  }, json)
}

const nameLike = (names: readonly string[], forms: string) =>
  forms
    .split('|')
    .map((form) => names.find((one) => new RegExp(form.replace('*', '.*'), 'i').test(one)))
    .find(is.text) ?? ''

export function listAt(json: unknown, path: string): readonly unknown[] {
  const found = at(json, path)
  return Array.isArray(found) ? found : []
}

/** These come from the application itself, never from what stands before it (§7 rule 1). */
const ownStatuses = [200, 202, 400, 403, 409, 422]
export const malformed: readonly number[] = [400, 422]
/** A malformed part of a path is as good as one that names nothing. */
export const notServed: readonly number[] = [400, 404, 422]

/** Members by their paths, of which a name may hold several: their value, or a test of it. */
export type Expected = Readonly<Record<string, unknown>>

export type Demand = readonly number[] | Expected | boolean | undefined

type Answer = Pick<Seen, 'sent' | 'status' | 'headers' | 'text' | 'json'>

export class Seen {
  readonly sent!: string
  readonly status!: number
  readonly headers!: HttpAnswer['headers']
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

  get results() {
    return listAt(this.json, 'results')
  }

  get codes() {
    return this.results.map((one) => at(one, 'status_code'))
  }

  get came() {
    const code = this.at('error.code')
    if (is.text(code)) return `${this.status} ${plainCode(code)}`
    return this.json === undefined ? `${this.status} without JSON` : String(this.status)
  }

  /** For a rule about something else than the status, which another check tells. */
  given(...statuses: readonly number[]): this {
    if (statuses.includes(this.status)) return this
    throw this.unanswered()
  }

  unanswered(more = '') {
    return new NotSeen(`${this.sent} was answered ${this.came}${more}`)
  }

  fault(what: string) {
    return new Fault(`sent ${this.sent}; got ${this.came}${what}`)
  }

  must(be: Demand) {
    if (Array.isArray(be)) {
      const isOwn = ownStatuses.includes(this.status)
      if (!be.includes(this.status) || (isOwn && this.json === undefined))
        throw this.fault(`, expected ${be.join(' or ')}`)
    } else if (typeof be === 'object') {
      for (const [paths, wanted] of Object.entries(be))
        for (const path of paths.split(' ')) this.#holds(path, wanted)
    } else if (be === false) throw this.fault(this.status < 300 ? `: ${shown(this.json)}` : '')
  }

  #holds(path: string, wanted: unknown) {
    const value = this.at(path)
    if (typeof wanted === 'function' ? wanted(value) : value === wanted) return
    throw this.fault(`, in which ${path.replace(/~(.*\|)?/, '')} is ${shown(value)}`)
  }
}

/** Without what may be of a signature (R5). */
const shown = (value: unknown) =>
  (JSON.stringify(value) ?? 'missing').replaceAll(/[0-9a-f]{64,}/gi, '…').slice(0, 200)

export function integer(value: unknown) {
  if (is.uint(value)) return value
  return Number.isSafeInteger(value) && Number(value) >= 0 ? String(value) : undefined
}

/** Milliseconds of a time: RFC 3339 in any form, or Unix seconds or milliseconds; else `NaN`. */
export function timeMs(value: unknown) {
  const number = Number(integer(value))
  if (!Number.isNaN(number)) return number < 1e11 ? number * 1_000 : number
  // Date.parse reads no more than milliseconds everywhere.
  return is.text(value) ? Date.parse(value.replace(/(\.\d{3})\d+/, '$1')) : Number.NaN
}

/** Two routes may tell one instant with other precision. */
export const sameInstant = (one: unknown) => (other: unknown) =>
  Math.abs(timeMs(one) - timeMs(other)) < 1_000

const fits =
  (form: RegExp) =>
  (value: unknown): value is string =>
    typeof value === 'string' && form.test(value)

export const is = {
  address: fits(patterns.address),
  hash: fits(patterns.bytes32),
  uuid: fits(new RegExp(patterns.uuid, 'i')),
  uint: fits(patterns.uint256),
  text: fits(/^/),
  word: fits(/./s),
  flag: (value: unknown) => typeof value === 'boolean',
  instant: (value: unknown) => !Number.isNaN(timeMs(value)),
  structure: (value: unknown): value is object => typeof value === 'object' && value !== null,
  nullable: (value: unknown) => value === null || (is.structure(value) && !Array.isArray(value)),
  there: (value: unknown) => value !== undefined,
  /** Another builder may tell null for what is not there. */
  given: (value: unknown) => value !== undefined && value !== null,
  absent: (value: unknown) => value === undefined || value === null,
  /** §9: exactly these three. */
  version: (value: unknown) =>
    Object.keys({ ...version, ...Object(value) }).every(
      (name) => at(value, name) === at(version, name),
    ),
} as const

/** §2.5, §2.7 */
export const acknowledgement: Expected = {
  candidate_id: is.uuid,
  status: is.word,
  received_at: is.instant,
  status_url: is.there,
}

export const replayOf = ({ ack, id }: { readonly ack: Seen; readonly id: string }): Expected => ({
  candidate_id: id,
  received_at: sameInstant(ack.at('received_at')),
})

/** At any time (§2.6, §2.7). */
export const statusMembers: Expected = { status: is.word, 'submission failure': is.nullable }
