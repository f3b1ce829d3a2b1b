import { describe, expect, test } from 'vitest'
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
} from '#core/client/budget/window'

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
