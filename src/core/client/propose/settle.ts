/**
 * Sending a group of saved items until each has an answer: what is transient goes again with the
 * same bytes (R7, §7 rule 4).
 */
import type { ProposerError } from '../../protocol/errors.js'
import type { Unaccepted } from '../gateway/answer.js'
import { isAborted, newPatience } from '../gateway/retry.js'
import { type Authorization, isUnsettled } from '../journal/authorizations.js'
import { attempt, type SubmitAnswer, type SubmitParts } from './attempt.js'
import { attemptBatch, itemsThatFit } from './attempt-batch.js'
import {
  conflict,
  deferredOutcome,
  leavesUnknown,
  type OutOfBand,
  refusalError,
  stopped,
  unknownOutcome,
} from './sending.js'

/**
 * How an item ended. Everything but `accepted` and `replayed` carries an error; those do where
 * another gateway holds the candidate.
 */
export interface Settled {
  readonly outcome: 'accepted' | 'replayed' | 'rejected' | 'unknown' | 'deferred'
  readonly statusCode: number | null
  readonly authorization?: Authorization
  /**
   * `asOf`: the status is that of an answer to this run, or the last one that the journal knows.
   */
  readonly candidate?: {
    readonly candidateId: string
    readonly status: string
    readonly receivedAt: string
    readonly asOf: 'answer' | 'journal'
  }
  readonly error?: ProposerError
  /**
   * Another gateway has it, and it was not sent to this one: what reaches that one (contract §6).
   */
  readonly elsewhere?: { readonly origin: string; readonly flag: string }
  /** Its round is over, and no gateway will tell any more. */
  readonly outOfBand?: OutOfBand
}

export interface SettleOptions {
  /** Ends what is in flight: the time is over, or a stopped call has been given its grace. */
  readonly callSignal: AbortSignal
  /** Starts nothing more: Ctrl-C. */
  readonly signal?: AbortSignal
  /** Fingerprint of the input. */
  readonly batch: string
  /**
   * Items a call may have; halved for the whole run where the gateway finds calls too large (§7,
   * 413).
   */
  readonly size: { most: number }
  readonly onRetry?: (event: { readonly reason: string; readonly waitMs: number }) => void
}

export interface SettledGroup {
  /** In the order of the authorizations. */
  readonly results: readonly Settled[]
  /** Why nothing more should be sent: nobody answered to the end. */
  readonly gone?: ProposerError
}

interface Sending {
  readonly authorization: Authorization
  uncertain: boolean
  last?: Unaccepted
  result?: Settled
}

/**
 * Sends batch-form items in one call, single-form ones by their own route (contract §6), again
 * after 429, 503 and whatever is uncertain: 1, 2, 4 … 30 s with full jitter or by Retry-After, ≤ 8
 * tries or 5 min. A refusal does not settle an earlier uncertain attempt. Rejects for journal
 * faults only (StorageError 74).
 */
export async function settleGroup(
  parts: SubmitParts,
  authorizations: readonly Authorization[],
  options: SettleOptions,
): Promise<SettledGroup> {
  const sendings = authorizations.map(
    (authorization): Sending => ({ authorization, uncertain: isUnsettled(authorization) }),
  )
  const patience = newPatience(parts.ports)
  const local = { most: options.size.most }
  for (;;) {
    const pending = sendings.filter(({ result }) => result === undefined)
    if (pending.length === 0) return { results: resultsOf(sendings) }
    if (isAborted(options.signal)) return stop(sendings, options.signal?.reason)
    const { reached, again } = await sendOnce(parts, pending, local, options)
    const waiting = pending.filter(({ result }) => result === undefined)
    if (waiting.length === 0 || again) continue
    if (isAborted(options.signal)) return stop(sendings, options.signal?.reason)
    const toldMs = Math.max(
      0,
      ...waiting.map(({ last }) =>
        last !== undefined && 'retryAfterMs' in last ? (last.retryAfterMs ?? 0) : 0,
      ),
    )
    const waitMs = options.callSignal.aborted ? undefined : patience(toldMs)
    if (waitMs === undefined) return giveUp(sendings, reached)
    options.onRetry?.({ reason: waiting[0]?.last?.detail ?? 'no answer', waitMs })
    try {
      await parts.ports.clock.sleep(
        waitMs,
        options.signal === undefined
          ? options.callSignal
          : AbortSignal.any([options.callSignal, options.signal]),
      )
    } catch (error) {
      if (isAborted(options.signal)) return stop(sendings, options.signal?.reason)
      if (!options.callSignal.aborted) throw error
      return giveUp(sendings, reached)
    }
  }
}

