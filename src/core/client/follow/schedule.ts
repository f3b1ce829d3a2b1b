/**
 * Which candidates to ask for next, and when (§8: each costs an item of a shared budget). Pure:
 * times are milliseconds of one monotonic clock, passed in; nothing is thrown.
 *
 * Asking for a candidate that is not done is in vain. So such items draw from an allowance that
 * refills at a quarter of the budget. Asking where an end is likely is free of it: candidates
 * mostly end in the order of their admission. So one that ended vouches for those admitted before
 * it, which are asked for in groups that grow as long as they prove it right.
 */
import { limits } from '../../protocol/words.js'
import type { RateLimit } from '../gateway/answer.js'

interface Tracked {
  /** When it was admitted, as well as we know; `-Infinity`: long ago. */
  readonly sinceMs: number
  /** How often it was found not done. */
  readonly looks: number
  readonly lookedMs: number
  /** Not before. */
  readonly dueMs: number
  readonly done: boolean
  /** When it was seen to have reached the goal. */
  readonly reachedMs?: number
  /** Asking for it will tell what is still missing, whatever stage it is in. */
  readonly owed: boolean
}

export interface Schedule {
  /** In the order of the targets. */
  readonly candidates: readonly Tracked[]
  /** Positions in `candidates`, first admitted first. */
  readonly order: readonly number[]
  /** From admission to the goal: a first guess, then what was observed, latest first. */
  readonly guessMs: number
  readonly livesMs: readonly number[]
  /** Nothing is charged: an in-process gateway. */
  readonly free: boolean
  readonly limitItems: number
  readonly windowMs: number
  /** What the last response said of the window. */
  readonly window?: { readonly remainingItems: number; readonly resetAtMs: number }
  readonly burstItems: number
  readonly allowanceItems: number
  readonly allowanceAtMs: number
  readonly groupItems: number
  readonly pauseMs: number
  readonly notBeforeMs: number
}

export type Step =
  | { readonly kind: 'look'; readonly at: readonly number[] }
  /** `budget`: the window has nothing left. */
  | { readonly kind: 'wait'; readonly untilMs: number; readonly reason: 'early' | 'budget' }
  | { readonly kind: 'done' }

/** What was learned of one candidate. */
export interface Sight {
  readonly at: number
  /** Nothing more is to be asked. */
  readonly done: boolean
  /** It came to the goal alive: it vouches for those before it. */
  readonly reached: boolean
  readonly lifeMs?: number | undefined
  /** Its stage differs from the one before. */
  readonly moved: boolean
  /** It must be asked for again at once, by the other route. */
  readonly owed?: boolean
}

export interface ScheduleOptions {
  /** Expected from admission to the goal. */
  readonly guessMs: number
  readonly free?: boolean
}

/** §8, until the gateway tells its own. A shorter window is treated as this one. */
const [assumedItems, assumedWindowMs] = [120, 60_000]
/** What is asked in vain may take a quarter of the budget; the rest is for whoever submits. */
const vainShare = 4
/** A larger budget is no reason to ask in vain more often. */
const mostVainItems = 240
/** Asked for at once though in vain: all of a handful, of many a share. */
const [handful, handfulBurstItems, leastBurstItems, burstShare] = [20, 6, 4, 25]
/** A large group that proved wrong is not paid for longer than this. */
const deepestDebtItems = 6
/** While the budget is mostly free somebody who watches sees something move this often. */
const [firstPauseMs, longestPauseMs] = [500, 2_000]
const longestRetryMs = 10_000
/** However long others took: a candidate is not left alone longer than this. */
const longestExpectedMs = 30_000
const firstGroupItems = 4
/** Items of a group for each item of the allowance: about a fifth of it may prove wrong. */
const groupPerAllowance = 5
const keptLives = 32
/** A group proved right where this share of it had ended. */
const provedShare = 0.9
const longAgoMs = Number.NEGATIVE_INFINITY

/** A schedule for candidates of the given ages; `undefined`: unknown, and so likely to be done. */
export function newSchedule(
  agesMs: readonly (number | undefined)[],
  nowMs: number,
  { guessMs, free = false }: ScheduleOptions,
): Schedule {
  const candidates = agesMs.map((ageMs) => ({
    sinceMs: ageMs === undefined ? longAgoMs : nowMs - Math.max(0, ageMs),
    looks: 0,
    lookedMs: longAgoMs,
    dueMs: nowMs,
    done: false,
    owed: false,
  }))
  const shareItems = Math.max(leastBurstItems, Math.floor(candidates.length / burstShare))
  const burstItems = candidates.length <= handful ? handfulBurstItems : shareItems
  return {
    candidates,
    order: sortedBy([...candidates.keys()], (at) => candidates[at]?.sinceMs ?? 0),
    guessMs,
    livesMs: [],
    free,
    limitItems: assumedItems,
    windowMs: assumedWindowMs,
    burstItems,
    allowanceItems: burstItems,
    allowanceAtMs: nowMs,
    groupItems: firstGroupItems,
    pauseMs: firstPauseMs,
    notBeforeMs: nowMs,
  }
}

