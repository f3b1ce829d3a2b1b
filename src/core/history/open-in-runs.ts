/**
 * R8 where each run of a journal is told by itself, and runs come in any order. Within a run the
 * order of records is known; between runs one thing came before another only where a record of the
 * other names it. A pair of authorizations is broken where no order that is left explains it, and
 * holds where every one does; what lies between cannot be told, and is counted.
 */
import type { Claim, Findings } from './events.js'
import type { RivalJudge, Unordered } from './journal-rules.js'
import { authorizationOf, isOver, isSame, tellPair } from './rivals.js'

/**
 * Pairs of one round of a question that are looked at one by one; of further ones it is said that
 * nothing orders them (R17).
 */
const mostPairs = 50_000

/** Replacements of replacements that are followed. */
const longestChain = 16

/** What one run has on record of one authorization; places count the run's facts from 1. */
interface Trace {
  /** Where it is named first: it was there by then. */
  readonly first: number
  closedAt: number
  abandonedAt: number
  /** Where it first stood refused, with no attempt beside that may have been admitted. */
  refusedAt: number
  /** What the attempts of this run amount to, after each change. */
  readonly marks: {
    readonly at: number
    readonly isRefused: boolean
    readonly isUnsettled: boolean
    readonly isAccepted: boolean
  }[]
  pending: number
  uncertain: number
  accepted: number
  refused: number
}

interface Standing {
  /**
   * As it was signed or given out; what is recorded when a signature comes back, or is copied, has
   * other times.
   */
  claim: Claim
  /** Where it was signed or given out; absent where only copies of it are left. */
  log: string | undefined
  at: number
  isSigned: boolean
}

/** Why one that came first stood in nobody's way: in every order that is left, in some, in none. */
type Excuse = 'surely' | 'perhaps' | 'none'

/**
 * Each fact costs its own size; `end` at most `mostPairs` looks a round. Sources: robustness R7,
 * R8, R13; contract §1.
 */
