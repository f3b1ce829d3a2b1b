/**
 * What to do about one executor nonce (robustness §3), and the records of it (contract §5). Pure:
 * the stored slot is the authority for what was signed, the chain for what became of it.
 */
import { findProposed } from '#chain/propose'
import type { ChainReceipt, Hex } from '#ports'
import type { Candidate, CandidateSubmission } from '#protocol/candidate'
import type { Change, Slot, SlotAttempt } from '../ledger/ledger.js'
import type { RoundOutcome } from '../validation/contract-reads.js'
import {
  executed,
  failed,
  failureOf,
  progressChange,
  selected,
  standsInAgain,
  stepsToExecuted,
  submissionOf,
} from '../validation/progress.js'

/** Of one kind a nonce: the first and five with higher fees (robustness §3). */
export const mostAttempts = 6

export interface ChainFacts {
  readonly nonceLatest: number
  readonly nonceFinalized: number
  readonly receipts: ReadonlyMap<Hex, ChainReceipt>
  readonly held: ReadonlySet<Hex>
  readonly maySend: boolean
}

export interface SlotFacts extends ChainFacts {
  readonly finalizedNumber: bigint
  /** Which that the newest attempt, else the slot, carries can still be executed. */
  readonly hopes: 'all' | 'some' | 'none'
  /** Of one that no mined transaction carries: passed, and not in final time. */
  readonly deadlineUnsettled: boolean
  readonly sendDue: boolean
  readonly bumpDue: boolean
  readonly refitDue: boolean
  readonly renewDue: boolean
  readonly expired: boolean
  readonly maySign: boolean
}

/**
 * - `cancel`: a transfer to ourselves, so that later nonces go on.
 * - `record-executed`: final, while one that it does not carry waits for its deadline.
 * - `close-abandoned`: a former executor's, of which nothing can succeed any more.
 */
export type Action =
  /** `why`: nothing that this program does will change it. */
  | { readonly kind: 'wait'; readonly why?: string | undefined }
  | { readonly kind: 'prepare' | 'close-taken' | 'close-abandoned' }
  | { readonly kind: 'cancel'; readonly attempt?: SlotAttempt }
  | { readonly kind: 'send' | 'replace' | 'note-sent'; readonly attempt: SlotAttempt }
  | (Mined & {
      readonly kind: 'record-executed' | 'close-executed' | 'close-reverted' | 'close-cancelled'
    })

export interface Mined {
  readonly attempt: SlotAttempt
  readonly receipt: ChainReceipt
}

const wait: Action = { kind: 'wait' }

export const minedOf = (
  { attempts }: Slot,
  { receipts }: Pick<ChainFacts, 'receipts'>,
): Mined | undefined =>
  attempts.flatMap((attempt) => {
    const receipt = receipts.get(attempt.hash)
    return receipt ? [{ attempt, receipt }] : []
  })[0]

/**
 * Never a second nonce: whatever is sent carries the slot's own (R3). Receipts of *all* its hashes
 * come first, nonces after (robustness §3).
 */
export function next(slot: Slot, facts: SlotFacts): Action {
  const mined = minedOf(slot, facts)
  const newest = slot.attempts.at(-1)
  if (mined) return afterMined(slot, mined, facts)
  if (facts.nonceFinalized > slot.nonce) return { kind: 'close-taken' }
  return newest ? afterPending(slot, newest, facts) : afterReserved(facts)
}

function afterReserved({ maySign, maySend, hopes }: SlotFacts): Action {
  if (!maySign) return { kind: 'close-abandoned' }
  if (!maySend) return wait
  return { kind: hopes === 'none' ? 'cancel' : 'prepare' }
}

/** One raise may come too late for a price that rises; a second says it is not the fee alone. */
export function stuckWhy({ nonce, attempts }: Slot) {
  const newest = attempts.at(-1)
  const signed = attempts.filter(({ kind }) => kind === newest?.kind).length
  if (signed < 3) return undefined
  const raised = signed < mostAttempts ? `${signed - 1} times` : 'as often as allowed'
  return `the transaction of nonce ${nonce} is not mined, though its fee was raised ${raised}: it may be too low for this chain, or a lower nonce is missing`
}

function afterPending(slot: Slot, newest: SlotAttempt, facts: SlotFacts): Action {
  const { hopes, maySign } = facts
  // Maybe by us, with a receipt that lags: only finalized state decides (R15).
  if (facts.nonceLatest > slot.nonce) return wait
  const isHeld = facts.held.has(newest.hash)
  if (isHeld && newest.sentAtMs === null) return { kind: 'note-sent', attempt: newest }
  if (!facts.maySend) return wait
  const isProposal = newest.kind === 'propose'
  const isSunk = isProposal && hopes !== 'all'
  const signed = slot.attempts.filter(({ kind }) => kind === newest.kind).length
  const anew: Action = { kind: isProposal && signed < mostAttempts ? 'prepare' : 'cancel' }
  if (maySign && isSunk) return { kind: hopes === 'none' ? 'cancel' : 'replace', attempt: newest }
  if (maySign && isProposal && facts.refitDue && !isHeld) return anew
  if (maySign && facts.bumpDue && signed < mostAttempts)
    return { kind: isProposal ? 'replace' : 'cancel', attempt: newest }
  if (isHeld) return { kind: 'wait', why: maySign ? stuckWhy(slot) : undefined }
  if (!maySign && facts.expired) return { kind: 'close-abandoned' }
  if (maySign && facts.renewDue && newest.sentAtMs === null) return anew
  return facts.sendDue && !isSunk ? { kind: 'send', attempt: newest } : wait
}

