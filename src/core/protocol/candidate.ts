import type { Hex } from '#ports'
import { type FailureCode, type FailureStage, failures } from './codes.js'
import { pick } from './pick.js'
import { type Authorization, outcomeOf } from './proposal.js'
import type { Address, CandidateState, CandidateStatus } from './schema.js'
import { version } from './words.js'

export type { CandidateState }
/** `canResubmit` is judged when the status is asked for. */
export interface CandidateFailure {
  readonly stage: FailureStage
  readonly code: FailureCode
  readonly detail: string
  readonly retryable: boolean
}

export interface CandidateSubmission {
  readonly status: NonNullable<CandidateStatus['submission']>['status']
  readonly transactionHash: Hex | null
  readonly submittedAtMs: number | null
  readonly confirmedAtMs: number | null
  readonly indexedAtMs: number | null
  /** Log index in its block (contract §5). */
  readonly proposalEventIndex: number | null
}

interface Selected {
  readonly validatedAtMs: number
  readonly selectedAtMs: number
}

/** Every record carries all of it, so one read tells where a candidate stands. */
export type Progress =
  | { readonly status: 'received' }
  | { readonly status: 'validated'; readonly validatedAtMs: number }
  | (Selected & { readonly status: 'selected'; readonly submission: CandidateSubmission | null })
  | (Selected & { readonly status: 'executed'; readonly submission: CandidateSubmission })
  | {
      readonly status: 'failed'
      readonly validatedAtMs: number | null
      readonly selectedAtMs: number | null
      readonly submission: CandidateSubmission | null
      readonly failure: CandidateFailure
    }

/** What an execution slot is bound to (R3). */
export interface RoundRef {
  readonly key: string
  readonly questionId: Hex
  readonly oracle: Address
  readonly requester: Address
  readonly identifier: Hex
  readonly timestamp: string
  readonly ancillaryHash: Hex
}

export interface Candidate extends Omit<Authorization, 'questionId'> {
  readonly id: string
  /** Payload identity (R22). */
  readonly identity: string
  /** Order of admission (R13). */
  readonly sequence: number
  readonly round: RoundRef
  readonly digest: Hex
  readonly receivedAtMs: number
  readonly progress: Progress
}

export const isActive = (status: CandidateState) => status !== 'executed' && status !== 'failed'

const transitions: Record<CandidateState, readonly CandidateState[]> = {
  received: ['validated', 'failed'],
  validated: ['selected', 'failed', 'received'],
  // selected again: the submission moves on; validated: its slot died
  selected: ['selected', 'executed', 'failed', 'validated'],
  executed: ['selected'],
  // an exact replay of a retryable failure (contract §5)
  failed: ['received'],
}

export const mayBecome = (from: CandidateState, to: CandidateState) =>
  transitions[from].includes(to)

/** RFC 3339 UTC with milliseconds (contract §2). */
export function instant(ms: number) {
  return new Date(ms).toISOString()
}
const instantOrNull = (ms: number | null | undefined) => (ms == null ? null : instant(ms))

const wireSubmission = (submission: CandidateSubmission | null) =>
  submission && {
    status: submission.status,
    transaction_hash: submission.transactionHash,
    submitted_at: instantOrNull(submission.submittedAtMs),
    confirmed_at: instantOrNull(submission.confirmedAtMs),
    indexed_at: instantOrNull(submission.indexedAtMs),
    proposal_event_index: submission.proposalEventIndex,
  }

export interface Prospects {
  /** As for a new submission (contract §5). */
  readonly canResubmit: boolean
  readonly roundIsOpen: boolean
}
const noProspects: Prospects = { canResubmit: false, roundIsOpen: false }

const wireFailure = (failure: CandidateFailure, { canResubmit, roundIsOpen }: Prospects) => ({
  ...pick(failure, 'stage', 'code', 'detail', 'retryable'),
  can_resubmit: canResubmit,
  // Where the new round is open, there is nothing to wait for (contract §5, §9).
  next_action:
    failure.code === 'round_advanced' && roundIsOpen
      ? ('sign_new_authorization' as const)
      : failures[failure.code].nextAction,
})

/** Without signatures and transaction data (§2.6, contract §3). */
export function wireStatus(candidate: Candidate, prospects = noProspects): CandidateStatus {
  const { id, price, progress } = candidate
  const outcome = outcomeOf(price)
  if (!outcome) throw new RangeError(`candidate ${id} has price ${price}, which no outcome has`)
  return {
    version,
    candidate_id: id,
    question_id: candidate.round.questionId,
    proposer: candidate.proposer,
    outcome,
    price,
    status: progress.status,
    received_at: instant(candidate.receivedAtMs),
    validated_at: 'validatedAtMs' in progress ? instantOrNull(progress.validatedAtMs) : null,
    selected_at: 'selectedAtMs' in progress ? instantOrNull(progress.selectedAtMs) : null,
    submission: 'submission' in progress ? wireSubmission(progress.submission) : null,
    failure: progress.status === 'failed' ? wireFailure(progress.failure, prospects) : null,
  }
}
