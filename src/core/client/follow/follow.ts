/** Candidates to their end (§4.1 rule 4, §4.2 rules 6 and 7, contract §5). */

import pLimit from 'p-limit'
import { failures } from '#protocol/codes'
import {
  ConflictError,
  InterruptedError,
  PendingError,
  ProposerError,
  reworded,
  UnavailableError,
  UsageError,
} from '#protocol/errors'
import { isBytes32, isQuestionId, limits } from '#protocol/words'
import {
  type Answer,
  answerError,
  backoffMs,
  certificateCode,
  classifyRefusal,
  gravest,
  isAborted,
  maxRetryAfterMs,
  maxTries,
  type RateLimit,
  slept,
  timeLimit,
  type Unaccepted,
} from '../gateway/answer.js'
import type { CallOptions, GatewayClient } from '../gateway/gateway-client.js'
import { keptAnswer, type StatusItemRead } from '../gateway/reading.js'
import { type JournalEntry, otherNamed } from '../journal/authorizations.js'
import type { Journal } from '../journal/journal.js'
import {
  endOf,
  failedError,
  hasReached,
  type PolledStatus,
  type PollParts,
  type PollTarget,
  type Stage,
} from './look.js'

export interface PollWait {
  readonly kind: 'trouble'
  readonly reason: string
  readonly waitMs: number
  readonly sinceMs?: number | undefined
}

export interface PollOptions {
  readonly until?: Stage | undefined
  readonly timeoutMs?: number | undefined
  readonly signal?: AbortSignal | undefined
  /** Every status whole, by the single route: the same items in more calls. */
  readonly full?: boolean | undefined
  /** Only whether it may be retried is wanted, which a code mostly tells. */
  readonly brief?: boolean | undefined
  /** Each is asked for once; again only where a call brought no answer of use: ≤ 8 tries. */
  readonly once?: boolean | undefined
  readonly onStatus?: (status: PolledStatus) => void
  readonly onLook?: (counts: Readonly<Record<'items' | 'done' | 'total', number>>) => void
  readonly onWait?: (event: PollWait) => void
}

export interface PollResult {
  /** Of the targets that were answered, in order. Whole with `full`, and for a single target. */
  readonly candidates: readonly PolledStatus[]
  readonly missing: readonly PollTarget[]
  /** Of those that the gateway refused for good, such as 404, by candidate id. */
  readonly refusals: ReadonlyMap<string, ProposerError>
  /** Why it ended early: PendingError 8, UnavailableError 75 or InterruptedError 130. */
  readonly stopped?: ProposerError
  readonly items: number
  /** The gravest of `stopped`, FailedError 7, or a refusal. */
  readonly error?: ProposerError
}

/** After its admission; of many nobody is asked before. */
const soonestMs = 4_000
/** For what is on its way when the time is over. */
const lateMs = 2_000
const handful = 6
/** After a look in vain. Nothing is charged in process. */
const [firstPauseMs, longestPauseMs, longestFreePauseMs] = [1_000, 10_000, 2_000]
const vainInProven = 0.1
/** Looks in vain may take a quarter of the limit: others submit. */
const vainShare = 4

interface Followed {
  readonly target: PollTarget
  lookedMs: number
  /** When it was seen to have come to its goal alive. */
  reachedMs: number
  stage?: string | undefined
  status?: PolledStatus | undefined
  refusal?: ProposerError
  /** Failed; the single route has yet to tell whether it may be retried (contract §4). */
  owes: boolean
  done: boolean
}

/**
 * Many by the batch route. Without an answer it asks ever later until the time is over; without a
 * time, 8 tries. The limit (§8) is kept by a client that has a budget.
 */
export async function pollCandidates(
  parts: PollParts,
  targets: readonly PollTarget[],
  options: PollOptions = {},
): Promise<PollResult> {
  const { timeoutMs, signal } = options
  const following = await newFollowing(parts, targets, options)
  const late = timeoutMs === undefined ? undefined : timeoutMs + lateMs
  const limit = timeLimit(parts, { timeoutMs: late, signal })
  let stopped: ProposerError | undefined
  try {
    while (!stopped && following.waiting().length > 0)
      stopped = (await following.pause()) ?? (await following.look(limit.signal))
  } finally {
    limit.clear()
  }
  return resultOf(following, stopped)
}

