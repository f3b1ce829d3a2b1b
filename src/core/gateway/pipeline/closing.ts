/**
 * Ends waiting candidates that can never execute, as finalized state shows (contract §5, R13, R14,
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
  const limit = pLimit(endedAtOnce)
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
