/**
 * T8: the executor killed at each step and started again from the same store, on a chain that loses
 * answers, drops transactions and reorganises. Whatever happens: one nonce and one executed
 * transaction a round, and the candidate ends as executed under its own id.
 */
import { describe, expect, test } from 'vitest'
import type { Failpoint } from '#gateway/executor/state'
import type { Chain, ChainErrorKind } from '#ports'
import { createPipelineWorld, type PipelineWorld, seededRandom } from '#support/pipeline-world'
import { watchSends } from '#support/reorg-watch'

class Killed extends Error {}

const points: readonly Parameters<Failpoint>[0][] = [
  'selected',
  'reserved',
  'prepared',
  'sent',
  'confirmed',
]

async function stepOrDie(world: PipelineWorld): Promise<boolean> {
  try {
    await world.turn()
    return false
  } catch (error) {
    if (!(error instanceof Killed)) throw error
    await world.restart()
    return true
  }
}

describe('R15, R23: killed at a failpoint', () => {
  test.each(points)(
    'after %s, and started again: one transaction, executed, the same id',
    async (point) => {
      const world = await createPipelineWorld()
      const questionId = await world.question()
      const candidate = await world.submit(questionId)
      let armed = true
      world.failpoint = async (name) => {
        if (!armed || name !== point) return
        armed = false
        throw new Killed(name)
      }
      let kills = 0
      for (let block = 0; block < 8; block += 1) {
        if (await stepOrDie(world)) kills += 1
        world.chain.mine()
        world.clock.monotonic += 2_000
      }
      expect(kills).toBe(1)
      const done = await world.now(candidate)
      expect(done.id).toBe(candidate.id)
      expect(done.progress).toMatchObject({ status: 'executed', submission: { status: 'indexed' } })
      expect(world.chain.taken).toHaveLength(1)
      expect(world.ledger.slots()).toEqual([])
    },
  )

  test('after every failpoint in turn', async () => {
    const world = await createPipelineWorld()
    const candidate = await world.submit(await world.question())
    const left = new Set(points)
    world.failpoint = async (name) => {
      if (left.delete(name)) throw new Killed(name)
    }
    for (let block = 0; block < 16; block += 1) {
      await stepOrDie(world)
      world.chain.mine()
      world.clock.monotonic += 2_000
    }
    expect(left.size).toBe(0)
    expect(await world.end(candidate)).toBe('executed')
    expect(world.chain.taken).toHaveLength(1)
  })
})

const flaky: readonly (keyof Chain)[] = [
  'block',
  'call',
  'logs',
  'receipt',
  'hasTransaction',
  'transactionCount',
  'tip',
  'estimateGas',
  'balance',
]
const sendFaults: readonly ChainErrorKind[] = [
  'unavailable',
  'nonce_too_low',
  'replacement_underpriced',
  'nonce_too_high',
  'refused',
]

async function schedule(seed: number): Promise<void> {
  const chance = seededRandom(seed * 7919)
  const pick = <T>(list: readonly T[]): T => list[Math.floor(chance.next() * list.length)] as T
  const world = await createPipelineWorld({ seed })
  const watch = watchSends(world.chain, world.executor.address)
  const questions = [
    await world.question('a'),
    await world.question('b'),
    await world.question('c'),
  ]
  const candidates = []
  for (const questionId of questions) {
    for (const by of [0, 1])
      candidates.push(
        await world.submit(questionId, { by, price: by === 0 ? '0' : '1000000000000000000' }),
      )
  }
  let trouble = true
  world.failpoint = async (name) => {
    if (trouble && chance.next() < 0.15) throw new Killed(name)
  }
  for (let turn = 0; turn < 90; turn += 1) {
    trouble = turn < 55
    if (!trouble) world.chain.clearFaults()
    if (trouble) {
      if (chance.next() < 0.25) world.chain.fault(pick(flaky), 'unavailable')
      if (chance.next() < 0.2) world.chain.fault('send', pick(sendFaults))
      if (chance.next() < 0.1) world.chain.fault('send', 'unavailable', { applied: true })
      if (chance.next() < 0.1) world.chain.clearPool()
      if (chance.next() < 0.1 && world.chain.head.number > 12n) {
        const depth = 1 + Math.floor(chance.next() * 2)
        world.chain.reorg(depth, { drop: chance.next() < 0.5 })
        world.chain.mine(depth, { empty: chance.next() < 0.5 })
      }
      if (chance.next() < 0.1) await world.restart()
    }
    await stepOrDie(world)
    world.chain.mine(1, { empty: trouble && chance.next() < 0.4 })
    world.clock.monotonic += 5_000
  }
  const done = await Promise.all(candidates.map(world.now))
  for (const [index] of questions.entries()) {
    const pair = done.slice(index * 2, index * 2 + 2)
    const ends = pair.map(({ progress }) =>
      progress.status === 'failed' ? progress.failure.code : progress.status,
    )
    expect(ends, `seed ${seed}`).toEqual(['executed', 'not_selected'])
  }
  expect(watch.faults, `seed ${seed}`).toEqual([])
  const nonces = [...watch.noncesByRound().values()].map(({ size }) => size)
  expect(nonces, `seed ${seed}: a nonce for each round, and no other ever`).toEqual([1, 1, 1])
  expect(world.ledger.slots(), `seed ${seed}`).toEqual([])
}

test('R3: sixteen schedules', async () => {
  for (let seed = 1; seed <= 16; seed += 1) await schedule(seed)
}, 60_000)
