/**
 * Many candidates as the batch route tells of them (§4.2 rules 6 and 7): looked at once, or
 * followed to their ends.
 */
import { InterruptedError, ProposerError } from '../../protocol/errors.js'
import { limits } from '../../protocol/schema.js'
import { answerError } from '../gateway/answer.js'
import { isAborted, newPatience } from '../gateway/retry.js'
import { journalEnds, knownTargets } from './ends.js'
import { type PollParts, type PollWait, pollCandidates } from './follow.js'
import { type Looked, look, type Told } from './look.js'
import { endOf, type PolledStatus, type PollTarget } from './status.js'

/** One candidate's last known status, or why there is none. */
export interface PolledCandidate {
  readonly candidateId: string
  readonly statusCode: number | null
  readonly candidate?: PolledStatus
  /** Absent while it is on its way. */
  readonly end?: 'executed' | 'failed'
  /**
   * Of a failure: whether the same bytes may still execute later (contract §5), where that is
   * known.
   */
  readonly retryable?: boolean
  /** Of a definite refusal, such as 404. */
  readonly error?: ProposerError
}

export interface BatchPolled {
  /** In the order of the ids, each once. */
  readonly candidates: readonly PolledCandidate[]
  /**
   * What kept us from the rest: InterruptedError 130, PendingError 8 where the time ran out,
   * UnavailableError 75 where nobody answered.
   */
  readonly stopped?: ProposerError
}

export interface BatchLookOptions {
  readonly signal?: AbortSignal
  /** Told after each look. */
  readonly onLook?: (counts: { readonly done: number; readonly total: number }) => void
  readonly onWait?: (event: PollWait) => void
}

export interface BatchFollowOptions extends BatchLookOptions {
  readonly timeoutMs?: number
}

/**
 * Follows the ids until each is executed or failed, at the cost `pollCandidates` has. Rejects as it
 * does: for journal faults, malformed ids and an answer about another candidate.
 */
export async function followBatch(
  parts: PollParts,
  ids: readonly string[],
  options: BatchFollowOptions,
): Promise<BatchPolled> {
  const once = [...new Set(ids)]
  const targets = once.map((candidateId) => ({ candidateId }))
  const { candidates, refusals, stopped } = await pollCandidates(parts, targets, {
    ...options,
    brief: true,
  })
  const statuses = new Map(candidates.map((status) => [status.candidate_id, status]))
  return {
    candidates: once.map((candidateId) => {
      const [status, error] = [statuses.get(candidateId), refusals.get(candidateId)]
      if (error !== undefined) return refusedOf(candidateId, error)
      return status === undefined ? unknownOf(candidateId) : knownOf(status)
    }),
    ...(stopped === undefined ? {} : { stopped }),
  }
}

/**
 * Asks for every id once, a hundred a call, and again only where a call brought no answer of use: ≤
 * 8 tries or 5 min. Of a failure whose code does not tell whether it may be retried the single
 * route is asked (contract §4). Rejects as `followBatch`.
 */
export async function lookOnce(
  parts: PollParts,
  ids: readonly string[],
  options: BatchLookOptions,
): Promise<BatchPolled> {
  const { ports, gateway, journal } = parts
  const { signal, onLook, onWait } = options
  const call = signal === undefined ? {} : { signal }
  const targets = await knownTargets(
    journal,
    ids.map((candidateId) => ({ candidateId })),
  )
  const told = new Map<PollTarget, Told>()
  const result = (stopped?: ProposerError): BatchPolled => ({
    candidates: targets.map((target) => polledOf(target, told.get(target))),
    ...(stopped === undefined ? {} : { stopped }),
  })
  for (let from = 0; from < targets.length; from += limits.batchItems) {
    const batch = targets.slice(from, from + limits.batchItems)
    const patience = newPatience(ports)
    let looked: Looked
    for (;;) {
      if (isAborted(signal)) return result(interrupted(signal))
      looked = await look(gateway, { batch, single: [] }, call)
      const { trouble } = looked
      if (trouble === undefined) break
      if (isAborted(signal)) return result(interrupted(signal))
      const waitMs = patience(trouble.retryAfterMs)
      if (waitMs === undefined) return result(answerError(trouble, 'read'))
      onWait?.({ kind: 'trouble', reason: trouble.detail, waitMs })
      try {
        await ports.clock.sleep(waitMs, signal)
      } catch (error) {
        if (!isAborted(signal)) throw error
      }
    }
    if (looked.batchRefused !== undefined) return result(looked.batchRefused)
    for (const [target, one] of looked.told) told.set(target, one)
    const single = batch.filter(
      (target) => target.identifier !== undefined && isUnexplained(told.get(target)),
    )
    const explained =
      single.length === 0 ? undefined : await look(gateway, { batch: [], single }, call)
    // What the single route does not tell stays as the batch route told it.
    for (const [target, one] of explained?.told ?? [])
      if (one.kind === 'status') told.set(target, one)
    await journalEnds(
      journal,
      batch.flatMap((target) => statusOf(told.get(target)) ?? []),
    )
    onLook?.({ done: told.size, total: targets.length })
  }
  return result()
}

const statusOf = (told: Told | undefined): PolledStatus | undefined =>
  told?.kind === 'status' ? told.status : undefined

function isUnexplained(told: Told | undefined): boolean {
  const status = statusOf(told)
  return (
    status !== undefined && endOf(status) === 'failed' && status.failure?.retryable === undefined
  )
}

function polledOf({ candidateId }: PollTarget, told: Told | undefined): PolledCandidate {
  if (told?.kind === 'status') return knownOf(told.status)
  if (told?.kind === 'refused') return refusedOf(candidateId, told.error)
  return unknownOf(candidateId, told?.httpStatus)
}

/** As the batch route writes it, whichever route told it. */
function knownOf(status: PolledStatus): PolledCandidate {
  const { candidate_id, status: word, received_at = null, submission, failure } = status
  const end = endOf(status)
  const told = failure && { code: failure.code, detail: failure.detail }
  return {
    candidateId: candidate_id,
    statusCode: 200,
    candidate: { candidate_id, status: word, received_at, submission, failure: told },
    ...(end === undefined ? {} : { end }),
    ...(failure?.retryable === undefined ? {} : { retryable: failure.retryable }),
  }
}

const refusedOf = (candidateId: string, error: ProposerError): PolledCandidate => ({
  candidateId,
  statusCode: error.meta.httpStatus ?? null,
  error,
})

const unknownOf = (candidateId: string, statusCode: number | null = null): PolledCandidate => ({
  candidateId,
  statusCode,
})

function interrupted(signal: AbortSignal | undefined): ProposerError {
  if (signal?.reason instanceof ProposerError) return signal.reason
  return new InterruptedError('interrupted', 'stopped while asking', {
    hint: 'ask again with `proposer batch status`',
    retryable: true,
  })
}
