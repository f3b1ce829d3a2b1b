/**
 * Sending again what may be of a round that has ended: nothing that is sent can then tell what
 * became of it (§7 rule 3, robustness §6).
 */
import { ConflictError, type ProposerError, UncertainError } from '../../protocol/errors.js'
import { type Authorization, isUnsettled } from '../journal/authorizations.js'
import type { JournalEntry } from '../journal/records.js'
import type { SubmitParts } from './attempt.js'
import { outOfBandLine, outOfBandOf } from './earlier.js'
import { type SubmissionResult, type SubmitOptions, submitAuthorization } from './sending.js'

export interface CurrentRound {
  /** The timestamp of the round that a question is in; `undefined` where it cannot be learned. */
  timestamp(authorization: Authorization): Promise<string | undefined>
  /**
   * It is read from a node of ours: it costs no budget, and it outrules what a gateway once said.
   */
  readonly isFree: boolean
}

/**
 * What is told of an authorization whose round is over: exit 5 where a 409 said so (contract §6:
 * only a 409 gives 5), else exit 6.
 */
export type RoundOver = Extract<SubmissionResult, { error: ProposerError }> & {
  readonly outcome: 'conflict' | 'unknown'
}

/**
 * `submitAuthorization`, but where the round of an unsettled authorization is over, the result is a
 * `RoundOver`: it carries what the out-of-band channel needs, code `round_over`. Once that is known
 * nothing is sent for it any more: each sending costs an item (§8) and could tell nothing. A round
 * that a reorg brings back is seen by a free `round` only (R14). Rejects like
 * `submitAuthorization`.
 */
export async function sendInRound(
  parts: SubmitParts,
  authorization: Authorization,
  { round, ...options }: SubmitOptions & { readonly round?: CurrentRound } = {},
): Promise<SubmissionResult> {
  const known = await knownOver(authorization, round)
  if (known !== undefined) return known
  const result = await submitAuthorization(parts, authorization, options)
  if (result.error === undefined) return result
  // What was uncertain may have become so just now.
  const sent = (await parts.journal.load()).find(authorization.id) ?? authorization
  return (
    (await foundOver(
      parts,
      sent,
      { statusCode: result.statusCode, code: result.error.code },
      round,
    )) ?? result
  )
}

/**
 * Before anything is sent: what is told in place of it where the round of an unsettled
 * authorization is known to be over.
 */
export async function knownOver(
  authorization: Authorization,
  round?: CurrentRound,
): Promise<RoundOver | undefined> {
  return isUnsettled(authorization) && (await isKnownOver(authorization, round))
    ? overOutcome(authorization, null)
    : undefined
}

/**
 * After a sending that did not end as accepted: what is told in place of its refusal where that
 * says that the round of a still unsettled authorization is over: 409 `round_advanced`, or a 403
 * while `round` is another one, which is journaled. `sent`: as the journal has it after the
 * sending. Rejects for journal faults (StorageError 74).
 */
export async function foundOver(
  parts: Pick<SubmitParts, 'journal'>,
  sent: Authorization,
  refusal: { readonly statusCode: number | null; readonly code: string },
  round?: CurrentRound,
): Promise<RoundOver | undefined> {
  if (!isUnsettled(sent)) return undefined
  if (refusal.code === 'round_advanced') return overOutcome(sent, refusal.statusCode)
  if (refusal.statusCode !== 403 || !(await isOver(sent, round))) return undefined
  await journalRoundOver(parts, sent)
  return overOutcome(sent, refusal.statusCode)
}

async function isKnownOver(
  authorization: Authorization,
  round: CurrentRound | undefined,
): Promise<boolean> {
  const told = authorization.attempts.some(({ end }) => end?.code === 'round_advanced')
  if (round?.isFree !== true) return told
  const { timestamp } = authorization.signed
  const current = await round.timestamp(authorization)
  return current === undefined || timestamp === undefined ? told : current !== timestamp
}

async function isOver(
  authorization: Authorization,
  round: CurrentRound | undefined,
): Promise<boolean> {
  const { timestamp } = authorization.signed
  if (timestamp === undefined) return false
  const current = await round?.timestamp(authorization)
  return current !== undefined && current !== timestamp
}

/**
 * A 403 alone does not say that a round is over: what was learned beside it is told with the
 * attempt's end, once more.
 */
async function journalRoundOver(
  { journal }: Pick<SubmitParts, 'journal'>,
  { id, attempts }: Authorization,
): Promise<void> {
  const refused = attempts.findLast(({ end }) => end?.class === 'refused')
  if (refused === undefined) return
  const entry: JournalEntry = {
    kind: 'attempt.end',
    data: {
      attempt: refused.start.attempt,
      results: [{ id, class: 'refused', status: 403, code: 'round_advanced' }],
    },
  }
  await journal.append([entry])
}

function overOutcome(authorization: Authorization, statusCode: number | null): RoundOver {
  const told = authorization.attempts.some(
    ({ end }) => end?.class === 'reconcile' && end.code === 'round_advanced',
  )
  const meta = {
    hint: `see what is safe to do next with \`proposer reconcile ${authorization.signed.questionId}\``,
    ...(statusCode === null ? {} : { httpStatus: statusCode }),
  }
  const over = {
    authorization,
    journalId: authorization.id,
    statusCode,
    outOfBand: outOfBandOf(authorization),
  }
  const line = outOfBandLine(authorization)
  return told
    ? { ...over, outcome: 'conflict', error: new ConflictError('round_over', line, meta) }
    : { ...over, outcome: 'unknown', error: new UncertainError('round_over', line, meta) }
}
