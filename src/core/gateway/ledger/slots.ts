/** The life of a slot, folded from its records: the one meaning of `slot.*` records. */
import type { SignedAs } from '#protocol/vitals'
import type { Slot, SlotAttempt, SlotChange } from './ledger.js'

export type OpenSlots = Map<string, Slot>

export function foldSlot(slots: OpenSlots, change: SlotChange): Slot | undefined {
  if (change.kind === 'slot.opened') return set(slots, change.slot)
  const slot = slots.get(change.slotId)
  if (slot === undefined) return undefined
  switch (change.kind) {
    case 'slot.attempt':
      return set(slots, { ...slot, attempts: [...slot.attempts, change.attempt] })
    case 'slot.sent': {
      const { hash, sentAtMs } = change
      const attempts = slot.attempts.map((one) => (one.hash === hash ? { ...one, sentAtMs } : one))
      return set(slots, { ...slot, attempts })
    }
    case 'slot.mined':
      return set(slots, { ...slot, minedIn: change.blockHash })
    case 'slot.closed':
      slots.delete(slot.id)
      return slot
  }
}

function set(slots: OpenSlots, slot: Slot): Slot {
  slots.set(slot.id, slot)
  return slot
}

export const isSlotChange = <T extends { readonly kind: string }>(
  event: T,
): event is Extract<T, { readonly kind: SlotChange['kind'] }> => event.kind.startsWith('slot.')

export const attemptOf = (slot: Slot | undefined, hash: string | null): SlotAttempt | undefined =>
  slot?.attempts.find((attempt) => attempt.hash === hash)

export function signedAs(slot: Slot, attempt: SlotAttempt): SignedAs {
  const before = slot.attempts[slot.attempts.indexOf(attempt) - 1]
  if (attempt.kind === 'cancel') return 'cancel'
  if (before === undefined) return 'first'
  if (attempt.candidateIds.length < before.candidateIds.length) return 'trim'
  const isHigher = BigInt(attempt.maxFeePerGas) > BigInt(before.maxFeePerGas)
  return before.sentAtMs !== null || isHigher ? 'fee_bump' : 'anew'
}
