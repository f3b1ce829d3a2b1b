/**
 * Candidates, wallets and switches of a store as an operator's lists show them. Signatures and raw
 * transactions are no part of them (R5).
 */
import type { Address, Hex } from '../../ports.js'
import { type Candidate, failures, instant } from '../../protocol/candidate.js'
import { outcomeOf } from '../../protocol/proposal.js'
import type { StoredRecord } from '../../storage/record-log.js'
import type { SlotAttempt } from '../ledger/ledger.js'
import { toldBy } from '../ledger/past.js'
import { submissionOf } from '../validation/progress.js'

/** Who decided what, when and why; `undefined` while nobody has. */
export interface Decision {
  readonly value: boolean
  readonly atMs: number
  readonly reason: string
}

/** What operators decided, by what it is about: fed with every record of a store. */
export interface Decisions {
  onRecord(record: StoredRecord): void
  readonly wallets: ReadonlyMap<Address, Decision>
  readonly admission: Decision | undefined
  readonly questions: ReadonlyMap<Hex, Decision>
}

/** Nothing decided yet; to be fed with every record in order. Throws nothing. */
export function createDecisions(): Decisions {
  const wallets = new Map<Address, Decision>()
  const questions = new Map<Hex, Decision>()
  let admission: Decision | undefined
  return {
    onRecord(record) {
      const { atMs, event } = toldBy(record)
      // A fold comes before what it was folded from, and knows neither time nor reason.
      if (event.kind === 'allowlist.set')
        wallets.set(event.address, { value: event.allowed, atMs, reason: event.reason })
      else if (event.kind === 'admission.set') {
        if (event.folded !== true) admission = { value: event.enabled, atMs, reason: event.reason }
      } else if (event.kind === 'question.set')
        questions.set(event.entry.questionId, { value: true, atMs, reason: event.reason })
      else if (event.kind === 'question.removed')
        questions.set(event.questionId, { value: false, atMs, reason: event.reason })
    },
    wallets,
    questions,
    get admission() {
      return admission
    },
  }
}

/** What a transaction came to in the end; gas prices in wei. */
export interface MinedFacts {
  readonly blockNumber: string
  readonly blockHash: Hex
  readonly status: 'success' | 'reverted'
  readonly gasUsed: string
  readonly gasPriceWei: string | undefined
  /** Candidates that share it; `undefined` where a compaction has dropped what it carried. */
  readonly carried: number | undefined
}

export interface Receipts {
  onRecord(record: StoredRecord): void
  readonly byHash: ReadonlyMap<Hex, MinedFacts>
  /** The newest mined cancellation of a nonce that was bound to a candidate, by its id. */
  readonly cancellations: ReadonlyMap<string, MinedFacts & { readonly hash: Hex }>
}

/** The receipts that a store has counted on, by transaction; of a reorganised one the newest. */
export function createReceipts(): Receipts {
  const byHash = new Map<Hex, MinedFacts>()
  const cancellations = new Map<string, MinedFacts & { readonly hash: Hex }>()
  const open = new Map<
    string,
    { readonly candidateIds: readonly string[]; readonly attempts: Map<Hex, SlotAttempt> }
  >()
  return {
    byHash,
    cancellations,
    onRecord(record) {
      const { event } = toldBy(record)
      switch (event.kind) {
        case 'slot.opened': {
          const { id, candidateIds, attempts } = event.slot
          open.set(id, {
            candidateIds,
            attempts: new Map(attempts.map((attempt) => [attempt.hash, attempt])),
          })
          return
        }
        case 'slot.attempt':
          open.get(event.slotId)?.attempts.set(event.attempt.hash, event.attempt)
          return
        case 'slot.mined': {
          const { hash, blockNumber, blockHash, status, gasUsed, gasPriceWei } = event
          const slot = open.get(event.slotId)
          const attempt = slot?.attempts.get(hash)
          // A cancellation is paid for all whose nonce it gives back.
          const sharing = attempt?.kind === 'cancel' ? slot?.candidateIds : attempt?.candidateIds
          const facts = {
            blockNumber,
            blockHash,
            status,
            gasUsed,
            gasPriceWei,
            carried: sharing?.length,
          }
          byHash.set(hash, facts)
          if (attempt?.kind === 'cancel')
            for (const id of sharing ?? []) cancellations.set(id, { hash, ...facts })
          return
        }
        case 'slot.closed':
          open.delete(event.slotId)
      }
    },
  }
}

const timeOrNull = (ms: number | null | undefined) =>
  ms === null || ms === undefined ? null : instant(ms)

/**
 * A candidate as one flat row, for lists and accounting. Amounts in raw units, gas in wei, as
 * decimal strings. A transaction, and the cancellation of a nonce, may be shared with others: their
 * whole gas stands in the row of each, and `carried` says by how many to divide it.
 */
export function candidateRow(
  candidate: Candidate,
  slug: string | undefined,
  receipts: Pick<Receipts, 'byHash' | 'cancellations'>,
) {
  const { progress, round } = candidate
  const submission = submissionOf(progress)
  const hash = submission?.transactionHash ?? null
  const mined = hash === null ? undefined : receipts.byHash.get(hash)
  const cancelled = receipts.cancellations.get(candidate.id)
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
    validated_at: 'validatedAtMs' in progress ? timeOrNull(progress.validatedAtMs) : null,
    selected_at: 'selectedAtMs' in progress ? timeOrNull(progress.selectedAtMs) : null,
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
