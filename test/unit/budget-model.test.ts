import { describe, expect, test } from 'vitest'
import { forecast, viewOf } from '../../src/core/client/budget/forecast.js'
import {
  type BudgetDecision,
  type BudgetState,
  reserve,
  resizeCall,
  unknownBudget,
} from '../../src/core/client/budget/model.js'
import { type CallResult, settleCall } from '../../src/core/client/budget/settlement.js'

const at = 1_760_000_000_000
const window = 60_000

/** A history told step by step; times are milliseconds from its beginning. */
function history() {
  let state: BudgetState = unknownBudget(at)
  let calls = 0
  const ask = (ms: number, wantItems: number, minItems = 1): BudgetDecision =>
    reserve(state, { id: `c${calls}`, wantItems, minItems }, at + ms)
  return {
    ask,
    /** Grants and keeps it; the call's name. */
    take(ms: number, wantItems: number, minItems = 1): { id: string; items: number } {
      const decision = ask(ms, wantItems, minItems)
      if (decision.kind !== 'granted') throw new Error(`${decision.kind} at ${ms}`)
      state = decision.state
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
      state = settleCall(
        state,
        id,
        { answered: true, refused: false, rateLimit, ...rest },
        at + ms,
        0,
      )
    },
    release(ms: number, id: string) {
      state = resizeCall(state, id, 0, at + ms)
    },
    resize(ms: number, id: string, items: number) {
      state = resizeCall(state, id, items, at + ms)
    },
    view: (ms: number) => viewOf(state, at + ms),
    state: () => state,
  }
}

/** Alone, default limits, one item spent at 50 ms in a window that the call opened. */
function learnt() {
  const told = history()
  const { id } = told.take(0, 100)
  told.settle(100, id, { told: [120, 119, 60] })
  return told
}

const granted = (decision: BudgetDecision) =>
  decision.kind === 'granted' ? decision.items : decision.kind

