/**
 * Bounds on one of a gateway's budget windows (§8, contract §2). The server counts; each response
 * tells the tighter of its two windows, in whole seconds, at some moment between sending (a) and
 * receiving (b). So every figure is a bound that holds whatever happened:
 *
 *     spent = limit - remaining        the window ends in (a + (reset - 1) s, b + reset s]
 *
 * Limit 120, remaining 20, reset 30, sent at 10.0 s, received at 10.2 s. 100 items are spent, and
 * the window ends after 39.0 s and by 40.2 s. With 5 items of ours in flight at most 105 are spent,
 * so 15 more fit now; for 16 the window's end is waited for.
 */
import * as z from 'zod/mini'
import type { RateLimit } from '../gateway/answer.js'

const Count = z.int().check(z.minimum(0))

/** Also a shape on disk. Milliseconds of the wall clock, the only one that processes share. */
export const WindowView = z.strictObject({
  /** The limit of a window is its name: a response tells no other. */
  limitItems: z.int().check(z.minimum(1)),
  /** The gateway tells no limits, and the documented default is taken. */
  assumed: z.boolean(),
  /** The window ends after this … */
  endsAfterMs: z.number(),
  /** … and by this. `null`: opened by a call that has no response yet, or not at all. */
  endsByMs: z.nullable(z.number()),
  /** A call sent from here on is charged in this window or a later one. */
  beganMs: z.number(),
  /** When the last response that told of this limit came. */
  shownMs: z.number(),
  /** At least and at most so much is spent; the latter holds our calls in flight. */
  seenItems: Count,
  upperItems: Count,
  /** Items of answered calls that may have been charged after this window's end. */
  nextItems: Count,
  /** Spent by others behind the same address, as far as seen: in this window, and before, fading. */
  foreignItems: Count,
  foreignBeforeItems: Count,
})
export type WindowView = z.infer<typeof WindowView>

/** One answered call, as a window sees it. */
export interface CallSeen {
  readonly items: number
  readonly sentMs: number
  readonly receivedMs: number
  /** Items of ours that the response may not count: in flight beside it, or reserved since. */
  readonly beyondItems: number
  readonly windowMs: number
}

/** Clocks are read in whole milliseconds, and two of one pace differ by under one in a thousand. */
export const marginMs = (windowMs: number): number => 2 + windowMs / 1_000

const nothingForeign = { nextItems: 0, foreignItems: 0, foreignBeforeItems: 0 }

/** The view that a response's headers open. */
export function openedView(limit: RateLimit, seen: CallSeen): WindowView {
  const { lowMs, highMs } = endOf(limit, seen)
  const spentItems = limit.limit - limit.remaining
  return {
    limitItems: limit.limit,
    assumed: false,
    endsAfterMs: lowMs,
    endsByMs: highMs,
    beganMs: seen.receivedMs,
    shownMs: seen.receivedMs,
    seenItems: spentItems,
    upperItems: spentItems + seen.beyondItems,
    ...nothingForeign,
  }
}

/** Of a gateway that tells no limits: its window is taken to be opened by the answered call. */
export const assumedView = (limitItems: number, seen: CallSeen): WindowView => ({
  limitItems,
  assumed: true,
  endsAfterMs: seen.sentMs + seen.windowMs,
  endsByMs: seen.receivedMs + seen.windowMs,
  beganMs: seen.receivedMs,
  shownMs: seen.receivedMs,
  seenItems: 0,
  upperItems: seen.items + seen.beyondItems,
  ...nothingForeign,
})

/** The window after one that is over; calls in flight are charged in either. */
export function nextView(
  view: WindowView,
  endMs: number,
  nowMs: number,
  windowMs: number,
  inFlightItems: number,
): WindowView {
  // What was charged after the end opened a window that has ended by now as well.
  const nextItems = nowMs > endMs + windowMs + marginMs(windowMs) ? 0 : view.nextItems
  return {
    ...view,
    endsAfterMs: view.endsAfterMs + windowMs,
    endsByMs: null,
    beganMs: endMs,
    seenItems: 0,
    upperItems: nextItems + inFlightItems,
    ...foreignAfter(view),
  }
}

/** Others are still expected for a while after a window in which nothing of theirs was seen. */
const foreignAfter = ({ foreignItems, foreignBeforeItems }: WindowView) => ({
  nextItems: 0,
  foreignItems: 0,
  foreignBeforeItems: Math.max(foreignItems, Math.floor(foreignBeforeItems * 0.75)),
})

