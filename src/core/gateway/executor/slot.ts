/**
 * What to do about one executor nonce, decided from the stored slot and what the chain shows of it
 * (robustness §3). Pure: carrying it out is the executor's. The stored slot is the authority for
 * what was signed, the chain for what became of it.
 */
import type { ChainReceipt, Hex } from '#ports'
import type { Slot, SlotAttempt } from '../ledger/ledger.js'

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
 * - `replace`: same nonce and calldata, higher fees.
 * - `trim`: higher fees, without those that can only revert: one would sink all (domain §2.2).
 * - `cancel`: same nonce, to ourselves, so that later nonces go on.
 * - `record-executed`: final, while one that it does not carry waits for its deadline.
 * - `close-abandoned`: a former executor's slot, of which nothing can succeed any more.
 */
export type Action =
  | { readonly kind: 'wait'; readonly why: string; readonly stuck?: true }
  | { readonly kind: 'prepare' | 'close-taken' | 'close-abandoned' }
  | { readonly kind: 'cancel'; readonly attempt: SlotAttempt | undefined }
  | {
      readonly kind: 'send' | 'replace' | 'trim' | 'note-sent'
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
    return { kind: hopes === 'none' ? 'cancel' : 'trim', attempt: newest }
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