/**
 * One round: every pending item once. `again`: some are to be sent again at once, in other company.
 */
async function sendOnce(
  parts: SubmitParts,
  pending: readonly Sending[],
  local: { most: number },
  { callSignal, batch, size, signal }: SettleOptions,
): Promise<{ readonly reached: boolean; readonly again: boolean }> {
  const call = { signal: callSignal, batch }
  let reached = false
  let again = false
  for (const one of pending.filter(({ authorization }) => authorization.signed.form === 'single')) {
    if (isAborted(signal)) break
    const answer = await attempt(parts, one.authorization, call)
    reached ||= answer.kind !== 'deferred' && answer.kind !== 'uncertain'
    take(one, answer)
  }
  let rest = pending.filter(({ authorization }) => authorization.signed.form === 'batch')
  while (rest.length > 0 && !isAborted(signal)) {
    const count = itemsThatFit(
      rest.map(({ authorization }) => authorization),
      local.most,
    )
    const some = rest.slice(0, count)
    rest = rest.slice(count)
    const { answers, wasAnswered, split } = await attemptBatch(
      parts,
      some.map(({ authorization }) => authorization),
      call,
    )
    reached ||= wasAnswered
    for (const [index, one] of some.entries()) {
      const answer = answers[index]
      if (answer !== undefined) take(one, answer)
    }
    if (!wasAnswered) continue
    if (split !== undefined) local.most = Math.max(1, Math.floor(count / 2))
    if (split === 'too_large') size.most = Math.min(size.most, local.most)
    again ||= some.some(
      ({ last, result }) =>
        result === undefined &&
        last?.kind === 'deferred' &&
        (last.httpStatus === 413 || last.httpStatus === 422),
    )
  }
  return { reached, again }
}

function take(one: Sending, answer: SubmitAnswer): void {
  const { authorization } = one
  if (answer.kind === 'accepted') {
    const { candidate_id: candidateId, status, received_at: receivedAt } = answer.value
    const outcome = answer.httpStatus === 202 ? 'accepted' : 'replayed'
    one.result = {
      outcome,
      statusCode: answer.httpStatus,
      authorization,
      candidate: { candidateId, status, receivedAt, asOf: 'answer' },
    }
    return
  }
  // A call that was cut short tells less than the one before it.
  if (one.last === undefined || answer.code !== 'not_sent') one.last = answer
  if (answer.kind === 'reconcile')
    one.result = {
      outcome: 'rejected',
      statusCode: 409,
      authorization,
      error: conflict(authorization, answer),
    }
  else if (answer.kind === 'uncertain') one.uncertain ||= leavesUnknown(authorization, answer)
  else if (answer.kind === 'refused') {
    one.result = one.uncertain
      ? { authorization, ...unknown(authorization, answer) }
      : {
          outcome: 'rejected',
          statusCode: answer.httpStatus,
          authorization,
          error: refusalError(authorization, answer),
        }
  }
}

function unknown(authorization: Authorization, last: Unaccepted): Settled {
  const { statusCode, error } = unknownOutcome(authorization, last)
  return { outcome: 'unknown', statusCode, error }
}

/**
 * Stopped by the user: what may have been admitted is unknown, the rest can simply be sent later.
 */
function stop(sendings: readonly Sending[], reason: unknown): SettledGroup {
  for (const one of sendings) {
    const { outcome, ...rest } = stopped(one.authorization, one.uncertain, one.last, reason)
    one.result ??= {
      ...rest,
      outcome: outcome === 'unknown' ? 'unknown' : 'deferred',
      authorization: one.authorization,
    }
  }
  return { results: resultsOf(sendings) }
}

function giveUp(sendings: readonly Sending[], reached: boolean): SettledGroup {
  let gone: ProposerError | undefined
  for (const one of sendings) {
    if (one.result !== undefined) continue
    const last = one.last ?? unsent
    const { statusCode, error } = one.uncertain
      ? unknownOutcome(one.authorization, last)
      : deferredOutcome(one.authorization, last)
    one.result = {
      outcome: one.uncertain ? 'unknown' : 'deferred',
      statusCode,
      authorization: one.authorization,
      error,
    }
    gone ??= reached ? undefined : error
  }
  return { results: resultsOf(sendings), ...(gone === undefined ? {} : { gone }) }
}

const unsent: Unaccepted = {
  kind: 'deferred',
  code: 'not_sent',
  detail: 'the time ran out before it was sent',
}

function resultsOf(sendings: readonly Sending[]): readonly Settled[] {
  return sendings.map(({ result }) => {
    if (result === undefined) throw new Error('an item was left without an outcome')
    return result
  })
}
