/**
 * Judged again, packed, paid for; what cannot be sent binds no nonce (robustness §3, domain §2.2,
 * §8).
 */
import type { Candidate } from '#protocol/candidate'
import { type SideBySide, sideBySide } from '../validation/side-by-side.js'
import type { Judgement, ProposalCall } from '../validation/validation.js'
import type { Heads } from '../view/state.js'
import { bindNonce, noteChainFault } from './driving.js'
import { chunks, fitTogether, halves, judgeAll, type Unsendable } from './packing.js'
import { canPay, newSlots, roomFor } from './sending.js'
import {
  busyRounds,
  type Executor,
  gasStandingIn,
  type Load,
  mostFilled,
  type ValidCall,
} from './state.js'

interface Opening {
  readonly heads: Heads
  readonly nonceLatest: number
  readonly unsendable: Unsendable
  readonly begun: SideBySide
  isStopping(): boolean
}

/** By candidate id the judgement where it was not sent. */
export function openSlots(
  executor: Executor,
  candidates: readonly Candidate[],
  heads: Heads,
  isStopping: () => boolean,
): Promise<ReadonlyMap<string, Judgement>> {
  const { ledger, chain, signer } = executor.ports
  return executor.faults.look(newSlots, async () => {
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
  })
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
      for (const load of loads) await sendIfSound(executor, load, opening)
    }
  }
}

async function preparePart(executor: Executor, candidates: readonly Candidate[], opening: Opening) {
  const { valid } = await judgeAll(executor, candidates, opening.heads, opening.unsendable)
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
function roomOf({ ports, unsigned }: Executor, { nonceLatest }: Opening) {
  const pending = ports.ledger
    .slots()
    .filter(({ executor, nonce }) => executor === ports.signer.address && nonce >= nonceLatest)
  if (unsigned !== undefined && pending.some(({ attempts }) => attempts.length === 0)) return 0
  return ports.maxInFlight - pending.length
}

const mayOpen = (executor: Executor, opening: Opening) =>
  roomOf(executor, opening) > 0 && !opening.isStopping()

async function sendIfSound(executor: Executor, load: Load, opening: Opening) {
  try {
    await sendLoad(executor, load, opening)
  } catch (error) {
    noteChainFault(executor, newSlots, error)
  }
}

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
  const own = ledger
    .slots()
    .filter((slot) => slot.executor === address && slot.nonce >= final && slot.nonce < nonceLatest)
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
