/** What records say of candidates: timelines and rows. No signatures, no raw transactions (R5). */
import { formatEther, formatGwei } from 'viem'
import type { Hex } from '#ports'
import { amountText, type TokenUnits } from '#protocol/amount'
import {
  type Candidate,
  type CandidateSubmission,
  type Progress,
  wireStatus,
} from '#protocol/candidate'
import { failures } from '#protocol/codes'
import { pick } from '#protocol/pick'
import type { Address } from '#protocol/schema'
import { counted } from '#protocol/text'
import type { StoredRecord } from '#storage/record-log'
import type {
  CandidateCheck,
  Decided,
  MinedReceipt,
  OpenSlots,
  OperatorDecision,
  Slot,
  SlotAttempt,
  SlotChange,
} from '../ledger/ledger.js'
import {
  attemptOf,
  datedRecord,
  foldSlot,
  isSlotChange,
  type LedgerRecord,
} from '../ledger/state.js'
import { saidWords } from '../operator/acts.js'
import { submissionOf, timesIn } from '../validation/validation.js'
import { signedAs } from './health.js'

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
  | ReturnType<typeof signedEvent>
  | { kind: 'sent'; hash: Hex }
  | ({ kind: 'mined'; transaction: SlotAttempt['kind']; carried: number } & MinedReceipt)
  | { kind: 'confirmed' | 'reverted' | 'left_out' | 'submitted'; hash: Hex | null }
  | { kind: 'fell_back'; from: string; hash: Hex | null }
  | { kind: 'indexed'; hash: Hex | null; eventIndex: number | null }
  | { kind: 'nonce_settled'; nonce: number; outcome: string; hash: Hex | null }
  | {
      kind: 'failed' | 'rejected'
      failure: Extract<Progress, { status: 'failed' }>['failure']
      nextAction: string
      by?: string | undefined
    }
  | ({ kind: DecisionKind } & Decided)
  | ({ kind: 'store_repaired'; lostBytes: number } & Decided)
>

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
  hasSteps: false,
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
    get candidate() {
      return reading.candidate
    },
    get events(): readonly TimelineEvent[] {
      const { candidate, isFolded, hasSteps, events } = reading
      if (!isFolded || hasSteps || !candidate || candidate.progress.status === 'received')
        return events
      const compacted = { atMs: undefined, kind: 'compacted' } as const
      const [early, late] = [events.slice(0, 1), events.slice(1)]
      return [...early, compacted, ...progressEvents(candidate.progress), ...late]
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
    if (event.kind === 'candidate.whole') {
      if (event.folded !== true) return step(reading, atMs, event.candidate.progress)
      reading.isFolded = true
    }
    reading.candidate = { progress: { status: 'received' }, ...candidate }
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
  const { candidate, isFolded, hasSteps, events, slots } = reading
  if (candidate === undefined) return
  const before: Progress = isFolded && !hasSteps ? { status: 'received' } : candidate.progress
  reading.hasSteps = true
  reading.candidate = { ...candidate, progress: next }
  const found = happeningOf(before, next)
  // Without a nonce of its own it has only let another one go first.
  const wasUnbound = before.status === 'selected' && !before.submission && slots.size === 0
  if (found?.kind === 'stands_in_again' && wasUnbound) events.push({ atMs, kind: 'made_room' })
  else if (found) events.push({ atMs, ...found, ...(by && { by }) })
}