export function createRunsJudge({ count }: Findings): RivalJudge {
  const standings = new Map<string, Standing>()
  const traces = new Map<string, Map<string, Trace>>()
  const idsOf = new Map<string, string[]>()
  const facts = new Map<string, number>()
  const replacers = new Map<string, Standing[]>()

  const traceOf = (id: string, log: string, at: number): Trace => {
    const known = traces.get(id)?.get(log)
    if (known) return known
    const never = Number.POSITIVE_INFINITY
    const counts = { pending: 0, uncertain: 0, accepted: 0, refused: 0 }
    const made: Trace = {
      first: at,
      closedAt: never,
      abandonedAt: never,
      refusedAt: never,
      marks: [],
      ...counts,
    }
    const all = traces.get(id) ?? new Map<string, Trace>()
    traces.set(id, all.set(log, made))
    return made
  }

  const mark = (trace: Trace, at: number) => {
    const { pending, uncertain, accepted, refused } = trace
    const isUnsettled = accepted === 0 && pending + uncertain > 0
    const isRefused = refused > 0 && accepted + pending + uncertain === 0
    if (isRefused) trace.refusedAt = Math.min(trace.refusedAt, at)
    trace.marks.push({ at, isRefused, isUnsettled, isAccepted: accepted > 0 })
  }

  const enter = (claim: Claim, log: string, at: number, isCopy: boolean): Standing => {
    const known = standings.get(claim.id)
    const one: Standing = known ?? { claim, log: undefined, at: 0, isSigned: false }
    if (!known) {
      count('R8')
      standings.set(claim.id, one)
      const ids = idsOf.get(authorizationOf(claim))
      if (ids) ids.push(claim.id)
      else idsOf.set(authorizationOf(claim), [claim.id])
    }
    traceOf(claim.id, log, at)
    if (!isCopy && (one.log === undefined || (one.log === log && at < one.at))) {
      one.claim = claim
      one.log = log
      one.at = at
    }
    const { supersedes } = claim
    if (supersedes === undefined) return one
    traceOf(supersedes, log, at)
    const others = replacers.get(supersedes)
    if (!others) replacers.set(supersedes, [one])
    else if (!others.includes(one)) others.push(one)
    return one
  }

  /**
   * Whether a record of the run names the authorization at that place or before: then it was there.
   */
  const isNamedBy = (id: string, log: string | undefined, at: number) =>
    log !== undefined && (traces.get(id)?.get(log)?.first ?? Number.POSITIVE_INFINITY) <= at
  /** By a record that names it, or by what it is to replace. */
  const isBefore = (one: Standing, other: Standing): boolean => {
    let later: Standing | undefined = other
    for (let step = 0; later !== undefined && step < longestChain; step += 1) {
      if (isNamedBy(one.claim.id, later.log, later.at)) return true
      later =
        later.claim.supersedes === undefined ? undefined : standings.get(later.claim.supersedes)
    }
    return false
  }

  /**
   * Whether `at` of a run, where something ended, may have come before `second`: surely, perhaps or
   * not.
   */
  const cameBefore = (second: Standing, log: string, at: number): Excuse => {
    if (at === Number.POSITIVE_INFINITY) return 'none'
    if (log === second.log) return at < second.at ? 'surely' : 'none'
    return isNamedBy(second.claim.id, log, at) ? 'none' : 'perhaps'
  }

  const wasRefused = (first: Standing, second: Standing): Excuse => {
    const all = [...(traces.get(first.claim.id) ?? [])].filter(([, { marks }]) => marks.length > 0)
    const here = all
      .find(([log]) => log === second.log)?.[1]
      .marks.findLast(({ at }) => at < second.at)
    if (here?.isUnsettled === true || here?.isAccepted === true) return 'none'
    if (here?.isRefused === true) return all.length === 1 ? 'surely' : 'perhaps'
    const elsewhere = all.some(
      ([log, { refusedAt }]) =>
        log !== second.log && cameBefore(second, log, refusedAt) === 'perhaps',
    )
    return elsewhere ? 'perhaps' : 'none'
  }

  /**
   * Whether an offer that is still out was in nobody's way all the same: then it may have replaced
   * another until it was given up.
   */
  const standsAside = (offer: Standing, second: Standing) =>
    second.claim.supersedes === offer.claim.id ||
    !shareRound(offer, second) ||
    isOver(offer.claim, second.claim.atMs) ||
    replacers.has(offer.claim.id) ||
    [...(traces.get(offer.claim.id) ?? [])].some(
      ([log, { closedAt }]) => cameBefore(second, log, closedAt) !== 'none',
    )

  const wasReplaced = (first: Standing, second: Standing): Excuse => {
    let found: Excuse = 'none'
    for (const replacer of replacers.get(first.claim.id) ?? []) {
      if (replacer === second) return 'surely'
      if (isBefore(second, replacer)) continue
      // An offer that was given up leaves what it was to replace as it was.
      const ends = replacer.isSigned
        ? []
        : [...(traces.get(replacer.claim.id) ?? [])].map(([log, { abandonedAt }]) =>
            cameBefore(second, log, abandonedAt),
          )
      if (ends.includes('surely')) continue
      if (!ends.includes('perhaps') && isBefore(replacer, second)) return 'surely'
      if (!ends.includes('perhaps') || standsAside(replacer, second)) found = 'perhaps'
    }
    return found
  }

  /** If `first` came first: whether it had ended, or been replaced, when `second` came. */
  const excuseOf = (first: Standing, second: Standing): Excuse => {
    const excuses = [wasReplaced(first, second), wasRefused(first, second)]
    // What came in under two ids ends under either.
    for (const id of idsOf.get(authorizationOf(first.claim)) ?? [])
      for (const [log, { closedAt }] of traces.get(id) ?? [])
        excuses.push(cameBefore(second, log, closedAt))
    // What was signed stays signed, whatever became of its offer.
    if (!first.isSigned)
      for (const [log, { abandonedAt }] of traces.get(first.claim.id) ?? [])
        excuses.push(cameBefore(second, log, abandonedAt))
    return excuses.includes('surely') ? 'surely' : excuses.includes('perhaps') ? 'perhaps' : 'none'
  }

  const judged = (one: Standing, other: Standing): Excuse => {
    if (isSame(one.claim, other.claim)) return 'surely'
    if (isOver(one.claim, other.claim.atMs) || isOver(other.claim, one.claim.atMs)) return 'surely'
    const oneFirst = isBefore(other, one) ? undefined : excuseOf(one, other)
    const otherFirst = isBefore(one, other) ? undefined : excuseOf(other, one)
    if (oneFirst === undefined || otherFirst === undefined) return oneFirst ?? otherFirst ?? 'none'
    if (oneFirst === 'none' && otherFirst === 'none') return 'none'
    return oneFirst === 'surely' && otherFirst === 'surely' ? 'surely' : 'perhaps'
  }

  const tellBroken = (tell: Findings, one: Standing, other: Standing) => {
    const isTurned = isBefore(other, one) || (!isBefore(one, other) && before(other, one) < 0)
    const [first, second] = isTurned ? [other, one] : [one, other]
    const all = [...(traces.get(first.claim.id) ?? [])]
    const last = all.map(([log, { marks }]) =>
      log === second.log ? marks.findLast(({ at }) => at < second.at) : marks.at(-1),
    )
    const wasUnknown =
      last.some((each) => each?.isUnsettled === true) &&
      !last.some((each) => each?.isAccepted === true)
    tellPair(tell, first.claim.id, second.claim.id, wasUnknown)
  }

  /**
   * Nothing in any run ends it or takes its place: of two such, no order explains anything, so they
   * are looked at first.
   */
  const mayEnd = ({ claim: { id } }: Standing) =>
    replacers.has(id) ||
    [...(traces.get(id)?.values() ?? [])].some(
      (one) => Math.min(one.closedAt, one.abandonedAt, one.refusedAt) < Number.POSITIVE_INFINITY,
    )

  /** Whether some run shows it with an outcome that was not known. */
  const mayBeUnknown = ({ claim: { id } }: Standing) =>
    [...(traces.get(id)?.values() ?? [])].some(({ marks }) =>
      marks.some(({ isUnsettled }) => isUnsettled),
    )

  /** Looks at the pairs of one round; `isCounted` leaves out those that another round has. */
  const judgeRound = (
    members: readonly Standing[],
    isCounted: (one: Standing, other: Standing) => boolean,
    tell: Findings,
    unordered: Unordered,
  ): void => {
    const unknown = new Set(members.filter(mayBeUnknown))
    let left = mostPairs
    const cannotOrder = (pairs: number, isUnknown: boolean) => {
      unordered.R8 += pairs
      if (isUnknown) unordered.R7 += pairs
    }
    const look = (one: Standing, other: Standing): Excuse => {
      left -= 1
      const verdict = judged(one, other)
      if (verdict === 'none') tellBroken(tell, one, other)
      if (verdict === 'perhaps') cannotOrder(1, unknown.has(one) || unknown.has(other))
      return verdict
    }
    /** True where every pair was looked at. */
    const lookAcross = (
      logs: readonly (readonly Standing[])[],
      isWanted: (one: Standing, other: Standing) => boolean,
    ): boolean => {
      for (const [index, own] of logs.entries())
        for (const foreign of logs.slice(index + 1))
          for (const one of own)
            for (const other of foreign) {
              if (left <= 0) return false
              if (isCounted(one, other) && isWanted(one, other)) look(one, other)
              else left -= 1
            }
      return true
    }

    const logs = byLog(members)
    for (const own of logs) {
      // In one run what has surely ended, and is not sent again, stands in the way of nothing that
      // follows.
      const standing = new Set<Standing>()
      for (const second of own.sort((one, other) => one.at - other.at)) {
        if (left <= 0) cannotOrder(standing.size, unknown.size > 0)
        else
          for (const first of standing) {
            if (!isCounted(first, second)) left -= 1
            else if (look(first, second) === 'surely' && isQuietSince(first, second)) {
              standing.delete(first)
              // It is looked at no more, so it is none of those that could be too many.
              left += 1
            }
          }
        standing.add(second)
      }
    }
    const endless = new Set(members.filter((one) => !mayEnd(one)))
    const before = left
    const isAll =
      lookAcross(byLog([...endless]), () => true) &&
      lookAcross(logs, (one, other) => !endless.has(one) || !endless.has(other))
    if (!isAll) cannotOrder(Math.max(0, pairsAcross(logs) - (before - left)), unknown.size > 0)
  }

  const isQuietSince = (first: Standing, second: Standing) =>
    (traces
      .get(first.claim.id)
      ?.get(second.log ?? '')
      ?.marks.at(-1)?.at ?? 0) < second.at

  return {
    fact(log, fact) {
      const at = (facts.get(log) ?? 0) + 1
      facts.set(log, at)
      switch (fact.kind) {
        case 'reserved':
          return
        case 'offered':
          enter(fact.claim, log, at, false)
          return
        case 'signed':
          enter(
            fact.claim,
            log,
            at,
            fact.origin === 'copied' || fact.origin === 'imported and copied',
          ).isSigned = true
          return
        case 'attempt':
          for (const id of fact.ids) {
            const trace = traceOf(id, log, at)
            trace.pending += 1
            mark(trace, at)
          }
          return
        case 'ended': {
          const trace = traceOf(fact.id, log, at)
          trace.pending = Math.max(0, trace.pending - 1)
          const outcome = fact.class
          if (outcome === 'uncertain' || outcome === 'accepted' || outcome === 'refused')
            trace[outcome] += 1
          mark(trace, at)
          return
        }
        case 'acknowledged': {
          const trace = traceOf(fact.id, log, at)
          trace.accepted += 1
          mark(trace, at)
          return
        }
        case 'terminal': {
          const trace = traceOf(fact.id, log, at)
          if (fact.closes) trace.closedAt = Math.min(trace.closedAt, at)
          return
        }
        case 'abandoned': {
          const trace = traceOf(fact.id, log, at)
          trace.abandonedAt = Math.min(trace.abandonedAt, at)
        }
      }
    },
    end(tell) {
      const questions = new Map<string, Map<string, Standing[]>>()
      for (const one of standings.values()) {
        const { chainId, question, round = '' } = one.claim
        const rounds = questions.get(`${chainId} ${question}`) ?? new Map<string, Standing[]>()
        questions.set(`${chainId} ${question}`, rounds)
        const known = rounds.get(round)
        if (known) known.push(one)
        else rounds.set(round, [one])
      }
      const unordered = { R7: 0, R8: 0 }
      for (const rounds of questions.values()) {
        // One that does not tell its round counts in every one.
        const roundless = (rounds.get('') ?? []).sort(before)
        const isOfRound = (one: Standing, other: Standing) =>
          one.claim.round !== undefined || other.claim.round !== undefined
        for (const [round, members] of rounds) {
          if (round === '') judgeRound(roundless, () => true, tell, unordered)
          else judgeRound([...members.sort(before), ...roundless], isOfRound, tell, unordered)
        }
      }
      return unordered
    },
  }
}

/** One that does not tell its round counts in every one. */
const shareRound = ({ claim: { round: one } }: Standing, { claim: { round: other } }: Standing) =>
  one === undefined || other === undefined || one === other

/**
 * By the run that each was made in; what only copies are left of has none in common with others.
 */
function byLog(members: readonly Standing[]): Standing[][] {
  const logs = new Map<string, Standing[]>()
  for (const one of members) {
    const log = one.log ?? ` ${one.claim.id}`
    const known = logs.get(log)
    if (known) known.push(one)
    else logs.set(log, [one])
  }
  return [...logs.values()]
}

function pairsAcross(logs: readonly (readonly Standing[])[]): number {
  const pairs = (count: number) => (count * (count - 1)) / 2
  const sizes = logs.map(({ length }) => length)
  return (
    pairs(sizes.reduce((sum, size) => sum + size, 0)) -
    sizes.reduce((sum, size) => sum + pairs(size), 0)
  )
}

/** The order in which things are told, whatever order the runs were read in; it decides nothing. */
const before = (one: Standing, other: Standing): number =>
  one.claim.atMs - other.claim.atMs ||
  (one.claim.id < other.claim.id ? -1 : one.claim.id > other.claim.id ? 1 : 0)
