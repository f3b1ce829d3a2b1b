/** What the records of a store say of one candidate. Fed with every record of the log. */
import type { Candidate, CandidateSubmission, Progress } from '#protocol/candidate'
import { failures } from '#protocol/codes'
import type { SignedAs } from '#protocol/vitals'
import type { StoredRecord } from '#storage/record-log'
import { datedRecord } from '../ledger/compaction.js'
import {
  attemptOf,
  type CandidateCheck,
  type Decided,
  foldSlot,
  isSlotChange,
  type MinedReceipt,
  type OpenSlots,
  type Slot,
  type SlotAttempt,
  type SlotChange,
  signedAs,
} from '../ledger/ledger.js'
import type { LedgerRecord } from '../ledger/state.js'
import { submissionOf, timesIn } from '../validation/progress.js'

/** No raw bytes (R5). */
type ShownAttempt = Omit<SlotAttempt, 'raw' | 'sentAtMs' | 'preparedAtMs'>

type Hash = SlotAttempt['hash']

type DecisionKind = 'wallet_allowed' | 'wallet_disallowed' | 'question_set' | 'question_removed'

type Happening = Readonly<
  | {
      kind:
        | 'received'
        | 'validated'
        | 'selected'
        | 'put_back'
        | 'stands_in_again'
        | 'made_room'
        | 'compacted'
    }
  | { kind: 'checked'; check: CandidateCheck }
  | {
      kind: 'nonce_reserved'
      executor: Slot['executor']
      nonce: number
      others: readonly string[]
    }
  | {
      kind: 'signed'
      nonce: number
      attempt: ShownAttempt
      others: readonly string[]
      turn: number
      as: SignedAs
      leftOut: readonly string[]
    }
  | { kind: 'sent'; hash: Hash }
  | ({ kind: 'mined'; transaction: SlotAttempt['kind']; carried: number } & MinedReceipt)
  | { kind: 'confirmed' | 'reverted' | 'left_out' | 'submitted'; hash: Hash | null }
  | { kind: 'fell_back'; from: string; hash: Hash | null }
  | { kind: 'indexed'; hash: Hash | null; eventIndex: number | null }
  | { kind: 'nonce_settled'; nonce: number; outcome: string; hash: Hash | null }
  | {
      kind: 'failed' | 'rejected'
      failure: Extract<Progress, { status: 'failed' }>['failure']
      nextAction: string
      by?: string | undefined
    }
  | ({ kind: DecisionKind } & Decided)
  | ({ kind: 'store_repaired'; lostBytes: number } & Decided)
>

/** Unix milliseconds; `undefined` where a compaction has dropped it. */
export type TimelineEvent = { readonly atMs: number | undefined } & Happening

export type Timeline = ReturnType<typeof createTimeline>

type Reading = ReturnType<typeof newReading>

const newReading = (id: string) => ({
  id,
  events: [] as TimelineEvent[],
  slots: new Map() as OpenSlots,
  candidate: undefined as Candidate | undefined,
  check: undefined as CandidateCheck | undefined,
  isFolded: false,
  steps: 0,
  progress: { status: 'received' } as Progress,
})

export function createTimeline(id: string) {
  const reading = newReading(id)
  return {
    onRecord(record: StoredRecord) {
      const { atMs, event } = datedRecord(record)
      if (isSlotChange(event)) readSlot(reading, atMs, event)
      else if (event.kind.startsWith('candidate.')) readCandidate(reading, atMs, event)
      else readDecision(reading, atMs, event)
    },
    get candidate(): Candidate | undefined {
      const { candidate, isFolded, steps, progress } = reading
      return candidate && isFolded && steps > 0 ? { ...candidate, progress } : candidate
    },
    get events(): readonly TimelineEvent[] {
      const { candidate, isFolded, steps, events } = reading
      // Nothing but the fold is left of its steps.
      if (!isFolded || steps > 0 || !candidate || candidate.progress.status === 'received')
        return events
      const compacted = { atMs: undefined, kind: 'compacted' } as const
      const [received, ...rest] = events
      return [
        ...(received ? [received] : []),
        compacted,
        ...progressEvents(candidate.progress),
        ...rest,
      ]
    },
    get check() {
      return reading.check
    },
  }
}

