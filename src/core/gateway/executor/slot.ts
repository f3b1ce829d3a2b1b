/**
 * What to do about one executor nonce, decided from the stored slot and what the chain shows of it
 * (robustness §3). Pure: carrying it out is the executor's. The stored slot is the authority for
 * what was signed, the chain for what became of it.
 */
import type { ChainReceipt, Hex } from '../../ports.js'
import type { Submission } from '../../protocol/candidate.js'
import type { Slot, SlotAttempt } from '../ledger/ledger.js'

/**
 * Transactions of one kind that are signed for a nonce at most: the first and five with higher fees
 * (robustness §3).
 */
export const mostAttempts = 6

/** The chain, and our patience with it, as one slot sees them. */
export interface SlotFacts {
  readonly headNumber: bigint
  readonly finalizedNumber: bigint
  /**
   * When a receipt counts as confirmed: at the `finalized` tag, or this many blocks deep, its own
   * counted.
   */
  readonly confirmations: 'finalized' | number
  /** The executor's next nonce at the head and at the finalized block. */
  readonly nonceLatest: number
  readonly nonceFinalized: number
  /** Canonical receipts of the slot's attempts, by hash. */
  readonly receipts: ReadonlyMap<Hex, ChainReceipt>
  /** Attempts that the node holds without a receipt. */
  readonly held: ReadonlySet<Hex>
  /**
   * What the ledger says of the submissions of those that the decisive attempt carries: the mined
   * one, else the newest. They move together; where a reorganisation has brought another attempt,
   * the least tells what is still to be done, the most what to take back.
   */
  readonly recorded: { readonly least: SubmissionState; readonly most: SubmissionState }
  /**
   * Candidates outside the mined attempt count as mined by what was recorded before a
   * reorganisation.
   */
  readonly strays: boolean
  /**
   * Of those that the newest attempt, or else the slot, carries: whether mining can still execute
   * them all, some or none.
   */
  readonly hopes: 'all' | 'some' | 'none'
  /**
   * A candidate that no mined transaction carries is dead by its deadline at the head, and not yet
   * in finalized time.
   */
  readonly deadlineUnsettled: boolean
  /** No attempt to send lately, or its pause is over. */
  readonly sendDue: boolean
  /** Pending for long enough, or refused for its fee, and a higher one is allowed. */
  readonly bumpDue: boolean
  /** No node has ever taken the newest attempt, and they go on refusing it for what it is. */
  readonly renewDue: boolean
  /**
   * The deadlines of all candidates have passed in finalized time: what was signed can only revert.
   */
  readonly expired: boolean
  /** False while the pipeline is switched off: what was sent is followed all the same. */
  readonly maySend: boolean
  /**
   * Whether this process holds the key of the slot's executor; stored bytes can be sent without it.
   */
  readonly maySign: boolean
}

export type SubmissionState = Submission['status'] | null

/** Where a slot stands. */
export type SlotState =
  /** A nonce without a signed transaction. */
  | { readonly kind: 'reserved' }
  /** Signed, and as far as the chain shows not mined. */
  | { readonly kind: 'pending'; readonly newest: SlotAttempt }
  | { readonly kind: 'mined'; readonly attempt: SlotAttempt; readonly receipt: ChainReceipt }
  /** The nonce is gone in finalized state, by no transaction of ours. */
  | { readonly kind: 'taken' }

export type Action =
  /** `stuck`: nothing that this program does will change it. */
  | { readonly kind: 'wait'; readonly why: string; readonly stuck?: true }
  | { readonly kind: 'prepare' }
  /** The same raw bytes, again if need be. */
  | { readonly kind: 'send'; readonly attempt: SlotAttempt }
  /** Same nonce and calldata, higher fees. */
  | { readonly kind: 'replace'; readonly attempt: SlotAttempt }
  /**
   * Same nonce, higher fees, without the candidates that can only revert: one of them would sink
   * all (domain §2.2).
   */
  | { readonly kind: 'trim'; readonly attempt: SlotAttempt }
  /** Same nonce, to ourselves, so that later nonces go on. */
  | { readonly kind: 'cancel'; readonly attempt: SlotAttempt | undefined }
  | { readonly kind: 'note-sent'; readonly attempt: SlotAttempt }
  | {
      readonly kind: 'note-reverted'
      readonly attempt: SlotAttempt
      readonly receipt: ChainReceipt
    }
  /** A receipt that was counted on is gone or too shallow again (R14). */
  | { readonly kind: 'retreat' }
  | { readonly kind: 'confirm'; readonly attempt: SlotAttempt; readonly receipt: ChainReceipt }
  | { readonly kind: 'index'; readonly attempt: SlotAttempt; readonly receipt: ChainReceipt }
  | { readonly kind: 'close-executed'; readonly attempt: SlotAttempt }
  | {
      readonly kind: 'close-reverted'
      readonly attempt: SlotAttempt
      readonly receipt: ChainReceipt
    }
  | {
      readonly kind: 'close-cancelled'
      readonly attempt: SlotAttempt
      readonly receipt: ChainReceipt
    }
  | { readonly kind: 'close-taken' }
  /** A former executor's slot, of which nothing can be mined with success any more. */
  | { readonly kind: 'close-abandoned' }

const wait = (why: string): Action => ({ kind: 'wait', why })

