import fc from 'fast-check'
import { createPlanner, withBudget } from '#client/budget/planner'
import { pollCandidates } from '#client/follow/follow'
import { createGatewayClient } from '#client/gateway/gateway-client'
import { createBudget } from '#gateway/front/budget'
import { eventClock, sha256 } from '#support/client-world'
import { SimFiles, SimHost, seeded, seededRandom } from '#support/sim-files'
import { statusGateway } from '#support/status-gateway'

interface Life {
  readonly ageMs: number | undefined
  readonly lifeMs: number
  readonly fails?: boolean
}
interface Polled {
  readonly lives: readonly Life[]
  readonly limitItems: number
  readonly latencyMs: number
  readonly timeoutMs?: number
}

async function polled({ lives, limitItems, latencyMs, timeoutMs }: Polled) {
  const clock = eventClock()
  const gateway = statusGateway(clock)
  gateway.budget = createBudget({
    windowMs: 60_000,
    perClientItems: limitItems,
    globalItems: 1_000_000,
  })
  const failure = {
    stage: 'validation',
    code: 'permit_expired',
    detail: 'x',
    retryable: false,
    can_resubmit: false,
    next_action: 'sign_new_authorization',
  } as const
  const startMs = clock.nowMs()
  const targets = lives.map(({ ageMs, lifeMs, fails = false }) => {
    const receivedMs = startMs - (ageMs ?? 0)
    const candidateId = gateway.admit({ lifeMs, receivedMs, failure: fails ? failure : null })
    const sentAtMs = ageMs === undefined ? undefined : receivedMs
    return { candidateId, identifier: gateway.questionId, sentAtMs }
  })
  const client = createGatewayClient({
    fetch: async (input, init) => {
      await clock.sleep(latencyMs)
      return gateway.fetch(input, init)
    },
    baseUrl: gateway.url,
    clock,
  })
  const [files, liveness] = [new SimFiles().process(), new SimHost().liveness(1)]
  const ports = { clock, files, liveness, hash: sha256, random: seededRandom(1) }
  const planner = createPlanner(ports, '/home', client.origin)
  const parts = { ports, gateway: withBudget(client, planner) }
  const ended = new Set<string>()
  const result = await clock.drive(
    pollCandidates(parts, targets, {
      brief: true,
      timeoutMs,
      onStatus: ({ candidate_id, status }) => {
        expect(ended.has(candidate_id)).toBe(false)
        if (status === 'executed' || status === 'failed') ended.add(candidate_id)
      },
    }),
  )
  const seen = targets.map(({ candidateId }) => ended.has(candidateId))
  const looks = [...gateway.looks.single, ...gateway.looks.batch.flat()]
  return { ...result, seen, looks, refused: gateway.refused }
}

const orders = {
  together: () => 0.5,
  inOrder: (share: number) => share,
  alone: (_: number, random: () => number) => random(),
  mixed: (share: number, random: () => number) => (share + random()) / 2,
} as const

const crowd = fc.record({
  seed: fc.nat(),
  order: fc.constantFrom(...(Object.keys(orders) as (keyof typeof orders)[])),
  count: fc.integer({ min: 100, max: 400 }),
  leastMs: fc.integer({ min: 300, max: 4_000 }),
  spreadMs: fc.integer({ min: 0, max: 4_000 }),
  failShare: fc.constantFrom(0, 0.05),
  known: fc.boolean(),
  limitItems: fc.constantFrom(120, 200, 1_000),
  latencyMs: fc.integer({ min: 1, max: 300 }),
})
type Crowd = typeof crowd extends fc.Arbitrary<infer Given> ? Given : never
/** A group of 31 was asked for after one look ahead. */
const outOfOrder: Crowd = {
  ...{ seed: 7, order: 'mixed', count: 100, leastMs: 300, spreadMs: 1_234 },
  ...{ failShare: 0.05, known: false, limitItems: 120, latencyMs: 1 },
}

const anything = fc.record({
  lives: fc.array(
    fc.record({
      ageMs: fc.option(fc.integer({ min: 0, max: 200_000 }), { nil: undefined }),
      lifeMs: fc.oneof(fc.integer({ min: 1, max: 100_000 }), fc.constant(Number.POSITIVE_INFINITY)),
      fails: fc.boolean(),
    }),
    { minLength: 1, maxLength: 120 },
  ),
  limitItems: fc.integer({ min: 10, max: 300 }),
  latencyMs: fc.integer({ min: 1, max: 2_000 }),
})

test('§8: many candidates that end within seconds cost at most 1.15 items each, and no call is refused', async () => {
  await fc.assert(
    fc.asyncProperty(crowd, async ({ seed, order, count, leastMs, spreadMs, ...given }) => {
      const random = seeded(seed)
      const lives = Array.from({ length: count }, (_, index): Life => {
        const lifeMs = leastMs + spreadMs * orders[order](index / count, random)
        return { ageMs: given.known ? 0 : undefined, lifeMs, fails: random() < given.failShare }
      })
      const { looks, seen, refused } = await polled({ lives, ...given })
      expect(seen.every(Boolean)).toBe(true)
      expect(refused).toBe(0)
      expect(looks.length / count).toBeLessThanOrEqual(1.15)
    }),
    { numRuns: 25, examples: [[outOfOrder]] },
  )
}, 120_000)

test('nobody starves: whoever has ended is seen, and is never asked for again', async () => {
  await fc.assert(
    fc.asyncProperty(anything, async (given) => {
      const timeoutMs = 1_800_000
      const { seen, refused } = await polled({ ...given, timeoutMs })
      expect(refused).toBe(0)
      const roundMs = (given.lives.length * 4 * 60_000) / Math.min(240, given.limitItems)
      const patienceMs = 2 * roundMs + 200_000
      for (const [at, { lifeMs, ageMs = 0 }] of given.lives.entries())
        if (lifeMs - ageMs + patienceMs < timeoutMs) expect(seen[at]).toBe(true)
    }),
    { numRuns: 12 },
  )
}, 120_000)

test('§8: looks in vain take no more than a quarter of the limit', async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.integer({ min: 1, max: 400 }),
      fc.integer({ min: 20, max: 400 }),
      fc.integer({ min: 1, max: 500 }),
      async (count, limitItems, latencyMs) => {
        const forever = Array.from({ length: count }, () => ({
          ageMs: undefined,
          lifeMs: Number.POSITIVE_INFINITY,
        }))
        const given = { lives: forever, limitItems, latencyMs, timeoutMs: 600_000 }
        const { looks, refused } = await polled(given)
        expect(refused).toBe(0)
        const burst = Math.max(6, count / 25) + 6
        // All of so few fit into one round, and a round that has begun is finished.
        const last = count <= 6 ? 5 : 1
        expect(looks.length).toBeLessThanOrEqual(Math.ceil(burst + 2.5 * limitItems) + last)
        expect(looks.length).toBeGreaterThan(0)
      },
    ),
    {
      numRuns: 12,
      examples: [
        [5, 20, 1],
        [6, 27, 250],
        [6, 53, 1],
      ],
    },
  )
}, 120_000)
