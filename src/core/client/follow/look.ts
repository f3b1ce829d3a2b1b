/** What a status says of stage and end, whichever gateway tells it (§2.6, §2.7, contract §5, §9). */
import pLimit from 'p-limit'
import { type FailureCode, failures } from '#protocol/codes'
import { ConflictError, FailedError, ProposerError } from '#protocol/errors'
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

export type Trouble = Extract<Unaccepted, { kind: 'deferred' | 'uncertain' }>

/** An error: refused for good. `undefined`: the response said nothing of use about this one. */
export type Report = PolledStatus | ProposerError | undefined

const isStatus = (report: Report): report is PolledStatus =>
  report !== undefined && !(report instanceof ProposerError)

interface Routes {
  readonly single: readonly PollTarget[]
  readonly batch: readonly PollTarget[]
}

export async function askStatuses(
  gateway: GatewayClient,
  { single, batch }: Routes,
  { mayExplain, signal }: CallOptions & { readonly mayExplain: () => boolean },
) {
  const reports = new Map<PollTarget, Report>()
  const found = {
    reports,
    rateLimit: undefined as RateLimit | undefined,
    trouble: undefined as Trouble | undefined,
    batchRefused: undefined as ProposerError | undefined,
    items: batch.length,
    /** Failed; whether it may be retried the single route has yet to tell. */
    owed: new Set<PollTarget>(),
  }
  const keep = (answer: Answer<unknown>) => {
    found.rateLimit = answer.rateLimit ?? found.rateLimit
    if (answer.kind === 'deferred' || answer.kind === 'uncertain') found.trouble = answer
  }
  if (batch.length > 0) {
    const ids = batch.map(({ candidateId }) => candidateId)
    const answer = await gateway.statuses(ids, { signal })
    keep(answer)
    if (answer.kind === 'accepted') {
      const { results } = answer.value
      for (const target of batch) reports.set(target, reportIn(results, target))
      if (![...reports.values()].some((report) => report !== undefined)) {
        reports.clear()
        found.trouble = { kind: 'uncertain', ...nothingTold, ...results[0]?.error }
      }
    } else if (found.trouble === undefined) {
      const refused = answerError(answer, 'read')
      found.batchRefused = refused
      for (const one of batch) if (one.identifier === undefined) reports.set(one, refused)
    }
  }
  const told = new Map(reports)
  const owing = batch.filter((target) => {
    const report = told.get(target)
    if (target.identifier === undefined || !isStatus(report)) return false
    const { failure } = report
    if (failure === null || failure.stage != null || endOf(report) !== 'failed') return false
    // The single route has to tell it (contract §4).
    if (failure.retryable === undefined) found.owed.add(target)
    return failure.retryable === undefined || mayExplain()
  })
  await pLimit(callsAtOnce).map([...single, ...owing], async (target) => {
    // What one call met the next would meet too.
    if (found.trouble !== undefined) return
    found.items++
    const { identifier = '', candidateId } = target
    const answer = await gateway.status(identifier, candidateId, { signal })
    keep(answer)
    const report = reportOf(target, answer)
    if (report === undefined) return
    found.owed.delete(target)
    // What the batch route told stays, unless the two contradict each other.
    const isLie = report instanceof ProposerError && report.code === 'candidate_mismatch'
    reports.set(target, isLie || isStatus(report) ? report : (told.get(target) ?? report))
  })
  return found
}

const nothingTold = {
  code: 'gateway_body',
  detail: 'the gateway returned none of the requested candidates',
}

/** By id, not by position: one may be left out. */
function reportIn(results: readonly StatusItemRead[], target: PollTarget) {
  const id = target.candidateId.toLowerCase()
  const found = results.find(({ candidate_id }) => candidate_id?.toLowerCase() === id)
  const { status_code: httpStatus, candidate, error } = found ?? {}
  if (httpStatus === 200 && candidate !== undefined)
    return reportOf(target, { kind: 'accepted', httpStatus, value: candidate })
  return httpStatus && error ? reportOf(target, classifyRefusal(httpStatus, error)) : undefined
}

export interface PollParts {
  readonly ports: Pick<JournalPorts, 'clock' | 'random'>
  readonly gateway: GatewayClient
  /** Ends of candidates it knows are journaled; it tells the question of those given by id. */
  readonly journal?: Journal | undefined
}

