/** The records of what happens to a slot and its candidates (contract §5, robustness §3). Pure. */
import { findProposed } from '#chain/propose'
import type { ChainReceipt, Hex } from '#ports'
import type { Candidate, CandidateFailure, CandidateSubmission } from '#protocol/candidate'
import type { Change, Slot, SlotAttempt, SlotOutcome, WalletFailure } from '../ledger/ledger.js'
import {
  executed,
  failed,
  failureOf,
  preparedSubmission,
  progressChange,
  selected,
  stageOf,
  standsInAgain,
  stepsToExecuted,
  submissionOf,
} from '../validation/progress.js'
import type { RoundOutcome } from '../validation/round-end.js'

const carries = (attempt: SlotAttempt, { id }: Candidate) => attempt.candidateIds.includes(id)

const submissionChange = (
  candidate: Candidate,
  nowMs: number,
  submission: CandidateSubmission,
): Change => progressChange(candidate, selected(candidate.progress, nowMs, submission))

function submitted(
  transactionHash: Hex,
  { progress }: Candidate,
  nowMs: number,
): CandidateSubmission {
  const submittedAtMs = submissionOf(progress)?.submittedAtMs ?? nowMs
  return { ...preparedSubmission(transactionHash), status: 'submitted', submittedAtMs }
}

/**
 * The first transaction of a slot makes submissions `prepared`; one that leaves candidates out
 * makes theirs `dropped`.
 */
export function attemptChanges(
  slot: Slot,
  attempt: SlotAttempt,
  candidates: readonly Candidate[],
  nowMs: number,
): Change[] {
  const made: Change = { kind: 'slot.attempt', slotId: slot.id, attempt }
  if (attempt.kind === 'cancel') return [made]
  const steps = candidates.flatMap((candidate) => {
    const before = submissionOf(candidate.progress)
    if (before === null)
      return carries(attempt, candidate)
        ? [submissionChange(candidate, nowMs, preparedSubmission(attempt.hash))]
        : []
    return carries(attempt, candidate) || before.status === 'dropped'
      ? []
      : [submissionChange(candidate, nowMs, { ...before, status: 'dropped' })]
  })
  return [made, ...steps]
}

/** A cancellation says nothing new of candidates. */
export function sentChanges(
  slot: Slot,
  attempt: SlotAttempt,
  candidates: readonly Candidate[],
  nowMs: number,
): Change[] {
  const { hash } = attempt
  const sent: Change[] =
    attempt.sentAtMs === null ? [{ kind: 'slot.sent', slotId: slot.id, hash, sentAtMs: nowMs }] : []
  const news = candidates.filter((candidate) => {
    const before = submissionOf(candidate.progress)
    const isKnown = before?.status === 'submitted' && before.transactionHash === hash
    return carries(attempt, candidate) && !isKnown
  })
  return [...sent, ...news.map((one) => submissionChange(one, nowMs, submitted(hash, one, nowMs)))]
}

export const minedChange = (
  slot: Slot,
  { transactionHash: hash, blockNumber, blockHash, status, gasUsed, gasPriceWei }: ChainReceipt,
): Change => ({
  kind: 'slot.mined',
  slotId: slot.id,
  hash,
  blockNumber: String(blockNumber),
  blockHash,
  status,
  gasUsed: String(gasUsed),
  ...(gasPriceWei !== undefined && { gasPriceWei: String(gasPriceWei) }),
})

/**
 * Matches each carried candidate to its ProposePrice in a final receipt: confirmed, indexed and
 * executed. One without a log there ends in failure. `isOnRecord`: before, in this block.
 */
export function executedChanges(
  receipt: ChainReceipt,
  carried: readonly Candidate[],
  nowMs: number,
  isOnRecord: boolean,
): Change[] {
  const { transactionHash: hash, logs } = receipt
  return carried.flatMap((candidate) => {
    const { progress } = candidate
    if (isOnRecord && progress.status === 'executed') return []
    const before = submitted(hash, candidate, nowMs)
    const onRecord = isOnRecord ? submissionOf(progress)?.confirmedAtMs : undefined
    const confirmedAtMs = onRecord ?? nowMs
    const confirmed: CandidateSubmission = { ...before, status: 'confirmed', confirmedAtMs }
    const step = submissionChange(candidate, nowMs, confirmed)
    const found = findProposed(logs, candidate)
    if (found === undefined) {
      const detail = `The transaction ${hash} succeeded without a ProposePrice for this proposal.`
      const failure = failureOf('indexing', 'execution_reverted', detail)
      const onward = selected(progress, nowMs, confirmed)
      return [step, progressChange(candidate, failed(onward, failure))]
    }
    const proposalEventIndex = found.log.logIndex
    const indexed = {
      ...confirmed,
      status: 'indexed',
      indexedAtMs: nowMs,
      proposalEventIndex,
    } as const
    return [step, progressChange(candidate, executed(progress, nowMs, indexed))]
  })
}

export type SlotEnd =
  | RoundOutcome
  /** `isUnexplained`: its own proposal would have passed, in a transaction that reverted. */
  | { readonly kind: 'again'; readonly isUnexplained?: true }

export interface CandidateEnd {
  readonly candidate: Candidate
  readonly end: SlotEnd
}

export function notSelected({ progress }: Candidate): CandidateFailure {
  const detail = 'Another candidate was executed for this round.'
  return failureOf(stageOf(progress), 'not_selected', detail)
}

export function closeChanges(
  slot: Slot,
  outcome: SlotOutcome,
  ends: readonly CandidateEnd[],
  nowMs: number,
  failures: readonly WalletFailure[] = [],
): Change[] {
  const without = outcome.kind === 'reverted' ? 'reverted' : 'dropped'
  return [
    ...ends.flatMap((one) => endChanges(one, without, nowMs)),
    {
      ...{ kind: 'slot.closed', slotId: slot.id, outcome },
      ...(failures.length > 0 && { failures }),
    },
  ]
}

function endChanges(
  { candidate, end }: CandidateEnd,
  without: 'reverted' | 'dropped',
  nowMs: number,
): Change[] {
  const { progress } = candidate
  if (progress.status === 'executed') {
    // Versions up to 0.2 could count an execution before it was final; the only way from there leads
    // through selected (contract §5).
    const back = selected(progress, nowMs, {
      ...progress.submission,
      status: 'submitted',
      confirmedAtMs: null,
      indexedAtMs: null,
      proposalEventIndex: null,
    })
    const onward = endChanges({ candidate: { ...candidate, progress: back }, end }, without, nowMs)
    return [progressChange(candidate, back), ...onward]
  }
  if (end.kind === 'executed') return stepsToExecuted(candidate, nowMs, end.proposal)
  if (end.kind === 'again') return [progressChange(candidate, standsInAgain(progress, nowMs))]
  const before = submissionOf(progress)
  const submission = before && { ...before, status: without }
  return [progressChange(candidate, failed(progress, end.failure, submission))]
}
