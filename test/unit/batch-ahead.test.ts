import { expect, test } from 'vitest'
import { workingAhead } from '../../src/core/client/propose/ahead.js'

/** Lets everything run that needs no outside event. */
const settle = () => new Promise((resolve) => setImmediate(resolve))

async function* counting(to: number) {
  for (let n = 1; n <= to; n++) yield n
}

test('contract §6: results come in the order of the groups, each once, however slow the caller is', async () => {
  const taken: (readonly number[])[] = []
  for await (const some of workingAhead(counting(20), async (n) => [n, n + 0.5], 6)) {
    taken.push(some)
    if (taken.length % 2 === 0) await settle()
  }
  expect(taken.flat()).toEqual(Array.from({ length: 20 }, (_, at) => [at + 1, at + 1.5]).flat())
  expect(Math.max(...taken.map(({ length }) => length))).toBe(6)
})

test('R17: a caller that stays away finds no more than was asked for, and of two groups at a time', async () => {
  const begun: number[] = []
  const ahead = workingAhead(
    counting(1_000),
    async (n) => {
      begun.push(n)
      return [n]
    },
    4,
  )
  expect((await ahead.next()).value).toEqual([1])
  await settle()
  expect(begun, 'four that are there, one under way').toEqual([1, 2, 3, 4, 5, 6])
  expect((await ahead.next()).value).toEqual([2, 3, 4, 5])
  await ahead.return(undefined)
})

test('a caller that waits gets the first group as soon as there is one', async () => {
  const open: (() => void)[] = []
  const ahead = workingAhead(
    counting(3),
    (n) => new Promise<number[]>((resolve) => open.push(() => resolve([n]))),
    100,
  )
  for (const n of [1, 2, 3]) {
    const next = ahead.next()
    await settle()
    open.shift()?.()
    expect((await next).value).toEqual([n])
  }
  expect((await ahead.next()).done).toBe(true)
})

test('a failure comes after all that was made before it', async () => {
  const failing = async (n: number) => {
    if (n === 4) throw new Error('the fourth')
    return [n]
  }
  const taken: number[] = []
  const run = async () => {
    for await (const some of workingAhead(counting(9), failing, 100)) {
      taken.push(...some)
      await settle()
    }
  }
  await expect(run()).rejects.toThrow('the fourth')
  expect(taken).toEqual([1, 2, 3])
})

test('a later group that is done or has failed sooner waits for its turn', async () => {
  const open: (() => void)[] = []
  const outOfOrder = async (n: number) => {
    if (n === 1) await new Promise<void>((resolve) => open.push(resolve))
    if (n === 2) throw new Error('the second')
    return [n]
  }
  const ahead = workingAhead(counting(3), outOfOrder, 100)
  const first = ahead.next()
  await settle()
  open[0]?.()
  expect((await first).value).toEqual([1])
  await expect(ahead.next()).rejects.toThrow('the second')
})

test('once the caller has left, the work under way is told so and has ended, and nothing more is begun', async () => {
  const begun: number[] = []
  const ended: number[] = []
  let closed = false
  async function* source() {
    try {
      yield* counting(9)
    } finally {
      closed = true
    }
  }
  const untilLeft = async (n: number, left: AbortSignal) => {
    begun.push(n)
    if (n === 1) return [n]
    await new Promise((resolve) => left.addEventListener('abort', resolve, { once: true }))
    ended.push(n)
    throw new Error('nobody is there to be told')
  }
  for await (const some of workingAhead(source(), untilLeft, 100)) {
    expect(some).toEqual([1])
    await settle()
    break
  }
  expect({ begun, ended, closed }).toEqual({ begun: [1, 2, 3], ended: [2, 3], closed: true })
})
