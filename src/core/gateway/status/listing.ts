/** An operator's lists. No signatures, no raw transactions (R5). */

import type { Hex } from '#ports'
import { type Candidate, wireStatus } from '#protocol/candidate'
import { pick } from '#protocol/pick'
import type { Address } from '#protocol/schema'
import type { StoredRecord } from '#storage/record-log'
import type { Decided, MinedReceipt, OpenSlots, OperatorDecision } from '../ledger/ledger.js'
import { attemptOf, datedRecord, foldSlot, isSlotChange } from '../ledger/state.js'

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