describe('what the client knows of the budget', () => {
  test('§8: unknown limits are learnt by one call of one item, and others wait for its answer', () => {
    const told = history()
    const { id, items } = told.take(0, 100)
    expect(items).toBe(1)
    expect(told.ask(10, 100)).toMatchObject({ kind: 'wait', untilMs: null })
    told.settle(100, id, { told: [120, 119, 60] })
    expect(granted(told.ask(101, 100))).toBe(100)
  })

  test('a learner that never answers is waited for five seconds, not for its whole reservation', () => {
    const told = history()
    told.take(0, 100)
    expect(granted(told.ask(4_999, 100))).toBe('wait')
    expect(granted(told.ask(5_001, 100))).toBe(1)
  })

  test('what cannot be split goes whole, and what no window can hold never', () => {
    expect(granted(history().ask(0, 100, 100))).toBe(100)
    const told = learnt()
    expect(told.ask(200, 121, 121)).toEqual({ kind: 'never', limitItems: 120 })
  })

  test('no more is granted than the window has left, and the wait is to its end', () => {
    const told = learnt()
    told.take(200, 100)
    const rest = told.take(201, 100)
    expect(rest.items).toBe(19)
    told.settle(300, rest.id, { told: [120, 0, 60] })
    const wait = told.ask(301, 100)
    expect(wait).toMatchObject({ kind: 'wait', limitItems: 120, spentItems: 120, windowMs: window })
    // The window was opened between 0 and 100: it is over at 60,100 at the latest, and a thousandth
    // is added for the clocks.
    expect(wait.kind === 'wait' ? (wait.untilMs ?? 0) - at : 0).toBe(60_101 + 62)
  })

  test('contract §2: seconds are rounded up, so each answer narrows the end of the window to where all of them meet', () => {
    const told = learnt()
    const { id } = told.take(30_500, 5)
    told.settle(30_510, id, { told: [120, 114, 30] })
    const [view] = told.state().views
    expect(view).toMatchObject({ endsAfterMs: at + 59_500, endsByMs: at + 60_101 })
  })

  test('a call near the end of a window counts in the next one too', () => {
    const told = learnt()
    const { id } = told.take(59_000, 90, 90)
    expect(granted(told.ask(60_200, 100))).toBe(30)
    // Its answer tells which window it was.
    told.settle(60_250, id, { told: [120, 29, 1] })
    expect(granted(told.ask(60_260, 100))).toBe(100)
  })

  test('after a window that was ours alone the next one is granted whole, and at once', () => {
    const told = learnt()
    const first = told.take(200, 100)
    told.settle(300, first.id, { told: [120, 19, 60] })
    expect(granted(told.ask(60_164, 100))).toBe(100)
  })

  test('what nobody used for longer than a window is learnt anew', () => {
    expect(granted(learnt().ask(200_000, 100))).toBe(1)
  })

  test("R23: a dead process's reservation counts as spent until it expires, and then until an answer says otherwise", () => {
    const told = learnt()
    told.take(200, 100)
    expect(granted(told.ask(59_000, 100))).toBe(19)
    // The window is over, and the call may still come.
    expect(granted(told.ask(60_190, 100))).toBe(20)
    // Expired, but it may have been charged just before: the next answer knows.
    const next = told.take(60_201, 100)
    expect(next.items).toBe(20)
    told.settle(60_300, next.id, { told: [120, 100, 60] })
    expect(granted(told.ask(60_310, 200))).toBe(100)
  })

  test('a call that never left gives its items back, and one that shrinks gives back the rest', () => {
    const told = learnt()
    const { id } = told.take(200, 100)
    told.resize(250, id, 40)
    expect(granted(told.ask(251, 100))).toBe(79)
    told.release(260, id)
    expect(granted(told.ask(261, 200))).toBe(119)
  })

  test('a call that broke off counts as spent until a later answer does not hold it', () => {
    const told = learnt()
    const lost = told.take(200, 100)
    told.settle(300, lost.id, { answered: false })
    expect(granted(told.ask(400, 100))).toBe(19)
    const later = told.take(6_000, 1)
    told.settle(6_050, later.id, { told: [120, 118, 55] })
    expect(granted(told.ask(6_100, 200))).toBe(118)
  })

  test('§8 rule 6: what others spend behind the same address shows in the answers, and a share is kept for them', () => {
    const told = learnt()
    const call = told.take(10_000, 1)
    told.settle(10_050, call.id, { told: [120, 88, 50] })
    // 120 - 2 of ours - 30 of theirs; a quarter of the window is expected of them, and they have
    // had that.
    expect(granted(told.ask(10_060, 200))).toBe(88)
    const more = told.take(20_000, 1)
    told.settle(20_050, more.id, { told: [120, 77, 40] })
    // In the next window one item goes first, then what leaves them the forty of this one.
    const first = told.take(61_000, 100)
    expect(first.items).toBe(1)
    told.settle(61_050, first.id, { told: [120, 119, 60] })
    expect(granted(told.ask(61_060, 200))).toBe(119 - 40)
    expect(granted(told.ask(61_060 + 59_000, 200))).toBeGreaterThan(115)
  })

  test('R17: whoever waits for what others leave is woken when it fits, not again and again before', () => {
    const told = history()
    const first = told.take(0, 1)
    told.settle(100, first.id, { told: [9_000, 8_999, 60] })
    const second = told.take(10_000, 1)
    told.settle(10_050, second.id, { told: [9_000, 998, 50] })
    const third = told.take(61_000, 1)
    told.settle(61_050, third.id, { told: [9_000, 8_999, 60] })
    expect(told.take(61_060, 9_000).items).toBe(999)
    // Their share of eight thousand is kept whole for half a window, and then given back bit by
    // bit.
    for (const [items, roomMs] of [
      [1, 30_000],
      [1_000, 26_250],
    ] as const) {
      let ms = 61_060
      let wakes = 0
      for (
        let decision = told.ask(ms, items, items);
        decision.kind === 'wait';
        decision = told.ask(ms, items, items)
      ) {
        ms = Number(decision.untilMs) - at
        if (++wakes > 3) break
      }
      expect(wakes, `${items} items`).toBeLessThanOrEqual(3)
      expect(ms, `${items} items`).toBeCloseTo(61_050 + window - roomMs, -2)
      expect(granted(told.ask(ms, items, items))).toBe(items)
      expect(told.ask(ms - 100, items, items).kind).toBe('wait')
    }
  })

  test('contract §2: the tighter window is told, and both are kept to', () => {
    const told = learnt()
    const call = told.take(1_000, 10)
    told.settle(1_050, call.id, { told: [1_000, 50, 30] })
    expect(granted(told.ask(1_060, 200))).toBe(50)
    const rest = told.take(1_060, 200)
    told.settle(1_100, rest.id, { told: [1_000, 0, 30] })
    // The global window ends first; the own one holds 61 of ours until it does.
    const probe = told.take(31_200, 200)
    expect(probe.items).toBe(1)
    told.settle(31_250, probe.id, { told: [120, 58, 29] })
    expect(granted(told.ask(31_300, 200))).toBe(58)
  })

  test('an answer older than what is known changes nothing, and a gateway started anew is seen', () => {
    const told = learnt()
    const slow = told.take(55_000, 1)
    told.settle(60_300, slow.id, { told: [120, 118, 5] })
    expect(told.view(60_310)).toMatchObject({ spentItems: 0, roomItems: 120 })
    const again = told.take(60_400, 50)
    told.settle(60_450, again.id, { told: [120, 70, 60] })
    const restarted = told.take(90_000, 10)
    told.settle(90_050, restarted.id, { told: [120, 110, 60] })
    expect(granted(told.ask(90_060, 200))).toBe(110)
  })

  test('a count that lacks what must be in it is of a window that a gateway started anew has opened', () => {
    const told = learnt()
    const { id } = told.take(300, 10)
    told.settle(400, id, { told: [120, 110, 60] })
    expect(told.state().views).toMatchObject([{ endsByMs: at + 60_401, upperItems: 10 }])
  })

  test('§7: a 429 is waited out by everybody, by Retry-After and a jitter, and the next call is small', () => {
    const told = learnt()
    const call = told.take(1_000, 50)
    told.settle(1_050, call.id, { refused: true, retryAfterMs: 40_000, told: [120, 0, 40] })
    const wait = told.ask(1_060, 1)
    expect(wait).toMatchObject({ kind: 'wait', untilMs: at + 41_050 })
    expect(granted(told.ask(61_000, 100))).toBe(1)
  })

  test('§8: without RateLimit headers the documented default is kept to, from the first call on', () => {
    const told = history()
    const { id } = told.take(0, 100)
    told.settle(50, id, {})
    expect(told.view(60)).toMatchObject({ learnt: false, limitItems: 120, spentItems: 1 })
    expect(granted(told.ask(60, 200))).toBe(119)
    told.take(60, 200)
    expect(granted(told.ask(70, 1))).toBe('wait')
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

  test('R13: a state written in the future means that the clock was set back; its durations hold', () => {
    const told = learnt()
    told.take(200, 200)
    const wait = told.ask(-1_000_000, 1)
    expect(wait.kind === 'wait' ? (wait.untilMs ?? 0) - at : 0).toBeLessThanOrEqual(
      -1_000_000 + window + 200,
    )
  })
})

describe('forecast', () => {
  const fresh = viewOf(unknownBudget(at), at)

  test('§8: whole windows, of which the last one takes no time', () => {
    expect(forecast(fresh, 0)).toEqual({ windows: 0, seconds: 0 })
    expect(forecast(fresh, 120)).toEqual({ windows: 1, seconds: 0 })
    expect(forecast(fresh, 121)).toEqual({ windows: 2, seconds: 60 })
    expect(forecast(fresh, 1_200)).toEqual({ windows: 10, seconds: 540 })
  })

  test('what is spent of the current window is gone, and its rest comes first', () => {
    const told = learnt()
    const call = told.take(200, 99)
    told.settle(250, call.id, { told: [120, 20, 60] })
    expect(forecast(told.view(30_100), 141)).toEqual({ windows: 3, seconds: 91 })
  })
})
