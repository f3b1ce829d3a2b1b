/**
 * Puts selected candidates on chain, one nonce a transaction and one transaction a round (R3).
 * `next` decides; here facts are gathered and decisions carried out, each step durable before the
 * next (robustness §3). Whatever is interrupted goes on from the store after a restart (R15, R23).
 */
import { findProposed } from '../../chain/propose.js'
import { ChainError, type ChainReceipt, type Hex } from '../../ports.js'
import type { Candidate } from '../../protocol/candidate.js'
import type { Change, Slot, SlotAttempt } from '../ledger/ledger.js'
import { commitOn } from '../pipeline/commit-on.js'
import { failureOf, submissionOf } from '../pipeline/progress.js'
import type { Verdict } from '../pipeline/validation.js'
import type { Heads } from '../view/view.js'
import { isDoomedAt } from './doomed.js'
import { createEvidence } from './evidence.js'
import { createGaps } from './gaps.js'
import { createLoners } from './loners.js'
import { createOpening } from './opening.js'
import { fitTogether, type Load } from './packing.js'
import { explainRevert, type RevertPorts } from './revert-reason.js'
import { createSender, newSlots, type SenderPorts } from './sender.js'
import { type Action, next, type SlotFacts } from './slot.js'
import {
  closeChanges,
  closeExecutedChanges,
  confirmedChanges,
  type Ending,
  indexedChanges,
  minedChange,
  retreatChanges,
  revertedChanges,
  type SlotEnd,
  sentChanges,
} from './slot-changes.js'
import { candidateFacts, type Gathered, gather } from './slot-facts.js'
import { carriedBy, carrying, readTransaction } from './transaction.js'

/** A permit that ends sooner than this after the head would likely be mined too late. */
const sendMarginSeconds = 5n
/** Nonces that no slot holds, as a subject of faults. */
const missing = 'missing'
/**
 * Steps of one slot in one go; more means that a decision does not hold, and the next head is
 * awaited.
 */
const stepsAtOnce = 12

export interface ExecutorPorts extends SenderPorts, RevertPorts {
  readonly confirmations: 'finalized' | number
  /** Candidates in one transaction at most. */
  readonly most: number
  /** Judges a candidate anew, just before a nonce is bound to it. */
  judge(candidate: Candidate, heads: Heads): Promise<Verdict>
  /** False where the candidate's round may be taken or over, as far as memory tells. */
  isOpen(candidate: Candidate): boolean
  /** Whether its permit nonce was once seen spent; a reorganisation may have undone that. */
  maybeSpent(candidate: Candidate): boolean
}

export interface Executor {
  /**
   * Looks at every open slot and takes each as far as it goes. `maySend` false: nothing is signed
   * or sent, receipts are followed.
   */
  follow(heads: Heads, maySend: boolean): Promise<void>
  /**
   * Binds nonces to selected candidates, which are of different rounds, and sends them, several in
   * a transaction. By candidate id the verdict where that was not to be; the others were sent or
   * put off. `isStopping`: nothing new is begun.
   */
  open(
    candidates: readonly Candidate[],
    heads: Heads,
    isStopping: () => boolean,
  ): Promise<ReadonlyMap<string, Verdict>>
  /** What the operator has to see to; one sentence each. */
  faults(): readonly string[]
}

