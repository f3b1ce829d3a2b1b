/**
 * What a judgement makes of a waiting candidate; whose turn it is in a round; and the end of those
 * that can never execute, as finalized state shows (contract §5, R3, R13, R14, domain §9).
 */
import pLimit from 'p-limit'
import { type BlockHeader, ChainError, type Clock, type Hex } from '#ports'
import { boundedCache } from '#protocol/bounded-cache'
import type { Candidate, CandidateFailure, CandidateState } from '#protocol/candidate'
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
  stageOf,
  stepsToExecuted,
} from '../validation/progress.js'
import { type Judgement, type JudgePorts, runs } from '../validation/validation.js'
import type { Heads } from '../view/state.js'
import type { LiveView } from '../view/view.js'

/** Reasons that change all the time go on record ever more rarely. */
const longestQuietBlocks = 512n
export const rememberedCandidates = 10_000

interface Wait {
  /** The head at which it waited last: the same head gives the same result. */
  readonly at: BlockHeader
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
  waits: boundedCache<string, Wait>(rememberedCandidates),
  /** By round: the heads at which its selected candidate waited first and last. */
  stuck: boundedCache<string, { readonly since: Hex; readonly at: Hex }>(rememberedCandidates),
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

/** Those that wait and were not judged at this head. */
export const dueOf = ({ ledger, waits }: Judging, status: CandidateState, { latest }: Heads) =>
  waitingIn(ledger).filter(
    ({ id, progress }) => progress.status === status && waits.get(id)?.at.hash !== latest.hash,
  )

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
      return noteWait(judging, candidate, 'closed', checked, heads)
    case 'wait':
      judging.contradiction = judgement.contradiction ?? judging.contradiction
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
  { latest: at }: Heads,
) {
  const { id } = candidate
  const before = waits.get(id)
  if (before && (before.why === why || at.number < before.quietUntil)) {
    waits.set(id, { ...before, at })
    return
  }
  // A wallet's code may answer otherwise at each block, and the store is not to grow with that.
  const doubled = before === undefined ? 1n : 2n * before.quietBlocks
  const quietBlocks = doubled < longestQuietBlocks ? doubled : longestQuietBlocks
  waits.set(id, { at, why, quietBlocks, quietUntil: at.number + quietBlocks })
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
 * So many a turn, who waited longest first, however many come after. `freshFirst`: so many of a
 * turn never had one.
 */
export function createQueue(most: number, freshFirst = 0) {
  const places = new WeakMap<Candidate, { readonly place: number; readonly mark?: string }>()
  let last = 0
  const placeOf = (candidate: Candidate) => places.get(candidate)?.place ?? 0
  const enqueue = (candidate: Candidate, mark?: string) => {
    last += 1
    places.set(candidate, { place: last, ...(mark !== undefined && { mark }) })
  }
  return {
    /** By sequence number. `hasMore`: some have not had their turn at `mark`. */
    next(candidates: readonly Candidate[], mark: string) {
      for (const candidate of candidates) if (!places.has(candidate)) enqueue(candidate)
      const fresh = candidates
        .filter((candidate) => places.get(candidate)?.mark === undefined)
        .slice(0, freshFirst)
      const first = new Set(fresh)
      const others = candidates
        .filter((candidate) => !first.has(candidate))
        .toSorted((one, other) => placeOf(one) - placeOf(other))
      const turn = [...fresh, ...others.slice(0, most - fresh.length)]
      for (const candidate of turn) enqueue(candidate, mark)
      return {
        turn: turn.toSorted((one, other) => one.sequence - other.sequence),
        hasMore: candidates.some((candidate) => places.get(candidate)?.mark !== mark),
      }
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
  sweeps: createQueue(sweptPerBlock),
  endings: createQueue(endedPerStep),
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

/** Through no fault of the operator. */
export function noteStuck({ stuck }: Judging, { round }: Candidate, { latest }: Heads) {
  const { since } = stuck.get(round.key) ?? { since: latest.hash }
  stuck.set(round.key, { since, at: latest.hash })
}

/**
 * A selected candidate that only waits does not keep its round from the stand-ins (contract §5): of
 * each such round one that is valid, the lowest of those that waited longest ago. The node may be
 * ahead of this head: one look is not enough to lose a place.
 */
export async function judgeStandIns(
  judging: Judging,
  queue: ReturnType<typeof createQueue>,
  judge: (candidate: Candidate, heads: Heads) => Promise<Judgement>,
  heads: Heads,
) {
  const { ledger, stuck, waits } = judging
  const { hash } = heads.latest
  const busy = busyRounds(ledger)
  const eligible = dueOf(judging, 'validated', heads).filter(({ round }) => {
    const waiting = stuck.get(round.key)
    return waiting?.at === hash && waiting.since !== hash && !busy.has(round.key)
  })
  const { turn, hasMore } = queue.next(eligible, hash)
  const limit = pLimit(lookedAtOnce)
  const judgeOne = async (standIn: Candidate) => {
    const judgement = await judge(standIn, heads)
    if (judgement.kind === 'valid') return [standIn]
    await settleJudgement(judging, standIn, judgement, heads)
    return []
  }
  const judged = await Promise.all(turn.map((standIn) => limit(() => judgeOne(standIn))))
  const waitedAt = ({ id }: Candidate) => Number(waits.get(id)?.at.number ?? -1n)
  const able = judged.flat().toSorted((one, other) => waitedAt(one) - waitedAt(other))
  return { chosen: firstOfRounds(able, busy), hasMore }
}

function firstOfRounds(candidates: readonly Candidate[], busy: ReadonlySet<string>) {
  const taken = new Set(busy)
  return candidates.filter(({ round }) => {
    const isFree = !taken.has(round.key)
    taken.add(round.key)
    return isFree
  })
}

/** Per round the lowest sequence number, where it has no selected candidate and no open slot (R3). */
export function select(
  active: readonly Candidate[],
  busy: ReadonlySet<string>,
): readonly Candidate[] {
  const holders = active.filter(
    ({ progress }) => progress.status === 'selected' || progress.status === 'executed',
  )
  const validated = active.filter(({ progress }) => progress.status === 'validated')
  return firstOfRounds(
    validated.toSorted((one, other) => one.sequence - other.sequence),
    new Set([...busy, ...holders.map(({ round }) => round.key)]),
  )
}