/** What a response that tells of this window adds. */
export function withCount(before: WindowView, limit: RateLimit, seen: CallSeen): WindowView {
  const { lowMs, highMs } = endOf(limit, seen)
  const spentItems = limit.limit - limit.remaining
  const view = { ...before, shownMs: Math.max(before.shownMs, seen.receivedMs) }
  const counted = (endsAfterMs: number, endsByMs: number): WindowView => ({
    ...view,
    endsAfterMs,
    endsByMs,
    // A bound from above unless older than one seen, and one from below in any case.
    upperItems: Math.max(
      spentItems,
      spentItems >= view.seenItems
        ? Math.min(view.upperItems, spentItems + seen.beyondItems)
        : view.upperItems,
    ),
    seenItems: Math.max(view.seenItems, spentItems),
    foreignItems: view.foreignItems + Math.max(0, spentItems - view.upperItems),
  })
  if (seen.receivedMs - seen.sentMs > seen.windowMs / 2)
    return withSlowCount(view, highMs, spentItems, seen)
  const lateMs = Math.max(view.endsAfterMs, lowMs)
  if (view.endsByMs === null) {
    // A call of the window before, which had been counted in this one in case.
    if (seen.sentMs < view.beganMs && highMs < view.endsAfterMs)
      return { ...before, upperItems: Math.max(view.seenItems, view.upperItems - seen.items) }
    return counted(lateMs <= highMs ? lateMs : lowMs, highMs)
  }
  // What was seen before this call was sent, and the call itself, must be in its count, unless that
  // was cut off at the limit.
  const isAskedLater = seen.sentMs >= before.shownMs
  const isTooLow = isAskedLater && limit.remaining > 0 && spentItems < view.seenItems + seen.items
  // A window opened before the last one can have ended: the gateway was restarted.
  if (lowMs > view.endsByMs || isTooLow)
    return { ...openedView(limit, seen), ...foreignAfter(view) }
  if (highMs >= view.endsAfterMs) return counted(lateMs, Math.min(view.endsByMs, highMs))
  // The response is older than what is known, or what was known is wrong.
  return isAskedLater
    ? { ...openedView(limit, seen), foreignBeforeItems: view.foreignBeforeItems }
    : before
}

/** A response so slow that it may tell of this window or the next one counts in both. */
function withSlowCount(
  view: WindowView,
  highMs: number,
  spentItems: number,
  seen: CallSeen,
): WindowView {
  const opened = seen.sentMs >= view.beganMs ? highMs : null
  return {
    ...view,
    endsByMs: view.endsByMs === null ? opened : Math.max(view.endsByMs, highMs),
    upperItems: Math.max(view.upperItems, spentItems),
    nextItems: Math.max(view.nextItems + seen.items, spentItems),
  }
}

/**
 * What a response that tells of another window, or of none, says about this one. `undefined`: there
 * is no such window any more, because more is left in the tighter one than this one could have.
 */
export function withOtherCount(
  view: WindowView,
  limit: RateLimit | undefined,
  seen: CallSeen,
): WindowView | undefined {
  const opened = view.endsByMs === null && seen.sentMs >= view.beganMs
  const after = {
    ...givenUp(view, seen),
    endsByMs: opened ? seen.receivedMs + seen.windowMs : view.endsByMs,
  }
  if (limit === undefined || seen.sentMs < view.beganMs || seen.sentMs < view.shownMs) return after
  const isSurelyHere = !isNearEnd(view, seen) && !opened
  if (isSurelyHere && view.limitItems - view.seenItems < limit.remaining) return undefined
  const mostItems = view.limitItems - limit.remaining + seen.beyondItems
  return { ...after, upperItems: Math.max(view.seenItems, Math.min(view.upperItems, mostItems)) }
}

/** A call that was given up: charged in this window, in the next, or never. */
export const givenUp = (view: WindowView, seen: CallSeen): WindowView =>
  isNearEnd(view, seen) ? { ...view, nextItems: view.nextItems + seen.items } : view

const isNearEnd = (view: WindowView, seen: CallSeen) =>
  view.endsByMs !== null && seen.receivedMs > view.endsAfterMs

/**
 * Items that may be granted now. Kept back is what others behind the same address are expected to
 * spend. Their whole share is kept for half a window, then it is given back bit by bit.
 */
export function roomOf(view: WindowView, nowMs: number, windowMs: number): number {
  const leftMs =
    view.endsByMs === null ? windowMs : Math.min(windowMs, Math.max(0, view.endsByMs - nowMs))
  const keptItems = Math.ceil(shareOfOthers(view) * Math.min(1, (2 * leftMs) / windowMs))
  return view.limitItems - view.upperItems - keptItems
}

/** What others spend shows only in our responses, so at least a quarter is kept once seen. */
function shareOfOthers({ foreignItems, foreignBeforeItems, limitItems }: WindowView): number {
  if (foreignItems === 0 && foreignBeforeItems === 0) return 0
  return Math.max(0, Math.max(foreignBeforeItems, Math.floor(limitItems / 4)) - foreignItems)
}

/** When `items` will fit by time alone; `null`: a response has to come first. */
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
  const shareItems = shareOfOthers(view)
  // While no call has opened the window for sure, the share of others stays whole.
  if (spareItems < 0 || shareItems <= spareItems || view.endsByMs === null) return overMs
  // Only that share is in the way: `roomOf` solved for the time.
  const freeMs = Math.ceil(view.endsByMs - (windowMs * spareItems) / (2 * shareItems))
  return Math.min(overMs, Math.max(nowMs + 1, freeMs))
}

/** Between which two instants the window of a response ends. */
const endOf = ({ resetSeconds }: RateLimit, seen: CallSeen) => ({
  lowMs: seen.sentMs + (resetSeconds - 1) * 1_000,
  highMs: seen.receivedMs + resetSeconds * 1_000 + 1,
})
