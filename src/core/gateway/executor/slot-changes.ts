/**
 * The durable records of what happens to a slot and the candidates it carries (contract §5,
 * robustness §3). Pure.
 */
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

const closed = (
  slot: Slot,
  kind: 'executed' | 'reverted' | 'cancelled' | 'foreign',
  hash: Hex | null,
): Change => ({
  kind: 'slot.closed',
  slotId: slot.id,
  outcome: { kind, hash },
})

const carries = (attempt: SlotAttempt, { id }: Candidate) => attempt.candidateIds.includes(id)

/**
 * A signed transaction, before it is sent. The first one of a slot makes the submissions of those
 * that it carries `prepared`; one that leaves candidates out makes theirs `dropped`. `candidates`:
 * the slot's.
 */
export function attemptChanges(
  slot: Slot,
  attempt: SlotAttempt,
  candidates: readonly Candidate[],
  nowMs: number,
): Change[] {
  const made: Change = { kind: 'slot.attempt', slotId: slot.id, attempt }
  if (attempt.kind === 'cancel') return [made]
  const steps = candidates.flatMap((candidate): Change[] => {
    const before = submissionOf(candidate.progress)
    if (!carries(attempt, candidate)) {
      if (before === null || before.status === 'dropped') return []
      return [
        progressChange(
          candidate,
          selected(candidate.progress, nowMs, { ...before, status: 'dropped' }),
        ),
      ]
    }
    return before === null
      ? [progressChange(candidate, selected(candidate.progress, nowMs, prepared(attempt.hash)))]
      : []
  })
  return [made, ...steps]
}

/**
 * A node took the transaction, or was seen to hold it. A cancellation says nothing new of
 * candidates.
 */
export function sentChanges(
  slot: Slot,
  attempt: SlotAttempt,
  candidates: readonly Candidate[],
  nowMs: number,
): Change[] {
  const changes: Change[] =
    attempt.sentAtMs === null
      ? [{ kind: 'slot.sent', slotId: slot.id, hash: attempt.hash, sentAtMs: nowMs }]
      : []
  for (const candidate of candidates) {
    if (!carries(attempt, candidate)) continue
    const before = submissionOf(candidate.progress)
    if (before?.status === 'submitted' && before.transactionHash === attempt.hash) continue
    changes.push(
      progressChange(
        candidate,
        selected(candidate.progress, nowMs, submitted(attempt.hash, before, nowMs)),
      ),
    )
  }
  return changes
}

function submitted(transactionHash: Hex, before: Submission | null, nowMs: number): Submission {
  return {
    ...prepared(transactionHash),
    status: 'submitted',
    submittedAtMs: before?.submittedAtMs ?? nowMs,
  }
}

/**
 * What was counted on is gone: those that rested on it go back to submitted, by the newest
 * transaction that carries them (R14).
 */
export function retreatChanges(
  slot: Slot,
  candidates: readonly Candidate[],
  nowMs: number,
): Change[] {
  return candidates.flatMap((candidate): Change[] => {
    const before = submissionOf(candidate.progress)
    const newest = slot.attempts.findLast((attempt) => carries(attempt, candidate))
    if (newest === undefined || before === null || !restsOnReceipt.has(before.status)) return []
    return [
      progressChange(
        candidate,
        selected(candidate.progress, nowMs, submitted(newest.hash, before, nowMs)),
      ),
    ]
  })
}
const restsOnReceipt: ReadonlySet<Submission['status']> = new Set([
  'confirmed',
  'indexed',
  'reverted',
])

/** A receipt on record: block, status and cost of what was mined. */
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
  ...(gasPriceWei === undefined ? {} : { gasPriceWei: String(gasPriceWei) }),
})

/** A receipt says reverted, and it is not final yet. */
export function revertedChanges(
  slot: Slot,
  receipt: ChainReceipt,
  carried: readonly Candidate[],
  nowMs: number,
): Change[] {
  const steps = carried.map((candidate) => {
    const submission = {
      ...submitted(receipt.transactionHash, submissionOf(candidate.progress), nowMs),
      status: 'reverted' as const,
    }
    return progressChange(candidate, selected(candidate.progress, nowMs, submission))
  })
  return [minedChange(slot, receipt), ...steps]
}

