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

/** An answer, and what else the checks of it need. */
interface Subject {
  readonly seen: Seen
}
type Awaitable<T> = T | Promise<T>
/** Calls to be sent, an answer that is there already, or what was seen, where nothing is left. */
type Asked = ProbeCall | readonly ProbeCall[] | Seen | Subject | string
export type Request = (bench: Bench) => Awaitable<Asked>
/** What must hold of an answer, or what is to be said of it in a report. */
export type Expect<Known = unknown> = (
  seen: Seen,
  bench: Bench & Known,
) => Awaitable<AnswerFacts | string | undefined>
type How<Known> = number | readonly number[] | AnswerFacts | Expect<Known>

/**
 * What a rule says, what is sent, and of each answer: the statuses that it may have, and what must
 * hold. A number is what that is charged where it is not one item.
 */
export type Row = readonly [says: string, request: Request, ...How<unknown>[]]
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
  Object.entries(table).map(([id, [says, request, ...how]]) => ({
    id,
    section: sections[id] ?? sectionOf(id),
    tier,
    items: how.find((one) => typeof one === 'number') ?? 1,
    says,
    async run(bench) {
      const asked = await request(bench)
      if (is.text(asked)) return asked
      const details = new Set<string>()
      for (const one of [asked].flat()) details.add(await judged(one, bench, how))
      return [...details].join(', ')
    },
  }))

async function judged(
  one: Exclude<Asked, string | readonly unknown[]>,
  bench: Bench,
  how: readonly How<unknown>[],
) {
  const known = 'seen' in one ? { ...bench, ...one } : bench
  const seen = one instanceof Seen ? one : 'seen' in one ? one.seen : await bench.send(one)
  let detail = seen.came
  for (const each of how) {
    const told = typeof each === 'function' ? await each(seen, known) : each
    if (is.text(told)) detail = told
    else if (Array.isArray(told)) seen.expect(told)
    else if (is.structure(told)) seen.holds(told as AnswerFacts)
  }
  return detail
}

/** Rows about one answer, whose checks know what came with it. */
export const about = <Known extends Subject>(
  request: (bench: Bench) => Awaitable<Known>,
  rows: Readonly<Record<string, readonly [says: string, ...How<Known>[]]>>,
): Table =>
  Object.fromEntries(
    Object.entries(rows).map(([id, [says, ...how]]) => [id, [says, request, ...how] as Row]),
  )

/** For a rule about something else than the status, which another tells. */
export const given: Expect = (seen) => void seen.given(200)
