/**
 * What must hold of a store beyond its checksums (R1 to R3, R13): fed with every record, it names
 * the first after which it does not.
 */
import { keccak256, parseTransaction, type TransactionSerializedEIP1559 } from 'viem'
import type {
  CandidateStanding,
  HistoryRule,
  SignedTransaction,
  StoreFact,
} from '../../history/events.js'
import { createHistory } from '../../history/history.js'
import type { Progress } from '../../protocol/candidate.js'
import type { StoredRecord } from '../../storage/record-log.js'
import { carriedBy } from '../executor/transaction.js'
import type { SlotAttempt } from '../ledger/ledger.js'
import type { LedgerRecord } from '../ledger/state.js'

export interface Audit {
  /** Throws RangeError, a sentence, where a record breaks an invariant. */
  onRecord(record: StoredRecord): void
  /** Records by kind. */
  readonly counts: ReadonlyMap<string, number>
  /** How often each rule was asked. */
  proven(): Readonly<Record<HistoryRule, number>>
}

/** An audit that has seen nothing. Source: robustness R1, R2, R3, R13. */
export function createAudit(): Audit {
  const counts = new Map<string, number>()
  const history = createHistory('by log')
  let broken = 0
  return {
    counts,
    proven: () => history.verdict().checked,
    onRecord(record) {
      counts.set(record.kind, (counts.get(record.kind) ?? 0) + 1)
      for (const fact of storeFacts(record)) history.durable('store', fact)
      if (history.broken === broken) return
      broken = history.broken
      const { violations } = history.verdict()
      const [first] = violations
      throw new RangeError(
        first === undefined ? 'a rule is broken' : `${first.rule}: ${first.detail}`,
      )
    },
  }
}

/**
 * A store's record in the words of its rules. What no rule is about gives no fact. Throws
 * RangeError for a transaction that cannot be read.
 */
export function storeFacts({
  kind,
  data,
}: Pick<StoredRecord, 'kind' | 'data'>): readonly StoreFact[] {
  const event = { kind, ...(data as object) } as LedgerRecord
  switch (event.kind) {
    case 'candidate.received': {
      const { id, sequence, identity: payload, round } = event.candidate
      return [{ kind: 'candidate', id, sequence, payload, round: round.key }]
    }
    case 'candidate.whole': {
      const { id, sequence, identity: payload, round, progress } = event.candidate
      return [
        {
          kind: 'candidate',
          id,
          sequence,
          payload,
          round: round.key,
          stands: standingOf(progress),
        },
      ]
    }
    case 'candidate.progress':
      return [{ kind: 'progress', id: event.id, stands: standingOf(event.progress) }]
    case 'slot.opened': {
      const { id, executor, nonce, candidateIds: candidates, attempts } = event.slot
      const kept = event.folded === true
      return [
        { kind: 'slot', id, executor, nonce, candidates, kept },
        ...attempts.map(
          (attempt): StoreFact => ({
            kind: 'transaction',
            slot: id,
            transaction: transactionOf(attempt),
          }),
        ),
      ]
    }
    case 'slot.attempt':
      return [
        { kind: 'transaction', slot: event.slotId, transaction: transactionOf(event.attempt) },
      ]
    case 'slot.sent':
      return [{ kind: 'acted', slot: event.slotId, hash: event.hash, what: 'sent' }]
    case 'slot.mined':
      return [
        {
          kind: 'acted',
          slot: event.slotId,
          hash: event.hash,
          what: 'mined',
          status: event.status,
        },
      ]
    case 'slot.closed':
      return [
        {
          kind: 'closed',
          slot: event.slotId,
          outcome: event.outcome.kind,
          hash: event.outcome.hash,
        },
      ]
    case 'executor.nonce':
      return [{ kind: 'bound', executor: event.executor, nonce: event.nonce }]
    default:
      return []
  }
}

function standingOf({ status }: Progress): CandidateStanding {
  return status === 'received' || status === 'validated' ? 'waiting' : status
}

function transactionOf({
  hash,
  raw,
  kind: does,
  candidateIds: candidates,
}: SlotAttempt): SignedTransaction {
  // A compaction keeps the bytes of open slots alone.
  if (raw === '0x') return { hash, does, candidates, nonce: undefined, calls: undefined }
  const recorded = keccak256(raw)
  if (recorded !== hash)
    throw new RangeError(`transaction ${hash} is recorded with the bytes of ${recorded}`)
  try {
    const { nonce, data } = parseTransaction(raw as TransactionSerializedEIP1559)
    return {
      hash,
      does,
      candidates,
      nonce: nonce ?? 0,
      calls: does === 'cancel' ? [] : carriedBy(data ?? '0x').map((call) => keccak256(call)),
    }
  } catch (error) {
    throw new RangeError(
      `transaction ${hash} cannot be read: ${error instanceof Error ? (error.message.split('\n')[0] ?? '') : ''}`,
    )
  }
}
