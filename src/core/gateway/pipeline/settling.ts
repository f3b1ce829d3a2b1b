/** What becomes of waiting candidates, and whose turn it is (contract §5, R3, R13, R14, domain §9). */
import { type BlockHeader, ChainError, type Clock, type Hex } from '#ports'
import { boundedCache } from '#protocol/bounded-cache'
import type { Candidate, CandidateFailure, CandidateState } from '#protocol/candidate'
import type { FailureCode } from '#protocol/codes'
import { ProposerError } from '#protocol/errors'
import { busyRounds } from '../executor/state.js'
import { smallest } from '../executor/transaction.js'
import type { Change, Ledger } from '../ledger/ledger.js'
import { endingOf, isRoundOpen, isSpentAt, readRoundEnd } from '../validation/contract-reads.js'
import {
  failedChange,
  failureOf,
  progressChange,
  stageOf,
  stepsToExecuted,
} from '../validation/progress.js'
import { inParts, type Judgement, type JudgePorts, runs } from '../validation/validation.js'
import type { Heads } from '../view/state.js'
import type { LiveView } from '../view/view.js'

const longestQuietBlocks = 512n
export const rememberedCandidates = 10_000

interface Wait {
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
  readonly turn: () => Promise<void>
}) => ({
  ...parts,
  waits: boundedCache<string, Wait>(rememberedCandidates),
  silent: boundedCache<string, Hex>(rememberedCandidates),
  /** The head that first did not let it go on: one look is not enough to lose a place (R27). */
  heldSince: new WeakMap<Candidate, Hex>(),
  /** Begun when a candidate came, or came again: by none of them it fails. */
  looksBefore: boundedCache<string, number>(rememberedCandidates),
  look: 0,
  halted: undefined as string | undefined,
  contradiction: undefined as string | undefined,
  sweeps: createQueue(sweptPerBlock),
  endings: createQueue(endedPerStep),
  ends: { at: undefined as Hex | undefined, spent: new Set<string>(), open: new Set<string>() },
})

const waitingIn = (ledger: Ledger): readonly Candidate[] =>
  ledger
    .active()
    .filter(({ id, progress }) => progress.status !== 'executed' && ledger.slotOf(id) === undefined)

export const dueOf = ({ ledger, waits }: Judging, status: CandidateState, { latest }: Heads) =>
  waitingIn(ledger).filter(
    ({ id, progress }) => progress.status === status && waits.get(id)?.at.hash !== latest.hash,
  )

/** A chain that stays silent shows in the view (R16). */
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
  { latest }: Heads,
) {
  const { ledger, view, clock, heldSince } = judging
  const { id, round, progress } = candidate
  const { kind, read } = judgement
  const settle = (...changes: readonly Change[]) => ledger.commit(changes, [candidate])
  if (!heldSince.has(candidate)) heldSince.set(candidate, latest.hash)
  if (kind === 'unknown') {
    judging.silent.set(id, latest.hash)
    return
  }
  const detail = 'detail' in judgement ? judgement.detail : null
  const blockNumber = String(read?.blockNumber ?? latest.number)
  const check = { blockNumber, verdict: kind, detail, figures: read?.figures ?? {} }
  const checked: Change = { kind: 'candidate.checked', id, check }
  if (kind === 'valid') {
    const validated = { status: 'validated', validatedAtMs: clock.nowMs() } as const
    await settle(progressChange(candidate, validated), checked)
  } else if (kind === 'failed') {
    // Who approves and proposes at once is right, whatever the head before it says.
    if (judging.look <= (judging.looksBefore.get(id) ?? 0)) return view.doubt(round.questionId)
    const { code, retryable } = judgement
    const failure = failureOf(stageOf(progress), code, judgement.detail, retryable)
    await settle(...(read ? [checked] : []), failedChange(candidate, failure))
  } else {
    if (kind === 'closed') view.doubt(round.questionId)
    if (kind === 'operator') judging.halted = judgement.detail
    if (kind === 'wait' && judgement.contradiction) judging.contradiction = judgement.contradiction
    if (isNewReason(judging, id, detail ?? kind, latest)) await settle(checked)
  }
}

function isNewReason({ waits }: Judging, id: string, why: string, at: BlockHeader) {
  const before = waits.get(id)
  if (before && (before.why === why || at.number < before.quietUntil)) {
    waits.set(id, { ...before, at })
    return false
  }
  // A wallet's code may answer otherwise at each block, and the store is not to grow with that.
  const doubled = 2n * (before?.quietBlocks ?? 0n) || 1n
  const quietBlocks = smallest(doubled, longestQuietBlocks)
  waits.set(id, { at, why, quietBlocks, quietUntil: at.number + quietBlocks })
  return true
}

/** So many a turn, who waited longest first; `freshFirst` of a turn never had one. */
export function createQueue(most: number, freshFirst = 0) {
  const rows = new WeakMap<Candidate, { candidate: Candidate; place: number; mark?: string }>()
  let last = 0
  return {
    /** By sequence number. `hasMore`: some have not had their turn at `mark`. */
    next(candidates: readonly Candidate[], mark: string) {
      const all = candidates.map((candidate) => {
        last += 1
        const row = rows.get(candidate) ?? { candidate, place: last }
        rows.set(candidate, row)
        return row
      })
      const fresh = new Set(all.filter((row) => row.mark === undefined).slice(0, freshFirst))
      const others = all
        .filter((row) => !fresh.has(row))
        .toSorted((one, other) => one.place - other.place)
      const chosen = [...fresh, ...others.slice(0, most - fresh.size)]
      for (const row of chosen) {
        last += 1
        Object.assign(row, { place: last, mark })
      }
      return {
        turn: bySequence(chosen.map(({ candidate }) => candidate)),
        hasMore: all.some((row) => row.mark !== mark),
      }
    },
  }
}

