import fc from 'fast-check'
import { budgetHeaders, clientKey, createBudget, parseCidr } from '#gateway/front/budget'

const limits = { windowMs: 60_000, perClientItems: 120, globalItems: 1_000 }

test('contract §2: a window opens with the first charged call after the last one ended; seconds are rounded up', () => {
  const budget = createBudget(limits)
  expect(budget.charge('a', 120, 30_000).admitted).toBe(true)
  expect(budget.charge('a', 1, 89_001)).toMatchObject({ admitted: false, retryAfterSeconds: 1 })
  expect(budget.charge('a', 1, 90_000)).toMatchObject({
    admitted: true,
    remainingItems: 119,
    resetSeconds: 60,
  })
  expect(budget.charge('a', 1, 91_500)).toMatchObject({
    admitted: true,
    remainingItems: 118,
    resetSeconds: 59,
  })
})

test('contract §2: the headers are those of the tighter window', () => {
  const budget = createBudget({ windowMs: 60_000, perClientItems: 10, globalItems: 12 })
  expect(budgetHeaders(budget.charge('a', 3, 0))).toEqual({
    'ratelimit-limit': '10',
    'ratelimit-remaining': '7',
    'ratelimit-reset': '60',
  })
  expect(budgetHeaders(budget.charge('b', 7, 20_000))).toEqual({
    'ratelimit-limit': '12',
    'ratelimit-remaining': '2',
    'ratelimit-reset': '40',
  })
})

test('contract §2: a caller refused by both windows waits for the later one', () => {
  const budget = createBudget({ windowMs: 60_000, perClientItems: 5, globalItems: 5 })
  budget.charge('a', 5, 0)
  expect(budget.charge('b', 6, 30_000)).toMatchObject({ admitted: false, retryAfterSeconds: 60 })
})

test('R17: the table is bounded, and the window that opened longest ago goes first', () => {
  const budget = createBudget({ windowMs: 60_000, perClientItems: 1, globalItems: 1_000 }, 3)
  for (const [at, client] of ['a', 'b', 'c', 'd'].entries()) budget.charge(client, 1, at)
  expect(budget.clients).toBe(3)
  expect(budget.spent('a', 10)).toBe(false)
  expect(budget.spent('b', 10)).toBe(true)
})

test('§8: over any calls, what is admitted in one window never exceeds the limits', () => {
  const call = fc.record({
    client: fc.constantFrom('a', 'b', 'c'),
    items: fc.integer({ min: 1, max: 60 }),
    gapMs: fc.nat(20_000),
  })
  fc.assert(
    fc.property(fc.array(call, { maxLength: 60 }), (calls) => {
      const budget = createBudget({ windowMs: 60_000, perClientItems: 100, globalItems: 150 })
      let now = 0
      let opened = -60_000
      let spent = 0
      const own = new Map<string, { opened: number; spent: number }>()
      for (const { client, items, gapMs } of calls) {
        now += gapMs
        if (now - opened >= 60_000) [opened, spent] = [now, 0]
        const held = own.get(client)
        const mine = held && now - held.opened < 60_000 ? held : { opened: now, spent: 0 }
        spent += Math.max(0, Math.min(items, 100 - mine.spent))
        mine.spent += items
        own.set(client, mine)
        const charge = budget.charge(client, items, now)
        expect(charge.admitted).toBe(spent <= 150 && mine.spent <= 100)
        expect(charge.remainingItems).toBe(Math.max(0, Math.min(150 - spent, 100 - mine.spent)))
        expect(charge.resetSeconds).toBeGreaterThanOrEqual(1)
      }
    }),
  )
})

const cidrs = (...texts: string[]) => texts.flatMap((text) => parseCidr(text) ?? [])

test('robustness §5: IPv4-mapped is IPv4, IPv6 counts per /64', () => {
  expect(clientKey('::ffff:192.0.2.7', null, [])).toBe('192.0.2.7')
  expect(clientKey('::ffff:c000:207', null, [])).toBe('192.0.2.7')
  expect(clientKey('2001:db8:1:2:3::4', null, [])).toBe('2001:db8:1:2::/64')
  expect(clientKey('2001:0DB8:0001:0002::', null, [])).toBe('2001:db8:1:2::/64')
  expect(clientKey('fe80::1%eth0', null, [])).toBe('fe80:0:0:0::/64')
})

test('robustness §5: a forwarding header from an untrusted peer counts for nothing', () => {
  expect(clientKey('192.0.2.7', '198.51.100.1', [])).toBe('192.0.2.7')
  expect(clientKey('192.0.2.7', '198.51.100.1', cidrs('10.0.0.0/8'))).toBe('192.0.2.7')
})

test('robustness §5: behind trusted proxies the rightmost untrusted hop is the client', () => {
  const trusted = cidrs('10.0.0.0/8', 'fd00::/8')
  expect(clientKey('10.1.2.3', '203.0.113.9, 198.51.100.1', trusted)).toBe('198.51.100.1')
  expect(
    clientKey('::ffff:10.1.2.3', '203.0.113.9, 198.51.100.1, 10.9.9.9, fd00::5', trusted),
  ).toBe('198.51.100.1')
  expect(clientKey('10.1.2.3', '2001:db8::1', trusted)).toBe('2001:db8:0:0::/64')
  expect(clientKey('10.1.2.3', '10.4.4.4', trusted)).toBe('10.4.4.4')
  expect(clientKey('10.1.2.3', '198.51.100.1, nonsense, 10.4.4.4', trusted)).toBe('10.4.4.4')
  expect(clientKey('10.1.2.3', '', trusted)).toBe('10.1.2.3')
})
