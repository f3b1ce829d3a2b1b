import { keccak256, parseTransaction, type TransactionSerializedEIP1559 } from 'viem'
import { carriedBy } from '#chain/transaction'
import type { SlotAttempt } from '#gateway/ledger/ledger'
import { recordOf } from '#gateway/ledger/state'
import type { Progress } from '#protocol/candidate'
import type { StoredRecord } from '#storage/record-log'
import type { CandidateStanding, StoreFact } from './facts.js'

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
