/** What the budget means for work that lies ahead (§8): for people, and for `plan`. */
import {
  type BudgetDefaults,
  type BudgetState,
  defaultBudget,
  itemsOf,
  knownEndMs,
  stateAt,
  tightestOf,
} from './model.js'
import { roomOf } from './window.js'

/** What is known now, for people and for `plan`. */
export interface BudgetView {
  /** `false`: the documented default, because no answer told a limit lately. */
  readonly learnt: boolean
  readonly limitItems: number
  readonly windowMs: number
  /** At most so much of the current window is spent. */
  readonly spentItems: number
  /** Items that may be sent at once. */
  readonly roomItems: number
  /** When the current window is over for sure, from now; 0 where none is open. */
  readonly endsInMs: number
}

/** The tightest window as of now. */
export function viewOf(
  given: BudgetState,
  nowMs: number,
  defaults: BudgetDefaults = defaultBudget,
): BudgetView {
  const state = stateAt(given, nowMs)
  const tightest = tightestOf(state.views)
  if (tightest === undefined) {
    return {
      learnt: false,
      ...defaults,
      spentItems: itemsOf(state.calls),
      roomItems: defaults.limitItems,
      endsInMs: 0,
    }
  }
  const rooms = state.views.map((view) => roomOf(view, nowMs, state.windowMs))
  const endMs = Math.max(
    0,
    ...state.views.map((view) => knownEndMs(view, state) ?? nowMs + state.windowMs),
  )
  const idle = tightest.upperItems === 0
  return {
    learnt: !tightest.assumed,
    limitItems: Math.min(...state.views.map((view) => view.limitItems)),
    windowMs: state.windowMs,
    spentItems: tightest.upperItems,
    roomItems: Math.max(0, Math.min(...rooms)),
    endsInMs: idle ? 0 : Math.max(0, endMs - nowMs),
  }
}

export interface Forecast {
  readonly windows: number
  /** From now until the last call may be sent. */
  readonly seconds: number
}

/** Windows and time that `items` take: what is left of this window first, then whole ones (§8). */
export function forecast(view: BudgetView, items: number): Forecast {
  if (items <= 0) return { windows: 0, seconds: 0 }
  const nowItems = Math.min(items, view.roomItems)
  const later = Math.ceil((items - nowItems) / view.limitItems)
  const windows = (nowItems > 0 ? 1 : 0) + later
  if (later === 0) return { windows, seconds: 0 }
  const firstMs = view.endsInMs > 0 ? view.endsInMs : view.windowMs
  return { windows, seconds: Math.ceil((firstMs + (later - 1) * view.windowMs) / 1_000) }
}
