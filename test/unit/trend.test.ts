/** The trends of the operator's page: what a point holds, and that a day fits. */
import { expect, test } from 'vitest'
import { createTrend, type TrendData } from '../../src/core/host/trend.js'

const coin = 10n ** 18n

/** A trend over a clock that goes on by a second a look. */
function looking() {
  let seconds = 0
  const clock = {
    nowMs: () => 1_800_000_000_000 + seconds * 1_000,
    monotonicMs: () => seconds * 1_000,
  }
  const trend = createTrend(clock)
  return {
    trend,
    pass(count: number, queue: number, balanceWei?: bigint): TrendData {
      for (let n = 0; n < count; n += 1) {
        seconds += 1
        trend.look({
          gauges: { queue: { received: queue, validated: 0, selected: 0 } } as never,
          vitals: { executor: { balanceWei } } as never,
        })
      }
      return trend.data()
    },
  }
}

test('a point each fifteen seconds: the longest queue, the longest way, the last balance', () => {
  const { trend, pass } = looking()
  expect(pass(14, 3, coin)).toEqual({
    step_seconds: 15,
    ends_at: null,
    ...{ queue: [], latency: [], balance: [] },
  })
  trend.note({ kind: 'ended', outcome: 'executed', code: 'none', seconds: 12 })
  trend.note({ kind: 'ended', outcome: 'executed', code: 'none', seconds: 9 })
  trend.note({ kind: 'ended', outcome: 'failed', code: 'superseded', seconds: 99 })
  pass(1, 2, 2n * coin)
  expect(pass(15, 1)).toEqual({
    step_seconds: 15,
    ends_at: new Date(1_800_000_030_000).toISOString(),
    queue: [3, 1],
    latency: [12, null],
    balance: [2, null],
  })
})

test('R17: at most 240 points: two become one until they stand for a day, then the oldest goes', () => {
  const { trend, pass } = looking()
  trend.note({ kind: 'ended', outcome: 'executed', code: 'none', seconds: 7 })
  expect(pass(239 * 15, 1, coin).queue).toHaveLength(239)
  const halved = pass(15, 5, 3n * coin)
  expect([halved.step_seconds, halved.queue.length]).toEqual([30, 120])
  expect([halved.queue.at(-1), halved.latency[0], halved.balance.at(-1)]).toEqual([5, 7, 3])
  let most = 0
  for (let hour = 0; hour < 60; hour += 1) most = Math.max(most, pass(3_600, 0).queue.length)
  const { step_seconds, queue } = trend.data()
  expect(step_seconds * queue.length).toBeGreaterThan(86_000)
  expect([step_seconds <= 480, most <= 240]).toEqual([true, true])
})
