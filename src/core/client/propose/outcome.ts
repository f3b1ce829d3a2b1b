/** How a submission ended, and the error that a command throws for it (contract §6). */

import {
  ConflictError,
  InterruptedError,
  ProposerError,
  RejectedError,
  UnauthorizedError,
  UnavailableError,
  UncertainError,
} from '#protocol/errors'
import { outcomeOf } from '#protocol/proposal'
import { shellWord } from '#protocol/text'
import {
  answerError,
  certificateCode,
  certificateHint,
  type Unaccepted,
} from '../gateway/answer.js'
import type { BatchRow } from '../input/input.js'
import {
  isUnsettled,
  type JournaledAuthorization,
  type OtherGateway,
  type OutOfBand,
  stateOf,
} from '../journal/authorizations.js'
import type { Form } from '../journal/records.js'
import type { SubmitAnswer } from './attempt.js'

/** An accepted one has an error where another gateway holds the candidate. */
export interface RowOutcome {
  readonly outcome: 'accepted' | 'replayed' | 'rejected' | 'unknown' | 'deferred'
  readonly statusCode: number | null
  readonly authorization?: JournaledAuthorization | undefined
  /** `asOf`: of this run, or the last one of the journal. */
  readonly candidate?: {
    readonly candidateId: string
    readonly status: string
    readonly receivedAt: string
    readonly asOf: 'answer' | 'journal'
  }
  readonly error?: ProposerError | undefined
  /** Not sent to this gateway (contract §6). */
  readonly elsewhere?: OtherGateway | undefined
  readonly outOfBand?: OutOfBand | undefined
}

/** Of what was sent, or would have been. */
export interface SentOutcome extends RowOutcome {
  readonly authorization: JournaledAuthorization
}

export const acceptedOutcome = (
  authorization: JournaledAuthorization,
  { httpStatus, value }: Extract<SubmitAnswer, { kind: 'accepted' }>,
): SentOutcome => ({
  outcome: httpStatus === 202 ? 'accepted' : 'replayed',
  statusCode: httpStatus,
  authorization,
  candidate: {
    candidateId: value.candidate_id,
    status: value.status,
    receivedAt: value.received_at,
    asOf: 'answer',
  },
})

export const notAccepted = (
  authorization: JournaledAuthorization,
  outcome: 'rejected' | 'unknown' | 'deferred',
  error: ProposerError,
): SentOutcome => ({
  ...{ outcome, statusCode: error.meta.httpStatus ?? null, authorization, error },
  // Accepted is not deferred (contract §1): an earlier run's acknowledgement stands.
  ...(outcome === 'deferred' && candidateInJournal(authorization)),
})

const notKnown = (
  authorization: JournaledAuthorization,
  how: string,
  resume = '',
  httpStatus?: number,
) => {
  const { id } = authorization
  const error = new UncertainError('outcome_unknown', `${id} may have been admitted${how}`, {
    hint: `send the same bytes again with ${resume}\`proposer replay ${id}\``,
    retryable: true,
    httpStatus,
  })
  return notAccepted(authorization, 'unknown', error)
}

export const unknownOutcome = (
  authorization: JournaledAuthorization,
  { detail, httpStatus }: Unaccepted,
): SentOutcome =>
  notKnown(
    authorization,
    `: an attempt got no clear response (last: ${detail}); do not sign again`,
    '',
    httpStatus,
  )

/** Exit 5: the gateway has to be explained first; the bytes stay unknown (R7). */
export function mismatchOutcome(
  authorization: JournaledAuthorization,
  { code, detail, httpStatus }: Unaccepted,
): SentOutcome {
  const { id } = authorization
  const error = new ConflictError(code, `${id}: ${detail}`, {
    httpStatus,
    hint: `do not trust this gateway until the operator has explained it; then \`proposer replay ${id}\` sends the same bytes`,
  })
  return notAccepted(authorization, 'unknown', error)
}

export function deferredOutcome(
  authorization: JournaledAuthorization,
  last: Unaccepted,
): SentOutcome {
  const after = last.kind === 'deferred' ? last.retryAfterMs : undefined
  const later = after === undefined ? ' later' : ` in ${Math.ceil(after / 1_000)} seconds`
  const isNew = authorization.candidateId === undefined
  const detail = isNew
    ? `${admitted(authorization)}: ${last.detail}`
    : `${inVain(last)} (${last.detail}); ${admitted(authorization)}`
  const mending = isNew && last.code === certificateCode ? `${certificateHint}. Then ` : ''
  const error = new UnavailableError(last.code, detail, {
    hint: `${mending}${goOn(authorization, later)}`,
    httpStatus: last.httpStatus,
    retryAfterMs: after,
  })
  return notAccepted(authorization, 'deferred', error)
}

/** Of bytes that have a candidate, no other sending is a reason to sign again (R7, R8). */
const admitted = ({ id, candidateId }: JournaledAuthorization) =>
  candidateId === undefined
    ? `${id} was not admitted`
    : `${id} is admitted already as ${candidateId}`
const goOn = ({ id, candidateId }: JournaledAuthorization, later = '') =>
  candidateId === undefined
    ? `the same command, or \`proposer replay ${id}\`, sends the same bytes${later}`
    : `follow its candidate with \`proposer poll ${candidateId}\``

function inVain({ kind, httpStatus }: Unaccepted) {
  if (kind === 'uncertain') return 'this attempt got no clear response'
  return httpStatus === undefined
    ? 'this attempt did not reach the gateway'
    : 'this attempt was deferred'
}

