/**
 * One call, or some, for the statuses of candidates: by the batch route, or by the single one. What
 * a status says of stage and end, whichever gateway tells it (§2.6, §2.7, contract §5, §9).
 */
import pLimit from 'p-limit'
import { failures } from '#protocol/codes'
import {
  ConflictError,
  FailedError,
  InterruptedError,
  PendingError,
  ProposerError,
  reworded,
  UnavailableError,
  UsageError,
} from '#protocol/errors'
import { isBytes32, isQuestionId } from '#protocol/words'
import {
  type Answer,
  answerError,
  classifyRefusal,
  type RateLimit,
  type Unaccepted,
} from '../gateway/answer.js'
import type { CallOptions, GatewayClient } from '../gateway/gateway-client.js'
import {
  keptAnswer,
  type PolledStatus,
  type StatusItemRead,
  type SubmissionRead,
} from '../gateway/reading.js'
import { type Named, otherNamed } from '../journal/authorizations.js'
import type { Journal, JournalPorts } from '../journal/journal.js'
import type { JournalEntry } from '../journal/records.js'

const callsAtOnce = 4

/** No application response, or one that says to come back later. */
export type Trouble = Extract<Unaccepted, { kind: 'deferred' | 'uncertain' }>

type StatusReport =
  | { readonly kind: 'status'; readonly status: PolledStatus }
  /** For good: 404 and its kin, and `candidate_mismatch`. */
  | { readonly kind: 'refused'; readonly error: ProposerError }
  /** The response said nothing of use about this one. */
  | { readonly kind: 'silence' }

/** Which route serves each target: `single` needs an identifier. */
export interface Routes {
  readonly single: readonly PollTarget[]
  readonly batch: readonly PollTarget[]
}

const newReports = () => ({
  reports: new Map<PollTarget, StatusReport>(),
  rateLimit: undefined as RateLimit | undefined,
  /** What cut it short; targets without a report were not answered. */
  trouble: undefined as Trouble | undefined,
  batchRefused: undefined as ProposerError | undefined,
  items: 0,
})
export type StatusReports = ReturnType<typeof newReports>

export async function askStatuses(
  gateway: GatewayClient,
  { single, batch }: Routes,
  options: CallOptions,
) {
  const found = newReports()
  /** What an answer says; `undefined` of a refusal, and of trouble, which is kept. */
  const accepted = <Value>(answer: Answer<Value>) => {
    found.rateLimit = answer.rateLimit ?? found.rateLimit
    if (answer.kind === 'accepted') return answer.value
    if (answer.kind === 'deferred' || answer.kind === 'uncertain') found.trouble = answer
    return undefined
  }
  if (batch.length > 0) {
    const ids = batch.map(({ candidateId }) => candidateId)
    const answer = await gateway.statuses(ids, options)
    found.items = batch.length
    const results = accepted(answer)?.results
    if (results !== undefined) readResults(found, batch, results)
    else if (answer.kind !== 'accepted' && found.trouble === undefined)
      found.batchRefused = answerError(answer, 'read')
  }
  await pLimit(callsAtOnce).map(single, async (target) => {
    // What one call met the next would meet too.
    if (found.trouble !== undefined) return
    found.items++
    const { identifier = '', candidateId } = target
    const answer = await gateway.status(identifier, candidateId, options)
    const status = accepted(answer)
    if (status !== undefined) found.reports.set(target, statusReport(target, status))
    else if (answer.kind === 'refused' || answer.kind === 'reconcile')
      found.reports.set(target, refused(answerError(answer, 'read', identifier)))
  })
  return found
}

/** By id, not by position: a response that left one out must not be taken for its neighbour's. */
function readResults(
  found: StatusReports,
  targets: readonly PollTarget[],
  results: readonly StatusItemRead[],
) {
  const byId = new Map(results.map((result) => [result.candidate_id?.toLowerCase(), result]))
  for (const one of targets)
    found.reports.set(one, itemReport(one, byId.get(one.candidateId.toLowerCase())))
  if ([...found.reports.values()].some(({ kind }) => kind !== 'silence')) return
  found.reports.clear()
  const nothing = 'the gateway returned none of the requested candidates'
  const { code = 'gateway_body', detail = nothing } = results[0]?.error ?? {}
  found.trouble = { kind: 'uncertain', code, detail }
}