/**
 * One status now; journals an end. By the single route, whole; where nobody knows the question by
 * the batch route (§4.2), else UsageError `question_unknown`.
 */
export async function statusOnce(
  parts: PollParts,
  target: PollTarget,
  { signal }: { readonly signal?: AbortSignal } = {},
): Promise<PolledStatus> {
  const { all, look, state } = await newFollowing(parts, [target], { once: true, signal })
  await look(signal)
  if (state.trouble) throw answerError(state.trouble, 'read')
  const { status, refusal = noStatus() } = all[0] ?? {}
  if (state.isByOne)
    throw new UsageError(
      'question_unknown',
      `candidate ${target.candidateId} is not in the journal, and this gateway reports statuses by question only: ${refusal.detail}`,
      'add --question <id>',
    )
  if (!status) throw refusal
  return status
}

async function newFollowing(
  { ports, gateway, journal }: PollParts,
  targets: readonly PollTarget[],
  options: PollOptions,
) {
  const { clock, random } = ports
  const { timeoutMs = Infinity, signal, once = false } = options
  const endMs = clock.monotonicMs() + timeoutMs
  const view = await journal?.load()
  const all = [...new Map(targets.map((one) => [one.candidateId, one])).values()].map(
    (target): Followed => {
      const { signed, attempts } = view?.byCandidate(target.candidateId) ?? {}
      const known = {
        ...target,
        sentAtMs: target.sentAtMs ?? attempts?.at(-1)?.startedAtMs,
        identifier: target.identifier ?? signed?.questionId,
        signed: target.signed ?? signed,
      }
      return { target: known, lookedMs: -1, reachedMs: -1, owes: false, done: false }
    },
  )
  const turns = newTurns(all, once || gateway.origin.startsWith('local:'), ports)
  let [isAnswered, isLast] = [false, false]
  const state = {
    items: 0,
    isByOne: options.full === true,
    /** Failures whose rest the single route is asked for. */
    toExplain: options.brief ? 0 : 5,
    trouble: undefined as (Trouble & { sinceMs: number; tries: number }) | undefined,
  }
  const waiting = () => all.filter(({ done }) => !done)

  async function pause() {
    const leftMs = () => Math.min(turns.notBeforeMs, endMs) - clock.monotonicMs()
    while (leftMs() > 0 && !isAborted(signal)) await slept(ports, leftMs(), signal)
    if (isAborted(signal)) {
      const reason: unknown = signal?.reason
      const isOwn = reason instanceof ProposerError
      if (once && isOwn) return reason
      const why = isOwn ? reason.detail : 'stopped while polling'
      return new InterruptedError('interrupted', ...unfinished(waiting(), why))
    }
    if (clock.monotonicMs() < endMs) return undefined
    if (state.trouble || isLast || waiting().length > handful)
      return timedOut(waiting(), state.trouble)
    isLast = true
    return undefined
  }

  async function look(limit: AbortSignal | undefined) {
    const asked = isLast ? waiting() : turns.next().slice(0, limits.batchItems)
    const { isByOne } = state
    const found = await ask(gateway, asked, state, { signal: limit })
    const nowMs = clock.monotonicMs()
    const seen = asked.filter((one) => found.seen.has(one))
    let hasMoved = false
    for (const one of seen) {
      const { status, refusal, owes } = one
      const stage = status && stageKey(status)
      if (status && stage !== one.stage) {
        one.stage = stage
        hasMoved = true
        options.onStatus?.(status)
      }
      const isReached = !!status && !owes && hasReached(status, options.until)
      one.done = once || refusal !== undefined || isReached
      if (isReached && !hasFailed(one)) one.reachedMs = nowMs
    }
    await journalEnds(journal, statusesOf(seen.filter(({ done }) => done)))
    if (seen.length > 0 || isByOne !== state.isByOne) {
      turns.seen(seen, nowMs, hasMoved, found.rateLimit)
      state.trouble = undefined
      isAnswered = true
    }
    const done = all.length - waiting().length
    options.onLook?.({ items: state.items, done, total: all.length })
    return found.trouble && done < all.length ? afterTrouble(found.trouble, nowMs) : undefined
  }

  function afterTrouble(trouble: Trouble, nowMs: number) {
    const { sinceMs, tries = 0 } = state.trouble ?? {}
    state.trouble = { ...trouble, sinceMs: sinceMs ?? clock.nowMs(), tries: tries + 1 }
    if (isAborted(signal)) return undefined
    const { code, detail: reason, retryAfterMs = 0 } = trouble
    const waitMs = retryAfterMs + backoffMs(random, tries + 1)
    const isLasting = retryAfterMs > maxRetryAfterMs || (once && code === certificateCode)
    const isSilent = tries + 1 >= maxTries && (once || !isAnswered)
    if (endMs === Infinity && (isLasting || isSilent)) return answerError(trouble, 'read')
    if (nowMs + retryAfterMs >= endMs) return timedOut(waiting(), trouble)
    options.onWait?.({ kind: 'trouble', reason, waitMs, sinceMs })
    turns.notBeforeMs = Math.max(turns.notBeforeMs, nowMs + waitMs)
    return undefined
  }

  return { all, view, state, waiting, pause, look }
}

