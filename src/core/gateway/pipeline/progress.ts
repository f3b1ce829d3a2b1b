/**
 * Steps of a candidate's progress (contract §5). Every record carries all of it, so each step is
 * made from the one before.
 */
import type { Hex } from '../../ports.js'
import type {
  Candidate,
  Failure,
  FailureCode,
  FailureStage,
  Progress,
  Submission,
} from '../../protocol/candidate.js'
import { failures } from '../../protocol/candidate.js'
import type { Change } from '../ledger/ledger.js'
import type { Verdict } from './validation.js'

/**
 * A failure; `retryable` comes from contract §5's table, or is given where the table leaves it to
 * the cause.
 */
export function failureOf(
  stage: FailureStage,
  code: FailureCode,
  detail: string,
  retryable?: boolean,
): Failure {
  return { stage, code, detail, retryable: failures[code].retryable ?? retryable ?? false }
}

/** Where a candidate that has no transaction stands, as a failure names it. */
export function stageOf(progress: Progress): FailureStage {
  if (progress.status === 'received') return 'validation'
  return progress.status === 'validated' ? 'selection' : 'submission'
}

/** A progress as the change that a commit takes. */
export function progressChange(candidate: Pick<Candidate, 'id'>, progress: Progress): Change {
  return { kind: 'candidate.progress', id: candidate.id, progress }
}

/**
 * What was read on the way to a verdict, as the change that keeps it. A wait is told without
 * figures too, as of `headNumber`; empty where there is nothing to tell.
 */
export function checkedChange(
  { id }: Pick<Candidate, 'id'>,
  verdict: Verdict,
  headNumber: bigint,
): Change[] {
  if (verdict.kind === 'unknown' || (verdict.read === undefined && verdict.kind !== 'wait'))
    return []
  const { blockNumber, figures } = verdict.read ?? { blockNumber: headNumber, figures: {} }
  const detail =
    verdict.kind === 'failed'
      ? verdict.detail
      : verdict.kind === 'wait'
        ? verdict.why
        : verdict.kind === 'operator'
          ? verdict.fault
          : null
  return [
    {
      kind: 'candidate.checked',
      id,
      check: { blockNumber: String(blockNumber), verdict: verdict.kind, detail, figures },
    },
  ]
}

/** The end in failure, with the times and the submission that were reached. */
export function failed(
  before: Progress,
  failure: Failure,
  submission = submissionOf(before),
): Progress {
  return {
    status: 'failed',
    validatedAtMs: 'validatedAtMs' in before ? before.validatedAtMs : null,
    selectedAtMs: 'selectedAtMs' in before ? before.selectedAtMs : null,
    submission,
    failure,
  }
}

/** The transaction that carries a candidate, as far as there is one. */
export function submissionOf(progress: Progress): Submission | null {
  return 'submission' in progress ? progress.submission : null
}

/** When a candidate was validated and selected; `nowMs` for a step it has not taken on its own. */
function timesOf(
  progress: Progress,
  nowMs: number,
): { validatedAtMs: number; selectedAtMs: number } {
  return {
    validatedAtMs: ('validatedAtMs' in progress ? progress.validatedAtMs : null) ?? nowMs,
    selectedAtMs: ('selectedAtMs' in progress ? progress.selectedAtMs : null) ?? nowMs,
  }
}

/** Selected, with or without a transaction. */
export function selected(before: Progress, nowMs: number, submission: Submission | null): Progress {
  return { status: 'selected', ...timesOf(before, nowMs), submission }
}

/** Executed: the proposal is on chain and matched. */
export function executed(before: Progress, nowMs: number, submission: Submission): Progress {
  return { status: 'executed', ...timesOf(before, nowMs), submission }
}

/** Back among the stand-ins: the slot ended without executing it (contract §5). */
export function standsInAgain(before: Progress, nowMs: number): Progress {
  return { status: 'validated', validatedAtMs: timesOf(before, nowMs).validatedAtMs }
}

/** A submission that is signed and durable, not yet sent. */
export function prepared(transactionHash: Hex): Submission {
  return {
    status: 'prepared',
    transactionHash,
    submittedAtMs: null,
    confirmedAtMs: null,
    indexedAtMs: null,
    proposalEventIndex: null,
  }
}

/**
 * Every step from where a candidate stands to executed, for one that the chain shows as done
 * (domain §9, after sending).
 */
export function stepsToExecuted(
  candidate: Candidate,
  nowMs: number,
  submission: Submission,
): Change[] {
  const { progress } = candidate
  const steps: Progress[] = []
  if (progress.status === 'received') steps.push({ status: 'validated', validatedAtMs: nowMs })
  if (progress.status === 'received' || progress.status === 'validated')
    steps.push(selected(progress, nowMs, null))
  steps.push(executed(progress, nowMs, submission))
  return steps.map((step) => progressChange(candidate, step))
}