/** What to do now: at most 100 candidates (§8), never more than the window is known to hold. */
export function nextStep(plan: Schedule, nowMs: number): Step {
  const pending = pendingOf(plan)
  if (pending.length === 0) return { kind: 'done' }
  const window = windowAt(plan, nowMs)
  if (window !== undefined && window.remainingItems < 1)
    return { kind: 'wait', untilMs: window.resetAtMs, reason: 'budget' }
  const isLimitKnown = plan.window !== undefined && !plan.free
  const mostItems = Math.min(
    limits.batchItems,
    window?.remainingItems ?? (isLimitKnown ? plan.limitItems : limits.batchItems),
  )
  const look = (at: readonly number[]): Step => ({ kind: 'look', at: at.slice(0, mostItems) })
  const wait = (untilMs: number): Step => ({ kind: 'wait', untilMs, reason: 'early' })

  if (plan.notBeforeMs > nowMs) return wait(plan.notBeforeMs)
  const owed = pending.filter((at) => plan.candidates[at]?.owed)
  if (owed.length > 0) return look(owed)
  const allowance = allowanceAt(plan, nowMs)
  if (allowance < 1) {
    const refilledMs = Math.max(1, Math.ceil((1 - allowance) / vainRate(plan, nowMs)))
    return wait(Math.min(nowMs + refilledMs, window?.resetAtMs ?? Number.POSITIVE_INFINITY))
  }
  const vouchedFor = vouchedForBy(plan)
  const dueMs = (at: number) => dueAt(plan, at, vouchedFor.has(at))
  const due = pending.filter((at) => dueMs(at) <= nowMs)
  if (due.length === 0) return wait(Math.min(...pending.map(dueMs)))
  // Where the window cuts the list, those not asked for the longest come first.
  if (due.length <= allowance) return look(longestAgoFirst(plan, due))
  const likely = due.filter((at) => vouchedFor.has(at))
  if (likely.length > 0)
    return look(
      likely.slice(0, Math.min(plan.groupItems, Math.floor(allowance * groupPerAllowance))),
    )
  // Some of the due, spread over those never asked for, else those not asked for the longest.
  const count = Math.max(1, Math.floor(allowance / 3))
  const fresh = due.filter((at) => plan.candidates[at]?.looks === 0)
  return look(fresh.length > 0 ? spread(fresh, count) : longestAgoFirst(plan, due).slice(0, count))
}

/** Whom to ask for once more before the time is over: all, where few enough and affordable. */
export function lastLook(plan: Schedule, nowMs: number): readonly number[] {
  const pending = pendingOf(plan)
  const left = Math.min(plan.burstItems, windowAt(plan, nowMs)?.remainingItems ?? plan.burstItems)
  return pending.length <= left ? pending : []
}

/** The schedule after a response; what it did not tell of stays as it was. */
export function afterResponse(plan: Schedule, sights: readonly Sight[], nowMs: number): Schedule {
  if (sights.length === 0) return plan
  const candidates = [...plan.candidates]
  const longestMs = Math.min(longestRetryMs, longestPauseMs * pendingOf(plan).length)
  for (const sight of sights) {
    const one = candidates[sight.at]
    if (one !== undefined) candidates[sight.at] = trackedAfter(one, sight, nowMs, longestMs)
  }
  const vain = sights.filter(({ done, owed }) => !done && owed !== true).length
  const proved = vain <= sights.length * (1 - provedShare)
  const moved = sights.some((sight) => sight.moved)
  return {
    ...plan,
    candidates,
    livesMs: [...sights.flatMap(({ lifeMs }) => lifeMs ?? []), ...plan.livesMs].slice(0, keptLives),
    allowanceItems: plan.free
      ? plan.allowanceItems
      : Math.max(-deepestDebtItems, allowanceAt(plan, nowMs) - vain),
    allowanceAtMs: nowMs,
    groupItems: proved
      ? Math.min(limits.batchItems, Math.max(plan.groupItems, sights.length) * 2)
      : firstGroupItems,
    ...(proved
      ? { notBeforeMs: nowMs }
      : moved
        ? { notBeforeMs: nowMs + firstPauseMs, pauseMs: firstPauseMs }
        : {
            notBeforeMs: nowMs + plan.pauseMs,
            pauseMs: Math.min(longestPauseMs, plan.pauseMs * 1.5),
          }),
  }
}

