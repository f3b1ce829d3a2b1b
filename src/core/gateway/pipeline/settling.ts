/**
 * What a judgement makes of a waiting candidate; whose turn it is in a round; and the end of those
 * that can never execute, as finalized state shows (contract §5, R3, R13, R14, domain §9).
 */
import pLimit from 'p-limit'
import { ChainError, type Clock, type Hex } from '#ports'
import { boundedCache } from '#protocol/bounded-cache'
import type { Candidate, CandidateFailure } from '#protocol/candidate'
import { ProposerError } from '#protocol/errors'
import { nonceBit, nonceUsed } from '#protocol/permit'
import { busyRounds } from '../executor/state.js'
import { type GasCeilings, heldBack } from '../executor/transaction.js'
import type { Change, Ledger } from '../ledger/ledger.js'
import {
  endingOf,
  isRoundOpen,
  isSpentAt,
  readBitmap,
  readRoundEnd,
} from '../validation/contract-reads.js'
import {
  failedChange,
  failureOf,
  progressChange,
  selected,
  stageOf,
  standsInAgain,
  stepsToExecuted,
} from '../validation/progress.js'
import { type Judgement, type JudgePorts, runs } from '../validation/validation.js'
import type { Heads } from '../view/state.js'
import type { LiveView } from '../view/view.js'

/** Reasons that change all the time go on record ever more rarely. */
const longestQuietBlocks = 512n
export const rememberedCandidates = 10_000

interface Wait {
  readonly why: string
  readonly quietBlocks: bigint
  readonly quietUntil: bigint
}

type Judging = ReturnType<typeof newJudging>

export const newJudging = (parts: {
  readonly clock: Clock
  readonly ledger: Ledger
  readonly view: LiveView
  readonly ports: JudgePorts
}) => ({
  ...parts,
  /** The same head gives the same result. */
  judgedAt: boundedCache<string, Hex>(rememberedCandidates),
  waits: boundedCache<string, Wait>(rememberedCandidates),
  /** Begun when a candidate came, or came again: by none of them it fails. */
  looksBefore: boundedCache<string, number>(rememberedCandidates),
  /** Of this step's heads: a newer one may end while it runs. */
  look: 0,
  halted: undefined as string | undefined,
  contradiction: undefined as string | undefined,
})

export function waitingIn(ledger: Ledger): readonly Candidate[] {
  return ledger
    .active()
    .filter(({ id, progress }) => progress.status !== 'executed' && ledger.slotOf(id) === undefined)
}

/**
 * `undefined` where the chain did not answer: the next step asks again. A chain that stays silent
 * shows in the view's faults (R16).
 */
export async function ifAnswered<T>(work: Promise<T>): Promise<T | undefined> {
  try {
    return await work
  } catch (error) {
    if (error instanceof ChainError) return undefined
    if (error instanceof ProposerError && error.code === 'state_unavailable') return undefined
    throw error
  }
}

export async function settleJudgement(
  judging: Judging,
  candidate: Candidate,
  judgement: Judgement,
  heads: Heads,
) {
  const { ledger, view, clock } = judging
  const checked = checkedChange(candidate, judgement, heads.latest.number)
  switch (judgement.kind) {
    case 'valid': {
      const progress = { status: 'validated', validatedAtMs: clock.nowMs() } as const
      await ledger.commit([progressChange(candidate, progress), ...checked], [candidate])
      return
    }
    case 'failed': {
      // Who approves and proposes at once is right, whatever the head before it says.
      if (judging.look <= (judging.looksBefore.get(candidate.id) ?? 0))
        return view.doubt(candidate.round.questionId)
      const { code, detail, retryable } = judgement
      const failure = failureOf(stageOf(candidate.progress), code, detail, retryable)
      await ledger.commit([...checked, failedChange(candidate, failure)], [candidate])
      return
    }
    case 'operator':
      judging.halted = judgement.detail
      return noteWait(judging, candidate, judgement.detail, checked, heads)
    case 'closed':
      view.doubt(candidate.round.questionId)
      judging.judgedAt.set(candidate.id, heads.latest.hash)
      return noteWait(judging, candidate, 'closed', checked, heads)
    case 'wait':
      judging.contradiction = judgement.contradiction ?? judging.contradiction
      judging.judgedAt.set(candidate.id, heads.latest.hash)
      return noteWait(judging, candidate, judgement.detail, checked, heads)
    case 'unknown':
      return
  }
}

