import type { CandidateRef } from '#gateway/ledger/ledger'
import { followRecent, type Recent, recentKept } from '#gateway/status/recent'
import { instant } from '#protocol/candidate'
import type { FailureCode } from '#protocol/codes'
import { failed } from '#support/candidates'
import { createPipelineWorld, oneCandidate, type PipelineWorld } from '#support/pipeline-world'

const following = (world: PipelineWorld, ledger: PipelineWorld['ledger'] = world.ledger) =>
  followRecent(ledger, world.clock, (id) => ({
    slug: `slug-${id.slice(2, 6)}`,
    outcomes: [{ outcome: 'p2', label: 'Yes' }],
    token: { symbol: 'USDC.e', decimals: 6 },
  }))
const told = (detail: Awaited<ReturnType<Recent['detail']>>) =>
  detail?.steps.map(({ what }) => what)

test('contract §5: a candidate stands in it from its admission, and changes as it goes on', async () => {
  const world = await createPipelineWorld()
  const recent = following(world)
  expect(await recent.rows()).toEqual([])
  await world.submit(await world.question())
  const before = await recent.rows()
  expect(before).toMatchObject([
    { status: 'received', submission: null, failure_code: null, outcome: 'p2', label: 'Yes' },
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
    progressedAtMs: async () => undefined,
  }
  await followRecent(ledger, { nowMs: () => 0 }, () => ({})).rows()
  expect(asked).toEqual(Array.from({ length: recentKept }, (_, index) => String(99 - index)))
})

describe('the failures of the last day', () => {
  const fail = async (world: PipelineWorld, code: FailureCode = 'operator_rejected') => {
    const { id } = await world.submit(await world.question())
    await world.ledger.commit([{ kind: 'candidate.progress', id, progress: failed(code, true) }])
    return id
  }

  test('are listed with the newest failure first and counted by code; a replay takes one out, a day all', async () => {
    const world = await createPipelineWorld()
    let nowMs = world.clock.nowMs()
    const clock = { nowMs: () => nowMs }
    const recent = followRecent(world.ledger, clock, () => ({}))
    expect(await recent.failures()).toEqual({ count: 0, is_more: false, codes: [], rows: [] })
    const first = await fail(world)
    nowMs += 3_600_000
    const second = await fail(world, 'permit_expired')
    const third = await fail(world)
    expect(await recent.failures()).toMatchObject({
      count: 3,
      codes: [
        ['operator_rejected', 2],
        ['permit_expired', 1],
      ],
      rows: [
        { candidate_id: third, failed_at: instant(nowMs), failure_code: 'operator_rejected' },
        { candidate_id: second },
        { candidate_id: first, failed_at: instant(nowMs - 3_600_000) },
      ],
    })
    await world.ledger.replay(second)
    expect((await recent.failures()).rows.map((row) => row.candidate_id)).toEqual([third, first])
    nowMs += 23 * 3_600_000
    expect((await recent.failures()).rows.map((row) => row.candidate_id)).toEqual([third])
    nowMs += 3_600_000
    expect((await recent.failures()).count).toBe(0)
  })

  test('of before the start are there too, with the time that the store has', async () => {
    const world = await createPipelineWorld()
    const id = await fail(world)
    const failedAtMs = world.clock.nowMs() + 1
    const ledger = Object.create(world.ledger, {
      progressedAtMs: { value: async () => failedAtMs },
    })
    const recent = following(world, ledger)
    world.clock.monotonic += 500
    const later = await fail(world)
    const { rows } = await recent.failures()
    expect(rows.map((row) => row.candidate_id)).toEqual([later, id])
    expect(rows[1]?.failed_at).toBe(instant(failedAtMs))
    const detail = await recent.detail(id)
    expect(detail?.steps.at(-1)).toMatchObject({
      at: instant(failedAtMs),
      what: 'operator: rejected (validation): operator_rejected',
    })
  })

  test('R17: the newest 500 are counted, and 50 of them listed', async () => {
    const world = await createPipelineWorld()
    const recent = following(world)
    for (let n = 0; n < 501; n += 1) await fail(world)
    const { count, is_more, rows } = await recent.failures()
    expect([count, is_more, rows.length]).toEqual([500, true, 50])
  })
})

test('contract §5: is told step by step, with the transactions of an open slot, and without a signature (R5)', async () => {
  const { world, candidate } = await oneCandidate()
  const recent = following(world)
  await world.turn()
  const open = await recent.detail(candidate.id)
  expect(told(open)).toEqual([
    'received',
    'validated',
    'selected for execution',
    'a transaction signed under nonce 0',
    'submitted',
  ])
  expect(open?.steps.every(({ at }) => at !== null)).toBe(true)
  expect(open?.amount_text).toMatch(/^[\d,.]+ USDC\.e$/)
  await world.pass(4)
  const done = await recent.detail(candidate.id)
  expect(told(done)).toEqual([
    'received',
    'validated',
    'selected for execution',
    'submitted',
    'confirmed',
    expect.stringMatching(/^on the chain: ProposePrice is log \d+ of its block$/),
  ])
  expect(JSON.stringify([open, done])).not.toContain(candidate.signature.slice(2))
  expect(await recent.detail('00000000-0000-4000-8000-00000000ffff')).toBeUndefined()
})