const bySequence = (candidates: readonly Candidate[]) =>
  candidates.toSorted((one, other) => one.sequence - other.sequence)

/** Spending a nonce elsewhere leaves no log: so many bitmaps are read a finalized block. */
const sweptPerBlock = 64
const endedPerStep = 32

export async function endWaiting(judging: Judging, heads: Heads, isOn: boolean) {
  const { ledger, view, ports, turn } = judging
  const { hash, timestamp } = heads.finalized
  const waiting = waitingIn(ledger)
  if (judging.ends.at !== hash)
    judging.ends = { at: hash, spent: await readSpent(judging, waiting, heads), open: new Set() }
  const { spent, open } = judging.ends
  const failureNow = (candidate: Candidate) =>
    deadFailure(candidate, { finalizedSeconds: timestamp, nonceUsed: spent.has(candidate.id) })
  const busy = busyRounds(ledger)
  const isKnownOpen = (candidate: Candidate, question = view.known(candidate.round.questionId)) =>
    question !== undefined && isRoundOpen(ports.contracts, question.round, candidate)
  const isDue = (candidate: Candidate) =>
    failureNow(candidate) !== undefined ||
    (isOn && !busy.has(candidate.round.key) && !isKnownOpen(candidate))
  const due = waiting.filter((one) => !open.has(one.id) && isDue(one))
  const { turn: next, hasMore } = judging.endings.next(due, hash)
  await inParts(next, turn, async (candidate) => {
    const { questionId } = candidate.round
    const failure = failureNow(candidate)
    if (failure === undefined) {
      const question = view.known(questionId) ?? (await ifAnswered(view.question(questionId)))
      if (isKnownOpen(candidate, question)) return
    }
    const hasEnded = await ifAnswered(endByRound(judging, candidate, heads))
    if (failure && hasEnded !== true) await endDead(judging, candidate, failure, heads, hasEnded)
    if (hasEnded === false) open.add(candidate.id)
  })
  return hasMore
}

async function readSpent(
  { view, ports, sweeps }: Judging,
  waiting: readonly Candidate[],
  { finalized }: Heads,
) {
  const inTurn = new Set(sweeps.next(waiting, finalized.hash).turn)
  const found = waiting.map(async (candidate) => {
    const { id, proposer, nonce } = candidate
    const mayBeSpent = inTurn.has(candidate) || view.nonceKnownUsed(proposer, BigInt(nonce))
    return mayBeSpent && (await isSpentAt(ports, candidate, finalized.number)) ? [id] : []
  })
  return new Set((await Promise.all(found)).flat())
}

export function deadFailure(
  { deadline, nonce, progress }: Candidate,
  facts: { readonly finalizedSeconds: bigint; readonly nonceUsed: boolean },
): CandidateFailure | undefined {
  const { finalizedSeconds, nonceUsed } = facts
  const failed = (code: FailureCode, detail: string) => failureOf(stageOf(progress), code, detail)
  if (finalizedSeconds > BigInt(deadline)) {
    const passed = `The permit deadline ${deadline} has passed`
    return failed('permit_expired', `${passed}: finalized time is ${finalizedSeconds}.`)
  }
  if (!nonceUsed) return undefined
  return failed('permit_nonce_used', `The permit nonce ${nonce} is used or invalidated.`)
}

async function endDead(
  { ledger, ports }: Judging,
  candidate: Candidate,
  failure: CandidateFailure,
  { finalized }: Heads,
  hasEnded: false | undefined,
) {
  // Where nobody can read the round, a nonce that is free after the deadline shows it (domain §9).
  if (
    hasEnded === undefined &&
    (finalized.timestamp <= BigInt(candidate.deadline) ||
      (await ifAnswered(isSpentAt(ports, candidate, finalized.number))) !== false)
  )
    return
  // A bitmap is one node's word: where the proposal succeeds at that block, it is wrong (R27).
  const isSuspect = failure.code === 'permit_nonce_used'
  if (isSuspect && (await ifAnswered(runs(ports, candidate, finalized))) !== false) return
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

export function firstOfRounds(candidates: readonly Candidate[], busy: ReadonlySet<string>) {
  const taken = new Set(busy)
  return candidates.filter(({ round }) => {
    const isFree = !taken.has(round.key)
    taken.add(round.key)
    return isFree
  })
}

/** Per round the lowest, where it has no selected candidate and no open slot (R3). */
export function select(
  active: readonly Candidate[],
  busy: ReadonlySet<string>,
): readonly Candidate[] {
  const holders = active.filter(
    ({ progress }) => progress.status === 'selected' || progress.status === 'executed',
  )
  const validated = active.filter(({ progress }) => progress.status === 'validated')
  return firstOfRounds(
    bySequence(validated),
    new Set([...busy, ...holders.map(({ round }) => round.key)]),
  )
}
