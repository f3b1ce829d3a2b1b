import {
  afterCall,
  type CallResult,
  type ChargeLog,
  compacted,
  type Decision,
  decide,
  emptyLog,
  viewOf,
} from '#client/budget/window'

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
      return { id: `c${calls++}`, items: log.charges.at(-1)?.items ?? 0 }
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
      const result = { httpStatus: 200, rateLimit, ...rest }
      log = compacted(afterCall(log, id, result, at + ms, 0), at + ms)
    },
    view: (ms: number) => viewOf(log, at + ms),
    log: () => log,
  }
}

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

test('P2: a limit below the call is learned by halving, and tried again when it has held for ten windows', () => {
  for (const limit of [10, 60, 90]) {
    const told = history()
    let [ms, windowMs, spent, sent, refused] = [0, -window, 0, 0, 0]
    while (ms < 15 * window && sent < 300) {
      const decision = told.ask(ms, 100)
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
      told.settle(ms + 5, id, isRefused ? { httpStatus: 429, retryAfterMs } : {})
      ms += 6
    }
    expect(sent, `limit ${limit}`).toBeGreaterThanOrEqual(Math.min(300, limit * 4))
    expect(refused, `limit ${limit}`).toBeLessThanOrEqual(6)
  }
})
