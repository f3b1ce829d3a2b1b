/** How a submission ended, and the error that a command throws for it (contract §6). */

import {
  ConflictError,
  InterruptedError,
  ProposerError,
  RejectedError,
  reworded,
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
import { mismatchCode, type SubmitAnswer } from './attempt.js'

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

export interface SentOutcome extends RowOutcome {
  readonly authorization: JournaledAuthorization
}

/**
 * What an answer settles; `undefined`: the same bytes are tried again. `uncertain`: an attempt may
 * have been admitted, which a refusal does not settle (exit 6 stays), and a 409 does.
 */
export function settledBy(
  authorization: JournaledAuthorization,
  answer: SubmitAnswer,
  uncertain: boolean,
) {
  if (answer.kind === 'accepted') {
    const { candidate_id: candidateId, status, received_at: receivedAt } = answer.value
    const candidate = { candidateId, status, receivedAt, asOf: 'answer' } as const
    return { ...acknowledged(answer.httpStatus, candidate), authorization }
  }
  if (answer.kind === 'uncertain')
    return answer.code === mismatchCode ? mismatchOutcome(authorization, answer) : undefined
  if (answer.kind === 'deferred') return undefined
  if (answer.kind === 'refused' && uncertain) return unknownOutcome(authorization, answer)
  return notAccepted(authorization, 'rejected', refusalOf(authorization, answer))
}

const acknowledged = (statusCode: 200 | 202, candidate: NonNullable<RowOutcome['candidate']>) =>
  ({ outcome: statusCode === 202 ? 'accepted' : 'replayed', statusCode, candidate }) as const

export const notAccepted = (
  authorization: JournaledAuthorization,
  outcome: 'rejected' | 'unknown' | 'deferred',
  error: ProposerError,
): SentOutcome => ({
  ...{ outcome, statusCode: error.meta.httpStatus ?? null, authorization, error },
  // Accepted is not deferred (contract §1): an earlier run's acknowledgement stands.
  ...(outcome === 'deferred' && candidateInJournal(authorization)),
})

export function unknownOutcome(
  authorization: JournaledAuthorization,
  { detail, httpStatus }: Unaccepted,
) {
  const how = `: an attempt got no clear response (last: ${detail}); do not sign again`
  return notKnown(authorization, how, '', httpStatus)
}

function notKnown(
  authorization: JournaledAuthorization,
  how: string,
  resume: string,
  httpStatus?: number,
) {
  const { id } = authorization
  const what = `${id} may have been admitted${how}`
  const hint = `send the same bytes again with ${resume}\`proposer replay ${id}\``
  const error = new UncertainError('outcome_unknown', what, { hint, retryable: true, httpStatus })
  return notAccepted(authorization, 'unknown', error)
}

/** The bytes stay unknown (R7). */
function mismatchOutcome(
  authorization: JournaledAuthorization,
  { code, detail, httpStatus }: Unaccepted,
) {
  const { id } = authorization
  const hint = `do not trust this gateway until the operator has explained it; then \`proposer replay ${id}\` sends the same bytes`
  const error = new ConflictError(code, `${id}: ${detail}`, { httpStatus, hint })
  return notAccepted(authorization, 'unknown', error)
}

/** Of bytes that have a candidate, no other sending is a reason to sign again (R7, R8). */
function refusalOf(authorization: JournaledAuthorization, answer: Unaccepted) {
  const error = answerError(answer, 'submit', authorization.signed.questionId)
  if (authorization.candidateId === undefined) return error
  const detail = `${admitted(authorization)}; sent again, the same bytes were refused: ${answer.detail}`
  return reworded(error, detail, { ...error.meta, hint: goOn(authorization) })
}

export function deferredOutcome(authorization: JournaledAuthorization, last: Unaccepted) {
  const retryAfterMs = 'retryAfterMs' in last ? last.retryAfterMs : undefined
  const later = retryAfterMs ? ` in ${Math.ceil(retryAfterMs / 1_000)} seconds` : ' later'
  const again = authorization.candidateId === undefined ? '' : '; sent again, it was deferred'
  const mending = last.code === certificateCode ? `${certificateHint}. Then ` : ''
  const error = new UnavailableError(
    last.code,
    `${admitted(authorization)}${again}: ${last.detail}`,
    {
      hint: `${mending}${goOn(authorization, later)}`,
      httpStatus: last.httpStatus,
      retryAfterMs,
    },
  )
  return notAccepted(authorization, 'deferred', error)
}

const admitted = ({ id, candidateId }: JournaledAuthorization) =>
  candidateId === undefined
    ? `${id} was not admitted`
    : `${id} is admitted already as ${candidateId}`
const goOn = ({ id, candidateId }: JournaledAuthorization, later = '') =>
  candidateId === undefined
    ? `the same command, or \`proposer replay ${id}\`, sends the same bytes${later}`
    : `follow its candidate with \`proposer poll ${candidateId}\``

export function stoppedOutcome(authorization: JournaledAuthorization, why: unknown) {
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
  // In whatever order runs are read: a 200 says that these bytes were known before.
  const wasReplayed = attempts.some(({ end }) => end?.class === 'accepted' && end.status === 200)
  const status = end === 'executed' || end === 'failed' ? end : 'received'
  const candidate = { candidateId, status, receivedAt: receivedAt ?? '', asOf: 'journal' } as const
  return acknowledged(wasReplayed ? 200 : 202, candidate)
}

export function fromJournal(authorization: JournaledAuthorization, nowMs: number) {
  const known = candidateInJournal(authorization)
  if (known !== undefined) return { ...known, authorization }
  const state = stateOf(authorization, nowMs)
  const { attempts, id } = authorization
  const httpStatus = attempts.findLast(({ end }) => end?.class === 'refused')?.end?.status
  const code = state.kind === 'closed' ? (state.code ?? state.reason) : state.kind
  const Kind = httpStatus === 403 ? UnauthorizedError : RejectedError
  const hint = 'run the batch without --resume to sign it anew'
  const detail = `${id} was closed before (${code}); nothing was sent`
  return notAccepted(authorization, 'rejected', new Kind(code, detail, { hint, httpStatus }))
}

export function unsentOutcome(
  authorization: JournaledAuthorization | undefined,
  why: ProposerError,
  nowMs: number,
  form?: Form,
): RowOutcome {
  if (authorization !== undefined) {
    const { kind } = stateOf(authorization, nowMs)
    if (authorization.candidateId !== undefined || kind === 'closed')
      return fromJournal(authorization, nowMs)
    const how = ' by an earlier attempt, and could not be asked about now'
    if (isUnsettled(authorization)) return notKnown(authorization, how, '--resume, or with ')
  }
  const hint = 'run it again, `batch submit` with --resume'
  const error =
    form === 'single'
      ? why
      : new UnavailableError('not_sent', `it was not sent: ${why.detail}`, hint)
  return { outcome: 'deferred', statusCode: null, error, authorization }
}

/** What the user asked us to hold back is exit 2 for a row too (contract §9). */
const heldBack: ReadonlySet<string> = new Set(['rules_changed', 'check_failed', 'other_question'])

/** Exit 3 (contract §6), but for what is graver. */
export function asItemError(row: BatchRow, error: ProposerError) {
  const isGraver = error instanceof UnavailableError || error instanceof UnauthorizedError
  if (isGraver || heldBack.has(error.code)) return error
  const Kind = error instanceof ConflictError ? ConflictError : RejectedError
  const { hint } = error.meta
  return new Kind(error.code, error.detail, { ...error.meta, hint: hint && inBatch(row, hint) })
}

/** A row has no flags: its fields are named; commands stand as they are. */
function inBatch(row: BatchRow, hint: string) {
  const outcome =
    row.kind === 'intent' ? row.outcome : (outcomeOf(row.item.proposed_price) ?? '<p1|p2|p3>')
  const replace = `\`proposer submit ${row.identifier} --outcome ${shellWord(outcome)} --supersede`
  return hint.replace(
    /`[^`]*`|--supersede ([0-9a-f]{12}-\d+)|--(nonce|deadline|amount)\b/g,
    (same, id?: string, field?: string) => (id ? `${replace} ${id}\`` : (field ?? same)),
  )
}
