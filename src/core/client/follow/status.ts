/**
 * What a status says of stage and end, whichever gateway tells it (§2.6, §2.7, contract §5, §9).
 */
import { failures } from '#protocol/codes'
import { ConflictError } from '#protocol/errors'
import { isBytes32, isQuestionId } from '#protocol/words'
import type { PolledStatus, SubmissionRead } from '../gateway/reading.js'
import { type Named, otherNamed } from '../journal/authorizations.js'

export const stages = ['validated', 'selected', 'submitted', 'confirmed', 'indexed'] as const
export type Stage = (typeof stages)[number]

export interface PollTarget {
  readonly candidateId: string
  /** The single route needs it. */
  readonly identifier?: string | undefined
  /** Unix milliseconds; default: the journal's. */
  readonly sentAtMs?: number | undefined
  /** Default: the journal's. */
  readonly signed?: Named | undefined
}

export type { PolledStatus }

/**
 * With what its failure means (contract §5). An answer about something else than was asked or
 * signed is none.
 */
export function polled(
  { candidateId, identifier, signed }: PollTarget,
  reported: PolledStatus,
): PolledStatus | ConflictError {
  const mismatch = (what: string) =>
    new ConflictError(
      'candidate_mismatch',
      `the gateway returned ${what}`,
      'do not trust this gateway until the operator has explained it',
    )
  if (reported.candidate_id.toLowerCase() !== candidateId.toLowerCase())
    return mismatch(`candidate ${reported.candidate_id} instead of ${candidateId}`)
  const isQuestion = isQuestionId(identifier ?? '')
  const own = signed ?? (isQuestion ? { questionId: identifier } : {})
  const other = otherNamed(own, reported)
  if (other !== undefined)
    return mismatch(`candidate ${candidateId} with another ${other.field} than ${other.own}`)
  const isQuestionKnown = reported.question_id != null || !isQuestion
  return {
    ...reported,
    candidate_id: candidateId,
    ...(isQuestionKnown ? {} : { question_id: identifier as string }),
    failure: reported.failure && { ...meaningOf(reported.failure.code), ...reported.failure },
  }
}

function meaningOf(code: string) {
  if (!Object.hasOwn(failures, code)) return {}
  const { nextAction, retryable } = failures[code as keyof typeof failures]
  return { next_action: nextAction, ...(retryable === undefined ? {} : { retryable }) }
}

type Progress = Pick<PolledStatus, 'status' | 'submission' | 'failure'>

/** The stages before the end, as contract §5 and §3 of the spec name them. */
const isActive = (status: string) => ['received', 'validated', 'selected'].includes(status)

/** Words of other gateways that say by themselves that it failed. */
const saysFailed = /^(failed|rejected|expired|cancell?ed)$/i

/**
 * `undefined` on its way (contract §5). In an active stage a failure is an end only where the
 * payload can never execute. Of another word (contract §9) the failure decides before the
 * submission; one that may pass is no end.
 */
export function endOf({
  status,
  submission,
  failure,
}: Progress): 'executed' | 'failed' | undefined {
  if (status === 'executed' || status === 'failed') return status
  if (isActive(status)) {
    if (submission?.status === 'indexed') return 'executed'
    return failure?.retryable === false ? 'failed' : undefined
  }
  if (saysFailed.test(status)) return 'failed'
  if (failure !== null)
    return failure.retryable === true || failure.next_action === 'wait' ? undefined : 'failed'
  return stageOfSubmission(submission) === 'indexed' ? 'executed' : undefined
}

/**
 * In words of ours. Others close no authorization (R8): another answer could be signed while the
 * first may still execute.
 */
export const isCertain = ({ status, submission }: Progress) =>
  status === 'executed' || submission?.status === 'indexed'

export function hasReached(status: PolledStatus, until: Stage | undefined) {
  if (endOf(status) !== undefined) return true
  const stage = stageOf(status)
  if (until === undefined || stage === undefined) return false
  return stages.indexOf(stage) >= stages.indexOf(until)
}

function stageOf(status: PolledStatus) {
  const sent = stageOfSubmission(status.submission)
  if (sent !== undefined) return sent
  if (isActive(status.status)) return stages.find((stage) => stage === status.status)
  return (['selected', 'validated'] as const).find(
    (stage) => stageTimeOf(status, stage) !== undefined,
  )
}

const submissionStages = ['indexed', 'confirmed', 'submitted'] as const
const submissionWords = [...submissionStages, 'prepared', 'reverted', 'dropped']

/** By its word, else its times. Some gateways name an event before its block is final. */
function stageOfSubmission(submission: SubmissionRead | null) {
  if (submission === null) return undefined
  const { status, proposal_event_index: index, transaction_hash: hash } = submission
  if (submissionWords.includes(status)) return submissionStages.find((stage) => stage === status)
  const isWhole = index != null && hash != null && isBytes32(hash.toLowerCase())
  return submissionStages.find(
    (stage) => stageTimeOf({ submission }, stage) !== undefined && (stage !== 'indexed' || isWhole),
  )
}

/**
 * The spec names stages and no fields (§2.6). Whole names: `indexing_expected_at` tells no
 * indexing.
 */
const timeNames = {
  received: /^(received|receipt)_?(at|on|time|timestamp)$/i,
  validated: /^validat(ed|ion)_?(at|on|time|timestamp)$/i,
  selected: /^select(ed|ion)_?(at|on|time|timestamp)$/i,
  submitted: /^submi(tted|ssion)_?(at|on|time|timestamp)$/i,
  confirmed: /^confirm(ed|ation)_?(at|on|time|timestamp)$/i,
  indexed: /^index(ed|ing)?_?(at|on|time|timestamp)$/i,
} as const

const year2000Ms = Date.UTC(2000)

/** The zero times of some gateways are none. */
function isTime(value: unknown) {
  if (typeof value === 'number' || (typeof value === 'string' && /^\d+$/.test(value)))
    return Number(value) > year2000Ms / 1_000
  return (
    typeof value === 'string' && /^\d{4}-\d\d-\d\d/.test(value) && Date.parse(value) > year2000Ms
  )
}

export function stageTimeOf(
  status: Partial<Pick<PolledStatus, 'submission'>>,
  stage: keyof typeof timeNames,
) {
  const holder = submissionStages.some((one) => one === stage) ? status.submission : status
  const found = Object.entries(holder ?? {}).find(
    ([name, value]) => timeNames[stage].test(name) && isTime(value),
  )
  return found === undefined ? undefined : String(found[1])
}

export function stageKey({ status, submission, failure }: PolledStatus) {
  return [status, submission?.status, submission?.transaction_hash, failure?.code].join(' ')
}

export function changedAt(status: PolledStatus) {
  if (endOf(status) === 'failed') return undefined
  const sent = submissionStages.find((stage) => stageTimeOf(status, stage) !== undefined)
  const { status: word } = status
  if (sent !== undefined) return stageTimeOf(status, sent)
  return isActive(word)
    ? stageTimeOf(status, word as 'received' | 'validated' | 'selected')
    : undefined
}
