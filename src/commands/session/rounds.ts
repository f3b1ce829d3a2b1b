/** Rounds that are over, and what was left open in them (§7 rule 3, robustness §6). */

import type { OutOfBand } from '#client/journal/authorizations'
import { currentRound, type SettledEarlier } from '#client/propose/round-over'
import type { OnRetry } from '#client/propose/send'
import { instant } from '#protocol/candidate'
import { ProposerError } from '#protocol/errors'
import type { Context } from '../terminal/context.js'
import { visible } from '../terminal/render.js'
import { identify } from './identify.js'
import { contextSource } from './question.js'
import { type Session, withSession } from './session.js'
import type { SessionFlags } from './settings.js'

export const roundNow = (context: Context, session: Session) =>
  currentRound(
    session.settings.rpcUrl !== undefined,
    () => session.trust(),
    (pins) => contextSource(context, session, pins),
    session.signal,
  )

export const retryNote =
  ({ output }: Context): OnRetry =>
  ({ attempt, reason, waitMs }) =>
    output.note(
      `attempt ${attempt}: ${visible(reason)}; resending the same bytes in ${Math.ceil(waitMs / 1000)} s`,
    )

/** --quiet does not silence an outcome that only the operator can tell. */
export function collector(
  context: Context,
  quiet: boolean,
  settled: SettledEarlier[],
): (one: SettledEarlier) => void {
  return (one) => {
    settled.push(one)
    if (quiet && context.output.isForPeople && one.outcome === 'unknown')
      context.output.warn(visible(one.line))
  }
}

export const outOfBandData = ({ questionId, clientRef, submittedAtMs }: OutOfBand) => ({
  question_id: questionId,
  client_ref: clientRef ?? null,
  submitted_at: instant(submittedAtMs),
})

export const settledData = (settled: readonly SettledEarlier[]) =>
  settled.map((one) => ({
    journal_id: one.journalId,
    outcome: one.outcome,
    ...(one.outcome === 'unknown'
      ? { out_of_band: outOfBandData(one.outOfBand) }
      : { code: one.code ?? null }),
  }))

export interface Settling {
  readonly settled: readonly SettledEarlier[]
  onSettled(one: SettledEarlier): void
}

/** A session for one question. With --json an error tells what was settled: there are no notes. */
export async function settlingSession(
  context: Context,
  flags: SessionFlags,
  named: string,
  use: (session: Session, identifier: string, settling: Settling) => Promise<void>,
) {
  const settled: SettledEarlier[] = []
  const onSettled = collector(context, flags.quiet === true, settled)
  try {
    await withSession(context, flags, async (session) => {
      const [identifier = named] = await identify(context, session, [named])
      await use(session, identifier, { settled, onSettled })
    })
  } catch (error) {
    const isLost = !context.output.isForPeople && settled.length > 0
    if (!isLost || !(error instanceof ProposerError)) throw error
    const detail = [error.detail, ...settled.map(({ line }) => line)].join('. ')
    throw new (error.constructor as typeof ProposerError)(error.code, detail, error.meta)
  }
}
