/** Why changes must not be committed: what no fold would take. */
import { type CandidateState, mayBecome } from '../../protocol/candidate.js'
import type { Change, Slot } from './ledger.js'
import { foldSlot, isSlotChange, type OpenSlots } from './slots.js'
import type { LedgerState } from './state.js'

/**
 * Why a set of changes must not be committed on this state, or `undefined`. Judged before anything
 * is written, since a record that `apply` refuses would make the log unreadable.
 */
export function changeFault(state: LedgerState, changes: readonly Change[]): string | undefined {
  const statuses = new Map<string, CandidateState>()
  const slots: OpenSlots = new Map(state.slots)
  for (const change of changes) {
    const fault = isSlotChange(change)
      ? slotFault(state, slots, change)
      : change.kind === 'candidate.progress'
        ? progressFault(state, statuses, change)
        : change.kind === 'candidate.checked'
          ? endedFault(state, change.id)
          : undefined
    if (fault !== undefined) return fault
  }
  return undefined
}

const endedFault = (state: LedgerState, id: string) =>
  state.entries.get(id)?.live ? undefined : `candidate ${id} is unknown or has ended`

function progressFault(
  state: LedgerState,
  statuses: Map<string, CandidateState>,
  { id, progress }: Extract<Change, { kind: 'candidate.progress' }>,
): string | undefined {
  const entry = state.entries.get(id)
  if (!entry?.live) return endedFault(state, id)
  const from = statuses.get(id) ?? entry.status
  if (!mayBecome(from, progress.status))
    return `candidate ${id} cannot go from ${from} to ${progress.status}`
  statuses.set(id, progress.status)
  return undefined
}

/** The fault of a change of a slot; without one it is applied to `slots`. */
function slotFault(
  state: LedgerState,
  slots: OpenSlots,
  change: Parameters<typeof foldSlot>[1],
): string | undefined {
  if (change.kind === 'slot.opened') {
    const fault = openingFault(state, slots, change.slot)
    if (fault !== undefined) return fault
  } else {
    const slot = slots.get(change.slotId)
    if (change.kind === 'slot.sent' || change.kind === 'slot.mined') {
      if (!slot?.attempts.some(({ hash }) => hash === change.hash))
        return `slot ${change.slotId} has no attempt ${change.hash}`
    } else if (slot === undefined) return `slot ${change.slotId} is not open`
  }
  foldSlot(slots, change)
  return undefined
}

function openingFault(
  state: LedgerState,
  slots: OpenSlots,
  { id, executor, nonce, candidateIds }: Slot,
): string | undefined {
  if (slots.has(id)) return `slot ${id} is already open`
  const isBound = [...state.slots.values()].some(
    (slot) => slot.executor === executor && slot.nonce === nonce,
  )
  // What carries no proposal may fill a gap below; a proposal never gets a nonce that may have
  // served another one (R3).
  const isFiller = candidateIds.length === 0 && !isBound
  if (!isFiller && nonce <= (state.highestNonce.get(executor) ?? -1))
    return `nonce ${nonce} was bound before`
  for (const candidateId of candidateIds) {
    const fault = endedFault(state, candidateId)
    if (fault !== undefined) return fault
    if (state.slotOf.has(candidateId)) return `candidate ${candidateId} has an open slot`
  }
  return undefined
}