function readSlot(reading: Reading, atMs: number, change: SlotChange & { folded?: true }) {
  const { id, events, slots } = reading
  if (change.kind === 'slot.opened') {
    const { slot } = change
    if (!slot.candidateIds.includes(id)) return
    const attempts = slots.get(slot.id)?.attempts ?? []
    foldSlot(slots, { kind: 'slot.opened', slot: { ...slot, attempts } })
    const { executor, nonce, candidateIds } = slot
    const others = candidateIds.filter((one) => one !== id)
    if (change.folded !== true)
      events.push({ atMs, kind: 'nonce_reserved', executor, nonce, others })
    return
  }
  const slot = foldSlot(slots, change)
  if (slot === undefined) return
  const { nonce } = slot
  switch (change.kind) {
    case 'slot.attempt':
      events.push({ atMs, ...signedEvent(slot, change.attempt, id) })
      return
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

export function signedEvent(slot: Slot, signed: SlotAttempt, id: string) {
  const { raw: _raw, sentAtMs: _sent, preparedAtMs: _prepared, ...attempt } = signed
  const { kind, candidateIds } = attempt
  const at = slot.attempts.indexOf(signed)
  const before = kind === 'cancel' ? undefined : slot.attempts[at - 1]
  return {
    kind: 'signed',
    nonce: slot.nonce,
    attempt,
    others: candidateIds.filter((one) => one !== id),
    turn: at + 1,
    as: signedAs(slot, signed),
    leftOut: before?.candidateIds.filter((one) => !candidateIds.includes(one)) ?? [],
  } as const
}

function readDecision({ candidate, events }: Reading, atMs: number, event: LedgerRecord) {
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

type Of<Kind extends TimelineEvent['kind']> = Extract<TimelineEvent, { readonly kind: Kind }>

/** What, then its details, a line each. Outside text is not escaped. */
export function narrated(
  event: TimelineEvent,
  token: TokenUnits | undefined,
  coin = "of the chain's coin",
): readonly string[] {
  const hash = ('hash' in event ? event.hash : null) ?? 'unknown'
  switch (event.kind) {
    case 'checked':
      return checkLines(event.check, token)
    case 'nonce_reserved':
      return [`nonce ${event.nonce} of ${event.executor} reserved${withOthers(event.others)}`]
    case 'signed':
      return signedLines(event)
    case 'sent':
    case 'submitted':
      return [event.kind, hash]
    case 'mined':
      return minedLines(event, coin)
    case 'reverted':
      return ['its transaction reverted', hash]
    case 'left_out':
      return ['left out of the transaction that replaces this one:', hash]
    case 'fell_back':
      return [`a reorganization undid "${event.from}": submitted again by`, hash]
    case 'indexed':
      return [`on the chain: ProposePrice is log ${event.eventIndex ?? 'unknown'} of its block`]
    case 'nonce_settled':
      return [`nonce ${event.nonce} is final: ${outcomes[event.outcome] ?? event.outcome}`]
    case 'failed':
    case 'rejected':
      return failureLines(event)
    case 'store_repaired':
      return [`operator: the store was repaired, ${event.lostBytes} bytes lost: ${said(event)}`]
    default: {
      const what = plainWords[event.kind] ?? event.kind
      return ['reason' in event ? `operator: ${what}: ${said(event)}` : what]
    }
  }
}

const said = ({ reason, by }: Decided) => saidWords(reason, by)

const plainWords: Readonly<Record<string, string>> = {
  compacted: '(details older than 90 days were dropped by a compaction)',
  selected: 'selected for execution',
  stands_in_again: 'its nonce was settled without it: a stand-in again',
  made_room: 'cannot continue yet, and another candidate of its round goes first: on standby again',
  put_back: 'the same payload was sent again: back to received',
  wallet_allowed: 'its wallet was allowed',
  wallet_disallowed: 'its wallet was removed from the allowlist',
  question_set: 'the entry of its question was set',
  question_removed: 'the entry of its question was removed',
}

const outcomes: Readonly<Record<string, string>> = {
  executed: 'executed by the transaction above',
  reverted: 'its transaction reverted',
  cancelled: 'the cancellation was mined, and no proposal',
  foreign: 'used outside this store, or given up with its former executor',
}

const withOthers = (others: readonly string[]) =>
  others.length === 0 ? '' : `, with ${counted(others.length, 'other')}: ${others.join(', ')}`

const verdicts: Readonly<Record<CandidateCheck['verdict'], string>> = {
  valid: 'found valid',
  failed: 'found invalid',
  closed: 'the round is closed',
  wait: 'must wait',
  operator: 'waits for the operator',
}

function checkLines(
  { blockNumber, verdict, detail, figures }: CandidateCheck,
  token: TokenUnits | undefined,
) {
  const amount = (raw: string) =>
    /^\d+$/.test(raw) && BigInt(raw) >= 2n ** 128n ? 'unlimited' : amountText(raw, token)
  const either = (yes: string, no: string) => (value: string) => (value === 'true' ? yes : no)
  const paused = figures.paused === true ? ', paused' : ''
  const figure = (name: string, key: string, write: (value: string) => string) =>
    figures[key] === undefined ? [] : `${name} ${write(String(figures[key]))}`
  const lines = [
    [figure('bond', 'bond', amount), figure('authorized', 'amount', amount)],
    [figure('needed by all active authorizations', 'needed', amount)],
    [figure('balance', 'balance', amount), figure('allowance', 'allowance', amount)],
    [
      figure('request', 'round_state', (state) => state + paused),
      figure('nonce', 'nonce_used', either('used', 'unused')),
      figure('signature', 'signature_accepted', either('accepted', 'refused')),
    ],
    [figure('simulation', 'simulation', (value) => value)],
  ].flatMap((group) => group.flat().join(' · ') || [])
  const why = detail === null ? '' : `: ${detail}`
  const head = lines.length === 0 ? 'block' : 'checked at block'
  return [`${head} ${blockNumber}: ${verdicts[verdict]}${why}`, ...lines]
}

const signings: Readonly<Record<Of<'signed'>['as'], string>> = {
  first: 'a transaction',
  fee_bump: 'the same at a higher fee',
  trim: 'a smaller replacement',
  anew: 'no node took the previous one: a new transaction is',
  cancel: 'a cancellation',
}

function signedLines({ nonce, attempt, others, leftOut, as }: Of<'signed'>) {
  const { hash, maxFeePerGas, maxPriorityFeePerGas } = attempt
  return [
    `${signings[as]} signed under nonce ${nonce}${withOthers(others)}`,
    ...(leftOut.length === 0 ? [] : [`without ${leftOut.join(', ')}`]),
    hash,
    `at most ${gwei(maxFeePerGas)} for gas, ${gwei(maxPriorityFeePerGas)} tip`,
  ]
}

const gwei = (wei: string) => `${formatGwei(BigInt(wei))} gwei`

function minedLines(event: Of<'mined'>, coin: string) {
  const { gasUsed, gasPriceWei: price, carried, blockNumber, blockHash, status } = event
  const wei = BigInt(gasUsed) * BigInt(price ?? 0)
  const cost = price && ` × ${gwei(price)} = ${formatEther(wei)} ${coin}`
  const what = event.transaction === 'cancel' ? 'the cancellation is mined' : 'mined'
  const shared = carried > 1 ? `, for ${carried} proposals` : ''
  return [
    `${what} in block ${blockNumber}: ${status}`,
    `block hash ${blockHash}`,
    `gas ${gasUsed}${cost ?? ''}${shared}`,
  ]
}

function failureLines({ kind, failure, nextAction, by }: Of<'failed' | 'rejected'>) {
  const { stage, code, detail, retryable } = failure
  const fate = retryable
    ? 'the same payload may still execute'
    : 'this payload can no longer execute'
  return [
    `${kind === 'rejected' ? 'operator: rejected' : 'failed'} (${stage}): ${code}`,
    detail,
    `${fate}; next action: ${nextAction}`,
    ...(by === undefined ? [] : [`by ${by}`]),
  ]
}

export function createDecisions() {
  const wallets = new Map<Address, OperatorDecision>()
  const questions = new Map<Hex, OperatorDecision>()
  return {
    wallets: wallets as ReadonlyMap<Address, OperatorDecision>,
    questions: questions as ReadonlyMap<Hex, OperatorDecision>,
    onRecord(record: StoredRecord) {
      const { atMs, event } = datedRecord(record)
      const decided = ({ reason, by }: Decided): OperatorDecision => ({ atMs, reason, by })
      if (event.kind === 'allowlist.set') wallets.set(event.address, decided(event))
      else if (event.kind === 'question.set') questions.set(event.entry.questionId, decided(event))
      else if (event.kind === 'question.removed') questions.set(event.questionId, decided(event))
    },
  }
}

type ReceiptFacts = Omit<MinedReceipt, 'hash'> & { readonly carried: number | undefined }

export type Receipts = ReturnType<typeof createReceipts>

export function createReceipts() {
  const byHash = new Map<Hex, ReceiptFacts>()
  const cancellations = new Map<string, ReceiptFacts & { readonly hash: Hex }>()
  const slots: OpenSlots = new Map()
  return {
    byHash: byHash as ReadonlyMap<Hex, ReceiptFacts>,
    cancellations: cancellations as ReadonlyMap<string, ReceiptFacts & { readonly hash: Hex }>,
    onRecord(record: StoredRecord) {
      const { event } = datedRecord(record)
      if (!isSlotChange(event)) return
      const slot = foldSlot(slots, event)
      if (event.kind !== 'slot.mined') return
      const { kind: _kind, slotId: _slot, hash, ...receipt } = event
      const attempt = attemptOf(slot, hash)
      const isCancel = attempt?.kind === 'cancel'
      // A cancellation is paid for all whose nonce it gives back.
      const sharing = isCancel ? slot?.candidateIds : attempt?.candidateIds
      const facts = { ...receipt, carried: sharing?.length }
      byHash.set(hash, facts)
      if (isCancel) for (const id of sharing ?? []) cancellations.set(id, { hash, ...facts })
    },
  }
}

/** Gas of a shared transaction stands whole in each row: divide by `carried`. */
export function candidateRow(
  candidate: Candidate,
  slug: string | undefined,
  receipts?: Pick<Receipts, 'byHash' | 'cancellations'>,
) {
  const { round } = candidate
  const { submission, failure, ...known } = wireStatus(candidate)
  const hash = submission?.transaction_hash ?? null
  const mined = hash === null ? undefined : receipts?.byHash.get(hash as Hex)
  const cancelled = receipts?.cancellations.get(candidate.id)
  return {
    candidate_id: candidate.id,
    sequence: candidate.sequence,
    ...pick(known, 'received_at', 'status', 'question_id'),
    slug: slug ?? null,
    round: round.timestamp,
    requester: round.requester,
    ...pick(known, 'proposer', 'outcome', 'price'),
    amount: candidate.amount,
    permit_nonce: candidate.nonce,
    deadline: candidate.deadline,
    ...pick(known, 'validated_at', 'selected_at'),
    submission: submission?.status ?? null,
    transaction_hash: hash,
    submitted_at: submission?.submitted_at ?? null,
    confirmed_at: submission?.confirmed_at ?? null,
    indexed_at: submission?.indexed_at ?? null,
    proposal_event_index: submission?.proposal_event_index ?? null,
    block_number: mined?.blockNumber ?? null,
    gas_used: mined?.gasUsed ?? null,
    gas_price_wei: mined?.gasPriceWei ?? null,
    cancellation_hash: cancelled?.hash ?? null,
    cancellation_block_number: cancelled?.blockNumber ?? null,
    cancellation_gas_used: cancelled?.gasUsed ?? null,
    cancellation_gas_price_wei: cancelled?.gasPriceWei ?? null,
    failure_stage: failure?.stage ?? null,
    failure_code: failure?.code ?? null,
    failure_detail: failure?.detail ?? null,
    retryable: failure?.retryable ?? null,
    next_action: failure?.next_action ?? null,
    carried: mined?.carried ?? null,
    cancellation_carried: cancelled?.carried ?? null,
  }
}
export type CandidateRow = ReturnType<typeof candidateRow>
