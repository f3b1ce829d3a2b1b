/**
 * One nonce a transaction and one transaction a round (R3), every step durable before the next
 * (robustness §3, R15, R23). What cannot be sent binds no nonce (domain §2.2, §8).
 */

import { gathered } from '#chain/aggregate'
import { revertOf, unlessRefused } from '#chain/reading'
import { carrying, gasLimit, readTransaction } from '#chain/transaction'
import { type BlockHeader, ChainError, type Hex } from '#ports'
import type { Candidate } from '#protocol/candidate'
import type { Slot, SlotAttempt } from '../ledger/ledger.js'
import {
  type Judgement,
  type JudgePorts,
  type ProposalCall,
  progressChange,
} from '../validation/validation.js'
import type { Heads } from '../view/state.js'
import {
  callIn,
  canPay,
  mayRaise,
  recordAttempt,
  roomFor,
  selected,
  send,
  sign,
  standsInAgain,
} from './sending.js'
import { type Action, end, factsOf, gather, next } from './slot.js'
import {
  type ChainFacts,
  doubtedSince,
  type Executor,
  feesNow,
  inParts,
  isDoomed,
  isDoubtOver,
  isIsolated,
  isSuspect,
  isTooLate,
  type Load,
  missing,
  mostGas,
  newSlots,
  noteFault,
  ownSlots,
  type RunPorts,
  type SlotLook,
  type SlotMemory,
  sideBySide,
  slotMemory,
  smallest,
  whileLooking,
} from './state.js'

const stepsAtOnce = 12

function driveSlot(executor: Executor, slotId: string, heads: Heads) {
  const { ledger } = executor.ports
  const memory = slotMemory(executor, slotId)
  return whileLooking(memory, async () => {
    try {
      for (let step = 0; step < stepsAtOnce; step += 1) {
        const slot = ledger.slots().find(({ id }) => id === slotId)
        const { shown } = memory
        if (slot === undefined || shown === undefined) return
        const alive = ledger.active().filter(({ id }) => slot.candidateIds.includes(id))
        const look = { executor, slot, alive, heads, shown, memory }
        if (!(await carryOut(look, next(slot, factsOf(look))))) return
      }
    } catch (error) {
      noteChainFault(memory, error)
    }
  })
}

function noteChainFault(memory: SlotMemory, error: unknown) {
  if (!(error instanceof ChainError)) throw error
  if (error.kind !== 'unavailable') noteFault(memory, error.message)
}

async function carryOut(look: SlotLook, action: Action) {
  const { memory } = look
  if (action.kind !== 'close-taken') memory.doubt = undefined
  switch (action.kind) {
    case 'wait':
      noteFault(memory, action.why)
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
      return recordAttempt(look, action.attempt, true)
    default:
      return end(look, action)
  }
}

async function prepare(look: SlotLook) {
  const { executor, slot, alive, heads, memory } = look
  const isAlive = ({ candidate }: ProposalCall) => alive.some(({ id }) => id === candidate.id)
  let load = slot.attempts.length === 0 ? memory.load : undefined
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
  if (isSigned) memory.load = undefined
  return isSigned
}

/** One that can only revert would sink all (domain §2.2). */
function replace(look: SlotLook, attempt: SlotAttempt) {
  const { alive } = look
  if (!mayRaise(look, attempt)) return sign(look, undefined, attempt)
  const hopeful = alive.filter((candidate) => !isDoomed(look, candidate))
  const candidateIds = attempt.candidateIds.filter((id) => hopeful.some((one) => one.id === id))
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
  const nowMs = clock.nowMs()
  const basis = load?.carried.map(({ candidate }) => candidate) ?? []
  const slot: Slot = {
    id: random.uuid(),
    executor: signer.address,
    nonce,
    candidateIds: basis.map(({ id }) => id),
    openedAtMs: nowMs,
    attempts: [],
  }
  // A stand-in takes the place of its round's selected candidate in the same commit (R3).
  const standIns = basis.filter(({ progress }) => progress.status !== 'selected')
  const rounds = new Set(standIns.map(({ round }) => round.key))
  const holders = ledger
    .active()
    .filter(({ round, progress }) => rounds.has(round.key) && progress.status === 'selected')
  const changes = [
    ...holders.map((one) => progressChange(one, standsInAgain(one.progress, nowMs))),
    ...standIns.map((one) => progressChange(one, selected(one.progress, nowMs, null))),
    { kind: 'slot.opened', slot } as const,
  ]
  if (!(await ledger.commit(changes, [...basis, ...holders]))) return { sent: Promise.resolve() }
  const none = new Set<never>()
  const counts = { maySend: true, nonceLatest, nonceFinalized: 0 }
  const shown = { ...counts, receipts: new Map(), held: none, doomed: none, reverting: none }
  Object.assign(slotMemory(executor, slot.id), { load, shown })
  await failpoint('reserved')
  return { sent: driveSlot(executor, slot.id, heads) }
}