/**
 * Once each, for authorizations that this home knows. Two ends leave it open: a failure that does
 * not tell whether it may be retried (contract §4), and an execution in words of another gateway,
 * which a node or the deadline has to confirm (R8).
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
    const isKnown = last?.outcome === outcome && last.code === code && !isNews
    if (known === undefined || isKnown) return []
    const { transaction_hash, proposal_event_index } = status.submission ?? {}
    const hash = transaction_hash?.toLowerCase() ?? ''
    const data = {
      ...{ id: known.id, outcome, code, retryable },
      transaction_hash: isBytes32(hash) ? hash : null,
      event_index: proposal_event_index ?? null,
      ...(status.status === outcome ? {} : keptAnswer(status)),
    }
    return [{ kind: 'terminal', data }]
  })
  if (entries.length > 0) await journal.append(entries)
}

/** As commands (contract §5); a word of another gateway as it is. */
export function remedyOf(action: string, { question_id, proposer }: PolledStatus, id?: string) {
  const replay = id ? `proposer replay ${id}` : 'proposer submit <identifier> <payload.json>'
  const again = `send the same payload again with \`${replay}\``
  const question = question_id ?? '<identifier>'
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

export function failedError(status: PolledStatus, journalId?: string) {
  const { failure, candidate_id: id } = status
  if (failure === null)
    return new FailedError('failed', `candidate ${id} failed`, 'ask the operator for the reason')
  const { code, detail, stage, next_action: next, retryable } = failure
  const where = stage == null ? '' : ` at ${stage}`
  // The route that tells the rest asks for the question (§4.2 rule 7).
  const flag = status.question_id == null ? ' --question <id>' : ''
  const hint =
    next == null
      ? `see \`proposer status ${id}${flag}\` for what to do next`
      : remedyOf(next, status, journalId)
  const what = `candidate ${id} failed${where}: ${detail || 'no reason was given'}`
  return new FailedError(code, what, { hint, retryable })
}

export const stages = ['validated', 'selected', 'submitted', 'confirmed', 'indexed'] as const
export type Stage = (typeof stages)[number]

export interface PollTarget {
  readonly candidateId: string
  readonly identifier?: string | undefined
  /** Unix time; default: the journal's, as for `signed`. */
  readonly sentAtMs?: number | undefined
  readonly signed?: Named | undefined
}

/** Of an answer about something else than was asked or signed nothing is believed. */
function reportOf(target: PollTarget, answer: Answer<PolledStatus>): Report {
  const { candidateId, identifier = '', signed } = target
  if (answer.kind === 'refused' || answer.kind === 'reconcile')
    return answerError(answer, 'read', target.identifier)
  if (answer.kind !== 'accepted') return undefined
  const reported = answer.value
  const mismatch = (what: string) =>
    new ConflictError(
      'candidate_mismatch',
      `the gateway returned ${what}`,
      'do not trust this gateway until the operator has explained it',
    )
  const { candidate_id: id, question_id: known, failure } = reported
  if (id.toLowerCase() !== candidateId.toLowerCase())
    return mismatch(`candidate ${id} instead of ${candidateId}`)
  const questionId = isQuestionId(identifier) ? identifier : undefined
  const other = otherNamed(signed ?? { questionId }, reported)
  if (other !== undefined)
    return mismatch(`candidate ${candidateId} with another ${other.field} than ${other.own}`)
  return {
    ...reported,
    candidate_id: candidateId,
    ...(known == null && questionId !== undefined && { question_id: questionId }),
    failure: failure && { ...meaningOf(failure.code), ...failure },
  }
}

/** Contract §5. */
function meaningOf(code: string) {
  const known = Object.hasOwn(failures, code) ? failures[code as FailureCode] : undefined
  return known && { next_action: known.nextAction, retryable: known.retryable }
}

export type { PolledStatus }

type Progress = Pick<PolledStatus, 'status' | 'submission' | 'failure'>

const activeStages = ['selected', 'validated', 'received'] as const
const isActive = (status: string) => activeStages.some((stage) => stage === status)

const saysFailed = /^(failed|rejected|expired|cancell?ed)$/i

/**
 * `undefined` on its way (contract §5, §9). In an active stage a failure is an end only where the
 * payload can never execute. Of another word the failure decides before the submission.
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

/** Words of others close no authorization (R8). */
const isCertain = ({ status, submission }: Progress) =>
  status === 'executed' || submission?.status === 'indexed'

export function hasReached(status: PolledStatus, until: Stage | undefined) {
  if (endOf(status) !== undefined || until === undefined) return endOf(status) !== undefined
  const stage =
    stageOfSubmission(status.submission) ??
    activeStages.find((one) =>
      isActive(status.status) ? one === status.status : stageTimeOf(status, one) !== undefined,
    )
  const order: readonly (string | undefined)[] = stages
  return order.indexOf(stage) >= order.indexOf(until)
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

const year2000Ms = Date.UTC(2000)

/** The zero times of some gateways are none. */
function isTime(text: string) {
  if (/^\d+(\.\d+)?$/.test(text)) return Number(text) * 1_000 > year2000Ms
  return /^\d{4}-\d\d-\d\d/.test(text) && Date.parse(text) > year2000Ms
}

/**
 * The spec names stages and no fields (§2.6): `indexed_at` as well as `indexing_timestamp`, but not
 * `indexing_expected_at`.
 */
export function stageTimeOf(
  status: Partial<Pick<PolledStatus, 'submission'>>,
  stage: Stage | 'received',
) {
  const holder = submissionStages.some((one) => one === stage) ? status.submission : status
  const timeName = new RegExp(`^${stage.slice(0, 5)}[a-z]*_?(at|on|time|timestamp)$`, 'i')
  return Object.entries(holder ?? {}).flatMap(([name, value]) =>
    timeName.test(name) && isTime(String(value)) ? String(value) : [],
  )[0]
}

export const stageKey = ({ status, submission, failure }: PolledStatus) =>
  [status, submission?.status, submission?.transaction_hash, failure?.code].join(' ')

export function changedAt(status: PolledStatus) {
  if (endOf(status) === 'failed') return undefined
  const active = activeStages.filter((stage) => stage === status.status)
  return [...submissionStages, ...active].flatMap((stage) => stageTimeOf(status, stage) ?? [])[0]
}