function itemReport(target: PollTarget, result: StatusItemRead | undefined): StatusReport {
  const { status_code: httpStatus, candidate, error } = result ?? {}
  if (httpStatus === 200 && candidate !== undefined) return statusReport(target, candidate)
  const answer = httpStatus && error ? classifyRefusal(httpStatus, error) : undefined
  return answer?.kind === 'refused' ? refused(answerError(answer, 'read')) : { kind: 'silence' }
}

const refused = (error: ProposerError) => ({ kind: 'refused', error }) as const

export interface PollParts {
  readonly ports: Pick<JournalPorts, 'clock' | 'random'>
  readonly gateway: GatewayClient
  /** Ends of candidates it knows are journaled; it tells the question of those given by id. */
  readonly journal?: Journal | undefined
}

/**
 * One status now (`status`); journals an end. By the single route, whole; where nobody knows the
 * question by the batch route (§4.2). Throws the response's error; UsageError `question_unknown`
 * where the gateway has no batch route.
 */
export async function statusOnce(
  parts: PollParts,
  given: PollTarget,
  options: { readonly signal?: AbortSignal } = {},
): Promise<PolledStatus> {
  const [target = given] = await knownTargets(parts.journal, [given])
  const isSingle = target.identifier !== undefined
  const routes = { single: isSingle ? [target] : [], batch: isSingle ? [] : [target] }
  const { reports, trouble, batchRefused } = await askStatuses(parts.gateway, routes, options)
  if (trouble !== undefined) throw answerError(trouble, 'read')
  const found = reports.get(target)
  if (found?.kind === 'refused') throw found.error
  if (batchRefused !== undefined)
    throw new UsageError(
      'question_unknown',
      `candidate ${target.candidateId} is not in the journal, and this gateway reports statuses by question only: ${batchRefused.detail}`,
      'add --question <id>',
    )
  if (found?.kind !== 'status') throw noStatus()
  await journalEnds(parts.journal, [found.status])
  return found.status
}

export const noStatus = () =>
  new UnavailableError('no_status', 'the gateway returned no status', 'retry later')

/** Each target once, with what the journal knows of it: what was signed, and when it was sent. */
export async function knownTargets(
  journal: Journal | undefined,
  targets: readonly PollTarget[],
): Promise<readonly PollTarget[]> {
  const view = await journal?.load()
  const once = new Map(targets.map((target) => [target.candidateId, target]))
  return [...once.values()].map((target) => {
    const one = view?.byCandidate(target.candidateId)
    return {
      ...target,
      sentAtMs: target.sentAtMs ?? one?.attempts.at(-1)?.startedAtMs,
      identifier: target.identifier ?? one?.signed.questionId,
      signed: target.signed ?? one?.signed,
    }
  })
}

/**
 * Journals ends once each, for authorizations that this home knows. Two ends leave it open. A
 * failure that does not tell whether it may be retried (contract §4). An execution in words of
 * another gateway, which a node or the deadline has to confirm (R8). StorageError 74.
 */
export async function journalEnds(journal: Journal | undefined, statuses: readonly PolledStatus[]) {
  const ended = statuses.flatMap((status) => {
    const outcome = endOf(status)
    return outcome === 'failed' || (outcome && isCertain(status)) ? [{ status, outcome }] : []
  })
  if (journal === undefined || ended.length === 0) return
  const view = await journal.load()
  const entries = ended.flatMap(({ status, outcome }): JournalEntry[] => {
    const known = view.byCandidate(status.candidate_id)
    const { code, retryable } = (outcome === 'failed' && status.failure) || {}
    const last = known?.terminal
    const isNews = retryable !== undefined && retryable !== last?.retryable
    if (known === undefined || (last?.outcome === outcome && last.code === code && !isNews))
      return []
    const hash = status.submission?.transaction_hash?.toLowerCase() ?? ''
    const data = {
      id: known.id,
      outcome,
      code,
      retryable,
      transaction_hash: isBytes32(hash) ? hash : null,
      event_index: status.submission?.proposal_event_index ?? null,
      ...(status.status === outcome ? {} : keptAnswer(status)),
    }
    return [{ kind: 'terminal', data }]
  })
  if (entries.length > 0) await journal.append(entries)
}

