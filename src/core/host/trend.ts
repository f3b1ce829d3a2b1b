/** Queue, latency and balance since the start, of a day or a little more, in a bounded number of points (R17). */
import type { Clock } from '../ports.js'
import { instant } from '../protocol/candidate.js'
import type { Observation } from '../protocol/vitals.js'
import type { StatusSnapshot } from './snapshot.js'

/** What was the case in one step of time; null for what was not known, or did not happen. */
interface TrendPoint {
  /** The most candidates in the queue. */
  readonly queue: number
  /** The longest way of an executed candidate from received to executed, in seconds. */
  readonly latency: number | null
  /** The executor's balance in coins, the last one. */
  readonly balance: number | null
}

/** The points in columns, the oldest first. */
export interface TrendData {
  readonly step_seconds: number
  readonly ends_at: string | null
  readonly queue: readonly number[]
  readonly latency: readonly (number | null)[]
  readonly balance: readonly (number | null)[]
}

export interface Trend {
  note(observation: Observation): void
  /** To be called every second or so. */
  look(now: Pick<StatusSnapshot, 'gauges' | 'vitals'>): void
  data(): TrendData
}

const mostPoints = 240
const firstStepMs = 15_000
/** So many points of such a step are a day; it is reached by doubling. */
const lastStepMs = 360_000
const weiPerCoin = 1e18

/** Once all places are taken, two points become one: the day is always there as a whole. */
export function createTrend({ nowMs, monotonicMs }: Pick<Clock, 'nowMs' | 'monotonicMs'>): Trend {
  let points: readonly TrendPoint[] = []
  let stepMs = firstStepMs
  let open: TrendPoint | undefined
  let beganMs = monotonicMs()
  let endedMs: number | undefined
  let latency: number | null = null
  return {
    note(observation) {
      if (observation.kind === 'ended' && observation.outcome === 'executed')
        latency = Math.max(latency ?? 0, observation.seconds)
    },
    look({ gauges, vitals }) {
      const { received, validated, selected } = gauges.queue
      const wei = vitals.executor?.balanceWei
      const balance = wei === undefined ? null : Number(wei) / weiPerCoin
      const now = { queue: received + validated + selected, latency, balance }
      open = open === undefined ? now : merged(open, now)
      if (monotonicMs() - beganMs < stepMs) return
      points = [...points, open].slice(-mostPoints)
      ;[open, latency, beganMs, endedMs] = [undefined, null, monotonicMs(), nowMs()]
      if (points.length < mostPoints || stepMs >= lastStepMs) return
      points = Array.from({ length: mostPoints / 2 }, (_, at) =>
        merged(points[2 * at] as TrendPoint, points[2 * at + 1] as TrendPoint),
      )
      stepMs *= 2
    },
    data: () => ({
      step_seconds: stepMs / 1_000,
      ends_at: endedMs === undefined ? null : instant(endedMs),
      queue: points.map((point) => point.queue),
      latency: points.map((point) => point.latency),
      balance: points.map((point) => point.balance),
    }),
  }
}

const merged = (one: TrendPoint, next: TrendPoint): TrendPoint => ({
  queue: Math.max(one.queue, next.queue),
  latency:
    one.latency === null && next.latency === null
      ? null
      : Math.max(one.latency ?? 0, next.latency ?? 0),
  balance: next.balance ?? one.balance,
})
