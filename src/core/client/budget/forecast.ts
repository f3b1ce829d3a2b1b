/** What planned work costs (§8; contract §6 `plan`). Pure. */
import { limits } from '#protocol/words'
import type { BudgetView } from './window.js'

type PlannedCall = 'context' | 'submit' | 'status'

interface BatchCost {
  /** Rows to be signed whose context the gateway is asked for. */
  readonly contextItems: number
  readonly submitItems: number
  /** One polling pass; 0 where nobody waits. */
  readonly statusItems: number
}

interface CallPlan {
  readonly call: PlannedCall
  readonly items: number
  /** HTTP calls, of at most 100 items each. */
  readonly calls: number
  /** Counted from 1. */
  readonly firstWindow: number
  readonly lastWindow: number
}

export type BatchPlan = ReturnType<typeof planBatch>

/**
 * What a batch costs and when its calls can go. Fills windows in the order of `batch submit
 * --wait`: group by group context and submission, the polling pass last. Calls are split at a
 * window's end, so that no item of a window is left (§8 rule 5: splitting costs nothing).
 */
export function planBatch(
  cost: BatchCost,
  budget: Pick<BudgetView, 'limitItems' | 'windowMs' | 'roomItems' | 'endsInMs'>,
) {
  /** `startsSeconds`: from now until its calls go. */
  const windows: { readonly startsSeconds: number; readonly items: Record<PlannedCall, number> }[] =
    []
  const calls = new Map<PlannedCall, CallPlan>()
  const firstMs = budget.endsInMs > 0 ? budget.endsInMs : budget.windowMs
  let room = budget.roomItems
  let startsMs = 0

  const spend = (call: PlannedCall, wanted: number) => {
    for (let left = wanted; left > 0; ) {
      if (room === 0) {
        startsMs = startsMs === 0 ? firstMs : startsMs + budget.windowMs
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
