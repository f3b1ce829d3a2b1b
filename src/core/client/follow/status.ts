/**
 * What a candidate's status says of its stage and its end, whichever gateway tells it (§2.6, §2.7,
 * contract §5, §9).
 */
import { failures } from '../../protocol/candidate.js'
import { ConflictError } from '../../protocol/errors.js'
import { isBytes32, isQuestionId } from '../../protocol/words.js'
import type { FailureTold, StatusTold, SubmissionTold } from '../gateway/reading.js'

export const stages = ['validated', 'selected', 'submitted', 'confirmed', 'indexed'] as const
export type Stage = (typeof stages)[number]

export interface PollTarget {
  readonly candidateId: string
  /**
   * Question id or slug: the single route needs it. Without one the batch route alone tells about
   * the candidate.
   */
  readonly identifier?: string
  /**
   * When it was sent, Unix milliseconds of this machine: nothing is asked before an end can be
   * expected. Default: the journal's.
   */
  readonly sentAtMs?: number
}

/**
 * A status as a gateway told it. A failure has what contract §5's table says of its code, where the
 * gateway does not say it; the question is known where the target names its ID.
 */
export type PolledStatus = StatusTold

/**
 * A status with what contract §5's table and the target add to it. Throws ConflictError
 * `candidate_mismatch`.
 */
export function polled({ candidateId, identifier }: PollTarget, told: StatusTold): PolledStatus {
  const status = checked(candidateId, told)
  const question =
    identifier !== undefined && isQuestionId(identifier) && status.question_id == null
      ? { question_id: identifier }
      : {}
  return {
    ...status,
    ...question,
    failure: status.failure && { ...meaningOf(status.failure.code), ...status.failure },
  }
}

/** Contract §5: what a code alone tells; nothing for a code of another gateway. */
function meaningOf(code: string): Pick<FailureTold, 'retryable' | 'next_action'> {
  const table: Readonly<
    Record<string, { readonly retryable: boolean | undefined; readonly nextAction: string }>
  > = failures
  const row = Object.hasOwn(table, code) ? table[code] : undefined
  if (row === undefined) return {}
  return {
    next_action: row.nextAction,
    ...(row.retryable === undefined ? {} : { retryable: row.retryable }),
  }
}

/** An answer about another candidate than the one asked for is no answer. */
function checked(candidateId: string, told: StatusTold): StatusTold {
  if (told.candidate_id.toLowerCase() === candidateId.toLowerCase())
    return { ...told, candidate_id: candidateId }
  throw new ConflictError(
    'candidate_mismatch',
    `the gateway answered about candidate ${told.candidate_id} instead of ${candidateId}`,
    {
      hint: 'do not trust this gateway until the operator has explained it',
    },
  )
}

type Told = Pick<PolledStatus, 'status' | 'submission' | 'failure'>

/** The stages before the end, as contract §5 and §3 of the spec name them. */
const isActive = (status: string): boolean =>
  status === 'received' || status === 'validated' || status === 'selected'

/** Words of other gateways that say by themselves that it failed. */
const saysFailed = (status: string): boolean =>
  /^(failed|rejected|expired|cancell?ed)$/i.test(status)

/**
 * How it ended; `undefined` while it is on its way. `executed` and `failed` say so themselves, as
 * an indexed submission does (contract §5). In one of the three active stages a failure is an end
 * only where it says that the payload can never execute. Of another word (contract §9) the failure
 * decides before the submission. A failure that may pass is no end, unless the word says so.
 */
export function endOf({ status, submission, failure }: Told): 'executed' | 'failed' | undefined {
  if (status === 'executed' || status === 'failed') return status
  if (isActive(status)) {
    if (submission?.status === 'indexed') return 'executed'
    return failure?.retryable === false ? 'failed' : undefined
  }
  if (saysFailed(status)) return 'failed'
  if (failure !== null)
    return failure.retryable === true || failure.next_action === 'wait' ? undefined : 'failed'
  return stageOfSubmission(submission) === 'indexed' ? 'executed' : undefined
}

