/**
 * What a conformance check is: one rule of the service spec that can be seen from outside, and how
 * it is looked at.
 */
import { plainCode } from '../client/gateway/answer.js'
import type { Bench } from './bench.js'

/**
 * What a check may do. `read`: nothing that could be admitted. `admit`: signs, but only what cannot
 * execute. `execute`: a proposal that goes on chain. `overrun`: spends more than the budget, and
 * waits it out.
 */
export type Tier = 'read' | 'admit' | 'execute' | 'overrun'

export interface Rule {
  /** The § first: stable, what `--only` and reports name. */
  readonly id: string
  /** Where the spec says it. */
  readonly section: string
  /** What it says, in one sentence. */
  readonly says: string
  readonly tier: Tier
  /** About how many items it is charged (§8 rule 2), where others have not paid for it already. */
  readonly items: number
  /**
   * What was seen, for a report. Throws Fault where the rule is broken, NotSeen where it could not
   * be looked at.
   */
  readonly run: (bench: Bench) => Promise<string>
}

/**
 * The gateway breaks the rule. The message says what was sent and what came; never a signature
 * (R5).
 */
export class Fault extends Error {}

/** The rule could not be looked at, and why. */
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

/** A plain rule. */
export function rule(
  id: string,
  section: string,
  tier: Tier,
  says: string,
  run: Rule['run'],
  items = 1,
): Rule {
  return { id, section, says, tier, items, run }
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

/** An answer in few words: its status, and its code or that it is no JSON. */
export function came(seen: Seen): string {
  const code = at(seen.json, 'error', 'code')
  if (typeof code === 'string') return `${seen.status} ${plainCode(code)}`
  return seen.json === undefined ? `${seen.status} without JSON` : String(seen.status)
}

/** These come from the application itself, never from what stands before it (§7 rule 1). */
const ownRefusals = [400, 403, 409, 422]

/**
 * Throws Fault unless the status is one of these, a refusal in application JSON; what came, in few
 * words.
 */
export function expectStatus(seen: Seen, ...statuses: readonly number[]): string {
  if (
    statuses.includes(seen.status) &&
    (seen.json !== undefined || !ownRefusals.includes(seen.status))
  )
    return came(seen)
  throw new Fault(`sent ${seen.sent}; came ${came(seen)}, not ${statuses.join(' or ')}`)
}

/** Throws Fault with what was sent, unless it holds. */
export function expectThat(holds: boolean, seen: Pick<Seen, 'sent'>, otherwise: string): void {
  if (!holds) throw new Fault(`sent ${seen.sent}; ${otherwise}`)
}

/**
 * The answer where it has this status, for a rule about something else; NotSeen otherwise: another
 * check tells that.
 */
export function given(seen: Seen, ...statuses: readonly number[]): Seen {
  if (statuses.includes(seen.status)) return seen
  throw new NotSeen(`${seen.sent} was answered ${came(seen)}`)
}

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
