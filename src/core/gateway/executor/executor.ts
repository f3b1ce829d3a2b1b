/**
 * One nonce a transaction and one transaction a round (R3), every step durable before the next
 * (robustness §3, R15, R23). What cannot be sent binds no nonce: it is judged again, packed and
 * paid for before (domain §2.2, §8).
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
  busyRounds,
  type Executor,
  gasStandingIn,
  isDoomed,
  type Load,
  lookAtSlot,
  mostFilled,
  ownSlots,
  type SlotLook,
  type ValidCall,
} from './state.js'
import { callIn, carrying, readTransaction } from './transaction.js'

/** More means that a decision does not hold: the next head is awaited. */
const stepsAtOnce = 12

/** Its trouble with the chain holds up no other slot; the next look takes it up again. */
function driveSlot(executor: Executor, slotId: string, heads: Heads, shown: ChainFacts) {
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

function noteChainFault({ faults }: Executor, about: string, error: unknown) {
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
    case 'replace':
      return replace(look, action.attempt)
    case 'cancel':
      return sign(look, undefined, action.attempt)
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
    const valid = await judgeAll(executor, alive, heads, unsendable)
    if ([...unsendable.values()].some(({ kind }) => kind === 'unknown')) return false
    const { latest } = executor.ports.newestHeads()
    load = (await fitTogether(executor, valid, latest, unsendable))[0]
  }
  if (load === undefined) return sign(look, undefined)
  const { carried, data, gas } = load
  const candidateIds = carried.map(({ candidate }) => candidate.id)
  const isSigned = await sign(look, { candidateIds, data, gas })
  if (isSigned) executor.loads.delete(slot.id)
  return isSigned
}

/** Higher fees, for those that mining can still execute: one that can only revert would sink all. */
function replace(look: SlotLook, attempt: SlotAttempt) {
  const { executor, alive, heads } = look
  if (!mayRaise(look, attempt)) return sign(look, undefined, attempt)
  const { data, gas } = readTransaction(attempt.raw)
  const candidateIds = alive
    .filter((candidate) => !isDoomed(executor, candidate, heads))
    .map(({ id }) => id)
    .filter((id) => attempt.candidateIds.includes(id))
  const isWhole = candidateIds.length === attempt.candidateIds.length
  const calls = candidateIds.flatMap((id) => callIn(attempt, id) ?? [])
  const wanted = isWhole
    ? { candidateIds: attempt.candidateIds, data, gas }
    : { candidateIds, data: carrying(calls), gas }
  return sign(look, wanted, attempt)
}

/** Resolves once the nonce is durably bound. Without a load it goes back by a self-transfer. */
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
  const places = basis.map((candidate) => takePlace(executor, candidate))
  const changes = [...places.flatMap((one) => one.changes), { kind: 'slot.opened', slot } as const]
  const holders = places.flatMap((one) => one.holders)
  if (!(await ledger.commit(changes, [...basis, ...holders]))) return { sent: Promise.resolve() }
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

/** A stand-in goes in the place of its round's selected candidate, in the commit that binds it (R3). */
function takePlace({ ports }: Executor, candidate: Candidate) {
  const { ledger, clock } = ports
  if (candidate.progress.status === 'selected') return { holders: [], changes: [] }
  const nowMs = clock.nowMs()
  const holders = ledger
    .active()
    .filter(
      ({ round, progress }) => round.key === candidate.round.key && progress.status === 'selected',
    )
  const changes = [
    ...holders.map((one) => progressChange(one, standsInAgain(one.progress, nowMs))),
    progressChange(candidate, selected(candidate.progress, nowMs, null)),
  ]
  return { holders, changes }
}

interface Opening {
  readonly heads: Heads
  readonly nonceLatest: number
  readonly unsendable: Unsendable
  readonly begun: SideBySide
  isStopping(): boolean
}

