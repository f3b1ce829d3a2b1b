/**
 * One signature a round (R8), where each run of a journal is read by itself, and runs come in any
 * order. Within a run the order of records is known; between runs one thing came before another
 * only where a record of the other names it. A pair of authorizations is broken where no order that
 * is left explains it, and holds where every one does. What lies between cannot be known, and is
 * counted.
 */
import type { RuleReport } from './facts.js'
import { type RivalJudge, reportPair, type Unordered } from './journal-rules.js'
import { type Excuse, excuseOfPair, isBefore } from './run-excuses.js'
import {
  byQuestion,
  listIn,
  never,
  newRunOrder,
  type RunOrder,
  type StandingFact,
  takeFact,
  tracesOf,
} from './run-traces.js'

/**
 * Pairs of a round that are examined; of further ones it is said that nothing orders them (R17).
 */
const mostPairs = 50_000

/**
 * Each fact costs its own size; `end` at most `mostPairs` looks a round. Sources: robustness R7,
 * R8, R13; contract §1.
 */
export function createRunOrder({ count }: RuleReport): RivalJudge {
  const order = newRunOrder()
  return {
    fact(log, fact) {
      if (takeFact(order, log, fact)) count('R8')
    },
    end(report) {
      const unordered = { R7: 0, R8: 0 }
      for (const rounds of byQuestion(order).values()) {
        // One that does not tell its round counts in every one.
        const roundless = (rounds.get('') ?? []).sort(byTime)
        const isOfRound = (one: StandingFact, other: StandingFact) =>
          one.claim.round !== undefined || other.claim.round !== undefined
        for (const [round, members] of rounds) {
          const look = {
            order,
            report,
            unordered,
            left: mostPairs,
            unknown: new Set<StandingFact>(),
          }
          if (round === '') judgeRound({ ...look, isCounted: () => true }, roundless)
          else
            judgeRound({ ...look, isCounted: isOfRound }, [...members.sort(byTime), ...roundless])
        }
      }
      return unordered
    },
  }
}

/** Looking at the pairs of one round. */
interface RoundLook {
  readonly order: RunOrder
  readonly report: RuleReport
  readonly unordered: Unordered
  /** Leaves out pairs that another round has. */
  readonly isCounted: (one: StandingFact, other: StandingFact) => boolean
  /** Those that some run shows with an outcome that was not known. */
  readonly unknown: Set<StandingFact>
  /** Pairs that may still be examined. */
  left: number
}

function judgeRound(round: RoundLook, members: readonly StandingFact[]): void {
  const { order, unknown } = round
  for (const one of members)
    if (tracesOf(order, one).some(([, { marks }]) => marks.some((each) => each.isUnsettled)))
      unknown.add(one)
  const logs = byLog(members)
  for (const own of logs) judgeRun(round, own)
  // Of two that nothing ends or replaces no order explains anything, so they are examined first.
  const endless = new Set(members.filter((one) => !mayEnd(order, one)))
  const before = round.left
  const isAll =
    lookAcross(round, byLog([...endless]), () => true) &&
    lookAcross(round, logs, (one, other) => !endless.has(one) || !endless.has(other))
  if (!isAll)
    cannotOrder(round, Math.max(0, pairsAcross(logs) - (before - round.left)), unknown.size > 0)
}

/** In one run what has surely ended, and is not sent again, stands in the way of nothing later. */
function judgeRun(round: RoundLook, own: StandingFact[]): void {
  const standing = new Set<StandingFact>()
  for (const second of own.sort((one, other) => one.at - other.at)) {
    if (round.left <= 0) cannotOrder(round, standing.size, round.unknown.size > 0)
    else
      for (const first of standing) {
        if (!round.isCounted(first, second)) round.left -= 1
        else if (look(round, first, second) === 'surely' && isQuiet(round, first, second)) {
          standing.delete(first)
          // It is examined no more, so it is none of those that could be too many.
          round.left += 1
        }
      }
    standing.add(second)
  }
}

const isQuiet = ({ order }: RoundLook, first: StandingFact, second: StandingFact) => {
  const trace = order.traces.get(first.claim.id)?.get(second.log ?? '')
  return (trace?.marks.at(-1)?.at ?? 0) < second.at
}

/** Whether something in some run ends it or takes its place. */
const mayEnd = (order: RunOrder, one: StandingFact) =>
  order.replacers.has(one.claim.id) ||
  tracesOf(order, one).some(
    ([, { closedAt, abandonedAt, refusedAt }]) =>
      Math.min(closedAt, abandonedAt, refusedAt) < never,
  )

/** Looks at the pairs of different runs; true where every one was examined. */
function lookAcross(
  round: RoundLook,
  logs: readonly (readonly StandingFact[])[],
  isWanted: (one: StandingFact, other: StandingFact) => boolean,
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

function look(round: RoundLook, one: StandingFact, other: StandingFact): Excuse {
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

function reportBroken({ order, report }: RoundLook, one: StandingFact, other: StandingFact): void {
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
function byLog(members: readonly StandingFact[]): StandingFact[][] {
  const logs = new Map<string, StandingFact[]>()
  for (const one of members) listIn(logs, one.log ?? ` ${one.claim.id}`).push(one)
  return [...logs.values()]
}

function pairsAcross(logs: readonly (readonly StandingFact[])[]): number {
  const pairs = (count: number) => (count * (count - 1)) / 2
  const sizes = logs.map(({ length }) => length)
  const sum = (all: readonly number[]) => all.reduce((total, one) => total + one, 0)
  return pairs(sum(sizes)) - sum(sizes.map(pairs))
}

/** The order in which things are reported, whatever order the runs were read in. */
const byTime = (one: StandingFact, other: StandingFact): number =>
  one.claim.atMs - other.claim.atMs ||
  (one.claim.id < other.claim.id ? -1 : one.claim.id > other.claim.id ? 1 : 0)
