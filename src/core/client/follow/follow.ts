/** Following candidates to their end (§4.1 rule 4, §4.2 rules 6 and 7, contract §5). */

import { ProposerError } from '#protocol/errors'
import { isQuestionId, limits } from '#protocol/words'
import {
  answerError,
  backoffMs,
  certificateCode,
  gravest,
  isAborted,
  maxRetryAfterMs,
  slept,
  timeLimit,
} from '../gateway/answer.js'
import {
  askStatuses,
  endOf,
  failuresError,
  hasReached,
  interrupted,
  journalEnds,
  knownTargets,
  type PolledStatus,
  type PollParts,
  type PollTarget,
  type Routes,
  refusedError,
  type Stage,
  type StatusReports,
  stageKey,
  type Trouble,
  timedOut,
} from './look.js'

export interface PollWait {
  readonly kind: 'trouble' | 'budget'
  readonly reason: string
  readonly waitMs: number
  /** From the second try without an answer of use on. */
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
  /** Called with each status whose stage differs from the one before. */
  readonly onStatus?: (status: PolledStatus) => void
  readonly onLook?: (counts: {
    readonly items: number
    readonly done: number
    readonly total: number
  }) => void
  /** Called before a wait for the budget, and after each try that brought no answer of use. */
  readonly onWait?: (event: PollWait) => void
}

export interface PollResult {
  /** Of the targets that were answered, in order. Whole with `full`, and for a single target. */
  readonly candidates: readonly PolledStatus[]
  readonly missing: readonly PollTarget[]
  /** What the gateway said of those it refused for good, such as 404, by candidate id. */
  readonly refusals: ReadonlyMap<string, ProposerError>
  /** Why it ended early: PendingError 8, UnavailableError 75 or InterruptedError 130. */
  readonly stopped?: ProposerError
  readonly items: number
  /** The gravest of `stopped`, FailedError 7, or a refusal. */
  readonly error?: ProposerError
}

/** From admission to a stage, on a chain with blocks of seconds. */
const guessMs = {
  validated: 1_000,
  selected: 1_500,
  submitted: 2_500,
  confirmed: 4_000,
  indexed: 4_000,
} as const
/** Nobody has answered yet, and no time was given. */
const maxSilent = 8
/** A response that is on its way when the time is over may still come in. */
const lateMs = 2_000
const [explained, explainedShare] = [5, 20]

/** So many are asked for all together. */
const handful = 6
/** After a look in vain. Nothing is charged in process. */
const [firstPauseMs, longestPauseMs, longestFreePauseMs] = [1_000, 10_000, 2_000]
/** A group proved right where this share of it had ended. */
const provedShare = 0.9
const windowMs = 60_000
/** What is asked in vain may take a quarter of the limit; the rest is for whoever submits. */
const vainShare = 4
const longAgoMs = -1

interface Followed {
  readonly target: PollTarget
  lookedMs: number
  /** When it was seen to have come to its goal alive. */
  reachedMs: number
  status?: PolledStatus | undefined
  refusal?: ProposerError | undefined
  /** Of an answer that said nothing of use. */
  httpStatus?: number | undefined
  done: boolean
  /** Only the single route can tell the rest. */
  owed: boolean
}

/** One candidate's last known status, or why there is none. */
export type PolledCandidate = Partial<Polled> & Pick<Polled, 'candidateId' | 'statusCode'>
type Polled = ReturnType<typeof polledOf>

export type BatchPolled = Awaited<ReturnType<typeof followBatch>>

/**
 * As the batch route tells of them: followed to their ends, or asked for once. `stopped`: exit 130, 8
 * at the time limit, 75 where nobody answered.
 */
export async function followBatch(
  parts: PollParts,
  ids: readonly string[],
  options: Pick<PollOptions, 'timeoutMs' | 'signal' | 'once' | 'onLook' | 'onWait'>,
) {
  const targets = ids.map((candidateId) => ({ candidateId }))
  const { following, stopped } = await followAll(parts, targets, { ...options, brief: true })
  return { candidates: following.all.map((one): PolledCandidate => polledOf(one)), stopped }
}

function polledOf({ target, status: known, refusal, httpStatus }: Followed) {
  const status = refusal === undefined ? known : undefined
  const failure = status?.failure
  return {
    candidateId: target.candidateId,
    statusCode: (status ? 200 : refusal ? refusal.meta.httpStatus : httpStatus) ?? null,
    candidate: status && {
      candidate_id: status.candidate_id,
      status: status.status,
      received_at: status.received_at ?? null,
      submission: status.submission,
      failure: failure ? { code: failure.code, detail: failure.detail } : null,
    },
    end: status && endOf(status),
    /** Of a failure: whether the same bytes may still execute later, where that is known. */
    retryable: failure?.retryable,
    error: refusal,
  }
}

