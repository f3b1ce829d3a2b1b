import { ChainError, type Clock, type Hex } from '#ports'
import { boundedCache } from '#protocol/bounded-cache'
import type { Candidate } from '#protocol/candidate'
import { ProposerError } from '#protocol/errors'
import { type GasCeilings, heldBack } from '../executor/wallet-gas.js'
import type { Change, Ledger } from '../ledger/ledger.js'
import { failedChange, failureOf, progressChange, stageOf } from '../validation/progress.js'
import type { Judgement, JudgePorts } from '../validation/validation.js'
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

export type Judging = ReturnType<typeof newJudging>

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
export function checkedChange(
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
