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
import { UsageError } from '../../core/protocol/errors.js'
import { isQuestionId } from '../../core/protocol/schema.js'
import { dryRunOption } from '../dry-run.js'
import { requireAddress } from '../eligibility.js'
import { wholeNumber } from '../hosting/foreground.js'
import { colours } from '../terminal/candidate-text.js'
import type { Context } from '../terminal/context.js'
import type { Output } from '../terminal/output.js'
import { fields, timeText, visible } from '../terminal/render.js'
import { act, candidateIdOf, look, type Site, siteOf, unknownCandidate } from './access.js'
import { explainCommand } from './explain.js'
import { reasonOf, reasonOption, showActed } from './wallets.js'

export const candidatesCommand = (context: Context): Command =>
  new Command('candidates')
    .description('what became of proposals, and ending one')
    .addHelpText(
      'after',
      '\nExamples:\n  proposer operator candidates list --status failed\n  proposer operator candidates explain 3f2b8c1e-8d5a-4a52-9c3d-0a1b2c3d4e5f\n  proposer operator candidates reject 3f2b8c1e-8d5a-4a52-9c3d-0a1b2c3d4e5f --reason "asked for by the proposer"',
    )
    .addCommand(listCommand(context))
    .addCommand(showCommand(context))
    .addCommand(explainCommand(context))
    .addCommand(rejectCommand(context))

interface ListFlags {
  readonly status?: string
  readonly proposer?: string
  readonly question?: string
  readonly limit: string
}

const listCommand = (context: Context) =>
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
      const proposer = own.proposer === undefined ? undefined : requireAddress(own.proposer)
      const receipts = createReceipts()
      const { output } = context
      await look(context, site, [receipts], async ({ ledger, registry }) => {
        const wanted = own.question?.toLowerCase()
        const questionId =
          wanted === undefined || isQuestionId(wanted)
            ? wanted
            : registry.find(({ slug }) => slug === wanted)?.questionId
        if (wanted !== undefined && questionId === undefined) throw unknownSlug(site, wanted)
        const slugs = new Map(registry.map((entry) => [entry.questionId, entry.slug]))
        const shown: CandidateRow[] = []
        let more = 0
        for (const entry of ledger.newest()) {
          if (own.status !== undefined && entry.status !== own.status) continue
          const isFiltered = proposer !== undefined || questionId !== undefined
          if (shown.length >= limit && !isFiltered) {
            more += 1
            continue
          }
          const candidate = await ledger.get(entry.id)
          if (!candidate || (proposer !== undefined && candidate.proposer !== proposer)) continue
          if (questionId !== undefined && candidate.round.questionId !== questionId) continue
          if (shown.length >= limit) more += 1
          else shown.push(candidateRow(candidate, slugs.get(candidate.round.questionId), receipts))
        }
        if (output.mode === 'ndjson') for (const row of shown) output.line(row)
        const data =
          output.mode === 'ndjson'
            ? { summary: { shown: shown.length, more } }
            : { candidates: shown, more }
        output.result('operator-candidates', data, () => {
          if (shown.length === 0) return 'no such candidates'
          const rest = more === 0 ? [] : [`and ${more} more; --limit shows them`]
          return [headText(output), ...shown.map((row) => rowText(row, output)), ...rest].join('\n')
        })
      })
    })

function unknownSlug(site: Site, slug: string): UsageError {
  return new UsageError('question_not_found', `the registry has no slug ${slug.slice(0, 80)}`, {
    hint: `give the question id, or look at ${site.named('questions list')}`,
  })
}

/**
 * Which and how far, then when, what and by whom; one line where all of it fits, and the id stays
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
  const ahead = `${row.candidate_id}  ${status}  `.length
  if (columns >= wideColumns) {
    const facts = `${cut(note, noteWidth).padEnd(noteWidth)}  ${more}`
    return `${row.candidate_id}  ${painted}  ${facts}${cut(question, columns - ahead - facts.length)}`
  }
  const below = cut(`  ${more}${question}`, columns)
  if (ahead + note.length <= columns)
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

const showCommand = (context: Context) =>
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
      await look(context, site, [receipts], async ({ ledger, registry }) => {
        const candidate = await ledger.get(id)
        if (!candidate) throw unknownCandidate(site, id)
        const slug = registry.find(
          ({ questionId }) => questionId === candidate.round.questionId,
        )?.slug
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

const rejectCommand = (context: Context) =>
  new Command('reject')
    .description(
      'end a candidate for good; its proposer reads the reason as the detail of the failure',
    )
    .argument('<candidate-id>')
    .requiredOption(reasonOption[0], 'why, for the proposer to read')
    .option(...dryRunOption)
    .addHelpText(
      'after',
      '\nExample:\n  proposer operator candidates reject 3f2b8c1e-8d5a-4a52-9c3d-0a1b2c3d4e5f --reason "asked for by the proposer"',
    )
    .action(async (given: string, own: { reason: string }, command: Command) => {
      const id = candidateIdOf(given)
      const site = await siteOf(context, command)
      const acted = await act(context, site, 'candidates/reject', {
        candidate_id: id,
        ...reasonOf(own),
      })
      if (acted === undefined) return
      showActed(context, acted, (name) => [
        `candidate ${name} is rejected`,
        `candidate ${name} is as it was`,
      ])
    })