/**
 * A look costs an item (§8), and ends come in the order of admission: the oldest is asked for alone,
 * then the second, fourth, eighth from it. Where one has ended, those before it follow, as many at
 * once; else it goes behind all.
 */
function newTurns(all: readonly Followed[], isFree: boolean, { clock }: PollParts['ports']) {
  const sentMs = ({ target }: Followed) => target.sentAtMs ?? 0
  const order = all.toSorted((a, b) => sentMs(a) - sentMs(b))
  const isTogether = isFree || order.length <= handful
  const ageMs = order[0] && !isTogether ? clock.nowMs() - sentMs(order[0]) : soonestMs
  const startMs = clock.monotonicMs()
  /** How far ahead of the oldest is looked: at most a sixth of all, 1 after a look in vain. */
  let step = 1
  /** Items asked in vain, and in how long the limit gives one. */
  let [vainItems, itemMs] = [0, 500]
  let pauseMs = firstPauseMs
  const turns = {
    notBeforeMs: startMs + soonestMs - ageMs,
    next() {
      const pending = order.filter(({ done }) => !done)
      const longestAgo = pending.toSorted((a, b) => a.lookedMs - b.lookedMs)
      if (isTogether) return longestAgo
      const before: Followed[] = []
      let reachedMs = -1
      for (const one of order.toReversed()) {
        if (!one.done && one.lookedMs < reachedMs) before.unshift(one)
        reachedMs = Math.max(reachedMs, one.reachedMs)
      }
      return before.length > 0 ? before.slice(0, step) : longestAgo.slice(0, step).slice(-1)
    },
    seen(asked: readonly Followed[], nowMs: number, hasMoved: boolean, rateLimit?: RateLimit) {
      const vain = asked.filter(({ done }) => !done)
      for (const one of vain) one.lookedMs = nowMs
      if (rateLimit)
        itemMs = Math.max(60_000, rateLimit.resetSeconds * 1_000) / Math.max(1, rateLimit.limit)
      if (vain.length > 0) step = 1
      const isProven = vain.length <= asked.length * vainInProven
      if (isProven && asked[0]?.reachedMs === nowMs)
        step = Math.min(limits.batchItems, order.length / 6, step * 2)
      if (isProven || hasMoved) pauseMs = firstPauseMs
      if (isProven) return
      vainItems += vain.length
      const overdrawn = vainItems - Math.max(handful, order.length / 25)
      const affordableMs = isFree ? 0 : startMs + overdrawn * vainShare * itemMs
      turns.notBeforeMs = Math.max(nowMs + pauseMs, affordableMs)
      pauseMs = Math.min(isFree ? longestFreePauseMs : longestPauseMs, pauseMs * 1.5)
    },
  }
  return turns
}

type Following = Awaited<ReturnType<typeof newFollowing>>

