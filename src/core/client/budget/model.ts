/**
 * The client's model of a gateway's item budget (§8, contract §2 Charging): what may be sent when,
 * so that no call draws a 429 and no item is left unspent. Pure: time is passed in, in milliseconds
 * of this machine's wall clock, and nothing is thrown. What all processes of a machine share is one
 * value of `BudgetState`.
 */
import * as z from 'zod'
import { maxRetryAfterMs, type RateLimit } from '../gateway/answer.js'
import {
  assumedView,
  firstView,
  fitsAtMs,
  hidden,
  marginMs,
  type Observation,
  rolled,
  roomOf,
  shown,
  unanswered,
  type WindowView,
} from './window.js'

/** §8: the budget of a gateway that tells none. */
export const defaultBudget = { limitItems: 120, windowMs: 60_000 } as const

export interface BudgetDefaults {
  readonly limitItems: number
  readonly windowMs: number
}

const Count = z.int().min(0)
const Ms = z.number()

/** A granted call that has no answer yet. */
const FlyingCall = z.strictObject({
  id: z.string(),
  items: Count,
  sentMs: Ms,
  /**
   * A process that died leaves its calls behind: until then they count as spent and as on their
   * way.
   */
  expiresMs: Ms,
  /**
   * `settledItems` when it was granted: all of that was charged before it, or not in its window.
   */
  sureItems: Count,
})
export type FlyingCall = z.infer<typeof FlyingCall>

const View = z.strictObject({
  limitItems: z.int().min(1),
  assumed: z.boolean(),
  endsAfterMs: Ms,
  endsByMs: Ms.nullable(),
  beganMs: Ms,
  shownMs: Ms,
  seenItems: Count,
  upperItems: Count,
  nextItems: Count,
  foreignItems: Count,
  foreignBeforeItems: Count,
}) satisfies z.ZodType<WindowView>

/** Also the shape on disk; whatever else is found there is damage. */
export const BudgetState = z.strictObject({
  windowMs: z.number().min(1_000),
  views: z.array(View).max(8),
  calls: z.array(FlyingCall).max(512),
  /** All items ever granted and not given back, and those of them whose calls are over. */
  grantedItems: Count,
  settledItems: Count,
  /** When the last answer came. */
  answeredMs: Ms,
  /** When the last call ended, answered or given up. */
  endedMs: Ms,
  /** By a 429: nothing is sent before. */
  blockedUntilMs: Ms,
  /**
   * When something last showed that our own calls do not explain: a 429, or a window that others
   * had opened.
   */
  waryMs: Ms,
  refusals: Count,
  writtenMs: Ms,
  /** By how much all instants have been moved so far because the wall clock had been set. */
  shiftedMs: Ms,
})
export type BudgetState = z.infer<typeof BudgetState>

/**
 * A call has ended by then (robustness §6: 45 s an attempt); what a dead process had granted is
 * free again after it.
 */
export const flightMs = 60_000
/** A call that broke off may still be on its way to the gateway for so long. */
const lingerMs = 5_000
/**
 * Whoever asks first while the limits are unknown has so long to learn them; then another one may
 * ask as well.
 */
const learningTurnMs = 5_000
/** More calls at once than any machine has use for (R17). */
const maxFlying = 256
const maxViews = 4
/** A gateway that tells longer windows is not believed. */
const longestWindowMs = 3_600_000
/** Wall clocks are set by so much without anybody noticing; more is a jump. */
const jumpMs = 250

/** Nothing known. */
export function unknownBudget(
  nowMs: number,
  defaults: BudgetDefaults = defaultBudget,
): BudgetState {
  return {
    windowMs: defaults.windowMs,
    views: [],
    calls: [],
    grantedItems: 0,
    settledItems: 0,
    answeredMs: nowMs - longestWindowMs,
    endedMs: nowMs,
    blockedUntilMs: 0,
    waryMs: 0,
    refusals: 0,
    writtenMs: nowMs,
    shiftedMs: 0,
  }
}

/**
 * The wall clock was set by `deltaMs`: every instant moves with it, so that durations stay what
 * they were. Where the clock of a sleeping machine went on, windows seem to last longer than they
 * do, which costs a wait of at most one window.
 */