/**
 * Validated ones of wallets that nothing is sent of now; others of their rounds do not wait for
 * them.
 */
export async function settleHeld(
  judging: Judging,
  ceilings: GasCeilings,
  heads: Heads,
): Promise<ReadonlySet<string>> {
  const held = new Set<string>()
  for (const candidate of waitingIn(judging.ledger)) {
    const detail = heldBack(candidate, judging.ledger, ceilings, heads)
    if (detail === undefined || candidate.progress.status !== 'validated') continue
    held.add(candidate.id)
    await settleJudgement(judging, candidate, { kind: 'wait', detail }, heads)
  }
  return held
}

async function noteWait(
  { ledger, waits }: Judging,
  candidate: Candidate,
  why: string,
  checked: readonly Change[],
  { latest }: Heads,
) {
  const before = waits.get(candidate.id)
  if (before && (before.why === why || latest.number < before.quietUntil)) return
  // A wallet's code may answer otherwise at each block, and the store is not to grow with that.
  const doubled = before === undefined ? 1n : 2n * before.quietBlocks
  const quietBlocks = doubled < longestQuietBlocks ? doubled : longestQuietBlocks
  waits.set(candidate.id, { why, quietBlocks, quietUntil: latest.number + quietBlocks })
  await ledger.commit(checked, [candidate])
}

/** A wait is on record without figures too. */
function checkedChange(
  { id }: Candidate,
  judgement: Judgement,
  headNumber: bigint,
): readonly Change[] {
  const { kind, read } = judgement
  if (kind === 'unknown' || (read === undefined && kind !== 'wait')) return []
  const check = {
    blockNumber: String(read?.blockNumber ?? headNumber),
    verdict: kind,
    detail: 'detail' in judgement ? judgement.detail : null,
    figures: read?.figures ?? {},
  }
  return [{ kind: 'candidate.checked', id, check }]
}

/**
 * A round goes up to the highest number there was when it began. `freshFirst`: so many of a turn
 * never had one.
 */
export function createRoundRobin(most: number, freshFirst = 0) {
  let last = 0
  let end = 0
  let highestFresh = 0
  let marked: string | undefined
  let served = new Set<string>()
  const onward = (candidates: readonly Candidate[], count: number): readonly Candidate[] => {
    const turn = candidates
      .filter(({ sequence }) => sequence > last && sequence <= end)
      .slice(0, count)
    if (turn.length < count) {
      end = candidates.at(-1)?.sequence ?? 0
      const others = candidates.filter((candidate) => !turn.includes(candidate))
      turn.push(...others.slice(0, count - turn.length))
    }
    last = turn.at(-1)?.sequence ?? last
    return turn
  }
  return {
    /**
     * By sequence number, from where the last turn ended. `hasMore`: some have not had their turn
     * at `mark`.
     */
    next(candidates: readonly Candidate[], mark: string) {
      if (marked !== mark) served = new Set()
      marked = mark
      const fresh = candidates
        .filter(({ sequence }) => sequence > highestFresh)
        .slice(0, freshFirst)
      highestFresh = fresh.at(-1)?.sequence ?? highestFresh
      const rest = candidates.filter((candidate) => !fresh.includes(candidate))
      const turn = [...fresh, ...onward(rest, most - fresh.length)]
      for (const { id } of turn) served.add(id)
      return { turn, hasMore: candidates.some(({ id }) => !served.has(id)) }
    },
  }
}