/** A receipt says success, deep enough. */
export function confirmedChanges(
  slot: Slot,
  receipt: ChainReceipt,
  carried: readonly Candidate[],
  nowMs: number,
): Change[] {
  const steps = carried.map((candidate) => {
    const before = submitted(receipt.transactionHash, submissionOf(candidate.progress), nowMs)
    return progressChange(
      candidate,
      selected(candidate.progress, nowMs, { ...before, status: 'confirmed', confirmedAtMs: nowMs }),
    )
  })
  return [minedChange(slot, receipt), ...steps]
}

/**
 * Matches each carried candidate to its ProposePrice: indexed and executed. A candidate without a
 * log in a final receipt ends in failure; before that it is left alone, because another block may
 * tell otherwise. `undefined` where nothing can be said yet.
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
    if (candidate.progress.status === 'executed') continue
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
      changes.push(
        progressChange(
          candidate,
          failed(candidate.progress, failureOf('indexing', 'execution_reverted', detail, false)),
        ),
      )
    } else {
      return undefined
    }
  }
  return changes
}

/**
 * The execution is final: the slot is closed, and the stand-ins of its rounds end with it; what the
 * transaction left out ends, or stands in again.
 */
export function closeExecutedChanges(
  slot: Slot,
  hash: Hex,
  leftOut: readonly Ending[],
  standIns: readonly Candidate[],
  nowMs: number,
): Change[] {
  return [
    ...leftOut.flatMap(({ candidate, end }) => endChanges(candidate, end, 'dropped', nowMs)),
    ...standIns.map((standIn) =>
      progressChange(standIn, failed(standIn.progress, notSelected(standIn))),
    ),
    closed(slot, 'executed', hash),
  ]
}

export type SlotEnd =
  | { readonly kind: 'failed'; readonly failure: Failure }
  | { readonly kind: 'executed'; readonly proposal: OwnProposal }
  | { readonly kind: 'again' }

/**
 * The nonce is gone in finalized state without our transaction's success; each candidate ends, or
 * stands in again.
 */
export function closeChanges(
  slot: Slot,
  outcome: { readonly kind: 'reverted' | 'cancelled' | 'foreign'; readonly hash: Hex | null },
  ends: readonly Ending[],
  nowMs: number,
): Change[] {
  const without = outcome.kind === 'reverted' ? 'reverted' : 'dropped'
  return [
    ...ends.flatMap(({ candidate, end }) => endChanges(candidate, end, without, nowMs)),
    closed(slot, outcome.kind, outcome.hash),
  ]
}

export interface Ending {
  readonly candidate: Candidate
  readonly end: SlotEnd
}

/** `without`: what becomes of the submission of one that fails. */
function endChanges(
  candidate: Candidate,
  end: SlotEnd,
  without: 'reverted' | 'dropped',
  nowMs: number,
): Change[] {
  const [progress, back] = leaveExecuted(candidate, nowMs)
  if (end.kind === 'executed')
    return [
      ...back,
      ...stepsToExecuted({ ...candidate, progress }, nowMs, adopted(end.proposal, nowMs)),
    ]
  if (end.kind === 'again')
    return [...back, progressChange(candidate, standsInAgain(progress, nowMs))]
  const before = submissionOf(progress)
  return [
    ...back,
    progressChange(
      candidate,
      failed(progress, end.failure, before && { ...before, status: without }),
    ),
  ]
}

/**
 * With a numeric depth an execution can be undone after it was counted; the only way from there
 * leads through selected (contract §5).
 */
function leaveExecuted(
  candidate: Candidate,
  nowMs: number,
): readonly [Progress, readonly Change[]] {
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

/**
 * The submission of a candidate whose proposal another transaction has put on chain, in finalized
 * state (domain §9).
 */
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