/**
 * Many by the batch route, not before an end can be expected, within the budget that is told.
 * Without an answer it is asked ever later until the time is over; without a time, 8 tries. An
 * answer about something else is a refusal.
 */
export async function pollCandidates(
  parts: PollParts,
  targets: readonly PollTarget[],
  options: PollOptions = {},
): Promise<PollResult> {
  const { following, stopped } = await followAll(parts, targets, options)
  return resultOf(following, stopped)
}

async function followAll(parts: PollParts, targets: readonly PollTarget[], options: PollOptions) {
  const { timeoutMs, signal } = options
  const following = await newFollowing(parts, targets, options)
  const late = timeoutMs === undefined ? undefined : timeoutMs + lateMs
  const limit = timeLimit(parts, { timeoutMs: late, signal })
  try {
    for (;;) {
      const stop = await advance(following, limit.signal)
      if (stop === undefined) continue
      settleOwed(following)
      await journalEnds(parts.journal, statusesOf(following.all.filter(({ done }) => done)))
      return { following, stopped: stop.error }
    }
  } finally {
    limit.clear()
  }
}

async function newFollowing(
  parts: PollParts,
  targets: readonly PollTarget[],
  options: PollOptions,
) {
  const { clock } = parts.ports
  const known = await knownTargets(parts.journal, targets)
  const startMs = clock.monotonicMs()
  const toExplain = Math.max(explained, Math.floor(known.length / explainedShare))
  const all = known.map((target): Followed => {
    return { target, lookedMs: longAgoMs, reachedMs: longAgoMs, done: false, owed: false }
  })
  const sentMs = ({ target }: Followed) => target.sentAtMs ?? 0
  const order = options.once ? all : all.toSorted((a, b) => sentMs(a) - sentMs(b))
  const isFree = options.once === true || parts.gateway.origin.startsWith('local:')
  const [oldest] = order
  const ageMs = oldest === undefined ? 0 : clock.nowMs() - sentMs(oldest)
  const earlyMs = isFree || all.length <= handful ? 0 : guessMs[options.until ?? 'indexed'] - ageMs
  return {
    parts,
    options,
    all,
    order,
    startMs,
    endMs: startMs + (options.timeoutMs ?? Number.POSITIVE_INFINITY),
    isFree,
    /** How far ahead of the oldest is looked: at most a sixth of all, 1 after a look in vain. */
    step: 1,
    /** Items asked in vain, and in how long the limit gives one. */
    vain: 0,
    itemMs: windowMs / 120,
    pauseMs: firstPauseMs,
    notBeforeMs: startMs + earlyMs,
    /** What the last response left of the rate limit. */
    window: { remainingItems: limits.batchItems as number, resetAtMs: startMs },
    items: 0,
    toExplain: options.brief === true ? 0 : toExplain,
    isBatchRefused: false,
    trouble: undefined as Trouble | undefined,
    troubleSinceMs: 0,
    /** Tries in a row, and whether one ever brought something. */
    silentTries: 0,
    answered: false,
    isLast: false,
    budgetNotedMs: 0,
  }
}
type Following = Awaited<ReturnType<typeof newFollowing>>

async function advance(following: Following, limit: AbortSignal) {
  const { endMs, trouble, window, notBeforeMs } = following
  const { signal } = following.options
  const waiting = waitingIn(following)
  if (isAborted(signal)) {
    const reason: unknown = signal?.reason
    const isOwn = following.options.once && reason instanceof ProposerError
    return { error: isOwn ? reason : interrupted(waiting, reason) }
  }
  if (waiting.length === 0) return {}
  const nowMs = following.parts.ports.clock.monotonicMs()
  const isToldOf = !following.isFree && nowMs < window.resetAtMs
  const mostItems = Math.min(limits.batchItems, isToldOf ? window.remainingItems : Infinity)
  if (nowMs >= endMs) {
    if (trouble !== undefined || following.isLast || waiting.length > Math.min(handful, mostItems))
      return { error: timedOut(waiting, trouble) }
    following.isLast = true
    return askFor(following, waiting, limit)
  }
  if (mostItems === 0) await pause(following, window.resetAtMs, nowMs, true)
  else if (nowMs < notBeforeMs) await pause(following, notBeforeMs, nowMs)
  else return askFor(following, likelyIn(following).slice(0, mostItems), limit)
  return undefined
}

