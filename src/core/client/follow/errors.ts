/** How a polling ends, as errors with what to do next (contract §6). */
import {
  FailedError,
  InterruptedError,
  PendingError,
  ProposerError,
  UnavailableError,
} from '../../protocol/errors.js'
import { answerError } from '../gateway/answer.js'
import type { Trouble } from './look.js'
import type { PolledStatus, PollTarget } from './status.js'

/** So many are named; of more the rest is counted. */
const named = 3

/** What is known beside a failure, for commands that can be run as they are. */
export interface FailedOf {
  /** Absent where the journal does not know the candidate. */
  readonly journalId?: string | undefined
  readonly questionId?: string | null | undefined
  readonly proposer?: string | null | undefined
}

/**
 * What a failure's `next_action` asks for, as commands (contract §5); an action of another gateway
 * as it is.
 */
export function nextStep(action: string, { journalId, questionId, proposer }: FailedOf): string {
  const again =
    journalId === undefined
      ? 'send the same payload again with `proposer submit <identifier> <payload.json>`'
      : `send the same payload again with \`proposer replay ${journalId}\``
  switch (action) {
    case 'none':
      return 'nothing is left to do'
    case 'wait':
      return 'wait, then look at the status again'
    case 'replay_same_payload':
      return again
    case 'fund_wallet':
      return `fund the wallet${proposer == null ? '' : ` ${proposer}`}, then ${again}`
    case 'approve_permit2':
      return `let Permit2 move the token with \`proposer funds approve\`, then ${again}`
    case 'sign_new_authorization':
      return `sign anew with \`proposer submit ${questionId ?? '<identifier>'} --outcome <p1|p2|p3>\``
    case 'wait_for_new_round':
      return `wait for a new round; \`proposer reconcile ${questionId ?? '<identifier>'}\` shows the state`
    case 'contact_operator':
      return 'contact the operator with the candidate id'
    default:
      return `next: ${action}`
  }
}

/** FailedError (exit 7) of a failed candidate: code, detail and what to do next. */
export function failedError(status: PolledStatus, journalId?: string): FailedError {
  const { failure, candidate_id: id, question_id: questionId, proposer } = status
  if (failure === null)
    return new FailedError('failed', `candidate ${id} failed`, {
      hint: 'ask the operator for the reason',
    })
  const { code, detail, stage, next_action: next, retryable } = failure
  // The route that tells the rest asks for the question (§4.2 rule 7).
  const named = questionId == null ? ' --question <id>' : ''
  return new FailedError(
    code,
    `candidate ${id} failed${stage == null ? '' : ` at ${stage}`}: ${detail || 'no reason was given'}`,
    {
      hint:
        next == null
          ? `see \`proposer status ${id}${named}\` for what to do next`
          : nextStep(next, { journalId, questionId, proposer }),
      ...(retryable === undefined ? {} : { retryable }),
    },
  )
}

/**
 * One error for all failures, `undefined` where there is none: code and next action of the first,
 * and how many there are.
 */
export function failuresError(
  failed: readonly PolledStatus[],
  total: number,
  journalIdOf: (candidateId: string) => string | undefined = () => undefined,
): FailedError | undefined {
  const [first] = failed
  if (first === undefined) return undefined
  const error = failedError(first, journalIdOf(first.candidate_id))
  if (failed.length === 1) return error
  const { hint = '', retryable = false } = error.meta
  return new FailedError(
    error.code,
    `${failed.length} of ${total} candidates failed; the first: ${error.detail}`,
    { hint, retryable },
  )
}

/** A refusal that names the candidate, of the same class as the gateway's answer has. */
export function refusalOf({ candidateId }: PollTarget, error: ProposerError): ProposerError {
  const hint =
    error.meta.httpStatus === 404
      ? 'check the candidate id, its question (--question) and the gateway (--gateway): only the one that admitted it knows it'
      : error.meta.hint
  return new (error.constructor as typeof ProposerError)(
    error.code,
    `candidate ${candidateId}: ${error.detail}`,
    {
      ...error.meta,
      ...(hint === undefined ? {} : { hint }),
    },
  )
}

interface Waiting {
  readonly target: PollTarget
  readonly status?: PolledStatus
}

const stateOf = ({ status }: Waiting) =>
  status === undefined
    ? 'not known'
    : status.submission?.status
      ? `${status.status} (${status.submission.status})`
      : status.status

function names(waiting: readonly Waiting[]): string {
  const shown = waiting.slice(0, named).map((one) => `${one.target.candidateId} is ${stateOf(one)}`)
  return waiting.length > named
    ? `${shown.join(', ')}, and ${waiting.length - named} more`
    : shown.join(', ')
}

function goOn(waiting: readonly Waiting[]): string {
  const which =
    waiting.length > named ? '--all' : waiting.map(({ target }) => target.candidateId).join(' ')
  return `go on with \`proposer poll ${which}\``
}

/**
 * PendingError (exit 8) naming what is still on its way; UnavailableError `no_status` (exit 75)
 * where `trouble` kept every status of it from us.
 */
export function timedOut(waiting: readonly Waiting[], trouble: Trouble | undefined): ProposerError {
  if (trouble !== undefined && waiting.every(({ status }) => status === undefined)) {
    const told = trouble.kind === 'deferred' ? answerError(trouble, 'read').meta.hint : undefined
    return new UnavailableError(
      'no_status',
      `the time ran out before any status was learned: ${trouble.detail}`,
      {
        hint: told ?? 'check the gateway address, then run the same command again',
      },
    )
  }
  const last = trouble === undefined ? '' : `; the last answer: ${trouble.detail}`
  const what =
    waiting.length === 1
      ? `candidate ${names(waiting)}`
      : `${waiting.length} candidates are still on their way: ${names(waiting)}`
  return new PendingError('still_pending', `the time ran out: ${what}${last}`, {
    hint: goOn(waiting),
    retryable: true,
  })
}

/** InterruptedError (exit 130) that says how to go on. `reason` is the signal's. */
export function interrupted(waiting: readonly Waiting[], reason: unknown): ProposerError {
  const detail = reason instanceof ProposerError ? reason.detail : 'stopped while polling'
  const left = waiting.length === 1 ? '1 candidate is' : `${waiting.length} candidates are`
  return new InterruptedError(
    'interrupted',
    waiting.length === 0 ? detail : `${detail}: ${left} still on the way`,
    {
      hint: waiting.length === 0 ? 'run the same command again to go on' : goOn(waiting),
      retryable: true,
    },
  )
}
