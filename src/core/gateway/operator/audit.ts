/** What must hold of a store beyond its checksums (R2, R3), fed with every record in order. */
import { keccak256 } from 'viem'
import type { StoredRecord } from '#storage/record-log'
import type { SlotAttempt } from '../ledger/ledger.js'
import { recordOf } from '../ledger/state.js'

export function createAudit() {
  const counts = new Map<string, number>()
  const holders = new Map<string, string>()
  const requireOne = (name: string, holder: string, detail: string) => {
    const known = holders.get(name) ?? holder
    if (known !== holder) throw new RangeError(`${detail}, that of ${known}`)
    holders.set(name, holder)
  }
  return {
    counts: counts as ReadonlyMap<string, number>,
    onRecord(record: StoredRecord) {
      counts.set(record.kind, (counts.get(record.kind) ?? 0) + 1)
      const event = recordOf(record)
      if (event.kind === 'candidate.received' || event.kind === 'candidate.whole') {
        const { id, identity, sequence } = event.candidate
        if (event.kind === 'candidate.received' && holders.has(`id ${id}`))
          throw new RangeError(`${identity} was admitted before`)
        requireOne(`identity ${identity}`, id, `candidate ${id} is a known payload`)
        requireOne(`id ${id}`, identity, `candidate ${id} stands for a second payload`)
        requireOne(`sequence ${sequence}`, id, `candidate ${id} has sequence number ${sequence}`)
      } else if (event.kind === 'slot.opened') {
        const { id, executor, nonce, candidateIds, attempts } = event.slot
        // What carries no proposal may fill a gap again, after a lost chain took its end along.
        if (candidateIds.length > 0)
          requireOne(`${executor} ${nonce}`, id, `slot ${id} binds nonce ${nonce} of ${executor}`)
        attempts.forEach(requireHash)
      } else if (event.kind === 'slot.attempt') requireHash(event.attempt)
    },
  }
}

function requireHash({ hash, raw }: SlotAttempt) {
  if (raw !== '0x' && keccak256(raw) !== hash)
    throw new RangeError(`transaction ${hash} is recorded with the bytes of ${keccak256(raw)}`)
}
