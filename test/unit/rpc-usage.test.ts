import { expect, test } from 'vitest'
import { createUsageMeter } from '../../src/core/io/rpc/usage.js'
import { createTestClock } from '../support/front.js'
import { account, chainOf, hash, makeNode } from '../support/rpc-model.js'

test('calls are counted by class, those of the last minute and hour for themselves, and HTTP requests beside them', () => {
  const clock = createTestClock()
  const meter = createUsageMeter(clock)
  meter.note(['eth_getBlockByNumber', 'eth_chainId', 'eth_call'])
  expect(meter.now().perDay).toBeUndefined()
  clock.monotonic += 59 * 60_000
  meter.note(['eth_getLogs'])
  const { lastMinute, lastHour, total, perDay } = meter.now()
  expect(lastMinute).toEqual({
    requests: 1,
    methods: { heads: 0, logs: 1, contracts: 0, state: 0, transactions: 0 },
  })
  expect(lastHour).toEqual({
    requests: 2,
    methods: { heads: 2, logs: 1, contracts: 1, state: 0, transactions: 0 },
  })
  expect(total).toEqual(lastHour)
  // 4 methods and 2 requests in 59 minutes.
  expect(perDay).toEqual({ methods: 98, requests: 49 })
  clock.monotonic += 2 * 3_600_000
  expect(meter.now().lastHour.requests).toBe(0)
  expect(meter.now().total.requests).toBe(2)
  expect(meter.now().perDay).toEqual({ methods: 0, requests: 0 })
})

test('a chain counts what it asks of all its nodes, chain id included', async () => {
  const chain = chainOf([makeNode()])
  await Promise.all([chain.balance(account), chain.transactionCount(account, 'pending')])
  await chain.receipt(hash).catch(() => undefined)
  expect(chain.usage().total).toEqual({
    requests: 2,
    methods: { heads: 2, logs: 0, contracts: 0, state: 2, transactions: 1 },
  })
})