function readCandidate(reading: Reading, atMs: number, event: LedgerRecord) {
  const { id, events } = reading
  if (event.kind === 'candidate.received' || event.kind === 'candidate.whole') {
    const { candidate } = event
    if (candidate.id !== id) return
    const isFold = event.kind === 'candidate.whole' && event.folded === true
    if (event.kind === 'candidate.whole' && !isFold) {
      step(reading, atMs, event.candidate.progress)
      return
    }
    reading.candidate = { progress: { status: 'received' }, ...candidate }
    reading.isFolded ||= isFold
    events.push({ atMs: candidate.receivedAtMs, kind: 'received' })
  } else if (event.kind === 'candidate.progress') {
    if (event.id === id) step(reading, atMs, event.progress, event.by)
  } else if (event.kind === 'candidate.checked' && event.id === id) {
    const { check } = event
    reading.check = check
    // Written in one commit behind what follows from it; shown before it.
    const isCause = events.at(-1)?.kind === 'validated' && check.verdict === 'valid'
    events.splice(isCause ? -1 : events.length, 0, { atMs, kind: 'checked', check })
  }
}

function step(reading: Reading, atMs: number, next: Progress, by?: string) {
  const { candidate, isFolded } = reading
  if (candidate === undefined) return
  reading.steps += 1
  const before: Progress =
    isFolded && reading.steps === 1 ? { status: 'received' } : reading.progress
  reading.progress = next
  const found = happeningOf(before, next)
  // Without a nonce of its own it has only let another one go first.
  const wasUnbound =
    before.status === 'selected' && before.submission === null && reading.slots.size === 0
  if (found?.kind === 'stands_in_again' && wasUnbound)
    reading.events.push({ atMs, kind: 'made_room' })
  else if (found) reading.events.push({ atMs, ...found, ...(by && { by }) })
  if (!isFolded) reading.candidate = { ...candidate, progress: next }
}

function readSlot(reading: Reading, atMs: number, change: SlotChange & { folded?: true }) {
  const { id, events, slots } = reading
  const others = (ids: readonly string[]) => ids.filter((one) => one !== id)
  if (change.kind === 'slot.opened') {
    const { slot } = change
    if (!slot.candidateIds.includes(id)) return
    // Its attempts are kept as past records.
    const attempts = slots.get(slot.id)?.attempts ?? []
    foldSlot(slots, { kind: 'slot.opened', slot: { ...slot, attempts } })
    const { executor, nonce, candidateIds } = slot
    if (change.folded !== true)
      events.push({ atMs, kind: 'nonce_reserved', executor, nonce, others: others(candidateIds) })
    return
  }
  const slot = foldSlot(slots, change)
  if (slot === undefined) return
  const { nonce } = slot
  switch (change.kind) {
    case 'slot.attempt': {
      const { raw: _raw, sentAtMs: _sent, preparedAtMs: _prepared, ...attempt } = change.attempt
      const before = slot.attempts.at(-2)?.candidateIds ?? []
      events.push({
        atMs,
        kind: 'signed',
        nonce,
        attempt,
        others: others(attempt.candidateIds),
        turn: slot.attempts.length,
        as: signedAs(slot, change.attempt),
        leftOut:
          attempt.kind === 'cancel'
            ? []
            : before.filter((one) => !attempt.candidateIds.includes(one)),
      })
      return
    }
    case 'slot.sent':
      events.push({ atMs, kind: 'sent', hash: change.hash })
      return
    case 'slot.mined': {
      const { kind: _kind, slotId: _slot, ...receipt } = change
      const attempt = attemptOf(slot, change.hash)
      const transaction = attempt?.kind ?? 'propose'
      const carried = Math.max(1, attempt?.candidateIds.length ?? 0)
      events.push({ atMs, kind: 'mined', ...receipt, transaction, carried })
      return
    }
    case 'slot.closed': {
      const { kind: outcome, hash } = change.outcome
      events.push({ atMs, kind: 'nonce_settled', nonce, outcome, hash })
    }
  }
}

