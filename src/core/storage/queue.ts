import type { Append } from './group.js'
import type { StoredRecord } from './record-log.js'

/** One caller's append, waiting for its group. */
export interface Waiting {
  /** About what the lines will take. */
  readonly bytes: number
  /** About how many there will be. */
  readonly lines: number
  /** The records, decided once their group is written. */
  readonly decide: (group: number) => Append
  readonly onDurable: ((stored: readonly StoredRecord[]) => void) | undefined
  readonly resolve: (stored: readonly StoredRecord[]) => void
  readonly reject: (error: Error) => void
}

const groupLines = 1_024
export const groupBytes = 1024 * 1024

/** Appends in the order of their calls, at most `limitBytes` of them (R17), but always one. */
export function newQueue(limitBytes: number) {
  let waiting: Waiting[] = []
  let bytes = 0
  return {
    /** Whether there was room. */
    add(each: Waiting): boolean {
      if (waiting.length > 0 && bytes + each.bytes > limitBytes) return false
      waiting.push(each)
      bytes += each.bytes
      return true
    },
    /** The next group: up to 1,024 lines or 1 MiB, whole appends, at least one. */
    take(): Waiting[] {
      let lines = 0
      let taken = 0
      let count = 0
      for (const each of waiting) {
        if (count > 0 && (lines + each.lines > groupLines || taken + each.bytes > groupBytes)) break
        lines += each.lines
        taken += each.bytes
        count++
      }
      const group = waiting.slice(0, count)
      waiting = waiting.slice(count)
      bytes -= taken
      return group
    },
    takeAll(): Waiting[] {
      const all = waiting
      waiting = []
      bytes = 0
      return all
    },
    isEmpty: () => waiting.length === 0,
  }
}

/**
 * Runs jobs one after the other, in the order of the calls. Each job's failure is its caller's; the
 * next one starts all the same.
 */
export function newTurns(): <T>(job: () => Promise<T>) => Promise<T> {
  let last: Promise<unknown> = Promise.resolve()
  return (job) => {
    const run = last.then(job)
    last = run.catch(() => undefined)
    return run
  }
}
