/**
 * One nonce a transaction and one transaction a round (R3), every step durable before the next
 * (robustness §3, R15, R23). What cannot be sent binds no nonce (domain §2.2, §8).
 */
import { ChainError, type Hex } from '#ports'
import type { Candidate } from '#protocol/candidate'
import type { Slot, SlotAttempt } from '../ledger/ledger.js'
import { progressChange, selected, standsInAgain } from '../validation/progress.js'
import {
  type Judgement,
  type ProposalCall,
  type SideBySide,
  sideBySide,
} from '../validation/validation.js'
import type { Heads } from '../view/state.js'
import { chunks, fitTogether, halves, judgeAll, type Unsendable } from './packing.js'
import { canPay, mayRaise, newSlots, roomFor, send, sign } from './sending.js'
import { type Action, type ChainFacts, next, sentChanges } from './slot.js'
import {
  closeExecuted,
  closeReverted,
  closeTaken,
  closeWithout,
  factsOf,
  gather,
  readDoomed,
} from './slot-facts.js'
import {
  type Executor,
  isDoomed,
  isDoubtOver,
  isIsolated,
  isSuspect,
  type Load,
  ownSlots,
  type SlotLook,
} from './state.js'
import { callIn, carrying, readTransaction } from './transaction.js'

const stepsAtOnce = 12

function driveSlot(executor: Executor, slotId: string, heads: Heads, shown: ChainFacts) {
  const { ledger } = executor.ports
  return executor.faults.look(slotId, async () => {
    try {
      for (let step = 0; step < stepsAtOnce; step += 1) {
        const slot = ledger.slots().find(({ id }) => id === slotId)
        if (slot === undefined) return
        const alive = ledger.active().filter(({ id }) => slot.candidateIds.includes(id))
        const look = { executor, slot, alive, heads, shown }
        if (!(await carryOut(look, next(slot, factsOf(look))))) return
      }
    } catch (error) {
      noteChainFault(executor, slotId, error)
    }
  })
}

function noteChainFault({ faults }: Executor, about: string, error: unknown) {
  if (!(error instanceof ChainError)) throw error
  if (error.kind !== 'unavailable') faults.note(about, error.message)
}

async function carryOut(look: SlotLook, action: Action) {
  const { executor, slot, alive, shown } = look
  const { ledger, clock } = executor.ports
  if (action.kind !== 'close-taken') executor.doubts.delete(slot.id)
  switch (action.kind) {
    case 'wait':
      if (action.why !== undefined) executor.faults.note(slot.id, action.why)
      return false
    case 'prepare':
      return prepare(look)
    case 'send':
      return send(look, action.attempt)
    case 'replace':
      return replace(look, action.attempt)
    case 'cancel':
      return sign(look, undefined, action.attempt)
    case 'note-sent':
      return ledger.commit(sentChanges(slot, action.attempt, alive, clock.nowMs()), alive)
    case 'record-executed':
    case 'close-executed':
      return closeExecuted(look, action, action.kind === 'record-executed')
    case 'close-reverted':
      return closeReverted(look, action)
    case 'close-cancelled':
      return closeWithout(look, action.receipt)
    case 'close-abandoned':
      return closeWithout(look)
    case 'close-taken':
      return shown.maySend && closeTaken(look)
  }
}

async function prepare(look: SlotLook) {
  const { executor, slot, alive, heads } = look
  const isAlive = ({ candidate }: ProposalCall) => alive.some(({ id }) => id === candidate.id)
  let load = slot.attempts.length === 0 ? executor.loads.get(slot.id) : undefined
  if (load === undefined || !load.carried.every(isAlive)) {
    // After a restart, or an operator's rejection: what does not stand any more is not sent.
    const unsendable: Unsendable = new Map()
    const valid = await judgeAll(executor, alive, heads, unsendable)
    if ([...unsendable.values()].some(({ kind }) => kind === 'unknown')) return false
    const { latest } = executor.ports.newestHeads()
    load = (await fitTogether(executor, valid, latest, unsendable))[0]
  }
  const wanted = load && {
    ...load,
    candidateIds: load.carried.map(({ candidate }) => candidate.id),
  }
  const isSigned = await sign(look, wanted)
  if (isSigned) executor.loads.delete(slot.id)
  return isSigned
}

/** For those that mining can still execute: one that can only revert would sink all (domain §2.2). */
function replace(look: SlotLook, attempt: SlotAttempt) {
  const { executor, alive } = look
  if (!mayRaise(look, attempt)) return sign(look, undefined, attempt)
  const hopeful = new Set(
    alive.filter((candidate) => !isDoomed(executor, candidate)).map(({ id }) => id),
  )
  const candidateIds = attempt.candidateIds.filter((id) => hopeful.has(id))
  const data = carrying(candidateIds.flatMap((id) => callIn(attempt, id) ?? []))
  return sign(look, { candidateIds, data, gas: readTransaction(attempt.raw).gas }, attempt)
}

