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
  type RateLimit,
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
  noStatus,
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

/** Of a try that brought no answer of use. */
export interface PollWait {
  readonly kind: 'trouble'
  readonly reason: string
  readonly waitMs: number
  /** From the second such try on. */
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
/** Failures of a batch whose rest is asked of the single route: so many, or one in twenty. */
const [explained, explainedShare] = [5, 20]

/** So many are asked for all together. */
const handful = 6
/** After a look in vain. Nothing is charged in process. */
const [firstPauseMs, longestPauseMs, longestFreePauseMs] = [1_000, 10_000, 2_000]
/** A group proved right where this share of it had ended. */
const provedShare = 0.9
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
  done: boolean
  /** Only the single route can tell the rest. */
  owed: boolean
}

/**
 * Many by the batch route, not before an end can be expected. Without an answer it is asked ever
 * later until the time is over; without a time, 8 tries. An answer about something else is a
 * refusal. The limit (§8) is kept by a client that has a budget.
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
  try {
    for (;;) {
      const stop = await advance(following, limit.signal)
      if (stop === undefined) continue
      settleOwed(following)
      await journalEnds(parts.journal, statusesOf(following.all.filter(({ done }) => done)))
      return await resultOf(following, stop.error)
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
    endMs: startMs + (options.timeoutMs ?? Number.POSITIVE_INFINITY),
    turns: newTurns(order, isFree, startMs, earlyMs),
    items: 0,
    toExplain: options.brief ? 0 : Math.max(explained, Math.floor(all.length / explainedShare)),
    isBatchRefused: false,
    trouble: undefined as Trouble | undefined,
    troubleSinceMs: 0,
    /** Tries in a row, and whether one ever brought something. */
    silentTries: 0,
    answered: false,
    isLast: false,
  }
}
type Following = Awaited<ReturnType<typeof newFollowing>>

/**
 * Each look costs an item (§8), and ends come in the order of admission: the oldest is asked for
 * alone, then the second, fourth, eighth from it. Where one has ended, those before it follow,
 * as many at once; else it goes behind all, and there is a pause.
 */
function newTurns(order: readonly Followed[], isFree: boolean, startMs: number, earlyMs: number) {
  /** How far ahead of the oldest is looked: at most a sixth of all, 1 after a look in vain. */
  let step = 1
  /** Items asked in vain, and in how long the limit gives one. */
  let [vainItems, itemMs] = [0, 500]
  let [pauseMs, notBeforeMs] = [firstPauseMs, startMs + earlyMs]
  return {
    notBeforeMs: () => notBeforeMs,
    wait(untilMs: number) {
      notBeforeMs = Math.max(notBeforeMs, untilMs)
    },
    next() {
      const pending = order.filter(({ done }) => !done)
      const owed = pending.filter((one) => one.owed)
      if (owed.length > 0) return owed
      const longestAgo = pending.toSorted((a, b) => a.lookedMs - b.lookedMs)
      if (isFree || order.length <= handful) return longestAgo
      const before: Followed[] = []
      let reachedMs = longAgoMs
      for (const one of order.toReversed()) {
        if (!one.done && one.lookedMs < reachedMs) before.unshift(one)
        reachedMs = Math.max(reachedMs, one.reachedMs)
      }
      return before.length > 0 ? before.slice(0, step) : longestAgo.slice(0, step).slice(-1)
    },
    /** `moved`: some answer brought news. */
    seen(
      asked: readonly Followed[],
      moved: boolean,
      rateLimit: RateLimit | undefined,
      nowMs: number,
    ) {
      const vain = asked.filter(({ done, owed }) => !done && !owed)
      for (const one of vain) one.lookedMs = nowMs
      if (rateLimit !== undefined)
        itemMs = Math.max(60_000, rateLimit.resetSeconds * 1_000) / Math.max(1, rateLimit.limit)
      if (vain.length > 0) step = 1
      if (vain.length <= asked.length * (1 - provedShare)) {
        if (asked[0]?.reachedMs === nowMs)
          step = Math.min(limits.batchItems, order.length / 6, step * 2)
        pauseMs = firstPauseMs
        return
      }
      if (moved) pauseMs = firstPauseMs
      vainItems += vain.length
      const overdrawn = vainItems - Math.max(handful, order.length / 25)
      const affordableMs = isFree ? 0 : startMs + overdrawn * vainShare * itemMs
      notBeforeMs = Math.max(nowMs + pauseMs, affordableMs)
      pauseMs = Math.min(isFree ? longestFreePauseMs : longestPauseMs, pauseMs * 1.5)
    },
  }
}

