/** What passes through ledger, chain and disk is reported: no node and no disk is asked for it. */
import { wrapChain } from '#chain/wrap'
import { type BlockHeader, type Chain, ChainError, type Clock, type Files, type Hex } from '#ports'
import type { Progress } from '#protocol/candidate'
import type { Address } from '#protocol/schema'
import {
  type LifeStage,
  lifeStages,
  type Observation,
  type SignedAs,
  type StateLine,
} from '#protocol/vitals'
import { feesFor, weiOf } from '../executor/state.js'
import type {
  Ledger,
  LedgerEvent,
  OpenSlots,
  Slot,
  SlotAttempt,
  SlotChange,
} from '../ledger/ledger.js'
import { attemptOf, foldSlot, isSlotChange } from '../ledger/state.js'
import { submissionOf, timesIn } from '../validation/validation.js'

interface LedgerFollower {
  readonly clock: Pick<Clock, 'nowMs' | 'monotonicMs'>
  readonly ledger: Pick<Ledger, 'active' | 'slots' | 'onChange'>
  readonly onObservation?: Observe
  readonly onState?: ((line: StateLine) => void) | undefined
}

interface Followed {
  readonly receivedAtMs: number
  readonly status: Progress['status']
  readonly statusAtMs: number
  readonly stage: LifeStage
  readonly stageAtMs: number
}

type Following = ReturnType<typeof newFollowing>

const newFollowing = ({ clock, ledger, onObservation }: LedgerFollower) => ({
  nowMs: clock.monotonicMs,
  observe: (observation: Observation) => onObservation?.(observation),
  followed: new Map<string, Followed>(),
  slots: new Map(ledger.slots().map((slot) => [slot.id, slot])) as OpenSlots,
  newestHash: undefined as Hex | undefined,
  gasPerProposal: undefined as bigint | undefined,
})

/** A revert that is not final is a transaction on its way (R14). */
function stageOfProgress(progress: Exclude<Progress, { status: 'failed' }>): LifeStage {
  if (progress.status !== 'selected') return progress.status
  const status = progress.submission?.status
  if (status === 'submitted' || status === 'reverted') return 'submitted'
  return status === 'confirmed' || status === 'indexed' ? 'confirmed' : 'selected'
}

/** What is active already keeps its recorded times, which wall clocks may have bent (R13). */
export function followLedger(parts: LedgerFollower) {
  const { clock, ledger, onState } = parts
  const following = newFollowing(parts)
  const { followed, nowMs } = following
  const monotonic = (wallMs: number) => nowMs() - Math.max(0, clock.nowMs() - wallMs)
  for (const { id, receivedAtMs, progress } of ledger.active()) {
    if (progress.status === 'failed') continue
    const stage = stageOfProgress(progress)
    const { status } = progress
    const { selectedAtMs, validatedAtMs } = timesIn(progress)
    const statusMs = selectedAtMs ?? validatedAtMs ?? receivedAtMs
    const submission = submissionOf(progress)
    const stageMs =
      submission?.indexedAtMs ?? submission?.confirmedAtMs ?? submission?.submittedAtMs ?? statusMs
    followed.set(id, {
      receivedAtMs: monotonic(receivedAtMs),
      status,
      statusAtMs: monotonic(statusMs),
      stage,
      stageAtMs: monotonic(stageMs),
    })
  }
  const stop = ledger.onChange((events, isElsewhere) => {
    for (const event of events) {
      const slot = isSlotChange(event) ? noteSlot(following, event) : undefined
      if (event.kind === 'candidate.received')
        move(following, event.candidate.id, event.candidate.progress)
      else if (event.kind === 'candidate.progress') move(following, event.id, event.progress)
      const line = stateLine(event, slot?.nonce)
      if (line) onState?.(isElsewhere ? { ...line, elsewhere: true } : line)
    }
  })
  return {
    queue() {
      const stage = () => ({ count: 0, oldest_seconds: 0 })
      const queue = { received: stage(), validated: stage(), selected: stage() }
      for (const { status, statusAtMs } of followed.values()) {
        if (status === 'executed' || status === 'failed') continue
        const of = queue[status]
        of.count += 1
        of.oldest_seconds = Math.max(of.oldest_seconds, (nowMs() - statusAtMs) / 1000)
      }
      return queue
    },
    newestHash: () => following.newestHash,
    gasPerProposal: () => following.gasPerProposal,
    stop,
  }
}

