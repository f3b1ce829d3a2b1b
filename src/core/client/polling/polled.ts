/** What a candidate's status says of its stage and its end, whichever gateway tells it (§2.6, §2.7, contract §5, §9). */
import { failures } from '../../protocol/candidate.js'
import { ConflictError } from '../../protocol/errors.js'
import { isQuestionId } from '../../protocol/words.js'
import type { FailureTold, StatusTold, SubmissionTold } from '../sending/reading.js'

export const stages = ['validated', 'selected', 'submitted', 'confirmed', 'indexed'] as const
export type Stage = (typeof stages)[number]

export interface PollTarget {
  readonly candidateId: string
  /** Question id or slug: the single route needs it. Without one the batch route alone tells about the candidate. */
  readonly identifier?: string
  /** When it was sent, Unix milliseconds of this machine: nothing is asked before an end can be expected. Default: the journal's. */
  readonly sentAtMs?: number
}

/**
 * A status as a gateway told it. A failure has what contract §5's table says of its code, where the gateway does not say it; the question
 * is known where the target names its ID.
 */
export type PolledStatus = StatusTold

/** A status with what contract §5's table and the target add to it. Throws ConflictError `candidate_mismatch`. */
export function polled({ candidateId, identifier }: PollTarget, told: StatusTold): PolledStatus {
  const status = checked(candidateId, told)
  const question = identifier !== undefined && isQuestionId(identifier) && status.question_id == null ? { question_id: identifier } : {}
  return { ...status, ...question, failure: status.failure && { ...meaningOf(status.failure.code), ...status.failure } }
}

/** Contract §5: what a code alone tells; nothing for a code of another gateway. */
function meaningOf(code: string): Pick<FailureTold, 'retryable' | 'next_action'> {
  const table: Readonly<Record<string, { readonly retryable: boolean | undefined; readonly nextAction: string }>> = failures
  const row = Object.hasOwn(table, code) ? table[code] : undefined
  if (row === undefined) return {}
  return { next_action: row.nextAction, ...(row.retryable === undefined ? {} : { retryable: row.retryable }) }
}

/** An answer about another candidate than the one asked for is no answer. */
function checked(candidateId: string, told: StatusTold): StatusTold {
  if (told.candidate_id.toLowerCase() === candidateId.toLowerCase()) return { ...told, candidate_id: candidateId }
  throw new ConflictError('candidate_mismatch', `the gateway answered about candidate ${told.candidate_id} instead of ${candidateId}`, {
    hint: 'do not trust this gateway until the operator has explained it',
  })
}

type Told = Pick<PolledStatus, 'status' | 'submission' | 'failure'>

/** The stages before the end, as contract §5 and §3 of the spec name them. */
const isActive = (status: string): boolean => status === 'received' || status === 'validated' || status === 'selected'

/**
 * How it ended; `undefined` while it is on its way. `executed` and `failed` say so themselves. An indexed submission is an execution
 * (contract §5). Of another word (contract §9) the submission decides, then the failure, unless that says to wait; a failure in one of the
 * three active stages is an end only where it says that the payload can never execute.
 */
export function endOf({ status, submission, failure }: Told): 'executed' | 'failed' | undefined {
  if (status === 'executed' || status === 'failed') return status
  if (submission?.status === 'indexed') return 'executed'
  if (isActive(status)) return failure?.retryable === false ? 'failed' : undefined
  if (stageOfSubmission(submission) === 'indexed') return 'executed'
  return failure !== null && failure.next_action !== 'wait' ? 'failed' : undefined
}

/** Whether it ended: nothing more is to be asked. */
export const hasEnded = (status: Told): boolean => endOf(status) !== undefined

/** Whether a status has reached the stage, or ended. `undefined`: the end. */
export function hasReached(status: PolledStatus, until: Stage | undefined): boolean {
  if (hasEnded(status)) return true
  if (until === undefined) return false
  const stage = stageOf(status)
  return stage !== undefined && stages.indexOf(stage) >= stages.indexOf(until)
}

function stageOf(status: PolledStatus): Stage | undefined {
  const sent = stageOfSubmission(status.submission)
  if (sent !== undefined) return sent
  if (isActive(status.status)) return stages.find((stage) => stage === status.status)
  return timeOf(status, 'selected') !== undefined ? 'selected' : timeOf(status, 'validated') !== undefined ? 'validated' : undefined
}

const submissionStages = ['indexed', 'confirmed', 'submitted'] as const

/** By its own word, where that is one of contract §5's; else by what only that stage has. */
function stageOfSubmission(submission: SubmissionTold | null): (typeof submissionStages)[number] | undefined {
  if (submission === null) return undefined
  const { status, proposal_event_index: index } = submission
  if (['prepared', 'submitted', 'confirmed', 'indexed', 'reverted', 'dropped'].includes(status))
    return submissionStages.find((stage) => stage === status)
  return index != null ? 'indexed' : submissionStages.find((stage) => timeOf({ submission }, stage) !== undefined)
}

/** How the names of times begin: the spec names the stages, and no fields (§2.6). */
const beginnings = {
  received: /^rece(ived|ipt)/i,
  validated: /^validat/i,
  selected: /^select/i,
  submitted: /^submi(tted|ssion)/i,
  confirmed: /^confirm/i,
  indexed: /^index/i,
} as const
const isTimeName = /(_at|_on|_time|_timestamp|At|Time|Timestamp)$/

/** When a stage was reached, as the gateway wrote it, under whatever name; `undefined` where it told nothing. */
export function timeOf(status: Partial<Pick<PolledStatus, 'submission'>>, stage: keyof typeof beginnings): string | undefined {
  const holder = submissionStages.some((one) => one === stage) ? status.submission : status
  const isTime = ([name, value]: [string, unknown]) =>
    (typeof value === 'string' || typeof value === 'number') && value !== '' && beginnings[stage].test(name) && isTimeName.test(name)
  const found = Object.entries(holder ?? {}).find(isTime)
  return found === undefined ? undefined : String(found[1])
}

/** Two statuses with the same key tell the same stage. */
export function stageKey({ status, submission, failure }: PolledStatus): string {
  return [status, submission?.status, submission?.transaction_hash, failure?.code].join(' ')
}

/**
 * Milliseconds from admission to `until` (default: the end) as the gateway's own times tell them, so that no clock of ours counts;
 * `undefined` where they tell nothing, or where it failed.
 */
export function lifeMs(status: PolledStatus, until: Stage | undefined): number | undefined {
  if (endOf(status) === 'failed') return undefined
  const ms = Date.parse(timeOf(status, until ?? 'indexed') ?? '') - Date.parse(timeOf(status, 'received') ?? '')
  return Number.isFinite(ms) && ms >= 0 ? ms : undefined
}

/** When a status came to be by the gateway's times, as it wrote them; `undefined` where it tells none. */
export function changedAt(status: PolledStatus): string | undefined {
  if (endOf(status) === 'failed') return undefined
  const latest = submissionStages.map((stage) => timeOf(status, stage)).find((time) => time !== undefined)
  if (latest !== undefined || status.status === 'executed') return latest
  const { status: word } = status
  return word === 'received' || word === 'validated' || word === 'selected' ? timeOf(status, word) : undefined
}
