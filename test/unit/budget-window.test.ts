import { describe, expect, test } from 'vitest'
import { planBatch } from '../../src/core/client/budget/forecast.js'
import {
  type CallResult,
  type ChargeLog,
  compacted,
  type Decision,
  decide,
  emptyLog,
  ofThisBoot,
  resized,
  settled,
  viewOf,
} from '../../src/core/client/budget/window.js'

const at = 1_000_000
const window = 60_000

function history() {
  let log: ChargeLog = emptyLog('boot-1', at)
  let calls = 0
  const ask = (ms: number, wantItems: number, minItems = 1): Decision =>
    decide(log, { id: `c${calls}`, wantItems, minItems }, at + ms)
  return {
    ask,
    take(ms: number, wantItems: number, minItems = 1): { id: string; items: number } {
      const decision = ask(ms, wantItems, minItems)
      if (decision.kind !== 'granted') throw new Error(`${decision.kind} at ${ms}`)
      log = decision.log
      return { id: `c${calls++}`, items: decision.items }
    },
    settle(
      ms: number,
      id: string,
      outcome: Partial<CallResult> & {
        told?: readonly [limit: number, remaining: number, reset: number]
      },
    ) {
      const { told, ...rest } = outcome
      const rateLimit = told && { limit: told[0], remaining: told[1], resetSeconds: told[2] }
      const result = { answered: true, refused: false, rateLimit, ...rest }
      log = compacted(settled(log, id, result, at + ms, 0), at + ms)
    },
    resize(ms: number, id: string, items: number) {
      log = resized(log, id, items, at + ms)
    },
    view: (ms: number) => viewOf(log, at + ms),
    log: () => log,
  }
}

function learnt() {
  const told = history()
  const { id } = told.take(0, 100)
  told.settle(100, id, { told: [120, 119, 60] })
  return told
}

const granted = (decision: Decision) =>
  decision.kind === 'granted' ? decision.items : decision.kind

describe('what this machine may send', () => {
  test('§8: unknown limits are learnt by one call of one item, and others wait for its answer, at most five seconds', () => {
    const told = history()
    const { id, items } = told.take(0, 100)
    expect(items).toBe(1)
    expect(told.ask(10, 100)).toMatchObject({ kind: 'wait', untilMs: null })
    expect(granted(told.ask(4_999, 100))).toBe('wait')
    expect(granted(told.ask(5_001, 100))).toBe(1)
    told.settle(100, id, { told: [120, 119, 60] })
    expect(granted(told.ask(101, 100))).toBe(100)
  })

  test('what cannot be split goes whole, and what no window can hold never', () => {
    expect(granted(history().ask(0, 100, 100))).toBe(100)
    const told = learnt()
    expect(told.ask(200, 121, 121)).toEqual({ kind: 'never', limitItems: 120 })
  })

  test('an item is free again a window after its answer, and a thousandth for the clocks', () => {
    const told = learnt()
    const many = told.take(200, 100)
    const rest = told.take(201, 100)
    expect([many.items, rest.items]).toEqual([100, 19])
    told.settle(300, many.id, { told: [120, 19, 60] })
    told.settle(400, rest.id, { told: [120, 0, 60] })
    expect(told.ask(401, 100)).toMatchObject({ kind: 'wait', untilMs: at + 60_300 + 62 })
    expect(granted(told.ask(60_361, 100, 100))).toBe('wait')
    expect(granted(told.ask(60_362, 100, 100))).toBe(100)
  })

  test('R23: a call without an answer counts from its time-out: its sender may have been killed', () => {
    const told = learnt()
    told.take(200, 100)
    expect(granted(told.ask(60_200 + window, 120))).toBe(20)
    expect(granted(told.ask(60_200 + window + 62, 120))).toBe(120)
    const lost = learnt()
    const { id } = lost.take(200, 100)
    lost.settle(300, id, { answered: false })
    expect(granted(lost.ask(65_361, 120))).toBe(20)
    expect(granted(lost.ask(65_362, 120))).toBe(120)
  })

  test('a call that never left gives its items back, and one that shrinks gives back the rest', () => {
    const told = learnt()
    const { id } = told.take(200, 100)
    told.resize(250, id, 40)
    expect(granted(told.ask(251, 100))).toBe(79)
    told.resize(260, id, 0)
    expect(granted(told.ask(261, 200))).toBe(119)
  })

  test('§8 rule 6: what strangers spend shows in the answers; until that window is over no more is sent than it has left', () => {
    const told = learnt()
    const call = told.take(10_000, 1)
    told.settle(10_050, call.id, { told: [120, 88, 50] })
    expect(granted(told.ask(10_060, 200))).toBe(88)
    const first = told.take(61_000, 100)
    expect(first.items).toBe(1)
    expect(told.ask(61_010, 100)).toMatchObject({ kind: 'wait', untilMs: null })
    told.settle(61_050, first.id, { told: [120, 80, 59] })
    expect(granted(told.ask(61_060, 200))).toBe(80)
  })

  test('contract §2: the tighter window is told, and both are kept to', () => {
    const told = learnt()
    const call = told.take(1_000, 10)
    told.settle(1_050, call.id, { told: [1_000, 50, 30] })
    const rest = told.take(1_060, 200)
    expect(rest.items).toBe(50)
    told.settle(1_100, rest.id, { told: [1_000, 0, 30] })
    // The global window ends first; the own one holds 61 of ours until it does.
    const probe = told.take(31_200, 200)
    expect(probe.items).toBe(1)
    told.settle(31_250, probe.id, { told: [120, 58, 29] })
    expect(granted(told.ask(31_300, 200))).toBe(58)
  })

  test('a limit that the gateway raises or lowers is taken, an answer of the window before changes nothing', () => {
    const told = learnt()
    const slow = told.take(55_000, 1)
    const next = told.take(60_400, 50)
    told.settle(60_450, next.id, { told: [120, 70, 60] })
    told.settle(60_500, slow.id, { told: [120, 118, 5] })
    expect(told.view(60_510)).toMatchObject({ roomItems: 69 })
    const raised = told.take(121_000, 10)
    told.settle(121_050, raised.id, { told: [500, 490, 60] })
    expect(told.view(121_060)).toMatchObject({ limitItems: 500, roomItems: 490 })
    const lowered = told.take(182_000, 10)
    told.settle(182_050, lowered.id, { told: [40, 30, 60] })
    expect(told.view(182_060)).toMatchObject({ limitItems: 40, roomItems: 30 })
  })

  test('§7: a 429 is waited out by everybody, by Retry-After and a jitter, and the next call is small', () => {
    const told = learnt()
    const call = told.take(1_000, 50)
    told.settle(1_050, call.id, { refused: true, retryAfterMs: 40_000, told: [120, 0, 40] })
    expect(told.ask(1_060, 1)).toMatchObject({ kind: 'wait', untilMs: at + 41_050 })
    expect(granted(told.ask(61_200, 100))).toBe(1)
  })

  test('R17: headers that mean no budget are none, and no window is believed to last longer than an hour', () => {
    const told = history()
    const { id } = told.take(0, 100)
    told.settle(50, id, { told: [0, 0, 60] })
    expect(told.view(60).learnt).toBe(false)
    const next = told.take(60, 10)
    told.settle(70, next.id, { told: [50, 40, 999_999_999] })
    expect(told.view(80)).toMatchObject({ limitItems: 50, windowMs: 3_600_000 })
  })

  test('R17: however many calls there were, the log stays small and counts them all', () => {
    const told = history()
    const { id } = told.take(0, 1)
    told.settle(1, id, { told: [20_000, 19_999, 60] })
    for (let call = 1; call <= 5_000; call++) {
      const { id: one } = told.take(call * 10, 1)
      told.settle(call * 10 + 5, one, { told: [20_000, 19_999 - call, 60] })
    }
    expect(told.log().charges.length).toBeLessThan(256)
    expect(told.view(50_010)).toMatchObject({ spentItems: 5_001 })
    expect(told.log().charges.every(({ endMs }) => endMs <= at + 50_010)).toBe(true)
  })

  test('a log of another boot counts as sent just now', () => {
    const told = learnt()
    told.take(200, 99)
    const log = ofThisBoot(told.log(), 'boot-2', 5)
    expect(viewOf(log, 5)).toMatchObject({ learnt: true, roomItems: 20 })
    expect(viewOf(log, 5 + 60_063)).toMatchObject({ roomItems: 120 })
  })
})