/**
 * Spending a nonce elsewhere leaves no log: bitmaps are read in turn, so many a finalized block.
 */
const sweptPerBlock = 64
/** Slots are followed between steps. */
const endedPerStep = 32
const lookedAtOnce = 8

type Closing = ReturnType<typeof newClosing>

export const newClosing = () => ({
  sweeps: createRoundRobin(sweptPerBlock),
  endings: createRoundRobin(endedPerStep),
  /** A finalized block gives the same answer again: what is dead by it, and what is not over. */
  at: undefined as Hex | undefined,
  dead: new Map<string, CandidateFailure>(),
  looked: new Set<string>(),
})

/**
 * The dead, and where the pipeline is on those whose round is over. True where some are left for
 * the next step.
 */
export async function endWaiting(judging: Judging, closing: Closing, heads: Heads, isOn: boolean) {
  const { ledger, view, ports } = judging
  const { hash } = heads.finalized
  if (closing.at !== hash) {
    closing.dead = await findDead(judging, closing, heads)
    closing.looked = new Set()
    closing.at = hash
  }
  const { dead, looked } = closing
  const busy = busyRounds(ledger)
  const isKnownOpen = (candidate: Candidate, question = view.known(candidate.round.questionId)) =>
    question !== undefined && isRoundOpen(ports.contracts, question.round, candidate)
  const due = waitingIn(ledger).filter(
    (one) =>
      !looked.has(one.id) &&
      (dead.has(one.id) || (isOn && !busy.has(one.round.key) && !isKnownOpen(one))),
  )
  const endOne = async (candidate: Candidate) => {
    const { questionId } = candidate.round
    const failure = dead.get(candidate.id)
    if (failure === undefined) {
      const question = view.known(questionId) ?? (await ifAnswered(view.question(questionId)))
      if (isKnownOpen(candidate, question)) return
    }
    const hasEnded = await ifAnswered(endByRound(judging, candidate, heads))
    if (failure && hasEnded !== true) await endDead(judging, candidate, failure, heads, hasEnded)
    if (hasEnded === false) looked.add(candidate.id)
  }
  const { turn, hasMore } = closing.endings.next(due, hash)
  const limit = pLimit(lookedAtOnce)
  await Promise.all(turn.map((candidate) => limit(() => endOne(candidate))))
  return hasMore
}

async function findDead({ ledger, view, ports }: Judging, closing: Closing, { finalized }: Heads) {
  const candidates = waitingIn(ledger)
  const inTurn = new Set(closing.sweeps.next(candidates, finalized.hash).turn)
  const bitmaps = new Map<string, Promise<bigint>>()
  const found = new Map<string, CandidateFailure>()
  const examine = (candidate: Candidate, isUsed: boolean) => {
    const facts = { finalizedSeconds: finalized.timestamp, nonceUsed: isUsed }
    const failure = deadFailure(candidate, facts)
    if (failure) found.set(candidate.id, failure)
  }
  const readAndExamine = async (candidate: Candidate, nonce: bigint) => {
    const { proposer } = candidate
    const { word } = nonceBit(nonce)
    const key = `${proposer}|${word}`
    const bitmap = bitmaps.get(key) ?? readBitmap(ports, proposer, word, finalized.number)
    bitmaps.set(key, bitmap)
    examine(candidate, nonceUsed(nonce, await bitmap))
  }
  const reading: Promise<void>[] = []
  for (const candidate of candidates) {
    const nonce = BigInt(candidate.nonce)
    if (inTurn.has(candidate) || view.nonceKnownUsed(candidate.proposer, nonce))
      reading.push(readAndExamine(candidate, nonce))
    else examine(candidate, false)
  }
  await Promise.all(reading)
  return found
}

