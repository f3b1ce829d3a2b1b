/** What the runs of a journal say of each authorization, read in any order (R8). */

import type { Claim, JournalFact } from './facts.js'
import { authorizationKey } from './journal-rules.js'

/** Where something has not happened. */
export const never = Number.POSITIVE_INFINITY

/** What the attempts of a run amount to, after a change. */
interface Mark {
  readonly at: number
  readonly isRefused: boolean
  readonly isUnsettled: boolean
  readonly isAccepted: boolean
}

/** What one run has on record of one authorization; positions count the run's facts from 1. */
interface Trace {
  /** Where it is named first: it was there by then. */
  readonly first: number
  closedAt: number
  abandonedAt: number
  /** Where it first stood refused, with no attempt beside that may have been admitted. */
  refusedAt: number
  readonly marks: Mark[]
  pending: number
  uncertain: number
  accepted: number
  refused: number
}

/** An authorization, and where it was made. */
export interface StandingFact {
  /** As it was signed or given out; a copy, or a signature that comes back, has other times. */
  claim: Claim
  /** Where it was signed or given out; absent where only copies of it are left. */
  log: string | undefined
  at: number
  isSigned: boolean
}

/** All that the runs have reported so far. */
export interface RunOrder {
  readonly standings: Map<string, StandingFact>
  /** By authorization and run. */
  readonly traces: Map<string, Map<string, Trace>>
  /** Ids by what they authorize. */
  readonly idsOf: Map<string, string[]>
  readonly facts: Map<string, number>
  /** What is to replace an authorization. */
  readonly replacers: Map<string, StandingFact[]>
}

export const newRunOrder = (): RunOrder => ({
  standings: new Map(),
  traces: new Map(),
  idsOf: new Map(),
  facts: new Map(),
  replacers: new Map(),
})

/** Takes the next fact of a run; true where it is the first to make an authorization known. */
export function takeFact(order: RunOrder, log: string, fact: JournalFact): boolean {
  const at = (order.facts.get(log) ?? 0) + 1
  order.facts.set(log, at)
  switch (fact.kind) {
    case 'reserved':
    case 'receipt':
      return false
    case 'offered':
    case 'signed': {
      const isNew = !order.standings.has(fact.claim.id)
      const isCopy =
        fact.kind === 'signed' &&
        (fact.origin === 'copied' || fact.origin === 'imported and copied')
      const standing = enter(order, fact.claim, log, at, isCopy)
      if (fact.kind === 'signed') standing.isSigned = true
      return isNew
    }
    case 'attempt':
      for (const id of fact.ids) {
        const trace = traceOf(order, id, log, at)
        trace.pending += 1
        mark(trace, at)
      }
      return false
    default:
      note(traceOf(order, fact.id, log, at), fact, at)
      return false
  }
}

/** The list of a key, made where there is none. */
export function listIn<K, T>(lists: Map<K, T[]>, key: K): T[] {
  const list = lists.get(key) ?? []
  lists.set(key, list)
  return list
}

function mapIn<K, L, T>(maps: Map<K, Map<L, T>>, key: K): Map<L, T> {
  const map = maps.get(key) ?? new Map<L, T>()
  maps.set(key, map)
  return map
}

function traceOf({ traces }: RunOrder, id: string, log: string, at: number): Trace {
  const all = mapIn(traces, id)
  const known = all.get(log)
  if (known) return known
  const ends = { closedAt: never, abandonedAt: never, refusedAt: never }
  const counts = { pending: 0, uncertain: 0, accepted: 0, refused: 0 }
  const made: Trace = { first: at, ...ends, marks: [], ...counts }
  all.set(log, made)
  return made
}

function note(
  trace: Trace,
  fact: Extract<JournalFact, { kind: 'ended' | 'acknowledged' | 'terminal' | 'abandoned' }>,
  at: number,
): void {
  switch (fact.kind) {
    case 'terminal':
      if (fact.closes) trace.closedAt = Math.min(trace.closedAt, at)
      return
    case 'abandoned':
      trace.abandonedAt = Math.min(trace.abandonedAt, at)
      return
    case 'acknowledged':
      trace.accepted += 1
      break
    case 'ended': {
      trace.pending = Math.max(0, trace.pending - 1)
      const outcome = fact.class
      if (outcome === 'uncertain' || outcome === 'accepted' || outcome === 'refused')
        trace[outcome] += 1
    }
  }
  mark(trace, at)
}

function mark(trace: Trace, at: number): void {
  const { pending, uncertain, accepted, refused } = trace
  const isUnsettled = accepted === 0 && pending + uncertain > 0
  const isRefused = refused > 0 && accepted + pending + uncertain === 0
  if (isRefused) trace.refusedAt = Math.min(trace.refusedAt, at)
  trace.marks.push({ at, isRefused, isUnsettled, isAccepted: accepted > 0 })
}

function enter(
  order: RunOrder,
  claim: Claim,
  log: string,
  at: number,
  isCopy: boolean,
): StandingFact {
  const known = order.standings.get(claim.id)
  const one: StandingFact = known ?? { claim, log: undefined, at: 0, isSigned: false }
  if (!known) {
    order.standings.set(claim.id, one)
    listIn(order.idsOf, authorizationKey(claim)).push(claim.id)
  }
  traceOf(order, claim.id, log, at)
  if (!isCopy && (one.log === undefined || (one.log === log && at < one.at)))
    Object.assign(one, { claim, log, at })
  if (claim.supersedes === undefined) return one
  traceOf(order, claim.supersedes, log, at)
  const others = listIn(order.replacers, claim.supersedes)
  if (!others.includes(one)) others.push(one)
  return one
}

/** The traces of an authorization, each with its run. */
export const tracesOf = ({ traces }: RunOrder, { claim }: StandingFact) => [
  ...(traces.get(claim.id) ?? new Map<string, Trace>()),
]

/** By chain and question, then by round; '' for those that name none. */
export function byQuestion({ standings }: RunOrder): Map<string, Map<string, StandingFact[]>> {
  const questions = new Map<string, Map<string, StandingFact[]>>()
  const groupOf = sharing([...standings.values()].map(({ claim }) => claim))
  for (const one of standings.values())
    listIn(mapIn(questions, groupOf(one.claim)), one.claim.round ?? '').push(one)
  return questions
}

/** Questions that share a round are one: several ids may stand for one request (domain §10). */
function sharing(claims: readonly Claim[]): (claim: Claim) => string {
  const leaders = new Map<string, string>()
  const leaderOf = (name: string): string => {
    const next = leaders.get(name)
    if (next === undefined || next === name) return name
    const leader = leaderOf(next)
    leaders.set(name, leader)
    return leader
  }
  const questionOf = ({ chainId, question }: Claim) => `${chainId} ${question}`
  for (const claim of claims)
    if (claim.roundKey !== undefined)
      leaders.set(leaderOf(questionOf(claim)), leaderOf(`${claim.chainId} round ${claim.roundKey}`))
  return (claim) => leaderOf(questionOf(claim))
}
