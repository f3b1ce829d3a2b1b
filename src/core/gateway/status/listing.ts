/** An operator's lists. No signatures, no raw transactions (R5). */

import type { Hex } from '#ports'
import { type Candidate, instant } from '#protocol/candidate'
import { failures } from '#protocol/codes'
import { outcomeOf } from '#protocol/proposal'
import type { Address } from '#protocol/schema'
import type { StoredRecord } from '#storage/record-log'
import { datedRecord } from '../ledger/compaction.js'
import {
  attemptOf,
  type Decided,
  foldSlot,
  isSlotChange,
  type MinedReceipt,
  type OpenSlots,
  type OperatorDecision,
} from '../ledger/ledger.js'
import { submissionOf, timesIn } from '../validation/progress.js'

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

interface ReceiptFacts extends Omit<MinedReceipt, 'hash'> {
  /** `undefined` where a compaction has dropped it. */
  readonly carried: number | undefined
}

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

const timeOrNull = (ms: number | null | undefined) =>
  ms === null || ms === undefined ? null : instant(ms)

/**
 * Amounts in raw units, gas in wei, as decimal strings. Gas of a shared transaction stands whole in
 * each row: divide by `carried`.
 */
export function candidateRow(
  candidate: Candidate,
  slug: string | undefined,
  receipts?: Pick<Receipts, 'byHash' | 'cancellations'>,
) {
  const { progress, round } = candidate
  const { validatedAtMs, selectedAtMs } = timesIn(progress)
  const submission = submissionOf(progress)
  const hash = submission?.transactionHash ?? null
  const mined = hash === null ? undefined : receipts?.byHash.get(hash)
  const cancelled = receipts?.cancellations.get(candidate.id)
  const failure = progress.status === 'failed' ? progress.failure : undefined
  return {
    candidate_id: candidate.id,
    sequence: candidate.sequence,
    received_at: instant(candidate.receivedAtMs),
    status: progress.status,
    question_id: round.questionId,
    slug: slug ?? null,
    round: round.timestamp,
    requester: round.requester,
    proposer: candidate.proposer,
    outcome: outcomeOf(candidate.price) ?? null,
    price: candidate.price,
    amount: candidate.amount,
    permit_nonce: candidate.nonce,
    deadline: candidate.deadline,
    validated_at: timeOrNull(validatedAtMs),
    selected_at: timeOrNull(selectedAtMs),
    submission: submission?.status ?? null,
    transaction_hash: hash,
    submitted_at: timeOrNull(submission?.submittedAtMs),
    confirmed_at: timeOrNull(submission?.confirmedAtMs),
    indexed_at: timeOrNull(submission?.indexedAtMs),
    proposal_event_index: submission?.proposalEventIndex ?? null,
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
    next_action: failure === undefined ? null : failures[failure.code].nextAction,
    carried: mined?.carried ?? null,
    cancellation_carried: cancelled?.carried ?? null,
  }
}
export type CandidateRow = ReturnType<typeof candidateRow>
