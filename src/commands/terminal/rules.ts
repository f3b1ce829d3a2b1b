/** Rules that a history was held against (robustness §1), for people. */
import { type HistoryRule, ruleTexts } from '../../core/history/facts.js'

/**
 * `R6 holds: …`, with how often there was something to ask it about. Where no record orders some
 * pairs, how many those are; where there was nothing, `nothing`.
 */
export const ruleLines = (
  rules: Readonly<Partial<Record<HistoryRule, number>>>,
  unordered: Readonly<Partial<Record<HistoryRule, number>>> = {},
  nothing = 'nothing to check',
): readonly string[] =>
  Object.entries(rules).map(([name, times]) => {
    const rule = name as HistoryRule
    const pairs = unordered[rule] ?? 0
    if (times === 0 && pairs === 0) return `${rule}: ${nothing}: ${ruleTexts[rule]}`
    const word =
      pairs === 0
        ? ' holds'
        : `: ${pairs} ${pairs === 1 ? 'pair' : 'pairs'} of different runs cannot be ordered; of all else it holds`
    return `${rule}${word}: ${ruleTexts[rule]} (${times} checked)`
  })
