/**
 * R8 where each run of a journal is read by itself, and runs come in any order. Within a run the
 * order of records is known; between runs one thing came before another only where a record of the
 * other names it. A pair of authorizations is broken where no order that is left explains it, and
 * holds where every one does; what lies between cannot be told, and is counted.
 */
import type { Claim, JournalFact, RuleReport } from './facts.js'
import {
  authorizationKey,
  hasExpired,
  type RivalJudge,
  reportPair,
  type Unordered,
} from './journal-rules.js'

/** Pairs of a round that are looked at; of further ones it is said that nothing orders them (R17). */
const mostPairs = 50_000
/** Replacements of replacements that are followed. */
const longestChain = 16
const never = Number.POSITIVE_INFINITY

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

interface Standing {
  /** As it was signed or given out; a copy, or a signature that comes back, has other times. */
  claim: Claim
  /** Where it was signed or given out; absent where only copies of it are left. */
  log: string | undefined
  at: number
  isSigned: boolean
}

/** Whether one that came first stood in nobody's way: in every order that is left, in some, in none. */
type Excuse = 'surely' | 'perhaps' | 'none'

interface RunOrder {
  readonly standings: Map<string, Standing>
  /** By authorization and run. */
  readonly traces: Map<string, Map<string, Trace>>
  /** Ids by what they authorize. */
  readonly idsOf: Map<string, string[]>
  readonly facts: Map<string, number>
  /** What is to replace an authorization. */
  readonly replacers: Map<string, Standing[]>
}

/**
 * Each fact costs its own size; `end` at most `mostPairs` looks a round. Sources: robustness R7,
 * R8, R13; contract §1.
 */
export function createRunOrder({ count }: RuleReport): RivalJudge {
  const order: RunOrder = {
    standings: new Map(),
    traces: new Map(),
    idsOf: new Map(),
    facts: new Map(),
    replacers: new Map(),
  }
  return {
    fact(log, fact) {
      const at = (order.facts.get(log) ?? 0) + 1
      order.facts.set(log, at)
      if (fact.kind === 'offered' || fact.kind === 'signed') {
        if (!order.standings.has(fact.claim.id)) count('R8')
        const isCopy =
          fact.kind === 'signed' &&
          (fact.origin === 'copied' || fact.origin === 'imported and copied')
        const standing = enter(order, fact.claim, log, at, isCopy)
        if (fact.kind === 'signed') standing.isSigned = true
      } else if (fact.kind === 'attempt') {
        for (const id of fact.ids) {
          const trace = traceOf(order, id, log, at)
          trace.pending += 1
          mark(trace, at)
        }
      } else if (fact.kind !== 'reserved') note(traceOf(order, fact.id, log, at), fact, at)
    },
    end(report) {
      const unordered = { R7: 0, R8: 0 }
      for (const rounds of byQuestion(order).values()) {
        // One that does not tell its round counts in every one.
        const roundless = (rounds.get('') ?? []).sort(byTime)
        const isOfRound = (one: Standing, other: Standing) =>
          one.claim.round !== undefined || other.claim.round !== undefined
        for (const [round, members] of rounds) {
          const look = { order, report, unordered, left: mostPairs, unknown: new Set<Standing>() }
          if (round === '') judgeRound({ ...look, isCounted: () => true }, roundless)
          else
            judgeRound({ ...look, isCounted: isOfRound }, [...members.sort(byTime), ...roundless])
        }
      }
      return unordered
    },
  }
}

function listIn<K, T>(lists: Map<K, T[]>, key: K): T[] {
  const list = lists.get(key) ?? []
  lists.set(key, list)
  return list
}

function mapIn<K, L, T>(maps: Map<K, Map<L, T>>, key: K): Map<L, T> {
  const map = maps.get(key) ?? new Map<L, T>()
  maps.set(key, map)
  return map
}

function byQuestion({ standings }: RunOrder): Map<string, Map<string, Standing[]>> {
  const questions = new Map<string, Map<string, Standing[]>>()
  for (const one of standings.values()) {
    const { chainId, question, round = '' } = one.claim
    listIn(mapIn(questions, `${chainId} ${question}`), round).push(one)
  }
  return questions
}

// — what the facts say —

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

