/** How a polling ends, as errors with what to do next (contract §6). */
import { FailedError, InterruptedError, PendingError, ProposerError, UnavailableError } from '../protocol/errors.js'
import type { PolledStatus, PollTarget } from './polled.js'

/** So many are named; of more the rest is counted. */
const named = 3

const nextActions: Readonly<Record<string, string>> = {
  none: 'nothing is left to do',
  wait: 'wait, then look at the status again',
  replay_same_payload: 'send the same payload again with `proposer replay`',
  fund_wallet: 'fund the wallet, then send the same payload again with `proposer replay`',
  approve_permit2: 'approve Permit2 for the token, then send the same payload again with `proposer replay`',
  sign_new_authorization: 'sign anew with `proposer submit`',
  wait_for_new_round: 'wait for a new round; `proposer reconcile <identifier>` shows the state',
  contact_operator: 'contact the operator with the candidate id',
}

/** FailedError (exit 7) of a failed candidate: code, detail and what to do next. */
export function failedError({ failure, candidate_id: id }: PolledStatus): FailedError {
  if (failure === null) return new FailedError('failed', `candidate ${id} failed`, { hint: 'ask the operator for the reason' })
  const { code, detail, stage, next_action: next, retryable } = failure
  return new FailedError(code, `candidate ${id} failed${stage === undefined ? '' : ` at ${stage}`}: ${detail}`, {
    hint: next === undefined ? `see \`proposer status ${id}\` for what to do next` : (nextActions[next] ?? `next: ${next}`),
    ...(retryable === undefined ? {} : { retryable }),
  })
}

/** One error for all failures, `undefined` where there is none: code and next action of the first, and how many there are. */
export function failuresError(failed: readonly PolledStatus[], total: number): FailedError | undefined {
  const [first] = failed
  if (first === undefined) return undefined
  const error = failedError(first)
  if (failed.length === 1) return error
  const { hint = '', retryable = false } = error.meta
  return new FailedError(error.code, `${failed.length} of ${total} candidates failed; the first: ${error.detail}`, { hint, retryable })
}

/** A refusal that names the candidate, of the same class as the gateway's answer has. */
export function refusalOf({ candidateId }: PollTarget, error: ProposerError): ProposerError {
  const hint =
    error.meta.httpStatus === 404
      ? 'check the candidate id, its question (--question) and the gateway (--gateway): only the one that admitted it knows it'
      : error.meta.hint
  return new (error.constructor as typeof ProposerError)(error.code, `candidate ${candidateId}: ${error.detail}`, {
    ...error.meta,
    ...(hint === undefined ? {} : { hint }),
  })
}

interface Waiting {
  readonly target: PollTarget
  readonly status?: PolledStatus
}

const stateOf = ({ status }: Waiting) =>
  status === undefined ? 'not known' : status.submission === null ? status.status : `${status.status} (${status.submission.status})`

function names(waiting: readonly Waiting[]): string {
  const shown = waiting.slice(0, named).map((one) => `${one.target.candidateId} is ${stateOf(one)}`)
  return waiting.length > named ? `${shown.join(', ')}, and ${waiting.length - named} more` : shown.join(', ')
}

function goOn(waiting: readonly Waiting[]): string {
  const which = waiting.length > named ? '--all' : waiting.map(({ target }) => target.candidateId).join(' ')
  return `go on with \`proposer poll ${which}\``
}

/**
 * PendingError (exit 8) naming what is still on its way; UnavailableError `no_status` (exit 75) where `trouble` kept every status of it
 * from us.
 */
export function timedOut(waiting: readonly Waiting[], trouble: string | undefined): ProposerError {
  if (trouble !== undefined && waiting.every(({ status }) => status === undefined)) {
    return new UnavailableError('no_status', `the time ran out before any status was learned: ${trouble}`, {
      hint: 'check the gateway address, then run the same command again',
    })
  }
  const last = trouble === undefined ? '' : `; the last answer: ${trouble}`
  const what =
    waiting.length === 1 ? `candidate ${names(waiting)}` : `${waiting.length} candidates are still on their way: ${names(waiting)}`
  return new PendingError('still_pending', `the time ran out: ${what}${last}`, { hint: goOn(waiting), retryable: true })
}

/** InterruptedError (exit 130) that says how to go on. `reason` is the signal's. */
export function interrupted(waiting: readonly Waiting[], reason: unknown): ProposerError {
  const detail = reason instanceof ProposerError ? reason.detail : 'stopped while polling'
  const left = waiting.length === 1 ? '1 candidate is' : `${waiting.length} candidates are`
  return new InterruptedError('interrupted', waiting.length === 0 ? detail : `${detail}: ${left} still on the way`, {
    hint: waiting.length === 0 ? 'run the same command again to go on' : goOn(waiting),
    retryable: true,
  })
}
