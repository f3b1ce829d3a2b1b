/** Every record carries all of it: each step is made from the one before (contract §5). */
import type { Hex } from '#ports'
import type {
  Candidate,
  CandidateFailure,
  CandidateSubmission,
  Progress,
} from '#protocol/candidate'
import { type FailureCode, type FailureStage, failures } from '#protocol/codes'
import type { Change } from '../ledger/ledger.js'

/** `retryable` counts where its code leaves it to the cause (contract §5). */
export function failureOf(
  stage: FailureStage,
  code: FailureCode,
  detail: string,
  retryable = false,
): CandidateFailure {
  return { stage, code, detail, retryable: failures[code].retryable ?? retryable }
}

export function stageOf({ status }: Progress): FailureStage {
  if (status === 'received') return 'validation'
  return status === 'validated' ? 'selection' : 'submission'
}

export function progressChange({ id }: Pick<Candidate, 'id'>, progress: Progress): Change {
  return { kind: 'candidate.progress', id, progress }
}

export function failed(
  before: Progress,
  failure: CandidateFailure,
  submission = submissionOf(before),
): Progress {
  return {
    status: 'failed',
    ...timesIn(before),
    submission,
    failure,
  }
}

export function failedChange(candidate: Candidate, failure: CandidateFailure): Change {
  return progressChange(candidate, failed(candidate.progress, failure))
}

export function submissionOf(progress: Progress): CandidateSubmission | null {
  return 'submission' in progress ? progress.submission : null
}

export function timesIn(progress: Progress) {
  return {
    validatedAtMs: 'validatedAtMs' in progress ? progress.validatedAtMs : null,
    selectedAtMs: 'selectedAtMs' in progress ? progress.selectedAtMs : null,
  }
}

function timesOf(progress: Progress, nowMs: number) {
  const { validatedAtMs, selectedAtMs } = timesIn(progress)
  return { validatedAtMs: validatedAtMs ?? nowMs, selectedAtMs: selectedAtMs ?? nowMs }
}

export function selected(
  before: Progress,
  nowMs: number,
  submission: CandidateSubmission | null,
): Progress {
  return { status: 'selected', ...timesOf(before, nowMs), submission }
}

export function executed(
  before: Progress,
  nowMs: number,
  submission: CandidateSubmission,
): Progress {
  return { status: 'executed', ...timesOf(before, nowMs), submission }
}

/** The slot ended without executing it (contract §5). */
export function standsInAgain(before: Progress, nowMs: number): Progress {
  return { status: 'validated', validatedAtMs: timesOf(before, nowMs).validatedAtMs }
}

export function preparedSubmission(transactionHash: Hex): CandidateSubmission {
  return {
    status: 'prepared',
    transactionHash,
    submittedAtMs: null,
    confirmedAtMs: null,
    indexedAtMs: null,
    proposalEventIndex: null,
  }
}

/** For one whose proposal another transaction has put on chain (domain §9). */
export function stepsToExecuted(
  candidate: Candidate,
  nowMs: number,
  proposal: { readonly transactionHash: Hex; readonly logIndex: number },
): Change[] {
  const { progress } = candidate
  const steps: Progress[] = []
  if (progress.status === 'received') steps.push({ status: 'validated', validatedAtMs: nowMs })
  if (progress.status === 'received' || progress.status === 'validated')
    steps.push(selected(progress, nowMs, null))
  const submission: CandidateSubmission = {
    status: 'indexed',
    transactionHash: proposal.transactionHash,
    submittedAtMs: nowMs,
    confirmedAtMs: nowMs,
    indexedAtMs: nowMs,
    proposalEventIndex: proposal.logIndex,
  }
  steps.push(executed(progress, nowMs, submission))
  return steps.map((step) => progressChange(candidate, step))
}
