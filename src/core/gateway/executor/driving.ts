import { ChainError, type Hex } from '#ports'
import type { Slot, SlotAttempt } from '../ledger/ledger.js'
import type { Heads } from '../view/state.js'
import { fitTogether, judgeAll, type Unsendable } from './packing.js'
import { mayRaise, send, sign } from './sending.js'
import { type Action, type ChainFacts, next } from './slot.js'
import { sentChanges } from './slot-changes.js'
import { closeExecuted, closeReverted, closeTaken, closeWithout } from './slot-ends.js'
import { factsOf } from './slot-facts.js'
import {
  type Executor,
  isDoomed,
  type Load,
  lookAtSlot,
  type SlotLook,
  type ValidCall,
} from './state.js'
import { carriedBy, carrying, readTransaction } from './transaction.js'

/** More means that a decision does not hold: the next head is awaited. */
const stepsAtOnce = 12

/** Its trouble with the chain holds up no other slot; the next look takes it up again. */
export function driveSlot(executor: Executor, slotId: string, heads: Heads, shown: ChainFacts) {
  return executor.faults.look(slotId, async () => {
    try {
      for (let step = 0; step < stepsAtOnce; step += 1) {
        const look = lookAtSlot(executor, slotId, heads, shown)
        if (look === undefined || !(await carryOut(look, next(look.slot, factsOf(look))))) return
      }
    } catch (error) {
      noteChainFault(executor, slotId, error)
    }
  })
}

export function noteChainFault({ faults }: Executor, about: string, error: unknown) {
  if (!(error instanceof ChainError)) throw error
  if (error.kind !== 'unavailable') faults.note(about, error.message)
}

async function carryOut(look: SlotLook, action: Action) {
  const { executor, slot, alive } = look
  const { ledger, clock } = executor.ports
  if (action.kind !== 'close-taken') executor.takenSince.delete(slot.id)
  switch (action.kind) {
    case 'wait':
      if (action.stuck) executor.faults.note(slot.id, action.why)
      return false
    case 'prepare':
      return prepare(look)
    case 'send':
      return send(look, action.attempt)
    case 'replace': {
      const { data, gas } = readTransaction(action.attempt.raw)
      const { candidateIds } = action.attempt
      return sign(look, { kind: 'propose', candidateIds, data, gas }, action.attempt)
    }
    case 'trim':
      return trim(look, action.attempt)
    case 'cancel':
      return sign(look, { kind: 'cancel' }, action.attempt)
    case 'note-sent':
      return ledger.commit(sentChanges(slot, action.attempt, alive, clock.nowMs()), alive)
    case 'record-executed':
      return closeExecuted(look, action, true)
    case 'close-executed':
      return closeExecuted(look, action)
    case 'close-reverted':
      return closeReverted(look, action)
    case 'close-cancelled':
      return closeWithout(look, action.receipt)
    case 'close-abandoned':
      return closeWithout(look)
    case 'close-taken':
      return look.shown.maySend && closeTaken(look)
  }
}

async function prepare(look: SlotLook) {
  const { executor, slot, alive, heads } = look
  let load = slot.attempts.length === 0 ? executor.loads.get(slot.id) : undefined
  const isAlive = ({ candidate }: ValidCall) => alive.some(({ id }) => id === candidate.id)
  if (load === undefined || !load.carried.every(isAlive)) {
    // After a restart, or an operator's rejection: what does not stand any more is not sent at
    // all.
    const unsendable: Unsendable = new Map()
    const { valid, isUnknown } = await judgeAll(executor, alive, heads, unsendable)
    if (isUnknown) return false
    const { latest } = executor.ports.newestHeads()
    load = (await fitTogether(executor, valid, latest, unsendable))[0]
  }
  if (load === undefined) return sign(look, { kind: 'cancel' })
  const { carried, data, gas } = load
  const candidateIds = carried.map(({ candidate }) => candidate.id)
  const isSigned = await sign(look, { kind: 'propose', candidateIds, data, gas })
  if (isSigned) executor.loads.delete(slot.id)
  return isSigned
}

function trim(look: SlotLook, attempt: SlotAttempt) {
  const { executor, alive, heads } = look
  if (!mayRaise(look, attempt)) return sign(look, { kind: 'cancel' }, attempt)
  const { data, gas } = readTransaction(attempt.raw)
  const proposals = carriedBy(data)
  const kept = alive
    .filter(({ id }) => attempt.candidateIds.includes(id))
    .filter((candidate) => !isDoomed(executor, candidate, heads))
  const calls = kept.flatMap(({ id }) => proposals[attempt.candidateIds.indexOf(id)] ?? [])
  const candidateIds = kept.map(({ id }) => id)
  return sign(look, { kind: 'propose', candidateIds, data: carrying(calls), gas }, attempt)
}

/** Resolves once the nonce is durably bound. Without a load it goes back by a self-transfer. */
export async function bindNonce(
  executor: Executor,
  nonce: number,
  load: Load | undefined,
  heads: Heads,
  nonceLatest: number,
): Promise<{ readonly sent: Promise<void> }> {
  const { ledger, clock, random, signer, failpoint } = executor.ports
  const basis = load?.carried.map(({ candidate }) => candidate) ?? []
  const slot: Slot = {
    id: random.uuid(),
    executor: signer.address,
    nonce,
    candidateIds: basis.map(({ id }) => id),
    openedAtMs: clock.nowMs(),
    attempts: [],
  }
  if (!(await ledger.commit([{ kind: 'slot.opened', slot }], basis)))
    return { sent: Promise.resolve() }
  if (load) executor.loads.set(slot.id, load)
  await failpoint('reserved')
  const shown = {
    maySend: true,
    nonceLatest,
    nonceFinalized: 0,
    receipts: new Map(),
    held: new Set<Hex>(),
  }
  return { sent: driveSlot(executor, slot.id, heads, shown) }
}