interface Opening {
  readonly executor: Executor
  readonly heads: Heads
  readonly nonceLatest: number
  readonly unsendable: Unsendable
  readonly begun: ReturnType<typeof sideBySide>
  isStopping(): boolean
}

/** Of each round one, and of no busy one (R3). What was not sent has its judgement. */
export async function openSlots(
  executor: Executor,
  candidates: readonly Candidate[],
  heads: Heads,
  isStopping: () => boolean,
): Promise<ReadonlyMap<string, Judgement>> {
  const { chain, signer, config, turn } = executor.ports
  const unsendable: Unsendable = new Map()
  const nonceLatest = await chain.transactionCount(signer.address, 'latest')
  if (!(await isCountSound(executor, nonceLatest, heads))) return unsendable
  const begun = sideBySide()
  const opening = { executor, heads, nonceLatest, unsendable, begun, isStopping }
  const memory = slotMemory(executor, newSlots)
  const isAlone = (call: ProposalCall) => isIsolated(executor, call)
  const isHalted = () => [...unsendable.values()].some(({ kind }) => kind === 'operator')
  try {
    for (let at = 0; at < candidates.length && mayOpen(opening) && !isHalted(); ) {
      const parts: Promise<readonly Load[]>[] = []
      for (let room = roomOf(opening); room > 0 && at < candidates.length; room -= 1) {
        if (parts.length > 0) await turn()
        const part = judgeAll(
          executor,
          candidates.slice(at, at + config.batch),
          heads,
          unsendable,
        ).then((valid) => pack(opening, chunks(valid, config.batch, isAlone)))
        begun.add(part)
        parts.push(part)
        at += config.batch
      }
      for (const part of parts) {
        const loads = await part
        if (isHalted()) break
        for (const load of loads)
          await sendLoad(opening, load).catch((error: unknown) => noteChainFault(memory, error))
      }
    }
  } finally {
    await begun.ended()
  }
  return unsendable
}

async function pack(
  { executor, unsendable }: Opening,
  groups: readonly (readonly ProposalCall[])[],
  mayGuess = true,
) {
  const { latest } = executor.ports.newestHeads()
  const packed = groups.map((group) =>
    fitTogether(executor, group, latest, unsendable, mayGuess).catch((error: unknown) => {
      noteChainFault(slotMemory(executor, newSlots), error)
      return []
    }),
  )
  return (await Promise.all(packed)).flat()
}

/** A bound nonce keeps its candidates waiting: none for a key that does not sign. */
function roomOf({ executor, nonceLatest }: Opening) {
  const pending = ownSlots(executor).filter(({ nonce }) => nonce >= nonceLatest)
  const isUnsigned = pending.some(({ attempts }) => attempts.length === 0)
  if (executor.refused.key !== undefined && isUnsigned) return 0
  return executor.ports.config.in_flight - pending.length
}

const mayOpen = (opening: Opening) => roomOf(opening) > 0 && !opening.isStopping()

