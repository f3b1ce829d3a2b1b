import { setImmediate } from 'node:timers/promises'
import fc from 'fast-check'
import { createRecoveries, type RecoveryParts } from '#gateway/front/line'
import type { RecoverPublicKey } from '#protocol/recovered'

const word = (n: number) => Uint8Array.of(n >> 8, n & 255)
const recover: RecoverPublicKey = (digest, compact, parity) =>
  (digest[1] ?? 0) % 7 === 0 ? undefined : Uint8Array.of(...digest, ...compact, parity)
const asked = (n: number) => [word(n), word(n * 3), n % 2 === 0 ? 0 : 1] as const
const allAsked = (count: number) => Array.from({ length: count }, (_, n) => asked(n))

const call = (client = 'a', waitedMs = 0) => ({ client, waitedMs })

function world(parts: Partial<RecoveryParts> = {}) {
  let nowMs = 0
  const seen = { here: 0, breaths: 0, longest: 0 }
  let run = 0
  const recoveries = createRecoveries({
    recover(...args) {
      nowMs += 0.1
      seen.here += 1
      run += 1
      seen.longest = Math.max(seen.longest, run)
      return recover(...args)
    },
    yieldToEvents: async () => {
      seen.breaths += 1
      run = 0
      await setImmediate()
    },
    clock: { monotonicMs: () => nowMs },
    ...parts,
  })
  return { recoveries, seen }
}

test('robustness §5: others have their turn after each half millisecond of a batch', async () => {
  const { recoveries, seen } = world()
  const keys = await Promise.all(allAsked(100).map((each) => recoveries(call(), ...each)))
  expect(keys).toEqual(allAsked(100).map((each) => recover(...each)))
  expect(seen.longest).toBeLessThanOrEqual(6)
  expect(seen.breaths).toBeGreaterThanOrEqual(100 / 6 - 1)
})

test('one alone waits for nobody', async () => {
  const { recoveries, seen } = world()
  expect(await recoveries(call(), ...asked(5))).toEqual(recover(...asked(5)))
  expect(seen.breaths).toBe(0)
})

test('each caller gets the answer to its own question, whenever they come', async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.array(fc.tuple(fc.nat(120), fc.nat(3)), { minLength: 1, maxLength: 6 }),
      async (bursts) => {
        const { recoveries } = world()
        const answers: Promise<Uint8Array | undefined>[] = []
        const expected: (Uint8Array | undefined)[] = []
        for (const [size, pause] of bursts) {
          for (const each of allAsked(size)) {
            answers.push(recoveries(call(), ...each))
            expected.push(recover(...each))
          }
          for (let turn = 0; turn < pause; turn += 1) await setImmediate()
        }
        expect(await Promise.all(answers)).toEqual(expected)
      },
    ),
    { numRuns: 60 },
  )
})

test('robustness §5: clients take turns, so that a large batch keeps nobody waiting but its sender', async () => {
  const { recoveries } = world()
  const order: string[] = []
  const of = (client: string, count: number) =>
    allAsked(count).map((each) => recoveries(call(client), ...each).then(() => order.push(client)))
  const batch = of('large', 300)
  await Promise.all(of('small', 3))
  expect(order.filter((client) => client === 'large').length).toBeLessThanOrEqual(12)
  await Promise.all(batch)
  expect(order).toHaveLength(303)
})

test('robustness §5: of admissions that stand in line those that have waited too long are 503, the others recovered', async () => {
  const { recoveries } = world()
  // 100 µs each: 40,000 take four seconds.
  const ended = await Promise.allSettled(
    allAsked(40_000).map((each) => recoveries(call(), ...each)),
  )
  const lost = ended.flatMap((one) => (one.status === 'rejected' ? [one.reason] : []))
  expect(lost.length).toBeGreaterThan(10_000)
  expect(lost.length).toBeLessThan(25_000)
  expect(new Set(lost.map(({ code }: { code: string }) => code))).toEqual(new Set(['server_busy']))
})

test('a bug of the curve reaches the caller whose signature it was, and nobody else', async () => {
  const broken: RecoverPublicKey = (...each) => {
    if (each[0][1] === 3 || each[0][1] === 97) throw new RangeError(`no point ${each[0][1]}`)
    return recover(...each)
  }
  const { recoveries } = world({ recover: broken })
  const ended = await Promise.allSettled(allAsked(100).map((each) => recoveries(call(), ...each)))
  expect(ended.flatMap(({ status }, n) => (status === 'rejected' ? [n] : []))).toEqual([3, 97])
  expect(await recoveries(call(), ...asked(8))).toEqual(recover(...asked(8)))
})
