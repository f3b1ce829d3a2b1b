/**
 * Puts selected candidates on chain, one nonce a round (R3). `next` decides; here facts are gathered and decisions carried out, each step
 * durable before the next (robustness §3). Whatever is interrupted goes on from the store after a restart (R15, R23).
 */
import { locateProposal } from '../../chain/propose.js'
import type { Contracts } from '../../chain/round.js'
import { type BlockHeader, type Chain, ChainError, type ChainReceipt, type Clock, type Hex, type Random, type Signer } from '../../ports.js'
import type { Candidate } from '../../protocol/candidate.js'
import type { Change, Ledger, Slot, SlotAttempt } from '../ledger/ledger.js'
import { commitOn } from '../pipeline/commit-on.js'
import { failureOf, submissionOf } from '../pipeline/progress.js'
import { isOwn } from '../pipeline/selection.js'
import type { Verdict } from '../pipeline/validation.js'
import type { Heads } from '../view/view.js'
import { explainRevert } from './revert-reason.js'
import { createSendPatience } from './send-patience.js'
import { type Action, next, type SlotFacts } from './slot.js'
import {
  attemptChanges,
  closeChanges,
  closeExecutedChanges,
  confirmedChanges,
  indexedChanges,
  retreatChanges,
  revertedChanges,
  type SlotEnd,
  sentChanges,
} from './slot-changes.js'
import { type Gathered, gather } from './slot-facts.js'
import { feesFor, gasLimit, readProposeCalldata, readTransaction, signTransaction } from './transaction.js'

/** Slots whose transaction is not mined, at most: a node keeps few pending transactions of one account. */
const mostPendingSlots = 16
/** A permit that ends sooner than this after the head would likely be mined too late. */
const sendMarginSeconds = 5n
/** Steps of one slot in one go; more means that a decision does not hold, and the next head is awaited. */
const stepsAtOnce = 12

export type Failpoint = (name: 'selected' | 'reserved' | 'prepared' | 'sent' | 'confirmed') => Promise<void>

export interface ExecutorPorts {
  readonly clock: Clock
  readonly random: Random
  readonly chain: Chain
  readonly signer: Signer
  readonly contracts: Contracts
  readonly ledger: Ledger
  readonly confirmations: 'finalized' | number
  readonly maxFeeGwei: number
  /** Judges a candidate anew, just before a nonce is bound to it. */
  judge(candidate: Candidate, heads: Heads): Promise<Verdict>
  readonly failpoint: Failpoint
}

export interface Executor {
  /** Looks at every open slot and takes each as far as it goes. `maySend` false: nothing is signed or sent, receipts are followed. */
  follow(heads: Heads, maySend: boolean): Promise<void>
  /** Binds a nonce to a selected candidate and sends. The verdict where that was not to be, `undefined` where it was done or put off. */
  open(candidate: Candidate, heads: Heads): Promise<Verdict | undefined>
  /** What the operator has to see to; one sentence each. */
  faults(): readonly string[]
}

interface Plan {
  readonly calldata: Hex
  readonly gas: bigint
}