function trackedAfter(one: Tracked, sight: Sight, nowMs: number, longestMs: number): Tracked {
  if (sight.done)
    return { ...one, done: true, owed: false, ...(sight.reached ? { reachedMs: nowMs } : {}) }
  if (sight.owed === true) return { ...one, owed: true }
  const looks = sight.moved ? 1 : one.looks + 1
  const retryMs = Math.min(longestMs, firstPauseMs * 1.5 ** (looks - 1))
  return { ...one, owed: false, looks, lookedMs: nowMs, dueMs: nowMs + retryMs }
}

/** The schedule after a response that reported its window (contract §2). */
export function withRateLimit(
  plan: Schedule,
  { limit, remaining, resetSeconds }: RateLimit,
  nowMs: number,
): Schedule {
  const resetMs = resetSeconds * 1_000
  return {
    ...plan,
    // What was earned so far was earned at the old rate.
    allowanceItems: plan.free ? plan.allowanceItems : allowanceAt(plan, nowMs),
    allowanceAtMs: nowMs,
    limitItems: Math.max(1, limit),
    windowMs: Math.max(plan.windowMs, resetMs),
    window: { remainingItems: remaining, resetAtMs: nowMs + resetMs },
  }
}

/** The schedule where nothing may be asked before `untilMs`. */
export const notBefore = (plan: Schedule, untilMs: number): Schedule => ({
  ...plan,
  notBeforeMs: Math.max(plan.notBeforeMs, untilMs),
})

const pendingOf = ({ order, candidates }: Schedule) =>
  order.filter((at) => candidates[at]?.done === false)

/** The window that the last response reported, while it lasts. */
function windowAt({ window, free }: Schedule, nowMs: number): Schedule['window'] {
  return window !== undefined && !free && nowMs < window.resetAtMs ? window : undefined
}

/**
 * Items a millisecond that may be asked in vain. What is left of a window that others spend from
 * counts, not what it began with.
 */
function vainRate(plan: Schedule, nowMs: number): number {
  const even = Math.min(mostVainItems, plan.limitItems) / plan.windowMs
  const { remainingItems, resetAtMs } = windowAt(plan, nowMs) ?? {
    remainingItems: Number.POSITIVE_INFINITY,
    resetAtMs: nowMs,
  }
  return Math.min(even, remainingItems / Math.max(1_000, resetAtMs - nowMs)) / vainShare
}

function allowanceAt(plan: Schedule, nowMs: number): number {
  if (plan.free) return Number.POSITIVE_INFINITY
  const earned = (nowMs - plan.allowanceAtMs) * vainRate(plan, nowMs)
  return Math.min(plan.burstItems, plan.allowanceItems + earned)
}

/** Those pending since before one that was admitted later was seen at the goal. */
function vouchedForBy({ candidates, order }: Schedule): ReadonlySet<number> {
  const vouchedFor = new Set<number>()
  let reachedMs = longAgoMs
  for (const at of order.toReversed()) {
    const one = candidates[at]
    if (one?.done === false && one.lookedMs < reachedMs) vouchedFor.add(at)
    reachedMs = Math.max(reachedMs, one?.reachedMs ?? longAgoMs)
  }
  return vouchedFor
}

function dueAt(plan: Schedule, at: number, isVouchedFor: boolean): number {
  const one = plan.candidates[at]
  if (one === undefined) return Number.POSITIVE_INFINITY
  // A handful is asked for as soon as somebody wants to see it.
  const isHandful = plan.candidates.length <= plan.burstItems
  if (one.looks > 0 || isVouchedFor || plan.free || isHandful) return one.dueMs
  return Math.max(one.dueMs, one.sinceMs + expectedMs(plan))
}

/** The median of the observed lives. */
function expectedMs({ livesMs, guessMs }: Schedule): number {
  const sorted = [...livesMs].sort((a, b) => a - b)
  return Math.min(longestExpectedMs, sorted[Math.floor(sorted.length / 2)] ?? guessMs)
}

const longestAgoFirst = ({ candidates }: Schedule, list: readonly number[]) =>
  sortedBy(list, (at) => candidates[at]?.lookedMs ?? 0)

/** The difference of two infinities is no number, so they are compared. */
function sortedBy(list: readonly number[], keyOf: (at: number) => number): readonly number[] {
  return [...list].sort((a, b) => Number(keyOf(a) > keyOf(b)) - Number(keyOf(a) < keyOf(b)))
}

function spread(list: readonly number[], count: number): readonly number[] {
  const parts = Math.min(count, list.length)
  return Array.from(
    { length: parts },
    (_, part) => list[Math.floor(((part + 0.5) * list.length) / parts)] ?? 0,
  )
}
