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
import { isQuestionId } from '../../core/protocol/words.js'
import { wholeNumber } from '../hosting/foreground.js'
import { colours } from '../terminal/candidate-text.js'
import type { Context } from '../terminal/context.js'
import type { Output } from '../terminal/output.js'
import { fields, timeText, visible } from '../terminal/render.js'
import {
  candidateIdOf,
  look,
  type Site,
  type StoreView,
  siteOf,
  unknownCandidate,
} from './access.js'
import { printRows } from './lists.js'

interface ListFlags {
  readonly status?: string
  readonly proposer?: string
  readonly question?: string
  readonly limit: string
}

export const candidatesListCommand = (context: Context) =>
  new Command('list')
    .description('the newest candidates first')
    .addOption(
      new Option('--status <status>', 'only those').choices([
        'received',
        'validated',
        'selected',
        'executed',
        'failed',
      ]),
    )
    .option('--proposer <address>', 'only those of this wallet')
    .option('--question <id|slug>', 'only those of this question')
    .option('--limit <number>', 'so many at most', '50')
    .addHelpText(
      'after',
      '\nExample:\n  proposer operator candidates list --status failed --limit 10',
    )
    .action(async (own: ListFlags, command: Command) => {
      const site = await siteOf(context, command)
      const limit = wholeNumber('--limit', own.limit, 1, 1_000_000)
      const proposer =
        own.proposer === undefined ? undefined : givenAddress(own.proposer, '--proposer')
      const receipts = createReceipts()
      const { output } = context
      await look(context, site, [receipts], async (view) => {
        const questionId = questionIdOf(site, view, own.question?.toLowerCase())
        const wanted = { status: own.status, proposer, questionId }
        const { found, more } = await newest(view, wanted, limit)
        const slugs = slugsOf(view)
        const rows = found.map((one) =>
          candidateRow(one, slugs.get(one.round.questionId), receipts),
        )
        printRows(
          output,
          'operator-candidates',
          rows,
          { shown: rows.length, more },
          { candidates: rows, more },
          () => {
            if (rows.length === 0) return 'no such candidates'
            const rest = more === 0 ? [] : [`and ${more} more; --limit shows them`]
            return [headText(output), ...rows.map((row) => rowText(row, output)), ...rest].join(
              '\n',
            )
          },
        )
      })
    })

/** The slugs of the registry, by question. */
export const slugsOf = ({ registry }: Pick<StoreView, 'registry'>) =>
  new Map(registry.map(({ questionId, slug }) => [questionId, slug]))

function questionIdOf(site: Site, { registry }: StoreView, name: string | undefined) {
  if (name === undefined || isQuestionId(name)) return name
  const found = registry.find(({ slug }) => slug === name)
  if (found) return found.questionId
  throw new UsageError('question_not_found', `the registry has no slug ${name.slice(0, 80)}`, {
    hint: `give the question id, or look at ${site.named('questions list')}`,
  })
}

/** The newest candidates that fit, and how many more there are. */
async function newest(
  { ledger }: StoreView,
  wanted: Record<'status' | 'proposer' | 'questionId', string | undefined>,
  limit: number,
) {
  const { status, proposer, questionId } = wanted
  const isFiltered = proposer !== undefined || questionId !== undefined
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
    if (found.length < limit) found.push(candidate)
    else more += 1
  }
  return { found, more }
}

/**
 * Which and how far, then when, what and by whom. One line where all of it fits, and the id stays
 * whole on a narrow terminal too.
 */
export function rowText(
  row: CandidateRow,
  { columns, paint }: Pick<Output, 'columns' | 'paint'>,
): string {
  const status = row.status.padEnd(statusWidth)
  const painted = paint[colours[row.status]](status)
  const note = row.failure_code ?? row.submission ?? ''
  const received = timeText(row.received_at)
  const question = visible(row.slug ?? `${row.question_id.slice(0, 10)}…`)
  const more = `${received}  ${(row.outcome ?? row.price).padEnd('answer'.length)}  ${row.proposer.slice(0, 10)}…  `
  const lead = `${row.candidate_id}  ${status}  `.length
  if (columns >= wideColumns) {
    const facts = `${cut(note, noteWidth).padEnd(noteWidth)}  ${more}`
    return `${row.candidate_id}  ${painted}  ${facts}${cut(question, columns - lead - facts.length)}`
  }
  const below = cut(`  ${more}${question}`, columns)
  if (lead + note.length <= columns)
    return `${row.candidate_id}  ${painted}  ${note}`.trimEnd().concat('\n', below)
  return [
    row.candidate_id,
    `  ${painted}  ${cut(note, columns - statusWidth - 4)}`.trimEnd(),
    below,
  ].join('\n')
}

/** Names of the columns, where `rowText` puts them. */
export function headText({ columns, paint }: Pick<Output, 'columns' | 'paint'>): string {
  const first = `${'candidate'.padEnd(idWidth)}  ${'status'.padEnd(statusWidth)}  `
  const facts = `${'received'.padEnd(timeWidth)}  answer  ${'proposer'.padEnd(walletWidth)}  question`
  if (columns >= wideColumns)
    return paint.dim(`${first}${'cause or stage'.padEnd(noteWidth)}  ${facts}`)
  const lines =
    columns >= first.length + noteWidth
      ? [`${first}cause or stage`]
      : ['candidate', '  status     cause or stage']
  return [...lines, cut(`  ${facts}`, columns)].map((line) => paint.dim(line)).join('\n')
}

const idWidth = 36
const timeWidth = '2026-11-20 17:01:30Z'.length
const walletWidth = '0x12345678…'.length
/** The longest status. */
const statusWidth = 'validated'.length
/** The longest failure code. */
const noteWidth = 24
/** An id, a status, a note, a time, an answer, a wallet, and room for a question to be known by. */
const wideColumns = 144

const cut = (text: string, columns: number) =>
  text.length <= columns ? text : `${text.slice(0, Math.max(0, columns - 1))}…`

export const showCommand = (context: Context) =>
  new Command('show')
    .description('one candidate as the store holds it')
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
