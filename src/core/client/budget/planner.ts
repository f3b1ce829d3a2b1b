/**
 * Spends the budget that all processes of this machine share at one gateway (§8; contract §7
 * `budget/`). Whoever wants to send asks here first, waits until it fits, and says afterwards what
 * the response reported.
 */
import pLimit from 'p-limit'
import * as z from 'zod/mini'
import type { Clock, Files, Hash } from '#ports'
import { jsonOf } from '#protocol/capped'
import { StorageError, UnavailableError, UsageError } from '#protocol/errors'
import { ifThere, joinPath, namesIn, removeIfThere, withFile, writeAll } from '#storage/durable'
import { errorCode } from '#storage/failures'
import { holderText, type LockPorts, readHolder, waitForLock } from '#storage/lock'
import {
  type BudgetView,
  type CallResult,
  ChargeLog,
  compacted,
  type Decision,
  decide,
  emptyLog,
  ofThisBoot,
  released,
  settled,
  viewOf,
} from './window.js'

interface BudgetPorts extends LockPorts {
  readonly clock: Clock
  readonly hash: Hash
}

interface ReserveOptions {
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
   * will; StorageError 74 `home_in_use` where an older program is at work; the signal's reason.
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
const pollMs = 50
/** A long wait looks up this often: a reservation may have been released. */
const longestSleepMs = 5_000
/** Shorter waits are not worth a note. */
const notedMs = 1_000

const nothing = async () => undefined
/** `local:` origins charge nothing (contract §6). */
const freePlanner: Planner = {
  reserve: async (granted) => ({ granted, settle: nothing, release: nothing }),
  snapshot: async () => ({ ...viewOf(emptyLog('', 0), 0), roomItems: Number.MAX_SAFE_INTEGER }),
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

  const reservation = (id: string, granted: number): Reservation => ({
    granted,
    release: async () => void (await shared.update((log) => released(log, id))),
    async settle(result) {
      if (result.refused) refusalText = result.detail
      const jitter = (random.bytes(1)[0] ?? 0) / 256
      await shared.update((log, nowMs) => settled(log, id, result, nowMs, jitter))
    },
  })

  return {
    snapshot: async () => viewOf(await shared.read(), clock.monotonicMs()),
    async reserve(items, { min = items, signal, timeoutMs = Number.POSITIVE_INFINITY } = {}) {
      const id = random.uuid()
      const ask = { id, wantItems: items, minItems: Math.max(1, Math.min(min, items)) }
      const granting = (log: ChargeLog, nowMs: number) => {
        const decision = decide(log, ask, nowMs)
        return decision.kind === 'granted' ? decision.log : log
      }
      const giveUpMs = clock.monotonicMs() + timeoutMs
      let notedUntilMs = 0
      for (;;) {
        // Whoever waits only reads, and leaves the lock to those who have an answer.
        const decision = decide(await shared.read(), ask, Math.floor(clock.monotonicMs()))
        if (decision.kind === 'never') throw overBudget(ask.minItems, decision.limitItems)
        if (decision.kind === 'granted') {
          const { charges } = await shared.update(granting)
          const own = charges.find((charge) => charge.id === id)
          if (own !== undefined) return reservation(id, own.items)
          // Somebody else was first.
          continue
        }
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

/** A change takes milliseconds; whoever waits for the lock of another so long gives up. */
const lockPatience = { brief: true, waitMs: 10_000, pauseMs: [1, 8] } as const

/**
 * The log that all processes of a machine share: one file for each origin, changed under the
 * folder's lock. Nothing is synced: a log that is lost is learned again, and no fault of the disk
 * stops a submission.
 */
function openChargeLog(
  ports: BudgetPorts,
  home: string,
  origin: string,
  onNote?: (text: string) => void,
) {
  const { clock, files, liveness } = ports
  // An origin may hold characters that no file name takes.
  const folder = joinPath(joinPath(home, 'budget'), ports.hash.sha256(origin).slice(0, 16))
  const path = joinPath(folder, 'log.json')
  const oneAtATime = pLimit(1)
  /** Of a process that has to count by itself. */
  let alone: ChargeLog | undefined
  /** What 0.2 has left: looked for once, for an older program counts where nobody else looks. */
  let earlier: readonly string[] | undefined

  const nowMs = () => Math.floor(clock.monotonicMs())
  const empty = () => emptyLog(liveness.bootId, nowMs())

  async function kept() {
    if (earlier === undefined) {
      const names = (await namesIn(files, folder)).filter((name) => earlierNumber(name) > 0)
      if (names.length > 0) await refuseOlderProgram(ports, home)
      earlier = names.toSorted((a, b) => earlierNumber(b) - earlierNumber(a))
    }
    // What a power cut leaves of a file that was not synced is learned again.
    const { data } = ChargeLog.safeParse(await jsonIn(files, path))
    if (data !== undefined) return data
    const [newest] = earlier
    const counted = newest && (await jsonIn(files, joinPath(folder, newest)))
    return ofEarlier(counted, empty(), clock.nowMs()) ?? empty()
  }

  async function publish(log: ChargeLog) {
    const temporary = `${path}.tmp`
    await removeIfThere(files, temporary)
    const bytes = new TextEncoder().encode(JSON.stringify(log))
    await withFile(files, temporary, 'exclusive', (handle) => writeAll(handle, bytes))
    await files.rename(temporary, path)
    for (const name of earlier ?? []) await removeIfThere(files, joinPath(folder, name))
    earlier = []
  }

  /** Without the shared log this process still keeps to the limit by itself. */
  function goAlone(error: unknown) {
    const { cause } = error instanceof StorageError ? error : { cause: error }
    const code = errorCode(cause)
    if (code === undefined) throw error
    if (alone === undefined)
      onNote?.(
        `the shared rate-limit state cannot be written (${code}); other processes of this machine are not counted`,
      )
    alone ??= empty()
    return alone
  }

  /** A change that gives back the log that is kept writes nothing. */
  const update = (change: (log: ChargeLog, nowMs: number) => ChargeLog) =>
    oneAtATime(async () => {
      try {
        if (alone === undefined) {
          const lock = await waitForLock(ports, folder, 'budget', lockPatience)
          try {
            const before = await kept()
            const atMs = nowMs()
            const log = change(ofThisBoot(before, liveness.bootId, atMs), atMs)
            if (log !== before) await publish(compacted(log, atMs))
            return log
          } finally {
            await lock.release()
          }
        }
      } catch (error) {
        goAlone(error)
      }
      alone = compacted(change(alone ?? empty(), nowMs()), nowMs())
      return alone
    })

  return {
    async read() {
      if (alone !== undefined) return alone
      try {
        const log = await kept()
        // Each reader would date it anew, and what it counts would never end.
        return ofThisBoot(log, liveness.bootId, nowMs()) === log
          ? log
          : await update((dated) => dated)
      } catch (error) {
        return goAlone(error)
      }
    },
    update,
  }
}

/** The first line: 0.2 wrote a sum behind it. */
async function jsonIn(files: Files, path: string) {
  const bytes = await ifThere(files.read(path))
  return bytes && jsonOf(new TextDecoder().decode(bytes).split('\n')[0] ?? '')
}

async function refuseOlderProgram(ports: BudgetPorts, home: string) {
  const journal = joinPath(home, 'journal')
  for (const run of await namesIn(ports.files, journal)) {
    const holder = await readHolder(ports, joinPath(journal, run))
    if (holder?.state !== 'alive' || holder.layout !== undefined) continue
    throw new StorageError(
      'home_in_use',
      `${home} is in use by ${holderText(holder)}, of an older version of proposer`,
      'wait until that process is done, or stop it, then retry',
    )
  }
}

/** The number of a state file of 0.2; 0 of any other. */
const earlierNumber = (name: string) => Number(/^s\.([1-9]\d{0,14})$/.exec(name)?.[1] ?? 0)

/** What counts of a state of 0.2; its windows end by the wall clock. */
const Earlier = z.object({
  state: z.object({
    windowMs: z.number().check(z.minimum(1_000)),
    views: z
      .array(
        z.object({
          limitItems: z.int().check(z.minimum(1)),
          assumed: z.boolean(),
          endsByMs: z.nullable(z.number()),
          upperItems: z.int().check(z.minimum(0)),
        }),
      )
      .check(z.minLength(1)),
  }),
})

function ofEarlier(json: unknown, empty: ChargeLog, wallMs: number): ChargeLog | undefined {
  const { data } = Earlier.safeParse(json)
  if (data === undefined) return undefined
  const { views, windowMs } = data.state
  const open = views.filter(({ endsByMs }) => endsByMs === null || endsByMs > wallMs)
  const items = Math.max(0, ...open.map(({ upperItems }) => upperItems))
  const { writtenMs: nowMs } = empty
  return {
    ...empty,
    windowMs,
    limitItems: Math.min(...views.map(({ limitItems }) => limitItems)),
    source: views.some(({ assumed }) => assumed) ? 'assumed' : 'told',
    charges: [{ id: '', items, sentMs: nowMs, endMs: nowMs }],
    changedMs: nowMs,
  }
}
