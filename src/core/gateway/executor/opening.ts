/**
 * From selected candidates to launched transactions: judged again, packed, paid for; what cannot be
 * sent binds no nonce (robustness §3, domain §2.2, §8).
 */
import type { Candidate } from '../../protocol/candidate.js'
import type { Judgement } from '../validation/validation.js'
import type { Heads } from '../view/state.js'
import { bindNonce, noteChainFault } from './driving.js'
import {
  chunks,
  fitTogether,
  halves,
  judgeAll,
  type Load,
  type Unsendable,
  type ValidCall,
} from './packing.js'
import { canPay, newSlots } from './sending.js'
import { busyRounds, type Executor, mostFilled } from './state.js'

/** Slots whose transaction is not mined, at most: a node keeps few pending ones of one account. */
const mostPendingSlots = 16

/** One opening: what it has found, and the executor's next nonce at the head. */
interface Opening {
  readonly heads: Heads
  readonly nonceLatest: number
  readonly unsendable: Unsendable
  isStopping(): boolean
}

/**
 * Binds nonces to selected candidates, which are of different rounds, and sends them, several in a
 * transaction. By candidate id the judgement where that was not to be; the others were sent or put
 * off. `isStopping`: nothing new is begun.
 */
export function openSlots(
  executor: Executor,
  candidates: readonly Candidate[],
  heads: Heads,
  isStopping: () => boolean,
): Promise<ReadonlyMap<string, Judgement>> {
  const { ledger, chain, signer, maxBatch } = executor.ports
  return executor.faults.look(newSlots, async () => {
    const unsendable: Unsendable = new Map()
    const busy = busyRounds(ledger)
    const free = candidates.filter(({ round }) => !busy.has(round.key))
    if (free.length === 0) return unsendable
    const nonceLatest = await chain.transactionCount(signer.address, 'latest')
    if (!(await isCountSound(executor, nonceLatest, heads))) return unsendable
    const opening: Opening = { heads, nonceLatest, unsendable, isStopping }
    for (let at = 0; at < free.length && mayOpen(executor, opening); at += maxBatch) {
      const { valid } = await judgeAll(executor, free.slice(at, at + maxBatch), heads, unsendable)
      // Where the operator has to act first, judging more would only ask for more of the same.
      if ([...unsendable.values()].some(({ kind }) => kind === 'operator')) break
      for (const group of chunks(valid, maxBatch, (call) => isIsolated(executor, call))) {
        try {
          await sendGroup(executor, group, opening)
        } catch (error) {
          noteChainFault(executor, newSlots, error)
        }
      }
    }
    return unsendable
  })
}

const isIsolated = ({ isolated }: Executor, { candidate, walletHasCode }: ValidCall) =>
  walletHasCode || isolated.candidates.has(candidate.id) || isolated.wallets.has(candidate.proposer)

function mayOpen({ ports }: Executor, { nonceLatest, isStopping }: Opening): boolean {
  const pending = ports.ledger
    .slots()
    .filter(({ executor, nonce }) => executor === ports.signer.address && nonce >= nonceLatest)
  return pending.length < mostPendingSlots && !isStopping()
}

/** What of a group cannot be paid for stays; what can be is sent all the same. */
async function sendGroup(
  executor: Executor,
  group: readonly ValidCall[],
  opening: Opening,
): Promise<void> {
  for (const load of await fitTogether(executor, group, opening.unsendable)) {
    if (!mayOpen(executor, opening)) return
    if (await canPay(executor, load.gas, opening.heads)) await launch(executor, load, opening)
    else if (load.carried.length > 1)
      for (const half of halves(load.carried)) await sendGroup(executor, half, opening)
  }
}

/** Binds the next nonce of the executor. */
function launch(executor: Executor, load: Load, { heads, nonceLatest }: Opening): Promise<void> {
  const { ledger, signer } = executor.ports
  const nonce = Math.max(nonceLatest, ledger.highestNonce(signer.address) + 1)
  return bindNonce(executor, nonce, load, heads, nonceLatest)
}

/**
 * Whether a nonce may be bound at this count of the head. What is bound above nonces that nothing
 * uses waits until they are filled, and a wide gap is left to the operator (R27). So they have to
 * be final, or few and there for so long that their first head is.
 */
async function isCountSound(
  executor: Executor,
  nonceLatest: number,
  heads: Heads,
): Promise<boolean> {
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
