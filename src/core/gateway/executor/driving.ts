/** Takes a slot from decision to decision; `next` decides, here decisions are carried out. */
import { ChainError, type Hex } from '../../ports.js'
import type { Candidate } from '../../protocol/candidate.js'
import type { Slot, SlotAttempt } from '../ledger/ledger.js'
import type { Heads } from '../view/state.js'
import { fitTogether, judgeAll, type Load } from './packing.js'
import { mayRaise, send, sign } from './sending.js'
import { type Action, next } from './slot.js'
import { receiptChanges, retreatChanges, sentChanges } from './slot-changes.js'
import { closeExecuted, closeReverted, closeTaken, closeWithout, indexSlot } from './slot-ends.js'
import { factsOf, type Gathered } from './slot-facts.js'
import { aliveOf, type Executor, isDoomed } from './state.js'
import { carriedBy, carrying, readTransaction } from './transaction.js'

/** Steps of one slot in one go; more means that a decision does not hold: the next head is awaited. */
const stepsAtOnce = 12

/**
 * Takes a slot as far as it goes before the next block. Its trouble with the chain holds up no
 * other; the next look takes it up again, and an invalid response is a fault meanwhile.
 */
export function driveSlot(executor: Executor, slotId: string, gathered: Gathered): Promise<void> {
  return executor.faults.look(slotId, async () => {
    try {
      for (let step = 0; step < stepsAtOnce; step += 1) {
        const slot = executor.ports.ledger.slots().find(({ id }) => id === slotId)
        if (slot === undefined) return
        const action = next(slot, factsOf(executor, slot, gathered))
        if (!(await carryOut(executor, slot, action, gathered))) return
      }
    } catch (error) {
      noteChainFault(executor, slotId, error)
    }
  })
}

/** Notes an invalid response of a subject; what is no fault of the chain is thrown. */
export function noteChainFault({ faults }: Executor, about: string, error: unknown): void {
  if (!(error instanceof ChainError)) throw error
  if (error.kind !== 'unavailable') faults.note(about, error.message)
}

/** True where the slot may go on at once; a commit is false where an operator was quicker. */
async function carryOut(
  executor: Executor,
  slot: Slot,
  action: Action,
  gathered: Gathered,
): Promise<boolean> {
  const { heads } = gathered
  const { ledger, clock, failpoint } = executor.ports
  const alive = aliveOf(executor, slot)
  const nowMs = clock.nowMs()
  const mined = () => {
    const { candidateIds } = 'receipt' in action ? action.attempt : { candidateIds: [''] }
    return alive.filter(({ id }) => candidateIds.includes(id))
  }
  if (action.kind !== 'close-taken') executor.takenSince.delete(slot.id)
  switch (action.kind) {
    case 'wait':
      if (action.stuck) {
        const sentence = `${action.why}: the fee that it pays may be too low for this chain`
        executor.faults.note(slot.id, sentence)
      }
      return false
    case 'prepare':
      return prepare(executor, slot, alive, heads)
    case 'send':
      return send(executor, slot, action.attempt, alive, heads)
    case 'replace': {
      const { data, gas } = readTransaction(action.attempt.raw)
      const { candidateIds } = action.attempt
      const plan = { kind: 'propose', candidateIds, data, gas } as const
      return sign(executor, slot, plan, heads, alive, action.attempt)
    }
    case 'trim':
      return trim(executor, slot, action.attempt, alive, heads)
    case 'cancel':
      return sign(executor, slot, { kind: 'cancel' }, heads, alive, action.attempt)
    case 'note-sent':
      return ledger.commit(sentChanges(slot, action.attempt, alive, nowMs), alive)
    case 'note-reverted':
      await ledger.commit(receiptChanges(slot, action.receipt, mined(), nowMs), alive)
      return false
    case 'retreat':
      return ledger.commit(retreatChanges(slot, alive, nowMs), alive)
    case 'confirm':
      if (!(await ledger.commit(receiptChanges(slot, action.receipt, mined(), nowMs), alive)))
        return false
      await failpoint('confirmed')
      return true
    case 'index':
      return indexSlot(executor, slot, action, heads)
    case 'close-executed':
      return closeExecuted(executor, slot, action.attempt, heads)
    case 'close-reverted':
      return closeReverted(executor, slot, action, heads)
    case 'close-cancelled':
      return closeWithout(executor, slot, action.receipt, heads)
    case 'close-abandoned':
      return closeWithout(executor, slot, undefined, heads)
    case 'close-taken':
      return gathered.maySend && closeTaken(executor, slot, gathered)
  }
}

async function prepare(
  executor: Executor,
  slot: Slot,
  alive: readonly Candidate[],
  heads: Heads,
): Promise<boolean> {
  let load = slot.attempts.length === 0 ? executor.loads.get(slot.id) : undefined
  if (load === undefined) {
    // After a restart, or where no node takes what was signed: what does not stand any more is not
    // sent at all.
    const refusals = new Map()
    const { valid, isUnknown } = await judgeAll(executor, alive, heads, refusals)
    if (isUnknown) return false
    load = (await fitTogether(executor, valid, refusals))[0]
  }
  if (load === undefined) return sign(executor, slot, { kind: 'cancel' }, heads, alive)
  const { carried, data, gas } = load
  const candidateIds = carried.map(({ candidate }) => candidate.id)
  return sign(executor, slot, { kind: 'propose', candidateIds, data, gas }, heads, alive)
}

function trim(
  executor: Executor,
  slot: Slot,
  attempt: SlotAttempt,
  alive: readonly Candidate[],
  heads: Heads,
): Promise<boolean> {
  // Where the ceiling leaves no room for another proposal, the nonce goes back: its cancellation
  // always has room.
  if (!mayRaise(executor, slot, attempt))
    return sign(executor, slot, { kind: 'cancel' }, heads, alive, attempt)
  // The gas limit was enough for more.
  const { data, gas } = readTransaction(attempt.raw)
  const proposals = carriedBy(data)
  const kept = alive
    .filter(({ id }) => attempt.candidateIds.includes(id))
    .filter((candidate) => !isDoomed(executor, candidate, heads))
  const calls = kept.flatMap(({ id }) => proposals[attempt.candidateIds.indexOf(id)] ?? [])
  const candidateIds = kept.map(({ id }) => id)
  const plan = { kind: 'propose', candidateIds, data: carrying(calls), gas } as const
  return sign(executor, slot, plan, heads, alive, attempt)
}

/** Binds a nonce to a load and sends it. Without a load the nonce goes back by a self-transfer. */
export async function bindNonce(
  executor: Executor,
  nonce: number,
  load: Load | undefined,
  heads: Heads,
  nonceLatest: number,
): Promise<void> {
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
  if (!(await ledger.commit([{ kind: 'slot.opened', slot }], basis))) return
  if (load) executor.loads.set(slot.id, load)
  await failpoint('reserved')
  await driveSlot(executor, slot.id, {
    heads,
    maySend: true,
    nonceLatest,
    nonceFinalized: 0,
    receipts: new Map(),
    held: new Set<Hex>(),
  })
}
