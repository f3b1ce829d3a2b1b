/**
 * `operator candidates`: what the store holds of proposals (contract §6). Signatures and raw
 * transactions are never shown (R5).
 */

import { Command, Option } from 'commander'
import {
  type CandidateRow,
  candidateRow,
  createReceipts,
} from '../../core/gateway/status/listing.js'
import { givenAddress } from '../../core/protocol/address.js'
import { UsageError } from '../../core/protocol/errors.js'
import { plainIdentifier } from '../../core/protocol/market-url.js'
import { answerText, labelIn } from '../../core/protocol/outcome-words.js'
import { isQuestionId } from '../../core/protocol/words.js'
import { wholeNumber } from '../hosting/foreground.js'
import { addListFlags, type ListFlags, sinceMs } from '../session/list-flags.js'
import { colours } from '../terminal/candidate-text.js'
import type { Context } from '../terminal/context.js'
import { csvLine } from '../terminal/csv.js'
import { ageText, timeText } from '../terminal/render.js'
import { type Column, tableText } from '../terminal/table.js'
import { look, type Site, type StoreView, siteOf } from './access.js'
import { knownRounds, offlineOption } from './known-rounds.js'
import { printRows } from './lists.js'

interface CandidateFlags extends ListFlags {
  readonly status?: string
  readonly proposer?: string
  readonly offline?: boolean
  readonly csv?: boolean
}

type ListedCandidate = CandidateRow & { readonly label: string | null }

const statuses = Object.keys(colours)

export const candidatesListCommand = (context: Context) =>
  addListFlags(new Command('list'), statuses)
    .description('list candidates, the newest first; 50 unless --limit says otherwise')
    // The older word for --state.
    .addOption(new Option('--status <status>').choices(statuses).hideHelp())
    .option('--proposer <address>', 'only candidates of this wallet')
    .option('--csv', 'print CSV (RFC 4180) of all of them, with every field, in order of admission')
    .option(...offlineOption)
    .addHelpText(
      'after',
      '\nIn CSV amounts are raw token units, gas prices wei, times UTC.\n\nExamples:\n  proposer operator candidates list --state failed --since 24h\n  proposer operator candidates list --csv > candidates.csv',
    )
    .action(async (own: CandidateFlags, command: Command) => {
      const limit = own.csv === true ? most : 50
      const document = await listed(context, own, command, limit)
      if (own.csv === true) return
      const { rows, more } = document
      const { output } = context
      const text = () =>
        rows.length === 0
          ? 'no matching candidates'
          : [
              tableText(candidateColumns(context.clock.nowMs()), rows, output, own.wide === true),
              ...(more === 0 ? [] : [`and ${more} more; --limit shows them`]),
            ].join('\n')
      const summary = { shown: rows.length, more }
      printRows(output, 'operator-candidates', rows, summary, { candidates: rows, more }, text)
    })

/** What `list --csv` was called once; its JSON has a schema of its own. */
export const storeExportCommand = (context: Context) =>
  new Command('export')
    .description('another name of `operator candidates list --csv`')
    .option('--csv', 'the default')
    .addHelpText('after', '\nExample:\n  proposer operator store export > candidates.csv')
    .action(async (_own: unknown, command: Command) => {
      const csv = context.output.mode === 'human'
      const { rows } = await listed(context, { csv, offline: true }, command, most)
      if (csv) return
      const candidates = rows.map(({ label: _, ...row }) => row).reverse()
      printRows(
        context.output,
        'operator-store-export',
        candidates,
        { candidates: candidates.length },
        { candidates },
        () => '',
      )
    })

const most = 1_000_000

