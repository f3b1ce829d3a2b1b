/** The newest candidates and the way of each, as the operator's page shows them. */
import { describe, expect, test } from 'vitest'
import type { CandidateRef } from '../../src/core/gateway/ledger/ledger.js'
import {
  followRecent,
  type RecentDetail,
  recentKept,
} from '../../src/core/gateway/status/recent.js'
import { createPipelineWorld, oneCandidate, type PipelineWorld } from '../support/pipeline-world.js'

const following = (world: PipelineWorld) =>
  followRecent(world.ledger, (id) => `slug-${id.slice(2, 6)}`)
const told = (detail: RecentDetail | undefined) => detail?.steps.map(({ what }) => what)

describe('the list', () => {
  test('contract §5: a candidate stands in it from its admission, and changes as it goes on', async () => {
    const world = await createPipelineWorld()
    const recent = following(world)
    expect(await recent.rows()).toEqual([])
    await world.submit(await world.question())
    const before = await recent.rows()
    expect(before).toMatchObject([
      { status: 'received', submission: null, failure_code: null, outcome: 'p2' },
    ])
    expect(before[0]?.slug).toMatch(/^slug-/)
    expect(await recent.rows()).toBe(before)
    await world.turn()
    expect(await recent.rows()).toMatchObject([{ status: 'selected', submission: 'submitted' }])
    await world.pass(4)
    expect(await recent.rows()).toMatchObject([{ status: 'executed', submission: 'indexed' }])
    recent.stop()
    await world.submit(await world.question())
    expect(await recent.rows()).toHaveLength(1)
  })

  test('R17: of a store it takes over the newest only', async () => {
    const asked: string[] = []
    const ledger = {
      get: async (id: string) => {
        asked.push(id)
        return undefined
      },
      newest: function* (count = 0) {
        for (let sequence = 99; sequence > 99 - count; sequence -= 1)
          yield { id: String(sequence), sequence } as CandidateRef
      },
      slotOf: () => undefined,
      onChange: () => () => undefined,
    }
    await followRecent(ledger, () => undefined).rows()
    expect(asked).toEqual(Array.from({ length: recentKept }, (_, index) => String(99 - index)))
  })
})

describe('the way of a candidate', () => {
  test('contract §5: is told step by step, with the transactions of an open slot, and without a signature (R5)', async () => {
    const { world, candidate } = await oneCandidate()
    const recent = following(world)
    await world.turn()
    const open = await recent.detail(candidate.id)
    expect(told(open)).toEqual([
      'received',
      'validated',
      'selected for execution',
      'signed under nonce 0',
      'submitted',
    ])
    expect(open?.steps.every(({ at }) => at !== null)).toBe(true)
    await world.pass(4)
    const done = await recent.detail(candidate.id)
    expect(told(done)).toEqual([
      'received',
      'validated',
      'selected for execution',
      'submitted',
      'confirmed',
      'on the chain',
    ])
    expect(done?.steps.at(-1)?.detail).toMatch(/^ProposePrice is log \d+ of its block$/)
    expect(JSON.stringify([open, done])).not.toContain(candidate.signature.slice(2))
    expect(await recent.detail('00000000-0000-4000-8000-00000000ffff')).toBeUndefined()
  })

  test('robustness §3: a higher fee is a step of its own', async () => {
    const { world, candidate } = await oneCandidate()
    const recent = following(world)
    world.chain.fault('send', 'underpriced', { times: 2 })
    await world.turn()
    world.clock.monotonic += 30_000
    await world.pass(1)
    expect(told(await recent.detail(candidate.id))).toContain(
      'signed again at a higher fee under nonce 0',
    )
  })
})
