/**
 * The rule check (robustness §8, T14): durable facts in, a verdict out.
 */
import type { HistoryRule, JournalFact, RuleReport, StoreFact, Violation } from './facts.js'
import { historyRules } from './facts.js'
import { createJournalRules, type RivalJudge, type Unordered } from './journal-rules.js'
import { createRunOrder } from './run-order.js'
import { checkStoreFact, newStoreRules, type StoreRules } from './store-rules.js'

export interface RuleVerdict {
  /** The first of them, in the order in which they showed; empty where every rule holds. */
  readonly violations: readonly Violation[]
  /** How many there are in all. */
  readonly broken: number
  /** Pairs of authorizations that no record orders, so that these rules cannot be known of them. */
  readonly unordered: Readonly<Unordered>
  /** How often each rule was asked. */
  readonly checked: Readonly<Record<HistoryRule, number>>
}

/** More violations are counted and not listed (R17). */
const mostListed = 100

const journalKinds: ReadonlySet<string> = new Set<JournalFact['kind']>([
  'reserved',
  'offered',
  'signed',
  'attempt',
  'ended',
  'receipt',
  'acknowledged',
  'terminal',
  'abandoned',
])
const isJournalFact = (fact: StoreFact | JournalFact): fact is JournalFact =>
  journalKinds.has(fact.kind)

/**
 * A check that has seen nothing; each log is read by itself, and logs in any order. `judgeOf` makes
 * another judge of signatures (R8) where all logs are read as it happened. Time and memory grow
 * with the facts, no faster. Throws nothing. Sources: robustness R1-R4, R6-R8.
 */
export function createRuleCheck(judgeOf?: (report: RuleReport) => RivalJudge) {
  const checked = Object.fromEntries(historyRules.map((rule) => [rule, 0])) as Record<
    HistoryRule,
    number
  >
  const listed: Violation[] = []
  let broken = 0
  const report: RuleReport = {
    count: (rule) => {
      checked[rule] += 1
    },
    broken(rule, detail) {
      broken += 1
      if (listed.length < mostListed) listed.push({ rule, detail })
    },
  }
  const store: StoreRules = newStoreRules(report)
  const judge = judgeOf?.(report) ?? createRunOrder(report)
  const journal = createJournalRules(report, judge, judgeOf !== undefined)
  return {
    report,
    store,
    /** A fact that is durable. */
    durable(log: string, fact: StoreFact | JournalFact): void {
      if (isJournalFact(fact)) journal.fact(log, fact)
      else checkStoreFact(store, fact)
    },
    /** Violations that have shown so far, before the end is known. */
    get broken() {
      return broken
    },
    /** What all facts so far show; may be asked again after more of them. */
    verdict(): RuleVerdict {
      const violations = [...listed]
      let all = broken
      const unordered = journal.end({
        count: () => undefined,
        broken(rule, detail) {
          all += 1
          if (violations.length < mostListed) violations.push({ rule, detail })
        },
      })
      return { violations, broken: all, unordered, checked: { ...checked } }
    },
  }
}
