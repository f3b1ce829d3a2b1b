/** What the budget means for work that is planned (§8; contract §6 `plan`). Pure. */
import { limits } from '../../protocol/words.js'
import {
  type BudgetDefaults,
  type BudgetState,
  defaultBudget,
  itemsInFlight,
  knownEndMs,
  stateAt,
  tightestOf,
} from './model.js'
import { roomOf } from './window.js'

/** What is known now, for people and for `plan`. */
export interface BudgetView extends BudgetDefaults {
  /** `false`: the documented default, because no response reported a limit lately. */
  readonly learnt: boolean
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
  const { views, windowMs } = state
  const tightest = tightestOf(views)
  if (tightest === undefined)
    return {
      learnt: false,
      ...defaults,
      spentItems: itemsInFlight(state.calls),
      roomItems: defaults.limitItems,
      endsInMs: 0,
    }
  const endMs = Math.max(...views.map((view) => knownEndMs(view, state) ?? nowMs + windowMs))
  return {
    learnt: !tightest.assumed,
    limitItems: Math.min(...views.map((view) => view.limitItems)),
    windowMs,
    spentItems: tightest.upperItems,
    roomItems: Math.max(0, Math.min(...views.map((view) => roomOf(view, nowMs, windowMs)))),
    endsInMs: tightest.upperItems === 0 ? 0 : Math.max(0, endMs - nowMs),
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

/** What the items of a batch are spent on. */
export type PlannedCall = 'context' | 'submit' | 'status'

export interface BatchCost {
  /** Rows to be signed whose context the gateway is asked for. */
  readonly contextItems: number
  readonly submitItems: number
  /** One polling pass; 0 where nobody waits. */
  readonly statusItems: number
}

export interface WindowPlan {
  /** From now until its calls go. */
  readonly startsSeconds: number
  readonly items: Readonly<Record<PlannedCall, number>>
}

export interface CallPlan {
  readonly call: PlannedCall
  readonly items: number
  /** HTTP calls, of at most 100 items each. */
  readonly calls: number
  /** Counted from 1. */
  readonly firstWindow: number
  readonly lastWindow: number
}

export interface BatchPlan {
  readonly items: number
  readonly seconds: number
  readonly calls: readonly CallPlan[]
  readonly windows: readonly WindowPlan[]
}

/**
 * What a batch costs and when its calls can go. Fills windows in the order of `batch submit
 * --wait`: group by group context and submission, the polling pass last. Calls are split at a
 * window's end, so that no item of a window is left (§8 rule 5: splitting costs nothing).
 */
export function planBatch(
  cost: BatchCost,
  budget: Pick<BudgetView, 'limitItems' | 'windowMs' | 'roomItems' | 'endsInMs'>,
): BatchPlan {
  const windows: { startsSeconds: number; items: Record<PlannedCall, number> }[] = []
  const calls = new Map<PlannedCall, CallPlan>()
  let room = budget.roomItems
  let startsMs = 0

  const spend = (call: PlannedCall, wanted: number) => {
    for (let left = wanted; left > 0; ) {
      if (room === 0) {
        const isFirst = startsMs === 0 && budget.endsInMs > 0
        startsMs = isFirst ? budget.endsInMs : startsMs + budget.windowMs
        room = budget.limitItems
      }
      const items = Math.min(left, room, limits.batchItems)
      room -= items
      left -= items
      const startsSeconds = Math.ceil(startsMs / 1_000)
      let window = windows.at(-1)
      if (window?.startsSeconds !== startsSeconds) {
        window = { startsSeconds, items: { context: 0, submit: 0, status: 0 } }
        windows.push(window)
      }
      window.items[call] += items
      const before = calls.get(call) ?? { items: 0, calls: 0, firstWindow: windows.length }
      calls.set(call, {
        call,
        items: before.items + items,
        calls: before.calls + 1,
        firstWindow: before.firstWindow,
        lastWindow: windows.length,
      })
    }
  }

  let [contextLeft, submitLeft] = [cost.contextItems, cost.submitItems]
  while (submitLeft > 0) {
    const group = Math.min(submitLeft, limits.batchItems)
    const contexts = Math.min(contextLeft, group)
    spend('context', contexts)
    spend('submit', group)
    contextLeft -= contexts
    submitLeft -= group
  }
  spend('status', cost.statusItems)
  return {
    items: cost.contextItems + cost.submitItems + cost.statusItems,
    seconds: windows.at(-1)?.startsSeconds ?? 0,
    calls: [...calls.values()],
    windows,
  }
}
