/** What a check is, and how it is run. */
import { type AnswerFacts, is, Seen } from './answer.js'
import type { Bench, Tier } from './bench.js'
import type { ProbeCall } from './probe.js'

export interface Rule {
  readonly id: string
  /** Where the spec says it. */
  readonly section: string
  readonly tier: Tier
  /** About how many items it is charged (§8 rule 2), where others have not paid for it already. */
  readonly items: number
  readonly says: string
  /**
   * What was seen, for a report. Throws Fault where the rule is broken, NotSeen where it could not
   * be examined.
   */
  readonly run: (bench: Bench) => Promise<string>
}

type Awaitable<T> = T | Promise<T>
/** What is known so far; `seen` is the newest answer, which the first step has not. */
interface Known {
  readonly seen: Seen
}
/** A call, or an answer that is there already, maybe with what else is to be known of it. */
type Subject = ProbeCall | Seen | Known
/**
 * What the other steps are about, one after the other. What must hold of the newest answer. Or what
 * is to be said of it in a report.
 */
type Next = Subject | readonly Subject[] | AnswerFacts | string | undefined
export type Step<More = unknown> = (known: Bench & Known & More) => Awaitable<Next>
type Told<More> = Step<More> | AnswerFacts | readonly number[] | number

/**
 * What a rule says, then what is sent, the statuses that an answer may have, and what must hold of
 * it, step by step. A number is what that is charged where it is not one item.
 */
export type Row = readonly [says: string, ...Told<unknown>[]]
export type Table = Readonly<Record<string, Row>>

const sections: Readonly<Record<string, string>> = {
  '4.2.1-items-101': '§4.2 rule 4',
  '4.2.1-identifiers-101': '§4.2 rule 4',
  '4.2.1-proposals-101': '§4.2 rule 4',
  '7-item-errors': '§7 rule 4',
  '4.1.3-unprepared': '§1',
  '9-acknowledgement-version': '§2.5',
  '4.2.5-conflict': '§4.1 rule 3',
  '8-whole-batch-refused': '§8 rule 5',
  '8-refused-call-charged': '§8 rule 4',
}

/** `2.7-x` is of §2.7, `4.1.3-x` of §4.1 rule 3, `3.2-x` of §3 rule 2. */
function sectionOf(id: string) {
  const [chapter = '', part, rule] = (id.split('-')[0] ?? '').split('.')
  if (chapter === 'receipt') return 'receipts'
  if (chapter === '3') return `§3 rule ${part}`
  return `§${part === undefined ? chapter : `${chapter}.${part}`}${rule === undefined ? '' : ` rule ${rule}`}`
}

export const rulesOf = (tier: Tier, table: Table): readonly Rule[] =>
  Object.entries(table).map(([id, [says, ...steps]]) => ({
    id,
    section: sections[id] ?? sectionOf(id),
    tier,
    items: steps.find((one) => typeof one === 'number') ?? 1,
    says,
    run: (bench) => follow(bench as Bench & Known, steps),
  }))

/** What came last and which of its members hold; of each subject, where there are several. */
async function follow(
  known: Bench & Known,
  [step, ...rest]: readonly Told<unknown>[],
  held: readonly string[] = [],
): Promise<string> {
  if (step === undefined)
    return `${known.seen.came}${held.length > 0 ? `: ${[...new Set(held)].join(', ')}` : ''}`
  const next = typeof step === 'function' ? await step(known) : step
  if (is.text(next)) return next
  const all = [next].flat().filter(isSubject)
  if (all.length === 0) {
    if (Array.isArray(next)) known.seen.expect(next)
    const facts = is.structure(next) && !Array.isArray(next) ? (next as AnswerFacts) : {}
    return follow(known, rest, [...held, ...known.seen.holds(facts)])
  }
  const details = new Set<string>()
  for (const one of all) {
    const came = 'method' in one ? await known.send(one) : one
    details.add(await follow({ ...known, ...(came instanceof Seen ? { seen: came } : came) }, rest))
  }
  return [...details].join(', ')
}

const isSubject = (one: unknown): one is Subject =>
  is.structure(one) && (one instanceof Seen || 'seen' in one || 'method' in one)

/** Rows that begin alike. */
export const about = <More extends Known>(
  step: (bench: Bench) => Awaitable<More>,
  rows: Readonly<Record<string, readonly [says: string, ...Told<More>[]]>>,
): Table =>
  Object.fromEntries(
    Object.entries(rows).map(([id, [says, ...steps]]) => [id, [says, step, ...steps] as Row]),
  )

/** For a rule about something else than the status, which another tells. */
export const given: Step = ({ seen }) => void seen.given(200)
