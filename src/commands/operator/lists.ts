/** What `operator list` and `operator questions list` show (contract §6, §7). */
import { Command } from 'commander'
import { createDecisions, type OperatorDecision } from '../../core/gateway/status/listing.js'
import { registryOf } from '../../core/host/config-file.js'
import { instant } from '../../core/protocol/candidate.js'
import type { Context } from '../terminal/context.js'
import type { Output } from '../terminal/output.js'
import { fold, timeText, visible } from '../terminal/render.js'
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
const decisionOf = <Otherwise>(decision: OperatorDecision | undefined, otherwise: Otherwise) => ({
  since: decision === undefined ? null : instant(decision.atMs),
  reason: decision?.reason ?? otherwise,
  /** Who decided it, where the store knows. */
  by: decision?.by ?? null,
})

export const walletsListCommand = (context: Context) =>
  new Command('list')
    .description('who may propose since when and why, and whether admission is open')
    .option('--all', 'wallets too that were taken off the list')
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
            [admissionText(admission), ...rows.map((row) => walletText(row, output.columns))].join(
              '\n',
            ),
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
  const why = since === null ? '' : ` since ${timeText(since)}: ${visible(saidText(reason, by))}`
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

export const questionsListCommand = (context: Context) =>
  new Command('list')
    .description('every entry in force and where it comes from')
    .addHelpText('after', '\nExample:\n  proposer operator questions list')
    .action(async (_own: unknown, command: Command) => {
      const site = await siteOf(context, command)
      const decisions = createDecisions()
      const { output } = context
      await look(context, site, [decisions], async ({ registry, ledger }) => {
        const configured = new Set(
          (await registryOf(context, site.loaded)).map(({ questionId }) => questionId),
        )
        const removed = [...ledger.questions].filter(
          ([questionId, entry]) => entry === null && configured.has(questionId),
        )
        const rows = [
          ...registry.map(({ questionId, slug, requester, request }) => {
            const isOurs = ledger.questions.has(questionId)
            const decision = isOurs ? decisions.questions.get(questionId) : undefined
            return {
              question_id: questionId,
              slug: slug ?? null,
              requester: requester ?? request?.requester ?? null,
              has_request: request !== undefined,
              source: decision === undefined ? 'questions file' : 'operator',
              ...decisionOf(decision, null),
            }
          }),
          ...removed.map(([questionId]) => ({
            question_id: questionId,
            slug: null,
            requester: null,
            has_request: false,
            source: 'removed by operator',
            ...decisionOf(decisions.questions.get(questionId), null),
          })),
        ]
        printRows(
          output,
          'operator-questions',
          rows,
          { questions: registry.length, removed: removed.length },
          { questions: rows },
          () =>
            rows.length === 0
              ? 'the registry is empty; questions of trusted adapters are served by their ids all the same'
              : rows.map((row) => questionText(row, output.columns)).join('\n'),
        )
      })
    })

function questionText(
  {
    question_id,
    slug,
    requester,
    source,
    since,
    reason,
  }: Record<'slug' | 'requester' | 'since' | 'reason', string | null> &
    Record<'question_id' | 'source', string>,
  columns: number,
): string {
  const lines = [
    ...(slug === null ? [] : [question_id]),
    ...(requester === null ? [] : [`requester ${requester}`]),
    `from ${source}${since === null ? '' : ` since ${timeText(since)}: ${reason ?? ''}`}`,
  ]
  const folded = lines.map((line) => `  ${fold(line, columns - 2, '    ')}`)
  return [visible(slug ?? question_id), ...folded].join('\n')
}
