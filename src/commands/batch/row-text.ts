/** What became of a row of a batch, for programs and for people. */
import type { PolledCandidate } from '#client/follow/follow'
import { answerOf, executedText, type JournaledAuthorization } from '#client/journal/authorizations'
import type { RowResult } from '#client/propose/batch'
import { FailedError, PendingError, UnavailableError } from '#protocol/errors'
import { outOfBandData, settledData } from '../session/rounds.js'
import { counted } from '../terminal/render.js'

/** The batch route tells no next action (§4.2 rule 7). */
export function rowFailedError({
  candidateId,
  candidate,
  retryable,
}: PolledCandidate): FailedError {
  const { code, detail } = candidate?.failure ?? { code: 'failed', detail: '' }
  return new FailedError(code, detail || 'no reason was given', {
    hint: `see \`proposer status ${candidateId}\` for what to do next`,
    ...(retryable === undefined ? {} : { retryable }),
  })
}

/**
 * Of a candidate that the journal, or a replay's answer, has as failed; `undefined` of any other.
 */
export function failedBefore(
  { candidateId, terminal }: JournaledAuthorization,
  status: string | undefined = terminal?.outcome,
): FailedError | undefined {
  if (candidateId === undefined || status !== 'failed') return undefined
  return new FailedError(
    terminal?.code ?? 'failed',
    `candidate ${candidateId} has failed${terminal?.code === undefined ? '' : ` (${terminal.code})`}`,
    {
      hint: `see \`proposer status ${candidateId}\` for what to do next`,
      ...(terminal?.retryable === undefined ? {} : { retryable: terminal.retryable }),
    },
  )
}

export const pendingError = ({ candidate }: PolledCandidate, hint: string): PendingError =>
  new PendingError('still_pending', `it is ${candidate?.status ?? 'not known'} yet`, {
    hint,
    retryable: true,
  })

/** How its owner knows a row: the question, else the reference that was given, and the answer. */
export function nameOf({ row, authorization }: Pick<RowResult, 'row' | 'authorization'>): string {
  const { clientRef, identifier, columns } = row
  const signed = authorization?.signed
  if (clientRef !== undefined) return clientRef
  const question = signed?.title ?? (columns?.title || columns?.slug || identifier)
  return signed === undefined ? question : `${question} ${answerOf(signed)}`
}

export const rowFailureOf = ({ authorization, candidate }: RowResult) =>
  authorization === undefined || candidate === undefined
    ? undefined
    : failedBefore(authorization, candidate.status)

export const notFollowed = ({ candidate, elsewhere }: RowResult) =>
  new UnavailableError(
    'other_origin',
    `candidate ${candidate?.candidateId} is held by ${elsewhere?.origin}, which is not the configured gateway`,
    `\`proposer poll ${candidate?.candidateId} ${elsewhere?.flag}\``,
  )

export function resultOf(result: RowResult, polled: PolledCandidate | undefined): object {
  const {
    row,
    outcome,
    statusCode,
    authorization,
    candidate,
    error,
    elsewhere,
    outOfBand,
    earlier,
  } = result
  const known = candidate && {
    candidate_id: candidate.candidateId,
    status: candidate.status || null,
    received_at: candidate.receivedAt || null,
    as_of: candidate.asOf,
  }
  return {
    client_ref: row.clientRef ?? null,
    identifier: row.identifier,
    outcome,
    status_code: statusCode,
    candidate: polled?.candidate ?? known ?? null,
    error: error === undefined ? null : { code: error.code, detail: error.detail },
    journal_id: authorization?.id ?? null,
    ...(elsewhere === undefined ? {} : { elsewhere }),
    ...(outOfBand === undefined ? {} : { out_of_band: outOfBandData(outOfBand) }),
    ...(earlier === undefined ? {} : { settled: settledData(earlier) }),
    ...(row.columns === undefined ? {} : { columns: row.columns }),
  }
}

export function cellsOf(
  { row, outcome, candidate, error, authorization }: RowResult,
  polled: PolledCandidate | undefined,
): readonly string[] {
  // Without an answer to this run a status is what was last heard.
  const known =
    candidate === undefined
      ? ''
      : `${candidate.status}${candidate.asOf === 'journal' ? ' when last seen' : ''}`
  const status = polled?.candidate?.status ?? known
  const failure = polled?.candidate?.failure
  return [
    outcome.padEnd(8),
    nameOf({ row, authorization }),
    candidate?.candidateId ?? '',
    status,
    error?.detail ?? failure?.detail ?? executedOf(candidate, authorization) ?? '',
  ]
}

const executedOf = (
  candidate: RowResult['candidate'],
  authorization: RowResult['authorization'],
) => (candidate?.status === 'executed' && authorization ? executedText(authorization) : undefined)

/** `7 rows: 5 accepted, 2 rejected`. */
export function batchSummaryText({ rows, ...counts }: Readonly<Record<string, number>>): string {
  const parts = Object.entries(counts).filter(([, count]) => count > 0)
  return `${counted(rows ?? 0, 'row')}: ${parts.map(([name, count]) => `${count} ${name}`).join(', ')}`
}
