/**
 * What must hold of a store beyond its checksums (R1 to R3, R13). Fed with every record, it names
 * the first after which it does not.
 */
import { keccak256, parseTransaction, type TransactionSerializedEIP1559 } from 'viem'
import type { CandidateStanding, HistoryRule, StoreFact } from '../../history/facts.js'
import { createRuleCheck } from '../../history/rule-check.js'
import type { Progress } from '../../protocol/candidate.js'
import type { StoredRecord } from '../../storage/record-log.js'
import { carriedBy } from '../executor/transaction.js'
import type { SlotAttempt } from '../ledger/ledger.js'
import { recordOf } from '../ledger/state.js'

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
  const check = createRuleCheck()
  let broken = 0
  return {
    counts,
    proven: () => check.verdict().checked,
    onRecord(record) {
      counts.set(record.kind, (counts.get(record.kind) ?? 0) + 1)
      for (const fact of storeFacts(record)) check.durable('store', fact)
      if (check.broken === broken) return
      broken = check.broken
      const { violations } = check.verdict()
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
export function storeFacts(record: Pick<StoredRecord, 'kind' | 'data'>): readonly StoreFact[] {
  const event = recordOf(record)
  switch (event.kind) {
    case 'candidate.received':
    case 'candidate.whole': {
      const { id, sequence, identity: payload, round } = event.candidate
      const fact = { kind: 'candidate', id, sequence, payload, round: round.key } as const
      return [
        event.kind === 'candidate.received'
          ? fact
          : { ...fact, stands: standingOf(event.candidate.progress) },
      ]
    }
    case 'candidate.progress':
      return [{ kind: 'progress', id: event.id, stands: standingOf(event.progress) }]
    case 'slot.opened': {
      const { id, executor, nonce, candidateIds: candidates, attempts } = event.slot
      const kept = event.folded === true
      return [
        { kind: 'slot', id, executor, nonce, candidates, kept },
        ...attempts.map((attempt) => signedFact(id, attempt)),
      ]
    }
    case 'slot.attempt':
      return [signedFact(event.slotId, event.attempt)]
    case 'slot.sent':
      return [{ kind: 'acted', slot: event.slotId, hash: event.hash, what: 'sent' }]
    case 'slot.mined': {
      const { slotId: slot, hash, status } = event
      return [{ kind: 'acted', slot, hash, what: 'mined', status }]
    }
    case 'slot.closed': {
      const { kind: outcome, hash } = event.outcome
      return [{ kind: 'closed', slot: event.slotId, outcome, hash }]
    }
    case 'executor.nonce':
      return [{ kind: 'bound', executor: event.executor, nonce: event.nonce }]
    default:
      return []
  }
}

const standingOf = ({ status }: Progress): CandidateStanding =>
  status === 'received' || status === 'validated' ? 'waiting' : status

function signedFact(slot: string, attempt: SlotAttempt): StoreFact {
  const { hash, raw, kind: does, candidateIds: candidates } = attempt
  const unread = { hash, does, candidates, nonce: undefined, calls: undefined }
  // A compaction keeps the bytes of open slots alone.
  if (raw === '0x') return { kind: 'transaction', slot, transaction: unread }
  const recorded = keccak256(raw)
  if (recorded !== hash)
    throw new RangeError(`transaction ${hash} is recorded with the bytes of ${recorded}`)
  try {
    const { nonce = 0, data = '0x' } = parseTransaction(raw as TransactionSerializedEIP1559)
    const calls = does === 'cancel' ? [] : carriedBy(data).map((call) => keccak256(call))
    return { kind: 'transaction', slot, transaction: { ...unread, nonce, calls } }
  } catch (error) {
    const why = error instanceof Error ? error.message.split('\n')[0] : ''
    throw new RangeError(`transaction ${hash} cannot be read: ${why}`)
  }
}
