/** What the view asks while nobody waits, and how soon it looks again when somebody does. */
import { describe, expect, test } from 'vitest'
import { createPace } from '../../src/core/gateway/view/pace.js'
import { createChainView } from '../../src/core/gateway/view/view.js'
import type { BlockHeader } from '../../src/core/ports.js'
import type { Address } from '../../src/core/protocol/schema.js'
import { createFakeChain, createFakeClock } from '../support/fake-chain.js'
import { ask, questionText } from '../support/fake-events.js'
import { fakeContracts } from '../support/fake-world.js'

const wallet: Address = `0x${'77'.repeat(20)}`

async function idle() {
  const chain = createFakeChain()
  const clock = createFakeClock(chain)
  const questionId = ask(chain, questionText('Rain?'))
  chain.mine(5)
  const setting = { waits: false }
  const ledger = {
    info: undefined,
    allowlist: new Set<Address>([wallet]),
    finalized: undefined,
    active: () => [],
    implementations: new Map(),
  }
  const view = createChainView({ clock, chain }, fakeContracts, ledger, {
    maxHeadAgeSeconds: 30,
    entries: [],
    waits: () => setting.waits,
  })
  await view.poll()
  /** What looks over so many blocks ask. */
  const asked = async (blocks: number, act: () => void = () => chain.mine()) => {
    const before = new Map(chain.calls)
    for (let block = 0; block < blocks; block += 1) {
      act()
      clock.monotonic += 2_000
      await view.poll()
    }
    return Object.fromEntries(
      [...chain.calls]
        .map(([method, count]) => [method, count - (before.get(method) ?? 0)])
        .filter(([, count]) => count !== 0),
    )
  }
  return { chain, clock, view, questionId, setting, asked }
}

describe('while nobody waits', () => {
  test('a look asks for the newest block and its logs; chain and final block every 30 s', async () => {
    const { asked, chain, view } = await idle()
    expect(await asked(14)).toEqual({ block: 14, logs: 14 })
    expect(await asked(1)).toEqual({ chainId: 1, block: 2, logs: 1 })
    expect(view.heads()?.finalized.number).toBe(chain.head.number - BigInt(chain.finalityLag))
    expect(await asked(14)).toEqual({ block: 14, logs: 14 })
    expect(view.faults()).toEqual([])
  })

  test('the code of allowed wallets is read again before it is too old to answer from', async () => {
    const { asked, view } = await idle()
    expect((await asked(119)).code).toBeUndefined()
    expect((await asked(2)).code).toBe(1)
    expect(view.knownCode(wallet)).toBe(false)
  })

  test('once somebody waits, the next look reads the final block, and each one after it', async () => {
    const { asked, chain, view, setting } = await idle()
    await asked(3)
    const before = view.heads()?.finalized.number ?? 0n
    setting.waits = true
    expect(await asked(2)).toMatchObject({ chainId: 2, block: 4 })
    expect(view.heads()?.finalized.number).toBe(chain.head.number - BigInt(chain.finalityLag))
    expect(view.heads()?.finalized.number).toBeGreaterThan(before)
  })

  test('R16: a node that comes to be on another chain is a fault once its newest block is asked for in vain', async () => {
    const { asked, chain, view } = await idle()
    const { block } = chain
    chain.block = async () => null
    chain.chainId = async () => 1
    await asked(1)
    expect(view.faults()).toEqual([`the node is on chain 1, not on ${fakeContracts.chainId}`])
    chain.block = block
    chain.chainId = async () => fakeContracts.chainId
    await asked(1)
    expect(view.faults()).toEqual([])
  })
})