async function advance(following: Following, limit: AbortSignal) {
  const { endMs, trouble, parts, turns } = following
  const { signal, once } = following.options
  const waiting = waitingIn(following)
  if (isAborted(signal)) {
    const reason: unknown = signal?.reason
    return {
      error: once && reason instanceof ProposerError ? reason : interrupted(waiting, reason),
    }
  }
  if (waiting.length === 0) return {}
  const nowMs = parts.ports.clock.monotonicMs()
  if (nowMs >= endMs) {
    if (trouble !== undefined || following.isLast || waiting.length > handful)
      return { error: timedOut(waiting, trouble) }
    following.isLast = true
    return askFor(following, waiting, limit)
  }
  const waitMs = turns.notBeforeMs() - nowMs
  if (waitMs <= 0) return askFor(following, turns.next().slice(0, limits.batchItems), limit)
  await slept(parts.ports, Math.min(waitMs, endMs - nowMs), signal)
  return undefined
}

async function askFor(following: Following, asked: readonly Followed[], limit: AbortSignal) {
  const { parts, options, all, turns } = following
  const found = await askStatuses(parts.gateway, routesOf(following, asked), { signal: limit })
  const nowMs = parts.ports.clock.monotonicMs()
  following.items += found.items
  following.isBatchRefused ||= found.batchRefused !== undefined
  const sights = asked.map((one) => ({ one, sight: sightOf(following, one, found, nowMs) }))
  const seen = sights.filter(({ sight }) => sight !== undefined)
  await journalEnds(parts.journal, statusesOf(asked.filter(({ done }) => done)))
  if (seen.length > 0 || found.batchRefused !== undefined) {
    const moved = seen.some(({ sight }) => sight === 'moved')
    turns.seen(
      seen.map(({ one }) => one),
      moved,
      found.rateLimit,
      nowMs,
    )
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
  settleOwed(following)
  if (waitingIn(following).length === 0) return undefined
  const retryAfterMs = trouble.retryAfterMs ?? 0
  const waitMs = retryAfterMs + backoffMs(parts.ports.random, ++following.silentTries)
  const isLasting = options.once && trouble.code === certificateCode
  const isSilent = following.silentTries >= maxSilent && (options.once || !following.answered)
  if (options.timeoutMs === undefined && (retryAfterMs > maxRetryAfterMs || isSilent || isLasting))
    return { error: answerError(trouble, 'read') }
  if (nowMs + retryAfterMs >= endMs) return { error: timedOut(waitingIn(following), trouble) }
  if (before === undefined) following.troubleSinceMs = parts.ports.clock.nowMs()
  const sinceMs = before && following.troubleSinceMs
  options.onWait?.({ kind: 'trouble', reason: trouble.detail, waitMs, sinceMs })
  following.turns.wait(nowMs + waitMs)
  return undefined
}

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

const isSilent = ({ status, refusal }: Followed) => (status ?? refusal) === undefined

const waitingIn = ({ all }: Following) => all.filter(({ done }) => !done)

const hasFailed = ({ status }: Followed) => status !== undefined && endOf(status) === 'failed'

const statusesOf = (some: readonly Followed[]) => some.flatMap(({ status }) => status ?? [])

async function resultOf(following: Following, stopped?: ProposerError): Promise<PollResult> {
  const { all, items, parts, options } = following
  const failures = statusesOf(all.filter(hasFailed))
  const view = failures.length === 0 ? undefined : await parts.journal?.load()
  const refused = all.flatMap(({ target, refusal }) => (refusal ? [{ target, refusal }] : []))
  const silent = options.once ? all.filter(isSilent) : []
  const countOf = ({ length }: readonly unknown[]) =>
    length > 1 ? `${length} of ${all.length} candidates; the first, ` : undefined
  const error = gravest([
    ...refused.map(({ target, refusal }) => refusedError(target, refusal, countOf(refused))),
    failuresError(failures, all.length, (candidateId) => view?.byCandidate(candidateId)?.id),
    stopped ?? (silent[0] && refusedError(silent[0].target, noStatus(), countOf(silent))),
  ])
  return {
    candidates: statusesOf(all),
    missing: all
      .filter((one) => !one.done || one.refusal !== undefined || isSilent(one))
      .map(({ target }) => target),
    refusals: new Map(refused.map(({ target, refusal }) => [target.candidateId, refusal])),
    ...(stopped && { stopped }),
    items,
    ...(error && { error }),
  }
}
