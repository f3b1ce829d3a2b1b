import type { HistoryRule, JournalFact, RuleReport, StoreFact, Violation } from './facts.js'
import { historyRules } from './facts.js'
import { createJournalRules } from './journal-rules.js'
import { checkStoreFact, newStoreRules, type StoreRules } from './store-rules.js'

export interface RuleVerdict {
  readonly violations: readonly Violation[]
  readonly broken: number
  readonly checked: Readonly<Record<HistoryRule, number>>
}

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
    durable(fact: StoreFact | JournalFact): void {
      if (isJournalFact(fact)) onJournalFact(fact)
      else checkStoreFact(store, fact)
    },
    verdict: (): RuleVerdict => ({ violations: [...listed], broken, checked: { ...checked } }),
  }
}