/**
 * Each costs an item (§8), and ends come in the order of admission: the oldest is asked for
 * alone, then the second, fourth, eighth from it. Where one has ended, those before it follow,
 * as many at once; else it goes behind all.
 */
function likelyIn({ all, order, isFree, step }: Following) {
  const pending = order.filter(({ done }) => !done)
  const owed = pending.filter((one) => one.owed)
  if (owed.length > 0) return owed
  const longestAgo = pending.toSorted((a, b) => a.lookedMs - b.lookedMs)
  if (isFree || all.length <= handful) return longestAgo
  const before: Followed[] = []
  let reachedMs = longAgoMs
  for (const one of order.toReversed()) {
    if (!one.done && one.lookedMs < reachedMs) before.unshift(one)
    reachedMs = Math.max(reachedMs, one.reachedMs)
  }
  return before.length > 0 ? before.slice(0, step) : longestAgo.slice(0, step).slice(-1)
}

function pace(following: Following, asked: readonly Followed[], moved: boolean, nowMs: number) {
  const vain = asked.filter(({ done, owed }) => !done && !owed)
  for (const one of vain) one.lookedMs = nowMs
  if (vain.length > 0) following.step = 1
  if (vain.length <= asked.length * (1 - provedShare)) {
    if (asked[0]?.reachedMs === nowMs)
      following.step = Math.min(limits.batchItems, following.all.length / 6, following.step * 2)
    following.pauseMs = firstPauseMs
    return
  }
  if (moved) following.pauseMs = firstPauseMs
  following.notBeforeMs = nowMs + following.pauseMs
  following.vain += vain.length
  if (!following.isFree) {
    const overdrawn = following.vain - Math.max(handful, following.all.length / 25)
    const affordableMs = following.startMs + overdrawn * vainShare * following.itemMs
    following.notBeforeMs = Math.max(following.notBeforeMs, affordableMs)
  }
  const longestMs = following.isFree ? longestFreePauseMs : longestPauseMs
  following.pauseMs = Math.min(longestMs, following.pauseMs * 1.5)
}

async function pause(following: Following, untilMs: number, nowMs: number, isSpent = false) {
  const { parts, options, endMs, trouble } = following
  const waitMs = untilMs - nowMs
  if (isSpent && trouble === undefined && untilMs !== following.budgetNotedMs) {
    following.budgetNotedMs = untilMs
    options.onWait?.({ kind: 'budget', reason: 'Rate limit reached', waitMs })
  }
  await slept(parts.ports, Math.min(waitMs, endMs - nowMs), options.signal)
}

async function askFor(following: Following, asked: readonly Followed[], limit: AbortSignal) {
  const { parts, options, all } = following
  const routes = routesOf(following, asked)
  const found = await askStatuses(parts.gateway, routes, { signal: limit })
  const nowMs = parts.ports.clock.monotonicMs()
  following.items += found.items
  following.isBatchRefused ||= found.batchRefused !== undefined
  const sights = asked.map((one) => ({ one, sight: sightOf(following, one, found, nowMs) }))
  const seen = sights.flatMap(({ one, sight }) => (sight === undefined ? [] : one))
  await journalEnds(parts.journal, statusesOf(asked.filter(({ done }) => done)))
  if (found.rateLimit !== undefined) {
    const { limit, remaining, resetSeconds } = found.rateLimit
    const resetMs = resetSeconds * 1_000
    following.itemMs = Math.max(windowMs, resetMs) / Math.max(1, limit)
    following.window = { remainingItems: remaining, resetAtMs: nowMs + resetMs }
  }
  if (seen.length > 0 || found.batchRefused !== undefined) {
    const moved = sights.some(({ sight }) => sight === 'moved')
    pace(following, seen, moved, nowMs)
    following.trouble = undefined
    following.silentTries = 0
    following.answered = true
  }
  const done = all.length - waitingIn(following).length
  options.onLook?.({ items: following.items, done, total: all.length })
  if (found.trouble === undefined || isAborted(options.signal)) return undefined
  return afterTrouble(following, found.trouble, nowMs)
}

function afterTrouble(following: Following, trouble: Trouble, nowMs: number) {
  const { parts, options, endMs, trouble: before } = following
  following.trouble = trouble
  if (options.once && following.all.some(({ owed }) => owed)) {
    settleOwed(following)
    return undefined
  }
  const retryAfterMs = trouble.retryAfterMs ?? 0
  const waitMs = retryAfterMs + backoffMs(parts.ports.random, ++following.silentTries)
  const isLasting = options.once && trouble.code === certificateCode
  const isSilent = following.silentTries >= maxSilent && (options.once || !following.answered)
  if (options.timeoutMs === undefined && (retryAfterMs > maxRetryAfterMs || isSilent || isLasting))
    return { error: answerError(trouble, 'read') }
  if (nowMs + retryAfterMs >= endMs) return { error: timedOut(waitingIn(following), trouble) }
  if (before === undefined) following.troubleSinceMs = parts.ports.clock.nowMs()
  options.onWait?.({
    kind: 'trouble',
    reason: trouble.detail,
    waitMs,
    sinceMs: before && following.troubleSinceMs,
  })
  settleOwed(following)
  following.notBeforeMs = Math.max(following.notBeforeMs, nowMs + waitMs)
  return undefined
}

