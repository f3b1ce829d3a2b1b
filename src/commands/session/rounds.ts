/**
 * Rounds that are over: how it is learned, and what is told of what was left open in them (§7 rule
 * 3, robustness §6).
 */

import type { OutOfBand } from '../../core/client/journal/saved.js'
import type { SettledEarlier } from '../../core/client/propose/earlier.js'
import { type CurrentRound, currentRound } from '../../core/client/propose/round-over.js'
import type { OnRetry } from '../../core/client/propose/send.js'
import { instant } from '../../core/protocol/candidate.js'
import { ProposerError } from '../../core/protocol/errors.js'
import type { Context } from '../terminal/context.js'
import { visible } from '../terminal/render.js'
import { contextSource } from './question.js'
import type { Session } from './session.js'

/** The round of a question as the node tells it where one is configured, else the gateway. */
export const roundNow = (context: Context, session: Session): CurrentRound =>
  currentRound(
    session.settings.rpcUrl !== undefined,
    () => session.trust(),
    (pins) => contextSource(context, session, pins),
    session.signal,
  )

/** Notes each wait before the same bytes are sent again. */
export const retryNote =
  ({ output }: Context): OnRetry =>
  ({ attempt, reason, waitMs }) =>
    output.note(
      `attempt ${attempt}: ${visible(reason)}; resending the same bytes in ${Math.ceil(waitMs / 1000)} s`,
    )

/**
 * Collects what becomes of earlier ones. --quiet silences the note that reported it, but not an
 * outcome that only the operator can tell.
 */
export function collector(
  context: Context,
  quiet: boolean,
  settled: SettledEarlier[],
): (one: SettledEarlier) => void {
  return (one) => {
    settled.push(one)
    if (quiet && context.output.mode === 'human' && one.outcome === 'unknown')
      context.output.warn(visible(one.line))
  }
}

/** As it stands in a JSON result. */
export const outOfBandData = ({ questionId, clientRef, submittedAtMs }: OutOfBand) => ({
  question_id: questionId,
  client_ref: clientRef ?? null,
  submitted_at: instant(submittedAtMs),
})

/** What became of authorizations of earlier rounds, as it stands in a JSON result. */
export const settledData = (settled: readonly SettledEarlier[]) =>
  settled.map((one) => ({
    journal_id: one.journalId,
    outcome: one.outcome,
    ...(one.outcome === 'unknown'
      ? { out_of_band: outOfBandData(one.outOfBand) }
      : { code: one.code ?? null }),
  }))

/**
 * The same error with what became of the earlier ones in its detail. With --json there are no
 * notes, and an outcome that only the operator can tell must not be lost with the result.
 */
export function withSettled(error: unknown, settled: readonly SettledEarlier[]): unknown {
  if (!(error instanceof ProposerError) || settled.length === 0) return error
  const detail = [error.detail, ...settled.map(({ line }) => line)].join('. ')
  return new (error.constructor as typeof ProposerError)(error.code, detail, error.meta)
}
