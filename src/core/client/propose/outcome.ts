/** How a submission ended, and the error that a command throws for it (contract §6). */
import {
  ConflictError,
  InterruptedError,
  ProposerError,
  RejectedError,
  UnauthorizedError,
  UnavailableError,
  UncertainError,
} from '../../protocol/errors.js'
import {
  answerError,
  certificateCode,
  certificateHint,
  type Unaccepted,
} from '../gateway/answer.js'
import type { JournaledAuthorization } from '../journal/authorizations.js'
import type { OutOfBand } from '../journal/saved.js'
import type { SubmitAnswer } from './attempt.js'

interface OfAuthorization {
  readonly authorization: JournaledAuthorization
  readonly journalId: string
}

export interface Accepted extends OfAuthorization {
  readonly outcome: 'accepted' | 'replayed'
  readonly statusCode: 200 | 202
  readonly candidateId: string
  readonly status: string
  readonly receivedAt: string
  readonly questionId: string
  readonly error?: undefined
}

export interface NotAccepted extends OfAuthorization {
  readonly outcome: 'refused' | 'conflict' | 'unknown' | 'deferred' | 'interrupted'
  readonly statusCode: number | null
  readonly error: ProposerError
  /** Its round is over, and no gateway will tell any more. */
  readonly outOfBand?: OutOfBand
}

/** Everything but `accepted` and `replayed` carries the error that the command throws. */
export type SubmissionResult = Accepted | NotAccepted

export const acceptedOutcome = (
  authorization: JournaledAuthorization,
  { httpStatus, value }: Extract<SubmitAnswer, { kind: 'accepted' }>,
): Accepted => ({
  authorization,
  journalId: authorization.id,
  outcome: httpStatus === 202 ? 'accepted' : 'replayed',
  statusCode: httpStatus,
  candidateId: value.candidate_id,
  status: value.status,
  receivedAt: value.received_at,
  questionId: authorization.signed.questionId,
})

export const notAccepted = (
  authorization: JournaledAuthorization,
  outcome: NotAccepted['outcome'],
  error: ProposerError,
  statusCode: number | undefined,
): NotAccepted => ({
  authorization,
  journalId: authorization.id,
  outcome,
  statusCode: statusCode ?? null,
  error,
})

const statusIn = ({ httpStatus }: Unaccepted) => (httpStatus === undefined ? {} : { httpStatus })

export function unknownOutcome(
  authorization: JournaledAuthorization,
  last: Unaccepted,
): NotAccepted {
  const { id } = authorization
  const error = new UncertainError(
    'outcome_unknown',
    `${id} may have been admitted: an attempt got no clear response (last: ${last.detail}); do not sign again`,
    {
      hint: `send the same bytes again with \`proposer replay ${id}\``,
      retryable: true,
      ...statusIn(last),
    },
  )
  return notAccepted(authorization, 'unknown', error, last.httpStatus)
}

/**
 * Exit 5: the gateway has to be explained before anything is sent again; the bytes stay unknown
 * (R7).
 */
export function mismatchOutcome(
  authorization: JournaledAuthorization,
  last: Unaccepted,
): NotAccepted {
  const { id } = authorization
  const { code, detail, httpStatus } = last
  const error = new ConflictError(code, `${id}: ${detail}`, {
    ...statusIn(last),
    hint: `do not trust this gateway until the operator has explained it; then \`proposer replay ${id}\` sends the same bytes`,
  })
  return notAccepted(authorization, 'unknown', error, httpStatus)
}

/** Exit 75: the same bytes later, or the candidate that they are already. */
export function deferredOutcome(
  authorization: JournaledAuthorization,
  last: Unaccepted,
): NotAccepted {
  const { id, candidateId } = authorization
  const after = last.kind === 'deferred' ? last.retryAfterMs : undefined
  const later = after === undefined ? ' later' : ` in ${Math.ceil(after / 1_000)} seconds`
  const isNew = candidateId === undefined
  const detail = isNew
    ? `${id} was not admitted: ${last.detail}`
    : `${inVain(last)} (${last.detail}); ${admitted(authorization)}`
  const mending = last.code === certificateCode ? `${certificateHint}. Then ` : ''
  const hint = isNew
    ? `${mending}the same command, or \`proposer replay ${id}\`, sends the same bytes${later}`
    : follow(candidateId)
  const error = new UnavailableError(last.code, detail, {
    hint,
    ...statusIn(last),
    ...(after === undefined ? {} : { retryAfterMs: after }),
  })
  return notAccepted(authorization, 'deferred', error, last.httpStatus)
}

/** Of bytes that have a candidate, no other sending is a reason to sign again (R7, R8). */
const admitted = ({ id, candidateId }: JournaledAuthorization) =>
  `${id} is admitted already as ${candidateId}`
const follow = (candidateId: string) => `follow its candidate with \`proposer poll ${candidateId}\``

function inVain({ kind, httpStatus }: Unaccepted): string {
  if (kind === 'uncertain') return 'this attempt got no clear response'
  return httpStatus === undefined
    ? 'this attempt did not reach the gateway'
    : 'this attempt was deferred'
}

export function refusedOutcome(
  authorization: JournaledAuthorization,
  answer: Extract<Unaccepted, { kind: 'refused' }>,
): NotAccepted {
  const { candidateId } = authorization
  const { httpStatus, code } = answer
  const refuse = (): ProposerError => {
    if (candidateId === undefined) return answerError(answer, 'submit')
    const Kind = httpStatus === 403 ? UnauthorizedError : RejectedError
    const detail = `${admitted(authorization)}; sent again, the same bytes were refused: ${answer.detail}`
    return new Kind(code, detail, { httpStatus, hint: follow(candidateId) })
  }
  return notAccepted(authorization, 'refused', refuse(), httpStatus)
}

export function conflictOutcome(
  authorization: JournaledAuthorization,
  { code, detail }: Unaccepted,
): NotAccepted {
  const { candidateId, signed } = authorization
  const hint =
    candidateId === undefined
      ? `see \`proposer reconcile ${signed.questionId}\` before signing again`
      : `follow the candidate with \`proposer poll ${candidateId}\``
  const error = new ConflictError(code, detail, { httpStatus: 409, hint })
  return notAccepted(authorization, 'conflict', error, 409)
}

/** Exit 6 where an attempt is uncertain, else 130 (contract §6). `why` is the signal's reason. */
export function stoppedOutcome(
  authorization: JournaledAuthorization,
  uncertain: boolean,
  last: Unaccepted | undefined,
  why: unknown,
): NotAccepted {
  const { id, candidateId } = authorization
  const cut = { kind: 'uncertain', code: 'interrupted', detail: 'stopped before a response came' }
  if (uncertain) return unknownOutcome(authorization, last ?? (cut as Unaccepted))
  const reason = why instanceof ProposerError ? why.detail : 'stopped'
  const isNew = candidateId === undefined
  const state = isNew ? `${id} was not admitted` : admitted(authorization)
  const hint = isNew
    ? `the same command, or \`proposer replay ${id}\`, sends the same bytes`
    : follow(candidateId)
  const error = new InterruptedError('interrupted', `${reason}; ${state}`, {
    hint,
    retryable: true,
  })
  return notAccepted(authorization, 'interrupted', error, undefined)
}
