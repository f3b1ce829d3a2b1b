/** The verb `questions`: what can be proposed now, from the chain, a registry or Polymarket's API. */
import type { Rules } from '../core/chain/rules.js'
import type { ListedQuestion } from '../core/client/questions/listing.js'
import { spanMs } from '../core/protocol/duration.js'
import { UsageError } from '../core/protocol/errors.js'
import { answersText } from '../core/protocol/outcome-words.js'
import { wholeNumber } from './hosting/foreground.js'
import { type FoundQuestions, findQuestions } from './question-list.js'
import { sinceMs } from './session/flags.js'
import { sessionVerb } from './session/session.js'
import { worksheetText } from './session/worksheet.js'
import type { Context } from './terminal/context.js'
import { table } from './terminal/output.js'
import { amountText, dateText, fold, timeText } from './terminal/render.js'
import { type Column, wideFlag } from './terminal/table.js'
import { type FlagsOf, verb } from './terminal/verb.js'

type ListedRules = ReadonlyMap<string, Rules>

const questionFlags = {
  '--source <source>': {
    about:
      'source to read; default: registry with --local, otherwise gamma if the profile has it, otherwise chain',
    choices: ['registry', 'chain', 'gamma'],
  },
  '--questions <file>': 'read the registry from this questions.json',
  '--mine': 'list questions that this home has signed for, in any state',
  '--all': 'list answered and paused questions too',
  '--closing <duration>': 'list events that end within this time, such as 2h',
  '--since <time>': { about: 'look back this far: an age, or a time', default: '7d' },
  '--limit <n>': { about: 'maximum number of rows', default: '50' },
  '--csv': 'print a worksheet: fill in outcome, then hand it to batch submit',
  ...wideFlag,
  '--gamma-url <url>': "Polymarket's market API",
} as const
type ListFlags = FlagsOf<typeof questionFlags>

const listVerb = sessionVerb({
  name: 'list',
  about: 'list open questions, re-opened rounds first',
  flags: questionFlags,
  help: 'The chain knows what was asked since --since, but neither slugs nor when an event ends.\nGamma knows both; a node (--rpc-url) confirms round, bond and state.',
  examples: [
    'questions list --rpc-url http://127.0.0.1:8545',
    'questions list --source gamma --closing 2h',
    'questions list --csv > today.csv',
  ],
  async run(context, session, flags) {
    const limit = wholeNumber('--limit', flags.limit, 1, 10_000)
    const since = (nowMs: number) => sinceMs(flags.since, nowMs)
    since(0)
    const closingMs = flags.closing === undefined ? undefined : closingOf(flags.closing)
    const rules = new Map<string, Rules>()
    const found = await findQuestions(context, session, {
      source: flags.source,
      questionsFile: flags.questions,
      isMine: flags.mine === true,
      isAll: flags.all === true,
      closingMs,
      since,
      limit,
      rules: flags.csv === true ? rules : undefined,
    })
    show(context, found, flags, rules)
  },
})

export const questionsCommand = verb({
  name: 'questions',
  about: 'list questions that can be proposed on',
  examples: ['questions list'],
  verbs: [listVerb],
})

function closingOf(text: string): number {
  const span = spanMs(/^\d+$/.test(text) ? `${text}s` : text)
  if (span !== undefined && span > 0) return span
  throw new UsageError(
    'bad_closing',
    `--closing ${text} is not a duration`,
    'give a duration such as --closing 2h or --closing 90m',
  )
}

function show(context: Context, found: FoundQuestions, flags: ListFlags, rules: ListedRules): void {
  const { output } = context
  const { questions, source, notes, leftOut } = found
  const width = output.notesAreTerminal ? output.columns : Number.POSITIVE_INFINITY
  for (const note of notes) output.note(fold(`note: ${note}`, width, '  '))
  if (flags.csv === true) {
    output.text(worksheetText(questions.map((one) => sheetRow(one, rules))))
    return
  }
  const summary = { source, since: found.since, left_out: leftOut, notes }
  output.show(
    'questions',
    { questions, ...summary },
    [
      questions.length === 0
        ? () => fold(emptyText(flags, found), output.columns)
        : table(columns, questions, flags.wide === true),
    ],
    { items: questions, summary: { ...summary, questions: questions.length } },
  )
}

function emptyText({ mine, all }: ListFlags, { since }: FoundQuestions): string {
  const back = since === null ? '' : ` since ${timeText(since)}`
  if (mine === true) return `no question${back} that this home has signed for`
  return `no ${all === true ? '' : 'open '}question${back}`
}

const sheetRow = (
  { question_id: identifier, token, ...row }: ListedQuestion,
  rules: ListedRules,
) => ({
  ...row,
  rules: rules.get(identifier),
  identifier,
  units: token ?? undefined,
})

const columns: readonly Column<ListedQuestion>[] = [
  { head: 'question', cell: (one) => one.slug ?? one.question_id },
  { head: 'title', least: 12, cell: (one) => one.title },
  {
    head: 'answers',
    least: 10,
    rank: 3,
    cell: (one) => answersText(one.outcomes),
  },
  {
    head: 'bond',
    right: true,
    cell: (one) => one.bond && amountText(one.bond, one.token ?? undefined),
  },
  {
    head: 'reward',
    right: true,
    rank: 4,
    cell: (one) => one.reward && amountText(one.reward, one.token ?? undefined),
  },
  {
    head: 'state',
    cell: (one) => (one.reopened ? `${one.state} again` : (one.state ?? 'not confirmed')),
    colour: (one) => (one.reopened ? 'yellow' : 'white'),
  },
  { head: 'proposed by', rank: 5, cell: (one) => one.proposed_by },
  { head: 'ends', rank: 1, cell: (one) => one.ends_at && timeText(one.ends_at) },
  {
    head: 'round',
    wide: true,
    cell: (one) => one.round_timestamp && dateText(one.round_timestamp).split(' (')[0],
  },
  { head: 'question id', wide: true, cell: (one) => one.question_id },
  { head: 'confirmed by', wide: true, cell: (one) => one.confirmed_by ?? 'nobody' },
]
