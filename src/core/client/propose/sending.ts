/**
 * Sending saved bytes until an answer settles them: a timeout is never a reason to sign again (R7,
 * robustness §6).
 */
import {
  type ConflictError,
  InterruptedError,
  ProposerError,
  RejectedError,
  UnauthorizedError,
  UnavailableError,
  UncertainError,
} from '../../protocol/errors.js'
import { answerError, maxRetryAfterMs, type Unaccepted } from '../gateway/answer.js'
import { backoffMs, isAborted, timeLimit } from '../gateway/retry.js'
import { type Authorization, isUnsettled } from '../journal/authorizations.js'
import { attempt, type SubmitParts } from './attempt.js'

export interface SubmitOptions {
  /** Bounds the whole call, retries included; without it 8 tries or 5 min. */
  readonly timeoutMs?: number
  readonly signal?: AbortSignal
  /** Told before each wait: what happened and for how long. */
  readonly onRetry?: (event: { attempt: number; reason: string; waitMs: number }) => void
}

interface Settled {
  readonly authorization: Authorization
  readonly journalId: string
}
/**
 * How a submission ended. Everything but `accepted` and `replayed` carries the error that the
 * command throws.
 */
export type SubmissionResult =
  | (Settled & {
      readonly outcome: 'accepted' | 'replayed'
      readonly statusCode: 200 | 202
      readonly candidateId: string
      readonly status: string
      readonly receivedAt: string
      readonly questionId: string
      readonly error?: undefined
    })
  | (Settled & {
      readonly outcome: 'refused' | 'conflict' | 'unknown' | 'deferred' | 'interrupted'
      readonly statusCode: number | null
      readonly error: ProposerError
      /** Its round is over, and no gateway will tell any more. */
      readonly outOfBand?: OutOfBand
    })

/** What the out-of-band channel needs (robustness §6); never the signature. */
export interface OutOfBand {
  readonly questionId: string
  readonly clientRef: string | undefined
  /** When the first attempt began that may have been admitted; Unix milliseconds. */
  readonly submittedAtMs: number
}

/** Robustness §6. */
const maxTries = 8
const maxReplayMs = 300_000

/**
 * Sends an authorization's saved bytes until an answer settles them: again after what is uncertain
 * or deferred, 1, 2, 4 … 30 s with full jitter or by Retry-After, ≤ 8 tries or 5 min or
 * `timeoutMs`. A refusal does not settle an earlier uncertain attempt (exit 6 stays); a 409 does as
 * far as the exit code goes (5). Rejects for journal faults (StorageError 74) only.
 */
export async function submitAuthorization(
  parts: SubmitParts,
  authorization: Authorization,
  options: SubmitOptions = {},
): Promise<SubmissionResult> {
  const { clock, random } = parts.ports
  const endMs = clock.monotonicMs() + (options.timeoutMs ?? maxReplayMs)
  const limit = timeLimit(parts, options)
  const settled = { authorization, journalId: authorization.id }
  let uncertain = isUnsettled(authorization)
  let last: Unaccepted | undefined
  try {
    for (let tries = 1; ; tries++) {
      if (isAborted(options.signal))
        return { ...settled, ...stopped(authorization, uncertain, last, options.signal?.reason) }
      const answer = await attempt(parts, authorization, { signal: limit.signal })
      if (answer.kind === 'accepted') {
        return {
          ...settled,
          outcome: answer.httpStatus === 202 ? 'accepted' : 'replayed',
          statusCode: answer.httpStatus,
          candidateId: answer.value.candidate_id,
          status: answer.value.status,
          receivedAt: answer.value.received_at,
          questionId: authorization.signed.questionId,
        }
      }
      last = answer
      if (answer.kind === 'reconcile')
        return {
          ...settled,
          outcome: 'conflict',
          statusCode: 409,
          error: conflict(authorization, answer),
        }
      if (answer.kind === 'refused') {
        if (uncertain) return { ...settled, ...unknownOutcome(authorization, answer) }
        return {
          ...settled,
          outcome: 'refused',
          statusCode: answer.httpStatus,
          error: refusalError(authorization, answer),
        }
      }
      uncertain ||= leavesUnknown(authorization, answer)
      if (isAborted(options.signal))
        return { ...settled, ...stopped(authorization, uncertain, last, options.signal?.reason) }
      const toldMs = answer.retryAfterMs ?? 0
      const waitMs = toldMs + backoffMs(random, tries)
      const late = clock.monotonicMs() + waitMs >= endMs
      if (tries >= maxTries || toldMs > maxRetryAfterMs || late || limit.signal.aborted) {
        return {
          ...settled,
          ...(uncertain
            ? unknownOutcome(authorization, answer)
            : deferredOutcome(authorization, answer)),
        }
      }
      options.onRetry?.({ attempt: tries, reason: answer.detail, waitMs })
      try {
        await clock.sleep(waitMs, limit.signal)
      } catch (error) {
        if (!limit.signal.aborted) throw error
        if (!isAborted(options.signal))
          return {
            ...settled,
            ...(uncertain
              ? unknownOutcome(authorization, answer)
              : deferredOutcome(authorization, answer)),
          }
      }
    }
  } finally {
    limit.clear()
  }
}

