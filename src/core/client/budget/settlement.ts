/** What a response tells of the item budget (§8): a call has ended. */

import { maxRetryAfterMs, type RateLimit } from '../gateway/answer.js'
import {
  type BudgetDefaults,
  type BudgetState,
  type CallInFlight,
  defaultBudget,
  longestWindowMs,
  seenOf,
  stateAt,
} from './model.js'
import {
  assumedView,
  type CallSeen,
  openedView,
  type WindowView,
  withCount,
  withOtherCount,
} from './window.js'

/** A call that broke off may still be on its way to the gateway for so long. */
const lingerMs = 5_000
const maxViews = 4

/** What became of a call. */
export interface CallResult {
  /** Whether an HTTP response came; without one the call may still be on its way. */
  readonly answered: boolean
  /** It was a 429. */
  readonly refused: boolean
  readonly rateLimit?: RateLimit | undefined
  readonly retryAfterMs?: number | undefined
  /** The gateway's own words of a 429; escape before showing (R20). */
  readonly detail?: string | undefined
}

/** A call has ended. `jitter` in [0, 1) spreads those who wait for the end of a 429 (§7). */
export function settleCall(
  given: BudgetState,
  id: string,
  result: CallResult,
  nowMs: number,
  jitter: number,
  defaults: BudgetDefaults = defaultBudget,
): BudgetState {
  const state = { ...stateAt(given, nowMs), writtenMs: nowMs }
  const call = state.calls.find((one) => one.id === id)
  // Where one wait was too short, and nothing tells when the window ends, a whole one is waited for.
  const isTooShort = state.refusals > 0 && result.rateLimit === undefined
  const retryAfterMs = isTooShort
    ? Math.max(result.retryAfterMs ?? 0, state.windowMs)
    : result.retryAfterMs
  const refusal = result.refused
    ? afterRefusal(state, { ...result, retryAfterMs }, nowMs, jitter)
    : {}
  // Expired long since, or of a state that was lost: what its response counts is not known.
  if (call === undefined) return { ...state, ...refusal }
  const others = state.calls.filter((one) => one !== call)
  if (!result.answered) {
    const expiresMs = Math.min(call.expiresMs, nowMs + lingerMs)
    return { ...state, calls: [...others, { ...call, expiresMs }] }
  }
  const limit = plausible(result.rateLimit)
  const windowMs = result.refused ? state.windowMs : windowOf(state, call, limit)
  const seen = { ...seenOf(state, call, nowMs), windowMs }
  const views = viewsAfter(state.views, limit, seen, defaults)
  // A limit reported for the first time, with more spent than we can have.
  const isForeign =
    limit !== undefined &&
    !state.views.some((view) => view.limitItems === limit.limit) &&
    limit.limit - limit.remaining > seen.items + seen.beyondItems
  return {
    ...state,
    windowMs,
    views: views.map((view) => {
      if (!view.assumed) return view
      return result.refused ? spentView(view, seen, retryAfterMs) : grownView(view, seen, defaults)
    }),
    calls: others,
    settledItems: state.settledItems + call.items,
    answeredMs: nowMs,
    endedMs: nowMs,
    refusals: 0,
    waryMs: isForeign ? nowMs : state.waryMs,
    ...refusal,
  }
}

function viewsAfter(
  views: readonly WindowView[],
  limit: RateLimit | undefined,
  seen: CallSeen,
  defaults: BudgetDefaults,
): WindowView[] {
  if (limit === undefined && views.length === 0) return [assumedView(defaults.limitItems, seen)]
  const known = limit === undefined ? views : views.filter((view) => !view.assumed)
  const after = known.flatMap((view) =>
    limit?.limit === view.limitItems
      ? withCount(view, limit, seen)
      : (withOtherCount(view, limit, seen) ?? []),
  )
  if (limit !== undefined && !known.some((view) => view.limitItems === limit.limit))
    after.push(openedView(limit, seen))
  // A limit that has not been reported for long is none, or one that is never in the way.
  return after
    .filter((view) => view.assumed || seen.receivedMs - view.shownMs < 10 * seen.windowMs)
    .sort((a, b) => b.shownMs - a.shownMs)
    .slice(0, maxViews)
}

/** An assumed limit that drew no 429 for so many windows may be too low. */
const grownAfterWindows = 10

/**
 * A 429 without RateLimit headers: the assumed window is spent, and ends when the gateway says, or a
 * window from now. Its limit is below what was asked for. Half of that is tried next, or what went
 * through in this window, if that is more.
 */
function spentView(
  view: WindowView,
  seen: CallSeen,
  retryAfterMs: number = seen.windowMs,
): WindowView {
  const throughItems = view.upperItems - seen.items - seen.beyondItems
  const likelyItems = Math.max(throughItems, Math.floor(seen.items / 2))
  // A single item that is refused tells nothing of the size of calls.
  const limitItems = seen.items === 1 ? view.limitItems : Math.min(view.limitItems, likelyItems)
  const upperItems = Math.max(view.upperItems, limitItems)
  const spent = { ...view, limitItems, upperItems, shownMs: seen.receivedMs }
  const endsAfterMs = seen.sentMs + retryAfterMs - 1_000
  const endsByMs = seen.receivedMs + Math.min(retryAfterMs, longestWindowMs)
  return { ...spent, endsAfterMs, endsByMs: Math.max(endsAfterMs, endsByMs) }
}

/** Twice an assumed limit that was lowered, where it has held for long; at most the documented one. */
function grownView(view: WindowView, seen: CallSeen, defaults: BudgetDefaults): WindowView {
  const isOld = seen.receivedMs - view.shownMs > grownAfterWindows * seen.windowMs
  if (!isOld || view.limitItems >= defaults.limitItems) return view
  const limitItems = Math.min(defaults.limitItems, 2 * view.limitItems)
  return { ...view, limitItems, shownMs: seen.receivedMs }
}

function afterRefusal(
  { windowMs, refusals, blockedUntilMs }: BudgetState,
  { retryAfterMs, rateLimit }: CallResult,
  nowMs: number,
  jitter: number,
): Partial<BudgetState> {
  const backoffMs = Math.min(windowMs, 1_000 * 2 ** refusals)
  const wantedMs = retryAfterMs ?? (rateLimit ? rateLimit.resetSeconds * 1_000 : backoffMs)
  // Longer is not waited for (robustness §6): the next 429 says so to the caller.
  const waitMs = Math.min(Math.max(maxRetryAfterMs, windowMs), wantedMs)
  const spreadMs = jitter * Math.min(1_000, windowMs / 20)
  return {
    blockedUntilMs: Math.max(blockedUntilMs, nowMs + waitMs + spreadMs),
    waryMs: nowMs,
    refusals: Math.min(16, refusals + 1),
  }
}

/** Headers that no budget can mean are none. */
function plausible(limit: RateLimit | undefined): RateLimit | undefined {
  if (limit === undefined || limit.limit < 1 || limit.remaining > limit.limit) return undefined
  const resetSeconds = Math.min(Math.max(1, limit.resetSeconds), longestWindowMs / 1_000)
  return { ...limit, resetSeconds }
}

/** A window is at least as long as what is left of it; exactly so where this call opened it. */
function windowOf(state: BudgetState, call: CallInFlight, limit: RateLimit | undefined): number {
  if (limit === undefined) return state.windowMs
  const leftMs = limit.resetSeconds * 1_000
  return limit.limit - limit.remaining === call.items ? leftMs : Math.max(state.windowMs, leftMs)
}