/** Source: robustness §3, contract §5, domain §8. */
export function createExecutor(ports: ExecutorPorts): Executor {
  const { clock, chain, signer, contracts, ledger } = ports
  const ceilingWei = BigInt(Math.floor(ports.maxFeeGwei * 1e9))
  const patience = createSendPatience(clock, ports.random)
  const faults = new Map<string, string>()
  const plans = new Map<string, Plan>()
  /** Head at which a slot's nonce was first seen taken. */
  const takenSince = new Map<string, bigint>()

  const carriedBy = (slot: Slot): readonly Candidate[] => {
    const ids = new Set(slot.candidateIds)
    return ledger.active().filter(({ id }) => ids.has(id))
  }
  const slotNow = (id: string) => ledger.slots().find((slot) => slot.id === id)

  const factsOf = (slot: Slot, gathered: Gathered): SlotFacts => {
    const { heads } = gathered
    const carried = carriedBy(slot)
    const newest = slot.attempts.at(-1)
    const passed = (header: BlockHeader, margin: bigint) => carried.every(({ deadline }) => header.timestamp + margin > BigInt(deadline))
    return {
      headNumber: heads.latest.number,
      finalizedNumber: heads.finalized.number,
      confirmations: ports.confirmations,
      nonceLatest: gathered.nonceLatest,
      nonceFinalized: gathered.nonceFinalized,
      receipts: gathered.receipts,
      held: gathered.held,
      recorded: recordedOf(carried, gathered.receipts.size > 0),
      expired: passed(heads.finalized, 0n),
      overdue: passed(heads.latest, sendMarginSeconds),
      sendDue: newest === undefined || patience.isDue(newest.hash),
      bumpDue: newest !== undefined && patience.wantsHigherFee(newest.hash, heads.latest.number, gathered.nonceLatest === slot.nonce),
      maySend: gathered.maySend,
      maySign: slot.executor === signer.address,
    }
  }

  /** False where an operator was quicker; the next step looks again. */
  const commit = (basis: readonly Candidate[], changes: readonly Change[]) => commitOn(ledger, basis, changes)

  const recordedOf = (carried: readonly Candidate[], isMined: boolean): SlotFacts['recorded'] => {
    // An operator may have rejected what the slot carries: then nothing is left to record, and the slot only waits for its end.
    if (carried.length === 0) return isMined ? 'indexed' : null
    return carried.map(({ progress }) => submissionOf(progress)?.status ?? null).find((status) => status !== null) ?? null
  }

  /** Takes one slot from decision to decision until there is nothing to do before the next block. */
  const drive = async (slotId: string, gathered: Gathered) => {
    for (let step = 0; step < stepsAtOnce; step += 1) {
      const slot = slotNow(slotId)
      if (slot === undefined) return
      const action = next(slot, factsOf(slot, gathered))
      if (!(await carryOut(slot, action, gathered))) return
    }
  }

  /** True where the slot may go on at once. */
  const carryOut = async (slot: Slot, action: Action, gathered: Gathered): Promise<boolean> => {
    const carried = carriedBy(slot)
    const nowMs = clock.nowMs()
    if (action.kind !== 'close-taken') takenSince.delete(slot.id)
    switch (action.kind) {
      case 'wait':
        return false
      case 'prepare':
        return prepare(slot, carried, gathered)
      case 'send':
        return send(slot, action.attempt, carried, gathered.heads)
      case 'replace': {
        const { data, gas } = readTransaction(action.attempt.raw)
        return sign(slot, 'propose', { to: contracts.signedProposer, data, gas }, gathered.heads, carried, action.attempt)
      }
      case 'cancel':
        return cancel(slot, action.attempt, gathered.heads, carried)
      case 'note-sent':
        return commit(carried, sentChanges(slot, action.attempt, carried, nowMs))
      case 'note-reverted':
        await commit(carried, revertedChanges(action.attempt, carried, nowMs))
        return false
      case 'retreat':
        return commit(carried, retreatChanges(slot, carried, nowMs))
      case 'confirm':
        if (!(await commit(carried, confirmedChanges(action.attempt, carried, nowMs)))) return false
        await ports.failpoint('confirmed')
        return true
      case 'index': {
        const isFinal = action.receipt.blockNumber <= gathered.heads.finalized.number
        const changes = indexedChanges(action.attempt, action.receipt, carried, isFinal, nowMs)
        if (changes === undefined) return false
        const lost = changes.every((change) => change.kind === 'candidate.progress' && change.progress.status === 'failed')
        const closing = lost ? closeChanges(slot, { kind: 'reverted', hash: action.attempt.hash }, [], nowMs) : []
        return (await commit(carried, [...changes, ...closing])) && !lost
      }
      case 'close-executed': {
        const rounds = new Set(carried.map(({ round }) => round.key))
        const waiting = ledger.active().filter(({ id, round, progress }) => {
          return progress.status !== 'executed' && rounds.has(round.key) && !slot.candidateIds.includes(id)
        })
        await close(slot, [...carried, ...waiting], closeExecutedChanges(slot, action.attempt, action.receipt, carried, waiting, nowMs))
        return false
      }
      case 'close-reverted':
        return closeReverted(slot, action.attempt, action.receipt, carried, gathered.heads)
      case 'close-cancelled': {
        const ends = carried.map((candidate) => ({ candidate, end: withoutTransaction(candidate, gathered.heads) }))
        await close(slot, carried, closeChanges(slot, { kind: 'cancelled', hash: action.attempt.hash }, ends, nowMs))
        return false
      }
      case 'close-taken':
        return closeTaken(slot, carried, gathered.heads)
    }
  }

  const close = async (slot: Slot, basis: readonly Candidate[], changes: readonly Change[]) => {
    if (!(await commit(basis, changes))) return
    plans.delete(slot.id)
    takenSince.delete(slot.id)
    for (const name of ['refused', 'gap']) faults.delete(`${name} ${slot.id}`)
    for (const { hash } of slot.attempts) patience.forget(hash)
  }

  /** What a candidate gets when its nonce is gone and nothing of it was mined. */
  const withoutTransaction = (candidate: Candidate, heads: Heads): SlotEnd => {
    if (heads.finalized.timestamp <= BigInt(candidate.deadline)) return { kind: 'again' }
    const detail = `The transaction could not be mined before the permit deadline ${candidate.deadline}.`
    return { kind: 'failed', failure: failureOf('submission', 'submission_expired', detail) }
  }

  const prepare = async (slot: Slot, carried: readonly Candidate[], { heads }: Gathered): Promise<boolean> => {
    const [candidate] = carried
    let plan = plans.get(slot.id)
    if (plan === undefined && candidate) {
      // After a restart: nothing was signed under this nonce, so what does not stand any more is not sent at all.
      const made = await planFor(candidate, heads)
      if (made.kind === 'unknown') return false
      if (made.kind === 'planned') plan = made.plan
    }
    if (plan === undefined) return cancel(slot, undefined, heads, carried)
    return sign(slot, 'propose', { to: contracts.signedProposer, data: plan.calldata, gas: plan.gas }, heads, carried, undefined)
  }

  const cancel = async (slot: Slot, replaced: SlotAttempt | undefined, heads: Heads, carried: readonly Candidate[]): Promise<boolean> => {
    const gas = gasLimit(await chain.estimateGas({ to: signer.address, data: '0x', from: signer.address }))
    return sign(slot, 'cancel', { to: signer.address, data: '0x', gas }, heads, carried, replaced)
  }

  /** Signs under the slot's nonce and makes it durable. False where the fee ceiling holds it back. */
  const sign = async (
    slot: Slot,
    kind: SlotAttempt['kind'],
    call: { to: Hex; data: Hex; gas: bigint },
    heads: Heads,
    carried: readonly Candidate[],
    replaced: SlotAttempt | undefined,
  ): Promise<boolean> => {
    const before = replaced && { maxFeePerGas: BigInt(replaced.maxFeePerGas), maxPriorityFeePerGas: BigInt(replaced.maxPriorityFeePerGas) }
    const fees = feesFor(contracts.chainId, heads.latest, await chain.tip(), ceilingWei, before)
    if (fees === undefined) {
      faults.set('fees', feeFault(heads))
      return false
    }
    faults.delete('fees')
    const { raw, hash } = await signTransaction(signer, { chainId: contracts.chainId, nonce: slot.nonce, ...call, ...fees })
    const attempt: SlotAttempt = {
      hash,
      raw,
      kind,
      candidateIds: kind === 'cancel' ? [] : slot.candidateIds,
      maxFeePerGas: String(fees.maxFeePerGas),
      maxPriorityFeePerGas: String(fees.maxPriorityFeePerGas),
      preparedAtMs: clock.nowMs(),
      sentAtMs: null,
    }
    if (!(await commit(carried, attemptChanges(slot, attempt, carried, clock.nowMs())))) return false
    await ports.failpoint('prepared')
    return true
  }
  const feeFault = (heads: Heads) =>
    `gas costs ${heads.latest.baseFeePerGas} wei and the tip, more than executor.max_fee_gwei ${ports.maxFeeGwei} allows: waiting`

  /** Hands the stored bytes over. The answers are those of robustness §3; none of them leads to another nonce. */
  const send = async (slot: Slot, attempt: SlotAttempt, carried: readonly Candidate[], heads: Heads): Promise<boolean> => {
    try {
      await chain.send(attempt.raw)
    } catch (error) {
      if (!(error instanceof ChainError)) throw error
      if (error.kind !== 'already_known') {
        noteRefusal(slot, attempt, error, heads)
        return error.kind === 'underpriced'
      }
    }
    patience.sent(attempt.hash, heads.latest.number)
    for (const name of ['refused', 'gap']) faults.delete(`${name} ${slot.id}`)
    faults.delete('funds')
    await commit(carried, sentChanges(slot, attempt, carried, clock.nowMs()))
    await ports.failpoint('sent')
    return false
  }

  const noteRefusal = (slot: Slot, attempt: SlotAttempt, error: ChainError, heads: Heads) => {
    patience.refused(attempt.hash, heads.latest.number, error.kind)
    if (error.kind === 'insufficient_funds') faults.set('funds', `the executor ${signer.address} cannot pay for its transaction: fund it`)
    if (error.kind === 'refused')
      faults.set(`refused ${slot.id}`, `the node refuses the transaction of nonce ${slot.nonce}: ${error.message}`)
    // A lower nonce is missing. Ours are sent before; if it lasts, it is one that this store does not know.
    if (error.kind === 'nonce_too_high' && patience.refusedForBlocks(attempt.hash, heads.latest.number) >= 3n) {
      faults.set(`gap ${slot.id}`, `the node waits for a nonce below ${slot.nonce} of the executor ${signer.address}`)
    }
  }

  const closeReverted = async (slot: Slot, attempt: SlotAttempt, receipt: ChainReceipt, carried: readonly Candidate[], heads: Heads) => {
    const ends: { candidate: Candidate; end: SlotEnd }[] = []
    for (const candidate of carried) {
      const end = await explainRevert({ chain, contracts }, candidate, slot.executor, attempt, receipt, heads)
      ends.push({ candidate, end: end.kind === 'again' ? { kind: 'again' } : end })
    }
    await close(slot, carried, closeChanges(slot, { kind: 'reverted', hash: attempt.hash }, ends, clock.nowMs()))
    return false
  }

  const closeTaken = async (slot: Slot, carried: readonly Candidate[], heads: Heads): Promise<boolean> => {
    const since = takenSince.get(slot.id)
    if (since === undefined) takenSince.set(slot.id, heads.latest.number)
    // The node that told the nonce may be ahead of the one that tells heads and receipts: what was its head has to be final here first.
    if (since === undefined || heads.finalized.number <= since) return false
    const ends: { candidate: Candidate; end: SlotEnd }[] = []
    for (const candidate of carried) {
      const own = await ownProposal(slot, candidate, heads)
      // The round shows one of our own transactions after all: its receipt will come.
      if (own && slot.attempts.some(({ hash }) => hash === own.transactionHash)) return false
      ends.push({ candidate, end: own ? { kind: 'executed', proposal: own } : withoutTransaction(candidate, heads) })
    }
    await close(slot, carried, closeChanges(slot, { kind: 'foreign', hash: null }, ends, clock.nowMs()))
    return false
  }

  const ownProposal = async (slot: Slot, candidate: Candidate, heads: Heads) => {
    const attempt = slot.attempts.find(({ kind, candidateIds }) => kind === 'propose' && candidateIds.includes(candidate.id))
    if (attempt === undefined) return undefined
    const { request } = readProposeCalldata(readTransaction(attempt.raw).data)
    const proposal = await locateProposal(chain, request, contracts.signedProposer, heads.finalized, candidate)
    return proposal && isOwn(candidate, proposal) ? proposal : undefined
  }

  type Planning =
    | { readonly kind: 'planned'; readonly plan: Plan }
    | { readonly kind: 'unknown' }
    | { readonly kind: 'refused'; readonly verdict: Verdict }

  /** Everything that can be found out before a nonce is bound: nonces are not burnt for what cannot be sent (robustness §3). */
  const planFor = async (candidate: Candidate, heads: Heads): Promise<Planning> => {
    const verdict = await ports.judge(candidate, heads)
    if (verdict.kind === 'unknown') return { kind: 'unknown' }
    if (verdict.kind !== 'valid') return { kind: 'refused', verdict }
    if (heads.latest.timestamp + sendMarginSeconds > BigInt(candidate.deadline))
      return { kind: 'refused', verdict: { kind: 'wait', why: 'too late to send' } }
    const [estimate, tip, balanceWei] = await Promise.all([
      chain.estimateGas({ to: contracts.signedProposer, data: verdict.calldata, from: signer.address }),
      chain.tip(),
      chain.balance(signer.address),
    ])
    const gas = gasLimit(estimate)
    const fees = feesFor(contracts.chainId, heads.latest, tip, ceilingWei)
    if (fees === undefined) faults.set('fees', feeFault(heads))
    else faults.delete('fees')
    const costWei = gas * (fees?.maxFeePerGas ?? 0n)
    if (balanceWei < costWei)
      faults.set('funds', `the executor ${signer.address} holds ${balanceWei} wei, a proposal may cost ${costWei}: fund it`)
    else faults.delete('funds')
    if (fees === undefined || balanceWei < costWei) return { kind: 'unknown' }
    return { kind: 'planned', plan: { calldata: verdict.calldata, gas } }
  }

  return {
    async follow(heads, maySend) {
      const slots = ledger.slots()
      if (slots.length === 0) return
      const gathered = await gather(chain, slots, heads, maySend)
      // In order of nonces: the lowest has to be mined first.
      for (const slot of slots) {
        const facts = gathered.get(slot.id)
        if (facts) await drive(slot.id, facts).catch(nextTime)
      }
    },
    async open(candidate, heads) {
      const slots = ledger.slots()
      const nonceLatest = await chain.transactionCount(signer.address, 'latest')
      if (slots.filter(({ executor, nonce }) => executor === signer.address && nonce >= nonceLatest).length >= mostPendingSlots)
        return undefined
      // R3: a round has one slot, whoever its candidate is.
      if (slots.some(({ candidateIds }) => candidateIds.some((id) => ledger.byId(id)?.roundKey === candidate.round.key))) return undefined
      const planned = await planFor(candidate, heads)
      if (planned.kind === 'unknown') return undefined
      if (planned.kind === 'refused') return planned.verdict
      const slot: Slot = {
        id: ports.random.uuid(),
        executor: signer.address,
        nonce: Math.max(nonceLatest, ledger.highestNonce(signer.address) + 1),
        candidateIds: [candidate.id],
        openedAtMs: clock.nowMs(),
        attempts: [],
      }
      if (!(await commit([candidate], [{ kind: 'slot.opened', slot }]))) return undefined
      plans.set(slot.id, planned.plan)
      await ports.failpoint('reserved')
      const fresh = { heads, maySend: true, nonceLatest, nonceFinalized: 0, receipts: new Map(), held: new Set<Hex>() }
      await drive(slot.id, fresh).catch(nextTime)
      return undefined
    },
    faults() {
      const others = ledger.slots().filter((slot) => slot.executor !== signer.address)
      const strangers = others.map(({ executor, nonce }) => `nonce ${nonce} of the former executor ${executor} is not settled yet`)
      return [...faults.values(), ...strangers]
    },
  }
}

/** One slot's trouble with the chain holds up no other; the next look takes it up again. */
function nextTime(error: unknown): void {
  if (!(error instanceof ChainError)) throw error
}
