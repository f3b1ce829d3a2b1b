/** How busy this process is, and how to let others have a turn. */
import { monitorEventLoopDelay } from 'node:perf_hooks'

/** Above this p99 new calls are shed (robustness §5). */
const shedDelayMs = 200
/** Long enough that one pause, of a garbage collection say, is less than the hundredth that counts. */
const windowMs = 5_000
const resolutionMs = 20

export interface LoadMonitor {
  /** Whether the event loop's delay, p99 over the last window, is too long for new calls. */
  overloaded(): boolean
  stop(): void
}

/** Watches the event loop until stopped; keeps no process alive. */
export function watchLoad(): LoadMonitor {
  const histogram = monitorEventLoopDelay({ resolution: resolutionMs })
  histogram.enable()
  let behind = false
  const timer = setInterval(() => {
    behind = histogram.percentile(99) > shedDelayMs * 1e6
    histogram.reset()
  }, windowMs)
  timer.unref()
  return {
    overloaded: () => behind,
    stop() {
      clearInterval(timer)
      histogram.disable()
    },
  }
}

/** Resolves after everything that is already waiting has had its turn. */
export function breathe(): Promise<void> {
  return new Promise((resolve) => {
    setImmediate(resolve)
  })
}
