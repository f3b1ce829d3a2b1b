/**
 * What a batch costs and when its calls can go, before anything is sent (§8; contract §6 `plan`).
 * Pure.
 */
import { limits } from '../../protocol/schema.js'
import type { BudgetView } from './forecast.js'

/** What the items of a batch are spent on. */
export type PlannedCall = 'context' | 'submit' | 'status'

export interface BatchCost {
  /**
   * Rows to be signed whose context the gateway is asked for; 0 where a chain or a file gives it.
   */
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
 * Fills windows in the order of `batch submit --wait`: group by group context and submission, the
 * polling pass last. Calls are split at a window's end, so that no item of a window is left (§8
 * rule 5: splitting costs nothing).
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
        startsMs =
          startsMs === 0 && budget.endsInMs > 0 ? budget.endsInMs : startsMs + budget.windowMs
        room = budget.limitItems
      }
      const items = Math.min(left, room, limits.batchItems)
      room -= items
      left -= items
      const startsSeconds = Math.ceil(startsMs / 1_000)
      if (windows.at(-1)?.startsSeconds !== startsSeconds)
        windows.push({ startsSeconds, items: { context: 0, submit: 0, status: 0 } })
      const window = windows.at(-1)
      if (window !== undefined) window.items[call] += items
      const before = calls.get(call)
      calls.set(call, {
        call,
        items: (before?.items ?? 0) + items,
        calls: (before?.calls ?? 0) + 1,
        firstWindow: before?.firstWindow ?? windows.length,
        lastWindow: windows.length,
      })
    }
  }

  let [contextLeft, submitLeft] = [cost.contextItems, cost.submitItems]
  while (submitLeft > 0) {
    const group = Math.min(submitLeft, limits.batchItems)
    const asked = Math.min(contextLeft, group)
    spend('context', asked)
    spend('submit', group)
    contextLeft -= asked
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
