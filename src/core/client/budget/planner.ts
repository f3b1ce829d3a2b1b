/**
 * Spends the budget that all processes of this machine share at one gateway (§8): whoever wants to
 * send asks here first, waits until it fits, and tells afterwards what the answer said.
 */
import { UnavailableError, UsageError } from '../../protocol/errors.js'
import { type BudgetView, type Forecast, forecast, viewOf } from './forecast.js'
import {
  type BudgetDefaults,
  defaultBudget,
  type Outcome,
  release,
  reserve,
  resize,
  settle,
} from './model.js'
import { type BudgetPorts, type BudgetStore, openBudgetStore } from './store.js'

export interface ReserveOptions {
  /** Fewer items will do; default: all of them. */
  readonly min?: number
  readonly signal?: AbortSignal
  /** Gives up at once where the wait would be longer: UnavailableError `budget_spent` (exit 75). */
  readonly timeoutMs?: number
}

/**
 * Items of one call that is about to be sent. Exactly one of `settle` and `release` ends it; a
 * crashed process's ends by itself.
 */
export interface Reservation {
  readonly granted: number
  /** What became of the call. */
  settle(outcome: Outcome): Promise<void>
  /**
   * The call leaves only now, with this many of the items. `false`: it was kept for so long that it
   * holds nothing any more.
   */
  resize(items: number): Promise<boolean>
  /** It never left. */
  release(): Promise<void>
}

export interface Planner {
  /**
   * Waits until between `min` and `items` fit. UsageError `batch_over_budget` where `min` never
   * will; the signal's reason where it fires during a wait.
   */
  reserve(items: number, options?: ReserveOptions): Promise<Reservation>
  snapshot(): Promise<BudgetView>
  /** Windows and seconds that further items take from now. */
  forecast(items: number): Promise<Forecast>
}

export interface PlannerOptions {
  /** Taken until the gateway has told its own. */
  readonly defaults?: BudgetDefaults
  /** Told when a wait begins that is expected to last `ms`: the budget as words. */
  readonly onWait?: (ms: number, reason: string) => void
  /** Told once of each fault of the shared state. */
  readonly onNote?: (text: string) => void
}

/** Asking whether another call's answer has come: soon at first, then less often. */
const [firstPollMs, longestPollMs] = [20, 250]
/**
 * A long wait looks up this often: the gateway may have been started anew, or a reservation let go.
 */
const longestSleepMs = 5_000
/** Shorter waits are not worth telling. */
const toldMs = 1_000

/**
 * The planner of one gateway's origin; `local:` origins charge nothing (contract §6), so everything
 * is granted at once.
 */
export function createPlanner(
  ports: BudgetPorts,
  home: string,
  origin: string,
  options: PlannerOptions = {},
): Planner {
  return origin.startsWith('local:')
    ? freePlanner
    : sharedPlanner(ports, openBudgetStore(ports, home, origin, options), options)
}

const nothing = async () => undefined
const freePlanner: Planner = {
  reserve: async (granted) => ({
    granted,
    settle: nothing,
    resize: async () => true,
    release: nothing,
  }),
  snapshot: async () => ({
    learnt: false,
    ...defaultBudget,
    spentItems: 0,
    roomItems: Number.MAX_SAFE_INTEGER,
    endsInMs: 0,
  }),
  forecast: async (items) => ({ windows: items > 0 ? 1 : 0, seconds: 0 }),
}

function sharedPlanner(
  { clock, random }: BudgetPorts,
  store: BudgetStore,
  options: PlannerOptions,
): Planner {
  const { defaults = defaultBudget } = options
  const jitter = () => (random.bytes(1)[0] ?? 0) / 256
  const snapshot = async () => viewOf(await store.read(), clock.nowMs(), defaults)

  const reservation = (id: string, granted: number): Reservation => ({
    granted,
    settle: (outcome) =>
      store.update((state, nowMs) => ({
        state: settle(state, id, outcome, nowMs, jitter(), defaults),
        result: undefined,
      })),
    resize: (items) =>
      store.update((state, nowMs) => {
        const resized = resize(state, id, items, nowMs)
        return { state: resized, result: resized.calls.some((call) => call.id === id) }
      }),
    release: () =>
      store.update((state, nowMs) => ({ state: release(state, id, nowMs), result: undefined })),
  })

  return {
    snapshot,
    forecast: async (items) => forecast(await snapshot(), items),
    async reserve(items, { min = items, signal, timeoutMs = Number.POSITIVE_INFINITY } = {}) {
      const id = random.uuid()
      const ask = { id, wantItems: items, minItems: Math.max(1, Math.min(min, items)) }
      const giveUpMs = clock.monotonicMs() + timeoutMs
      let pollMs = firstPollMs
      let toldUntilMs = 0
      for (;;) {
        const { decision, nowMs } = await store.update((state, nowMs) => {
          const decision = reserve(state, ask, nowMs, defaults)
          return {
            state: decision.kind === 'granted' ? decision.state : state,
            result: { decision, nowMs },
          }
        })
        if (decision.kind === 'granted') return reservation(id, decision.items)
        if (decision.kind === 'never') throw overBudget(ask.minItems, decision.limitItems)
        // A stop ends waiting; what need not wait is the call's own to stop.
        signal?.throwIfAborted()
        const { limitItems, windowMs } = decision
        const reason = `${limitItems} items per ${windowMs / 1_000} s, ${Math.min(decision.spentItems, limitItems)} spent`
        const waitMs = decision.untilMs === null ? pollMs : decision.untilMs - nowMs
        if (clock.monotonicMs() + waitMs > giveUpMs) throw spent(reason, waitMs)
        if (
          decision.untilMs !== null &&
          waitMs > toldMs &&
          Math.abs(decision.untilMs - toldUntilMs) > toldMs
        ) {
          toldUntilMs = decision.untilMs
          options.onWait?.(waitMs, reason)
        }
        pollMs = decision.untilMs === null ? Math.min(longestPollMs, pollMs * 1.5) : firstPollMs
        await clock.sleep(Math.max(1, Math.min(waitMs, longestSleepMs)), signal)
      }
    },
  }
}

function overBudget(items: number, limitItems: number): UsageError {
  return new UsageError(
    'batch_over_budget',
    `a call of ${items} items never fits the gateway's budget of ${limitItems} in a window`,
    {
      hint: `send at most ${limitItems} items in one call`,
    },
  )
}

function spent(reason: string, waitMs: number): UnavailableError {
  const seconds = Math.max(1, Math.ceil(waitMs / 1_000))
  return new UnavailableError(
    'budget_spent',
    `the gateway's budget is spent (${reason}); it has room again in ${seconds} seconds`,
    {
      retryAfterMs: seconds * 1_000,
      hint: 'run the same command again then, or give it longer with --timeout',
    },
  )
}