function enter(order: RunOrder, claim: Claim, log: string, at: number, isCopy: boolean): Standing {
  const known = order.standings.get(claim.id)
  const one: Standing = known ?? { claim, log: undefined, at: 0, isSigned: false }
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

// — what came before what —

const tracesOf = ({ traces }: RunOrder, { claim }: Standing) => [
  ...(traces.get(claim.id) ?? new Map<string, Trace>()),
]

/** Whether a record of the run names the authorization at that position or before. */
const isNamedBy = ({ traces }: RunOrder, id: string, log: string | undefined, at: number) =>
  log !== undefined && (traces.get(id)?.get(log)?.first ?? never) <= at

/** Whether one came before the other: by a record that names it, or by what it is to replace. */
function isBefore(order: RunOrder, one: Standing, other: Standing): boolean {
  let later: Standing | undefined = other
  for (let step = 0; later !== undefined && step < longestChain; step += 1) {
    if (isNamedBy(order, one.claim.id, later.log, later.at)) return true
    const { supersedes }: Claim = later.claim
    later = supersedes === undefined ? undefined : order.standings.get(supersedes)
  }
  return false
}

/** Whether `at` of a run, where something ended, may have come before `second`. */
function cameBefore(order: RunOrder, second: Standing, log: string, at: number): Excuse {
  if (at === never) return 'none'
  if (log === second.log) return at < second.at ? 'surely' : 'none'
  return isNamedBy(order, second.claim.id, log, at) ? 'none' : 'perhaps'
}

const strongest = (excuses: readonly Excuse[]): Excuse =>
  excuses.includes('surely') ? 'surely' : excuses.includes('perhaps') ? 'perhaps' : 'none'

const endedBefore = (
  order: RunOrder,
  one: Standing,
  second: Standing,
  end: 'closedAt' | 'abandonedAt',
): Excuse[] =>
  tracesOf(order, one).map(([log, trace]) => cameBefore(order, second, log, trace[end]))

function wasRefused(order: RunOrder, first: Standing, second: Standing): Excuse {
  const all = tracesOf(order, first).filter(([, { marks }]) => marks.length > 0)
  const here = all
    .find(([log]) => log === second.log)?.[1]
    .marks.findLast(({ at }) => at < second.at)
  if (here?.isUnsettled === true || here?.isAccepted === true) return 'none'
  if (here?.isRefused === true) return all.length === 1 ? 'surely' : 'perhaps'
  const isElsewhere = all.some(
    ([log, { refusedAt }]) =>
      log !== second.log && cameBefore(order, second, log, refusedAt) === 'perhaps',
  )
  return isElsewhere ? 'perhaps' : 'none'
}

/**
 * Whether an offer that is still out was in nobody's way all the same: then it may have replaced
 * another until it was given up.
 */
function wasInNoWay(order: RunOrder, offer: Standing, second: Standing): boolean {
  const { id, round } = offer.claim
  const sharesRound =
    round === undefined || second.claim.round === undefined || round === second.claim.round
  return (
    second.claim.supersedes === id ||
    !sharesRound ||
    hasExpired(offer.claim, second.claim.atMs) ||
    order.replacers.has(id) ||
    endedBefore(order, offer, second, 'closedAt').some((excuse) => excuse !== 'none')
  )
}

function wasReplaced(order: RunOrder, first: Standing, second: Standing): Excuse {
  let found: Excuse = 'none'
  for (const replacer of order.replacers.get(first.claim.id) ?? []) {
    if (replacer === second) return 'surely'
    if (isBefore(order, second, replacer)) continue
    // An offer that was given up leaves what it was to replace as it was.
    const end = replacer.isSigned
      ? 'none'
      : strongest(endedBefore(order, replacer, second, 'abandonedAt'))
    if (end === 'surely') continue
    if (end === 'none' && isBefore(order, replacer, second)) return 'surely'
    if (end === 'none' || wasInNoWay(order, replacer, second)) found = 'perhaps'
  }
  return found
}

/** If `first` came first: whether it had ended, or been replaced, when `second` came. */
function excuseOf(order: RunOrder, first: Standing, second: Standing): Excuse {
  const excuses = [wasReplaced(order, first, second), wasRefused(order, first, second)]
  // What came in under two ids ends under either.
  for (const id of order.idsOf.get(authorizationKey(first.claim)) ?? [])
    for (const [log, { closedAt }] of order.traces.get(id) ?? [])
      excuses.push(cameBefore(order, second, log, closedAt))
  // What was signed stays signed, whatever became of its offer.
  if (!first.isSigned) excuses.push(...endedBefore(order, first, second, 'abandonedAt'))
  return strongest(excuses)
}

function excuseOfPair(order: RunOrder, one: Standing, other: Standing): Excuse {
  if (authorizationKey(one.claim) === authorizationKey(other.claim)) return 'surely'
  if (hasExpired(one.claim, other.claim.atMs) || hasExpired(other.claim, one.claim.atMs))
    return 'surely'
  const oneFirst = isBefore(order, other, one) ? undefined : excuseOf(order, one, other)
  const otherFirst = isBefore(order, one, other) ? undefined : excuseOf(order, other, one)
  if (oneFirst === undefined || otherFirst === undefined) return oneFirst ?? otherFirst ?? 'none'
  if (oneFirst === otherFirst) return oneFirst
  return 'perhaps'
}

// — the pairs of a round —

/** Looking at the pairs of one round. */
interface RoundLook {
  readonly order: RunOrder
  readonly report: RuleReport
  readonly unordered: Unordered
  /** Leaves out pairs that another round has. */
  readonly isCounted: (one: Standing, other: Standing) => boolean
  /** Those that some run shows with an outcome that was not known. */
  readonly unknown: Set<Standing>
  /** Pairs that may still be looked at. */
  left: number
}

function judgeRound(round: RoundLook, members: readonly Standing[]): void {
  const { order, unknown } = round
  for (const one of members)
    if (tracesOf(order, one).some(([, { marks }]) => marks.some((each) => each.isUnsettled)))
      unknown.add(one)
  const logs = byLog(members)
  for (const own of logs) judgeRun(round, own)
  // Of two that nothing ends or replaces no order explains anything, so they are looked at first.
  const endless = new Set(members.filter((one) => !mayEnd(order, one)))
  const before = round.left
  const isAll =
    lookAcross(round, byLog([...endless]), () => true) &&
    lookAcross(round, logs, (one, other) => !endless.has(one) || !endless.has(other))
  if (!isAll)
    cannotOrder(round, Math.max(0, pairsAcross(logs) - (before - round.left)), unknown.size > 0)
}

/** In one run what has surely ended, and is not sent again, stands in the way of nothing later. */
function judgeRun(round: RoundLook, own: Standing[]): void {
  const standing = new Set<Standing>()
  for (const second of own.sort((one, other) => one.at - other.at)) {
    if (round.left <= 0) cannotOrder(round, standing.size, round.unknown.size > 0)
    else
      for (const first of standing) {
        if (!round.isCounted(first, second)) round.left -= 1
        else if (look(round, first, second) === 'surely' && isQuiet(round, first, second)) {
          standing.delete(first)
          // It is looked at no more, so it is none of those that could be too many.
          round.left += 1
        }
      }
    standing.add(second)
  }
}

const isQuiet = ({ order }: RoundLook, first: Standing, second: Standing) => {
  const trace = order.traces.get(first.claim.id)?.get(second.log ?? '')
  return (trace?.marks.at(-1)?.at ?? 0) < second.at
}

/** Whether something in some run ends it or takes its place. */
const mayEnd = (order: RunOrder, one: Standing) =>
  order.replacers.has(one.claim.id) ||
  tracesOf(order, one).some(
    ([, { closedAt, abandonedAt, refusedAt }]) =>
      Math.min(closedAt, abandonedAt, refusedAt) < never,
  )

/** Looks at the pairs of different runs; true where every one was looked at. */
function lookAcross(
  round: RoundLook,
  logs: readonly (readonly Standing[])[],
  isWanted: (one: Standing, other: Standing) => boolean,
): boolean {
  for (const [index, own] of logs.entries())
    for (const foreign of logs.slice(index + 1))
      for (const one of own)
        for (const other of foreign) {
          if (round.left <= 0) return false
          if (round.isCounted(one, other) && isWanted(one, other)) look(round, one, other)
          else round.left -= 1
        }
  return true
}

function look(round: RoundLook, one: Standing, other: Standing): Excuse {
  round.left -= 1
  const excuse = excuseOfPair(round.order, one, other)
  if (excuse === 'none') reportBroken(round, one, other)
  if (excuse === 'perhaps')
    cannotOrder(round, 1, round.unknown.has(one) || round.unknown.has(other))
  return excuse
}

function cannotOrder({ unordered }: RoundLook, pairs: number, isUnknown: boolean): void {
  unordered.R8 += pairs
  if (isUnknown) unordered.R7 += pairs
}

function reportBroken({ order, report }: RoundLook, one: Standing, other: Standing): void {
  const isTurned =
    isBefore(order, other, one) || (!isBefore(order, one, other) && byTime(other, one) < 0)
  const [first, second] = isTurned ? [other, one] : [one, other]
  const last = tracesOf(order, first).map(([log, { marks }]) =>
    log === second.log ? marks.findLast(({ at }) => at < second.at) : marks.at(-1),
  )
  const wasUnknown =
    last.some((each) => each?.isUnsettled === true) &&
    !last.some((each) => each?.isAccepted === true)
  reportPair(report, first.claim.id, second.claim.id, wasUnknown)
}

/** By the run that each was made in; what only copies are left of shares none with others. */
function byLog(members: readonly Standing[]): Standing[][] {
  const logs = new Map<string, Standing[]>()
  for (const one of members) listIn(logs, one.log ?? ` ${one.claim.id}`).push(one)
  return [...logs.values()]
}

function pairsAcross(logs: readonly (readonly Standing[])[]): number {
  const pairs = (count: number) => (count * (count - 1)) / 2
  const sizes = logs.map(({ length }) => length)
  const sum = (all: readonly number[]) => all.reduce((total, one) => total + one, 0)
  return pairs(sum(sizes)) - sum(sizes.map(pairs))
}

/** The order in which things are reported, whatever order the runs were read in. */
const byTime = (one: Standing, other: Standing): number =>
  one.claim.atMs - other.claim.atMs ||
  (one.claim.id < other.claim.id ? -1 : one.claim.id > other.claim.id ? 1 : 0)
