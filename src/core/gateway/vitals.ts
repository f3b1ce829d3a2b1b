/**
 * What ledger events tell of how a gateway does: how long each stage takes, what waits for how
 * long, and one line a change.
 */
import type { Clock, Hex } from '../ports.js'
import type { Progress } from '../protocol/candidate.js'
import type { Observation, QueueStage, Stage, StateLine } from '../protocol/vitals.js'
import type { Ledger, LedgerEvent, Slot, SlotAttempt } from './ledger/ledger.js'
import { signedAs } from './operator/history.js'

export interface LedgerFollower {
  readonly clock: Pick<Clock, 'nowMs' | 'monotonicMs'>
  readonly ledger: Pick<Ledger, 'active' | 'slots' | 'onChange'>
  readonly onObservation?: ((observation: Observation) => void) | undefined
  readonly onState?: ((line: StateLine) => void) | undefined
}

export interface LedgerVitals {
  /** Age of the longest stay in each stage of the queue, in seconds; 0 where it is empty. */
  oldestSeconds(): Record<QueueStage, number>
  /** The transaction that was signed or mined last since the start. */
  newestHash(): Hex | undefined
  /** What a proposal used, by the last transaction that was mined; `undefined` before. */
  gasPerProposal(): bigint | undefined
  stop(): void
}

/** A candidate that is not at its end. Times are monotonic milliseconds (R13). */
interface Followed {
  receivedAtMs: number
  status: Progress['status']
  statusAtMs: number
  stage: Stage
  stageAtMs: number
}

type OpenSlot = Pick<Slot, 'nonce' | 'candidateIds'> & { attempts: readonly SlotAttempt[] }

const stages: readonly Stage[] = [
  'received',
  'validated',
  'selected',
  'submitted',
  'confirmed',
  'executed',
]
const rank = (stage: Stage) => stages.indexOf(stage)

/**
 * The stage that a progress stands for; `undefined` for a failure. A revert that is not final is a
 * transaction on its way (R14).
 */
export function stageOfProgress(progress: Progress): Stage | undefined {
  if (progress.status === 'failed') return undefined
  if (progress.status !== 'selected') return progress.status
  switch (progress.submission?.status) {
    case 'submitted':
    case 'reverted':
      return 'submitted'
    case 'confirmed':
    case 'indexed':
      return 'confirmed'
    case 'prepared':
    case 'dropped':
    case undefined:
      return 'selected'
  }
}

/**
 * When a progress reached its stage and its status, in wall time as recorded; `fallbackMs` where it
 * does not tell.
 */
function recordedAt(
  progress: Progress,
  fallbackMs: number,
): { readonly stageMs: number; readonly statusMs: number } {
  const statusMs =
    ('selectedAtMs' in progress
      ? progress.selectedAtMs
      : 'validatedAtMs' in progress
        ? progress.validatedAtMs
        : null) ?? fallbackMs
  const submission = 'submission' in progress ? progress.submission : null
  return {
    statusMs,
    stageMs:
      submission?.indexedAtMs ?? submission?.confirmedAtMs ?? submission?.submittedAtMs ?? statusMs,
  }
}

/**
 * Follows the ledger from now on; what is active already is taken over with its recorded times,
 * which wall clocks may have bent. Memory is bounded by what the ledger holds live. Source:
 * contract §5, robustness §5 (Log), R13.
 */
