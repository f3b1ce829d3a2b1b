/**
 * What is known of one of a gateway's budget windows (§8, contract §2): the server counts, we only
 * see the tighter of its two windows in each answer, in whole seconds, somewhere between sending
 * and receiving. So every figure here is a bound that holds whatever happened.
 */
import type { RateLimit } from '../gateway/answer.js'

/** Times are milliseconds on this machine's wall clock, the only one its processes share. */
export interface WindowView {
  /** The limit of a window is its name: an answer tells no other. */
  readonly limitItems: number
  /**
   * No answer ever told this limit: the gateway sends no RateLimit headers, and the documented
   * default is taken.
   */
  readonly assumed: boolean
  /** The window ends after this … */
  readonly endsAfterMs: number
  /**
   * … and by this. `null`: the window is opened by a call that has no answer yet, or not at all.
   */
  readonly endsByMs: number | null
  /** A call sent from here on is charged in this window or a later one. */
  readonly beganMs: number
  /** When the last answer that told of this limit came. */
  readonly shownMs: number
  /** The most an answer told to be spent in this window. */
  readonly seenItems: number
  /** At most so much is spent: ours, calls in flight included, and what is known of others. */
  readonly upperItems: number
  /** Items of answered calls that may have been charged after this window's end. */
  readonly nextItems: number
  /** Spent in this window by others behind the same address, as far as seen. */
  readonly foreignItems: number
  /** The same for the windows before, fading. */
  readonly foreignBeforeItems: number
}

/** One answered call, as a window sees it. */
export interface Observation {
  readonly items: number
  readonly sentMs: number
  readonly receivedMs: number
  /**
   * Items of ours that this answer's count may not hold: in flight beside it, or reserved since.
   */
  readonly beyondItems: number
  readonly windowMs: number
}

/**
 * A wall clock is read in whole milliseconds, and two clocks of one pace differ by far less than
 * one in a thousand.
 */
export const marginMs = (windowMs: number): number => 2 + windowMs / 1_000

/** The view that an answer's headers open. */
export function firstView(told: RateLimit, seen: Observation): WindowView {
  const { lowMs, highMs } = endOf(told, seen)
  const spentItems = told.limit - told.remaining
  return {
    limitItems: told.limit,
    assumed: false,
    endsAfterMs: lowMs,
    endsByMs: highMs,
    beganMs: seen.receivedMs,
    shownMs: seen.receivedMs,
    seenItems: spentItems,
    upperItems: spentItems + seen.beyondItems,
    nextItems: 0,
    foreignItems: 0,
    foreignBeforeItems: 0,
  }
}

/**
 * The view of a gateway that tells no limits: its window is taken to be opened by the call that was
 * answered.
 */
export function assumedView(limitItems: number, seen: Observation): WindowView {
  return {
    limitItems,
    assumed: true,
    endsAfterMs: seen.sentMs + seen.windowMs,
    endsByMs: seen.receivedMs + seen.windowMs,
    beganMs: seen.receivedMs,
    shownMs: seen.receivedMs,
    seenItems: 0,
    upperItems: seen.items + seen.beyondItems,
    nextItems: 0,
    foreignItems: 0,
    foreignBeforeItems: 0,
  }
}

/**
 * The next window where this one is over for sure; `flyingItems` are those of calls without an
 * answer, charged in either.
 */
export function rolled(
  view: WindowView,
  endMs: number,
  nowMs: number,
  windowMs: number,
  flyingItems: number,
): WindowView {
  // What was charged after the end opened a window that has ended by now as well.
  const nextItems = nowMs > endMs + windowMs + marginMs(windowMs) ? 0 : view.nextItems
  return {
    ...view,
    endsAfterMs: view.endsAfterMs + windowMs,
    endsByMs: null,
    beganMs: endMs,
    seenItems: 0,
    upperItems: nextItems + flyingItems,
    nextItems: 0,
    ...foreignRolled(view),
  }
}

const foreignRolled = (view: WindowView) => ({
  foreignItems: 0,
  // Others are still expected for a while after a window in which nothing of theirs was seen.
  foreignBeforeItems: Math.max(view.foreignItems, Math.floor(view.foreignBeforeItems * 0.75)),
})

/** What an answer that tells of this window adds. */
export function shown(view: WindowView, told: RateLimit, seen: Observation): WindowView {
  const { lowMs, highMs } = endOf(told, seen)
  const spentItems = told.limit - told.remaining
  const boundItems = spentItems + seen.beyondItems
  const after = { ...view, shownMs: Math.max(view.shownMs, seen.receivedMs) }
  if (seen.receivedMs - seen.sentMs > seen.windowMs / 2)
    return wide(after, highMs, spentItems, seen)
  if (view.endsByMs === null) {
    if (seen.sentMs < view.beganMs && highMs < view.endsAfterMs) {
      // A call of the window before, which had been counted in this one in case.
      return { ...view, upperItems: Math.max(view.seenItems, view.upperItems - seen.items) }
    }
    const endsAfterMs = Math.max(view.endsAfterMs, lowMs)
    return counted(
      { ...after, endsAfterMs: endsAfterMs <= highMs ? endsAfterMs : lowMs, endsByMs: highMs },
      spentItems,
      boundItems,
    )
  }
  // What was seen before this call was sent, and the call itself, must be in its count, unless that
  // was cut off at the limit.
  const lacks =
    seen.sentMs >= view.shownMs && told.remaining > 0 && spentItems < view.seenItems + seen.items
  if (lowMs > view.endsByMs || lacks) {
    // A window opened before the last one can have ended: the gateway was started anew.
    return { ...firstView(told, seen), ...foreignRolled(view) }
  }
  if (highMs < view.endsAfterMs) {
    // The answer is older than what is known, unless it was asked for later: then what was known is
    // wrong.
    return seen.sentMs >= view.shownMs
      ? { ...firstView(told, seen), foreignBeforeItems: view.foreignBeforeItems }
      : view
  }
  const narrowed = {
    ...after,
    endsAfterMs: Math.max(view.endsAfterMs, lowMs),
    endsByMs: Math.min(view.endsByMs, highMs),
  }
  return counted(narrowed, spentItems, boundItems)
}

