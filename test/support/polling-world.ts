/**
 * A plan at work on candidates that end when they end, behind the gateway's real budget, in
 * simulated time.
 */
import {
  afterResponse,
  newSchedule,
  nextStep,
  type ScheduleOptions,
  type Sight,
  withRateLimit,
} from '../../src/core/client/follow/schedule.js'
import { createBudget } from '../../src/core/gateway/front/budget.js'

export interface Life {
  /**
   * Age at the start of the polling; `undefined`: not known to the plan, and `trueAgeMs` counts.
   */
  readonly ageMs: number | undefined
  readonly trueAgeMs?: number
  /** From admission to its end; `Infinity`: never. */
  readonly lifeMs: number
  readonly fails?: boolean
}

export interface Simulated {
  /** Items asked for. */
  readonly items: number
  readonly calls: number
  readonly endMs: number
  /** Looks at each candidate, as times. */
  readonly looks: readonly (readonly number[])[]
  /** When each was seen to have ended. */
  readonly seenMs: readonly (number | undefined)[]
  /** Calls that the budget refused. */
  readonly refused: number
  /** Items by start of the window they were charged in. */
  readonly windows: ReadonlyMap<number, number>
}

export interface SimulationOptions extends Partial<ScheduleOptions> {
  readonly limitItems?: number
  readonly windowMs?: number
  readonly latencyMs?: number
  /** Stops here although candidates are on their way. */
  readonly untilMs?: number
  /** A gateway that tells no window. */
  readonly isSilent?: boolean
}

/** Polls to the end, or to `untilMs`. */
export function simulate(lives: readonly Life[], options: SimulationOptions = {}): Simulated {
  const {
    limitItems = 120,
    windowMs = 60_000,
    latencyMs = 20,
    untilMs = Number.POSITIVE_INFINITY,
    isSilent = false,
  } = options
  const server = createBudget({ windowMs, perClientItems: limitItems, globalItems: 1_000_000 })
  const startMs = 5_000_000
  let nowMs = startMs
  let plan = newSchedule(
    lives.map(({ ageMs }) => ageMs),
    nowMs,
    { guessMs: 4_000, ...options },
  )
  const looks: number[][] = lives.map(() => [])
  const seenMs: (number | undefined)[] = lives.map(() => undefined)
  const windows = new Map<number, number>()
  let [items, calls, refused] = [0, 0, 0]
  for (let turns = 0; ; turns++) {
    if (turns > 100_000) throw new Error('it never ends')
    const step = nextStep(plan, nowMs)
    if (step.kind === 'done' || nowMs - startMs >= untilMs) {
      return { items, calls, refused, looks, seenMs, windows, endMs: nowMs - startMs }
    }
    if (step.kind === 'wait') {
      if (step.untilMs <= nowMs) throw new Error(`a wait until ${step.untilMs} at ${nowMs}`)
      nowMs = step.untilMs
      continue
    }
    if (step.at.length === 0) throw new Error('a look at nobody')
    const charged = server.charge('us', step.at.length, nowMs)
    calls++
    items += step.at.length
    const window = {
      limit: charged.limitItems,
      remaining: charged.remainingItems,
      resetSeconds: charged.resetSeconds,
    }
    if (!charged.admitted) {
      refused++
      // A refusal tells the window too; from a silent gateway the planner below learns what it
      // holds.
      plan = withRateLimit(plan, window, nowMs)
      nowMs += (charged.retryAfterSeconds ?? 1) * 1_000
      continue
    }
    const windowStartMs = nowMs + charged.resetSeconds * 1_000
    windows.set(windowStartMs, (windows.get(windowStartMs) ?? 0) + step.at.length)
    const atMs = nowMs
    const sights = step.at.map((at): Sight => {
      looks[at]?.push(atMs - startMs)
      const {
        ageMs,
        trueAgeMs = ageMs ?? 0,
        lifeMs,
        fails = false,
      } = lives[at] ?? { ageMs: 0, lifeMs: 0 }
      const done = atMs - startMs + trueAgeMs >= lifeMs
      if (done) seenMs[at] = atMs - startMs
      return {
        at,
        done,
        reached: done && !fails,
        moved: done,
        ...(done && !fails ? { lifeMs } : {}),
      }
    })
    nowMs += latencyMs
    if (!isSilent) plan = withRateLimit(plan, window, nowMs)
    plan = afterResponse(plan, sights, nowMs)
  }
}
