/**
 * The world's edges for a gateway that runs in simulated time: a clock that only the test turns,
 * and chain and files that know whether anybody still waits for them. Core touches nothing else, so
 * a gateway whose edges are quiet has done all it can do for now.
 */
import type { Chain, Clock, Files } from '#ports'

/**
 * Turns of the event loop without a call in flight that count as quiet: batching and promises
 * between two calls take fewer.
 */
const quietTurns = 6

export interface WeekPorts {
  readonly clock: Clock
  chain(chain: Chain): Chain
  files(files: Files): Files
  beforeSend(happening: (() => Promise<void>) | undefined): void
  pass(nowSeconds: bigint, ms: number): void
  quiet(): Promise<void>
}

const turn = () => new Promise<void>((resolve) => setImmediate(resolve))

export function createWeekPorts(startSeconds: bigint): WeekPorts {
  let nowMs = Number(startSeconds) * 1_000
  let monotonicMs = 0
  const sleepers = new Set<{ readonly dueMs: number; readonly wake: () => void }>()
  let busy = 0
  let due: (() => Promise<void>) | undefined
  const idle: (() => void)[] = []

  const counted = async <T>(work: Promise<T>): Promise<T> => {
    busy += 1
    try {
      return await work
    } finally {
      busy -= 1
      if (busy === 0) for (const tell of idle.splice(0)) tell()
    }
  }

  const clock: Clock = {
    nowMs: () => nowMs,
    monotonicMs: () => monotonicMs,
    sleep: (ms, signal) =>
      new Promise((resolve, reject) => {
        if (signal?.aborted === true) {
          reject(signal.reason)
          return
        }
        if (ms <= 0) {
          setImmediate(resolve)
          return
        }
        const abort = () => {
          sleepers.delete(sleeper)
          reject(signal?.reason)
        }
        const sleeper = {
          dueMs: monotonicMs + ms,
          wake() {
            signal?.removeEventListener('abort', abort)
            resolve()
          },
        }
        sleepers.add(sleeper)
        signal?.addEventListener('abort', abort, { once: true })
      }),
  }

  const watched = <Edge extends object>(edge: Edge): Edge =>
    Object.fromEntries(
      Object.entries(edge).map(([name, verb]) => [
        name,
        (...args: readonly unknown[]) => {
          const answer = verb(...args)
          return answer instanceof Promise ? counted(answer) : answer
        },
      ]),
    ) as Edge

  return {
    clock,
    chain: (chain) =>
      watched({
        ...chain,
        async send(raw) {
          const happening = due
          due = undefined
          await happening?.()
          return chain.send(raw)
        },
      }),
    files: (files) => ({
      ...watched(files),
      open: async (path, mode) => watched(await counted(files.open(path, mode))),
    }),
    beforeSend(happening) {
      due = happening
    },
    pass(nowSeconds, ms) {
      nowMs = Number(nowSeconds) * 1_000
      monotonicMs += ms
      for (const sleeper of sleepers) {
        if (sleeper.dueMs > monotonicMs) continue
        sleepers.delete(sleeper)
        sleeper.wake()
      }
    },
    async quiet() {
      for (let turns = 0; turns < quietTurns; turns += 1) {
        await turn()
        if (busy === 0) continue
        await new Promise<void>((tell) => idle.push(tell))
        turns = -1
      }
    },
  }
}
