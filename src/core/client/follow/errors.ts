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
const namedCount = 3

export interface FailedOf {
  readonly journalId?: string | undefined
  readonly questionId?: string | null | undefined
  readonly proposer?: string | null | undefined
}

/** As commands (contract §5); a word of another gateway as it is. */
export function remedyOf(action: string, { journalId, questionId, proposer }: FailedOf): string {
  const replay =
    journalId === undefined
      ? 'proposer submit <identifier> <payload.json>'
      : `proposer replay ${journalId}`
  const again = `send the same payload again with \`${replay}\``
  const question = questionId ?? '<identifier>'
  const remedies: Readonly<Record<string, string>> = {
    none: 'nothing is left to do',
    wait: 'wait, then check the status again',
    replay_same_payload: again,
    fund_wallet: `fund the wallet${proposer == null ? '' : ` ${proposer}`}, then ${again}`,
    approve_permit2: `let Permit2 move the token with \`proposer funds approve\`, then ${again}`,
    sign_new_authorization: `sign again with \`proposer submit ${question} --outcome <answer>\``,
    wait_for_new_round: `wait for a new round; \`proposer reconcile ${question}\` shows the state`,
    contact_operator: 'contact the operator with the candidate id',
  }
  return (Object.hasOwn(remedies, action) && remedies[action]) || `next: ${action}`
}

export function failedError(status: PolledStatus, journalId?: string): FailedError {
  const { failure, candidate_id: id, question_id: questionId, proposer } = status
  if (failure === null)
    return new FailedError('failed', `candidate ${id} failed`, 'ask the operator for the reason')
  const { code, detail, stage, next_action: next, retryable } = failure
  // The route that tells the rest asks for the question (§4.2 rule 7).
  const flag = questionId == null ? ' --question <id>' : ''
  const where = stage == null ? '' : ` at ${stage}`
  return new FailedError(
    code,
    `candidate ${id} failed${where}: ${detail || 'no reason was given'}`,
    {
      hint:
        next == null
          ? `see \`proposer status ${id}${flag}\` for what to do next`
          : remedyOf(next, { journalId, questionId, proposer }),
      ...(retryable === undefined ? {} : { retryable }),
    },
  )
}

export function failuresError(
  failed: readonly PolledStatus[],
  total: number,
  journalIdOf: (candidateId: string) => string | undefined,
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

export function refusedError(
  { candidateId, signed }: PollTarget,
  error: ProposerError,
): ProposerError {
  const notFound =
    signed?.questionId !== undefined
      ? `the gateway that admitted it may have lost it: \`proposer reconcile ${signed.questionId}\` says what is safe to do next`
      : 'check the candidate id, its question (--question) and the gateway (--gateway): only the one that admitted it knows it'
  return new (error.constructor as typeof ProposerError)(
    error.code,
    `candidate ${candidateId}: ${error.detail}`,
    error.meta.httpStatus === 404 ? { ...error.meta, hint: notFound } : error.meta,
  )
}

interface Waiting {
  readonly target: PollTarget
  readonly status?: PolledStatus | undefined
}

function namesOf(waiting: readonly Waiting[]): string {
  const names = waiting.slice(0, namedCount).map(({ target, status }) => {
    const sent = status?.submission?.status ? ` (${status.submission.status})` : ''
    return `${target.candidateId} is ${status === undefined ? 'not known' : status.status + sent}`
  })
  const more = waiting.length - namedCount
  return `${names.join(', ')}${more > 0 ? `, and ${more} more` : ''}`
}

function goOn(waiting: readonly Waiting[]): string {
  const ids = waiting.map(({ target }) => target.candidateId).join(' ')
  return `continue with \`proposer poll ${waiting.length > namedCount ? '--all' : ids}\``
}

/** Exit 8; exit 75 where `trouble` kept every status from us. */
export function timedOut(waiting: readonly Waiting[], trouble: Trouble | undefined): ProposerError {
  if (trouble !== undefined && waiting.every(({ status }) => status === undefined)) {
    const known = trouble.kind === 'deferred' ? answerError(trouble, 'read').meta.hint : undefined
    return new UnavailableError(
      'no_status',
      `the time limit was reached before any status was known: ${trouble.detail}`,
      known ?? 'check the gateway address, then retry',
    )
  }
  const last = trouble === undefined ? '' : `; the last answer: ${trouble.detail}`
  const what =
    waiting.length === 1
      ? `candidate ${namesOf(waiting)}`
      : `${waiting.length} candidates are still in progress: ${namesOf(waiting)}`
  return new PendingError('still_pending', `the time limit was reached: ${what}${last}`, {
    hint: goOn(waiting),
    retryable: true,
  })
}

/** Exit 130. `reason` is the signal's. */
export function interrupted(waiting: readonly Waiting[], reason: unknown): ProposerError {
  const detail = reason instanceof ProposerError ? reason.detail : 'stopped while polling'
  if (waiting.length === 0)
    return new InterruptedError('interrupted', detail, {
      hint: 'rerun the command to continue',
      retryable: true,
    })
  const left = waiting.length === 1 ? '1 candidate is' : `${waiting.length} candidates are`
  return new InterruptedError('interrupted', `${detail}: ${left} still in progress`, {
    hint: goOn(waiting),
    retryable: true,
  })
}