async function sendLoad(opening: Opening, load: Load): Promise<void> {
  if (!mayOpen(opening)) return
  const { executor, heads, nonceLatest, unsendable, begun } = opening
  const { ledger, signer } = executor.ports
  const { carried, gas, isUsual } = load
  const sendParts = async (parts: readonly (readonly ProposalCall[])[], mayGuess = true) => {
    for (const part of parts)
      for (const one of await pack(opening, [part], mayGuess)) await sendLoad(opening, one)
  }
  const room = ({ candidate }: ProposalCall) => roomFor(executor, candidate.proposer)
  const short = carried.filter((call) => room(call).gas < gas)
  if (short.length > 0) {
    // Nobody waits for them.
    const idle = short.filter((call) => room(call).isIdle)
    const others = carried.filter((call) => !short.includes(call))
    return carried.length > 1 ? sendParts([others, ...idle.map((call) => [call])]) : undefined
  }
  const hasSuspects = carried.some((call) => isSuspect(executor, call))
  const paid = await canPay(executor, load, hasSuspects, nonceLatest)
  if (paid === 'yes') {
    const nonce = Math.max(nonceLatest, ledger.highestNonce(signer.address) + 1)
    begun.add((await bindNonce(executor, nonce, load, heads, nonceLatest)).sent)
  } else if (paid === 'waits') {
    const detail = `The executor's balance does not cover ${gas} gas and an ordinary proposal beside it.`
    for (const { candidate } of carried) unsendable.set(candidate.id, { kind: 'wait', detail })
  } else if (carried.length > 1) await sendParts(halves(carried))
  else if (isUsual) await sendParts([carried], false)
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
  const memory = slotMemory(executor, newSlots)
  if (unknown <= 0) memory.doubt = undefined
  if (unknown <= 0 || (isDoubtOver(memory, 0, heads) && unknown <= mostFilled)) return true
  const counted = `the node counts ${nonceLatest} transactions of the executor ${address}`
  const why = `${unknown} more than are final or of this store: waiting until they are final`
  noteFault(memory, `${counted}, ${why}`)
  return false
}

const mostMissing = 1_000
export async function followSlots(executor: Executor, heads: Heads, maySend: boolean) {
  const slots = executor.ports.ledger.slots()
  const facts = await gather(executor, heads, maySend)
  for (const id of executor.slots.keys())
    if (!facts.has(id) && id !== newSlots && id !== missing) executor.slots.delete(id)
  for (const [id, shown] of facts) slotMemory(executor, id).shown = shown
  for (const id of facts.keys()) await driveSlot(executor, id, heads)
  const memory = slotMemory(executor, missing)
  await whileLooking(memory, async () => {
    const gap = findGap(executor, slots, facts, heads)
    if (gap === undefined) return
    noteFault(memory, gap.fault)
    // The lowest first: nodes keep few transactions that wait for others.
    if (maySend)
      for (const nonce of gap.due)
        await (await bindNonce(executor, nonce, undefined, heads, nonce)).sent
  })
}

export function executorFaults({ ports, slots }: Executor) {
  const former = ports.ledger.slots().filter(({ executor }) => executor !== ports.signer.address)
  return [
    ...[...slots.values()].flatMap(({ refused, noted }) => [refused ?? [], ...noted].flat()),
    ...former.map(
      ({ executor, nonce }) =>
        `nonce ${nonce} of the former executor ${executor} is not settled yet`,
    ),
  ]
}

/** Below one of ours: of a node that counted too high, or a chain that lost final blocks (R27). */
function findGap(
  executor: Executor,
  slots: readonly Slot[],
  facts: ReadonlyMap<string, ChainFacts>,
  heads: Heads,
) {
  const { address } = executor.ports.signer
  const memory = slotMemory(executor, missing)
  const own = slots.filter((slot) => slot.executor === address)
  // A receipt proves more than a count: the nonces up to its own are used.
  const next = Math.max(
    ...own.map(({ id, nonce }) => {
      const { nonceLatest = 0, receipts } = facts.get(id) ?? {}
      return receipts?.size ? Math.max(nonceLatest, nonce + 1) : nonceLatest
    }),
  )
  const waiting = own.map(({ nonce }) => nonce).filter((nonce) => nonce >= next)
  const last = Math.max(...waiting)
  const count = waiting.length === 0 ? 0 : last + 1 - next - waiting.length
  if (count === 0) {
    memory.doubt = undefined
    return undefined
  }
  let first = next
  while (waiting.includes(first)) first += 1
  const since = doubtedSince(memory, first, heads)
  const fault = `nonce ${first} of the executor ${address} is not used by any transaction, and ${waiting.length} open transactions wait for it: ${count} nonces are missing`
  if (count > mostMissing)
    return { fault: `${fault}, more than are filled: give the executor another key`, due: [] }
  const lowest = Array.from({ length: mostFilled }, (_, at) => next + at)
  const isSettled = heads.finalized.number >= since
  return {
    fault: `${fault}, filled by self-transfers once that is final`,
    due: isSettled ? lowest.filter((nonce) => nonce < last && !waiting.includes(nonce)) : [],
  }
}

