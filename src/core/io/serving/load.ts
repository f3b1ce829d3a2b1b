import { performance } from 'node:perf_hooks'

const roundMs = 50

/**
 * A call that is read now came no earlier than the end of the event loop's round before, nor while
 * it slept: what is left is how long it has been busy. Monotonic milliseconds (R13).
 */
function createRounds(startMs: number, startIdleMs: number) {
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

const turnsMs = 2

/** For long work in parts: a call that comes meanwhile waits for a few milliseconds. */
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
    // After all promises that can be settled now.
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
