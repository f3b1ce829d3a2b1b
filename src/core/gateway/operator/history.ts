/**
 * What the records of a store say of one candidate, in the order in which it was written: the
 * material of an explanation. Fed with every record of the log; holds those that are about the
 * candidate only.
 */
import type { Hex } from '../../ports.js'
import {
  type Candidate,
  failures,
  type Progress,
  type Submission,
} from '../../protocol/candidate.js'
import type { StoredRecord } from '../../storage/record-log.js'
import type { CandidateCheck, Slot, SlotAttempt } from '../ledger/ledger.js'
import { toldBy } from '../ledger/past.js'
import type { LedgerRecord } from '../ledger/state.js'
import { submissionOf } from '../validation/progress.js'

/**
 * A transaction of a slot as it may be shown: no raw bytes (R5). Fees in wei as decimal strings.
 */
export type ShownAttempt = Omit<SlotAttempt, 'raw' | 'sentAtMs' | 'preparedAtMs'>

/**
 * What a signed transaction is beside those before it under its nonce: a trim leaves candidates out
 * that could only revert, `anew` is made afresh in place of one that no node has taken.
 */
export type SignedAs = 'first' | 'fee_bump' | 'trim' | 'anew' | 'cancel'

/**
 * One thing that happened. Times in Unix milliseconds; `undefined` where a compaction has dropped
 * it.
 */
export type HistoryEvent = { readonly atMs: number | undefined } & (
  | {
      readonly kind:
        | 'received'
        | 'validated'
        | 'selected'
        | 'put_back'
        | 'stands_in_again'
        | 'made_room'
        | 'compacted'
    }
  | { readonly kind: 'checked'; readonly check: CandidateCheck }
  | {
      readonly kind: 'nonce_reserved'
      readonly executor: Hex
      readonly nonce: number
      readonly others: readonly string[]
    }
  | {
      readonly kind: 'signed'
      readonly nonce: number
      readonly attempt: ShownAttempt
      readonly others: readonly string[]
      readonly turn: number
      readonly as: SignedAs
      /** Those that the transaction before it carried and this one does not. */
      readonly leftOut: readonly string[]
    }
  | { readonly kind: 'sent'; readonly hash: Hex }
  | {
      readonly kind: 'mined'
      readonly hash: Hex
      readonly transaction: SlotAttempt['kind']
      readonly blockNumber: string
      readonly blockHash: Hex
      readonly status: 'success' | 'reverted'
      readonly gasUsed: string
      readonly gasPriceWei: string | undefined
      readonly carried: number
    }
  | {
      readonly kind: 'confirmed' | 'reverted' | 'left_out' | 'submitted'
      readonly hash: Hex | null
    }
  /** A reorganisation took back what had been counted on (R14). */
  | { readonly kind: 'fell_back'; readonly from: string; readonly hash: Hex | null }
  | { readonly kind: 'indexed'; readonly hash: Hex | null; readonly eventIndex: number | null }
  | {
      readonly kind: 'nonce_settled'
      readonly nonce: number
      readonly outcome: string
      readonly hash: Hex | null
    }
  | {
      readonly kind: 'failed' | 'rejected'
      readonly failure: Extract<Progress, { status: 'failed' }>['failure']
      readonly nextAction: string
    }
  | {
      readonly kind: 'wallet_allowed' | 'wallet_disallowed' | 'question_set' | 'question_removed'
      readonly reason: string
    }
  | { readonly kind: 'store_repaired'; readonly reason: string; readonly lostBytes: number }
)

export interface History {
  onRecord(record: StoredRecord): void
  /**
   * The candidate as its newest record tells it; `undefined` where the store has none of this id.
   */
  readonly candidate: Candidate | undefined
  readonly events: readonly HistoryEvent[]
  /** The newest check of it. */
  readonly check: CandidateCheck | undefined
}

type SlotFacts = Pick<Slot, 'nonce' | 'executor' | 'candidateIds'> & {
  readonly attempts: Map<Hex, KnownAttempt>
}
type KnownAttempt = ShownAttempt & { sent: boolean }

type Compared = Pick<SlotAttempt, 'kind' | 'candidateIds' | 'maxFeePerGas'>

/**
 * What a transaction is, by the one that was signed before it under its nonce. Source: robustness
 * §3.
 */
export function signedAs(
  attempt: Compared,
  before: (Compared & { readonly sent: boolean }) | undefined,
): SignedAs {
  if (attempt.kind === 'cancel') return 'cancel'
  if (before === undefined) return 'first'
  if (attempt.candidateIds.length < before.candidateIds.length) return 'trim'
  const isDearer = BigInt(attempt.maxFeePerGas) > BigInt(before.maxFeePerGas)
  return before.sent || isDearer ? 'fee_bump' : 'anew'
}

