/** What `operator list` and `operator questions list` show (contract §6, §7). */
import { Command } from 'commander'
import { createDecisions, type OperatorDecision } from '../../core/gateway/status/listing.js'
import { registryOf } from '../../core/host/config-file.js'
import { instant } from '../../core/protocol/candidate.js'
import { wholeNumber } from '../hosting/foreground.js'
import { addListFlags, type ListFlags, sinceMs } from '../session/list-flags.js'
import type { Context } from '../terminal/context.js'
import type { Output } from '../terminal/output.js'
import { fold, timeText } from '../terminal/render.js'
import { type Column, tableText } from '../terminal/table.js'
import { look, siteOf } from './access.js'
import { saidText } from './said.js'

/** Rows as NDJSON with a summary, as one document, or as text. */
export function printRows<Row extends object>(
  output: Output,
  schema: string,
  rows: readonly Row[],
  summary: object,
  document: object,
  text: () => string,
): void {
  const isNdjson = output.mode === 'ndjson'
  if (isNdjson) for (const row of rows) output.line(row)
  output.result(schema, isNdjson ? { summary } : document, text)
}

/** `since` is null where only the configuration says so. */
export const decisionOf = <Otherwise>(
  decision: OperatorDecision | undefined,
  otherwise: Otherwise,
) => ({
  since: decision === undefined ? null : instant(decision.atMs),
  reason: decision?.reason ?? otherwise,
  /** Who decided it, where the store knows. */
  by: decision?.by ?? null,
})

export const walletsListCommand = (context: Context) =>
  new Command('list')
    .description('list who may propose, since when and why, and whether admission is open')
    .option('--all', 'include removed wallets')
    .addHelpText('after', '\nExample:\n  proposer operator list --all')
    .action(async (own: { all?: boolean }, command: Command) => {
      const site = await siteOf(context, command)
      const decisions = createDecisions()
      const { output } = context
      await look(context, site, [decisions], async ({ ledger, holder }) => {
        const former = own.all === true ? decisions.wallets.keys() : []
        const wallets = [...new Set([...ledger.allowlist, ...former])].sort()
        const rows = wallets.map((address) => ({
          address,
          allowed: ledger.eligible(address),
          ...decisionOf(decisions.wallets.get(address), 'listed in the configuration'),
        }))
        const admission = {
          enabled: ledger.admissionEnabled,
          configured: site.loaded.config.admission.enabled,
          ...decisionOf(decisions.admission, 'as it began'),
        }
        const served = holder?.state === 'alive' && holder.role.startsWith('serve')
        printRows(
          output,
          'allowlist',
          rows,
          { wallets: rows.length, admission },
          { admission, served, wallets: rows },
          () =>
            [
              fold(admissionText(admission), output.columns, '  '),
              ...rows.map((row) => walletText(row, output.columns)),
            ].join('\n'),
        )
      })
    })

interface Reasoned {
  readonly since: string | null
  readonly reason: string
  readonly by: string | null
}

function admissionText({
  enabled,
  configured,
  since,
  reason,
  by,
}: Reasoned & { enabled: boolean; configured: boolean }): string {
  if (!configured) return 'admission is closed: admission.enabled is false in the configuration'
  const why = since === null ? '' : ` since ${timeText(since)}: ${saidText(reason, by)}`
  return `admission is ${enabled ? 'open' : 'paused'}${why}`
}

function walletText(
  { address, allowed, since, reason, by }: Reasoned & { address: string; allowed: boolean },
  columns: number,
): string {
  const state = allowed ? '' : 'off the list, '
  const why = `${state}${since === null ? '' : `since ${timeText(since)}: `}${saidText(reason, by)}`
  return `${address}\n  ${fold(why, columns - 2, '  ')}`
}

const sources = { file: 'questions file', operator: 'operator', removed: 'removed by operator' }

export const questionsListCommand = (context: Context) =>
  addListFlags(new Command('list'), Object.keys(sources))
    .description('list entries in force and where they come from')
    .addHelpText('after', '\nExample:\n  proposer operator questions list --state removed')
    .action(async (own: ListFlags, command: Command) => {
      const site = await siteOf(context, command)
      const decisions = createDecisions()
      const { output } = context
      const nowMs = context.clock.nowMs()
      const since = sinceMs(own.since, nowMs)
      const limit =
        own.limit === undefined ? undefined : wholeNumber('--limit', own.limit, 1, 1_000_000)
      await look(context, site, [decisions], async ({ registry, ledger }) => {
        const configured = new Set(
          (await registryOf(context, site.loaded)).map(({ questionId }) => questionId),
        )
        const removed = [...ledger.questions].filter(
          ([questionId, entry]) => entry === null && configured.has(questionId),
        )
        const all = [
          ...registry.map(({ questionId, slug, requester, request }) => {
            const isOurs = ledger.questions.has(questionId)
            const decision = isOurs ? decisions.questions.get(questionId) : undefined
            return {
              question_id: questionId,
              slug: slug ?? null,
              requester: requester ?? request?.requester ?? null,
              has_request: request !== undefined,
              source: decision === undefined ? sources.file : sources.operator,
              ...decisionOf(decision, null),
            }
          }),
          ...removed.map(([questionId]) => ({
            question_id: questionId,
            slug: null,
            requester: null,
            has_request: false,
            source: sources.removed,
            ...decisionOf(decisions.questions.get(questionId), null),
          })),
        ]
        const source = Object.entries(sources).find(([state]) => state === own.state)?.[1]
        const found = all.filter(
          (row) =>
            (source === undefined || row.source === source) &&
            (own.question === undefined || [row.slug, row.question_id].includes(own.question)) &&
            (since === 0 || Date.parse(row.since ?? '') >= since),
        )
        const rows = limit === undefined ? found : found.slice(-limit)
        const older = found.length - rows.length
        printRows(
          output,
          'operator-questions',
          rows,
          { questions: registry.length, removed: removed.length },
          { questions: rows },
          () =>
            all.length === 0
              ? 'the registry is empty; questions of trusted adapters are still served by their ids'
              : rows.length === 0
                ? `nothing matches; the registry holds ${all.length}`
                : [
                    tableText(questionColumns, rows, output, own.wide === true),
                    ...(older === 0
                      ? []
                      : [`and ${older} more; --limit ${found.length} shows them`]),
                  ].join('\n'),
        )
      })
    })

type QuestionRow = Record<'slug' | 'requester' | 'since' | 'reason', string | null> &
  Record<'question_id' | 'source', string>

const questionColumns: readonly Column<QuestionRow>[] = [
  { head: 'question', cell: (row) => row.slug ?? row.question_id, least: 12 },
  { head: 'from', cell: (row) => row.source, least: 8 },
  { head: 'since', cell: (row) => row.since && timeText(row.since), rank: 2 },
  { head: 'reason', cell: (row) => row.reason, least: 8, rank: 1 },
  { head: 'requester', cell: (row) => row.requester, wide: true },
  { head: 'question id', cell: (row) => row.question_id, wide: true },
]
