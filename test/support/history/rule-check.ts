/**
 * The rule check (robustness §8, T14): durable facts in, a verdict out.
 */
import type { HistoryRule, JournalFact, RuleReport, StoreFact, Violation } from './facts.js'
import { historyRules } from './facts.js'
import { createJournalRules } from './journal-rules.js'
import { checkStoreFact, newStoreRules, type StoreRules } from './store-rules.js'

export interface RuleVerdict {
  /** The first of them, in the order in which they showed; empty where every rule holds. */
  readonly violations: readonly Violation[]
  /** How many there are in all. */
  readonly broken: number
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

/** A check that has seen nothing; takes facts as they happened. Sources: robustness R1-R4, R6-R8. */
export function createRuleCheck() {
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
  const onJournalFact = createJournalRules(report)
  return {
    report,
    store,
    /** A fact that is durable. */
    durable(fact: StoreFact | JournalFact): void {
      if (isJournalFact(fact)) onJournalFact(fact)
      else checkStoreFact(store, fact)
    },
    /** What all facts so far show; may be asked again after more of them. */
    verdict: (): RuleVerdict => ({ violations: [...listed], broken, checked: { ...checked } }),
  }
}
