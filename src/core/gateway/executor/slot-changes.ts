/** The durable records of what happens to a slot and the candidates it carries (contract §5, robustness §3). Pure. */
import { findProposed } from '../../chain/propose.js'
import type { ChainReceipt, Hex } from '../../ports.js'
import type { Candidate, Failure, Progress, Submission } from '../../protocol/candidate.js'
import type { Change, Slot, SlotAttempt } from '../ledger/ledger.js'
import {
  executed,
  failed,
  failureOf,
  prepared,
  progressChange,
  selected,
  standsInAgain,
  stepsToExecuted,
  submissionOf,
} from '../pipeline/progress.js'
import { notSelected, type OwnProposal } from '../pipeline/selection.js'

const closed = (slot: Slot, kind: 'executed' | 'reverted' | 'cancelled' | 'foreign', hash: Hex | null): Change => ({
  kind: 'slot.closed',
  slotId: slot.id,
  outcome: { kind, hash },
})

/** A signed transaction, before it is sent. The first one of a slot makes its candidates' submissions `prepared`. */
export function attemptChanges(slot: Slot, attempt: SlotAttempt, carried: readonly Candidate[], nowMs: number): Change[] {
  const first = attempt.kind === 'propose' && slot.attempts.length === 0
  const progress = first
    ? carried.map((candidate) => progressChange(candidate, selected(candidate.progress, nowMs, prepared(attempt.hash))))
    : []
  return [{ kind: 'slot.attempt', slotId: slot.id, attempt }, ...progress]
}

/** A node took the transaction, or was seen to hold it. A cancellation says nothing new of its candidates. */
export function sentChanges(slot: Slot, attempt: SlotAttempt, carried: readonly Candidate[], nowMs: number): Change[] {
  const changes: Change[] = attempt.sentAtMs === null ? [{ kind: 'slot.sent', slotId: slot.id, hash: attempt.hash, sentAtMs: nowMs }] : []
  if (attempt.kind === 'cancel') return changes
  for (const candidate of carried) {
    const before = submissionOf(candidate.progress)
    if (before?.status === 'submitted' && before.transactionHash === attempt.hash) continue
    changes.push(progressChange(candidate, selected(candidate.progress, nowMs, submitted(attempt.hash, before, nowMs))))
  }
  return changes
}

function submitted(transactionHash: Hex, before: Submission | null, nowMs: number): Submission {
  return { ...prepared(transactionHash), status: 'submitted', submittedAtMs: before?.submittedAtMs ?? nowMs }
}

/** What was counted on is gone: back to submitted (R14). */
export function retreatChanges(slot: Slot, carried: readonly Candidate[], nowMs: number): Change[] {
  const hash = slot.attempts.findLast(({ kind }) => kind === 'propose')?.hash
  if (hash === undefined) return []
  return carried.map((candidate) =>
    progressChange(candidate, selected(candidate.progress, nowMs, submitted(hash, submissionOf(candidate.progress), nowMs))),
  )
}

/** A receipt says reverted, and it is not final yet. */
export function revertedChanges(attempt: SlotAttempt, carried: readonly Candidate[], nowMs: number): Change[] {
  return carried.map((candidate) => {
    const submission = { ...submitted(attempt.hash, submissionOf(candidate.progress), nowMs), status: 'reverted' as const }
    return progressChange(candidate, selected(candidate.progress, nowMs, submission))
  })
}

/** A receipt says success, deep enough. */
export function confirmedChanges(attempt: SlotAttempt, carried: readonly Candidate[], nowMs: number): Change[] {
  return carried.map((candidate) => {
    const before = submitted(attempt.hash, submissionOf(candidate.progress), nowMs)
    return progressChange(candidate, selected(candidate.progress, nowMs, { ...before, status: 'confirmed', confirmedAtMs: nowMs }))
  })
}

/**
 * Matches each carried candidate to its ProposePrice: indexed and executed. A candidate without a log in a final receipt ends in failure;
 * before that it is left alone, because another block may tell otherwise. `undefined` where nothing can be said yet.
 */
