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

export type BatchPlan = ReturnType<typeof planBatch>

/**
 * What a batch costs and when its calls can go. Fills windows in the order of `batch submit
 * --wait`: group by group context and submission, the polling pass last. Calls are split at a
 * window's end, so that no item of a window is left (§8 rule 5: splitting costs nothing).
 */
export function planBatch(
  { contextItems, submitItems, statusItems }: BatchCost,
  {
    roomItems,
    endsInMs,
    limitItems,
    windowMs,
  }: Pick<BudgetView, 'limitItems' | 'windowMs' | 'roomItems' | 'endsInMs'>,
) {
  const groups: [PlannedCall, number][] = []
  for (let at = 0; at < submitItems; at += limits.batchItems) {
    const group = Math.min(submitItems - at, limits.batchItems)
    groups.push(['context', Math.max(0, Math.min(contextItems - at, group))], ['submit', group])
  }
  groups.push(['status', statusItems])

  /** HTTP calls, of at most 100 items each, by when they go. */
  const windows = new Map<number, { readonly call: PlannedCall; readonly items: number }[]>()
  let [atMs, room] = [0, roomItems]
  for (const [call, wanted] of groups)
    for (let left = wanted; left > 0; ) {
      if (room === 0)
        [atMs, room] = [atMs === 0 ? endsInMs || windowMs : atMs + windowMs, limitItems]
      const items = Math.min(left, room, limits.batchItems)
      const within = windows.get(atMs) ?? []
      windows.set(atMs, within)
      within.push({ call, items })
      room -= items
      left -= items
    }
  const calls = (['context', 'submit', 'status'] as const).flatMap((call) => {
    const own = [...windows.values()].flatMap((sent, at) =>
      sent.flatMap((one) => (one.call === call ? [{ items: one.items, window: at + 1 }] : [])),
    )
    const [first, last] = [own[0], own.at(-1)]
    if (first === undefined || last === undefined) return []
    const items = own.reduce((sum, one) => sum + one.items, 0)
    /** Windows are counted from 1. */
    return { call, items, calls: own.length, firstWindow: first.window, lastWindow: last.window }
  })
  const secondsOf = (startMs: number) => Math.ceil(startMs / 1_000)
  return {
    items: calls.reduce((sum, { items }) => sum + items, 0),
    seconds: secondsOf(windows.size === 0 ? 0 : atMs),
    calls,
    /** `startsSeconds`: from now until its calls go. */
    windows: [...windows].map(([startMs, sent]) => {
      const items = { context: 0, submit: 0, status: 0 }
      for (const one of sent) items[one.call] += one.items
      return { startsSeconds: secondsOf(startMs), items }
    }),
  }
}
