import { type Demand, Seen } from './answer.js'
import type { Bench, Tier } from './bench.js'
import type { ProbeCall } from './probe.js'

export interface Rule {
  readonly id: string
  readonly section: string
  readonly tier: Tier
  /** What it is charged (§8 rule 2) where others have not paid for it already. */
  readonly items: number
  readonly says: string
  /** What came; or Fault, or NotSeen where it could not be examined. */
  readonly run: (bench: Bench) => Promise<string>
}

interface Known {
  readonly seen: Seen
}
type Subject = ProbeCall | Seen | Known
type Next = Subject | readonly Subject[] | Demand
export type Step<More = unknown> = (known: Bench & Known & More) => Next | Promise<Next>
type Part<More> = Step<More> | Demand | number

/**
 * What a rule says; then step by step what is sent, and what must hold of the newest answer. A
 * number is what that is charged where it is not one item.
 */
export type Row<More = unknown> = readonly [says: string, ...Part<More>[]]
export type Table<More = unknown> = Readonly<Record<string, Row<More>>>

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
  const [, section, rule] = /^(3|\w+(?:\.\d)?)(?:\.(\d))?-/.exec(id) ?? []
  if (section === 'receipt') return 'receipts'
  return `§${section}${rule === undefined ? '' : ` rule ${rule}`}`
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

/** Where a step gives several subjects, the others are followed for each. */
async function follow(
  known: Bench & Known,
  [step, ...rest]: readonly Part<unknown>[],
): Promise<string> {
  if (step === undefined) return known.seen.came
  const next = typeof step === 'function' ? await step(known) : step
  const subjects = [next].flat().filter(isSubject)
  if (subjects.length === 0) {
    if (typeof next !== 'number') known.seen?.must(next as Demand)
    return follow(known, rest)
  }
  const ends = new Set<string>()
  for (const one of subjects) {
    const came = 'method' in one ? await known.send(one) : one
    ends.add(await follow({ ...known, ...(came instanceof Seen ? { seen: came } : came) }, rest))
  }
  return [...ends].join(', ')
}

const isSubject = (one: unknown): one is Subject =>
  one instanceof Seen || ['method', 'seen'].some((name) => Object.hasOwn(Object(one), name))

/** Rows that begin alike. */
export const about = <More extends Known>(
  step: (bench: Bench) => Promise<More | readonly More[]>,
  rows: Table<More>,
): Table =>
  Object.fromEntries(
    Object.entries(rows).map(([id, [says, ...steps]]) => [id, [says, step, ...steps] as Row]),
  )

export const given: Step = ({ seen }) => void seen.given(200)
