/**
 * T8: the executor killed at one and the same step again and again, with several candidates in
 * several rounds, on a chain that fails it: one transaction a round, always (R3, R15, R23).
 */
import type { Failpoint } from '#gateway/executor/state'
import type { Chain, ChainErrorKind, Hex } from '#ports'
import type { Candidate } from '#protocol/candidate'
import { scaled } from '#support/campaign'
import { createPipelineWorld, type PipelineWorld } from '#support/pipeline-world'
import { watchSends } from '#support/reorg-watch'
import { seededRandom } from '#support/sim-files'

class Killed extends Error {}

const points: readonly Parameters<Failpoint>[0][] = [
  'selected',
  'reserved',
  'prepared',
  'sent',
  'confirmed',
]
const seeds = Array.from({ length: scaled(20) }, (_, index) => index + 1)
const rounds = 5
const troubledTurns = 40
const calmTurns = 30
const secondWave = 12

const flaky: readonly (keyof Chain)[] = [
  'block',
  'call',
  'logs',
  'receipt',
  'hasTransaction',
  'transactionCount',
  'estimateGas',
]
const sendFaults: readonly ChainErrorKind[] = [
  'unavailable',
  'already_known',
  'nonce_too_low',
  'nonce_too_high',
  'replacement_underpriced',
  'refused',
]

function trouble({ chain }: PipelineWorld, chance: { next(): number }): void {
  const pick = <T>(list: readonly T[]): T => list[Math.floor(chance.next() * list.length)] as T
  if (chance.next() < 0.2) chain.fault(pick(flaky), 'unavailable')
  if (chance.next() < 0.2) chain.fault('send', pick(sendFaults))
  if (chance.next() < 0.15) chain.fault('send', 'unavailable', { applied: true })
  if (chance.next() < 0.1) chain.clearPool()
  if (chance.next() < 0.15 && chain.head.number > 16n) {
    const depth = 1 + Math.floor(chance.next() * 2)
    chain.reorg(depth, { drop: chance.next() < 0.5 })
    chain.mine(depth, { empty: chance.next() < 0.5 })
  }
}

async function schedule(point: Parameters<Failpoint>[0], seed: number): Promise<number> {
  const chance = seededRandom(seed * 6151)
  const world = await createPipelineWorld({ seed })
  const watch = watchSends(world.chain, world.executor.address)
  const questionIds: Hex[] = []
  for (let n = 0; n < rounds; n += 1) questionIds.push(await world.question(`q${n}`))
  const candidates: Candidate[] = []
  const wave = async (count: number) => {
    for (const questionId of questionIds.slice(
      candidates.length / 2,
      candidates.length / 2 + count,
    )) {
      const by = candidates.length % 3
      candidates.push(
        await world.submit(questionId, { by }),
        await world.submit(questionId, { by: (by + 1) % 3, price: '0' }),
      )
    }
  }
  await wave(3)
  let kills = 0
  let isMortal = true
  world.failpoint = async (name) => {
    if (!isMortal || name !== point || (kills > 0 && chance.next() < 0.5)) return
    kills += 1
    throw new Killed(name)
  }
  for (let turn = 0; turn < troubledTurns + calmTurns; turn += 1) {
    isMortal = turn < troubledTurns
    if (turn === secondWave) {
      world.chain.clearFaults()
      await world.view.poll()
      await wave(2)
    }
    if (isMortal && kills > 0) trouble(world, chance)
    if (!isMortal) world.chain.clearFaults()
    try {
      await world.turn()
    } catch (error) {
      if (!(error instanceof Killed)) throw error
      await world.restart()
    }
    world.chain.mine(1, { empty: isMortal && chance.next() < 0.4 })
    world.clock.monotonic += 5_000
  }
  const done = await Promise.all(candidates.map(world.now))
  const ends = done.map(({ progress }) =>
    progress.status === 'failed' ? progress.failure.code : progress.status,
  )
  expect(ends, `seed ${seed}`).toEqual(
    Array.from({ length: rounds }, () => ['executed', 'not_selected']).flat(),
  )
  expect(done.map(({ id }) => id)).toEqual(candidates.map(({ id }) => id))
  expect(watch.faults, `seed ${seed}`).toEqual([])
  const nonces = [...watch.noncesByRound().values()].map(({ size }) => size)
  expect(nonces, `seed ${seed}: a nonce for each round, and no other ever`).toEqual(
    Array.from({ length: rounds }, () => 1),
  )
  const receipts = watch.handed.flatMap(({ hash }) => world.chain.truth.receipt(hash) ?? [])
  expect(
    receipts.filter(({ status }) => status !== 'success'),
    `seed ${seed}`,
  ).toEqual([])
  expect(world.ledger.slots(), `seed ${seed}`).toEqual([])
  return kills
}

describe('R3, R15, R23: killed again and again at one step, with node faults, drops and reorganisations', () => {
  test.each(points)(
    'at "%s", in 20 worlds of 5 rounds: one transaction a round, and the lowest candidate is executed under its id',
    async (point) => {
      const kills = []
      for (const seed of seeds) kills.push(await schedule(point, seed))
      expect(Math.min(...kills), 'every world saw a kill').toBeGreaterThan(0)
    },
    60_000,
  )
})