export function deadFailure(
  { deadline, nonce, progress }: Candidate,
  facts: { readonly finalizedSeconds: bigint; readonly nonceUsed: boolean },
): CandidateFailure | undefined {
  const { finalizedSeconds } = facts
  const stage = stageOf(progress)
  if (finalizedSeconds > BigInt(deadline)) {
    const detail = `The permit deadline ${deadline} has passed: finalized time is ${finalizedSeconds}.`
    return failureOf(stage, 'permit_expired', detail)
  }
  const detail = `The permit nonce ${nonce} is used or invalidated.`
  return facts.nonceUsed ? failureOf(stage, 'permit_nonce_used', detail) : undefined
}

async function endDead(
  judging: Judging,
  candidate: Candidate,
  failure: CandidateFailure,
  { finalized }: Heads,
  hasEnded: false | undefined,
) {
  const { ledger, ports } = judging
  // Somebody else's transaction uses the nonce too: the round tells (domain §9). Where nobody can, a nonce that is free after the deadline says that it never executed.
  if (
    hasEnded === undefined &&
    (finalized.timestamp <= BigInt(candidate.deadline) ||
      (await ifAnswered(isSpentAt(ports, candidate, finalized.number))) !== false)
  )
    return
  // A bitmap is one node's word: where the proposal succeeds at that block, it is wrong (R27).
  if (
    failure.code === 'permit_nonce_used' &&
    (await ifAnswered(runs(ports, candidate, finalized))) !== false
  )
    return
  await ledger.commit([failedChange(candidate, failure)], [candidate])
}

async function endByRound({ ledger, clock, ports }: Judging, candidate: Candidate, heads: Heads) {
  const closed = await readRoundEnd(ports, candidate, heads)
  if (closed === undefined) return false
  const ending = endingOf(candidate, closed)
  const changes =
    ending.kind === 'executed'
      ? stepsToExecuted(candidate, clock.nowMs(), ending.proposal)
      : [failedChange(candidate, ending.failure)]
  await ledger.commit(changes, [candidate])
  return true
}

/**
 * A selected candidate that only waits does not keep its round from the stand-ins (contract §5,
 * Selection; R3).
 */
const judgedPerStep = 32
const retriedPerStep = 64
/** Twice as many blocks each time, up to this. */
const longestBlocks = 64

interface Replaced {
  readonly at: Hex
  readonly times: number
  readonly untilBlock: bigint
}

type StandIns = ReturnType<typeof newStandIns>

export const newStandIns = () => ({
  turns: createRoundRobin(judgedPerStep),
  retries: createRoundRobin(retriedPerStep),
  stuckAt: boundedCache<string, Hex>(rememberedCandidates),
  troubledAt: boundedCache<string, Hex>(rememberedCandidates),
  replaced: boundedCache<string, Replaced>(rememberedCandidates),
})

/** Through no fault of the operator: at the next head its stand-ins are judged. */
export function noteStuck(
  { stuckAt, troubledAt }: StandIns,
  { id, round }: Candidate,
  { latest }: Heads,
) {
  stuckAt.set(id, latest.hash)
  if (!troubledAt.has(round.key)) troubledAt.set(round.key, latest.hash)
}

/** Those that were found to wait before come last, a part of them at a time. */
export function sendingOrder(
  { stuckAt, retries }: StandIns,
  candidates: readonly Candidate[],
  { latest }: Heads,
) {
  const stuck = candidates.filter(({ id }) => stuckAt.has(id))
  const { turn, hasMore } = retries.next(stuck, latest.hash)
  const again = turn.toSorted((one, other) => one.sequence - other.sequence)
  return { turn: [...candidates.filter(({ id }) => !stuckAt.has(id)), ...again], hasMore }
}

export function replacedAt({ replaced }: StandIns, { latest }: Heads): ReadonlySet<string> {
  const now = [...replaced.entries()].filter(([, { at }]) => at === latest.hash)
  return new Set(now.map(([id]) => id))
}

/**
 * One that can be sent now takes the place, in one commit; nobody is replaced by one that would
 * wait as well. True where the next step has to go on at once.
 */