export function followLedger({
  clock,
  ledger,
  onObservation,
  onState,
}: LedgerFollower): LedgerVitals {
  const followed = new Map<string, Followed>()
  const slots = new Map<string, OpenSlot>()
  let newestHash: Hex | undefined
  let gasPerProposal: bigint | undefined

  const observe = (observation: Observation) => onObservation?.(observation)
  const tell = (line: StateLine) => onState?.(line)
  const secondsSince = (atMs: number) => (clock.monotonicMs() - atMs) / 1000

  for (const slot of ledger.slots()) slots.set(slot.id, slot)
  for (const { id, receivedAtMs, progress } of ledger.active()) {
    const stage = stageOfProgress(progress)
    if (stage === undefined) continue
    const { stageMs, statusMs } = recordedAt(progress, receivedAtMs)
    const monotonic = (wallMs: number) => clock.monotonicMs() - Math.max(0, clock.nowMs() - wallMs)
    followed.set(id, {
      receivedAtMs: monotonic(receivedAtMs),
      status: progress.status,
      statusAtMs: monotonic(statusMs),
      stage,
      stageAtMs: monotonic(stageMs),
    })
  }

  const enter = (id: string, status: Progress['status'], stage: Stage) => {
    const nowMs = clock.monotonicMs()
    followed.set(id, { receivedAtMs: nowMs, status, statusAtMs: nowMs, stage, stageAtMs: nowMs })
  }
  const carriedBySlot = (id: string) =>
    [...slots.values()].some(({ candidateIds }) => candidateIds.includes(id))

  const executedForGood = (id: string) => {
    const one = followed.get(id)
    if (one?.stage !== 'executed') return
    followed.delete(id)
    observe({
      kind: 'ended',
      outcome: 'executed',
      code: 'none',
      seconds: (one.stageAtMs - one.receivedAtMs) / 1000,
    })
  }

  const move = (id: string, progress: Progress) => {
    const stage = stageOfProgress(progress)
    const one = followed.get(id)
    if (progress.status === 'failed') {
      followed.delete(id)
      observe({
        kind: 'ended',
        outcome: 'failed',
        code: progress.failure.code,
        seconds: one ? secondsSince(one.receivedAtMs) : 0,
      })
      return
    }
    if (stage === undefined) return
    // An exact replay has put it back (contract §5), or a reorganisation has undone what was its
    // end (R14).
    if (one === undefined) {
      enter(id, progress.status, stage)
      if (stage === 'executed' && !carriedBySlot(id)) executedForGood(id)
      return
    }
    const nowMs = clock.monotonicMs()
    if (one.status !== progress.status) [one.status, one.statusAtMs] = [progress.status, nowMs]
    if (one.stage === stage) return
    if (rank(stage) > rank(one.stage) && stage !== 'received')
      observe({ kind: 'stage', stage, seconds: secondsSince(one.stageAtMs) })
    ;[one.stage, one.stageAtMs] = [stage, nowMs]
    // What another transaction has put on chain has no slot whose end could be awaited.
    if (stage === 'executed' && !carriedBySlot(id)) executedForGood(id)
  }

  const note = (event: LedgerEvent) => {
    switch (event.kind) {
      case 'candidate.received':
        enter(event.candidate.id, 'received', 'received')
        return
      case 'candidate.progress':
        move(event.id, event.progress)
        return
      case 'slot.opened':
        slots.set(event.slot.id, event.slot)
        return
      case 'slot.attempt': {
        newestHash = event.attempt.hash
        const slot = slots.get(event.slotId)
        if (slot === undefined) return
        const before = slot.attempts.at(-1)
        observe({
          kind: 'signed',
          as: signedAs(event.attempt, before && { ...before, sent: before.sentAtMs !== null }),
        })
        slots.set(event.slotId, { ...slot, attempts: [...slot.attempts, event.attempt] })
        return
      }
      case 'slot.sent': {
        const slot = slots.get(event.slotId)
        if (slot === undefined) return
        const attempts = slot.attempts.map((one) =>
          one.hash === event.hash ? { ...one, sentAtMs: event.sentAtMs } : one,
        )
        slots.set(event.slotId, { ...slot, attempts })
        return
      }
      case 'slot.mined': {
        newestHash = event.hash
        const carried =
          slots.get(event.slotId)?.attempts.find(({ hash }) => hash === event.hash)?.candidateIds
            .length ?? 0
        if (carried > 0 && event.status === 'success')
          gasPerProposal = BigInt(event.gasUsed) / BigInt(carried)
        return
      }
      case 'slot.closed': {
        observe({ kind: 'settled', end: event.outcome.kind })
        const carried = slots.get(event.slotId)?.candidateIds ?? []
        slots.delete(event.slotId)
        // One that it left out may be in another slot by now, whose end is its own.
        for (const id of carried) if (!carriedBySlot(id)) executedForGood(id)
        return
      }
      case 'candidate.checked':
      case 'allowlist.set':
      case 'admission.set':
      case 'question.set':
      case 'question.removed':
      case 'store.repaired':
      case 'chain.finalized':
        return
    }
  }

  const stop = ledger.onChange((events) => {
    for (const event of events) {
      const slot = 'slotId' in event ? slots.get(event.slotId) : undefined
      note(event)
      const line = stateLine(event, slot?.nonce)
      if (line) tell(line)
    }
  })

  return {
    oldestSeconds() {
      const oldest = { received: 0, validated: 0, selected: 0 }
      for (const { status, statusAtMs } of followed.values()) {
        if (status === 'executed' || status === 'failed') continue
        oldest[status] = Math.max(oldest[status], secondsSince(statusAtMs))
      }
      return oldest
    },
    newestHash: () => newestHash,
    gasPerProposal: () => gasPerProposal,
    stop,
  }
}

