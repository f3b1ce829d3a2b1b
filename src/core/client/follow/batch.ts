/** Many candidates as the batch route tells of them (§4.2 rules 6 and 7). */
import { InterruptedError, ProposerError } from '../../protocol/errors.js'
import { limits } from '../../protocol/words.js'
import { answerError, certificateCode, isAborted, newPatience } from '../gateway/answer.js'
import { type PollOptions, pollCandidates } from './follow.js'
import {
  askStatuses,
  journalEnds,
  knownTargets,
  type PollParts,
  type StatusReport,
  type StatusReports,
} from './look.js'
import { endOf, type PolledStatus, type PollTarget } from './status.js'

export interface PolledCandidate {
  readonly candidateId: string
  readonly statusCode: number | null
  readonly candidate?: PolledStatus
  readonly end?: 'executed' | 'failed' | undefined
  /** Of a failure: whether the same bytes may still execute later, where that is known. */
  readonly retryable?: boolean | undefined
  readonly error?: ProposerError
}

export interface BatchPolled {
  readonly candidates: readonly PolledCandidate[]
  /** Exit 130, 8 at the time limit, 75 where nobody answered. */
  readonly stopped?: ProposerError | undefined
}

export type BatchFollowOptions = Pick<PollOptions, 'timeoutMs' | 'signal' | 'onLook' | 'onWait'>

export async function followBatch(
  parts: PollParts,
  ids: readonly string[],
  options: BatchFollowOptions,
): Promise<BatchPolled> {
  const targets = ids.map((candidateId) => ({ candidateId }))
  const { candidates, refusals, stopped } = await pollCandidates(parts, targets, {
    ...options,
    brief: true,
  })
  const statuses = new Map(candidates.map((status) => [status.candidate_id, status]))
  const reportOf = (id: string): StatusReport | undefined => {
    const [status, error] = [statuses.get(id), refusals.get(id)]
    if (error !== undefined) return { kind: 'refused', error }
    return status && { kind: 'status', status }
  }
  return {
    candidates: [...new Set(ids)].map((id) => polledOf(id, reportOf(id))),
    stopped,
  }
}

/**
 * Again only where a call brought no answer of use. Of a failure whose code does not tell whether
 * it may be retried the single route is asked (contract §4).
 */
export async function lookOnce(
  parts: PollParts,
  ids: readonly string[],
  options: Omit<BatchFollowOptions, 'timeoutMs'>,
): Promise<BatchPolled> {
  const { gateway, journal } = parts
  const targets = await knownTargets(
    journal,
    ids.map((candidateId) => ({ candidateId })),
  )
  const reports = new Map<PollTarget, StatusReport>()
  const result = (stopped?: ProposerError): BatchPolled => ({
    candidates: targets.map((target) => polledOf(target.candidateId, reports.get(target))),
    stopped,
  })
  let items = 0
  for (let from = 0; from < targets.length; from += limits.batchItems) {
    const batch = targets.slice(from, from + limits.batchItems)
    const asked = await askPatiently(parts, batch, options)
    if (asked instanceof ProposerError) return result(asked)
    items += asked.items
    for (const [target, report] of asked.reports) reports.set(target, report)
    const single = batch.filter(
      (target) => target.identifier !== undefined && isUnexplained(reports.get(target)),
    )
    // What the single route does not tell stays as the batch route reported it.
    const explained = await askStatuses(gateway, { batch: [], single }, options)
    for (const [target, report] of explained.reports) {
      const isOther = report.kind === 'refused' && report.error.code === 'candidate_mismatch'
      if (report.kind === 'status' || isOther) reports.set(target, report)
    }
    const statuses = batch.flatMap((target) => {
      const report = reports.get(target)
      return report?.kind === 'status' ? report.status : []
    })
    await journalEnds(journal, statuses)
    options.onLook?.({ items, done: reports.size, total: targets.length })
  }
  return result()
}

async function askPatiently(
  { ports, gateway }: PollParts,
  batch: readonly PollTarget[],
  { signal, onWait }: Omit<BatchFollowOptions, 'timeoutMs'>,
): Promise<StatusReports | ProposerError> {
  const patience = newPatience(ports)
  for (;;) {
    if (isAborted(signal)) return interrupted(signal)
    const asked = await askStatuses(gateway, { batch, single: [] }, { signal })
    const { trouble } = asked
    if (trouble === undefined) return asked.batchRefused ?? asked
    if (isAborted(signal)) return interrupted(signal)
    const isLasting = trouble.code === certificateCode
    const waitMs = isLasting ? undefined : patience(trouble.retryAfterMs)
    if (waitMs === undefined) return answerError(trouble, 'read')
    onWait?.({ kind: 'trouble', reason: trouble.detail, waitMs })
    try {
      await ports.clock.sleep(waitMs, signal)
    } catch (error) {
      if (!isAborted(signal)) throw error
    }
  }
}

const isUnexplained = (report: StatusReport | undefined): boolean =>
  report?.kind === 'status' &&
  endOf(report.status) === 'failed' &&
  report.status.failure?.retryable === undefined

function polledOf(candidateId: string, report: StatusReport | undefined): PolledCandidate {
  if (report?.kind === 'refused')
    return { candidateId, statusCode: report.error.meta.httpStatus ?? null, error: report.error }
  if (report?.kind !== 'status') return { candidateId, statusCode: report?.httpStatus ?? null }
  const { candidate_id, status, received_at = null, submission, failure } = report.status
  return {
    candidateId: candidate_id,
    statusCode: 200,
    candidate: {
      candidate_id,
      status,
      received_at,
      submission,
      failure: failure && { code: failure.code, detail: failure.detail },
    },
    end: endOf(report.status),
    retryable: failure?.retryable,
  }
}

function interrupted(signal: AbortSignal | undefined): ProposerError {
  if (signal?.reason instanceof ProposerError) return signal.reason
  return new InterruptedError('interrupted', 'stopped while asking', {
    hint: 'ask again with `proposer batch status`',
    retryable: true,
  })
}