/** Source: robustness §3, contract §5, domain §2.2, §8. */
export function createExecutor(ports: ExecutorPorts): Executor {
  const { clock, chain, signer, contracts, ledger } = ports
  const packing = { chain, contracts, executor: signer.address, most: ports.most }
  const sender = createSender(ports)
  const { patience, faults } = sender
  const loads = new Map<string, Load>()
  const loners = createLoners()
  const gaps = createGaps(signer.address)
  const evidence = createEvidence(ports, faults)
  /** Candidates whose nonce is spent, or whose round is lost, at the head that is looked at. */
  let doomed: ReadonlySet<string> = new Set()
  /** Head at which a slot's nonce was first seen taken. */
  const takenSince = new Map<string, bigint>()

  const aliveOf = (slot: Slot): readonly Candidate[] => {
    const ids = new Set(slot.candidateIds)
    return ledger.active().filter(({ id }) => ids.has(id))
  }
  const slotNow = (id: string) => ledger.slots().find((slot) => slot.id === id)

  /**
   * The next block's time is not before the head's and, where the head is old, about the clock's.
   */
  const deadlinePassed = ({ deadline }: Candidate, heads: Heads) => {
    const wall = BigInt(Math.floor(clock.nowMs() / 1000))
    const { timestamp } = heads.latest
    return (timestamp > wall ? timestamp : wall) + sendMarginSeconds > BigInt(deadline)
  }
  const isDoomed = (candidate: Candidate, heads: Heads) =>
    deadlinePassed(candidate, heads) || doomed.has(candidate.id)

  const factsOf = (slot: Slot, gathered: Gathered): SlotFacts => {
    const { heads } = gathered
    const newest = slot.attempts.at(-1)
    for (const hash of gathered.receipts.keys()) patience.mined(hash)
    const isHeld = newest !== undefined && gathered.held.has(newest.hash)
    if (isHeld || gathered.receipts.size > 0 || gathered.nonceLatest > slot.nonce)
      faults.taken(slot.id)
    return {
      headNumber: heads.latest.number,
      finalizedNumber: heads.finalized.number,
      confirmations: ports.confirmations,
      nonceLatest: gathered.nonceLatest,
      nonceFinalized: gathered.nonceFinalized,
      receipts: gathered.receipts,
      held: gathered.held,
      ...candidateFacts(slot, gathered, aliveOf(slot), {
        isDoomed: (candidate) => isDoomed(candidate, heads),
        deadlinePassed: (candidate) => deadlinePassed(candidate, heads),
      }),
      sendDue: newest === undefined || patience.isDue(newest.hash),
      renewDue: newest !== undefined && patience.isRejected(newest.hash, heads.latest.number),
      bumpDue:
        newest !== undefined &&
        wantsHigherFee(slot, newest, gathered) &&
        sender.mayRaise(slot, newest),
      maySend: gathered.maySend,
      maySign: slot.executor === signer.address,
    }
  }

  const wantsHigherFee = (
    { nonce, attempts }: Slot,
    { hash, kind }: SlotAttempt,
    { heads, nonceLatest, held }: Gathered,
  ) =>
    patience.wantsHigherFee(hash, heads.latest.number, {
      isNext: nonceLatest === nonce,
      isHeld: held.has(hash),
      isFirst: attempts.filter((attempt) => attempt.kind === kind).length === 1,
    })

  /** False where an operator was quicker; the next step looks again. */
  const commit = (basis: readonly Candidate[], changes: readonly Change[]) =>
    commitOn(ledger, basis, changes)

  /**
   * Takes one slot from decision to decision until there is nothing to do before the next block.
   */
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
    const { heads } = gathered
    const alive = aliveOf(slot)
    const nowMs = clock.nowMs()
    const carried =
      'attempt' in action
        ? alive.filter(({ id }) => action.attempt?.candidateIds.includes(id))
        : alive
    if (action.kind !== 'close-taken') takenSince.delete(slot.id)
    switch (action.kind) {
      case 'wait':
        if (action.stuck)
          faults.note(slot.id, `${action.why}: the fee that it pays may be too low for this chain`)
        return false
      case 'prepare':
        return prepare(slot, alive, heads)
      case 'send':
        return sender.send(slot, action.attempt, alive, heads)
      case 'replace': {
        const { data, gas } = readTransaction(action.attempt.raw)
        return sender.sign(
          slot,
          { kind: 'propose', candidateIds: action.attempt.candidateIds, data, gas },
          heads,
          alive,
          action.attempt,
        )
      }
      case 'trim':
        return trim(slot, action.attempt, alive, heads)
      case 'cancel':
        return sender.sign(slot, { kind: 'cancel' }, heads, alive, action.attempt)
      case 'note-sent':
        return commit(alive, sentChanges(slot, action.attempt, alive, nowMs))
      case 'note-reverted':
        await commit(alive, revertedChanges(slot, action.receipt, carried, nowMs))
        return false
      case 'retreat':
        return commit(alive, retreatChanges(slot, alive, nowMs))
      case 'confirm':
        if (!(await commit(alive, confirmedChanges(slot, action.receipt, carried, nowMs))))
          return false
        await ports.failpoint('confirmed')
        return true
      case 'index':
        return index(slot, action, carried, alive, heads)
      case 'close-executed':
        return closeExecuted(slot, action.attempt, alive, heads)
      case 'close-reverted':
        return closeReverted(slot, action.attempt, action.receipt, alive, heads)
      case 'close-cancelled':
        return close(slot, alive, [
          minedChange(slot, action.receipt),
          ...closeChanges(
            slot,
            { kind: 'cancelled', hash: action.attempt.hash },
            endsOf(alive, heads),
            nowMs,
          ),
        ])
      case 'close-abandoned':
        return close(
          slot,
          alive,
          closeChanges(slot, { kind: 'foreign', hash: null }, endsOf(alive, heads), nowMs),
        )
      case 'close-taken':
        return gathered.maySend && closeTaken(slot, alive, gathered)
    }
  }

  /**
   * Matches each candidate that was carried to its proposal; one that has none in a final receipt
   * ends with the slot.
   */
  const index = async (
    slot: Slot,
    { attempt, receipt }: Extract<Action, { kind: 'index' }>,
    carried: readonly Candidate[],
    alive: readonly Candidate[],
    heads: Heads,
  ): Promise<boolean> => {
    const nowMs = clock.nowMs()
    const isFinal = receipt.blockNumber <= heads.finalized.number
    const changes = indexedChanges(attempt, receipt, carried, isFinal, nowMs)
    if (changes === undefined) return false
    const without = carried.filter((candidate) => isFinal && !findProposed(receipt.logs, candidate))
    for (const candidate of without)
      if (!(await evidence.failsByReceipt(slot, candidate, heads))) return false
    const lost = changes.every(
      (change) => change.kind === 'candidate.progress' && change.progress.status === 'failed',
    )
    const leftOut = alive.filter((candidate) => !carried.includes(candidate))
    const closing = lost
      ? closeChanges(slot, { kind: 'reverted', hash: attempt.hash }, endsOf(leftOut, heads), nowMs)
      : []
    return (await commit(alive, [...changes, ...closing])) && !lost
  }

  const close = async (
    slot: Slot,
    basis: readonly Candidate[],
    changes: readonly Change[],
  ): Promise<false> => {
    if (!(await commit(basis, changes))) return false
    loads.delete(slot.id)
    takenSince.delete(slot.id)
    sender.forget(slot)
    return false
  }

  /** What a candidate gets when its nonce is gone and nothing of it was mined. */
  const withoutTransaction = (candidate: Candidate, heads: Heads): SlotEnd => {
    if (heads.finalized.timestamp <= BigInt(candidate.deadline)) return { kind: 'again' }
    const detail = `The transaction could not be mined before the permit deadline ${candidate.deadline}.`
    return { kind: 'failed', failure: failureOf('submission', 'submission_expired', detail) }
  }

  const endsOf = (candidates: readonly Candidate[], heads: Heads): Ending[] =>
    candidates.map((candidate) => ({ candidate, end: withoutTransaction(candidate, heads) }))

  const prepare = async (
    slot: Slot,
    alive: readonly Candidate[],
    heads: Heads,
  ): Promise<boolean> => {
    let load = slot.attempts.length === 0 ? loads.get(slot.id) : undefined
    if (load === undefined) {
      // After a restart, or where no node takes what was signed: what does not stand any more is
      // not sent at all.
      const { judged, unknown } = await opening.judgeAll(alive, heads)
      if (unknown) return false
      load = (await fitTogether(packing, judged)).loads[0]
    }
    if (load === undefined) return sender.sign(slot, { kind: 'cancel' }, heads, alive)
    const candidateIds = load.carried.map(({ candidate }) => candidate.id)
    return sender.sign(
      slot,
      { kind: 'propose', candidateIds, data: load.data, gas: load.gas },
      heads,
      alive,
    )
  }

  const trim = (
    slot: Slot,
    attempt: SlotAttempt,
    alive: readonly Candidate[],
    heads: Heads,
  ): Promise<boolean> => {
    // Where the ceiling leaves no room for another proposal, the nonce goes back: its cancellation
    // always has room.
    if (!sender.mayRaise(slot, attempt))
      return sender.sign(slot, { kind: 'cancel' }, heads, alive, attempt)
    const { data, gas } = readTransaction(attempt.raw)
    const proposals = carriedBy(data)
    const kept = alive.filter(
      (candidate) => attempt.candidateIds.includes(candidate.id) && !isDoomed(candidate, heads),
    )
    const calls = kept.flatMap(({ id }) => proposals[attempt.candidateIds.indexOf(id)] ?? [])
    // The limit was enough for more.
    const wish = {
      kind: 'propose',
      candidateIds: kept.map(({ id }) => id),
      data: carrying(calls),
      gas,
    } as const
    return sender.sign(slot, wish, heads, alive, attempt)
  }

  const closeExecuted = (
    slot: Slot,
    attempt: SlotAttempt,
    alive: readonly Candidate[],
    heads: Heads,
  ) => {
    const carried = alive.filter(({ id }) => attempt.candidateIds.includes(id))
    const leftOut = endsOf(
      alive.filter((candidate) => !carried.includes(candidate)),
      heads,
    )
    const rounds = new Set(carried.map(({ round }) => round.key))
    const standIns = ledger.active().filter(({ id, round, progress }) => {
      return (
        progress.status !== 'executed' && rounds.has(round.key) && !slot.candidateIds.includes(id)
      )
    })
    const changes = closeExecutedChanges(slot, attempt.hash, leftOut, standIns, clock.nowMs())
    return close(slot, [...alive, ...standIns], changes)
  }

  const closeReverted = async (
    slot: Slot,
    attempt: SlotAttempt,
    receipt: ChainReceipt,
    alive: readonly Candidate[],
    heads: Heads,
  ) => {
    const ends: Ending[] = []
    for (const candidate of alive) {
      if (await evidence.isShownMined(slot, candidate, heads)) return false
      const end = await explainRevert(ports, candidate, slot.executor, attempt, receipt, heads)
      ends.push({ candidate, end: end.kind === 'again' ? { kind: 'again' } : end })
    }
    if (attempt.candidateIds.length > 1)
      for (const { candidate, end } of ends) loners.note(candidate, end.kind === 'failed')
    // One that was already final when it was first seen has no record of its receipt yet.
    const isNoted = alive.some(({ progress }) => submissionOf(progress)?.status === 'reverted')
    const changes = closeChanges(
      slot,
      { kind: 'reverted', hash: attempt.hash },
      ends,
      clock.nowMs(),
    )
    return close(slot, alive, isNoted ? changes : [minedChange(slot, receipt), ...changes])
  }

  const closeTaken = async (
    slot: Slot,
    alive: readonly Candidate[],
    { heads, held }: Gathered,
  ): Promise<boolean> => {
    const since = takenSince.get(slot.id)
    if (since === undefined) takenSince.set(slot.id, heads.latest.number)
    // The node that told the nonce may be ahead of the one that tells heads and receipts: what was
    // its head has to be final here first.
    if (since === undefined || heads.finalized.number <= since) return false
    const newest = slot.attempts.at(-1)
    if (newest && !(await sender.confirmsUsed(slot, newest, held.size > 0))) return false
    const ends: Ending[] = []
    for (const candidate of alive) {
      if (await evidence.isShownMined(slot, candidate, heads)) return false
      const own = await evidence.ownProposal(slot, candidate, heads)
      ends.push({
        candidate,
        end: own ? { kind: 'executed', proposal: own } : withoutTransaction(candidate, heads),
      })
    }
    return close(
      slot,
      alive,
      closeChanges(slot, { kind: 'foreign', hash: null }, ends, clock.nowMs()),
    )
  }

  /** Binds the next nonce to a load and sends it. */
  const launch = (load: Load, heads: Heads, nonceLatest: number) =>
    bind(Math.max(nonceLatest, ledger.highestNonce(signer.address) + 1), load, heads, nonceLatest)

  /** Without a load the nonce goes back by a self-transfer. */
  const bind = async (nonce: number, load: Load | undefined, heads: Heads, nonceLatest: number) => {
    const basis = load?.carried.map(({ candidate }) => candidate) ?? []
    const candidateIds = basis.map(({ id }) => id)
    const slot: Slot = {
      id: ports.random.uuid(),
      executor: signer.address,
      nonce,
      candidateIds,
      openedAtMs: clock.nowMs(),
      attempts: [],
    }
    if (!(await commit(basis, [{ kind: 'slot.opened', slot }]))) return
    if (load) loads.set(slot.id, load)
    await ports.failpoint('reserved')
    const fresh = {
      heads,
      maySend: true,
      nonceLatest,
      nonceFinalized: 0,
      receipts: new Map(),
      held: new Set<Hex>(),
    }
    await look(slot.id, fresh)
  }

  /** The lowest first: nodes keep few transactions that wait for others. */
  const fillGaps = async (
    slots: readonly Slot[],
    gathered: ReadonlyMap<string, Gathered>,
    heads: Heads,
    maySend: boolean,
  ) => {
    const gap = gaps.look(slots, gathered, heads)
    if (gap === undefined) return
    faults.note(missing, gap.fault)
    if (maySend) for (const nonce of gap.due) await bind(nonce, undefined, heads, nonce)
  }

  /**
   * One slot's trouble with the chain holds up no other; the next look takes it up again. An odd
   * answer is told meanwhile.
   */
  const later = (about: string) => (error: unknown) => {
    if (!(error instanceof ChainError)) throw error
    if (error.kind !== 'unavailable') faults.note(about, error.message)
    return undefined
  }
  const look = (slotId: string, gathered: Gathered) =>
    faults.look(slotId, () => drive(slotId, gathered).catch(later(slotId)))

  /**
   * Memory alone cancels nothing: what may be dead by it is read again, at the head that is looked
   * at.
   */
  const readDoomed = async (slots: readonly Slot[], heads: Heads): Promise<ReadonlySet<string>> => {
    const found = slots.flatMap((slot) =>
      aliveOf(slot)
        .filter((candidate) => ports.maybeSpent(candidate) || !ports.isOpen(candidate))
        .map(async (candidate) =>
          (await isDoomedAt(ports, slot, candidate, heads.latest.number)) ? [candidate.id] : [],
        ),
    )
    return new Set((await Promise.all(found)).flat())
  }

  const opening = createOpening({
    ...ports,
    packing,
    sender,
    deadlinePassed,
    goesAlone: ({ candidate, walletHasCode }) => walletHasCode || loners.has(candidate),
    launch,
    odd: later(newSlots),
  })

  return {
    async follow(heads, maySend) {
      const slots = ledger.slots()
      if (slots.length === 0) return faults.drop(missing)
      const gathered = await gather(chain, slots, heads, maySend)
      doomed = await readDoomed(slots, heads)
      // In order of nonces: the lowest has to be mined first.
      for (const slot of slots) {
        const facts = gathered.get(slot.id)
        if (facts) await look(slot.id, facts)
      }
      await faults.look(missing, () => fillGaps(slots, gathered, heads, maySend))
    },
    open: opening.open,
    faults() {
      const others = ledger.slots().filter((slot) => slot.executor !== signer.address)
      const strangers = others.map(
        ({ executor, nonce }) =>
          `nonce ${nonce} of the former executor ${executor} is not settled yet`,
      )
      return [...faults.all(), ...strangers]
    },
  }
}
