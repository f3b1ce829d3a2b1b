/**
 * Ends waiting candidates that can never execute, and those of rounds that are over, as finalized
 * state shows them (contract §5, R14).
 */
import pLimit from 'p-limit'
import { permit2Abi } from '../../chain/contracts.js'
import { readContract } from '../../chain/reading.js'
import type { Clock, Hex } from '../../ports.js'
import type { Candidate, Failure } from '../../protocol/candidate.js'
import { nonceBit, nonceUsed } from '../../protocol/permit.js'
import { adopted } from '../executor/slot-changes.js'
import type { Ledger } from '../ledger/ledger.js'
import type { Heads, LiveView } from '../view/view.js'
import { commitOn } from './commit-on.js'
import { failed, progressChange, stepsToExecuted } from './progress.js'
import { type RoundEndPorts, roundEnd } from './round-end.js'
import { deadFailure, endingOf } from './selection.js'
import { tolerant } from './tolerant.js'
import { createTurns } from './turns.js'
import { isOpen, runs, type ValidationPorts } from './validation.js'

/**
 * Spending a nonce through another application leaves no log: waiting candidates' bitmaps are read
 * in turn, so many a finalized block.
 */
const sweptPerBlock = 64
/** Rounds looked at in one step, and at once: slots are followed between steps. */
const endedPerStep = 32
const endedAtOnce = 8

export interface ClosingPorts extends RoundEndPorts, Pick<ValidationPorts, 'executor'> {
  readonly clock: Clock
  readonly ledger: Ledger
  readonly view: Pick<LiveView, 'known' | 'question' | 'nonceKnownUsed'>
  /** Active candidates that no slot carries, by sequence number. */
  waiting(): readonly Candidate[]
  /** Keys of rounds with an open slot. */
  busyRounds(): ReadonlySet<string>
}

export interface Closing {
  /**
   * Waiting candidates whose deadline has passed or whose nonce is gone, in finalized state, fail
   * at once, pipeline on or off. True where some are left for the next step. Rejects with
   * `ChainError` where the bitmaps cannot be read.
   */
  sweep(heads: Heads): Promise<boolean>
  /** Waiting candidates of rounds that are over. True where some are left for the next step. */
  closeRounds(heads: Heads): Promise<boolean>
}

