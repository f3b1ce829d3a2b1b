/** What a check sees of an answer, and how it judges it. */
import { plainCode } from '../client/gateway/reading.js'
import type { Bench } from './bench.js'
import type { CatalogueEntry } from './catalogue.js'

/**
 * What was seen, for a report. Throws Fault where the rule is broken, NotSeen where it could not be
 * examined.
 */
export type Run = (bench: Bench) => Promise<string>
/** How the rules of these ids are examined. */
export type Runs = Readonly<Record<string, Run>>
export interface Rule extends CatalogueEntry {
  readonly run: Run
}

/**
 * The gateway breaks the rule. The message says what was sent and what came; never a signature
 * (R5).
 */
export class Fault extends Error {}

/** The rule could not be examined, and why. */
export class NotSeen extends Error {}

/** One answer as it came. */
export interface Seen {
  /** What was sent: method, route, and the field that was made wrong. */
  readonly sent: string
  readonly status: number
  readonly headers: Headers
  readonly text: string
  /** `undefined` where the body is not JSON. */
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

/** The status code of each result of a batch, as far as they have one. */
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

/**
 * Throws Fault unless the status is one of these, with JSON where it is the application's own; what
 * came, in few words.
 */
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

/** The answer, with what was wrong in what was sent. */
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