/** Where the slot stands: receipts of *all* its hashes come first, nonces after (robustness §3). */
export function stateOf(
  slot: Slot,
  facts: Pick<SlotFacts, 'receipts' | 'nonceFinalized'>,
): SlotState {
  for (const attempt of slot.attempts) {
    const receipt = facts.receipts.get(attempt.hash)
    if (receipt) return { kind: 'mined', attempt, receipt }
  }
  if (facts.nonceFinalized > slot.nonce) return { kind: 'taken' }
  const newest = slot.attempts.at(-1)
  return newest ? { kind: 'pending', newest } : { kind: 'reserved' }
}

/**
 * The next action for a slot. Never a second nonce: whatever is sent carries the slot's own (R3).
 */
export function next(slot: Slot, facts: SlotFacts): Action {
  const state = stateOf(slot, facts)
  switch (state.kind) {
    case 'reserved':
      return afterReserved(facts)
    case 'pending':
      return afterPending(slot, state.newest, facts)
    case 'mined':
      return afterMined(slot, state.attempt, state.receipt, facts)
    case 'taken':
      return { kind: 'close-taken' }
  }
}

function afterReserved(facts: SlotFacts): Action {
  if (!facts.maySign) return { kind: 'close-abandoned' }
  if (!facts.maySend) return wait('the executor may not sign')
  return facts.hopes === 'none' ? { kind: 'cancel', attempt: undefined } : { kind: 'prepare' }
}

/** Recorded states that rest on a receipt. */
const rests = (state: SubmissionState) =>
  state === 'confirmed' || state === 'indexed' || state === 'reverted'

function afterPending(slot: Slot, newest: SlotAttempt, facts: SlotFacts): Action {
  if (rests(facts.recorded.most) || facts.strays) return { kind: 'retreat' }
  // Used at the head by something, maybe by us with a receipt that lags: only finalized state
  // decides (R15).
  if (facts.nonceLatest > slot.nonce) return wait('the nonce is used in a block that is not final')
  const isHeld = facts.held.has(newest.hash)
  if (isHeld && newest.sentAtMs === null) return { kind: 'note-sent', attempt: newest }
  if (!facts.maySend) return wait('the executor may not send')
  const { hopes } = facts
  if (facts.maySign && newest.kind === 'propose' && hopes === 'none')
    return { kind: 'cancel', attempt: newest }
  if (facts.maySign && newest.kind === 'propose' && hopes === 'some')
    return { kind: 'trim', attempt: newest }
  const signed = slot.attempts.filter(({ kind }) => kind === newest.kind).length
  if (facts.maySign && facts.bumpDue && signed < mostAttempts) {
    return newest.kind === 'cancel'
      ? { kind: 'cancel', attempt: newest }
      : { kind: 'replace', attempt: newest }
  }
  if (isHeld && facts.bumpDue && facts.maySign) {
    return {
      kind: 'wait',
      why: `the transaction of nonce ${slot.nonce} is not mined, and its fee was raised as often as may be`,
      stuck: true,
    }
  }
  if (isHeld) return wait('the transaction is pending')
  if (!facts.maySign && facts.expired) return { kind: 'close-abandoned' }
  if (facts.maySign && facts.renewDue && newest.sentAtMs === null) {
    return newest.kind === 'cancel' || signed >= mostAttempts
      ? { kind: 'cancel', attempt: undefined }
      : { kind: 'prepare' }
  }
  if (hopes !== 'all' && newest.kind === 'propose') return wait('it could only revert')
  return facts.sendDue ? { kind: 'send', attempt: newest } : wait('the next sending is not due')
}

function afterMined(
  { minedIn }: Slot,
  attempt: SlotAttempt,
  receipt: ChainReceipt,
  facts: SlotFacts,
): Action {
  const isFinal = receipt.blockNumber <= facts.finalizedNumber
  const { least, most } = facts.recorded
  // Mined again in another block: everything on record of the one before goes back first (R14).
  const isElsewhere = minedIn !== undefined && minedIn !== receipt.blockHash && rests(most)
  if (facts.strays || isElsewhere) return { kind: 'retreat' }
  if (attempt.kind === 'cancel') {
    if (!isFinal) return wait('the cancellation is not final')
    return facts.deadlineUnsettled
      ? wait('the deadline is not final yet')
      : { kind: 'close-cancelled', attempt, receipt }
  }
  if (receipt.status === 'reverted') {
    if (isFinal) return { kind: 'close-reverted', attempt, receipt }
    return least === 'reverted'
      ? wait('the revert is not final')
      : { kind: 'note-reverted', attempt, receipt }
  }
  const depth = facts.headNumber - receipt.blockNumber + 1n
  const isDeep =
    isFinal || (facts.confirmations !== 'finalized' && depth >= BigInt(facts.confirmations))
  if (!isDeep && rests(most)) return { kind: 'retreat' }
  switch (least) {
    case 'indexed':
      if (!isFinal) return wait('the execution is not final')
      return facts.deadlineUnsettled
        ? wait('the deadline is not final yet')
        : { kind: 'close-executed', attempt }
    case 'confirmed':
      return { kind: 'index', attempt, receipt }
    case 'reverted':
    case 'submitted':
    case 'prepared':
    case 'dropped':
    case null:
      if (isDeep) return { kind: 'confirm', attempt, receipt }
      return attempt.sentAtMs === null
        ? { kind: 'note-sent', attempt }
        : wait('the receipt is not deep enough')
  }
}
