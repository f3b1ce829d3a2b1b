import { performance } from 'node:perf_hooks'

const roundMs = 50

/**
 * A call that is read now came no earlier than the end of the round of the event loop before, nor
 * while the loop slept: what is left is how long it has been busy since. Monotonic milliseconds
 * (R13).
 */
export function createRounds(startMs: number, startIdleMs: number) {
  let endMs = startMs
  let endIdleMs = startIdleMs
  return {
    round(nowMs: number, idleMs: number) {
      endMs = nowMs
      endIdleMs = idleMs
    },
    busyMs: (nowMs: number, idleMs: number) => Math.max(0, nowMs - endMs - (idleMs - endIdleMs)),
  }
}

export function watchLoad(nowMs: () => number) {
  const idleMs = () => performance.nodeTiming.idleTime
  const rounds = createRounds(nowMs(), idleMs())
  let isAwaited = false
  // Between timers and immediates the loop reads its sockets.
  const look = () => {
    if (isAwaited) return
    isAwaited = true
    setImmediate(() => {
      isAwaited = false
      rounds.round(nowMs(), idleMs())
    })
  }
  const timer = setInterval(look, roundMs)
  timer.unref()
  return {
    /** Milliseconds for which the call that is read now may have waited in its socket. */
    unreadMs() {
      look()
      return rounds.busyMs(nowMs(), idleMs())
    },
    stop: () => clearInterval(timer),
  }
}

export function yieldToEvents(): Promise<void> {
  return new Promise((resolve) => {
    setImmediate(resolve)
  })
}

/** Turns are given for so long in a round of the event loop; the last one may take longer. */
const turnsMs = 2

/**
 * Turns for long work in parts, one at a time: a call that comes meanwhile waits for a few
 * milliseconds of it.
 */
export function createTurns(): () => Promise<void> {
  const waiting: (() => void)[] = []
  let endMs = 0
  const begin = () => {
    endMs = performance.now() + turnsMs
    next()
  }
  const next = () => {
    const give = waiting.shift()
    if (give === undefined) return
    give()
    // After all promises that can be settled now: the work of this turn is done then.
    void Promise.resolve().then(() => process.nextTick(after))
  }
  const after = () => {
    if (waiting.length === 0) isGiving = false
    else if (performance.now() < endMs) next()
    else setImmediate(begin)
  }
  let isGiving = false
  return () =>
    new Promise((resolve) => {
      waiting.push(resolve)
      if (isGiving) return
      isGiving = true
      setImmediate(begin)
    })
}