/** Source: contract §5, robustness §3, R14, R24. */
export function createHistory(id: string): History {
  let candidate: Candidate | undefined
  let check: CandidateCheck | undefined
  let isFolded = false
  let steps = 0
  const events: HistoryEvent[] = []
  const slots = new Map<string, SlotFacts>()

  const add = (event: HistoryEvent) => {
    events.push(event)
  }
  const others = (ids: readonly string[]) => ids.filter((one) => one !== id)

  const step = (atMs: number, next: Progress) => {
    if (candidate === undefined) return
    steps += 1
    // What follows a fold tells its own beginning: the fold stands at the end of it.
    const before: Progress = isFolded && steps === 1 ? { status: 'received' } : lastProgress
    lastProgress = next
    const found = eventOf(before, next)
    // Without a nonce of its own it has only let another one of its round go first.
    const neverBound =
      before.status === 'selected' && before.submission === null && slots.size === 0
    const event: Step | undefined =
      found?.kind === 'stands_in_again' && neverBound ? { kind: 'made_room' } : found
    if (event) add({ atMs, ...event })
    if (!isFolded) candidate = { ...candidate, progress: next }
  }
  let lastProgress: Progress = { status: 'received' }

  const onSlot = (atMs: number, event: Extract<LedgerRecord, { slotId: string }>) => {
    const slot = slots.get(event.slotId)
    if (slot === undefined) return
    switch (event.kind) {
      case 'slot.attempt': {
        const { raw: _raw, sentAtMs: _sent, preparedAtMs: _prepared, ...attempt } = event.attempt
        const before = [...slot.attempts.values()].at(-1)
        const leftOut =
          attempt.kind === 'cancel'
            ? []
            : (before?.candidateIds ?? []).filter((one) => !attempt.candidateIds.includes(one))
        slot.attempts.set(attempt.hash, { ...attempt, sent: false })
        const turn = slot.attempts.size
        const as = signedAs(attempt, before)
        add({
          atMs,
          kind: 'signed',
          nonce: slot.nonce,
          attempt,
          others: others(attempt.candidateIds),
          turn,
          as,
          leftOut,
        })
        return
      }
      case 'slot.sent': {
        const attempt = slot.attempts.get(event.hash)
        if (attempt) attempt.sent = true
        add({ atMs, kind: 'sent', hash: event.hash })
        return
      }
      case 'slot.mined': {
        const { kind: _kind, slotId: _slot, gasPriceWei, ...facts } = event
        const { kind: transaction = 'propose', candidateIds = [] } =
          slot.attempts.get(event.hash) ?? {}
        add({
          atMs,
          kind: 'mined',
          ...facts,
          transaction,
          gasPriceWei,
          carried: Math.max(1, candidateIds.length),
        })
        return
      }
      case 'slot.closed':
        slots.delete(event.slotId)
        add({
          atMs,
          kind: 'nonce_settled',
          nonce: slot.nonce,
          outcome: event.outcome.kind,
          hash: event.outcome.hash,
        })
    }
  }

  const onOther = (atMs: number, event: LedgerRecord) => {
    // Behind a fold stands also what was decided before the candidate came.
    if (candidate === undefined || atMs < candidate.receivedAtMs) return
    if (
      event.kind === 'allowlist.set' &&
      event.address === candidate.proposer &&
      event.folded !== true
    )
      add({
        atMs,
        kind: event.allowed ? 'wallet_allowed' : 'wallet_disallowed',
        reason: event.reason,
      })
    else if (
      event.kind === 'question.set' &&
      event.entry.questionId === candidate.round.questionId &&
      event.folded !== true
    )
      add({ atMs, kind: 'question_set', reason: event.reason })
    else if (
      event.kind === 'question.removed' &&
      event.questionId === candidate.round.questionId &&
      event.folded !== true
    )
      add({ atMs, kind: 'question_removed', reason: event.reason })
    else if (event.kind === 'store.repaired')
      add({ atMs, kind: 'store_repaired', reason: event.reason, lostBytes: event.lostBytes })
  }

  return {
    onRecord(record) {
      const { atMs, event } = toldBy(record)
      if (event.kind === 'candidate.received') {
        if (event.candidate.id !== id) return
        candidate = { ...event.candidate, progress: { status: 'received' } }
        add({ atMs: event.candidate.receivedAtMs, kind: 'received' })
      } else if (event.kind === 'candidate.whole') {
        if (event.candidate.id !== id) return
        if (event.folded === true) {
          candidate = event.candidate
          isFolded = true
          add({ atMs: event.candidate.receivedAtMs, kind: 'received' })
        } else step(atMs, event.candidate.progress)
      } else if (event.kind === 'candidate.progress') {
        if (event.id === id) step(atMs, event.progress)
      } else if (event.kind === 'candidate.checked') {
        if (event.id !== id) return
        check = event.check
        // Written in one commit with what follows from it, behind it; told before it.
        const last = events.at(-1)
        const follows =
          last?.kind === 'validated' && event.check.verdict === 'valid' ? events.pop() : undefined
        add({ atMs, kind: 'checked', check })
        if (follows) add(follows)
      } else if (event.kind === 'slot.opened') {
        const { slot } = event
        if (!slot.candidateIds.includes(id)) return
        slots.set(slot.id, { ...slot, attempts: slots.get(slot.id)?.attempts ?? new Map() })
        // What an open slot was folded from is told as past.
        if (event.folded === true) return
        add({
          atMs,
          kind: 'nonce_reserved',
          executor: slot.executor,
          nonce: slot.nonce,
          others: others(slot.candidateIds),
        })
      } else if ('slotId' in event) onSlot(atMs, event)
      else onOther(atMs, event)
    },
    get candidate() {
      if (candidate === undefined || !isFolded || steps === 0) return candidate
      return { ...candidate, progress: lastProgress }
    },
    get events() {
      // Nothing but the fold is left of its steps.
      if (isFolded && steps === 0 && candidate && candidate.progress.status !== 'received') {
        const [received, ...rest] = events
        return [...(received ? [received] : []), ...foldedEvents(candidate.progress), ...rest]
      }
      return events
    },
    get check() {
      return check
    },
  }
}

