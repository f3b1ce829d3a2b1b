import fc from 'fast-check'
import { createLine, lineLimits } from '#gateway/front/line'

const { targetMs, intervalMs } = lineLimits

interface Load {
  readonly everyMs: Readonly<Record<string, number>>
  readonly serveMs: number
  readonly refuseMs: number
  readonly lastsMs: number
}

function served({ everyMs, serveMs, refuseMs, lastsMs }: Load) {
  const line = createLine<string>()
  const next = Object.fromEntries(Object.keys(everyMs).map((client) => [client, 0]))
  const done: { client: string; waitedMs: number; isLate: boolean; atMs: number }[] = []
  for (let nowMs = 0; nowMs < lastsMs; ) {
    for (const [client, every] of Object.entries(everyMs)) {
      for (let at = next[client] ?? 0; at <= nowMs; at += every) {
        line.add(client, client, at)
        next[client] = at + every
      }
    }
    const turn = line.next(nowMs)
    if (turn === undefined) {
      nowMs += 0.25
      continue
    }
    const { work: client, waitedMs, isLate } = turn
    done.push({ client, waitedMs, isLate, atMs: nowMs })
    nowMs += isLate ? refuseMs : serveMs
  }
  const of = (client: string) => done.filter((one) => one.client === client)
  return { done, of }
}

test('robustness §5: work comes out once each, clients in turn, that of one client in its order', () => {
  fc.assert(
    fc.property(fc.array(fc.integer({ min: 0, max: 5 }), { maxLength: 3_000 }), (clients) => {
      const line = createLine<number>()
      for (const [n, client] of clients.entries()) line.add(String(client), n, 0)
      expect(line.length).toBe(clients.length)
      const out: number[] = []
      for (let turn = line.next(1); turn; turn = line.next(1)) out.push(turn.work)
      expect([...out].sort((a, b) => a - b)).toEqual(clients.map((_, n) => n))
      const left = new Map<number, number>()
      for (const client of clients) left.set(client, (left.get(client) ?? 0) + 1)
      const last = new Map<number, number>()
      for (const [at, n] of out.entries()) {
        const client = clients[n] ?? -1
        expect(n).toBeGreaterThan(last.get(client) ?? -1)
        last.set(client, n)
        const between = out.slice(Math.max(0, at - left.size + 1), at)
        expect(between.map((one) => clients[one])).not.toContain(client)
        const rest = (left.get(client) ?? 0) - 1
        if (rest > 0) left.set(client, rest)
        else left.delete(client)
      }
      expect(line.length).toBe(0)
    }),
    { numRuns: 30 },
  )
})

test('robustness §5: nothing is refused while work waits less than the target, however much there is', () => {
  fc.assert(
    fc.property(
      fc.array(fc.tuple(fc.integer({ min: 0, max: 3 }), fc.nat(targetMs - 1)), {
        maxLength: 500,
      }),
      fc.nat(50),
      (work, stepMs) => {
        const line = createLine<null>()
        let nowMs = 10_000
        for (const [client, waitedMs] of work) {
          line.add(String(client), null, nowMs - waitedMs)
          expect(line.next(nowMs)?.isLate).toBe(false)
          expect(line.pass('other', nowMs - waitedMs, nowMs)).toBe(true)
          nowMs += stepMs
        }
      },
    ),
  )
})

test.each([1_001, 60_000, 8 * 3_600_000])(
  'robustness §5: one pause of %i ms refuses nothing: what has waited through it is worked off',
  (pauseMs) => {
    const line = createLine<number>()
    for (let n = 0; n < 1_000; n += 1) line.add('a', n, n / 10)
    for (let nowMs = pauseMs, n = 0; n < 1_000; n += 1, nowMs += 0.9)
      expect(line.next(nowMs)?.isLate).toBe(false)
  },
)

test('robustness §5: of a line that stands, what has waited longer than the target is refused, never all', () => {
  const line = createLine<null>()
  const late = (waitedMs: number, nowMs: number) => !line.pass('a', nowMs - waitedMs, nowMs)
  const fromMs = 50_000
  expect(late(targetMs, fromMs)).toBe(false)
  expect(late(targetMs, fromMs + intervalMs / 2)).toBe(false)
  expect(late(targetMs, fromMs + intervalMs)).toBe(true)
  expect(line.pass('b', fromMs + intervalMs - 5 * targetMs, fromMs + intervalMs)).toBe(true)
  expect(late(targetMs - 1, fromMs + intervalMs + 1)).toBe(false)
  expect(late(10 * targetMs, fromMs + intervalMs + 2)).toBe(false)
  expect(late(targetMs, fromMs + 9 * intervalMs)).toBe(false)
})

test('robustness §5: with more work than can be done, what is done stays near what could be, and waits about the target', () => {
  fc.assert(
    fc.property(
      fc.double({ min: 1.1, max: 4, noNaN: true }),
      fc.double({ min: 2, max: 20, noNaN: true }),
      (times, serveMs) => {
        const lastsMs = 30_000
        const refuseMs = serveMs / 20
        const { done } = served({ everyMs: { a: serveMs / times }, serveMs, refuseMs, lastsMs })
        const good = done.filter(({ isLate }) => !isLate)
        // A refusal costs its twentieth: four times the work leaves 85 of 100.
        expect((good.length * serveMs) / lastsMs).toBeGreaterThan(0.8)
        const settled = good.filter(({ atMs }) => atMs > lastsMs / 3)
        const longest = Math.max(...settled.map(({ waitedMs }) => waitedMs))
        expect(longest).toBeLessThan(targetMs + intervalMs * times)
      },
    ),
    { numRuns: 20 },
  )
})

test('robustness §5: a client that asks for little is served at once and never refused, whatever another sends', () => {
  fc.assert(
    fc.property(
      fc.double({ min: 1.1, max: 10, noNaN: true }),
      fc.integer({ min: 20, max: 400 }),
      (times, everyMs) => {
        const serveMs = 5
        const { of } = served({
          everyMs: { flood: serveMs / times, little: everyMs },
          serveMs,
          refuseMs: 0.5,
          lastsMs: 15_000,
        })
        const little = of('little')
        expect(little.length).toBeGreaterThan(15_000 / everyMs - 3)
        for (const { isLate, waitedMs } of little) {
          expect(isLate).toBe(false)
          expect(waitedMs).toBeLessThanOrEqual(2 * serveMs)
        }
        expect(of('flood').some(({ isLate }) => isLate)).toBe(true)
      },
    ),
    { numRuns: 20 },
  )
})