/** Of the 128 KiB that a pool takes (domain §8). */
const mostCalldataBytes = 96 * 1024
const refusalHolds = 100n

type Unsendable = Map<string, Judgement>

async function judgeAll(
  executor: Executor,
  candidates: readonly Candidate[],
  heads: Heads,
  unsendable: Unsendable,
): Promise<readonly ProposalCall[]> {
  const { judge, turn } = executor.ports
  const calls = await inParts(candidates, turn, async (candidate) => {
    const judged = await judge(candidate, heads)
    const isLate = judged.kind === 'valid' && isTooLate(executor, candidate)
    const judgement = isLate ? ({ kind: 'wait', detail: 'too late to send' } as const) : judged
    if (judgement.kind === 'valid') return [{ ...judgement.call, candidate }]
    unsendable.set(candidate.id, judgement)
    return []
  })
  return calls.flat()
}

export function chunks<T extends Pick<ProposalCall, 'calldata'>>(
  calls: readonly T[],
  most: number,
  isAlone: (call: T) => boolean,
): readonly (readonly T[])[] {
  const groups: T[][] = []
  let open: T[] | undefined
  let left = 0
  for (const call of calls) {
    if (isAlone(call)) {
      groups.push([call])
      continue
    }
    const bytes = call.calldata.length / 2 + 96
    if (open === undefined || open.length >= most || bytes > left) {
      open = []
      left = mostCalldataBytes
      groups.push(open)
    }
    open.push(call)
    left -= bytes
  }
  return groups
}

export function halves<T>(group: readonly T[]): readonly (readonly T[])[] {
  const middle = Math.ceil(group.length / 2)
  return [group.slice(0, middle), group.slice(middle)]
}

export async function fitTogether(
  executor: Executor,
  group: readonly ProposalCall[],
  at: BlockHeader,
  unsendable: Unsendable,
  mayGuess = true,
): Promise<readonly Load[]> {
  const [first] = group
  if (first === undefined) return []
  const data = carrying(group.map(({ calldata }) => calldata))
  const most = mostGasOf(executor, at, group.length)
  const usual = mayGuess ? await usualLimit(executor, group, data, at, most) : undefined
  const load = { carried: group, data, isUsual: usual !== undefined }
  if (usual !== undefined) return [{ ...load, gas: usual }]
  const estimate = await estimated(executor, group, data)
  const isSingle = group.length === 1
  if (estimate !== undefined && (isSingle ? estimate : gasLimit(estimate)) <= most)
    return [{ ...load, gas: smallest(gasLimit(estimate), most) }]
  if (isSingle) unsendable.set(first.candidate.id, misfit(executor, estimate, most))
  const loads: Load[] = []
  for (const half of isSingle ? [] : halves(group))
    loads.push(...(await fitTogether(executor, half, at, unsendable)))
  return loads
}

function mostGasOf({ refused: { gas }, ports }: Executor, at: BlockHeader, items: number) {
  const { proposal, failedADay } = ports.ceilings
  const { number, gasLimit: mostOfBlock = mostGas } = at
  const isRefused = gas !== undefined && number - gas.head < refusalHolds
  return smallest(
    mostGas,
    mostOfBlock - mostOfBlock / 64n,
    isRefused ? (gas.limit * 9n) / 10n : mostGas,
    proposal * BigInt(items),
    failedADay,
  )
}

function misfit(executor: Executor, gas: bigint | undefined, most: bigint): Judgement {
  if (gas === undefined) {
    const detail = 'The proposal reverts during gas estimation, although the same call succeeds.'
    return { kind: 'wait', detail }
  }
  const { proposal } = executor.ports.ceilings
  if (gas <= mostGas && gas <= proposal) {
    const detail = `propose needs ${gas} gas, more than the ${most} that nodes take now.`
    noteFault(slotMemory(executor, newSlots), detail)
    return { kind: 'wait', detail }
  }
  // Its nonce would jam the queue.
  const detail = `propose needs ${gas} gas, more than the ${proposal} that executor.max_proposal_gas allows one proposal.`
  return { kind: 'failed', code: 'simulation_reverted', detail, retryable: false }
}

