/**
 * Spends the budget that all processes of this machine share at one gateway (§8). Whoever wants to
 * send asks here first, waits until it fits, and says afterwards what the response reported.
 */
import { UnavailableError, UsageError } from '#protocol/errors'
import { type BudgetPorts, openChargeLog } from './charge-log.js'
import {
  type BudgetView,
  type CallResult,
  type ChargeLog,
  type Decision,
  decide,
  emptyLog,
  released,
  settled,
  viewOf,
} from './window.js'

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
  settle(result: CallResult): Promise<void>
  /** It never left. */
  release(): Promise<void>
}

export interface Planner {
  /**
   * Waits until between `min` and `items` fit. UsageError `batch_over_budget` where `min` never
   * will; StorageError 74 as `openChargeLog`; the signal's reason where it fires during a wait.
   */
  reserve(items: number, options?: ReserveOptions): Promise<Reservation>
  snapshot(): Promise<BudgetView>
}

export interface PlannerOptions {
  /** Called when a wait begins that is expected to last `ms`: the budget as words. */
  readonly onWait?: (ms: number, reason: string) => void
  /** Called once where the shared log cannot be written. */
  readonly onNote?: (text: string) => void
}

/** Whether another call was answered is looked up so often. */
const pollMs = 100
/** A long wait looks up this often: a reservation may have been released. */
const longestSleepMs = 5_000
/** Shorter waits are not worth a note. */
const notedMs = 1_000

const nothing = async () => undefined
/** `local:` origins charge nothing (contract §6). */
const freePlanner: Planner = {
  reserve: async (granted) => ({
    granted,
    settle: nothing,
    release: nothing,
  }),
  snapshot: async () => ({
    ...viewOf(emptyLog('', 0), 0),
    roomItems: Number.MAX_SAFE_INTEGER,
  }),
}

type Wait = Extract<Decision, { kind: 'wait' }>

/** The planner of one gateway's origin. */
export function createPlanner(
  ports: BudgetPorts,
  home: string,
  origin: string,
  options: PlannerOptions = {},
): Planner {
  if (origin.startsWith('local:')) return freePlanner
  const { clock, random } = ports
  const shared = openChargeLog(ports, home, origin, options.onNote)
  /** What the last 429 said: of a gateway that tells no limit nobody knows better. */
  let refusalText: string | undefined

  const change = (job: (log: ChargeLog, nowMs: number) => ChargeLog) =>
    shared.update((log, nowMs) => ({ log: job(log, nowMs), result: undefined }))

  const reservation = (id: string, granted: number): Reservation => ({
    granted,
    release: () => change((log) => released(log, id)),
    settle(result) {
      if (result.refused) refusalText = result.detail
      const jitter = (random.bytes(1)[0] ?? 0) / 256
      return change((log, nowMs) => settled(log, id, result, nowMs, jitter))
    },
  })

  return {
    snapshot: async () => viewOf(await shared.read(), clock.monotonicMs()),
    async reserve(items, { min = items, signal, timeoutMs = Number.POSITIVE_INFINITY } = {}) {
      const ask = {
        id: random.uuid(),
        wantItems: items,
        minItems: Math.max(1, Math.min(min, items)),
      }
      const giveUpMs = clock.monotonicMs() + timeoutMs
      let notedUntilMs = 0
      for (;;) {
        // Whoever waits only reads, and leaves the lock to those who have an answer.
        const glance = decide(await shared.read(), ask, Math.floor(clock.monotonicMs()))
        const decision =
          glance.kind !== 'granted'
            ? glance
            : await shared.update((log, nowMs) => {
                const result = decide(log, ask, nowMs)
                return { log: result.kind === 'granted' ? result.log : log, result }
              })
        if (decision.kind === 'granted') return reservation(ask.id, decision.items)
        if (decision.kind === 'never') throw overBudget(ask.minItems, decision.limitItems)
        // A stop ends waiting; what need not wait is the call's own to stop.
        signal?.throwIfAborted()
        const nowMs = clock.monotonicMs()
        const { untilMs } = decision
        const waitMs = untilMs === null ? pollMs : untilMs - nowMs
        const reason = () => reasonOf(decision, nowMs, refusalText)
        if (nowMs + waitMs > giveUpMs) throw budgetSpent(decision, waitMs, reason())
        if (untilMs !== null && waitMs > notedMs && Math.abs(untilMs - notedUntilMs) > notedMs) {
          notedUntilMs = untilMs
          options.onWait?.(waitMs, reason())
        }
        await clock.sleep(Math.max(1, Math.min(waitMs, longestSleepMs)), signal)
      }
    },
  }
}

function reasonOf({ about }: Wait, nowMs: number, refusalText: string | undefined) {
  const { limitItems, windowMs, source } = about
  const per = `${limitItems} items`
  if (source === 'assumed')
    return refusalText ?? `the gateway tells no limit; ${per} in ${windowMs / 1_000} s are tried`
  const isBlocked = nowMs < about.blockedUntilMs
  const spent = isBlocked ? limitItems : viewOf(about, nowMs).spentItems
  return `${per} per ${windowMs / 1_000} s, ${spent} spent`
}

const overBudget = (items: number, limitItems: number) =>
  new UsageError(
    'batch_over_budget',
    `a call of ${items} items never fits the gateway's rate limit of ${limitItems} in a window`,
    `send at most ${limitItems} items in one call`,
  )

function budgetSpent({ untilMs }: Wait, waitMs: number, reason: string) {
  const seconds = Math.max(1, Math.ceil(waitMs / 1_000))
  // Without an instant the wait is for a response, not for the window.
  const detail =
    untilMs === null
      ? `rate limit unknown until a request in flight is answered (${reason})`
      : `rate limit reached (${reason}); next request in ${seconds} seconds`
  return new UnavailableError('budget_spent', detail, {
    retryAfterMs: seconds * 1_000,
    hint: 'retry then, or raise --timeout',
  })
}