export function indexedChanges(
  attempt: SlotAttempt,
  receipt: ChainReceipt,
  carried: readonly Candidate[],
  isFinal: boolean,
  nowMs: number,
): Change[] | undefined {
  const changes: Change[] = []
  for (const candidate of carried) {
    const found = findProposed(receipt.logs, candidate)
    if (found) {
      const before = submissionOf(candidate.progress)
      const submission: Submission = {
        ...(before ?? prepared(attempt.hash)),
        status: 'indexed',
        transactionHash: attempt.hash,
        indexedAtMs: nowMs,
        proposalEventIndex: found.log.logIndex,
      }
      changes.push(progressChange(candidate, executed(candidate.progress, nowMs, submission)))
    } else if (isFinal) {
      const detail = `The transaction ${attempt.hash} succeeded without a ProposePrice for this proposal.`
      changes.push(progressChange(candidate, failed(candidate.progress, failureOf('indexing', 'execution_reverted', detail, false))))
    } else {
      return undefined
    }
  }
  return changes
}

/**
 * The execution is final: the slot is closed, and the round's stand-ins end with it. An index that another block has changed since
 * (numeric depth, R14) is put right first.
 */
export function closeExecutedChanges(
  slot: Slot,
  attempt: SlotAttempt,
  receipt: ChainReceipt,
  carried: readonly Candidate[],
  standIns: readonly Candidate[],
  nowMs: number,
): Change[] {
  const changes: Change[] = []
  for (const candidate of carried) {
    const before = submissionOf(candidate.progress)
    const found = findProposed(receipt.logs, candidate)
    if (!found || !before || candidate.progress.status !== 'executed') continue
    if (before.transactionHash === attempt.hash && before.proposalEventIndex === found.log.logIndex) continue
    const submission = { ...before, transactionHash: attempt.hash, proposalEventIndex: found.log.logIndex }
    changes.push(progressChange(candidate, selected(candidate.progress, nowMs, { ...submission, status: 'confirmed' })))
    changes.push(progressChange(candidate, executed(candidate.progress, nowMs, submission)))
  }
  for (const standIn of standIns) changes.push(progressChange(standIn, failed(standIn.progress, notSelected(standIn))))
  changes.push(closed(slot, 'executed', attempt.hash))
  return changes
}

export type SlotEnd =
  | { readonly kind: 'failed'; readonly failure: Failure }
  | { readonly kind: 'executed'; readonly proposal: OwnProposal }
  | { readonly kind: 'again' }

/** The nonce is gone in finalized state without our transaction's success; each candidate ends, or stands in again. */
export function closeChanges(
  slot: Slot,
  outcome: { readonly kind: 'reverted' | 'cancelled' | 'foreign'; readonly hash: Hex | null },
  ends: readonly { readonly candidate: Candidate; readonly end: SlotEnd }[],
  nowMs: number,
): Change[] {
  const changes = ends.flatMap(({ candidate, end }): Change[] => {
    const [progress, back] = leaveExecuted(candidate, nowMs)
    if (end.kind === 'executed') return [...back, ...stepsToExecuted({ ...candidate, progress }, nowMs, adopted(end.proposal, nowMs))]
    if (end.kind === 'again') return [...back, progressChange(candidate, standsInAgain(progress, nowMs))]
    const before = submissionOf(progress)
    const submission = before && { ...before, status: outcome.kind === 'reverted' ? ('reverted' as const) : ('dropped' as const) }
    return [...back, progressChange(candidate, failed(progress, end.failure, submission))]
  })
  return [...changes, closed(slot, outcome.kind, outcome.hash)]
}

/** With a numeric depth an execution can be undone after it was counted; the only way from there leads through selected (contract §5). */
function leaveExecuted(candidate: Candidate, nowMs: number): readonly [Progress, readonly Change[]] {
  const { progress } = candidate
  if (progress.status !== 'executed') return [progress, []]
  const back = selected(progress, nowMs, {
    ...progress.submission,
    status: 'submitted',
    confirmedAtMs: null,
    indexedAtMs: null,
    proposalEventIndex: null,
  })
  return [back, [progressChange(candidate, back)]]
}

/** The submission of a candidate whose proposal another transaction has put on chain, in finalized state (domain §9). */
export function adopted(proposal: OwnProposal, nowMs: number): Submission {
  return {
    status: 'indexed',
    transactionHash: proposal.transactionHash,
    submittedAtMs: nowMs,
    confirmedAtMs: nowMs,
    indexedAtMs: nowMs,
    proposalEventIndex: proposal.logIndex,
  }
}
