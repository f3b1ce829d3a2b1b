/** Every record carries all of it: each step is made from the one before (contract §5). */
import type { ChainLog } from '#ports'
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

export const progressChange = ({ id }: Pick<Candidate, 'id'>, progress: Progress): Change => ({
  kind: 'candidate.progress',
  id,
  progress,
})

export const failed = (
  before: Progress,
  failure: CandidateFailure,
  submission = submissionOf(before),
): Progress => ({ status: 'failed', ...timesIn(before), submission, failure })

export const failedChange = (candidate: Candidate, failure: CandidateFailure): Change =>
  progressChange(candidate, failed(candidate.progress, failure))

export const submissionOf = (progress: Progress): CandidateSubmission | null =>
  'submission' in progress ? progress.submission : null

export const timesIn = (progress: Progress) => ({
  validatedAtMs: 'validatedAtMs' in progress ? progress.validatedAtMs : null,
  selectedAtMs: 'selectedAtMs' in progress ? progress.selectedAtMs : null,
})

function timesOf(progress: Progress, nowMs: number) {
  const { validatedAtMs, selectedAtMs } = timesIn(progress)
  return { validatedAtMs: validatedAtMs ?? nowMs, selectedAtMs: selectedAtMs ?? nowMs }
}

export const selected = (
  before: Progress,
  nowMs: number,
  submission: CandidateSubmission | null,
): Progress => ({ status: 'selected', ...timesOf(before, nowMs), submission })

export const executed = (
  before: Progress,
  nowMs: number,
  submission: CandidateSubmission,
): Progress => ({ status: 'executed', ...timesOf(before, nowMs), submission })

export const standsInAgain = (before: Progress, nowMs: number): Progress => ({
  status: 'validated',
  validatedAtMs: timesOf(before, nowMs).validatedAtMs,
})

/** For one whose proposal another transaction has put on chain (domain §9). */
export function stepsToExecuted(
  candidate: Candidate,
  nowMs: number,
  { transactionHash, logIndex }: Pick<ChainLog, 'transactionHash' | 'logIndex'>,
): Change[] {
  const { progress } = candidate
  const steps: Progress[] = []
  if (progress.status === 'received') steps.push({ status: 'validated', validatedAtMs: nowMs })
  if (progress.status === 'received' || progress.status === 'validated')
    steps.push(selected(progress, nowMs, null))
  const submission: CandidateSubmission = {
    ...{ status: 'indexed', transactionHash, proposalEventIndex: logIndex },
    ...{ submittedAtMs: nowMs, confirmedAtMs: nowMs, indexedAtMs: nowMs },
  }
  steps.push(executed(progress, nowMs, submission))
  return steps.map((step) => progressChange(candidate, step))
}