type Step = HistoryEvent extends infer Each
  ? Each extends HistoryEvent
    ? Omit<Each, 'atMs'>
    : never
  : never

const restsOnReceipt: ReadonlySet<Submission['status']> = new Set([
  'confirmed',
  'indexed',
  'reverted',
])

/** What a step from one progress to the next says that no record of its slot says better. */
function eventOf(before: Progress, next: Progress): Step | undefined {
  switch (next.status) {
    case 'received':
      return { kind: 'put_back' }
    case 'validated':
      return { kind: before.status === 'received' ? 'validated' : 'stands_in_again' }
    case 'selected':
      return selectedEvent(before, next.submission)
    case 'executed':
      return {
        kind: 'indexed',
        hash: next.submission.transactionHash,
        eventIndex: next.submission.proposalEventIndex,
      }
    case 'failed': {
      const { failure } = next
      const kind = failure.code === 'operator_rejected' ? 'rejected' : 'failed'
      return { kind, failure, nextAction: failures[failure.code].nextAction }
    }
  }
}

function selectedEvent(before: Progress, submission: Submission | null): Step | undefined {
  if (submission === null) return { kind: 'selected' }
  const was = submissionOf(before)?.status
  const hash = submission.transactionHash
  switch (submission.status) {
    case 'confirmed':
      // An index that another block has changed is put right by way of it.
      return before.status === 'executed' ? undefined : { kind: 'confirmed', hash }
    case 'reverted':
      return { kind: 'reverted', hash }
    case 'dropped':
      return { kind: 'left_out', hash }
    case 'submitted':
      if (was === undefined || !restsOnReceipt.has(was)) return undefined
      return { kind: 'fell_back', from: before.status === 'executed' ? 'executed' : was, hash }
    case 'prepared':
    case 'indexed':
      return undefined
  }
}

/** The steps that a progress still tells of, without what lay between them. */
function foldedEvents(progress: Progress): HistoryEvent[] {
  const found: HistoryEvent[] = [{ atMs: undefined, kind: 'compacted' }]
  const add = (atMs: number | null | undefined, event: Step) => {
    if (atMs !== null && atMs !== undefined) found.push({ atMs, ...event })
  }
  if ('validatedAtMs' in progress) add(progress.validatedAtMs, { kind: 'validated' })
  if ('selectedAtMs' in progress) add(progress.selectedAtMs, { kind: 'selected' })
  const submission = submissionOf(progress)
  const hash = submission?.transactionHash ?? null
  add(submission?.submittedAtMs, { kind: 'submitted', hash })
  add(submission?.confirmedAtMs, { kind: 'confirmed', hash })
  add(submission?.indexedAtMs, {
    kind: 'indexed',
    hash,
    eventIndex: submission?.proposalEventIndex ?? null,
  })
  if (progress.status === 'failed') {
    const step = eventOf({ status: 'received' }, progress)
    if (step) found.push({ atMs: undefined, ...step })
  }
  return found
}
