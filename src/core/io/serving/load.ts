/** How long calls wait before they are read, and how to let others have a turn. */

/**
 * A call that has waited longer is shed where calls have been waiting for some time already
 * (robustness §5).
 */
export const longestWaitMs = 200
/** How often the event loop is examined. */
const roundMs = 50

export interface LoadMonitor {
  /** Whether the call that is read now has waited too long. */
  overloaded(): boolean
  stop(): void
}

/**
 * Judges waits by the rounds of the event loop, which reads all calls that have come before it
 * looks again. `round` is called once after each reading, at least every 50 ms where nothing keeps
 * the loop. What is read when a round is overdue has waited since it was due. As with CoDel, one
 * late round refuses nobody: a pause that is over, or a burst, is worked off. Only from the second
 * on are calls shed, each by its own wait. Times in monotonic milliseconds (R13).
 */
export function createWaits(startMs: number) {
  let roundAtMs = startMs
  let isStanding = false
  const waitedMs = (nowMs: number) => nowMs - roundAtMs - roundMs
  return {
    round(nowMs: number) {
      isStanding = waitedMs(nowMs) > longestWaitMs
      roundAtMs = nowMs
    },
    tooLong: (nowMs: number) => isStanding && waitedMs(nowMs) > longestWaitMs,
  }
}

/** Watches the event loop until stopped; keeps no process alive. */
export function watchLoad(nowMs: () => number): LoadMonitor {
  const waits = createWaits(nowMs())
  // Between timers and immediates the loop reads its sockets: a late timer does not hide how long
  // those have waited.
  const timer = setInterval(() => setImmediate(() => waits.round(nowMs())), roundMs)
  timer.unref()
  return { overloaded: () => waits.tooLong(nowMs()), stop: () => clearInterval(timer) }
}

/** Resolves after everything that is already waiting has had its turn. */
export function yieldToEvents(): Promise<void> {
  return new Promise((resolve) => {
    setImmediate(resolve)
  })
}
