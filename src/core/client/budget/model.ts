/**
 * The client's model of a gateway's item budget (§8, contract §2). What may be sent when,
 * so that no call draws a 429 and no item is left unspent. Pure: time is passed in, in milliseconds
 * of this machine's wall clock, and nothing is thrown. All processes of a machine share one value
 * of `BudgetState`.
 */
import * as z from 'zod/mini'
import {
  type CallSeen,
  fitsAtMs,
  givenUp,
  marginMs,
  nextView,
  roomOf,
  WindowView,
} from './window.js'

/** §8: the budget of a gateway that tells none. */
export const defaultBudget: BudgetDefaults = { limitItems: 120, windowMs: 60_000 }

export interface BudgetDefaults {
  readonly limitItems: number
  readonly windowMs: number
}

const Count = z.int().check(z.minimum(0))
const Ms = z.number()

/** A granted call that has no response yet. */
export const CallInFlight = z.strictObject({
  id: z.string(),
  items: Count,
  sentMs: Ms,
  /** A process that died leaves its calls behind: until then they count as spent. */
  expiresMs: Ms,
  /** `settledItems` when it was granted: charged before it, or not in its window. */
  sureItems: Count,
})
export type CallInFlight = z.infer<typeof CallInFlight>

/** Also the shape on disk; whatever else is found there is damage. */
export const BudgetState = z.strictObject({
  windowMs: z.number().check(z.minimum(1_000)),
  views: z.array(WindowView).check(z.maxLength(8)),
  calls: z.array(CallInFlight).check(z.maxLength(512)),
  /** All items ever granted and not given back, and those of them whose calls are over. */
  grantedItems: Count,
  settledItems: Count,
  /** When the last response came. */
  answeredMs: Ms,
  /** When the last call ended, answered or given up. */
  endedMs: Ms,
  /** By a 429: nothing is sent before. */
  blockedUntilMs: Ms,
  /** When our own calls last did not explain a 429, or how much of a window was spent. */
  waryMs: Ms,
  refusals: Count,
  writtenMs: Ms,
  /** By how much all instants have been moved so far because the wall clock had been set. */
  shiftedMs: Ms,
})
export type BudgetState = z.infer<typeof BudgetState>

/** A call has ended by then (robustness §6: 45 s an attempt). */
const flightMs = 60_000
/** Whoever asks first while the limits are unknown has so long to learn them. */
const learningMs = 5_000
/** More calls at once than any machine has use for (R17). */
const maxInFlight = 256
/** A gateway that tells longer windows is not believed. */
export const longestWindowMs = 3_600_000
/** Wall clocks are set by so much without anybody noticing; more is a jump. */
const jumpMs = 250

/** Nothing known. */
export const unknownBudget = (nowMs: number, defaults = defaultBudget): BudgetState => ({
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
})

/**
 * The wall clock was set by `deltaMs`: every instant moves with it, so that durations stay what
 * they were. After a sleep of the machine windows seem to last longer, which costs one wait at
 * most.
 */
export function shiftTimes(state: BudgetState, deltaMs: number, nowMs: number): BudgetState {
  return {
    ...state,
    views: state.views.map((view) => ({
      ...view,
      // A clock is read in whole milliseconds, before and after.
      endsAfterMs: view.endsAfterMs + deltaMs - 2,
      endsByMs: view.endsByMs === null ? null : view.endsByMs + deltaMs + 2,
      beganMs: view.beganMs + deltaMs,
      shownMs: view.shownMs + deltaMs,
    })),
    calls: state.calls.map((call) => ({
      ...call,
      sentMs: call.sentMs + deltaMs,
      expiresMs: call.expiresMs + deltaMs,
    })),
    answeredMs: state.answeredMs + deltaMs,
    endedMs: state.endedMs + deltaMs,
    blockedUntilMs: state.blockedUntilMs + deltaMs,
    waryMs: state.waryMs + deltaMs,
    writtenMs: nowMs,
    shiftedMs: state.shiftedMs + deltaMs,
  }
}

/** A state written in the future: the clock was set back, and it counts as written just now. */
export const notInFuture = (state: BudgetState, nowMs: number): BudgetState =>
  state.writtenMs > nowMs + jumpMs ? shiftTimes(state, nowMs - state.writtenMs, nowMs) : state

/** The state as of now: what is over has ended, and what cannot be so is forgotten. */
export function stateAt(given: BudgetState, nowMs: number): BudgetState {
  const state = notInFuture(given, nowMs)
  const { windowMs } = state
  const calls = state.calls.filter(({ expiresMs }) => expiresMs > nowMs)
  let { views, settledItems, endedMs } = state
  for (const call of state.calls.filter(({ expiresMs }) => expiresMs <= nowMs)) {
    settledItems += call.items
    endedMs = Math.max(endedMs, call.expiresMs)
    views = views.map((view) => givenUp(view, seenOf(state, call, call.expiresMs)))
  }
  views = views.map((view) => {
    const endMs = knownEndMs(view, { windowMs, endedMs, calls })
    return endMs !== null && nowMs > endMs + marginMs(windowMs)
      ? nextView(view, endMs, nowMs, windowMs, itemsInFlight(calls))
      : view
  })
  return { ...state, views, calls, settledItems, endedMs }
}

/** Where nothing is in flight, the last call that ended opened the window, if any did. */
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