export function shiftTimes(state: BudgetState, deltaMs: number, nowMs: number): BudgetState {
  const shift = (ms: number) => ms + deltaMs
  return {
    ...state,
    views: state.views.map((view) => ({
      ...view,
      // A clock is read in whole milliseconds, before and after.
      endsAfterMs: shift(view.endsAfterMs) - 2,
      endsByMs: view.endsByMs === null ? null : shift(view.endsByMs) + 2,
      beganMs: shift(view.beganMs),
      shownMs: shift(view.shownMs),
    })),
    calls: state.calls.map((call) => ({
      ...call,
      sentMs: shift(call.sentMs),
      expiresMs: shift(call.expiresMs),
    })),
    answeredMs: shift(state.answeredMs),
    endedMs: shift(state.endedMs),
    blockedUntilMs: shift(state.blockedUntilMs),
    waryMs: shift(state.waryMs),
    writtenMs: nowMs,
    shiftedMs: state.shiftedMs + deltaMs,
  }
}

/**
 * A state written in the future means that the clock was set back: then it was written just now,
 * for all that is known. It must be kept as such, because seen again later it would have been
 * written just then.
 */
export const notInFuture = (state: BudgetState, nowMs: number): BudgetState =>
  state.writtenMs > nowMs + jumpMs ? shiftTimes(state, nowMs - state.writtenMs, nowMs) : state

/** The state as of now: what is over has ended, and what cannot be so is forgotten. */
export function stateAt(given: BudgetState, nowMs: number): BudgetState {
  const { windowMs } = given
  const state = notInFuture(given, nowMs)
  let { views, settledItems, endedMs } = state
  const over = state.calls.filter((call) => call.expiresMs <= nowMs)
  for (const call of over) {
    settledItems += call.items
    endedMs = Math.max(endedMs, call.expiresMs)
    views = views.map((view) => unanswered(view, observationOf(state, call, call.expiresMs)))
  }
  const calls =
    over.length === 0 ? state.calls : state.calls.filter((call) => call.expiresMs > nowMs)
  const flyingItems = itemsOf(calls)
  views = views.map((view) => {
    const endMs = knownEndMs(view, { windowMs, endedMs, calls })
    return endMs !== null && nowMs > endMs + marginMs(windowMs)
      ? rolled(view, endMs, nowMs, windowMs, flyingItems)
      : view
  })
  return { ...state, views, calls, settledItems, endedMs }
}

/**
 * Where nothing is in flight a window that was opened at all was opened by the last call that
 * ended.
 */
export const knownEndMs = (
  view: WindowView,
  { windowMs, endedMs, calls }: Pick<BudgetState, 'windowMs' | 'endedMs' | 'calls'>,
): number | null => view.endsByMs ?? (calls.length === 0 ? endedMs + windowMs : null)

export interface Ask {
  /** Names the call among all processes. */
  readonly id: string
  readonly wantItems: number
  /** Less than `wantItems` where the call can be split. */
  readonly minItems: number
}

export type Decision =
  | { readonly kind: 'granted'; readonly items: number; readonly state: BudgetState }
  /** Ask again at `untilMs`; `null`: when another call has been answered. */
  | {
      readonly kind: 'wait'
      readonly untilMs: number | null
      readonly limitItems: number
      readonly spentItems: number
      readonly windowMs: number
    }
  /** No window is large enough: the call must be split. */
  | { readonly kind: 'never'; readonly limitItems: number }

/**
 * Grants between `minItems` and `wantItems` (≥ 1), or says when to ask again. Where the limits are
 * not known, or somebody else was seen to spend, or a 429 came, the first call of a window is as
 * small as it can be and nobody else sends before its answer.
 */
export function reserve(
  given: BudgetState,
  ask: Ask,
  nowMs: number,
  defaults: BudgetDefaults = defaultBudget,
): Decision {
  const state = stateAt(given, nowMs)
  const { views, calls, windowMs } = state
  const flyingItems = itemsOf(calls)
  const tightest = tightestOf(views)
  const limitItems = tightest?.limitItems ?? defaults.limitItems
  const told = { limitItems, windowMs, spentItems: tightest?.upperItems ?? flyingItems }
  if (tightest !== undefined && ask.minItems > Math.min(...views.map((view) => view.limitItems))) {
    return { kind: 'never', limitItems }
  }
  if (nowMs < state.blockedUntilMs)
    return { kind: 'wait', untilMs: state.blockedUntilMs, ...told, spentItems: limitItems }
  if (calls.length >= maxFlying) return { kind: 'wait', untilMs: null, ...told }

  const learning = mustLearn(state, nowMs)
  if (learning && calls.some((call) => call.sentMs > nowMs - learningTurnMs))
    return { kind: 'wait', untilMs: null, ...told }
  const wantItems = learning ? ask.minItems : ask.wantItems
  const rooms = views.map((view) => ({ view, roomItems: roomOf(view, nowMs, windowMs) }))
  const blocking = rooms.filter(({ roomItems }) => roomItems < ask.minItems)
  if (blocking.length > 0) {
    // Waking for single items would make a call of each: an eighth of the window is worth one, or
    // what is asked for.
    const worthItems = Math.min(wantItems, Math.max(ask.minItems, Math.floor(limitItems / 8)))
    const times = blocking.map(({ view }) =>
      fitsAtMs(view, worthItems, nowMs, windowMs, knownEndMs(view, state)),
    )
    const [first] = blocking
    const about = {
      windowMs,
      limitItems: first?.view.limitItems ?? limitItems,
      spentItems: first?.view.upperItems ?? 0,
    }
    return {
      kind: 'wait',
      untilMs: times.some((ms) => ms === null) ? null : Math.max(...times.map(Number)),
      ...about,
    }
  }
  const items = Math.min(wantItems, ...rooms.map(({ roomItems }) => roomItems))
  const call = {
    id: ask.id,
    items,
    sentMs: nowMs,
    expiresMs: nowMs + flightMs,
    sureItems: state.settledItems,
  }
  const next = {
    ...state,
    views: views.map((view) => charged(view, items, nowMs, windowMs)),
    calls: [...calls, call],
    grantedItems: state.grantedItems + items,
    writtenMs: nowMs,
  }
  return { kind: 'granted', items, state: next }
}