/** So many are named; of more the rest is counted. */
const namedCount = 3

interface FailedOf {
  readonly journalId?: string | undefined
  readonly questionId?: string | null | undefined
  readonly proposer?: string | null | undefined
}

/** As commands (contract §5); a word of another gateway as it is. */
export function remedyOf(action: string, { journalId, questionId, proposer }: FailedOf) {
  const replay =
    journalId === undefined
      ? 'proposer submit <identifier> <payload.json>'
      : `proposer replay ${journalId}`
  const again = `send the same payload again with \`${replay}\``
  const question = questionId ?? '<identifier>'
  const remedies: Readonly<Record<string, string>> = {
    none: 'nothing is left to do',
    wait: 'wait, then check the status again',
    replay_same_payload: again,
    fund_wallet: `fund the wallet${proposer == null ? '' : ` ${proposer}`}, then ${again}`,
    approve_permit2: `let Permit2 move the token with \`proposer funds approve\`, then ${again}`,
    sign_new_authorization: `sign again with \`proposer submit ${question} --outcome <answer>\``,
    wait_for_new_round: `wait for a new round; \`proposer reconcile ${question}\` shows the state`,
    contact_operator: 'contact the operator with the candidate id',
  }
  return (Object.hasOwn(remedies, action) && remedies[action]) || `next: ${action}`
}

export function failedError(status: PolledStatus, journalId?: string): FailedError {
  const { failure, candidate_id: id, question_id: questionId, proposer } = status
  if (failure === null)
    return new FailedError('failed', `candidate ${id} failed`, 'ask the operator for the reason')
  const { code, detail, stage, next_action: next, retryable } = failure
  // The route that tells the rest asks for the question (§4.2 rule 7).
  const flag = questionId == null ? ' --question <id>' : ''
  const where = stage == null ? '' : ` at ${stage}`
  return new FailedError(
    code,
    `candidate ${id} failed${where}: ${detail || 'no reason was given'}`,
    {
      hint:
        next == null
          ? `see \`proposer status ${id}${flag}\` for what to do next`
          : remedyOf(next, { journalId, questionId, proposer }),
      retryable,
    },
  )
}

export function failuresError(
  failed: readonly PolledStatus[],
  total: number,
  journalIdOf: (candidateId: string) => string | undefined,
): FailedError | undefined {
  const [first] = failed
  if (first === undefined) return undefined
  const error = failedError(first, journalIdOf(first.candidate_id))
  if (failed.length === 1) return error
  const { hint = '', retryable = false } = error.meta
  return new FailedError(
    error.code,
    `${failed.length} of ${total} candidates failed; the first: ${error.detail}`,
    { hint, retryable },
  )
}

export function refusedError(
  { candidateId, signed }: PollTarget,
  error: ProposerError,
  which = 'candidate ',
): ProposerError {
  const notFound =
    signed?.questionId !== undefined
      ? `the gateway that admitted it may have lost it: \`proposer reconcile ${signed.questionId}\` says what is safe to do next`
      : 'check the candidate id, its question (--question) and the gateway (--gateway): only the one that admitted it knows it'
  return reworded(
    error,
    `${which}${candidateId}: ${error.detail}`,
    error.meta.httpStatus === 404 ? { ...error.meta, hint: notFound } : error.meta,
  )
}

interface Waiting {
  readonly target: PollTarget
  readonly status?: PolledStatus | undefined
}

function namesOf(waiting: readonly Waiting[]) {
  const names = waiting.slice(0, namedCount).map(({ target: { candidateId }, status }) => {
    const sent = status?.submission?.status ? ` (${status.submission.status})` : ''
    return `${candidateId} is ${status === undefined ? 'not known' : status.status + sent}`
  })
  const more = waiting.length - namedCount
  return `${names.join(', ')}${more > 0 ? `, and ${more} more` : ''}`
}

function goOn(waiting: readonly Waiting[]) {
  if (waiting.length === 0) return 'rerun the command to continue'
  const ids = waiting.map(({ target }) => target.candidateId).join(' ')
  return `continue with \`proposer poll ${waiting.length > namedCount ? '--all' : ids}\``
}