/** By candidate id the judgement where it was not sent. */
export async function openSlots(
  executor: Executor,
  candidates: readonly Candidate[],
  heads: Heads,
  isStopping: () => boolean,
): Promise<ReadonlyMap<string, Judgement>> {
  const { ledger, chain, signer } = executor.ports
  const unsendable: Unsendable = new Map()
  const busy = busyRounds(ledger)
  const free = candidates.filter(({ round }) => !busy.has(round.key))
  if (free.length === 0) return unsendable
  const nonceLatest = await chain.transactionCount(signer.address, 'latest')
  if (!(await isCountSound(executor, nonceLatest, heads))) return unsendable
  const opening: Opening = { heads, nonceLatest, unsendable, begun: sideBySide(), isStopping }
  try {
    await openParts(executor, free, opening)
  } finally {
    await opening.begun.ended()
  }
  return unsendable
}

/** Parts are prepared at once and sent in order: none waits for the parts behind it. */
async function openParts(executor: Executor, free: readonly Candidate[], opening: Opening) {
  const { maxBatch } = executor.ports
  let at = 0
  while (at < free.length && mayOpen(executor, opening)) {
    const parts: Promise<readonly Load[]>[] = []
    for (let room = roomOf(executor, opening); room > 0 && at < free.length; room -= 1) {
      if (parts.length > 0) await executor.ports.turn()
      const part = preparePart(executor, free.slice(at, at + maxBatch), opening)
      opening.begun.add(part)
      parts.push(part)
      at += maxBatch
    }
    for (const part of parts) {
      const loads = await part
      if ([...opening.unsendable.values()].some(({ kind }) => kind === 'operator')) return
      for (const load of loads)
        await sendLoad(executor, load, opening).catch((error: unknown) =>
          noteChainFault(executor, newSlots, error),
        )
    }
  }
}

async function preparePart(executor: Executor, candidates: readonly Candidate[], opening: Opening) {
  const valid = await judgeAll(executor, candidates, opening.heads, opening.unsendable)
  const groups = chunks(valid, executor.ports.maxBatch, (call) => isIsolated(executor, call))
  return (await Promise.all(groups.map((group) => pack(executor, group, opening)))).flat()
}

