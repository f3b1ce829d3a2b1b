/**
 * `replay`: sends the saved bytes of unknown and deferred authorizations again (R7, contract §6).
 */
import { Command } from 'commander'
import { gravest } from '../core/client/gateway/answer.js'
import type { Elsewhere } from '../core/client/journal/saved.js'
import type { SubmissionResult } from '../core/client/propose/outcome.js'
import { planReplay, type ReplayPlan, replay, type Skipped } from '../core/client/propose/replay.js'
import { UsageError } from '../core/protocol/errors.js'
import { outOfBandData, retryNote, roundNow } from './session/rounds.js'
import { addExecutorFlags, type SessionFlags, withSession } from './session/session.js'
import type { Context } from './terminal/context.js'
import { type DryRunFlag, dryRunOption, showDryRun } from './terminal/dry-run.js'
import { fields } from './terminal/render.js'

export const replayCommand = (context: Context): Command =>
  addExecutorFlags(new Command('replay'))
    .description('resend saved payloads with unknown or deferred outcome; never signs')
    .argument('[journal-id...]', 'journal ids; default: all')
    .option('--all', 'every one with unknown or deferred outcome')
    .option(...dryRunOption)
    .addHelpText('after', '\nExample:\n  proposer replay --all')
    .action(async (ids: string[], _own: unknown, command: Command) => {
      const flags = command.optsWithGlobals<SessionFlags & DryRunFlag & { all?: boolean }>()
      if (flags.all === true && ids.length > 0) {
        throw new UsageError('ids_and_all', '--all and journal ids cannot be used together', {
          hint: 'omit --all or the ids',
        })
      }
      await withSession(context, flags, async (session) => {
        const { output } = context
        const gateway = await session.gateway(flags.dryRun === true ? 'read' : 'run')
        const { timeoutMs } = session.settings
        const parts = { ports: session.ports, journal: session.journal, gateway }
        const which = ids.length > 0 ? ids : 'all'
        // Named together with ids on the command line, another gateway is meant for these (contract
        // §6).
        const redirect =
          ids.length > 0 && (flags.gateway !== undefined || flags.local !== undefined)
        if (flags.dryRun === true)
          return showPlan(context, gateway.origin, await planReplay(parts, which, { redirect }))
        const progress = output.progress('sending again')
        const { results, elsewhere, skipped } = await replay(parts, which, {
          timeoutMs,
          signal: context.signal,
          redirect,
          round: roundNow(context, session),
          onRetry: retryNote(context),
        }).finally(() => progress.stop())
        const sent = results.map(resultOf)
        const others = elsewhere.map(elsewhereData)
        const left = skipped.map(skippedData)
        for (const one of left) output.note(`note: ${leftText(one)}`)
        const document = {
          results: sent,
          elsewhere: others,
          ...(left.length === 0 ? {} : { skipped: left }),
        }
        if (output.mode === 'ndjson') {
          for (const one of [...sent, ...others, ...left]) output.line(one)
          output.result(
            'replay',
            { summary: { sent: sent.length, elsewhere: others.length } },
            () => '',
          )
        } else
          output.result('replay', document, () =>
            replayText(sent, others, left.length, output.columns),
          )
        const error = gravest([...results, ...elsewhere].map((one) => one.error))
        if (error) throw error
      })
    })

function showPlan(
  context: Context,
  origin: string,
  { chosen, elsewhere, skipped }: ReplayPlan,
): void {
  const ids = chosen.map(({ id }) => id)
  const would =
    ids.length === 0
      ? 'send nothing'
      : `send the saved bytes of ${ids.join(', ')} to ${origin} again`
  showDryRun(context, would, {
    journal_ids: ids,
    origin,
    elsewhere: elsewhere.map(elsewhereData),
    skipped: skipped.map(skippedData),
  })
}

const elsewhereData = ({ authorization, origin, flag }: Elsewhere) => ({
  journal_id: authorization.id,
  origin,
  flag,
})

const skippedData = ({ authorization, reason, command }: Skipped) => ({
  journal_id: authorization.id,
  question_id: authorization.signed.questionId,
  skipped: reason,
  command,
})

const leftText = ({ journal_id: id, skipped, command }: ReturnType<typeof skippedData>): string =>
  skipped === 'superseded'
    ? `${id} has an unknown outcome and was replaced, so it is not sent; \`${command}\` makes sure that it can never execute`
    : `${id} has failed and may still execute; \`${command}\` tries it again`

function resultOf(result: SubmissionResult) {
  const { journalId, outcome, statusCode, authorization, error } = result
  return {
    journal_id: journalId,
    question_id: authorization.signed.questionId,
    outcome,
    status_code: statusCode,
    candidate_id: error ? (authorization.candidateId ?? null) : result.candidateId,
    error: error ? { code: error.code, detail: error.detail } : null,
    ...(error && result.outOfBand ? { out_of_band: outOfBandData(result.outOfBand) } : {}),
  }
}

type Sent = ReturnType<typeof resultOf>

const isAcknowledged = ({ outcome }: Sent): boolean =>
  outcome === 'accepted' || outcome === 'replayed'

function replayText(
  sent: readonly Sent[],
  others: readonly { journal_id: string; origin: string; flag: string }[],
  leftCount: number,
  columns: number,
): string {
  if (sent.length + others.length === 0 && leftCount > 0) return 'nothing was sent'
  if (sent.length + others.length === 0)
    return 'nothing to replay: no outcome is unknown or deferred'
  const blocks = [
    ...sent.map((one) =>
      fields(
        [
          // The word of an acknowledgement stands before the candidate; any other is about the
          // authorization.
          ...(isAcknowledged(one)
            ? ([
                [one.outcome, one.candidate_id],
                ['journal', one.journal_id],
              ] as const)
            : ([
                [one.outcome, one.journal_id],
                ['candidate', one.candidate_id],
              ] as const)),
          ['question', one.question_id],
          ['error', one.error?.detail],
        ],
        columns,
      ),
    ),
    ...others.map((one) =>
      fields(
        [
          ['not sent', one.journal_id],
          ['went to', one.origin],
          ['send with', one.flag],
        ],
        columns,
      ),
    ),
  ]
  return blocks.join('\n\n')
}