/**
 * A ledger event as a line of the state log, by ids only; `undefined` for what is no change of
 * state. `nonce`: the slot's, where the event is about one that is open. Reasons that operators
 * gave, details and wallets stay in the store (R5).
 */
export function stateLine(event: LedgerEvent, nonce?: number): StateLine | undefined {
  const at = nonce === undefined ? {} : { nonce }
  switch (event.kind) {
    case 'candidate.received':
      return {
        event: 'candidate.received',
        candidate_id: event.candidate.id,
        question_id: event.candidate.round.questionId,
      }
    case 'candidate.progress':
      return progressLine(event.id, event.progress)
    case 'candidate.checked':
      // The others are changes of progress, which have a line of their own.
      if (event.check.verdict === 'valid' || event.check.verdict === 'failed') return undefined
      return {
        event: 'candidate.waits',
        candidate_id: event.id,
        code: event.check.verdict,
        block: event.check.blockNumber,
      }
    case 'slot.opened':
      return {
        event: 'slot.opened',
        slot: event.slot.id,
        nonce: event.slot.nonce,
        candidates: event.slot.candidateIds.length,
      }
    case 'slot.attempt': {
      const { hash, kind, candidateIds } = event.attempt
      return {
        event: 'slot.signed',
        slot: event.slotId,
        ...at,
        hash,
        kind,
        candidates: candidateIds.length,
      }
    }
    case 'slot.sent':
      return { event: 'slot.sent', slot: event.slotId, ...at, hash: event.hash }
    case 'slot.mined':
      return {
        event: 'slot.mined',
        slot: event.slotId,
        ...at,
        hash: event.hash,
        block: event.blockNumber,
        kind: event.status,
      }
    case 'slot.closed': {
      const { kind, hash } = event.outcome
      return {
        event: 'slot.closed',
        slot: event.slotId,
        ...at,
        kind,
        ...(hash === null ? {} : { hash }),
      }
    }
    case 'allowlist.set':
      return { event: 'allowlist.set', enabled: event.allowed }
    case 'admission.set':
      return { event: 'admission.set', enabled: event.enabled }
    case 'question.set':
      return { event: 'question.set', question_id: event.entry.questionId }
    case 'question.removed':
      return { event: 'question.removed', question_id: event.questionId }
    case 'store.repaired':
    case 'chain.finalized':
      return undefined
  }
}

function progressLine(id: string, progress: Progress): StateLine {
  const submission = 'submission' in progress ? progress.submission : null
  const hash = submission?.transactionHash
  const of = { candidate_id: id, ...(hash ? { hash } : {}) }
  if (progress.status === 'failed')
    return {
      event: 'candidate.failed',
      ...of,
      code: progress.failure.code,
      stage: progress.failure.stage,
    }
  const state = progress.status === 'selected' && submission ? submission.status : progress.status
  return { event: `candidate.${state}`, ...of }
}