async function ask(
  gateway: GatewayClient,
  asked: readonly Followed[],
  state: Following['state'],
  options: CallOptions,
) {
  const found = {
    seen: new Set<Followed>(),
    rateLimit: undefined as RateLimit | undefined,
    trouble: undefined as Trouble | undefined,
  }
  const keep = (answer: Answer<unknown>) => {
    found.rateLimit = answer.rateLimit ?? found.rateLimit
    if (answer.kind === 'deferred' || answer.kind === 'uncertain') found.trouble = answer
  }
  const take = (one: Followed, report: Report) => {
    found.seen.add(one)
    if (report instanceof ProposerError) {
      // A failure told by the batch route stays, unless the two contradict.
      if (report.code === 'candidate_mismatch') one.status = undefined
      if (!hasFailed(one)) one.refusal = report
      // The batch route does not repeat what never changes.
    } else if (report) one.status = { ...one.status, ...report }
  }
  const single = asked.filter(
    ({ target: { identifier }, status, owes }) =>
      identifier &&
      (state.isByOne ||
        asked.length === 1 ||
        owes ||
        !(status?.question_id ?? isQuestionId(identifier))),
  )
  const batch = asked.filter((one) => !single.includes(one))
  if (batch.length > 0) {
    state.items += batch.length
    const ids = batch.map(({ target }) => target.candidateId)
    const answer = await gateway.statuses(ids, options)
    keep(answer)
    if (answer.kind === 'accepted') {
      const { results } = answer.value
      const reports = batch.map(({ target }) => reportIn(results, target))
      if (!reports.some(Boolean)) {
        const detail = 'the gateway returned none of the requested candidates'
        found.trouble = { kind: 'uncertain', code: 'gateway_body', detail, ...results[0]?.error }
      } else for (const [at, one] of batch.entries()) take(one, reports[at])
    } else if (!found.trouble) {
      state.isByOne = true
      const refused = answerError(answer, 'read')
      for (const one of batch) if (!one.target.identifier) take(one, refused)
    }
  }
  const owing = batch.filter((one) => {
    const failure = hasFailed(one) ? one.status?.failure : undefined
    if (!one.target.identifier || !failure || failure.stage != null) return false
    one.owes = failure.retryable === undefined
    return one.owes || state.toExplain-- > 0
  })
  await pLimit(4).map([...single, ...owing], async (one) => {
    // What one call met the next would meet too.
    if (found.trouble) return
    state.items++
    const { identifier = '', candidateId } = one.target
    const answer = await gateway.status(identifier, candidateId, options)
    keep(answer)
    const report = reportOf(one.target, answer)
    if (!report) return
    one.owes = false
    take(one, report)
  })
  return found
}

type Trouble = Extract<Unaccepted, { kind: 'deferred' | 'uncertain' }>

/** An error: refused for good. `undefined`: nothing of use was told. */
type Report = PolledStatus | ProposerError | undefined

/** By id: one may be left out. */
function reportIn(results: readonly StatusItemRead[], target: PollTarget): Report {
  const id = target.candidateId.toLowerCase()
  const found = results.find(({ candidate_id }) => candidate_id?.toLowerCase() === id)
  const { status_code: httpStatus, candidate, error } = found ?? {}
  if (httpStatus === 200 && candidate)
    return reportOf(target, { kind: 'accepted', httpStatus, value: candidate })
  return httpStatus && error ? reportOf(target, classifyRefusal(httpStatus, error)) : undefined
}

/** An answer about something else than was asked or signed is not believed. */
function reportOf(target: PollTarget, answer: Answer<PolledStatus>): Report {
  const { candidateId, identifier = '', signed } = target
  if (answer.kind === 'refused' || answer.kind === 'reconcile')
    return answerError(answer, 'read', target.identifier)
  if (answer.kind !== 'accepted') return undefined
  const reported = answer.value
  const { candidate_id: id, question_id: known, failure } = reported
  const questionId = isQuestionId(identifier) ? identifier : undefined
  const other = otherNamed(signed ?? { questionId }, reported)
  const mismatch =
    id.toLowerCase() === candidateId.toLowerCase()
      ? other && `${candidateId} with another ${other.field} than ${other.own}`
      : `${id} instead of ${candidateId}`
  if (mismatch)
    return new ConflictError(
      'candidate_mismatch',
      `the gateway returned candidate ${mismatch}`,
      'do not trust this gateway until the operator has explained it',
    )
  return {
    ...reported,
    candidate_id: candidateId,
    ...(known == null && questionId !== undefined && { question_id: questionId }),
    failure: failure && { ...meanings.get(failure.code), ...failure },
  }
}

/** Contract §5. */
const meanings = new Map(
  Object.entries(failures).map(
    ([code, { nextAction: next_action, retryable }]) => [code, { next_action, retryable }] as const,
  ),
)