/**
 * Whether an answer leaves open if the bytes were admitted: not where they were before (contract
 * §1: what has an id is accepted).
 */
export const leavesUnknown = (
  { candidateId }: Authorization,
  answer: Pick<Unaccepted, 'kind'>,
): boolean => answer.kind === 'uncertain' && candidateId === undefined

/** An outcome without the authorization it is of. */
export type Unsettled = Omit<Extract<SubmissionResult, { error: ProposerError }>, keyof Settled>

/** UncertainError (exit 6): only a replay of the same bytes can tell. */
export function unknownOutcome(authorization: Authorization, last: Unaccepted): Unsettled {
  const { id } = authorization
  const error = new UncertainError(
    'outcome_unknown',
    `${id} may have been admitted: an attempt brought no clear answer (last: ${last.detail}); do not sign again`,
    {
      hint: `send the same bytes again with \`proposer replay ${id}\``,
      retryable: true,
      ...(last.httpStatus === undefined ? {} : { httpStatus: last.httpStatus }),
    },
  )
  return { outcome: 'unknown', statusCode: last.httpStatus ?? null, error }
}

/**
 * UnavailableError (exit 75): this sending admitted nothing; the same bytes later, or the candidate
 * that they are already.
 */
export function deferredOutcome(authorization: Authorization, last: Unaccepted): Unsettled {
  const { id, candidateId } = authorization
  const after = last.kind === 'deferred' ? last.retryAfterMs : undefined
  const later = after === undefined ? ' later' : ` in ${Math.ceil(after / 1_000)} seconds`
  const detail =
    candidateId === undefined
      ? `${id} was not admitted: ${last.detail}`
      : `${inVain(last)} (${last.detail}); ${admitted(authorization)}`
  const error = new UnavailableError(last.code, detail, {
    hint:
      candidateId === undefined
        ? `the same command, or \`proposer replay ${id}\`, sends the same bytes${later}`
        : follow(candidateId),
    ...(last.httpStatus === undefined ? {} : { httpStatus: last.httpStatus }),
    ...(after === undefined ? {} : { retryAfterMs: after }),
  })
  return { outcome: 'deferred', statusCode: last.httpStatus ?? null, error }
}

/**
 * What is true whatever became of another sending of the same bytes: never to be read as a reason
 * to sign again.
 */
const admitted = ({ id, candidateId }: Authorization): string =>
  `${id} is admitted already as ${candidateId}`
const follow = (candidateId: string): string =>
  `follow its candidate with \`proposer poll ${candidateId}\``

function inVain({ kind, httpStatus }: Unaccepted): string {
  if (kind === 'uncertain') return 'this attempt brought no clear answer'
  return httpStatus === undefined ? 'this attempt reached nobody' : 'this attempt was put off'
}

/**
 * A refusal as `answerError` tells it; of bytes that were admitted before, it is no reason to sign
 * again (R7, R8).
 */
export function refusalError(
  authorization: Authorization,
  answer: Extract<Unaccepted, { kind: 'refused' }>,
): ProposerError {
  const { candidateId } = authorization
  if (candidateId === undefined) return answerError(answer, 'submit')
  const detail = `${admitted(authorization)}; sent again, the same bytes were refused: ${answer.detail}`
  const [Kind, status] = [
    answer.httpStatus === 403 ? UnauthorizedError : RejectedError,
    answer.httpStatus,
  ]
  return new Kind(answer.code, detail, {
    ...(status === undefined ? {} : { httpStatus: status }),
    hint: follow(candidateId),
  })
}

/** The gateway's 409 (exit 5), with the candidate to look at where it is known. */
export function conflict(
  { candidateId, signed }: Authorization,
  answer: Unaccepted,
): ConflictError {
  const error = answerError(answer, 'submit')
  const { code, detail, meta } = error
  const hint =
    candidateId === undefined
      ? `see \`proposer reconcile ${signed.questionId}\` before signing again`
      : `follow the candidate with \`proposer poll ${candidateId}\``
  return new (error.constructor as typeof ConflictError)(code, detail, { ...meta, hint })
}

/** Contract §6: 6 where an attempt is uncertain, else 130. `why` is the signal's reason. */
export function stopped(
  authorization: Authorization,
  uncertain: boolean,
  last: Unaccepted | undefined,
  why: unknown,
): Unsettled {
  const { id, candidateId } = authorization
  if (uncertain)
    return unknownOutcome(
      authorization,
      last ?? { kind: 'uncertain', code: 'interrupted', detail: 'stopped before an answer came' },
    )
  const reason = why instanceof ProposerError ? why.detail : 'stopped'
  const state = candidateId === undefined ? `${id} was not admitted` : admitted(authorization)
  const error = new InterruptedError('interrupted', `${reason}; ${state}`, {
    hint:
      candidateId === undefined
        ? `the same command, or \`proposer replay ${id}\`, sends the same bytes`
        : follow(candidateId),
    retryable: true,
  })
  return { outcome: 'interrupted', statusCode: null, error }
}
