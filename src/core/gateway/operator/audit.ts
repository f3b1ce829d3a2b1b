/** What must hold of a store beyond its checksums (R3, R22): fed with every record, it names the first record after which it does not. */
import type { Hex } from '../../ports.js'
import type { StoredRecord } from '../../storage/record-log.js'
import type { LedgerRecord, LedgerState } from '../ledger/state.js'

export interface Audit {
  /** Throws RangeError, a sentence, where a record breaks an invariant. Called after the record was folded into `state`. */
  onRecord(record: StoredRecord): void
  /** Records by kind. */
  readonly counts: ReadonlyMap<string, number>
}

/** An audit of the records that are folded into `state`. Source: robustness R3, R13. */
export function createAudit(state: LedgerState): Audit {
  const counts = new Map<string, number>()
  const boundNonces = new Set<string>()
  const attemptOf = new Map<Hex, string>()
  const sequences = new Set<number>()

  const openRound = (slotId: string, candidateIds: readonly string[]) => {
    const rounds = new Set(candidateIds.flatMap((id) => state.entries.get(id)?.roundKey ?? []))
    if (rounds.size !== candidateIds.length)
      throw new RangeError(`slot ${slotId} carries two candidates of one round, or one that is unknown`)
    for (const other of state.slots.values()) {
      if (other.id === slotId) continue
      for (const id of other.candidateIds) {
        if (rounds.has(state.entries.get(id)?.roundKey ?? ''))
          throw new RangeError(`slots ${other.id} and ${slotId} are open for one round`)
      }
    }
  }

  const onSlot = (event: Extract<LedgerRecord, { kind: 'slot.opened' }>) => {
    const { slot } = event
    const nonce = `${slot.executor} ${slot.nonce}`
    if (boundNonces.has(nonce)) throw new RangeError(`nonce ${slot.nonce} of ${slot.executor} is bound a second time`)
    boundNonces.add(nonce)
    if (event.folded !== true) openRound(slot.id, slot.candidateIds)
    for (const { hash } of slot.attempts) onAttempt(slot.id, hash)
  }

  const onAttempt = (slotId: string, hash: Hex) => {
    const known = attemptOf.get(hash)
    if (known !== undefined && known !== slotId) throw new RangeError(`transaction ${hash} belongs to two slots`)
    attemptOf.set(hash, slotId)
  }

  return {
    counts,
    onRecord({ kind, data }) {
      counts.set(kind, (counts.get(kind) ?? 0) + 1)
      const event = { kind, ...(data as object) } as LedgerRecord
      if (event.kind === 'slot.opened') onSlot(event)
      else if (event.kind === 'slot.attempt') onAttempt(event.slotId, event.attempt.hash)
      else if (event.kind === 'candidate.received') {
        const { sequence, id } = event.candidate
        if (sequences.has(sequence)) throw new RangeError(`candidate ${id} has the sequence number ${sequence} of another one`)
        sequences.add(sequence)
      }
    },
  }
}