/** A window that nobody tells of is taken to be opened by our first call in it. */
function charged(view: WindowView, items: number, nowMs: number, windowMs: number): WindowView {
  const opens = view.assumed && view.endsByMs === null && view.upperItems === 0
  return {
    ...view,
    upperItems: view.upperItems + items,
    endsAfterMs: opens ? nowMs + windowMs : view.endsAfterMs,
  }
}

/** Whether the next call is to be a small one, alone: see `reserve`. */
function mustLearn({ views, windowMs, answeredMs, waryMs }: BudgetState, nowMs: number): boolean {
  if (views.length === 0 || nowMs - answeredMs > 1.25 * windowMs) return true
  const wary = nowMs - waryMs < 2 * windowMs
  return views.some((view) => view.endsByMs === null && (wary || view.foreignBeforeItems > 0))
}

/** What became of a call. */
export interface Outcome {
  /** Whether an HTTP answer came; without one the call may still be on its way. */
  readonly answered: boolean
  /** It was a 429. */
  readonly refused: boolean
  readonly rateLimit?: RateLimit | undefined
  readonly retryAfterMs?: number | undefined
}

/** A call has ended. `jitter` in [0, 1) spreads those who wait for the end of a 429 (§7). */
export function settle(
  given: BudgetState,
  id: string,
  outcome: Outcome,
  nowMs: number,
  jitter: number,
  defaults: BudgetDefaults = defaultBudget,
): BudgetState {
  const state = stateAt(given, nowMs)
  const call = state.calls.find((one) => one.id === id)
  const refusal = outcome.refused ? refused(state, outcome, nowMs, jitter) : {}
  // Expired long since, or of a state that was lost: what its answer counts is not known.
  if (call === undefined) return { ...state, ...refusal, writtenMs: nowMs }
  if (!outcome.answered) {
    const lingering = { ...call, expiresMs: Math.min(call.expiresMs, nowMs + lingerMs) }
    return {
      ...state,
      calls: state.calls.map((one) => (one === call ? lingering : one)),
      writtenMs: nowMs,
    }
  }
  const told = plausible(outcome.rateLimit)
  const windowMs = outcome.refused ? state.windowMs : windowOf(state, call, told)
  const seen = { ...observationOf(state, call, nowMs), windowMs }
  const views = seenBy(state.views, told, seen, defaults)
  return {
    ...state,
    windowMs,
    views: outcome.refused
      ? views.map((view) => (view.assumed ? spentUp(view, seen, outcome.retryAfterMs) : view))
      : views,
    calls: state.calls.filter((one) => one !== call),
    settledItems: state.settledItems + call.items,
    answeredMs: nowMs,
    endedMs: nowMs,
    refusals: 0,
    waryMs: othersOpened(state, told, seen) ? nowMs : state.waryMs,
    ...refusal,
    writtenMs: nowMs,
  }
}

/**
 * A limit told for the first time, with more spent than we can have: another window than ours alone
 * is in the way.
 */
const othersOpened = (
  { views }: BudgetState,
  told: RateLimit | undefined,
  seen: Observation,
): boolean =>
  told !== undefined &&
  !views.some((view) => view.limitItems === told.limit) &&
  told.limit - told.remaining > seen.items + seen.beyondItems