/** One that was not followed is new, or put back by an exact replay (contract §5). */
function move(following: Following, id: string, progress: Progress) {
  const { followed, nowMs, observe } = following
  const one = followed.get(id)
  const atMs = nowMs()
  const secondsSince = (ms = atMs) => (atMs - ms) / 1000
  if (progress.status === 'failed') {
    followed.delete(id)
    const { code } = progress.failure
    const seconds = secondsSince(one?.receivedAtMs)
    observe({ kind: 'ended', outcome: 'failed', code, seconds })
    return
  }
  const { status } = progress
  const stage = stageOfProgress(progress)
  if (one && stage !== 'received' && lifeStages.indexOf(stage) > lifeStages.indexOf(one.stage))
    observe({ kind: 'stage', stage, seconds: secondsSince(one.stageAtMs) })
  followed.set(id, {
    receivedAtMs: one?.receivedAtMs ?? atMs,
    status,
    statusAtMs: one?.status === status ? one.statusAtMs : atMs,
    stage,
    stageAtMs: one?.stage === stage ? one.stageAtMs : atMs,
  })
  if (one?.stage !== stage) endExecuted(following, id)
}

function endExecuted({ followed, slots, observe }: Following, id: string) {
  const one = followed.get(id)
  if (one?.stage !== 'executed') return
  if ([...slots.values()].some(({ candidateIds }) => candidateIds.includes(id))) return
  followed.delete(id)
  const seconds = (one.stageAtMs - one.receivedAtMs) / 1000
  observe({ kind: 'ended', outcome: 'executed', code: 'none', seconds })
}

function noteSlot(following: Following, change: SlotChange) {
  const { slots, observe } = following
  const slot = foldSlot(slots, change)
  switch (change.kind) {
    case 'slot.attempt':
      following.newestHash = change.attempt.hash
      if (slot) observe({ kind: 'signed', as: signedAs(slot, change.attempt) })
      break
    case 'slot.mined': {
      following.newestHash = change.hash
      const carried = attemptOf(slot, change.hash)?.candidateIds.length ?? 0
      if (carried > 0 && change.status === 'success')
        following.gasPerProposal = BigInt(change.gasUsed) / BigInt(carried)
      break
    }
    case 'slot.closed':
      observe({ kind: 'settled', end: change.outcome.kind })
      for (const id of slot?.candidateIds ?? []) endExecuted(following, id)
  }
  return change.kind === 'slot.opened' ? undefined : slot
}

/** By ids only: reasons, details and wallets stay in the store (R5). */
export function stateLine(event: LedgerEvent, nonce?: number): StateLine | undefined {
  const of = 'slotId' in event && { slot: event.slotId, ...(nonce !== undefined && { nonce }) }
  switch (event.kind) {
    case 'slot.attempt': {
      const { hash, kind, candidateIds } = event.attempt
      return { event: 'slot.signed', ...of, hash, kind, candidates: candidateIds.length }
    }
    case 'slot.sent':
      return { event: event.kind, ...of, hash: event.hash }
    case 'slot.mined': {
      const { hash, blockNumber: block, status: kind } = event
      return { event: event.kind, ...of, hash, block, kind }
    }
    case 'slot.closed': {
      const { kind, hash } = event.outcome
      return { event: event.kind, ...of, kind, ...(hash !== null && { hash }) }
    }
    case 'candidate.received': {
      const { id, round } = event.candidate
      return { event: event.kind, candidate_id: id, question_id: round.questionId }
    }
    case 'candidate.progress':
      return progressLine(event.id, event.progress)
    case 'candidate.checked': {
      const { verdict: code, blockNumber: block } = event.check
      if (code === 'valid' || code === 'failed') return undefined
      return { event: 'candidate.waits', candidate_id: event.id, code, block }
    }
    case 'slot.opened': {
      const { id, candidateIds } = event.slot
      const candidates = candidateIds.length
      return { event: event.kind, slot: id, nonce: event.slot.nonce, candidates }
    }
    case 'allowlist.set':
      return { event: event.kind, enabled: event.allowed }
    case 'admission.set':
      return { event: event.kind, enabled: event.enabled }
    case 'question.set':
      return { event: event.kind, question_id: event.entry.questionId }
    case 'question.removed':
      return { event: event.kind, question_id: event.questionId }
    case 'implementation.set':
      return { event: event.kind, contract: event.address, runs: event.runs.implementation }
    case 'receipt.key':
      return { event: event.kind, keyid: event.key.kid, enabled: event.key.exp === undefined }
    case 'store.repaired':
    case 'chain.finalized':
      return undefined
  }
}

