/**
 * Ends waiting candidates that can never execute, as finalized state shows (contract §5, R13,
 * R14,
 * domain §9).
 */
import pLimit from 'p-limit'
import type { Hex } from '#ports'
import type { Candidate, CandidateFailure } from '#protocol/candidate'
import { nonceBit, nonceUsed } from '#protocol/permit'
import { busyRounds } from '../executor/state.js'
import { isSpentAt, readBitmap } from '../validation/contract-reads.js'
import { failedChange, failureOf, stageOf, stepsToExecuted } from '../validation/progress.js'
import { endingOf, isRoundOpen, readRoundEnd } from '../validation/round-end.js'
import { runs } from '../validation/validation.js'
import type { Heads } from '../view/state.js'
import { createRoundRobin, ifAnswered, type Judging, waitingIn } from './settling.js'

/**
 * Spending a nonce elsewhere leaves no log: bitmaps are read in turn, so many a finalized block.
 */
const sweptPerBlock = 64
/** Slots are followed between steps. */
const endedPerStep = 32
const endedAtOnce = 8

export type Closing = ReturnType<typeof newClosing>

export const newClosing = () => ({
  sweeps: createRoundRobin(sweptPerBlock),
  endings: createRoundRobin(endedPerStep),
  closings: createRoundRobin(endedPerStep),
  dead: { at: undefined as Hex | undefined, failures: new Map<string, CandidateFailure>() },
  /** A finalized block gives the same answer again. */
  open: { at: undefined as Hex | undefined, ids: new Set<string>() },
})

/** Pipeline on or off. True where some are left for the next step. */
export async function sweepDead(
  judging: Judging,
  closing: Closing,
  heads: Heads,
): Promise<boolean> {
  const { hash } = heads.finalized
  if (closing.dead.at !== hash)
    closing.dead = { at: hash, failures: await findDead(judging, closing, heads) }
  const { failures } = closing.dead
  if (failures.size === 0) return false
  const doomed = waitingIn(judging.ledger).filter(({ id }) => failures.has(id))
  const { turn } = closing.endings.next(doomed, hash)
  const limit = pLimit(endedAtOnce)
  await Promise.all(
    turn.map((candidate) =>
      limit(async () => {
        const failure = failures.get(candidate.id)
        if (failure) await endDead(judging, candidate, failure, heads)
        failures.delete(candidate.id)
      }),
    ),
  )
  return doomed.length > turn.length
}

async function findDead(
  { ledger, view, ports }: Judging,
  closing: Closing,
  { finalized }: Heads,
): Promise<Map<string, CandidateFailure>> {
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
  heads: Heads,
): Promise<void> {
  const { ledger, ports } = judging
  const { finalized } = heads
  // Somebody else's transaction uses the nonce too: the round tells (domain §9).
  const hasEnded = await ifAnswered(endByRound(judging, candidate, heads))
  if (hasEnded === true) return
  // Where nobody can tell, a nonce that is free after the deadline says that it never executed.
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

async function endByRound(
  { ledger, clock, ports }: Judging,
  candidate: Candidate,
  heads: Heads,
): Promise<boolean> {
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

export async function closeRounds(
  judging: Judging,
  closing: Closing,
  heads: Heads,
): Promise<boolean> {
  const { ledger, view, ports } = judging
  const { hash } = heads.finalized
  if (closing.open.at !== hash) closing.open = { at: hash, ids: new Set() }
  const { ids } = closing.open
  const busy = busyRounds(ledger)
  const isKnownOpen = (candidate: Candidate, question = view.known(candidate.round.questionId)) =>
    question !== undefined && isRoundOpen(ports.contracts, question.round, candidate)
  const due = waitingIn(ledger).filter(
    (one) => !busy.has(one.round.key) && !ids.has(one.id) && !isKnownOpen(one),
  )
  const { turn, hasMore } = closing.closings.next(due, hash)
  const limit = pLimit(endedAtOnce)
  const closeOne = async (candidate: Candidate) => {
    const { questionId } = candidate.round
    const question = view.known(questionId) ?? (await ifAnswered(view.question(questionId)))
    if (isKnownOpen(candidate, question)) return
    if ((await ifAnswered(endByRound(judging, candidate, heads))) === false) ids.add(candidate.id)
  }
  await Promise.all(turn.map((candidate) => limit(() => closeOne(candidate))))
  return hasMore
}
