/**
 * What to do about one executor nonce, decided from the stored slot and what the chain shows of it
 * (robustness §3), and the records of what happens to it and its candidates (contract §5). Pure:
 * carrying it out is the executor's. The stored slot is the authority for what was signed, the
 * chain for what became of it.
 */
import { findProposed } from '#chain/propose'
import type { ChainReceipt, Hex } from '#ports'
import type { Candidate, CandidateFailure, CandidateSubmission } from '#protocol/candidate'
import type { Change, Slot, SlotAttempt, SlotOutcome, WalletFailure } from '../ledger/ledger.js'
import type { RoundOutcome } from '../validation/contract-reads.js'
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

/** Transactions of one kind for a nonce at most: the first and five with higher fees (robustness §3). */
export const mostAttempts = 6

export interface ChainFacts {
  /** The executor's next nonce at the head and at the finalized block. */
  readonly nonceLatest: number
  readonly nonceFinalized: number
  /** Canonical receipts of the slot's attempts, by hash. */
  readonly receipts: ReadonlyMap<Hex, ChainReceipt>
  /** Attempts that the node holds without a receipt. */
  readonly held: ReadonlySet<Hex>
  /** False while the pipeline is switched off: what was sent is followed all the same. */
  readonly maySend: boolean
}

export interface SlotFacts extends ChainFacts {
  readonly finalizedNumber: bigint
  /** Of those that the newest attempt, else the slot, carries: can mining still execute them? */
  readonly hopes: 'all' | 'some' | 'none'
  /**
   * A candidate that no mined transaction carries is dead by its deadline at the head, and not yet
   * in finalized time.
   */
  readonly deadlineUnsettled: boolean
  readonly sendDue: boolean
  /** Pending for long enough, or refused for its fee, and a higher one is allowed. */
  readonly bumpDue: boolean
  readonly refitDue: boolean
  /** No node has ever taken the newest attempt, and they go on refusing it for what it is. */
  readonly renewDue: boolean
  /** All deadlines have passed in finalized time: what was signed can only revert. */
  readonly expired: boolean
  /** Whether this process holds the executor's key; stored bytes can be sent without it. */
  readonly maySign: boolean
}

/**
 * Where a slot stands. `reserved`: no transaction is signed. `pending`: as far as the chain shows
 * not mined. `taken`: the nonce is gone in finalized state, by no transaction of ours.
 */
type SlotState =
  | { readonly kind: 'reserved' | 'taken' }
  | { readonly kind: 'pending'; readonly newest: SlotAttempt }
  | { readonly kind: 'mined'; readonly attempt: SlotAttempt; readonly receipt: ChainReceipt }

/**
 * - `wait`: `stuck` where nothing that this program does will change it.
 * - `send`: the same raw bytes, again if need be.
 * - `replace`: same nonce and calldata, higher fees, without those that can only revert: one would
 *   sink all (domain §2.2).
 * - `cancel`: same nonce, to ourselves, so that later nonces go on.
 * - `record-executed`: final, while one that it does not carry waits for its deadline.
 * - `close-abandoned`: a former executor's slot, of which nothing can succeed any more.
 */
export type Action =
  | { readonly kind: 'wait'; readonly why: string; readonly stuck?: true }
  | { readonly kind: 'prepare' | 'close-taken' | 'close-abandoned' }
  | { readonly kind: 'cancel'; readonly attempt: SlotAttempt | undefined }
  | {
      readonly kind: 'send' | 'replace' | 'note-sent'
      readonly attempt: SlotAttempt
    }
  | MinedAction

export interface MinedAction {
  readonly kind: 'record-executed' | 'close-executed' | 'close-reverted' | 'close-cancelled'
  readonly attempt: SlotAttempt
  readonly receipt: ChainReceipt
}

const wait = (why: string): Action => ({ kind: 'wait', why })

/** Where the slot stands: receipts of *all* its hashes come first, nonces after (robustness §3). */
export function slotStateOf(
  slot: Slot,
  facts: Pick<ChainFacts, 'receipts' | 'nonceFinalized'>,
): SlotState {
  for (const attempt of slot.attempts) {
    const receipt = facts.receipts.get(attempt.hash)
    if (receipt) return { kind: 'mined', attempt, receipt }
  }
  if (facts.nonceFinalized > slot.nonce) return { kind: 'taken' }
  const newest = slot.attempts.at(-1)
  return newest ? { kind: 'pending', newest } : { kind: 'reserved' }
}