async function pack(
  executor: Executor,
  group: readonly ValidCall[],
  { unsendable }: Opening,
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

export const isIsolated = (executor: Executor, call: ProposalCall) =>
  isSuspect(executor, call) ||
  executor.isolated.has(call.candidateId) ||
  executor.reverting.has(call.proposer)

const isSuspect = (executor: Executor, { proposer, walletHasCode }: ProposalCall) =>
  walletHasCode || gasStandingIn(executor, proposer)?.isAlone === true

/**
 * None while a transaction waits for a key that does not sign: a bound nonce keeps its candidates
 * waiting.
 */
function roomOf(executor: Executor, { nonceLatest }: Opening) {
  const pending = ownSlots(executor).filter(({ nonce }) => nonce >= nonceLatest)
  const isUnsigned = pending.some(({ attempts }) => attempts.length === 0)
  if (executor.unsigned !== undefined && isUnsigned) return 0
  return executor.ports.maxInFlight - pending.length
}

const mayOpen = (executor: Executor, opening: Opening) =>
  roomOf(executor, opening) > 0 && !opening.isStopping()

async function sendLoad(executor: Executor, load: Load, opening: Opening) {
  if (!mayOpen(executor, opening)) return
  const { carried, gas, isUsual } = load
  const [first] = carried
  const short = carried.filter(
    ({ proposer }) => roomFor(executor, proposer, opening.heads).gas < gas,
  )
  if (short.length > 0) return sendApart(executor, carried, short, opening)
  const suspects = carried.some((call) => isSuspect(executor, call))
  const paid = await canPay(executor, load, suspects, opening)
  if (paid === 'yes') return launch(executor, load, opening)
  if (paid === 'waits' && first) {
    const detail = `The executor's balance does not cover ${gas} gas and an ordinary proposal beside it.`
    opening.unsendable.set(first.candidate.id, { kind: 'wait', detail })
    return
  }
  const parts = isUsual ? [carried] : carried.length > 1 ? halves(carried) : []
  for (const part of parts)
    for (const smaller of await pack(executor, part, opening, false))
      await sendLoad(executor, smaller, opening)
}

/**
 * `short`: of wallets of which as much is on its way as may fail. They wait until that is mined, or
 * go alone; the others do not wait for them.
 */
async function sendApart(
  executor: Executor,
  carried: readonly ValidCall[],
  short: readonly ValidCall[],
  opening: Opening,
) {
  if (carried.length === 1) return
  const isIdle = ({ proposer }: ValidCall) => roomFor(executor, proposer, opening.heads).isIdle
  const alone = short.filter(isIdle).map((call) => [call])
  for (const part of [carried.filter((call) => !short.includes(call)), ...alone])
    for (const smaller of await pack(executor, part, opening))
      await sendLoad(executor, smaller, opening)
}

async function launch(executor: Executor, load: Load, opening: Opening) {
  const { ledger, signer } = executor.ports
  const { heads, nonceLatest } = opening
  const nonce = Math.max(nonceLatest, ledger.highestNonce(signer.address) + 1)
  opening.begun.add((await bindNonce(executor, nonce, load, heads, nonceLatest)).sent)
}

/**
 * What is bound above nonces that nothing uses waits until they are filled, which costs gas
 * (R27).
 * So they have to be final, or few and there for so long that their first head is.
 */
async function isCountSound(executor: Executor, nonceLatest: number, heads: Heads) {
  const { ledger, chain, signer } = executor.ports
  const { address } = signer
  const since = executor.unknownNoncesSince ?? heads.latest.number
  executor.unknownNoncesSince = undefined
  if (nonceLatest <= ledger.highestNonce(address) + 1) return true
  const final = await chain.transactionCount(address, 'finalized')
  const own = ownSlots(executor).filter(({ nonce }) => nonce >= final && nonce < nonceLatest)
  const unknown = nonceLatest - final - own.length
  if (unknown <= 0) return true
  executor.unknownNoncesSince = since
  if (unknown <= mostFilled && heads.finalized.number >= since) return true
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

/** `maySend` false: receipts are followed alone. */
export async function followSlots(executor: Executor, heads: Heads, maySend: boolean) {
  const { faults, ports } = executor
  const slots = ports.ledger.slots()
  executor.reverting = new Set()
  if (slots.length === 0) return faults.drop(missing)
  const gathered = await gather(ports.chain, slots, heads, maySend)
  const mined = slots.flatMap((slot) =>
    slot.attempts.flatMap((attempt) => {
      const receipt = gathered.get(slot.id)?.receipts.get(attempt.hash)
      return receipt ? [{ slot, attempt, receipt }] : []
    }),
  )
  const reverted = new Set(
    mined
      .filter(({ receipt }) => receipt.status === 'reverted')
      .filter(({ receipt }) => receipt.blockNumber > heads.finalized.number)
      .flatMap(({ attempt }) => attempt.candidateIds),
  )
  const sunk = reverted.size === 0 ? [] : ports.ledger.active().filter(({ id }) => reverted.has(id))
  executor.reverting = new Set(sunk.map(({ proposer }) => proposer))
  const succeeded = mined.filter(({ receipt }) => receipt.status === 'success')
  executor.succeeded = new Set(succeeded.map(({ slot }) => slot.id))
  executor.doomed = await readDoomed(executor, heads)
  for (const { id } of slots) {
    const shown = gathered.get(id)
    if (shown) await driveSlot(executor, id, heads, shown)
  }
  await faults.look(missing, async () => {
    const gap = findGap(executor, slots, gathered, heads)
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

/**
 * Nonces that nothing uses, below one of ours: no node mines what is above them. A node that
 * reported a count too high makes them, or a chain that lost final blocks (R27). Filled once the
 * head that first showed the gap is final: a count that lags or lies for a moment makes none
 * (R15).
 */
function findGap(
  executor: Executor,
  slots: readonly Slot[],
  gathered: ReadonlyMap<string, ChainFacts>,
  { latest, finalized }: Heads,
) {
  const { address } = executor.ports.signer
  const own = slots.filter((slot) => slot.executor === address)
  // A receipt proves more than a count: the nonces up to its own are used.
  const next = Math.max(
    ...own.map(({ id, nonce }) => {
      const { nonceLatest = 0, receipts } = gathered.get(id) ?? {}
      return receipts?.size ? Math.max(nonceLatest, nonce + 1) : nonceLatest
    }),
  )
  const waiting = own.map(({ nonce }) => nonce).filter((nonce) => nonce >= next)
  const last = Math.max(next, ...waiting)
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
