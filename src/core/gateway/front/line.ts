/**
 * Work that waits for its turn, and what of it has waited too long (robustness §5). Clients are
 * served in turn, one piece of work each, so that one with a thousand connections keeps nobody
 * waiting but itself. As with CoDel, a long wait alone is no fault: a burst, or a pause that is over,
 * is worked off. A client's line *stands* once for a whole interval nothing left it that had waited
 * less than the target. Then what has waited longer than the target is refused, all else is served.
 * Time is passed in, in monotonic milliseconds (R13).
 */

/**
 * Who is refused comes back after a second at the earliest (`Retry-After`): to be served after less
 * than that is always better for him.
 */
export const lineLimits = { targetMs: 1_000, intervalMs: 1_000 } as const

/** Clients without waiting work whose lines are remembered as slow (R17). */
const rememberedLines = 1_024

/** One piece of work when its turn has come. */
export interface Turn<Work> {
  readonly work: Work
  readonly waitedMs: number
  /** It has waited too long and is to be refused. */
  readonly isLate: boolean
}

export interface WaitingLine<Work> {
  /** Work of a client that waits since `sinceMs`: from when it could have been read. */
  add(client: string, work: Work, sinceMs: number): void
  /** The next one in turn; `undefined` where nothing waits. */
  next(nowMs: number): Turn<Work> | undefined
  /** The turn of work that comes when nothing waits: it does not wait at all, but may be late. */
  pass(client: string, sinceMs: number, nowMs: number): boolean
  /** Pieces of work that wait. */
  readonly length: number
}

interface Waiting<Work> {
  readonly work: Work
  readonly sinceMs: number
}

/** The work of one client, oldest first; taken from `at` on. */
interface OwnLine<Work> {
  waiting: Waiting<Work>[]
  at: number
}

/** Since when all that left a client's line had waited too long, and when the last of it left. */
interface Slow {
  readonly sinceMs: number
  readonly lastMs: number
}

/** An empty line. Throws nothing. */
export function createLine<Work>(limits: {
  readonly targetMs: number
  readonly intervalMs: number
}): WaitingLine<Work> {
  // Whose turn it is stands first; who has had one goes to the end.
  const lines = new Map<string, OwnLine<Work>>()
  const slow = new Map<string, Slow>()
  let length = 0

  /** Notes how long work of a client has waited; whether that is too long. */
  function judge(client: string, waitedMs: number, nowMs: number): boolean {
    const before = slow.get(client)
    slow.delete(client)
    if (waitedMs < limits.targetMs) return false
    // What was long ago tells nothing of now.
    const isGoingOn = before !== undefined && nowMs - before.lastMs <= limits.intervalMs
    const sinceMs = isGoingOn ? before.sinceMs : nowMs
    slow.set(client, { sinceMs, lastMs: nowMs })
    if (slow.size > rememberedLines) {
      const [oldest] = slow.keys()
      if (oldest !== undefined) slow.delete(oldest)
    }
    return nowMs - sinceMs >= limits.intervalMs
  }

  return {
    add(client, work, sinceMs) {
      length += 1
      const own = lines.get(client)
      if (own) own.waiting.push({ work, sinceMs })
      else lines.set(client, { waiting: [{ work, sinceMs }], at: 0 })
    },
    next(nowMs) {
      const [first] = lines
      if (!first) return undefined
      const [client, own] = first
      const found = own.waiting[own.at]
      if (!found) throw new RangeError('an empty line was kept')
      length -= 1
      own.at += 1
      lines.delete(client)
      if (own.at < own.waiting.length) {
        if (own.at > 1_024) {
          own.waiting = own.waiting.slice(own.at)
          own.at = 0
        }
        lines.set(client, own)
      }
      const waitedMs = nowMs - found.sinceMs
      return { work: found.work, waitedMs, isLate: judge(client, waitedMs, nowMs) }
    },
    pass: (client, sinceMs, nowMs) => !judge(client, nowMs - sinceMs, nowMs),
    get length() {
      return length
    },
  }
}