describe('the pace', () => {
  const header = (number: number, seconds: number): BlockHeader => ({
    number: BigInt(number),
    hash: `0x${number.toString(16).padStart(64, '0')}`,
    parentHash: `0x${(number - 1).toString(16).padStart(64, '0')}`,
    timestamp: BigInt(seconds),
    baseFeePerGas: 0n,
  })

  /** Looks for so long at a chain whose n-th block comes at `n * blockMs + offset(n)`. */
  function looks(
    blockMs: number,
    minutes: number,
    { offset = () => 0, waits = false, lookMs = 80 }: Partial<Options> = {},
  ) {
    const pace = createPace()
    const comes = (n: number) => n * blockMs + offset(n)
    let count = 0
    let now = 0
    const lateMs: number[] = []
    let block = 0
    let counted = 0
    for (; now < minutes * 60_000; now = Math.max(now, pace.dueAtMs(waits, false))) {
      const startedMs = now
      const before = block
      while (comes(block + 1) <= now) block += 1
      now += lookMs
      pace.looked(header(block, Math.floor((block * blockMs) / 1000)), startedMs, now)
      // The measure and the step take some blocks.
      if (startedMs < 120_000) continue
      count += 1
      counted += block - before
      if (block > before) lateMs.push(startedMs - comes(block))
    }
    return { perBlock: count / counted, worstMs: Math.max(...lateMs) }
  }
  interface Options {
    readonly offset: (block: number) => number
    readonly waits: boolean
    readonly lookMs: number
  }

  test.each([1_000, 1_750, 2_000, 2_300, 5_000, 12_000])(
    'blocks of %i ms: about one look a block, soon after it comes',
    (blockMs) => {
      const { perBlock, worstMs } = looks(blockMs, 30)
      expect(perBlock).toBeLessThan(1.45)
      expect(worstMs).toBeLessThanOrEqual(Math.max(250, blockMs / 8) + 160)
    },
  )

  test('blocks that come up to a tenth of their time early or late cost few looks more', () => {
    const { perBlock } = looks(2_000, 30, { offset: (n) => ((n * 7_919) % 401) - 200 })
    expect(perBlock).toBeLessThan(1.8)
  })

  test.each([2, 6, 12])(
    'a chain that stood still for 8 s after block %i: no later block is missed',
    (pausedAt) => {
      const pace = createPace()
      const comes = (n: number) => n * 2_000 + (n > pausedAt ? 8_000 : 0)
      const missed: number[] = []
      let block = 0
      for (let now = 0; now < 600_000; now = Math.max(now, pace.dueAtMs(false, false))) {
        const before = block
        while (comes(block + 1) <= now) block += 1
        if (block > Math.max(before + 1, pausedAt + 6)) missed.push(block)
        pace.looked(header(block, Math.floor(comes(block) / 1000)), now, now + 80)
        now += 80
      }
      expect(missed).toEqual([])
    },
  )

  test('while somebody waits: each half block time, and 2 s at most', () => {
    expect(looks(2_000, 10, { waits: true, lookMs: 0 }).perBlock).toBeCloseTo(2, 1)
    expect(looks(12_000, 10, { waits: true, lookMs: 0 }).perBlock).toBeCloseTo(6, 1)
  })

  /** Twenty blocks of 2 s have been seen, each as it came. */
  function steady() {
    const pace = createPace()
    for (let n = 0; n < 20; n += 1) pace.looked(header(n, 2 * n), n * 2_000, n * 2_000)
    return { pace, lastMs: 19 * 2_000 }
  }

  test('who is told of blocks does not look before the half of the next one has passed in silence', () => {
    const { pace, lastMs } = steady()
    const polling = pace.dueAtMs(false, false)
    expect(polling).toBeLessThanOrEqual(lastMs + 2_000)
    expect(pace.told(19n, lastMs + 10)).toBe(true)
    expect(pace.dueAtMs(false, false)).toBe(lastMs + 3_000)
    expect(pace.dueAtMs(true, false)).toBe(lastMs + 1_000)
    // The block comes, and nobody tells of it: from now on it is polled as before.
    pace.looked(header(20, 40), lastMs + 3_000, lastMs + 3_000)
    expect(pace.dueAtMs(false, false)).toBeLessThanOrEqual(lastMs + 5_000)
  })

  test('a chain that stands still is not looked at more often because its blocks were told of', () => {
    const { pace, lastMs } = steady()
    pace.told(19n, lastMs)
    let now = lastMs
    let looksMade = 0
    for (; now < lastMs + 60_000; now = pace.dueAtMs(false, false)) {
      if (now > lastMs) pace.looked(header(19, 38), now, now)
      looksMade += 1
    }
    expect(looksMade).toBeLessThan(66)
  })

  test('a block that is told of is looked for at once, and waited for from then on', () => {
    const { pace, lastMs } = steady()
    expect(pace.told(20n, lastMs + 1_900)).toBe(true)
    expect(pace.dueAtMs(false, false)).toBeLessThanOrEqual(lastMs + 1_900)
    pace.looked(header(20, 40), lastMs + 1_900, lastMs + 1_980)
    expect(pace.dueAtMs(false, false)).toBe(lastMs + 1_900 + 3_000)
  })

  test('a look that began before the news came is followed by one for them', () => {
    const { pace, lastMs } = steady()
    pace.told(20n, lastMs + 1_950)
    pace.looked(header(19, 38), lastMs + 1_900, lastMs + 2_000)
    expect(pace.dueAtMs(false, false)).toBeLessThanOrEqual(lastMs + 2_150)
    pace.looked(header(20, 40), lastMs + 2_150, lastMs + 2_200)
    expect(pace.dueAtMs(false, false)).toBe(lastMs + 2_150 + 3_000)
  })

  test.each([
    ['far ahead', () => 2n ** 60n],
    ['one ahead', (head: bigint) => head + 1n],
    ['back', (head: bigint) => head - 5n],
    ['the same', (head: bigint) => head],
    ['anything', (head: bigint, n: number) => [head, head + 1n, 2n ** 60n, 0n][n % 4] ?? 0n],
  ])(
    'R16, R17: numbers that are %s, ten times a second, cost at most one look a block',
    (_, number) => {
      const blockMs = 2_000
      const count = (isLying: boolean) => {
        const pace = createPace()
        let looksMade = 0
        let worstMs = 0
        let seen = -1
        for (let now = 0, told = 0; now < 600_000; now += 10) {
          const block = Math.floor(now / blockMs)
          if (isLying && now % 100 === 0) pace.told(number(BigInt(Math.max(seen, 0)), told++), now)
          if (now < pace.dueAtMs(false, false)) continue
          looksMade += 1
          if (block > seen && now > 60_000) worstMs = Math.max(worstMs, now - block * blockMs)
          seen = block
          pace.looked(header(block, block * 2), now, now)
        }
        return { looksMade, worstMs }
      }
      const [honest, lying] = [count(false), count(true)]
      expect(lying.looksMade).toBeLessThan(honest.looksMade + 600_000 / blockMs + 5)
      // What is told wrongly delays a block by no more than the silence that is waited for.
      expect(lying.worstMs).toBeLessThanOrEqual(blockMs)
    },
  )

  test('who tells wrong numbers again and again is listened to ever more rarely, until a right one', () => {
    const { pace, lastMs } = steady()
    let now = lastMs + 10
    const deaf: number[] = []
    for (let time = 0; time < 4; time += 1) {
      while (!pace.told(2n ** 60n, now)) now += 10
      deaf.push(now)
      pace.looked(header(19, 38), now + 1, now + 1)
    }
    expect(deaf.slice(1).map((at, n) => at - (deaf[n] ?? 0))).toEqual([2_010, 4_010, 8_010])
    while (!pace.told(20n, now)) now += 10
    pace.looked(header(20, 40), now, now)
    expect(pace.told(2n ** 60n, now + 10)).toBe(true)
    pace.looked(header(20, 40), now + 20, now + 20)
    expect(pace.told(2n ** 60n, now + 2_040)).toBe(true)
  })

  test('a chain without a pace is looked at as often as if somebody waited', () => {
    const { perBlock } = looks(2_000, 10, { lookMs: 0 })
    expect(perBlock).toBeLessThan(1.4)
    const pace = createPace()
    const seconds = [0, 1, 40, 41, 90, 91, 92, 140]
    seconds.forEach((at, n) => {
      pace.looked(header(n, at), at * 1_000, at * 1_000)
    })
    expect(pace.dueAtMs(false, false)).toBe(142_000)
  })
})