/** Source: contract §5, robustness R13, R14, domain §9. */
export function createClosing(ports: ClosingPorts): Closing {
  const { clock, ledger, view, chain, contracts } = ports
  const sweeps = createTurns(sweptPerBlock)
  const ends = createTurns(endedPerStep)
  const closes = createTurns(endedPerStep)
  /** What the sweep of a finalized block has found and not yet dealt with. */
  let dead: { readonly at: Hex; readonly failures: Map<string, Failure> } | undefined
  /** Candidates whose round finalized state shows as open: the same block gives the same answer. */
  let open: { readonly at: Hex; readonly ids: Set<string> } | undefined

  /** Ends a candidate by what finalized state shows of its round; false while the round is open. */
  const endByRound = async (candidate: Candidate, heads: Heads): Promise<boolean> => {
    const end = await roundEnd(ports, candidate, heads)
    if (end.kind === 'open') return false
    const ending = endingOf(candidate, end)
    const changes =
      ending.kind === 'executed'
        ? stepsToExecuted(candidate, clock.nowMs(), adopted(ending.proposal, clock.nowMs()))
        : [progressChange(candidate, failed(candidate.progress, ending.failure))]
    await commitOn(ledger, [candidate], changes)
    return true
  }

  const finalBitmap = ({ proposer, nonce }: Candidate, { finalized }: Heads) =>
    readContract(chain, finalized.number, contracts.permit2, permit2Abi, 'nonceBitmap', [
      proposer,
      nonceBit(BigInt(nonce)).word,
    ])

  const findDead = async (heads: Heads): Promise<Map<string, Failure>> => {
    const candidates = ports.waiting()
    const inTurn = new Set(sweeps.next(candidates, heads.finalized.hash).turn)
    const bitmaps = new Map<string, Promise<bigint>>()
    const isUsed = async (candidate: Candidate) => {
      const { proposer, nonce } = candidate
      if (!inTurn.has(candidate) && !view.nonceKnownUsed(proposer, BigInt(nonce))) return false
      const key = `${proposer}|${nonceBit(BigInt(nonce)).word}`
      const read = bitmaps.get(key) ?? finalBitmap(candidate, heads)
      bitmaps.set(key, read)
      return nonceUsed(BigInt(nonce), await read)
    }
    const used = await Promise.all(candidates.map(isUsed))
    const failures = new Map<string, Failure>()
    for (const [index, candidate] of candidates.entries()) {
      const failure = deadFailure(candidate, {
        finalizedSeconds: heads.finalized.timestamp,
        nonceUsed: used[index] === true,
      })
      if (failure) failures.set(candidate.id, failure)
    }
    return failures
  }

  const bury = async (candidate: Candidate, failure: Failure, heads: Heads) => {
    // Executed by somebody else's transaction, its nonce is used too: the round tells (domain §9).
    const ended = await tolerant(endByRound(candidate, heads))
    if (ended === true) return
    // Where nobody can tell, a nonce that is free says that it has not been executed, and late as
    // it is it never will be.
    if (ended === undefined && !(await isUnspent(candidate, heads))) return
    // A bitmap is one node's word: where the proposal succeeds at that very block, it is wrong
    // (R27).
    if (
      failure.code === 'permit_nonce_used' &&
      (await tolerant(runs(ports, candidate, heads.finalized))) !== false
    )
      return
    await commitOn(
      ledger,
      [candidate],
      [progressChange(candidate, failed(candidate.progress, failure))],
    )
  }

  const isUnspent = async (candidate: Candidate, heads: Heads): Promise<boolean> => {
    if (heads.finalized.timestamp <= BigInt(candidate.deadline)) return false
    const bitmap = await tolerant(finalBitmap(candidate, heads))
    return bitmap !== undefined && !nonceUsed(BigInt(candidate.nonce), bitmap)
  }

  return {
    async sweep(heads) {
      const { hash } = heads.finalized
      if (dead?.at !== hash) dead = { at: hash, failures: await findDead(heads) }
      const { failures } = dead
      if (failures.size === 0) return false
      const doomed = ports.waiting().filter(({ id }) => failures.has(id))
      const { turn } = ends.next(doomed, hash)
      const limit = pLimit(endedAtOnce)
      const buried = turn.map((candidate) =>
        limit(async () => {
          const failure = failures.get(candidate.id)
          if (failure) await bury(candidate, failure, heads)
          failures.delete(candidate.id)
        }),
      )
      await Promise.all(buried)
      return doomed.length > turn.length
    },
    async closeRounds(heads) {
      const { hash } = heads.finalized
      if (open?.at !== hash) open = { at: hash, ids: new Set() }
      const { ids } = open
      // A round with a slot of ours ends with that slot.
      const busy = ports.busyRounds()
      const isKnownOpen = (candidate: Candidate) => {
        const question = view.known(candidate.round.questionId)
        return question !== undefined && isOpen(contracts, question.round, candidate)
      }
      const due = ports
        .waiting()
        .filter((one) => !busy.has(one.round.key) && !ids.has(one.id) && !isKnownOpen(one))
      const { turn, more } = closes.next(due, hash)
      const look = async (candidate: Candidate) => {
        const { questionId } = candidate.round
        const question = view.known(questionId) ?? (await tolerant(view.question(questionId)))
        if (question && isOpen(contracts, question.round, candidate)) return
        if ((await tolerant(endByRound(candidate, heads))) === false) ids.add(candidate.id)
      }
      const limit = pLimit(endedAtOnce)
      await Promise.all(turn.map((candidate) => limit(() => look(candidate))))
      return more
    },
  }
}