/** The next action. Never a second nonce: whatever is sent carries the slot's own (R3). */
export function next(slot: Slot, facts: SlotFacts): Action {
  const state = slotStateOf(slot, facts)
  switch (state.kind) {
    case 'reserved':
      return afterReserved(facts)
    case 'pending':
      return afterPending(slot, state.newest, facts)
    case 'mined':
      return afterMined(slot, state, facts)
    case 'taken':
      return { kind: 'close-taken' }
  }
}

function afterReserved({ maySign, maySend, hopes }: SlotFacts): Action {
  if (!maySign) return { kind: 'close-abandoned' }
  if (!maySend) return wait('the executor may not sign')
  return hopes === 'none' ? { kind: 'cancel', attempt: undefined } : { kind: 'prepare' }
}

/**
 * What there is to say of a slot whose fee was raised more than once. One raise may come too late
 * for a price that rises; that a second one was needed says that it is not the fee alone.
 */
export function stuckWhy({ nonce, attempts }: Slot) {
  const newest = attempts.at(-1)
  const signed = attempts.filter(({ kind }) => kind === newest?.kind).length
  if (signed < 3) return undefined
  const raised = signed < mostAttempts ? `${signed - 1} times` : 'as often as allowed'
  return `the transaction of nonce ${nonce} is not mined, though its fee was raised ${raised}: it may be too low for this chain, or a lower nonce is missing`
}

function afterPending(slot: Slot, newest: SlotAttempt, facts: SlotFacts): Action {
  // Used at the head by something, maybe by us with a receipt that lags: only finalized state
  // decides (R15).
  if (facts.nonceLatest > slot.nonce) return wait('the nonce is used in a block that is not final')
  const isHeld = facts.held.has(newest.hash)
  if (isHeld && newest.sentAtMs === null) return { kind: 'note-sent', attempt: newest }
  if (!facts.maySend) return wait('the executor may not send')
  const { hopes, maySign } = facts
  const isProposal = newest.kind === 'propose'
  if (maySign && isProposal && hopes !== 'all')
    return { kind: hopes === 'none' ? 'cancel' : 'replace', attempt: newest }
  const signed = slot.attempts.filter(({ kind }) => kind === newest.kind).length
  // No fee helps: a part of what it carries, under the same nonce.
  if (maySign && isProposal && facts.refitDue && !isHeld)
    return signed < mostAttempts ? { kind: 'prepare' } : { kind: 'cancel', attempt: undefined }
  if (maySign && facts.bumpDue && signed < mostAttempts)
    return { kind: isProposal ? 'replace' : 'cancel', attempt: newest }
  const stuck = maySign ? stuckWhy(slot) : undefined
  if (isHeld && stuck !== undefined) return { kind: 'wait', why: stuck, stuck: true }
  if (isHeld) return wait('the transaction is pending')
  if (!maySign && facts.expired) return { kind: 'close-abandoned' }
  if (maySign && facts.renewDue && newest.sentAtMs === null)
    return isProposal && signed < mostAttempts
      ? { kind: 'prepare' }
      : { kind: 'cancel', attempt: undefined }
  if (hopes !== 'all' && isProposal) return wait('it could only revert')
  return facts.sendDue ? { kind: 'send', attempt: newest } : wait('the next sending is not due')
}

/** A receipt that is not final is waited for: nothing of it is recorded (R14). */
function afterMined(
  { minedIn }: Slot,
  { attempt, receipt }: Pick<MinedAction, 'attempt' | 'receipt'>,
  { finalizedNumber, deadlineUnsettled }: SlotFacts,
): Action {
  if (receipt.blockNumber > finalizedNumber)
    return attempt.sentAtMs === null
      ? { kind: 'note-sent', attempt }
      : wait('the transaction is mined and not final')
  if (attempt.kind === 'propose' && receipt.status === 'reverted')
    return { kind: 'close-reverted', attempt, receipt }
  const isCancel = attempt.kind === 'cancel'
  if (deadlineUnsettled && (isCancel || minedIn === receipt.blockHash))
    return wait('the deadline is not final yet')
  const kind = deadlineUnsettled
    ? 'record-executed'
    : isCancel
      ? 'close-cancelled'
      : 'close-executed'
  return { kind, attempt, receipt }
}

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