export type BudgetDecision =
  | { readonly kind: 'granted'; readonly items: number; readonly state: BudgetState }
  /** Ask again at `untilMs`; `null`: when another call has been answered. */
  | {
      readonly kind: 'wait'
      readonly untilMs: number | null
      readonly limitItems: number
      readonly spentItems: number
      readonly windowMs: number
      /** The gateway tells no limit, and none of these figures. */
      readonly assumed: boolean
    }
  /** No window is large enough: the call must be split. */
  | { readonly kind: 'never'; readonly limitItems: number }

/**
 * Grants between `minItems` and `wantItems` (≥ 1), or says when to ask again. Limits may be
 * unknown, somebody else was seen to spend, or a 429 came. Then the first call of a window is as
 * small as it can be, and nobody else sends before its response.
 */
export function reserve(
  given: BudgetState,
  { id, wantItems, minItems }: Ask,
  nowMs: number,
  defaults: BudgetDefaults = defaultBudget,
): BudgetDecision {
  const state = stateAt(given, nowMs)
  const { views, calls, windowMs } = state
  const tightest = tightestOf(views)
  const { limitItems } = tightest ?? defaults
  const spentItems = tightest?.upperItems ?? itemsInFlight(calls)
  const wait = (untilMs: number | null, about = {}): BudgetDecision => ({
    kind: 'wait',
    untilMs,
    limitItems,
    spentItems,
    windowMs,
    assumed: tightest?.assumed === true,
    ...about,
  })
  if (views.some((view) => minItems > view.limitItems)) return { kind: 'never', limitItems }
  if (nowMs < state.blockedUntilMs) return wait(state.blockedUntilMs, { spentItems: limitItems })
  if (calls.length >= maxInFlight) return wait(null)
  const learning = mustLearn(state, nowMs)
  if (learning && calls.some((call) => call.sentMs > nowMs - learningMs)) return wait(null)
  const mostItems = learning ? minItems : wantItems
  const roomsItems = views.map((view) => roomOf(view, nowMs, windowMs))
  const blocking = views.filter((_, index) => Number(roomsItems[index]) < minItems)
  const [first] = blocking
  if (first !== undefined) {
    // Waking for single items would make a call of each: an eighth of the window is worth one, or
    // what is asked for.
    const enoughItems = Math.min(mostItems, Math.max(minItems, Math.floor(limitItems / 8)))
    const times = blocking.map((view) =>
      fitsAtMs(view, enoughItems, nowMs, windowMs, knownEndMs(view, state)),
    )
    return wait(times.includes(null) ? null : Math.max(...times.map(Number)), {
      limitItems: first.limitItems,
      spentItems: first.upperItems,
      assumed: first.assumed,
    })
  }
  const items = Math.min(mostItems, ...roomsItems)
  return { kind: 'granted', items, state: charged(state, id, items, nowMs) }
}

function charged(state: BudgetState, id: string, items: number, nowMs: number): BudgetState {
  return {
    ...state,
    views: state.views.map((view) => {
      // A window that nobody tells of is taken to be opened by our first call in it.
      const opens = view.assumed && view.endsByMs === null && view.upperItems === 0
      return {
        ...view,
        upperItems: view.upperItems + items,
        endsAfterMs: opens ? nowMs + state.windowMs : view.endsAfterMs,
      }
    }),
    calls: [...state.calls, callOf(state, id, items, nowMs)],
    grantedItems: state.grantedItems + items,
    writtenMs: nowMs,
  }
}

const callOf = (state: BudgetState, id: string, items: number, nowMs: number): CallInFlight => ({
  id,
  items,
  sentMs: nowMs,
  expiresMs: nowMs + flightMs,
  sureItems: state.settledItems,
})

/** Whether the next call is to be a small one, alone: see `reserve`. */
function mustLearn({ views, windowMs, answeredMs, waryMs }: BudgetState, nowMs: number): boolean {
  if (views.length === 0 || nowMs - answeredMs > 1.25 * windowMs) return true
  const isWary = nowMs - waryMs < 2 * windowMs
  return views.some((view) => view.endsByMs === null && (isWary || view.foreignBeforeItems > 0))
}

/** A call turns out to need fewer items, or leaves only now; 0: it never left. */
export function resizeCall(
  given: BudgetState,
  id: string,
  items: number,
  nowMs: number,
): BudgetState {
  const state = stateAt(given, nowMs)
  const call = state.calls.find((one) => one.id === id)
  // An expired one has been counted as spent.
  if (call === undefined || items > call.items) return state
  const freed = call.items - items
  return {
    ...state,
    views: state.views.map((view) => ({
      ...view,
      upperItems: Math.max(view.seenItems, view.upperItems - freed),
    })),
    calls: state.calls
      .map((one) => (one === call ? callOf(state, id, items, nowMs) : one))
      .filter((one) => one.items > 0),
    grantedItems: state.grantedItems - freed,
    writtenMs: nowMs,
  }
}

/** Items of calls together. */
export const itemsInFlight = (calls: readonly CallInFlight[]): number =>
  calls.reduce((sum, call) => sum + call.items, 0)

/** The window with the least left. */
export const tightestOf = (views: readonly WindowView[]): WindowView | undefined =>
  [...views].sort((a, b) => a.limitItems - a.upperItems - (b.limitItems - b.upperItems))[0]

/** A call as its windows see its end. */
export const seenOf = (state: BudgetState, call: CallInFlight, receivedMs: number): CallSeen => ({
  items: call.items,
  sentMs: call.sentMs,
  receivedMs,
  beyondItems: Math.max(0, state.grantedItems - call.items - call.sureItems),
  windowMs: state.windowMs,
})
