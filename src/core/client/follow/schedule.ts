/**
 * Which candidates to ask for next, and when (§8: each look costs an item of a shared budget).
 * Pure: times are milliseconds of one monotonic clock, passed in; nothing is thrown.
 *
 * A look at a candidate that is not done yet is spent in vain, so such looks draw from an allowance
 * that refills at a quarter of the budget. Looks that are likely to find an end are free of it:
 * candidates are admitted in order and mostly end in order, so one that ended speaks for those
 * admitted before it; they are asked in groups that grow as long as they prove it right.
 */
import { limits } from '../../protocol/schema.js'
import type { RateLimit } from '../gateway/answer.js'

interface Tracked {
  /** When it was admitted, as well as we know; `-Infinity`: long ago. */
  readonly sinceMs: number
  /** Looks that found it not done. */
  readonly looks: number
  readonly lookedMs: number
  /** After a look: not before. */
  readonly dueMs: number
  readonly done: boolean
  /** When it was seen to have reached the goal. */
  readonly reachedMs?: number
  /** A look at it will tell what is still missing, whatever stage it is in. */
  readonly owed: boolean
}

export interface Plan {
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
  /** What the last answer told of the window. */
  readonly told?: { readonly remainingItems: number; readonly resetAtMs: number }
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

/** What a look brought for one candidate. */
export interface Sight {
  readonly at: number
  /** Nothing more is to be asked. */
  readonly done: boolean
  /** It came to the goal alive: it speaks for those before it. */
  readonly reached: boolean
  readonly lifeMs?: number
  /** Its stage differs from the one before. */
  readonly moved: boolean
  /** Another look is needed at once, by the other route. */
  readonly owed?: boolean
}

export interface PlanOptions {
  /** Expected from admission to the goal. */
  readonly guessMs: number
  readonly free?: boolean
}

/**
 * §8, until the gateway tells its own. A shorter window than this is treated as this one: that is
 * only more polite.
 */
const [assumedItems, assumedWindowMs] = [120, 60_000]
/** Looks in vain may take a quarter of the budget; the rest is for whoever submits. */
const vainShare = 4
/** A larger budget is no reason to look in vain more often. */
const mostVainItems = 240
/** A few looks in vain at once: a handful of candidates is simply looked at, of many a share. */
const [handful, handfulBurstItems, leastBurstItems] = [20, 6, 4]
const burstShare = 25
/** A large group that proved wrong is not paid for longer than this. */
const deepestDebtItems = 6
/** While the budget is mostly free somebody who watches sees something move this often. */
const [firstPauseMs, longestPauseMs] = [500, 2_000]
const longestRetryMs = 10_000
/** However long others took: a candidate is not left alone longer than this. */
const longestExpectedMs = 30_000
const firstGroupItems = 4
/**
 * A group of this many for each look in vain that is allowed: about a fifth of it may prove wrong.
 */
const groupPerAllowance = 5
const keptLives = 32
/** A group proved right where this share of it had ended. */
const provedShare = 0.9

/**
 * A plan for candidates of the given ages in milliseconds; `undefined`: unknown, and so likely to
 * be done.
 */
export function newPlan(
  agesMs: readonly (number | undefined)[],
  nowMs: number,
  { guessMs, free = false }: PlanOptions,
): Plan {
  const candidates = agesMs.map((ageMs): Tracked => {
    const sinceMs = ageMs === undefined ? Number.NEGATIVE_INFINITY : nowMs - Math.max(0, ageMs)
    return {
      sinceMs,
      looks: 0,
      lookedMs: Number.NEGATIVE_INFINITY,
      dueMs: nowMs,
      done: false,
      owed: false,
    }
  })
  const since = (at: number) => candidates[at]?.sinceMs ?? 0
  const shareItems = Math.max(leastBurstItems, Math.floor(candidates.length / burstShare))
  const burstItems = candidates.length <= handful ? handfulBurstItems : shareItems
  return {
    candidates,
    order: candidates
      .map((_, at) => at)
      .sort((a, b) => (since(a) === since(b) ? a - b : since(a) < since(b) ? -1 : 1)),
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

/**
 * What to do at `nowMs`: at most 100 candidates (§8), never more than the window is known to hold.
 */
export function nextStep(plan: Plan, nowMs: number): Step {
  const pending = plan.order.filter((at) => plan.candidates[at]?.done === false)
  if (pending.length === 0) return { kind: 'done' }
  const window = windowAt(plan, nowMs)
  if (window !== undefined && window.remainingItems < 1)
    return { kind: 'wait', untilMs: window.resetAtMs, reason: 'budget' }
  const mostItems = Math.min(
    limits.batchItems,
    window?.remainingItems ??
      (plan.told === undefined || plan.free ? limits.batchItems : plan.limitItems),
  )
  const look = (at: readonly number[]): Step => ({ kind: 'look', at: at.slice(0, mostItems) })
  const wait = (untilMs: number): Step => ({ kind: 'wait', untilMs, reason: 'early' })

  if (plan.notBeforeMs > nowMs) return wait(plan.notBeforeMs)
  const owed = pending.filter((at) => plan.candidates[at]?.owed)
  if (owed.length > 0) return look(owed)
  const allowance = allowanceAt(plan, nowMs)
  if (allowance < 1)
    return wait(
      Math.min(
        nowMs + Math.max(1, Math.ceil((1 - allowance) / vainRate(plan, nowMs))),
        window?.resetAtMs ?? Number.POSITIVE_INFINITY,
      ),
    )
  const spokenFor = candidatesSpokenFor(plan)
  const dueMs = (at: number) => dueAt(plan, at, spokenFor.has(at))
  const due = pending.filter((at) => dueMs(at) <= nowMs)
  if (due.length === 0) return wait(Math.min(...pending.map(dueMs)))
  // Where the window cuts the list, those not asked for the longest come first.
  if (due.length <= allowance) return look(longestAgoFirst(plan, due))
  const likely = due.filter((at) => spokenFor.has(at))
  if (likely.length > 0)
    return look(
      likely.slice(0, Math.min(plan.groupItems, Math.floor(allowance * groupPerAllowance))),
    )
  return look(samples(plan, due, Math.max(1, Math.floor(allowance / 3))))
}

/**
 * One last look before the time is over: at candidates few enough for it, if there is anything left
 * to spend.
 */
export function lastLook(plan: Plan, nowMs: number): readonly number[] {
  const pending = plan.order.filter((at) => plan.candidates[at]?.done === false)
  const left = Math.min(plan.burstItems, windowAt(plan, nowMs)?.remainingItems ?? plan.burstItems)
  return pending.length <= left ? pending : []
}

/**
 * The plan after a look that was answered. Items in `sights` only; what was asked and not answered
 * stays as it was.
 */
export function seen(plan: Plan, sights: readonly Sight[], nowMs: number): Plan {
  if (sights.length === 0) return plan
  const by = new Map(sights.map((sight) => [sight.at, sight]))
  const pendingBefore = plan.candidates.filter(({ done }) => !done).length
  const candidates = plan.candidates.map((one, at): Tracked => {
    const sight = by.get(at)
    if (sight === undefined) return one
    if (sight.done)
      return { ...one, done: true, owed: false, ...(sight.reached ? { reachedMs: nowMs } : {}) }
    if (sight.owed === true) return { ...one, owed: true }
    const looks = sight.moved ? 1 : one.looks + 1
    const retryMs = Math.min(
      longestRetryMs,
      longestPauseMs * pendingBefore,
      firstPauseMs * 1.5 ** (looks - 1),
    )
    return { ...one, owed: false, looks, lookedMs: nowMs, dueMs: nowMs + retryMs }
  })
  const vain = sights.filter(({ done, owed }) => !done && owed !== true).length
  const proved = vain <= sights.length * (1 - provedShare)
  const moved = sights.some((sight) => sight.moved)
  const nextPauseMs = moved ? firstPauseMs : Math.min(longestPauseMs, plan.pauseMs * 1.5)
  return {
    ...plan,
    candidates,
    livesMs: [
      ...sights.flatMap(({ lifeMs }) => (lifeMs === undefined ? [] : [lifeMs])),
      ...plan.livesMs,
    ].slice(0, keptLives),
    allowanceItems: plan.free
      ? plan.allowanceItems
      : Math.max(-deepestDebtItems, allowanceAt(plan, nowMs) - vain),
    allowanceAtMs: nowMs,
    groupItems: proved
      ? Math.min(limits.batchItems, Math.max(plan.groupItems, sights.length) * 2)
      : firstGroupItems,
    pauseMs: proved ? plan.pauseMs : nextPauseMs,
    notBeforeMs: proved ? nowMs : nowMs + (moved ? firstPauseMs : plan.pauseMs),
  }
}

/** The plan after an answer that told its window (contract §2). */
export function budgetTold(
  plan: Plan,
  { limit, remaining, resetSeconds }: RateLimit,
  nowMs: number,
): Plan {
  const resetMs = resetSeconds * 1_000
  return {
    ...plan,
    // What was earned so far was earned at the old rate.
    allowanceItems: plan.free ? plan.allowanceItems : allowanceAt(plan, nowMs),
    allowanceAtMs: nowMs,
    limitItems: Math.max(1, limit),
    windowMs: Math.max(plan.windowMs, resetMs),
    told: { remainingItems: remaining, resetAtMs: nowMs + resetMs },
  }
}

/** The plan where nothing may be asked before `untilMs`. */
export const heldUntil = (plan: Plan, untilMs: number): Plan => ({
  ...plan,
  notBeforeMs: Math.max(plan.notBeforeMs, untilMs),
})

/** The window that the last answer told, while it lasts. */
function windowAt({ told, free }: Plan, nowMs: number): Plan['told'] {
  return told !== undefined && !free && nowMs < told.resetAtMs ? told : undefined
}

/**
 * Items a millisecond that looks in vain may take. What is left of a window that others spend from
 * counts, not what it began with.
 */
function vainRate(plan: Plan, nowMs: number): number {
  const even = Math.min(mostVainItems, plan.limitItems) / plan.windowMs
  const window = windowAt(plan, nowMs)
  if (window === undefined) return even / vainShare
  return (
    Math.min(even, window.remainingItems / Math.max(1_000, window.resetAtMs - nowMs)) / vainShare
  )
}

function allowanceAt(plan: Plan, nowMs: number): number {
  if (plan.free) return Number.POSITIVE_INFINITY
  const earned = (nowMs - plan.allowanceAtMs) * vainRate(plan, nowMs)
  return Math.min(plan.burstItems, plan.allowanceItems + earned)
}

/**
 * The pending ones for whom another speaks that was admitted later and was seen at the goal since
 * they were last asked for.
 */
function candidatesSpokenFor({ candidates, order }: Plan): ReadonlySet<number> {
  const spokenFor = new Set<number>()
  let reachedMs = Number.NEGATIVE_INFINITY
  for (const at of order.toReversed()) {
    const one = candidates[at]
    if (one === undefined) continue
    if (!one.done && one.lookedMs < reachedMs) spokenFor.add(at)
    reachedMs = Math.max(reachedMs, one.reachedMs ?? reachedMs)
  }
  return spokenFor
}

function dueAt(plan: Plan, at: number, spokenFor: boolean): number {
  const one = plan.candidates[at]
  if (one === undefined) return Number.POSITIVE_INFINITY
  if (one.looks > 0) return one.dueMs
  // A handful is looked at as soon as somebody wants to see it.
  if (spokenFor || plan.free || plan.candidates.length <= plan.burstItems) return one.dueMs
  return Math.max(one.dueMs, one.sinceMs + expectedMs(plan))
}

function expectedMs({ livesMs, guessMs }: Plan): number {
  const sorted = [...livesMs].sort((a, b) => a - b)
  return Math.min(longestExpectedMs, sorted[Math.floor(sorted.length / 2)] ?? guessMs)
}

/**
 * Some of the due, spread over them: first those never asked for, then those not asked for the
 * longest.
 */
function samples(plan: Plan, due: readonly number[], count: number): readonly number[] {
  const fresh = due.filter((at) => plan.candidates[at]?.looks === 0)
  if (fresh.length > 0) return spread(fresh, count)
  return longestAgoFirst(plan, due).slice(0, count)
}

function longestAgoFirst({ candidates }: Plan, list: readonly number[]): readonly number[] {
  const lookedMs = (at: number) => candidates[at]?.lookedMs ?? 0
  return [...list].sort((a, b) =>
    lookedMs(a) === lookedMs(b) ? 0 : lookedMs(a) < lookedMs(b) ? -1 : 1,
  )
}

function spread(list: readonly number[], count: number): readonly number[] {
  const parts = Math.min(count, list.length)
  return Array.from(
    { length: parts },
    (_, part) => list[Math.floor(((part + 0.5) * list.length) / parts)] ?? 0,
  )
}
