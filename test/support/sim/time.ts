/**
 * The clocks of a simulation (robustness §8, T6): one monotonic time for all, and a wall clock for
 * each machine that a script may set wrong. Time moves only when nothing else can go on, and then
 * to the next sleeper, so that a schedule takes no time of its own.
 */
import type { Clock } from '#ports'

export const startSeconds = 1_800_000_000
const longestPieceMs = 12_000
/**
 * Turns of the event loop after which nothing goes on by itself: what crosses one is a dynamic
 * import, or the end of a stream.
 */
const idleTurns = 3
/** Wakings in one drive; more of them means that somebody waits for ever. */
const mostWakings = 5_000

interface Sleeper {
  readonly atMs: number
  readonly isAlive: () => boolean
  readonly wake: () => void
}

export interface SimTime {
  monotonicMs(): number
  clockOf(machine: string, isAlive: () => boolean): Clock
  jump(machine: string, ms: number): void
  setRight(): void
  drive<T>(work: Promise<T>): Promise<T>
  onPassed: () => void
}

const loopTurn = () => new Promise((resolve) => setImmediate(resolve))

export function createSimTime(): SimTime {
  let nowMs = 0
  let sleepers: Sleeper[] = []
  const offsets = new Map<string, number>()

  const nextSleeper = (): Sleeper | undefined => {
    sleepers = sleepers.filter(({ isAlive }) => isAlive())
    return sleepers.reduce<Sleeper | undefined>(
      (first, one) => (first === undefined || one.atMs < first.atMs ? one : first),
      undefined,
    )
  }

  const time: SimTime = {
    monotonicMs: () => nowMs,
    onPassed: () => undefined,
    clockOf: (machine, isAlive) => ({
      nowMs: () => startSeconds * 1_000 + nowMs + (offsets.get(machine) ?? 0),
      monotonicMs: () => nowMs,
      sleep: (ms, signal) =>
        new Promise((resolve, reject) => {
          if (signal?.aborted === true) return reject(signal.reason)
          const leave = () => {
            sleepers = sleepers.filter((each) => each !== sleeper)
          }
          const stop = () => {
            leave()
            reject(signal?.reason)
          }
          const wake = () => {
            leave()
            signal?.removeEventListener('abort', stop)
            resolve()
          }
          // A sleep of nothing lets others go first, as a timer of 0 does.
          if (ms <= 0) return setImmediate(() => isAlive() && resolve())
          const sleeper = { atMs: nowMs + ms, isAlive, wake }
          sleepers.push(sleeper)
          signal?.addEventListener('abort', stop)
        }),
    }),
    jump: (machine, ms) => {
      offsets.set(machine, (offsets.get(machine) ?? 0) + ms)
    },
    setRight: () => offsets.clear(),
    async drive(work) {
      let isDone = false
      const finish = () => {
        isDone = true
      }
      work.then(finish, finish)
      for (let wakings = 0; !isDone; wakings++) {
        for (let turn = 0; turn < idleTurns && !isDone; turn++) await loopTurn()
        if (isDone) break
        const next = nextSleeper()
        if (next === undefined) {
          for (let turn = 0; turn < 200 && !isDone; turn++) await loopTurn()
          if (!isDone) throw new Error('nobody sleeps, and the work does not end')
          break
        }
        if (wakings > mostWakings)
          throw new Error('the work does not end, however much time passes')
        const atMs = Math.min(next.atMs, nowMs + longestPieceMs)
        if (atMs > nowMs) {
          nowMs = atMs
          time.onPassed()
        }
        if (next.atMs <= nowMs) next.wake()
      }
      return work
    },
  }
  return time
}
