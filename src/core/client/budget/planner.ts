/**
 * Spends the budget that all processes of this machine share at one gateway (§8). Whoever wants to
 * send asks here first, waits until it fits, and says afterwards what the response reported.
 */
import { UnavailableError, UsageError } from '../../protocol/errors.js'
import { type BudgetView, type Forecast, forecast, viewOf } from './forecast.js'
import {
  type BudgetDecision,
  type BudgetDefaults,
  defaultBudget,
  reserve,
  resizeCall,
} from './model.js'
import { type CallResult, settleCall } from './settlement.js'
import { type BudgetPorts, openBudgetStore } from './store.js'

export interface ReserveOptions {
  /** Fewer items will do; default: all of them. */
  readonly min?: number
  readonly signal?: AbortSignal | undefined
  /** Gives up at once where the wait would be longer: UnavailableError `budget_spent` (75). */
  readonly timeoutMs?: number | undefined
}

/** Items of one call that is about to be sent. Exactly one of `settle` and `release` ends it. */
export interface Reservation {
  readonly granted: number
  /** What became of the call. */
  settle(result: CallResult): Promise<void>
  /** The call leaves only now, with this many items. `false`: its reservation has expired. */
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
  /** Taken until the gateway has reported its own. */
  readonly defaults?: BudgetDefaults
  /** Called when a wait begins that is expected to last `ms`: the budget as words. */
  readonly onWait?: (ms: number, reason: string) => void
  /** Called once of each fault of the shared state. */
  readonly onNote?: (text: string) => void
}

/** Whether another call was answered is looked up soon at first, then less often. */
const [firstPollMs, longestPollMs] = [20, 250]
/** A long wait looks up this often: a reservation may have been released. */
const longestSleepMs = 5_000
/** Shorter waits are not worth a note. */
const notedMs = 1_000

/** The planner of one gateway's origin; `local:` origins charge nothing (contract §6). */
export function createPlanner(
  ports: BudgetPorts,
  home: string,
  origin: string,
  options: PlannerOptions = {},
): Planner {
  return origin.startsWith('local:') ? freePlanner : sharedPlanner(ports, home, origin, options)
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
  ports: BudgetPorts,
  home: string,
  origin: string,
  options: PlannerOptions,
): Planner {
  const { clock, random } = ports
  const { defaults = defaultBudget, onWait } = options
  const store = openBudgetStore(ports, home, origin, options)
  const snapshot = async () => viewOf(await store.read(), clock.nowMs(), defaults)

  /** What the last 429 said: of a gateway that tells no limit nobody knows better. */
  let told: string | undefined

  function reservation(id: string, granted: number): Reservation {
    const resize = (items: number) =>
      store.update((before, nowMs) => {
        const state = resizeCall(before, id, items, nowMs)
        return { state, result: state.calls.some((call) => call.id === id) }
      })
    return {
      granted,
      resize,
      release: async () => void (await resize(0)),
      settle: (result) => {
        if (result.refused) told = result.detail
        return store.update((before, nowMs) => {
          const jitter = (random.bytes(1)[0] ?? 0) / 256
          const state = settleCall(before, id, result, nowMs, jitter, defaults)
          return { state, result: undefined }
        })
      },
    }
  }

  return {
    snapshot,
    forecast: async (items) => forecast(await snapshot(), items),
    async reserve(items, { min = items, signal, timeoutMs = Number.POSITIVE_INFINITY } = {}) {
      const id = random.uuid()
      const ask = { id, wantItems: items, minItems: Math.max(1, Math.min(min, items)) }
      const giveUpMs = clock.monotonicMs() + timeoutMs
      let pollMs = firstPollMs
      let notedUntilMs = 0
      for (;;) {
        const { decision, nowMs } = await store.update((before, nowMs) => {
          const decision = reserve(before, ask, nowMs, defaults)
          const state = decision.kind === 'granted' ? decision.state : before
          return { state, result: { decision, nowMs } }
        })
        if (decision.kind === 'granted') return reservation(id, decision.items)
        if (decision.kind === 'never') throw overBudget(ask.minItems, decision.limitItems)
        // A stop ends waiting; what need not wait is the call's own to stop.
        signal?.throwIfAborted()
        const { untilMs } = decision
        const waitMs = untilMs === null ? pollMs : untilMs - nowMs
        if (clock.monotonicMs() + waitMs > giveUpMs) throw budgetSpent(decision, waitMs)
        if (untilMs !== null && waitMs > notedMs && Math.abs(untilMs - notedUntilMs) > notedMs) {
          notedUntilMs = untilMs
          onWait?.(waitMs, reasonOf(decision, told))
        }
        pollMs = untilMs === null ? Math.min(longestPollMs, pollMs * 1.5) : firstPollMs
        await clock.sleep(Math.max(1, Math.min(waitMs, longestSleepMs)), signal)
      }
    },
  }
}

function reasonOf(
  decision: Extract<BudgetDecision, { kind: 'wait' }>,
  told?: string | undefined,
): string {
  const { limitItems, windowMs, spentItems, assumed } = decision
  if (assumed && told !== undefined) return told
  if (assumed)
    return `the gateway tells no limit; ${limitItems} items in ${windowMs / 1_000} s are tried`
  return `${limitItems} items per ${windowMs / 1_000} s, ${Math.min(spentItems, limitItems)} spent`
}

const overBudget = (items: number, limitItems: number) =>
  new UsageError(
    'batch_over_budget',
    `a call of ${items} items never fits the gateway's rate limit of ${limitItems} in a window`,
    { hint: `send at most ${limitItems} items in one call` },
  )

function budgetSpent(
  decision: Extract<BudgetDecision, { kind: 'wait' }>,
  waitMs: number,
): UnavailableError {
  const seconds = Math.max(1, Math.ceil(waitMs / 1_000))
  // Without an instant the wait is for a response, not for the window.
  const detail =
    decision.untilMs === null
      ? `rate limit unknown until a request in flight is answered (${reasonOf(decision)})`
      : `rate limit reached (${reasonOf(decision)}); next request in ${seconds} seconds`
  return new UnavailableError('budget_spent', detail, {
    retryAfterMs: seconds * 1_000,
    hint: 'retry then, or raise --timeout',
  })
}
