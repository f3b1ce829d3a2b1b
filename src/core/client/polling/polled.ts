/** What polling knows of a candidate: all of the single route's status, or what the batch route tells of it (§2.6, §2.7). */
import { failures } from '../../protocol/candidate.js'
import { ConflictError } from '../../protocol/errors.js'
import { type BatchStatusAnswer, type CandidateStatus, isQuestionId } from '../../protocol/schema.js'

export const stages = ['validated', 'selected', 'submitted', 'confirmed', 'indexed'] as const
export type Stage = (typeof stages)[number]

export interface PollTarget {
  readonly candidateId: string
  /** Question id or slug: the single route needs it. Without one the batch route alone tells about the candidate. */
  readonly identifier?: string
  /** When it was sent, Unix milliseconds of this machine: nothing is asked before an end can be expected. Default: the journal's. */
  readonly sentAtMs?: number
}

type Failure = NonNullable<CandidateStatus['failure']>
type Always = 'candidate_id' | 'status' | 'received_at' | 'submission'

/**
 * A status; every `CandidateStatus` is one. From the batch route alone, a failure has what contract §5's table says of its code beside
 * `code` and `detail`, and the question is known where the target names its ID.
 */
export type PolledStatus = Pick<CandidateStatus, Always> &
  Partial<Omit<CandidateStatus, Always | 'failure'>> & { readonly failure: (Pick<Failure, 'code' | 'detail'> & Partial<Failure>) | null }

export type BatchCandidate = NonNullable<BatchStatusAnswer['results'][number]['candidate']>

/** A batch route's candidate with what contract §5's table and the target add to it. */
export function fromBatch({ candidateId, identifier }: PollTarget, candidate: BatchCandidate): PolledStatus {
  const { candidate_id, status, received_at, submission, failure } = checked(candidateId, candidate)
  const question = identifier !== undefined && isQuestionId(identifier) ? { question_id: identifier } : {}
  return { candidate_id, ...question, status, received_at, submission, failure: failure && { ...failure, ...meaningOf(failure.code) } }
}

/** Contract §5: what a code alone tells; nothing for a code of another gateway. */
function meaningOf(code: string): Partial<Failure> {
  const table: Readonly<Record<string, { readonly retryable: boolean | undefined; readonly nextAction: string }>> = failures
  const row = Object.hasOwn(table, code) ? table[code] : undefined
  if (row === undefined) return {}
  return { next_action: row.nextAction, ...(row.retryable === undefined ? {} : { retryable: row.retryable }) }
}

/** An answer about another candidate than the one asked for is no answer. Throws ConflictError `candidate_mismatch`. */
export function checked<T extends { readonly candidate_id: string }>(candidateId: string, told: T): T {
  if (told.candidate_id === candidateId) return told
  throw new ConflictError('candidate_mismatch', `the gateway answered about candidate ${told.candidate_id} instead of ${candidateId}`, {
    hint: 'do not trust this gateway until the operator has explained it',
  })
}

/** Whether it ended (contract §5): nothing more is to be asked. */
export const hasEnded = ({ status }: Pick<PolledStatus, 'status'>): boolean => status === 'executed' || status === 'failed'

/** Whether a status has reached the stage, or ended. `undefined`: the end. */
export function hasReached(status: Pick<PolledStatus, 'status' | 'submission'>, until: Stage | undefined): boolean {
  if (hasEnded(status)) return true
  if (until === undefined) return false
  return stageOf(status) >= stages.indexOf(until)
}

/** Index in `stages`, -1 before the first. */
function stageOf({ status, submission }: Pick<PolledStatus, 'status' | 'submission'>): number {
  switch (submission?.status) {
    case 'indexed':
      return 4
    case 'confirmed':
      return 3
    case 'submitted':
      return 2
    default:
      return status === 'selected' ? 1 : status === 'validated' ? 0 : -1
  }
}

/** Two statuses with the same key tell the same stage. */
export function stageKey({ status, submission, failure }: PolledStatus): string {
  return [status, submission?.status, submission?.transaction_hash, failure?.code].join(' ')
}

/**
 * Milliseconds from admission to `until` (default: the end) as the gateway's own times tell them, so that no clock of ours counts;
 * `undefined` where they tell nothing, or where it failed.
 */
export function lifeMs(status: PolledStatus, until: Stage | undefined): number | undefined {
  if (status.status === 'failed') return undefined
  const { submission } = status
  const reached = {
    validated: status.validated_at,
    selected: status.selected_at,
    submitted: submission?.submitted_at,
    confirmed: submission?.confirmed_at,
    indexed: submission?.indexed_at,
  }[until ?? 'indexed']
  if (typeof reached !== 'string') return undefined
  const ms = Date.parse(reached) - Date.parse(status.received_at)
  return Number.isFinite(ms) && ms >= 0 ? ms : undefined
}

/** When a status came to be by the gateway's times, as it wrote them; `undefined` where it tells none. */
export function changedAt({ status, submission, received_at, validated_at, selected_at }: PolledStatus): string | undefined {
  if (status === 'failed') return undefined
  const own = { received: received_at, validated: validated_at, selected: selected_at, executed: undefined }[status]
  const { indexed_at = null, confirmed_at = null, submitted_at = null } = submission ?? {}
  return indexed_at ?? confirmed_at ?? submitted_at ?? own ?? undefined
}
