/** What planned work costs (§8; contract §6 `plan`). Pure. */
import { limits } from '#protocol/words'
import type { BudgetView } from './window.js'

interface BatchCost {
  /** Rows to be signed whose context the gateway is asked for. */
  readonly contextItems: number
  readonly submitItems: number
  /** One polling pass; 0 where nobody waits. */
  readonly statusItems: number
}

type PlannedCall = 'context' | 'submit' | 'status'

export type BatchPlan = ReturnType<typeof planBatch>

/**
 * In the order of `batch submit --wait`: context and submission by groups, then the polling pass.
 * Calls are split at a window's end (§8 rule 5).
 */
export function planBatch(
  { contextItems, submitItems, statusItems }: BatchCost,
  { roomItems, endsInMs, limitItems, windowMs }: Omit<BudgetView, 'learnt' | 'spentItems'>,
) {
  const groups: [PlannedCall, number][] = []
  for (let at = 0; at < submitItems; at += limits.batchItems) {
    const group = Math.min(submitItems - at, limits.batchItems)
    groups.push(['context', Math.max(0, Math.min(contextItems - at, group))], ['submit', group])
  }
  groups.push(['status', statusItems])

  const startsMs: number[] = []
  const sent: { readonly call: PlannedCall; readonly items: number; readonly window: number }[] = []
  let [atMs, room] = [0, roomItems]
  for (const [call, wanted] of groups)
    for (let left = wanted; left > 0; ) {
      if (room === 0)
        [atMs, room] = [atMs === 0 ? endsInMs || windowMs : atMs + windowMs, limitItems]
      if (startsMs.at(-1) !== atMs) startsMs.push(atMs)
      const items = Math.min(left, room, limits.batchItems)
      sent.push({ call, items, window: startsMs.length })
      room -= items
      left -= items
    }

  const sumOf = (some: typeof sent) => some.reduce((sum, { items }) => sum + items, 0)
  const secondsOf = (ms: number) => Math.ceil(ms / 1_000)
  return {
    items: sumOf(sent),
    seconds: secondsOf(startsMs.at(-1) ?? 0),
    calls: (['context', 'submit', 'status'] as const).flatMap((call) => {
      const own = sent.filter((one) => one.call === call)
      const [first, last] = [own[0], own.at(-1)]
      if (first === undefined || last === undefined) return []
      const windows = { firstWindow: first.window, lastWindow: last.window }
      return { call, items: sumOf(own), calls: own.length, ...windows }
    }),
    windows: startsMs.map((startMs, at) => {
      const items = { context: 0, submit: 0, status: 0 }
      for (const one of sent) if (one.window === at + 1) items[one.call] += one.items
      return { startsSeconds: secondsOf(startMs), items }
    }),
  }
}
