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
import type { Candidate } from '../../core/protocol/candidate.js'
import { UsageError } from '../../core/protocol/errors.js'
import { plainIdentifier } from '../../core/protocol/market-url.js'
import { answerText, labelIn } from '../../core/protocol/outcome-words.js'
import { isQuestionId } from '../../core/protocol/words.js'
import { wholeNumber } from '../hosting/foreground.js'
import { addListFlags, type ListFlags, sinceMs } from '../session/list-flags.js'
import { colours } from '../terminal/candidate-text.js'
import type { Context } from '../terminal/context.js'
import { ageText, fields, timeText } from '../terminal/render.js'
import { type Column, tableText } from '../terminal/table.js'
import {
  candidateIdOf,
  look,
  type Site,
  type StoreView,
  siteOf,
  unknownCandidate,
} from './access.js'
import { knownRounds, offlineOption } from './known-rounds.js'
import { printRows } from './lists.js'

interface CandidateFlags extends ListFlags {
  readonly status?: string
  readonly proposer?: string
  readonly offline?: boolean
}

type ListedCandidate = CandidateRow & { readonly label: string | null }

const statuses = Object.keys(colours)

export const candidatesListCommand = (context: Context) =>
  addListFlags(new Command('list'), statuses, '50')
    .description('list candidates, the newest first')
    // The older word for --state.
    .addOption(new Option('--status <status>').choices(statuses).hideHelp())
    .option('--proposer <address>', 'only candidates of this wallet')
    .option(...offlineOption)
    .addHelpText(
      'after',
      '\nExample:\n  proposer operator candidates list --state failed --since 24h',
    )
    .action(async (own: CandidateFlags, command: Command) => {
      const site = await siteOf(context, command)
      const nowMs = context.clock.nowMs()
      const limit = wholeNumber('--limit', own.limit ?? '50', 1, 1_000_000)
      const proposer =
        own.proposer === undefined ? undefined : givenAddress(own.proposer, '--proposer')
      const since = sinceMs(own.since, nowMs)
      const receipts = createReceipts()
      const { output } = context
      await look(context, site, [receipts], async (view) => {
        const questionId = questionIdOf(site, view, own.question?.toLowerCase())
        const wanted = { status: own.state ?? own.status, proposer, questionId, since }
        const { found, more } = await newest(view, wanted, limit)
        const slugs = slugsOf(view)
        const ids = own.offline === true ? [] : found.map(({ round }) => round.questionId)
        const rounds = await knownRounds(context, site, view.registry, ids)
        const rows = found.map((one) => {
          const { questionId } = one.round
          const row = candidateRow(one, slugs.get(questionId), receipts)
          return { ...row, label: labelIn(rounds.get(questionId)?.outcomes, row.outcome) }
        })
        printRows(
          output,
          'operator-candidates',
          rows,
          { shown: rows.length, more },
          { candidates: rows, more },
          () =>
            rows.length === 0
              ? 'no matching candidates'
              : [
                  tableText(candidateColumns(nowMs), rows, output, own.wide === true),
                  ...(more === 0 ? [] : [`and ${more} more; --limit shows them`]),
                ].join('\n'),
        )
      })
    })

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
  const found: Candidate[] = []
  let more = 0
  for (const entry of ledger.newest()) {
    if (status !== undefined && entry.status !== status) continue
    // What is only counted need not be read where its entry tells enough.
    if (found.length >= limit && !isFiltered) {
      more += 1
      continue
    }
    const candidate = await ledger.get(entry.id)
    if (!candidate || candidate.proposer !== (proposer ?? candidate.proposer)) continue
    if (questionId !== undefined && candidate.round.questionId !== questionId) continue
    if (candidate.receivedAtMs < since) continue
    if (found.length < limit) found.push(candidate)
    else more += 1
  }
  return { found, more }
}

export const showCommand = (context: Context) =>
  new Command('show')
    .description('show one candidate as stored')
    .argument('<candidate-id>')
    .addHelpText(
      'after',
      '\nExample:\n  proposer operator candidates show 3f2b8c1e-8d5a-4a52-9c3d-0a1b2c3d4e5f',
    )
    .action(async (given: string, _own: unknown, command: Command) => {
      const id = candidateIdOf(given)
      const site = await siteOf(context, command)
      const receipts = createReceipts()
      const { output } = context
      await look(context, site, [receipts], async (view) => {
        const candidate = await view.ledger.get(id)
        if (!candidate) throw unknownCandidate(site, id)
        const slug = slugsOf(view).get(candidate.round.questionId)
        const row = candidateRow(candidate, slug, receipts)
        output.result('operator-candidate', row, () =>
          fields(
            Object.entries(row).map(
              ([name, value]) =>
                [name.replaceAll('_', ' '), value === null ? null : String(value)] as const,
            ),
            output.columns,
          ),
        )
      })
    })