function readDecision({ candidate, events }: Reading, atMs: number, event: LedgerRecord) {
  // Behind a fold stands also what was decided before the candidate came.
  if (candidate === undefined || atMs < candidate.receivedAtMs) return
  if ('folded' in event && event.folded === true) return
  const { questionId } = candidate.round
  const tell = (kind: DecisionKind, { reason, by }: Decided) =>
    events.push({ atMs, kind, reason, by })
  if (event.kind === 'allowlist.set' && event.address === candidate.proposer)
    tell(event.allowed ? 'wallet_allowed' : 'wallet_disallowed', event)
  else if (event.kind === 'question.set' && event.entry.questionId === questionId)
    tell('question_set', event)
  else if (event.kind === 'question.removed' && event.questionId === questionId)
    tell('question_removed', event)
  else if (event.kind === 'store.repaired') {
    const { reason, by, lostBytes } = event
    events.push({ atMs, kind: 'store_repaired', reason, by, lostBytes })
  }
}

function happeningOf(before: Progress, next: Progress): Happening | undefined {
  switch (next.status) {
    case 'received':
      return { kind: 'put_back' }
    case 'validated':
      return { kind: before.status === 'received' ? 'validated' : 'stands_in_again' }
    case 'selected':
      return selectionOf(before, next.submission)
    case 'executed': {
      const { transactionHash: hash, proposalEventIndex: eventIndex } = next.submission
      return { kind: 'indexed', hash, eventIndex }
    }
    case 'failed': {
      const { failure } = next
      const kind = failure.code === 'operator_rejected' ? 'rejected' : 'failed'
      return { kind, failure, nextAction: failures[failure.code].nextAction }
    }
  }
}

function selectionOf(
  before: Progress,
  submission: CandidateSubmission | null,
): Happening | undefined {
  if (submission === null) return { kind: 'selected' }
  const was = submissionOf(before)?.status
  const hash = submission.transactionHash
  const wasExecuted = before.status === 'executed'
  switch (submission.status) {
    case 'confirmed':
      // An index that another block has changed is put right by way of it.
      return wasExecuted ? undefined : { kind: 'confirmed', hash }
    case 'reverted':
      return { kind: 'reverted', hash }
    case 'dropped':
      return { kind: 'left_out', hash }
    case 'submitted':
      return was === 'confirmed' || was === 'indexed' || was === 'reverted'
        ? { kind: 'fell_back', from: wasExecuted ? 'executed' : was, hash }
        : undefined
    default:
      return undefined
  }
}

export function progressEvents(progress: Progress, endedAtMs?: number): readonly TimelineEvent[] {
  const submission = submissionOf(progress)
  const hash = submission?.transactionHash ?? null
  const eventIndex = submission?.proposalEventIndex ?? null
  const { validatedAtMs, selectedAtMs } = timesIn(progress)
  const steps: readonly (readonly [atMs: number | null | undefined, happening: Happening])[] = [
    [validatedAtMs, { kind: 'validated' }],
    [selectedAtMs, { kind: 'selected' }],
    [submission?.submittedAtMs, { kind: 'submitted', hash }],
    [submission?.confirmedAtMs, { kind: 'confirmed', hash }],
    [submission?.indexedAtMs, { kind: 'indexed', hash, eventIndex }],
  ]
  const end =
    progress.status === 'failed' ? happeningOf({ status: 'received' }, progress) : undefined
  return [
    ...steps.flatMap(([atMs, happening]) =>
      atMs === null || atMs === undefined ? [] : { atMs, ...happening },
    ),
    ...(end ? [{ atMs: endedAtMs, ...end }] : []),
  ]
}