/** On Polygon one takes 530,000, each of many less (domain §8); longer texts are estimated. */
const usualGas = (items: number) => 120_000n + 410_000n * BigInt(items)

const isOrdinary = (calls: readonly ProposalCall[]) =>
  !calls.some(({ walletHasCode }) => walletHasCode)

const transactionOf = ({ contracts, signer }: RunPorts, data: Hex) => ({
  to: contracts.signedProposer,
  data,
  from: signer.address,
})

async function usualLimit(
  { ports }: Executor,
  calls: readonly ProposalCall[],
  data: Hex,
  at: BlockHeader,
  most: bigint,
) {
  const limit = gasLimit(usualGas(calls.length))
  const mayHold = isOrdinary(calls) && limit <= most
  return mayHold && (await passes(ports, calls, data, at)) ? limit : undefined
}

async function passes(
  ports: RunPorts,
  { length }: readonly ProposalCall[],
  data: Hex,
  { number, hash }: BlockHeader,
) {
  if (ports.proven.has(`${hash} ${data}`)) return true
  const run = ports.chain.call({ ...transactionOf(ports, data), gas: usualGas(length) }, number)
  if ((await unlessRefused(run)) === undefined) return false
  ports.proven.set(`${hash} ${data}`, true)
  return true
}

async function estimated({ ports }: Executor, calls: readonly ProposalCall[], data: Hex) {
  try {
    const offered = isOrdinary(calls) ? undefined : await offerOf(ports)
    return await ports.chain.estimateGas({ ...transactionOf(ports, data), ...offered })
  } catch (error) {
    if (error instanceof ChainError && error.kind === 'reverted') return undefined
    throw error
  }
}

/** A wallet's code can see it. None where ceiling or balance allow none. */
async function offerOf(ports: RunPorts) {
  const { chain, signer, ceilings } = ports
  const [fees, balanceWei] = await Promise.all([
    feesNow(ports, 'propose'),
    chain.balance(signer.address),
  ])
  const gas = fees ? smallest(balanceWei / fees.maxFeePerGas, mostGas) : 0n
  return fees && gas >= ceilings.proposal ? { ...fees, gas } : undefined
}

interface Asked extends ProposalCall {
  readonly at: BlockHeader
  readonly resolve: (outcome: Hex | undefined | Promise<Hex | undefined>) => void
  readonly reject: (error: unknown) => void
}

export function createSimulations(
  ports: RunPorts,
  isIsolated: (call: ProposalCall) => boolean,
): JudgePorts['simulate'] {
  let waiting: Asked[] = []
  const flush = () => {
    const asked = waiting
    waiting = []
    for (const at of new Set(asked.map((one) => one.at))) {
      const all = asked.filter((one) => one.at === at)
      const firsts = new Map(all.toReversed().map((one) => [one.candidate.round.key, one]))
      const isAlone = (one: Asked) => firsts.get(one.candidate.round.key) !== one || isIsolated(one)
      for (const group of chunks(all, ports.config.batch, isAlone))
        void runTogether(ports, group, at)
    }
  }
  return (call, at) =>
    new Promise((resolve, reject) => {
      waiting.push({ ...call, at, resolve, reject })
      // Not caught: what is no ChainError is a bug and has to end the process.
      if (waiting.length === 1) void gathered(ports.turn, () => waiting.length).then(flush)
    })
}

async function runTogether(ports: RunPorts, group: readonly Asked[], at: BlockHeader) {
  const data = carrying(group.map(({ calldata }) => calldata))
  try {
    const pass = isOrdinary(group) && (await passes(ports, group, data, at))
    for (const one of group) one.resolve(pass ? undefined : runOne(ports, one))
  } catch (error) {
    for (const { reject } of group) reject(error)
  }
}

async function runOne(ports: RunPorts, { calldata, walletHasCode, at }: Asked) {
  const offered = walletHasCode ? await offerOf(ports) : undefined
  return revertOf(ports.chain, { ...transactionOf(ports, calldata), ...offered }, at.number)
}