function seenBy(
  given: readonly WindowView[],
  told: RateLimit | undefined,
  seen: Observation,
  defaults: BudgetDefaults,
): WindowView[] {
  if (told === undefined && given.length === 0) return [assumedView(defaults.limitItems, seen)]
  const known = told === undefined ? given : given.filter((view) => !view.assumed)
  const views = known.flatMap((view) =>
    told?.limit === view.limitItems ? shown(view, told, seen) : (hidden(view, told, seen) ?? []),
  )
  if (told !== undefined && !known.some((view) => view.limitItems === told.limit))
    views.push(firstView(told, seen))
  // A limit that has not been told for long is none, or one that is never in the way.
  const lasting = views.filter(
    (view) => seen.receivedMs - view.shownMs < 10 * seen.windowMs || view.assumed,
  )
  return lasting.sort((a, b) => b.shownMs - a.shownMs).slice(0, maxViews)
}

/**
 * A 429 without RateLimit headers: the assumed window is spent, and ends when the gateway says
 * (seconds rounded up).
 */
function spentUp(
  view: WindowView,
  seen: Observation,
  retryAfterMs: number | undefined,
): WindowView {
  const spent = { ...view, upperItems: Math.max(view.upperItems, view.limitItems) }
  if (retryAfterMs === undefined) return spent
  const endsAfterMs = seen.sentMs + retryAfterMs - 1_000
  return {
    ...spent,
    endsAfterMs,
    endsByMs: Math.max(endsAfterMs, seen.receivedMs + Math.min(retryAfterMs, longestWindowMs)),
  }
}

function refused(
  state: BudgetState,
  outcome: Outcome,
  nowMs: number,
  jitter: number,
): Partial<BudgetState> {
  const backoffMs = Math.min(state.windowMs, 1_000 * 2 ** state.refusals)
  // Longer is not waited for (robustness §6): the next 429 says so to the caller.
  const waitMs = Math.min(
    Math.max(maxRetryAfterMs, state.windowMs),
    outcome.retryAfterMs ??
      (outcome.rateLimit ? outcome.rateLimit.resetSeconds * 1_000 : backoffMs),
  )
  const spreadMs = jitter * Math.min(1_000, state.windowMs / 20)
  return {
    blockedUntilMs: Math.max(state.blockedUntilMs, nowMs + waitMs + spreadMs),
    waryMs: nowMs,
    refusals: Math.min(16, state.refusals + 1),
  }
}

/** A call that never left: its items are free again. An expired one has been counted as spent. */
export function release(given: BudgetState, id: string, nowMs: number): BudgetState {
  return resize(given, id, 0, nowMs)
}

/** A call turns out to need fewer items, or leaves only now; 0 gives all back. */
export function resize(given: BudgetState, id: string, items: number, nowMs: number): BudgetState {
  const state = stateAt(given, nowMs)
  const call = state.calls.find((one) => one.id === id)
  if (call === undefined || items > call.items) return state
  const freed = call.items - items
  const lowered = (view: WindowView) => ({
    ...view,
    upperItems: Math.max(view.seenItems, view.upperItems - freed),
  })
  const kept = {
    ...call,
    items,
    sentMs: nowMs,
    expiresMs: nowMs + flightMs,
    sureItems: state.settledItems,
  }
  return {
    ...state,
    views: state.views.map(lowered),
    calls: state.calls.flatMap((one) => (one !== call ? one : items === 0 ? [] : kept)),
    grantedItems: state.grantedItems - freed,
    writtenMs: nowMs,
  }
}

/** Items of calls together. */
export const itemsOf = (calls: readonly FlyingCall[]) =>
  calls.reduce((sum, call) => sum + call.items, 0)

/** The window with the least left. */
export const tightestOf = (views: readonly WindowView[]): WindowView | undefined =>
  [...views].sort((a, b) => a.limitItems - a.upperItems - (b.limitItems - b.upperItems))[0]

const observationOf = (state: BudgetState, call: FlyingCall, nowMs: number): Observation => ({
  items: call.items,
  sentMs: call.sentMs,
  receivedMs: nowMs,
  beyondItems: Math.max(0, state.grantedItems - call.items - call.sureItems),
  windowMs: state.windowMs,
})

/** Headers that no budget can mean are none. */
function plausible(told: RateLimit | undefined): RateLimit | undefined {
  if (told === undefined || told.limit < 1 || told.remaining > told.limit) return undefined
  return {
    ...told,
    resetSeconds: Math.min(Math.max(1, told.resetSeconds), longestWindowMs / 1_000),
  }
}

/**
 * A window is at least as long as what is left of it; exactly so where this very call opened it.
 */
function windowOf(state: BudgetState, call: FlyingCall, told: RateLimit | undefined): number {
  if (told === undefined) return state.windowMs
  const leftMs = told.resetSeconds * 1_000
  return told.limit - told.remaining === call.items ? leftMs : Math.max(state.windowMs, leftMs)
}