function progressLine(candidate_id: string, progress: Progress) {
  const submission = submissionOf(progress)
  const hash = submission?.transactionHash
  const of = { candidate_id, ...(hash && { hash }) }
  if (progress.status === 'failed') {
    const { code, stage } = progress.failure
    return { event: 'candidate.failed', ...of, code, stage }
  }
  const state = progress.status === 'selected' && submission ? submission.status : progress.status
  return { event: `candidate.${state}`, ...of }
}

export function signedAs(slot: Slot, attempt: SlotAttempt): SignedAs {
  const before = slot.attempts[slot.attempts.indexOf(attempt) - 1]
  if (attempt.kind === 'cancel') return 'cancel'
  if (before === undefined) return 'first'
  if (attempt.candidateIds.length < before.candidateIds.length) return 'trim'
  const isHigher = BigInt(attempt.maxFeePerGas) > BigInt(before.maxFeePerGas)
  return before.sentAtMs !== null || isHigher ? 'fee_bump' : 'anew'
}

export interface ChainReadings {
  balanceWei?: bigint
  tipWei?: bigint
  nonceLatest?: number
  nonceFinalized?: number
}

type Observe = ((observation: Observation) => void) | undefined

/** The chain, each call counted with how it ended, and its readings of the executor. */
export function instrumentedChain(chain: Chain, executor: Address | undefined, observe: Observe) {
  const readings: ChainReadings = {}
  const counted = wrapChain(chain, async (asked, ask) => {
    const { method, args } = asked
    try {
      const response = await ask()
      observe?.({ kind: 'rpc', method, outcome: 'ok' })
      if (method === 'tip') readings.tipWei = response as bigint
      if (args[0] !== executor) return response
      if (method === 'balance') readings.balanceWei = response as bigint
      if (method === 'transactionCount' && args[1] === 'latest')
        readings.nonceLatest = response as number
      if (method === 'transactionCount' && args[1] === 'finalized')
        readings.nonceFinalized = response as number
      return response
    } catch (error) {
      if (error instanceof ChainError) observe?.({ kind: 'rpc', method, outcome: outcomeOf(error) })
      throw error
    }
  })
  return { chain: counted, readings }
}

function outcomeOf({ kind }: ChainError) {
  if (kind === 'already_known') return 'ok'
  return kind === 'reverted' || kind === 'unavailable' ? kind : 'refused'
}

export const instrumentedFiles = (
  files: Files,
  clock: Pick<Clock, 'monotonicMs'>,
  observe: Observe,
): Files => ({
  ...files,
  async open(path, mode) {
    const handle = await files.open(path, mode)
    return {
      ...handle,
      async write(buffer, offset, length) {
        const bytes = await handle.write(buffer, offset, length)
        observe?.({ kind: 'written', bytes })
        return bytes
      },
      async datasync() {
        const startedMs = clock.monotonicMs()
        await handle.datasync()
        observe?.({ kind: 'synced', seconds: (clock.monotonicMs() - startedMs) / 1000 })
      },
    }
  },
})

/** No transaction leaves a process that has lost its store (robustness §2, Lock). */
export const fenced = (chain: Chain, fence: () => Promise<void>): Chain =>
  wrapChain(chain, async ({ method }, ask) => {
    if (method === 'send') await fence()
    return ask()
  })

/** Of a proposal (domain §8: measured and computed). */
export const usualGas = 425_000n

/** Of a unit of gas now; without fees, for it is above the ceiling: as if it were sent. */
export function gasPrice(
  chainId: number,
  head: Pick<BlockHeader, 'baseFeePerGas'>,
  tipWei: bigint,
  maxFeeGwei: number,
) {
  const fees = feesFor(chainId, head, tipWei, weiOf(maxFeeGwei), { kind: 'propose' })
  return { fees, priceWei: head.baseFeePerGas + (fees?.maxPriorityFeePerGas ?? tipWei) }
}