/** Resolves once durably bound. Without a load the nonce goes back by a self-transfer. */
async function bindNonce(
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
  // A stand-in takes the place of its round's selected candidate in the same commit (R3).
  const standIns = basis.filter(({ progress }) => progress.status !== 'selected')
  const rounds = new Set(standIns.map(({ round }) => round.key))
  const holders = ledger
    .active()
    .filter(({ round, progress }) => rounds.has(round.key) && progress.status === 'selected')
  const nowMs = clock.nowMs()
  const changes = [
    ...holders.map((one) => progressChange(one, standsInAgain(one.progress, nowMs))),
    ...standIns.map((one) => progressChange(one, selected(one.progress, nowMs, null))),
    { kind: 'slot.opened', slot } as const,
  ]
  if (!(await ledger.commit(changes, [...basis, ...holders]))) return { sent: Promise.resolve() }
  if (load) executor.loads.set(slot.id, load)
  await failpoint('reserved')
  const none = { receipts: new Map(), held: new Set<Hex>() }
  const shown = { maySend: true, nonceLatest, nonceFinalized: 0, ...none }
  return { sent: driveSlot(executor, slot.id, heads, shown) }
}

interface Opening {
  readonly executor: Executor
  readonly heads: Heads
  readonly nonceLatest: number
  readonly unsendable: Unsendable
  readonly begun: SideBySide<unknown>
  isStopping(): boolean
}

/** Of each round one, and of no busy one (R3). What was not sent has its judgement. */
export async function openSlots(
  executor: Executor,
  candidates: readonly Candidate[],
  heads: Heads,
  isStopping: () => boolean,
): Promise<ReadonlyMap<string, Judgement>> {
  const { chain, signer } = executor.ports
  const unsendable: Unsendable = new Map()
  const nonceLatest = await chain.transactionCount(signer.address, 'latest')
  if (!(await isCountSound(executor, nonceLatest, heads))) return unsendable
  const begun = sideBySide()
  try {
    await openParts({ executor, heads, nonceLatest, unsendable, begun, isStopping }, candidates)
  } finally {
    await begun.ended()
  }
  return unsendable
}

async function openParts(opening: Opening, candidates: readonly Candidate[]) {
  const { executor, begun, unsendable } = opening
  const { config, turn } = executor.ports
  let at = 0
  while (at < candidates.length && mayOpen(opening)) {
    const parts: Promise<readonly Load[]>[] = []
    for (let room = roomOf(opening); room > 0 && at < candidates.length; room -= 1) {
      if (parts.length > 0) await turn()
      const part = preparePart(opening, candidates.slice(at, at + config.batch))
      begun.add(part)
      parts.push(part)
      at += config.batch
    }
    for (const part of parts) {
      const loads = await part
      if ([...unsendable.values()].some(({ kind }) => kind === 'operator')) return
      for (const load of loads)
        await sendLoad(opening, load).catch((error: unknown) =>
          noteChainFault(executor, newSlots, error),
        )
    }
  }
}

async function preparePart(opening: Opening, candidates: readonly Candidate[]) {
  const { executor, heads, unsendable } = opening
  const valid = await judgeAll(executor, candidates, heads, unsendable)
  const isAlone = (call: ProposalCall) => isIsolated(executor, call)
  const groups = chunks(valid, executor.ports.config.batch, isAlone)
  return (await Promise.all(groups.map((group) => pack(opening, group)))).flat()
}

async function pack(
  { executor, unsendable }: Opening,
  group: readonly ProposalCall[],
  mayGuess = true,
) {
  const { latest } = executor.ports.newestHeads()
  try {
    return await fitTogether(executor, group, latest, unsendable, mayGuess)
  } catch (error) {
    noteChainFault(executor, newSlots, error)
    return []
  }
}

/** A bound nonce keeps its candidates waiting: none for a key that does not sign. */
function roomOf({ executor, nonceLatest }: Opening) {
  const pending = ownSlots(executor).filter(({ nonce }) => nonce >= nonceLatest)
  const isUnsigned = pending.some(({ attempts }) => attempts.length === 0)
  if (executor.unsigned !== undefined && isUnsigned) return 0
  return executor.ports.config.in_flight - pending.length
}

const mayOpen = (opening: Opening) => roomOf(opening) > 0 && !opening.isStopping()

async function sendLoad(opening: Opening, load: Load) {
  if (!mayOpen(opening)) return
  const { executor, heads, nonceLatest, unsendable, begun } = opening
  const { ledger, signer } = executor.ports
  const { carried, gas, isUsual } = load
  const room = ({ candidate }: ProposalCall) => roomFor(executor, candidate.proposer)
  const short = carried.filter((call) => room(call).gas < gas)
  if (short.length > 0) {
    // They wait until what is on its way is mined, or go alone; nobody waits for them.
    const idle = short.filter((call) => room(call).isIdle)
    const others = carried.filter((call) => !short.includes(call))
    const parts = [others, ...idle.map((call) => [call])]
    return carried.length > 1 ? sendParts(opening, parts) : undefined
  }
  const hasSuspects = carried.some((call) => isSuspect(executor, call))
  const paid = await canPay(executor, load, hasSuspects, nonceLatest)
  if (paid === 'yes') {
    const nonce = Math.max(nonceLatest, ledger.highestNonce(signer.address) + 1)
    begun.add((await bindNonce(executor, nonce, load, heads, nonceLatest)).sent)
  } else if (paid === 'waits') {
    const detail = `The executor's balance does not cover ${gas} gas and an ordinary proposal beside it.`
    for (const { candidate } of carried) unsendable.set(candidate.id, { kind: 'wait', detail })
  } else if (carried.length > 1) await sendParts(opening, halves(carried))
  else if (isUsual)
    for (const fitted of await pack(opening, carried, false)) await sendLoad(opening, fitted)
}