/**
 * Whether an execution is told in words of contract §5. What other words seem to say closes no
 * authorization (R8): another answer could be signed while the first may still execute.
 */
export const isCertain = ({ status, submission }: Told): boolean =>
  status === 'executed' || submission?.status === 'indexed'

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
  return timeOf(status, 'selected') !== undefined
    ? 'selected'
    : timeOf(status, 'validated') !== undefined
      ? 'validated'
      : undefined
}

const submissionStages = ['indexed', 'confirmed', 'submitted'] as const

/**
 * By its own word, where that is one of contract §5's. Else by its times; `indexed` has a
 * transaction and an event index beside its own, for some gateways name an event before its block
 * is final.
 */
function stageOfSubmission(
  submission: SubmissionTold | null,
): (typeof submissionStages)[number] | undefined {
  if (submission === null) return undefined
  const { status, proposal_event_index: index, transaction_hash: hash } = submission
  if (['prepared', 'submitted', 'confirmed', 'indexed', 'reverted', 'dropped'].includes(status))
    return submissionStages.find((stage) => stage === status)
  const isWhole = index != null && hash != null && isBytes32(hash.toLowerCase())
  return submissionStages.find(
    (stage) => timeOf({ submission }, stage) !== undefined && (stage !== 'indexed' || isWhole),
  )
}

/**
 * Names of times: the spec names the stages, and no fields (§2.6). Whole names, for
 * `indexing_expected_at` tells no indexing.
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

/**
 * Whether a value tells a moment: RFC 3339, or Unix seconds and their fractions. Zero times, as
 * some gateways write none, do not.
 */
function isTime(value: unknown): boolean {
  if (typeof value === 'number' || (typeof value === 'string' && /^\d+$/.test(value)))
    return Number(value) > year2000Ms / 1_000
  return (
    typeof value === 'string' && /^\d{4}-\d\d-\d\d/.test(value) && Date.parse(value) > year2000Ms
  )
}

/**
 * When a stage was reached, as the gateway wrote it, under whatever name; `undefined` where it told
 * nothing.
 */
export function timeOf(
  status: Partial<Pick<PolledStatus, 'submission'>>,
  stage: keyof typeof timeNames,
): string | undefined {
  const holder = submissionStages.some((one) => one === stage) ? status.submission : status
  const found = Object.entries(holder ?? {}).find(
    ([name, value]) => timeNames[stage].test(name) && isTime(value),
  )
  return found === undefined ? undefined : String(found[1])
}

/** Two statuses with the same key tell the same stage. */
export function stageKey({ status, submission, failure }: PolledStatus): string {
  return [status, submission?.status, submission?.transaction_hash, failure?.code].join(' ')
}

/**
 * Milliseconds from admission to `until` (default: the end) as the gateway's own times tell them,
 * so that no clock of ours counts; `undefined` where they tell nothing, or where it failed.
 */
export function lifeMs(status: PolledStatus, until: Stage | undefined): number | undefined {
  if (endOf(status) === 'failed') return undefined
  const ms =
    Date.parse(timeOf(status, until ?? 'indexed') ?? '') -
    Date.parse(timeOf(status, 'received') ?? '')
  return Number.isFinite(ms) && ms >= 0 ? ms : undefined
}

/**
 * When a status came to be by the gateway's times, as it wrote them; `undefined` where it tells
 * none.
 */
export function changedAt(status: PolledStatus): string | undefined {
  if (endOf(status) === 'failed') return undefined
  const latest = submissionStages
    .map((stage) => timeOf(status, stage))
    .find((time) => time !== undefined)
  if (latest !== undefined || status.status === 'executed') return latest
  const { status: word } = status
  return word === 'received' || word === 'validated' || word === 'selected'
    ? timeOf(status, word)
    : undefined
}
