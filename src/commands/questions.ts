/** The verb `questions`: what can be proposed now, from the chain, a registry or Polymarket's API. */
import { Command, Option } from 'commander'
import type { Rules } from '../core/chain/rules.js'
import type { ListedQuestion, QuestionSource } from '../core/client/questions/listing.js'
import { spanMs } from '../core/protocol/duration.js'
import { UsageError } from '../core/protocol/errors.js'
import { answersText } from '../core/protocol/outcome-words.js'
import { wholeNumber } from './hosting/foreground.js'
import { type FoundQuestions, findQuestions } from './question-list.js'
import { sinceMs } from './session/list-flags.js'
import { type SessionFlags, withSession } from './session/session.js'
import { worksheetText } from './session/worksheet.js'
import type { Context } from './terminal/context.js'
import { amountText, dateText, fold, timeText } from './terminal/render.js'
import { type Column, tableText, wideOption } from './terminal/table.js'

export const questionsCommand = (context: Context): Command =>
  new Command('questions')
    .description('list questions that can be proposed on')
    .addHelpText('after', '\nExample:\n  proposer questions list')
    .addCommand(listCommand(context))

type ListedRules = ReadonlyMap<string, Rules>

interface ListFlags extends SessionFlags {
  readonly source?: QuestionSource
  readonly questions?: string
  readonly mine?: boolean
  readonly all?: boolean
  readonly closing?: string
  readonly since: string
  readonly limit: string
  readonly csv?: boolean
  readonly wide?: boolean
}

const listCommand = (context: Context) =>
  new Command('list')
    .description('list open questions, re-opened rounds first')
    .addOption(
      new Option(
        '--source <source>',
        'source to read; default: registry with --local, otherwise gamma if the profile has it, otherwise chain',
      ).choices(['registry', 'chain', 'gamma']),
    )
    .option('--questions <file>', 'read the registry from this questions.json')
    .option('--mine', 'list questions that this home has signed for, in any state')
    .option('--all', 'list answered and paused questions too')
    .option('--closing <duration>', 'list events that end within this time, such as 2h')
    .option('--since <time>', 'look back this far: an age, or a time', '7d')
    .option('--limit <n>', 'maximum number of rows', '50')
    .option('--csv', 'print a worksheet: fill in outcome, then hand it to batch submit')
    .option(...wideOption)
    .option('--gamma-url <url>', "Polymarket's market API")
    .addHelpText(
      'after',
      '\nThe chain knows what was asked since --since, but neither slugs nor when an event ends.\nGamma knows both; a node (--rpc-url) confirms round, bond and state.\n\nExamples:\n  proposer questions list --rpc-url http://127.0.0.1:8545\n  proposer questions list --source gamma --closing 2h\n  proposer questions list --csv > today.csv',
    )
    .action(async (_own: unknown, command: Command) => {
      const flags = command.optsWithGlobals<ListFlags>()
      const limit = wholeNumber('--limit', flags.limit, 1, 10_000)
      const since = (nowMs: number) => sinceMs(flags.since, nowMs)
      since(0)
      const closingMs = flags.closing === undefined ? undefined : closingOf(flags.closing)
      await withSession(context, flags, async (session) => {
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
      })
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
  if (output.mode === 'ndjson') {
    for (const one of questions) output.line(one)
    const counts = { ...summary, questions: questions.length }
    output.result('questions', { summary: counts }, () => '')
    return
  }
  output.result('questions', { questions, ...summary }, () =>
    questions.length === 0
      ? fold(emptyText(flags, found), output.columns)
      : tableText(columns, questions, output, flags.wide === true),
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