export async function replaceStuck(
  judging: Judging,
  standIns: StandIns,
  judge: (candidate: Candidate, heads: Heads) => Promise<Judgement>,
  heads: Heads,
) {
  const { ledger, judgedAt } = judging
  const { hash, number } = heads.latest
  for (const { candidateIds } of ledger.slots())
    for (const memory of [standIns.replaced, standIns.stuckAt])
      for (const id of candidateIds) memory.delete(id)
  const busy = busyRounds(ledger)
  for (const key of busy) standIns.troubledAt.delete(key)
  if (standIns.stuckAt.size === 0) return false
  const waiting = waitingIn(ledger)
  const holders = new Map(
    waiting
      .filter(
        ({ id, progress }) => progress.status === 'selected' && standIns.stuckAt.get(id) === hash,
      )
      // R3: a round with an open slot changes nothing. The node may be ahead of this head: one look
      // is not enough to lose a place.
      .filter(({ round }) => !busy.has(round.key) && standIns.troubledAt.get(round.key) !== hash)
      .map((candidate) => [candidate.round.key, candidate]),
  )
  if (holders.size === 0) return false
  const eligible = waiting.filter(
    ({ id, round, progress }) =>
      progress.status === 'validated' &&
      holders.has(round.key) &&
      judgedAt.get(id) !== hash &&
      (standIns.replaced.get(id)?.untilBlock ?? 0n) <= number,
  )
  const { turn, hasMore } = standIns.turns.next(eligible, hash)
  const limit = pLimit(lookedAtOnce)
  const judged = await Promise.all(
    turn.map((standIn) => limit(async () => ({ standIn, judgement: await judge(standIn, heads) }))),
  )
  const able = judged.filter(({ judgement }) => judgement.kind === 'valid')
  for (const { standIn, judgement } of judged)
    if (judgement.kind !== 'valid') await settleJudgement(judging, standIn, judgement, heads)
  let hasChanged = false
  for (const [key, holder] of holders) {
    const found = able
      .filter(({ standIn }) => standIn.round.key === key)
      .toSorted((one, other) => one.standIn.sequence - other.standIn.sequence)
    const next = found.find(({ standIn }) => standIn.sequence > holder.sequence) ?? found[0]
    if (next && (await replace(judging, standIns, holder, next, heads))) hasChanged = true
  }
  return hasMore || hasChanged
}

async function replace(
  { ledger, clock }: Judging,
  { replaced }: StandIns,
  holder: Candidate,
  { standIn, judgement }: { standIn: Candidate; judgement: Judgement },
  { latest }: Heads,
) {
  const nowMs = clock.nowMs()
  const changes = [
    progressChange(holder, standsInAgain(holder.progress, nowMs)),
    ...checkedChange(standIn, judgement, latest.number),
    progressChange(standIn, selected(standIn.progress, nowMs, null)),
  ]
  if (!(await ledger.commit(changes, [holder, standIn]))) return false
  const times = (replaced.get(holder.id)?.times ?? 0) + 1
  const blocks = Math.min(2 ** (times - 1), longestBlocks)
  replaced.set(holder.id, { at: latest.hash, times, untilBlock: latest.number + BigInt(blocks) })
  return true
}

/**
 * Per round the lowest sequence number, where it has no selected candidate and no open slot (R3).
 * `replaced` come last.
 */
export function select(
  active: readonly Candidate[],
  busy: ReadonlySet<string>,
  replaced: ReadonlySet<string> = new Set(),
): readonly Candidate[] {
  const taken = new Set(busy)
  for (const { round, progress } of active)
    if (progress.status === 'selected' || progress.status === 'executed') taken.add(round.key)
  const isLate = ({ id }: Candidate) => Number(replaced.has(id))
  return active
    .filter(({ progress }) => progress.status === 'validated')
    .toSorted((one, other) => isLate(one) - isLate(other) || one.sequence - other.sequence)
    .filter(({ round }) => {
      const isFree = !taken.has(round.key)
      taken.add(round.key)
      return isFree
    })
}
