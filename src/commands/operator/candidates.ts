/** `operator candidates`: what the store holds of proposals (contract §6). Signatures and raw transactions are never shown (R5). */
import { Command, Option } from 'commander'
import { type CandidateRow, candidateRow, createReceipts } from '../../core/gateway/operator/listing.js'
import { UsageError } from '../../core/protocol/errors.js'
import { isQuestionId } from '../../core/protocol/schema.js'
import type { Context } from '../context.js'
import { requireAddress } from '../eligibility.js'
import { wholeNumber } from '../hosting/foreground.js'
import { fields, visible } from '../view/render.js'
import { act, candidateIdOf, look, type Site, siteOf, unknownCandidate } from './access.js'
import { explainCommand } from './explain.js'
import { reasonOf, reasonOption, showActed } from './wallets.js'

export const candidatesCommand = (context: Context): Command =>
  new Command('candidates')
    .description('what became of proposals, and ending one')
    .addHelpText(
      'after',
      '\nExamples:\n  proposer operator candidates list --status failed\n  proposer operator candidates explain <candidate-id>\n  proposer operator candidates reject <candidate-id> --reason "asked for by the proposer"',
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
    .addOption(new Option('--status <status>', 'only those').choices(['received', 'validated', 'selected', 'executed', 'failed']))
    .option('--proposer <address>', 'only those of this wallet')
    .option('--question <id|slug>', 'only those of this question')
    .option('--limit <number>', 'so many at most', '50')
    .action(async (own: ListFlags, command: Command) => {
      const site = await siteOf(context, command)
      const limit = wholeNumber('--limit', own.limit, 1, 1_000_000)
      const proposer = own.proposer === undefined ? undefined : requireAddress(own.proposer)
      const receipts = createReceipts()
      const { output } = context
      await look(context, site, [receipts], async ({ ledger, state, registry }) => {
        const wanted = own.question?.toLowerCase()
        const questionId = wanted === undefined || isQuestionId(wanted) ? wanted : registry.find(({ slug }) => slug === wanted)?.questionId
        if (wanted !== undefined && questionId === undefined) throw unknownSlug(site, wanted)
        const slugs = new Map(registry.map((entry) => [entry.questionId, entry.slug]))
        const shown: CandidateRow[] = []
        let more = 0
        for (const entry of [...state.entries.values()].sort((one, other) => other.sequence - one.sequence)) {
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
        const data = output.mode === 'ndjson' ? { summary: { shown: shown.length, more } } : { candidates: shown, more }
        output.result('operator-candidates', data, () => {
          if (shown.length === 0) return 'no such candidates'
          const rest = more === 0 ? [] : [`and ${more} more; --limit shows them`]
          return [...shown.map((row) => rowText(row, output.columns)), ...rest].join('\n')
        })
      })
    })

function unknownSlug(site: Site, slug: string): UsageError {
  return new UsageError('question_not_found', `the registry has no slug ${slug.slice(0, 80)}`, {
    hint: `give the question id, or look at ${site.named('questions list')}`,
  })
}

/** Which and how far, then what and by whom; the id stays whole on a narrow terminal too. */
function rowText(row: CandidateRow, columns: number): string {
  const fate = [row.status, row.failure_code ?? row.submission ?? ''].filter((text) => text !== '').join(' ')
  const question = row.slug ?? `${row.question_id.slice(0, 10)}…`
  const received = row.received_at.replace(/\.\d+Z$/, 'Z')
  const more = `${received}  ${row.outcome ?? row.price}  ${row.proposer.slice(0, 8)}…  ${visible(question)}`
  const first = `${row.candidate_id}  ${fate}`
  const lines = first.length <= columns ? [first, `  ${more}`] : [row.candidate_id, `  ${fate}`, `  ${more}`]
  return lines.map((line) => (line.length <= columns ? line : `${line.slice(0, columns - 1)}…`)).join('\n')
}

const showCommand = (context: Context) =>
  new Command('show')
    .description('one candidate as the store holds it')
    .argument('<candidate-id>')
    .action(async (given: string, _own: unknown, command: Command) => {
      const id = candidateIdOf(given)
      const site = await siteOf(context, command)
      const receipts = createReceipts()
      const { output } = context
      await look(context, site, [receipts], async ({ ledger, registry }) => {
        const candidate = await ledger.get(id)
        if (!candidate) throw unknownCandidate(site, id)
        const slug = registry.find(({ questionId }) => questionId === candidate.round.questionId)?.slug
        const row = candidateRow(candidate, slug, receipts)
        output.result('operator-candidate', row, () =>
          fields(
            Object.entries(row).map(([name, value]) => [name.replaceAll('_', ' '), value === null ? null : String(value)] as const),
            output.columns,
          ),
        )
      })
    })

const rejectCommand = (context: Context) =>
  new Command('reject')
    .description('end a candidate for good; its proposer reads the reason as the detail of the failure')
    .argument('<candidate-id>')
    .requiredOption(reasonOption[0], 'why, for the proposer to read')
    .action(async (given: string, own: { reason: string }, command: Command) => {
      const id = candidateIdOf(given)
      const site = await siteOf(context, command)
      const acted = await act(context, site, 'candidates/reject', { candidate_id: id, ...reasonOf(own) })
      showActed(context, acted, (name) => [`candidate ${name} is rejected`, `candidate ${name} is as it was`])
    })