/** Exit 8; exit 75 where `trouble` kept every status from us. */
export function timedOut(waiting: readonly Waiting[], trouble: Trouble | undefined): ProposerError {
  if (trouble !== undefined && waiting.every(({ status }) => status === undefined)) {
    const known = trouble.kind === 'deferred' ? answerError(trouble, 'read').meta.hint : undefined
    return new UnavailableError(
      'no_status',
      `the time limit was reached before any status was known: ${trouble.detail}`,
      known ?? 'check the gateway address, then retry',
    )
  }
  const last = trouble === undefined ? '' : `; the last answer: ${trouble.detail}`
  const what =
    waiting.length === 1
      ? `candidate ${namesOf(waiting)}`
      : `${waiting.length} candidates are still in progress: ${namesOf(waiting)}`
  return new PendingError('still_pending', `the time limit was reached: ${what}${last}`, {
    hint: goOn(waiting),
    retryable: true,
  })
}

/** Exit 130. `reason` is the signal's. */
export function interrupted(waiting: readonly Waiting[], reason: unknown): ProposerError {
  const detail = reason instanceof ProposerError ? reason.detail : 'stopped while polling'
  const { length } = waiting
  const left = length === 1 ? '1 candidate is' : `${length} candidates are`
  const progress = length === 0 ? '' : `: ${left} still in progress`
  const hint = goOn(waiting)
  return new InterruptedError('interrupted', detail + progress, { hint, retryable: true })
}

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

/**
 * With what its failure means (contract §5). An answer about something else than was asked or
 * signed counts as a refusal: nothing of it is believed.
 */
function statusReport(
  { candidateId, identifier, signed }: PollTarget,
  reported: PolledStatus,
): StatusReport {
  const mismatch = (what: string) =>
    refused(
      new ConflictError(
        'candidate_mismatch',
        `the gateway returned ${what}`,
        'do not trust this gateway until the operator has explained it',
      ),
    )
  if (reported.candidate_id.toLowerCase() !== candidateId.toLowerCase())
    return mismatch(`candidate ${reported.candidate_id} instead of ${candidateId}`)
  const isQuestion = isQuestionId(identifier ?? '')
  const own = signed ?? (isQuestion ? { questionId: identifier } : {})
  const other = otherNamed(own, reported)
  if (other !== undefined)
    return mismatch(`candidate ${candidateId} with another ${other.field} than ${other.own}`)
  const isQuestionKnown = reported.question_id != null || !isQuestion
  const { failure } = reported
  const status = {
    ...reported,
    candidate_id: candidateId,
    ...(isQuestionKnown ? {} : { question_id: identifier as string }),
    failure: failure && { ...meaningOf(failure.code), ...failure },
  }
  return { kind: 'status', status }
}

function meaningOf(code: string) {
  if (!Object.hasOwn(failures, code)) return {}
  const { nextAction, retryable } = failures[code as keyof typeof failures]
  return { next_action: nextAction, retryable }
}

export type { PolledStatus }

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
const isCertain = ({ status, submission }: Progress) =>
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

/** The spec names stages and no fields (§2.6). `indexing_expected_at` tells no indexing. */
const timeWords = {
  received: 'received|receipt',
  validated: 'validated|validation',
  selected: 'selected|selection',
  submitted: 'submitted|submission',
  confirmed: 'confirmed|confirmation',
  indexed: 'index|indexed|indexing',
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
  stage: keyof typeof timeWords,
) {
  const holder = submissionStages.some((one) => one === stage) ? status.submission : status
  const timeName = new RegExp(`^(${timeWords[stage]})_?(at|on|time|timestamp)$`, 'i')
  const found = Object.entries(holder ?? {}).find(
    ([name, value]) => timeName.test(name) && isTime(value),
  )
  return found === undefined ? undefined : String(found[1])
}

export function stageKey({ status, submission, failure }: PolledStatus) {
  return [status, submission?.status, submission?.transaction_hash, failure?.code].join(' ')
}

/** When it came to be what it is, by the gateway's times. */
export function changedAt(status: PolledStatus) {
  if (endOf(status) === 'failed') return undefined
  const active = (['selected', 'validated', 'received'] as const).filter(
    (stage) => stage === status.status,
  )
  return [...submissionStages, ...active]
    .map((stage) => stageTimeOf(status, stage))
    .find((at) => at !== undefined)
}
