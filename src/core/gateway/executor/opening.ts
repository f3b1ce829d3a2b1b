/**
 * From selected candidates to launched transactions: judged anew, packed, paid for; what cannot be
 * sent binds no nonce (robustness §3).
 */
import type { Chain, Signer } from '../../ports.js'
import type { Candidate } from '../../protocol/candidate.js'
import type { Ledger } from '../ledger/ledger.js'
import type { Verdict } from '../pipeline/validation.js'
import type { Heads } from '../view/view.js'
import { mostFilled } from './gaps.js'
import { chunks, fitTogether, type Judged, type Load, type PackingPorts } from './packing.js'
import { newSlots, type Sender } from './sender.js'

/**
 * Slots whose transaction is not mined, at most: a node keeps few pending transactions of one
 * account.
 */
const mostPendingSlots = 16

export interface OpeningPorts {
  readonly ledger: Pick<Ledger, 'slots' | 'byId' | 'highestNonce'>
  readonly chain: Chain
  readonly signer: Signer
  readonly most: number
  readonly packing: PackingPorts
  readonly sender: Pick<Sender, 'canPay' | 'faults'>
  judge(candidate: Candidate, heads: Heads): Promise<Verdict>
  deadlinePassed(candidate: Candidate, heads: Heads): boolean
  goesAlone(judged: Judged): boolean
  /** Binds the next nonce, at least `nonceLatest`, and sends. */
  launch(load: Load, heads: Heads, nonceLatest: number): Promise<void>
  /** Told of a chain that gave no answer, or an odd one; throws anything else. */
  odd(error: unknown): void
}

export interface Opening {
  /**
   * Everything that can be found out before a nonce is bound. `unknown`: of some the chain told
   * nothing.
   */
  judgeAll(
    candidates: readonly Candidate[],
    heads: Heads,
  ): Promise<{
    readonly judged: readonly Judged[]
    readonly refused: ReadonlyMap<string, Verdict>
    readonly unknown: boolean
  }>
  /** See `Executor.open`. */
  open(
    candidates: readonly Candidate[],
    heads: Heads,
    isStopping: () => boolean,
  ): Promise<ReadonlyMap<string, Verdict>>
}

/** Source: robustness §3, domain §2.2, §8. */
export function createOpening(ports: OpeningPorts): Opening {
  const { ledger, signer, sender } = ports

  const judgeAll: Opening['judgeAll'] = async (candidates, heads) => {
    const judged: Judged[] = []
    const refused = new Map<string, Verdict>()
    let unknown = false
    const verdicts = await Promise.all(candidates.map((candidate) => ports.judge(candidate, heads)))
    for (const [index, candidate] of candidates.entries()) {
      const verdict = verdicts[index]
      if (verdict === undefined || verdict.kind === 'unknown') unknown = true
      else if (verdict.kind !== 'valid') refused.set(candidate.id, verdict)
      else if (ports.deadlinePassed(candidate, heads))
        refused.set(candidate.id, { kind: 'wait', why: 'too late to send' })
      else
        judged.push({
          candidate,
          calldata: verdict.calldata,
          walletHasCode: verdict.read?.figures.wallet_has_code === true,
        })
    }
    return { judged, refused, unknown }
  }

  const hasRoom = (nonceLatest: number) => {
    const pending = ledger
      .slots()
      .filter(({ executor, nonce }) => executor === signer.address && nonce >= nonceLatest)
    return pending.length < mostPendingSlots
  }

  /**
   * Head at which the count was first seen to hold nonces that neither final state nor the ledger
   * knows.
   */
  let unknownSince: bigint | undefined

  /**
   * Whether a nonce may be bound at this count of the head: what is bound above nonces that nothing
   * uses waits until they are filled, and a wide gap is left to the operator (R27). So they have to
   * be final, or few and there for so long that their first head is.
   */
  const isCountSound = async (nonceLatest: number, heads: Heads): Promise<boolean> => {
    const since = unknownSince ?? heads.latest.number
    unknownSince = undefined
    if (nonceLatest <= ledger.highestNonce(signer.address) + 1) return true
    const final = await ports.chain.transactionCount(signer.address, 'finalized')
    const own = ledger
      .slots()
      .filter(
        ({ executor, nonce }) =>
          executor === signer.address && nonce >= final && nonce < nonceLatest,
      )
    const unknown = nonceLatest - final - own.length
    if (unknown <= 0) return true
    unknownSince = since
    if (unknown <= mostFilled && heads.finalized.number >= since) return true
    const counted = `the node counts ${nonceLatest} transactions of the executor ${signer.address}`
    sender.faults.note(
      newSlots,
      `${counted}, ${unknown} more than are final or of this store: waiting until they are final`,
    )
    return false
  }

  const openAll: Opening['open'] = async (candidates, heads, isStopping) => {
    // R3: a round has one slot, whoever its candidate is.
    const busy = new Set(
      ledger
        .slots()
        .flatMap((slot) => slot.candidateIds.flatMap((id) => ledger.byId(id)?.roundKey ?? [])),
    )
    const free = candidates.filter(({ round }) => !busy.has(round.key))
    const refused = new Map<string, Verdict>()
    if (free.length === 0) return refused
    const nonceLatest = await ports.chain.transactionCount(signer.address, 'latest')
    if (!(await isCountSound(nonceLatest, heads))) return refused
    const mayGoOn = () => hasRoom(nonceLatest) && !isStopping()

    /** What of it cannot be paid for stays; what can be is sent all the same. */
    const sendGroup = async (group: readonly Judged[]): Promise<void> => {
      const fitting = await fitTogether(ports.packing, group)
      for (const [id, verdict] of fitting.refused) refused.set(id, verdict)
      for (const load of fitting.loads) {
        if (!mayGoOn()) return
        const { carried } = load
        if (await sender.canPay(load.gas, heads)) {
          await ports.launch(load, heads, nonceLatest)
        } else if (carried.length > 1) {
          const middle = Math.ceil(carried.length / 2)
          for (const half of [carried.slice(0, middle), carried.slice(middle)])
            await sendGroup(half)
        }
      }
    }

    for (let at = 0; at < free.length && mayGoOn(); at += ports.most) {
      const found = await judgeAll(free.slice(at, at + ports.most), heads)
      for (const [id, verdict] of found.refused) refused.set(id, verdict)
      // Where the operator has to act first, judging more would only ask for more of the same.
      if ([...found.refused.values()].some(({ kind }) => kind === 'operator')) break
      for (const group of chunks(found.judged, ports.most, ports.goesAlone)) {
        try {
          await sendGroup(group)
        } catch (error) {
          ports.odd(error)
        }
      }
    }
    return refused
  }

  return {
    judgeAll,
    open: (candidates, heads, isStopping) =>
      sender.faults.look(newSlots, () => openAll(candidates, heads, isStopping)),
  }
}
