import { type PollOptions, pollCandidates, statusOnce } from '#client/follow/follow'
import { hasReached, type Stage, stages } from '#client/follow/look'
import { createGatewayClient } from '#client/gateway/gateway-client'
import type { Fetch } from '#ports'
import type { CandidateStatus } from '#protocol/schema'
import { makeWorld, submitIntent, type World } from '#support/client-world'
import { happySteps } from '#support/scripted-gateway'
import { json } from '#support/status-gateway'

const accepted = async () => {
  const world = makeWorld()
  const run = world.run()
  const result = await world.drive(submitIntent(run.parts, run.intent))
  if (result.error !== undefined) throw result.error
  return {
    world,
    run,
    target: { candidateId: result.candidateId, identifier: run.intent.identifier },
  }
}

const pollThrough = (
  world: World,
  faults: (() => Response | Promise<Response>)[],
  target: { candidateId: string; identifier: string },
  options?: PollOptions,
) => {
  const fetch: Fetch = async (input, init) =>
    faults.length > 0
      ? (faults.shift() ?? (() => json(500, {})))()
      : world.gateway.fetch(input, init)
  const { ports } = world.run().parts
  const gateway = createGatewayClient({ fetch, baseUrl: world.gateway.url, clock: world.clock })
  return world.drive(pollCandidates({ ports, gateway }, [target], options))
}

const failure = {
  stage: 'validation',
  code: 'insufficient_balance',
  detail: 'holds 1',
  retryable: true,
  can_resubmit: false,
  next_action: 'fund_wallet',
} as const

test('§7: a Retry-After is waited for, with jitter', async () => {
  const { world, target } = await accepted()
  world.gateway.steps.push(...happySteps)
  const waits: number[] = []
  const limited = () =>
    json(429, { error: { code: 'rate_limited', detail: 'x' } }, { 'retry-after': '40' })
  const { error } = await pollThrough(world, [limited], target, {
    onWait: ({ waitMs }) => waits.push(waitMs),
  })
  expect(error).toBeUndefined()
  // The seconds told, and some jitter on top, so that not all who wait come back at once.
  expect(waits).toHaveLength(1)
  expect(waits[0]).toBeGreaterThanOrEqual(40_000)
  expect(waits[0]).toBeLessThanOrEqual(41_000)
})

test('§7: an answer that is none is asked for again; eight in a row are exit 75', async () => {
  const { world, target } = await accepted()
  world.gateway.steps.push(...happySteps)
  const html = () =>
    new Response('<html>', { status: 502, headers: { 'content-type': 'text/html' } })
  expect((await pollThrough(world, [html, html], target)).candidates).toMatchObject([
    { status: 'executed' },
  ])
  const none = await pollThrough(
    world,
    Array.from({ length: 20 }, () => html),
    target,
  )
  expect(none.error?.meta.exitCode).toBe(75)
})

test('§7: a Retry-After over two minutes is exit 75 at once', async () => {
  const { world, target } = await accepted()
  const { error } = await pollThrough(
    world,
    [() => json(503, { error: { code: 'server_busy', detail: 'x' } }, { 'retry-after': '600' })],
    target,
  )
  expect(error).toMatchObject({
    code: 'server_busy',
    meta: { exitCode: 75, retryAfterMs: 600_000 },
  })
})

test('one status: an answer about another candidate is not taken', async () => {
  const { world, run, target } = await accepted()
  const status = await world.drive(statusOnce(run.parts, target))
  expect(status.status).toBe('received')
  const lying = createGatewayClient({
    fetch: async () =>
      json(200, { ...status, candidate_id: '00000000-0000-4000-8000-00000000000f' }),
    baseUrl: world.gateway.url,
    clock: world.clock,
  })
  await expect(statusOnce({ ...run.parts, gateway: lying }, target)).rejects.toMatchObject({
    code: 'candidate_mismatch',
  })
})

test('contract §5: stages are reached in order, and an end counts as all of them', async () => {
  const { world, target } = await accepted()
  const received = world.gateway.candidates.get(target.candidateId)
  if (received === undefined) throw new Error('no candidate')
  const submission = {
    status: 'prepared',
    transaction_hash: null,
    submitted_at: null,
    confirmed_at: null,
    indexed_at: null,
    proposal_event_index: null,
  } as const
  const lives: readonly [CandidateStatus, readonly Stage[]][] = [
    [received, []],
    [{ ...received, status: 'validated' }, ['validated']],
    [{ ...received, status: 'selected' }, ['validated', 'selected']],
    [{ ...received, status: 'selected', submission }, ['validated', 'selected']],
    [
      { ...received, status: 'selected', submission: { ...submission, status: 'submitted' } },
      ['validated', 'selected', 'submitted'],
    ],
    [
      { ...received, status: 'selected', submission: { ...submission, status: 'confirmed' } },
      ['validated', 'selected', 'submitted', 'confirmed'],
    ],
    [{ ...received, status: 'executed', submission: { ...submission, status: 'indexed' } }, stages],
    [{ ...received, status: 'failed', failure }, stages],
  ]
  for (const [status, reached] of lives)
    expect(stages.filter((stage) => hasReached(status, stage))).toEqual(reached)
  expect(lives.map(([status]) => hasReached(status, undefined))).toEqual([
    false,
    false,
    false,
    false,
    false,
    false,
    true,
    true,
  ])
})