/**
 * Once each, of authorizations that this home knows. A failure may leave it open (contract §4); an
 * execution in words of another gateway is for a node or the deadline to confirm (R8).
 */
async function journalEnds(journal: Journal | undefined, statuses: readonly PolledStatus[]) {
  if (!journal || !statuses.some(endOf)) return
  const view = await journal.load()
  const entries = statuses.flatMap((status): JournalEntry[] => {
    const outcome = endOf(status)
    const known = view.byCandidate(status.candidate_id)
    const isCertain = status.status === 'executed' || status.submission?.status === 'indexed'
    if (!known || !outcome || (outcome === 'executed' && !isCertain)) return []
    const { code, retryable } = (outcome === 'failed' && status.failure) || {}
    const last = known.terminal
    const isNews = retryable !== undefined && retryable !== last?.retryable
    if (last?.outcome === outcome && last.code === code && !isNews) return []
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

const stageKey = ({ status, submission, failure }: PolledStatus) =>
  [status, submission?.status, submission?.transaction_hash, failure?.code].join(' ')

const hasFailed = ({ status }: Followed) => !!status && endOf(status) === 'failed'

const statusesOf = (some: readonly Followed[]) => some.flatMap(({ status }) => status ?? [])

function resultOf({ all, view, state }: Following, stopped: ProposerError | undefined): PollResult {
  const errorOf = (one: Followed) => {
    const { target, status, refusal } = one
    if (status && hasFailed(one))
      return failedError(status, view?.byCandidate(status.candidate_id)?.id)
    const error = refusal ?? (status || stopped ? undefined : noStatus())
    return error && refusedError(target, error)
  }
  const errors = all.flatMap((one) => errorOf(one) ?? [])
  const first = gravest(errors)
  const alike = errors.filter(({ meta }) => meta.exitCode === first?.meta.exitCode).length
  const many = `${alike} of ${all.length} candidates; the first: `
  const own = first && alike > 1 ? reworded(first, many + first.detail) : first
  const error = gravest([own, stopped])
  const missing = all.filter(({ done, refusal, status }) => !done || refusal || !status)
  return {
    candidates: statusesOf(all),
    missing: missing.map(({ target }) => target),
    refusals: new Map(
      all.flatMap(({ target, refusal }) => (refusal ? [[target.candidateId, refusal]] : [])),
    ),
    ...(stopped && { stopped }),
    items: state.items,
    ...(error && { error }),
  }
}

const noStatus = () =>
  new UnavailableError('no_status', 'the gateway returned no status', 'retry later')

function refusedError({ candidateId, signed }: PollTarget, error: ProposerError) {
  const hint =
    signed?.questionId === undefined
      ? 'check the candidate id, --question and --gateway: only the gateway that admitted it knows it'
      : `the gateway that admitted it may have lost it: \`proposer reconcile ${signed.questionId}\` says what is safe to do next`
  const meta = error.meta.httpStatus === 404 ? { ...error.meta, hint } : error.meta
  return reworded(error, `candidate ${candidateId}: ${error.detail}`, meta)
}

function unfinished(waiting: readonly Followed[], why: string, last = '') {
  const { status = 'not known', submission } = waiting[0]?.status ?? {}
  const ids = waiting.map(({ target }) => target.candidateId)
  const text =
    ids.length === 1
      ? `candidate ${ids[0]} is ${status}${submission?.status ? ` (${submission.status})` : ''}`
      : `${ids.length} candidates are still in progress`
  const hint = `continue with \`proposer poll ${ids.length > 3 ? '--all' : ids.join(' ')}\``
  return [`${why}: ${text}${last}`, { hint, retryable: true }] as const
}

/** Exit 8; exit 75 where `trouble` kept every status from us. */
function timedOut(waiting: readonly Followed[], trouble: Trouble | undefined) {
  const why = 'the time limit was reached'
  if (trouble && waiting.every(({ status }) => status === undefined)) {
    const detail = `${why} before any status was known: ${trouble.detail}`
    const known = trouble.kind === 'deferred' && answerError(trouble, 'read').meta.hint
    return new UnavailableError(
      'no_status',
      detail,
      known || 'check the gateway address, then retry',
    )
  }
  const last = trouble && `; the last answer: ${trouble.detail}`
  return new PendingError('still_pending', ...unfinished(waiting, why, last))
}