/** The rows that are asked for, the newest first; with --csv each is printed when it is read. */
async function listed(
  context: Context,
  own: CandidateFlags,
  command: Command,
  otherwise: number,
): Promise<{ readonly rows: readonly ListedCandidate[]; readonly more: number }> {
  const site = await siteOf(context, command)
  const limit = wholeNumber('--limit', own.limit ?? String(otherwise), 1, most)
  const proposer = own.proposer === undefined ? undefined : givenAddress(own.proposer, '--proposer')
  const since = sinceMs(own.since, context.clock.nowMs())
  const receipts = createReceipts()
  return look(context, site, [receipts], async (view) => {
    const questionId = questionIdOf(site, view, own.question?.toLowerCase())
    const wanted = { status: own.state ?? own.status, proposer, questionId, since }
    const { ids, more } = await newest(view, wanted, limit)
    const slugs = slugsOf(view)
    const rowOf = async (id: string) => {
      const candidate = await view.ledger.get(id)
      return candidate && candidateRow(candidate, slugs.get(candidate.round.questionId), receipts)
    }
    const found: CandidateRow[] = []
    if (own.csv === true) {
      let isFirst = true
      for (const id of ids.reverse()) {
        const row = await rowOf(id)
        if (row === undefined) continue
        if (isFirst) context.output.text(csvLine(Object.keys(row)))
        isFirst = false
        context.output.text(csvLine(Object.values(row)))
      }
      return { rows: [], more }
    }
    for (const id of ids) found.push(...[(await rowOf(id)) ?? []].flat())
    const asked = own.offline === true ? [] : found.map(({ question_id }) => question_id)
    const rounds = await knownRounds(context, site, view.registry, asked)
    const rows = found.map((row) => ({
      ...row,
      label: labelIn(rounds.get(row.question_id)?.outcomes, row.outcome),
    }))
    return { rows, more }
  })
}

/** Which and how far, then what, when and by whom; a failure is told by its cause. */
export const candidateColumns = (nowMs: number): readonly Column<ListedCandidate>[] => [
  { head: 'candidate', cell: (row) => row.candidate_id },
  { head: 'status', cell: (row) => row.status, colour: (row) => colours[row.status] },
  { head: 'answer', cell: (row) => answerText(row.outcome ?? row.price, row.label), least: 8 },
  { head: 'question', cell: (row) => row.slug ?? row.question_id, least: 8 },
  { head: 'cause or stage', cell: (row) => row.failure_code ?? row.submission, least: 8 },
  {
    head: 'received',
    cell: (row) => `${ageText((nowMs - Date.parse(row.received_at)) / 1_000)} ago`,
    rank: 1,
  },
  { head: 'proposer', cell: (row) => row.proposer, wide: true },
  { head: 'received at', cell: (row) => timeText(row.received_at), wide: true },
  { head: 'question id', cell: (row) => row.question_id, wide: true },
  { head: 'transaction', cell: (row) => row.transaction_hash, wide: true },
]

/** The slugs of the registry, by question. */
export const slugsOf = ({ registry }: Pick<StoreView, 'registry'>) =>
  new Map(registry.map(({ questionId, slug }) => [questionId, slug]))

function questionIdOf(site: Site, { registry }: StoreView, given: string | undefined) {
  const name = given && plainIdentifier(given)
  if (name === undefined || isQuestionId(name)) return name
  const found = registry.find(({ slug }) => slug === name)
  if (found) return found.questionId
  throw new UsageError(
    'question_not_found',
    `slug ${name.slice(0, 80)} not found in the registry`,
    {
      hint: `give the question id, or see ${site.named('questions list')}`,
    },
  )
}

/** The newest candidates that fit, and how many more there are. */
async function newest(
  { ledger }: StoreView,
  wanted: Record<'status' | 'proposer' | 'questionId', string | undefined> & { since: number },
  limit: number,
) {
  const { status, proposer, questionId, since } = wanted
  const isFiltered = proposer !== undefined || questionId !== undefined || since > 0
  const ids: string[] = []
  let more = 0
  for (const entry of ledger.newest()) {
    if (status !== undefined && entry.status !== status) continue
    // What is only counted need not be read where its entry tells enough.
    const candidate = isFiltered ? await ledger.get(entry.id) : undefined
    if (isFiltered) {
      if (!candidate || candidate.proposer !== (proposer ?? candidate.proposer)) continue
      if (questionId !== undefined && candidate.round.questionId !== questionId) continue
      if (candidate.receivedAtMs < since) continue
    }
    if (ids.length < limit) ids.push(entry.id)
    else more += 1
  }
  return { ids, more }
}