describe('a gateway that tells no limit', () => {
  test('§8: the documented default is kept to, from the first call on', () => {
    const told = history()
    const { id } = told.take(0, 100)
    told.settle(50, id, {})
    expect(told.view(60)).toMatchObject({ learnt: false, limitItems: 120, spentItems: 1 })
    expect(granted(told.ask(60, 200))).toBe(119)
    told.take(60, 200)
    expect(granted(told.ask(70, 1))).toBe('wait')
  })

  test('P2: a limit below the call is learned by halving, and tried again when it has held for ten windows', () => {
    for (const limit of [10, 60, 90]) {
      const told = history()
      let [ms, windowMs, spent, sent, refused] = [0, -window, 0, 0, 0]
      while (ms < 15 * window && sent < 300) {
        const decision = told.ask(ms, 100)
        if (decision.kind === 'never') throw new Error('never')
        if (decision.kind === 'wait') {
          ms = Math.max(ms + 1, Number(decision.untilMs ?? ms + 50) - at)
          continue
        }
        const { id, items } = told.take(ms, 100)
        if (ms >= windowMs + window) [windowMs, spent] = [ms, 0]
        spent += items
        const isRefused = spent > limit
        if (isRefused) refused++
        else sent += items
        const retryAfterMs = windowMs + window - ms
        told.settle(ms + 5, id, isRefused ? { refused: true, retryAfterMs } : {})
        ms += 6
      }
      expect(sent, `limit ${limit}`).toBeGreaterThanOrEqual(Math.min(300, limit * 4))
      expect(refused, `limit ${limit}`).toBeLessThanOrEqual(6)
    }
  })
})

test('§8: a forecast fills whole windows, of which the last one takes no time', () => {
  const cost = (submitItems: number, view = viewOf(emptyLog('boot-1', at), at)) => {
    const { windows, seconds } = planBatch({ contextItems: 0, submitItems, statusItems: 0 }, view)
    return { windows: windows.length, seconds }
  }
  expect(cost(0)).toEqual({ windows: 0, seconds: 0 })
  expect(cost(120)).toEqual({ windows: 1, seconds: 0 })
  expect(cost(121)).toEqual({ windows: 2, seconds: 60 })
  expect(cost(1_200)).toEqual({ windows: 10, seconds: 540 })
  const told = learnt()
  const call = told.take(200, 99)
  told.settle(250, call.id, { told: [120, 20, 60] })
  expect(cost(141, told.view(30_100))).toEqual({ windows: 3, seconds: 91 })
})
