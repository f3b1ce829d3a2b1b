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

  /** HTTP calls, of at most 100 items each. */
  const sent: { readonly call: PlannedCall; readonly items: number; readonly atMs: number }[] = []
  let [atMs, room] = [0, roomItems]
  for (const [call, wanted] of groups)
    for (let left = wanted; left > 0; ) {
      if (room === 0)
        [atMs, room] = [atMs === 0 ? endsInMs || windowMs : atMs + windowMs, limitItems]
      const items = Math.min(left, room, limits.batchItems)
      sent.push({ call, items, atMs })
      room -= items
      left -= items
    }
  const starts = [...new Set(sent.map((one) => one.atMs))]
  const sum = (some: typeof sent) => some.reduce((items, one) => items + one.items, 0)
  return {
    items: sum(sent),
    seconds: Math.ceil((starts.at(-1) ?? 0) / 1_000),
    calls: [...new Set(sent.map(({ call }) => call))].map((call) => {
      const own = sent.filter((one) => one.call === call)
      /** Counted from 1. */
      const windowOf = (one: (typeof sent)[number] | undefined) =>
        starts.indexOf(one?.atMs ?? 0) + 1
      const [firstWindow, lastWindow] = [windowOf(own[0]), windowOf(own.at(-1))]
      return { call, items: sum(own), calls: own.length, firstWindow, lastWindow }
    }),
    /** `startsSeconds`: from now until its calls go. */
    windows: starts.map((startMs) => {
      const within = sent.filter((one) => one.atMs === startMs)
      const of = (call: PlannedCall) => sum(within.filter((one) => one.call === call))
      const items = { context: of('context'), submit: of('submit'), status: of('status') }
      return { startsSeconds: Math.ceil(startMs / 1_000), items }
    }),
  }
}
