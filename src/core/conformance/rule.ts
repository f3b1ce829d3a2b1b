import { plainCode } from '../client/gateway/reading.js'
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

export function listAt(json: unknown, ...path: readonly (string | number)[]): readonly unknown[] {
  const found = at(json, ...path)
  return Array.isArray(found) ? found : []
}

export const codesOf = (seen: Seen): readonly unknown[] =>
  listAt(seen.json, 'results').map((one) => at(one, 'status_code'))

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
