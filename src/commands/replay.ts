/** `replay`: sends the saved bytes of unknown and deferred authorizations again (R7, contract §6). */

import { gravest } from '#client/gateway/answer'
import type { Elsewhere } from '#client/journal/authorizations'
import type { SubmissionResult } from '#client/propose/outcome'
import { planReplay, replay, type Skipped } from '#client/propose/submission'
import { UsageError } from '#protocol/errors'
import { outOfBandData, retryNote, roundNow } from './session/rounds.js'
import { sessionVerb } from './session/session.js'
import { executorFlags } from './session/settings.js'
import { apart, rows } from './terminal/output.js'
import { dryRunFlag, showDryRun } from './terminal/verb.js'

export const replayCommand = sessionVerb({
  name: 'replay',
  about: 'resend saved payloads with unknown or deferred outcome; never signs',
  args: { '[journal-id...]': 'journal ids; default: all' },
  flags: {
    ...executorFlags,
    '--all': 'every one with unknown or deferred outcome',
    ...dryRunFlag,
  },
  examples: ['replay --all'],
  async run(context, session, flags, { journalId: ids }) {
    if (flags.all === true && ids.length > 0)
      throw new UsageError(
        'ids_and_all',
        '--all and journal ids cannot be used together',
        'omit --all or the ids',
      )
    const { output, signal } = context
    const gateway = await session.gateway(flags.dryRun === true ? 'read' : 'run')
    const parts = { ports: session.ports, journal: session.journal, gateway }
    const which = ids.length > 0 ? ids : 'all'
    // Named together with ids on the command line, another gateway is meant for these (contract §6).
    const redirect = ids.length > 0 && (flags.gateway ?? flags.local) !== undefined
    if (flags.dryRun === true) {
      const { chosen, elsewhere, skipped } = await planReplay(parts, which, { redirect })
      const journal_ids = chosen.map(({ id }) => id)
      const { origin } = gateway
      const would =
        journal_ids.length === 0
          ? 'send nothing'
          : `send the saved bytes of ${journal_ids.join(', ')} to ${origin} again`
      return showDryRun(context, would, {
        journal_ids,
        origin,
        elsewhere: elsewhere.map(elsewhereData),
        skipped: skipped.map(skippedData),
      })
    }
    const progress = output.progress('sending again')
    const done = await replay(parts, which, {
      timeoutMs: session.settings.timeoutMs,
      signal,
      redirect,
      round: roundNow(context, session),
      onRetry: retryNote(context),
    }).finally(() => progress.stop())
    const results = done.results.map(resultOf)
    const elsewhere = done.elsewhere.map(elsewhereData)
    const skipped = done.skipped.map(skippedData)
    for (const one of skipped) output.note(`note: ${leftText(one)}`)
    const nothing =
      skipped.length > 0
        ? 'nothing was sent'
        : 'nothing to replay: no outcome is unknown or deferred'
    output.show(
      'replay',
      { results, elsewhere, ...(skipped.length === 0 ? {} : { skipped }) },
      [
        results.length + elsewhere.length === 0 && nothing,
        apart([...results.map(sentRows), ...elsewhere.map(elsewhereRows)]),
      ],
      {
        items: [...results, ...elsewhere, ...skipped],
        summary: { sent: results.length, elsewhere: elsewhere.length },
      },
    )
    const error = gravest([...done.results, ...done.elsewhere].map((one) => one.error))
    if (error) throw error
  },
})

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

const leftText = ({ journal_id: id, skipped, command }: ReturnType<typeof skippedData>) =>
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

function sentRows({ outcome, question_id, error, ...one }: ReturnType<typeof resultOf>) {
  const { journal_id: journal, candidate_id: candidate } = one
  // The word of an acknowledgement is about the candidate; any other about the authorization.
  const isAcknowledged = outcome === 'accepted' || outcome === 'replayed'
  return rows([
    [outcome, isAcknowledged ? candidate : journal],
    isAcknowledged ? ['journal', journal] : ['candidate', candidate],
    ['question', question_id],
    ['error', error?.detail],
  ])
}

const elsewhereRows = ({ journal_id, origin, flag }: ReturnType<typeof elsewhereData>) =>
  rows([
    ['not sent', journal_id],
    ['went to', origin],
    ['send with', flag],
  ])
