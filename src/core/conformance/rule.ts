/** What a check is, and how it is run. */
import type { Bench } from './admissions.js'
import { type AnswerFacts, is, type Members, type Seen } from './answer.js'
import type { Tier } from './bench.js'
import type { ProbeCall } from './probe.js'

/** An answer to be looked at; what several checks ask for is asked for once. */
export type ProbeExchange = (bench: Bench) => Promise<Seen>
/**
 * What was seen, for a report. Throws Fault where the rule is broken, NotSeen where it could not be
 * examined.
 */
export type Run = (bench: Bench) => Promise<string>
type Told = AnswerFacts | string
/** What must hold of an answer; or what is to be said of it in a report. */
export type Expect = (seen: Seen, bench: Bench) => Told | Promise<Told>

export interface Rule {
  readonly id: string
  /** Where the spec says it. */
  readonly section: string
  readonly tier: Tier
  /** About how many items it is charged (§8 rule 2), where others have not paid for it already. */
  readonly items: number
  readonly says: string
  readonly run: Run
}

/**
 * What a rule says, what is sent, and of the answer: the statuses that it may have, what must hold,
 * and what is said of it. A number is what that is charged where it is not one item.
 */
export type RuleRow = readonly [says: string, ask: ProbeExchange | Run, ...How[]]
type How = string | number | readonly number[] | Expect
export type RuleRows = Readonly<Record<string, RuleRow>>

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

export const rulesOf = (tier: Tier, checks: RuleRows): readonly Rule[] =>
  Object.entries(checks).map(([id, [says, ask, ...how]]) => ({
    id,
    section: sections[id] ?? sectionOf(id),
    tier,
    items: how.find((one) => typeof one === 'number') ?? 1,
    says,
    async run(bench) {
      const seen = await ask(bench)
      if (is.text(seen)) return seen
      let actual = ''
      for (const one of how) {
        if (typeof one === 'number') continue
        const told = typeof one === 'function' ? await one(seen, bench) : one
        if (is.text(told)) actual = told
        else if (Array.isArray(told)) actual = seen.expect(...told)
        else seen.holds(told as AnswerFacts)
      }
      return actual
    },
  }))

/** RuleRows of one answer. */
export const about = (
  ask: ProbeExchange,
  rows: Readonly<Record<string, readonly [says: string, ...How[]]>>,
): RuleRows =>
  Object.fromEntries(Object.entries(rows).map(([id, [says, ...how]]) => [id, [says, ask, ...how]]))

export const has =
  (members: Members, path?: string): Expect =>
  (seen) => {
    seen.has(members, path === undefined ? seen.json : seen.at(path))
    return 'all named'
  }
export const hasVersion: Expect = (seen) => seen.hasVersion()

/** A check of calls that must all be answered so; what came last is told, where nothing else is. */
export const refuses =
  (
    statuses: readonly number[],
    wrong: string | undefined,
    calls: (bench: Bench) => readonly ProbeCall[] | Promise<readonly ProbeCall[]>,
    detail?: string,
  ): Run =>
  async (bench) => {
    let actual = ''
    for (const call of await calls(bench))
      actual = (await bench.send(call, wrong)).expect(...statuses)
    return detail ?? actual
  }