/** Their code tells enough; asked once, what nobody explains stays as it was reported. */
function settleOwed({ all, options: { once } }: Following) {
  for (const one of all)
    if (one.owed && (once || one.status?.failure?.retryable !== undefined))
      [one.owed, one.done] = [false, true]
}

function routesOf({ options, isBatchRefused }: Following, asked: readonly Followed[]): Routes {
  const isSingle = ({ target: { identifier }, status, owed }: Followed) => {
    if (identifier === undefined) return false
    const isQuestionKnown = status?.question_id != null || isQuestionId(identifier)
    return asked.length === 1 || options.full || owed || isBatchRefused || !isQuestionKnown
  }
  return {
    single: asked.filter(isSingle).map(({ target }) => target),
    batch: asked.filter((one) => !isSingle(one)).map(({ target }) => target),
  }
}

function sightOf(
  following: Following,
  one: Followed,
  { reports, batchRefused }: StatusReports,
  nowMs: number,
) {
  const report = reports.get(one.target)
  if (report?.kind === 'status') return takeStatus(following, one, report.status, nowMs)
  const refusal = report?.kind === 'refused' ? report.error : batchRefused
  if (refusal !== undefined && (report !== undefined || one.target.identifier === undefined)) {
    // A failure that the other route has reported stays reported, unless the two contradict each
    // other.
    if (!one.owed) one.refusal = refusal
    if (refusal.code === 'candidate_mismatch') [one.refusal, one.status] = [refusal, undefined]
    one.done = true
    return 'moved'
  }
  if (report?.kind !== 'silence') return undefined
  one.httpStatus = report.httpStatus
  one.done = following.options.once === true
  return 'same'
}

function takeStatus(following: Following, one: Followed, reported: PolledStatus, nowMs: number) {
  const { until, once, onStatus } = following.options
  const before = one.status
  // The batch route does not repeat what never changes.
  const constants = (['question_id', 'proposer', 'outcome', 'price'] as const).filter(
    (name) => before?.[name] !== undefined,
  )
  const status = {
    ...Object.fromEntries(constants.map((name) => [name, before?.[name]])),
    ...reported,
  }
  one.status = status
  const moved = before === undefined || stageKey(before) !== stageKey(reported)
  if (moved) onStatus?.(status)
  one.owed = hasFailed(one) && !one.owed && wantsMore(following, one)
  one.done = !one.owed && (once === true || hasReached(reported, until))
  if (one.done && !hasFailed(one)) one.reachedMs = nowMs
  return moved ? 'moved' : 'same'
}

/** It must where the code does not tell whether it may be retried (contract §4). */
function wantsMore(following: Following, { target, status }: Followed) {
  if (status?.failure == null || status.failure.stage != null || target.identifier === undefined)
    return false
  return status.failure.retryable === undefined || following.toExplain-- > 0
}

const waitingIn = ({ all }: Following) => all.filter(({ done }) => !done)

const hasFailed = ({ status }: Followed) => status !== undefined && endOf(status) === 'failed'

const statusesOf = (some: readonly Followed[]) => some.flatMap(({ status }) => status ?? [])

async function resultOf(following: Following, stopped?: ProposerError): Promise<PollResult> {
  const { all, items, parts } = following
  const failures = statusesOf(all.filter(hasFailed))
  const view = failures.length === 0 ? undefined : await parts.journal?.load()
  const refused = all.flatMap(({ target, refusal }) => (refusal ? [{ target, refusal }] : []))
  const error = gravest([
    ...refused.map(({ target, refusal }) => refusedError(target, refusal)),
    failuresError(failures, all.length, (candidateId) => view?.byCandidate(candidateId)?.id),
    stopped,
  ])
  return {
    candidates: statusesOf(all),
    missing: all
      .filter(({ done, refusal }) => !done || refusal !== undefined)
      .map(({ target }) => target),
    refusals: new Map(refused.map(({ target, refusal }) => [target.candidateId, refusal])),
    ...(stopped && { stopped }),
    items,
    ...(error && { error }),
  }
}