export function refusedOutcome(
  authorization: JournaledAuthorization,
  answer: Extract<Unaccepted, { kind: 'refused' }>,
): SentOutcome {
  const { httpStatus, code } = answer
  const Kind = httpStatus === 403 ? UnauthorizedError : RejectedError
  const detail = `${admitted(authorization)}; sent again, the same bytes were refused: ${answer.detail}`
  const error =
    authorization.candidateId === undefined
      ? answerError(answer, 'submit')
      : new Kind(code, detail, { httpStatus, hint: goOn(authorization) })
  return notAccepted(authorization, 'rejected', error)
}

export function conflictOutcome(
  authorization: JournaledAuthorization,
  { code, detail }: Unaccepted,
): SentOutcome {
  const { candidateId, signed } = authorization
  const hint =
    candidateId === undefined
      ? `see \`proposer reconcile ${signed.questionId}\` before signing again`
      : `follow the candidate with \`proposer poll ${candidateId}\``
  const error = new ConflictError(code, detail, { httpStatus: 409, hint })
  return notAccepted(authorization, 'rejected', error)
}

/** Exit 6 where an attempt is uncertain, else 130 (contract §6). */
export function stoppedOutcome(
  authorization: JournaledAuthorization,
  uncertain: boolean,
  last: Unaccepted | undefined,
  why: unknown,
): SentOutcome {
  const cut = { kind: 'uncertain', code: 'interrupted', detail: 'stopped before a response came' }
  if (uncertain) return unknownOutcome(authorization, last ?? (cut as Unaccepted))
  const reason = why instanceof ProposerError ? why.detail : 'stopped'
  const error = new InterruptedError('interrupted', `${reason}; ${admitted(authorization)}`, {
    hint: goOn(authorization),
    retryable: true,
  })
  return notAccepted(authorization, 'deferred', error)
}

export function refusedHere(row: BatchRow, error: ProposerError, form?: Form): RowOutcome {
  const outcome = error instanceof UnavailableError ? 'deferred' : 'rejected'
  const statusCode = error.meta.httpStatus ?? null
  return { outcome, statusCode, error: form === 'single' ? error : asItemError(row, error) }
}

export function candidateInJournal({
  candidateId,
  attempts,
  terminal,
  receivedAt,
}: JournaledAuthorization) {
  if (candidateId === undefined) return undefined
  const end = terminal?.outcome
  // Runs are read in no order: a 200 says that these bytes were known before.
  const wasReplayed = attempts.some(({ end }) => end?.class === 'accepted' && end.status === 200)
  const statusCode = wasReplayed ? 200 : 202
  return {
    outcome: statusCode === 200 ? ('replayed' as const) : ('accepted' as const),
    statusCode,
    candidate: {
      candidateId,
      status: end === 'executed' || end === 'failed' ? end : 'received',
      receivedAt: receivedAt ?? '',
      asOf: 'journal' as const,
    },
  }
}

export function fromJournal(authorization: JournaledAuthorization, nowMs: number): RowOutcome {
  const known = candidateInJournal(authorization)
  if (known !== undefined) return { ...known, authorization }
  const state = stateOf(authorization, nowMs)
  const status = authorization.attempts.findLast((one) => one.end?.class === 'refused')?.end?.status
  const code = (state.kind === 'closed' ? (state.code ?? state.reason) : undefined) ?? 'closed'
  const Kind = status === 403 ? UnauthorizedError : RejectedError
  const error = new Kind(
    code,
    `${authorization.id} was closed before (${code}); nothing was sent`,
    { hint: 'run the batch without --resume to sign it anew', httpStatus: status },
  )
  return notAccepted(authorization, 'rejected', error)
}

export function unsentOutcome(
  authorization: JournaledAuthorization | undefined,
  why: ProposerError,
  nowMs: number,
  form?: Form,
): RowOutcome {
  if (authorization !== undefined) {
    const isClosed = stateOf(authorization, nowMs).kind === 'closed'
    if (authorization.candidateId !== undefined || isClosed)
      return fromJournal(authorization, nowMs)
    const how = ' by an earlier attempt, and could not be asked about now'
    if (isUnsettled(authorization)) return notKnown(authorization, how, '--resume, or with ')
  }
  if (form === 'single') return { outcome: 'deferred', statusCode: null, error: why, authorization }
  const hint = 'run it again, `batch submit` with --resume'
  const error = new UnavailableError('not_sent', `it was not sent: ${why.detail}`, hint)
  return { outcome: 'deferred', statusCode: null, error, authorization }
}

/** Exit 3 (contract §6); its hint offers what a batch has. */
export function asItemError(row: BatchRow, error: ProposerError): ProposerError {
  if (error instanceof UnavailableError || error instanceof UnauthorizedError) return error
  // What the user asked us to hold back is exit 2 for a row too (contract §9).
  if (heldBack.has(error.code)) return error
  const { httpStatus, hint, exitCode: _exitCode, ...meta } = error.meta
  const rest = { hint: hint && inBatch(row, hint), httpStatus }
  return error instanceof ConflictError
    ? new ConflictError(error.code, error.detail, { ...meta, ...rest })
    : new RejectedError(error.code, error.detail, rest)
}

const heldBack: ReadonlySet<string> = new Set(['rules_changed', 'check_failed', 'other_question'])

function inBatch(row: BatchRow, hint: string) {
  const outcome =
    row.kind === 'intent' ? row.outcome : (outcomeOf(row.item.proposed_price) ?? '<p1|p2|p3>')
  const replace = `\`proposer submit ${row.identifier} --outcome ${shellWord(outcome)} --supersede $1\``
  const outside = (text: string) =>
    text
      .replace(/--supersede ([0-9a-f]{12}-\d+)/, replace)
      .replace(/--(nonce|deadline|amount)\b/g, '$1')
  // Every second part is a command, whole as it stands.
  const parts = hint.split('`')
  return parts.map((part, at) => (at % 2 === 1 ? part : outside(part))).join('`')
}