async function sendParts(
  opening: Opening,
  parts: readonly (readonly ProposalCall[])[],
): Promise<void> {
  for (const part of parts)
    for (const load of await pack(opening, part)) await sendLoad(opening, load)
}

const mostFilled = 16

/** What is bound above nonces that nothing uses waits until they are filled (R27). */
async function isCountSound(executor: Executor, nonceLatest: number, heads: Heads) {
  const { ledger, chain, signer } = executor.ports
  const { address } = signer
  const isOurs = nonceLatest <= ledger.highestNonce(address) + 1
  const final = isOurs ? nonceLatest : await chain.transactionCount(address, 'finalized')
  const own = ownSlots(executor).filter(({ nonce }) => nonce >= final && nonce < nonceLatest)
  const unknown = nonceLatest - final - own.length
  if (unknown <= 0) executor.doubts.delete(newSlots)
  if (unknown <= 0 || (isDoubtOver(executor, newSlots, heads) && unknown <= mostFilled)) return true
  const counted = `the node counts ${nonceLatest} transactions of the executor ${address}`
  executor.faults.note(
    newSlots,
    `${counted}, ${unknown} more than are final or of this store: waiting until they are final`,
  )
  return false
}

/** A wider gap is left to the operator: another key costs less than filling it. */
const mostMissing = 1_000
const missing = 'missing'

export async function followSlots(executor: Executor, heads: Heads, maySend: boolean) {
  const { faults, ports } = executor
  const slots = ports.ledger.slots()
  executor.shown = await gather(ports.chain, slots, heads, maySend)
  const reverted = slots.flatMap(({ id, attempts }) =>
    attempts.filter(
      ({ hash }) => executor.shown.get(id)?.receipts.get(hash)?.status === 'reverted',
    ),
  )
  const sunk = new Set(reverted.flatMap(({ candidateIds }) => candidateIds))
  const culprits = ports.ledger.active().filter(({ id }) => sunk.has(id))
  executor.reverting = new Set(culprits.map(({ proposer }) => proposer))
  executor.doomed = await readDoomed(executor, heads)
  for (const [id, shown] of executor.shown) await driveSlot(executor, id, heads, shown)
  await faults.look(missing, async () => {
    const gap = findGap(executor, slots, heads)
    if (gap === undefined) return
    faults.note(missing, gap.fault)
    // The lowest first: nodes keep few transactions that wait for others.
    if (maySend)
      for (const nonce of gap.due)
        await (await bindNonce(executor, nonce, undefined, heads, nonce)).sent
  })
}

export function executorFaults({ ports, faults }: Executor) {
  const former = ports.ledger.slots().filter(({ executor }) => executor !== ports.signer.address)
  return [
    ...faults.all(),
    ...former.map(
      ({ executor, nonce }) =>
        `nonce ${nonce} of the former executor ${executor} is not settled yet`,
    ),
  ]
}

/** Below one of ours: of a node that counted too high, or a chain that lost final blocks (R27). */
function findGap(executor: Executor, slots: readonly Slot[], { latest, finalized }: Heads) {
  const { address } = executor.ports.signer
  const own = slots.filter((slot) => slot.executor === address)
  // A receipt proves more than a count: the nonces up to its own are used.
  const next = Math.max(
    ...own.map(({ id, nonce }) => {
      const { nonceLatest = 0, receipts } = executor.shown.get(id) ?? {}
      return receipts?.size ? Math.max(nonceLatest, nonce + 1) : nonceLatest
    }),
  )
  const waiting = own.map(({ nonce }) => nonce).filter((nonce) => nonce >= next)
  const last = Math.max(...waiting)
  const count = waiting.length === 0 ? 0 : last + 1 - next - waiting.length
  if (count === 0) {
    executor.gap = undefined
    return undefined
  }
  let first = next
  while (waiting.includes(first)) first += 1
  const since = executor.gap && first >= executor.gap.nonce ? executor.gap.since : latest.number
  executor.gap = { nonce: first, since }
  const fault = `nonce ${first} of the executor ${address} is not used by any transaction, and ${waiting.length} open transactions wait for it: ${count} nonces are missing`
  if (count > mostMissing)
    return { fault: `${fault}, more than are filled: give the executor another key`, due: [] }
  const lowest = Array.from({ length: mostFilled }, (_, at) => next + at)
  const isSettled = finalized.number >= since
  return {
    fault: `${fault}, filled by self-transfers once that is final`,
    due: isSettled ? lowest.filter((nonce) => nonce < last && !waiting.includes(nonce)) : [],
  }
}