/**
 * A count of the same window: a bound from above unless it is older than one seen, and one from
 * below in any case.
 */
function counted(view: WindowView, spentItems: number, boundItems: number): WindowView {
  const bounded =
    spentItems >= view.seenItems ? Math.min(view.upperItems, boundItems) : view.upperItems
  return {
    ...view,
    seenItems: Math.max(view.seenItems, spentItems),
    upperItems: Math.max(bounded, spentItems),
    foreignItems: view.foreignItems + Math.max(0, spentItems - view.upperItems),
  }
}

/** An answer that took so long that it may tell of this window or the next one counts in both. */
function wide(view: WindowView, highMs: number, spentItems: number, seen: Observation): WindowView {
  const endsByMs =
    view.endsByMs === null
      ? seen.sentMs >= view.beganMs
        ? highMs
        : null
      : Math.max(view.endsByMs, highMs)
  return {
    ...view,
    endsByMs,
    upperItems: Math.max(view.upperItems, spentItems),
    nextItems: Math.max(view.nextItems + seen.items, spentItems),
  }
}

/**
 * What an answer that tells of another window, or of none, says about this one; `undefined` where
 * it proves that there is no such window any more, because more is left in the tighter one than
 * this one could have.
 */
export function hidden(
  view: WindowView,
  told: RateLimit | undefined,
  seen: Observation,
): WindowView | undefined {
  const opened = view.endsByMs === null && seen.sentMs >= view.beganMs
  const mayBeNext = isNearEnd(view, seen)
  const after = {
    ...unanswered(view, seen),
    endsByMs: opened ? seen.receivedMs + seen.windowMs : view.endsByMs,
  }
  const isLater = told !== undefined && seen.sentMs >= view.beganMs && seen.sentMs >= view.shownMs
  if (!isLater) return after
  if (!mayBeNext && !opened && view.limitItems - view.seenItems < told.remaining) return undefined
  const boundItems = view.limitItems - told.remaining + seen.beyondItems
  return { ...after, upperItems: Math.max(view.seenItems, Math.min(view.upperItems, boundItems)) }
}

/**
 * A call that was given up: charged in this window, in the next, or never, so that it opens none
 * for sure.
 */
export function unanswered(view: WindowView, seen: Observation): WindowView {
  return isNearEnd(view, seen) ? { ...view, nextItems: view.nextItems + seen.items } : view
}

const isNearEnd = (view: WindowView, seen: Observation) =>
  view.endsByMs !== null && seen.receivedMs > view.endsAfterMs

/**
 * Items that may be granted now. Those in flight near the end may fall into the next window: they
 * count in both, in this one already, and in the next one from its beginning.
 */
export function roomOf(view: WindowView, nowMs: number, windowMs: number): number {
  return view.limitItems - view.upperItems - keptBack(view, nowMs, windowMs)
}

/**
 * What others behind the same address are expected to spend before the window ends; nothing where
 * none were seen. What they spend shows only in answers to us, so at least a quarter is kept until
 * calls late in a window have shown it. The whole share is kept for half a window; what is not
 * taken by then is given back bit by bit.
 */
function keptBack(view: WindowView, nowMs: number, windowMs: number): number {
  const leftMs =
    view.endsByMs === null ? windowMs : Math.min(windowMs, Math.max(0, view.endsByMs - nowMs))
  return Math.ceil(wholeShare(view) * Math.min(1, (2 * leftMs) / windowMs))
}

function wholeShare({ foreignItems, foreignBeforeItems, limitItems }: WindowView): number {
  if (foreignItems === 0 && foreignBeforeItems === 0) return 0
  return Math.max(0, Math.max(foreignBeforeItems, Math.floor(limitItems / 4)) - foreignItems)
}

/**
 * When `items` will fit, as far as time alone decides; `null` where an answer has to come first.
 * `endMs` is the window's end as far as known.
 */
export function fitsAtMs(
  view: WindowView,
  items: number,
  nowMs: number,
  windowMs: number,
  endMs: number | null,
): number | null {
  if (endMs === null) return null
  const overMs = endMs + marginMs(windowMs)
  const spareItems = view.limitItems - view.upperItems - items
  const shareItems = wholeShare(view)
  // While no call has opened the window for sure, the share of others stays whole.
  if (spareItems < 0 || shareItems <= spareItems || view.endsByMs === null) return overMs
  // Only that share is in the way. This is `keptBack` solved for the time: any earlier and the
  // caller would ask again and again.
  return Math.min(
    overMs,
    Math.max(nowMs + 1, Math.ceil(view.endsByMs - (windowMs * spareItems) / (2 * shareItems))),
  )
}

/**
 * Between which two instants the window of an answer ends: it was made between sending and
 * receiving, its seconds are rounded up.
 */
function endOf(
  told: RateLimit,
  seen: Observation,
): { readonly lowMs: number; readonly highMs: number } {
  return {
    lowMs: seen.sentMs + (told.resetSeconds - 1) * 1_000,
    highMs: seen.receivedMs + told.resetSeconds * 1_000 + 1,
  }
}