/** A receipt that is not final is waited for: nothing of it is recorded (R14). */
function afterMined(
  { minedIn }: Slot,
  mined: Mined,
  { finalizedNumber, deadlineUnsettled }: SlotFacts,
): Action {
  const { attempt, receipt } = mined
  if (receipt.blockNumber > finalizedNumber)
    return attempt.sentAtMs === null ? { kind: 'note-sent', attempt } : wait
  const isCancel = attempt.kind === 'cancel'
  if (!isCancel && receipt.status === 'reverted') return { ...mined, kind: 'close-reverted' }
  if (!deadlineUnsettled) return { ...mined, kind: isCancel ? 'close-cancelled' : 'close-executed' }
  const isRecorded = isCancel || minedIn === receipt.blockHash
  return isRecorded ? wait : { ...mined, kind: 'record-executed' }
}

export const carries = (attempt: SlotAttempt, { id }: Candidate) =>
  attempt.candidateIds.includes(id)

const submissionChange = (
  candidate: Candidate,
  nowMs: number,
  submission: CandidateSubmission,
): Change => progressChange(candidate, selected(candidate.progress, nowMs, submission))

const prepared = (transactionHash: Hex | null): CandidateSubmission => ({
  status: 'prepared',
  transactionHash,
  submittedAtMs: null,
  confirmedAtMs: null,
  indexedAtMs: null,
  proposalEventIndex: null,
})

const submitted = (
  hash: Hex | null,
  { progress }: Candidate,
  nowMs: number,
): CandidateSubmission => ({
  ...prepared(hash),
  status: 'submitted',
  submittedAtMs: submissionOf(progress)?.submittedAtMs ?? nowMs,
})

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
    const isCarried = carries(attempt, candidate)
    if (before === null)
      return isCarried ? [submissionChange(candidate, nowMs, prepared(attempt.hash))] : []
    return isCarried || before.status === 'dropped'
      ? []
      : [submissionChange(candidate, nowMs, { ...before, status: 'dropped' })]
  })
  return [made, ...steps]
}

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
  ...{ kind: 'slot.mined', slotId: slot.id, hash, blockNumber: String(blockNumber) },
  ...{ blockHash, status, gasUsed: String(gasUsed) },
  ...(gasPriceWei !== undefined && { gasPriceWei: String(gasPriceWei) }),
})

export function executedChanges(
  { transactionHash: hash, logs }: ChainReceipt,
  carried: readonly Candidate[],
  nowMs: number,
  isOnRecord: boolean,
): Change[] {
  return carried.flatMap((candidate) => {
    const { progress } = candidate
    if (isOnRecord && progress.status === 'executed') return []
    const confirmed: CandidateSubmission = {
      ...submitted(hash, candidate, nowMs),
      status: 'confirmed',
      confirmedAtMs: (isOnRecord && submissionOf(progress)?.confirmedAtMs) || nowMs,
    }
    const found = findProposed(logs, candidate)
    const detail = `The transaction ${hash} succeeded without a ProposePrice for this proposal.`
    const end = found
      ? executed(progress, nowMs, {
          ...{ ...confirmed, status: 'indexed', indexedAtMs: nowMs },
          proposalEventIndex: found.log.logIndex,
        })
      : failed(
          selected(progress, nowMs, confirmed),
          failureOf('indexing', 'execution_reverted', detail),
        )
    return [submissionChange(candidate, nowMs, confirmed), progressChange(candidate, end)]
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

export function endChanges(
  { candidate, end }: CandidateEnd,
  without: 'reverted' | 'dropped',
  nowMs: number,
): Change[] {
  const { progress } = candidate
  if (progress.status === 'executed') {
    // Versions up to 0.2 could count it before it was final; the way back is through selected.
    const { transactionHash } = progress.submission
    const back = selected(progress, nowMs, submitted(transactionHash, candidate, nowMs))
    const onward = endChanges({ candidate: { ...candidate, progress: back }, end }, without, nowMs)
    return [progressChange(candidate, back), ...onward]
  }
  if (end.kind === 'executed') return stepsToExecuted(candidate, nowMs, end.proposal)
  if (end.kind === 'again') return [progressChange(candidate, standsInAgain(progress, nowMs))]
  const before = submissionOf(progress)
  const submission = before && { ...before, status: without }
  return [progressChange(candidate, failed(progress, end.failure, submission))]
}
