/**
 * The history checker (robustness §8, T14): events of any run in, a verdict out. Facts count from
 * the moment their log made them durable; whatever the world saw before that is a violation.
 */
import {
  type Findings,
  type HistoryEvent,
  type HistoryRule,
  historyRules,
  type JournalFact,
  type StoreFact,
  type Violation,
} from './events.js'
import { createJournalRules, type Unordered } from './journal-rules.js'
import { createStoreRules } from './store-rules.js'

export interface Verdict {
  /** The first of them, in the order in which they showed; empty where every rule holds. */
  readonly violations: readonly Violation[]
  /** How many there are in all. */
  readonly broken: number
  /**
   * Pairs of authorizations of which these rules cannot be told, because no record orders what the
   * runs hold; none in one stream.
   */
  readonly unordered: Readonly<Unordered>
  /** How often each rule was asked. */
  readonly checked: Readonly<Record<HistoryRule, number>>
}

export interface History {
  add(event: HistoryEvent): void
  /** A fact that is durable already, as a log holds it that is read from a disk. */
  durable(log: string, fact: StoreFact | JournalFact): void
  /** Violations that have shown so far, before the end is known. */
  readonly broken: number
  /** What all events so far show; may be asked again after more of them. */
  verdict(): Verdict
}

/** More are counted and not told (R17). */
const mostTold = 100

const journalKinds: ReadonlySet<string> = new Set<JournalFact['kind']>([
  'reserved',
  'offered',
  'signed',
  'attempt',
  'ended',
  'acknowledged',
  'terminal',
  'abandoned',
])
const isJournalFact = (fact: StoreFact | JournalFact): fact is JournalFact =>
  journalKinds.has(fact.kind)

/**
 * A checker that has seen nothing. `order`: `one` where events come as they happened, whatever log
 * they are of; `by log` where each log is told by itself. Time and memory grow with the events, no
 * faster. Throws nothing. Sources: robustness R1-R4, R6-R8.
 */
export function createHistory(order: 'one' | 'by log' = 'one'): History {
  const checked = Object.fromEntries(historyRules.map((rule) => [rule, 0])) as Record<
    HistoryRule,
    number
  >
  const told: Violation[] = []
  let broken = 0
  const findings: Findings = {
    count: (rule) => {
      checked[rule] += 1
    },
    broken(rule, detail) {
      broken += 1
      if (told.length < mostTold) told.push({ rule, detail })
    },
  }
  const store = createStoreRules(findings)
  const journal = createJournalRules(findings, order)
  const waiting = new Map<
    string,
    { readonly line: number; readonly fact: StoreFact | JournalFact }[]
  >()

  const durable = (log: string, fact: StoreFact | JournalFact) => {
    if (isJournalFact(fact)) journal.fact(log, fact)
    else store.fact(fact)
  }
  const upTo = (log: string, line: number, isEnd: boolean) => {
    const queue = waiting.get(log) ?? []
    let count = 0
    for (; (queue[count]?.line ?? Number.POSITIVE_INFINITY) <= line; count += 1) {
      const first = queue[count]
      if (first) durable(log, first.fact)
    }
    if (isEnd) waiting.delete(log)
    else queue.splice(0, count)
  }

  return {
    durable,
    get broken() {
      return broken
    },
    add(event) {
      switch (event.kind) {
        case 'written': {
          const queue = waiting.get(event.log)
          if (queue) queue.push(event)
          else waiting.set(event.log, [event])
          return
        }
        case 'synced':
          return upTo(event.log, event.line, false)
        case 'reopened':
          return upTo(event.log, event.line, true)
        case 'sent':
          return journal.sent(event.origin, event.sha256)
        case 'answered':
        case 'told':
        case 'handed':
        case 'mined':
        case 'undone':
          return store.event(event)
      }
    },
    verdict() {
      const violations = [...told]
      let all = broken
      const unordered = journal.end({
        count: () => undefined,
        broken(rule, detail) {
          all += 1
          if (violations.length < mostTold) violations.push({ rule, detail })
        },
      })
      return { violations, broken: all, unordered, checked: { ...checked } }
    },
  }
}

/**
 * The violations as one text for a failing test or command: a line each, and how many more there
 * are.
 */
export function violationsText({
  violations,
  broken,
}: Pick<Verdict, 'violations' | 'broken'>): string {
  const more = broken > violations.length ? [`and ${broken - violations.length} more`] : []
  return [...violations.map(({ rule, detail }) => `${rule}: ${detail}`), ...more].join('\n')
}
