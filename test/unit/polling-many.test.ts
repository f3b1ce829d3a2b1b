import { type PollOptions, type PollWait, pollCandidates } from '#client/follow/follow'
import type { PollTarget } from '#client/follow/look'
import { createGatewayClient } from '#client/gateway/gateway-client'
import { stateOf } from '#client/journal/authorizations'
import type { Journal } from '#client/journal/journal'
import { type EventClock, eventClock, makeWorld, submitIntent } from '#support/client-world'
import { seededRandom } from '#support/sim-files'
import { busy, html, type StatusGateway, statusGateway } from '#support/status-gateway'

let clock: EventClock
let gateway: StatusGateway
beforeEach(() => {
  clock = eventClock()
  gateway = statusGateway(clock)
})

const target = (candidateId: string): PollTarget => ({
  candidateId,
  identifier: gateway.questionId,
  sentAtMs: clock.nowMs(),
})
const poll = (targets: readonly PollTarget[], options: PollOptions = {}, journal?: Journal) => {
  const client = createGatewayClient({ fetch: gateway.fetch, baseUrl: gateway.url, clock })
  const parts = {
    ports: { clock, random: seededRandom(1) },
    gateway: client,
    ...(journal === undefined ? {} : { journal }),
  }
  return clock.drive(pollCandidates(parts, targets, options))
}
const failure = (code: string, retryable = true) =>
  ({
    stage: 'validation',
    code,
    detail: 'as it is',
    retryable,
    can_resubmit: false,
    next_action: 'fund_wallet',
  }) as const
const asked = () => [...gateway.looks.single, ...gateway.looks.batch.flat()]

test('a candidate given twice is asked for once', async () => {
  const one = target(gateway.admit({ receivedMs: 0 }))
  expect((await poll([one, one])).candidates).toHaveLength(1)
  expect(asked()).toHaveLength(1)
})

test('a slug is asked by the single route first, which tells the question; later statuses keep it', async () => {
  const targets = [1, 2].map(() => ({
    candidateId: gateway.admit({ lifeMs: 4_000 }),
    identifier: 'a-slug',
  }))
  const { candidates } = await poll(targets)
  expect(gateway.looks.single.slice(0, 2)).toEqual(targets.map(({ candidateId }) => candidateId))
  expect(gateway.looks.batch.length).toBeGreaterThan(0)
  for (const one of candidates)
    expect(one).toMatchObject({
      status: 'executed',
      question_id: gateway.questionId,
      outcome: 'p2',
    })
})

test('a gateway without the batch route is asked one by one', async () => {
  gateway.hasBatch = false
  const targets = [1, 2, 3].map(() => target(gateway.admit()))
  const { error, candidates } = await poll(targets)
  expect(error).toBeUndefined()
  expect(candidates.every(({ status }) => status === 'executed')).toBe(true)
})

test('contract §4: a code of the table needs no other look where many fail; a foreign one is asked of the single route', async () => {
  const old = { receivedMs: clock.nowMs() - 60_000 }
  const known = Array.from({ length: 60 }, () =>
    target(gateway.admit({ ...old, failure: failure('not_selected', false) })),
  )
  const foreign = [1, 2].map(() =>
    target(gateway.admit({ ...old, failure: failure('lunar_eclipse') })),
  )
  const { candidates, items, error } = await poll([...known, ...foreign])
  expect(error).toMatchObject({ code: 'not_selected', meta: { exitCode: 7, retryable: false } })
  expect(error?.detail).toContain('62 of 62 candidates; the first: ')
  for (const one of candidates.slice(0, 60))
    expect(one.failure).toMatchObject({ code: 'not_selected', retryable: false })
  for (const one of candidates.slice(60))
    expect(one.failure).toMatchObject({ retryable: true, stage: 'validation' })
  expect(gateway.looks.single).toEqual(
    expect.arrayContaining(foreign.map(({ candidateId }) => candidateId)),
  )
  expect(items).toBeLessThanOrEqual(62 + 2 + 5)
})

test('§4.2 rule 7: a few failures are explained whole by the single route', async () => {
  const targets = [failure('insufficient_balance'), null].map((each) =>
    target(gateway.admit({ lifeMs: 1_000, failure: each })),
  )
  const { candidates, error } = await poll(targets)
  expect(candidates[0]?.failure).toMatchObject({
    stage: 'validation',
    next_action: 'fund_wallet',
  })
  expect(error?.meta).toMatchObject({
    exitCode: 7,
    hint: expect.stringContaining('fund the wallet'),
  })
})

test('a failure whose code tells enough does not wait for a gateway that has gone, and is journaled', async () => {
  const targets = [1, 2].map(() =>
    target(gateway.admit({ receivedMs: 0, failure: failure('permit_expired', false) })),
  )
  let calls = 0
  const fetch = gateway.fetch
  const gone = {
    ...gateway,
    fetch: async (...given: Parameters<typeof fetch>) => (++calls > 1 ? html() : fetch(...given)),
  }
  gateway = gone
  const ended: unknown[] = []
  const journal = {
    load: async () => ({ byCandidate: (id: string) => ({ id, attempts: [], signed: {} }) }),
    append: async (entries: readonly unknown[]) => ended.push(...entries),
  } as unknown as Journal
  const { error, candidates } = await poll(targets, {}, journal)
  expect(error).toMatchObject({ code: 'permit_expired', meta: { exitCode: 7 } })
  expect(ended).toMatchObject(
    targets.map(({ candidateId: id }) => ({
      kind: 'terminal',
      data: { id, outcome: 'failed', code: 'permit_expired', retryable: false },
    })),
  )
  expect(candidates).toHaveLength(2)
})

test('a failure of a foreign code stays told where the single route does not answer', async () => {
  const targets = [1, 2].map(() =>
    target(gateway.admit({ receivedMs: 0, failure: failure('lunar_eclipse') })),
  )
  const { fetch } = gateway
  gateway = {
    ...gateway,
    fetch: async (url, init) => (String(url).includes('/status/') ? html() : fetch(url, init)),
  }
  for (const options of [{ timeoutMs: 60_000 }, { once: true }]) {
    const { error, candidates } = await poll(targets, options)
    expect(error).toMatchObject({ code: 'lunar_eclipse', meta: { exitCode: 7 } })
    expect(candidates).toHaveLength(2)
  }
  expect(gateway.looks.batch).toHaveLength(2)
})

test('contract §6: what is unknown, failed and pending at once ends as the gravest', async () => {
  const unknown = target('00000000-0000-4000-8000-00000000ffff')
  const failed = target(gateway.admit({ lifeMs: 10, failure: failure('permit_expired', false) }))
  const pending = target(gateway.admit({ lifeMs: Number.POSITIVE_INFINITY }))
  const both = await poll([failed, pending], { timeoutMs: 5_000 })
  expect(both.error?.meta.exitCode).toBe(7)
  expect(both.missing).toMatchObject([{ candidateId: pending.candidateId }])
  const all = await poll([failed, pending, unknown], { timeoutMs: 5_000 })
  expect(all.error).toMatchObject({
    code: 'candidate_not_found',
    meta: { exitCode: 3, hint: expect.stringContaining('--question') },
  })
  expect(all.error?.detail).toContain(unknown.candidateId)
})

describe('a gateway in trouble', () => {
  test('never ends the polling before the time given, and is told with each try, and since when', async () => {
    gateway.faults.push(...Array.from({ length: 12 }, () => html))
    const waits: PollWait[] = []
    const { error } = await poll([target(gateway.admit())], {
      timeoutMs: 3_600_000,
      onWait: (event) => waits.push(event),
    })
    expect(error).toBeUndefined()
    const [first, ...others] = waits
    expect(first).toMatchObject({ kind: 'trouble', reason: expect.stringContaining('502') })
    expect(first?.sinceMs).toBeUndefined()
    expect(others).toHaveLength(11)
    expect(new Set(others.map(({ sinceMs }) => sinceMs)).size).toBe(1)
  })

  test('is waited for without end where it has answered before', async () => {
    const one = target(gateway.admit({ lifeMs: 2_000 }))
    let looks = 0
    const { error } = await poll([one], {
      onLook: () => {
        if (++looks === 1) gateway.faults.push(...Array.from({ length: 15 }, () => html))
      },
    })
    expect(error).toBeUndefined()
    expect(gateway.faults).toEqual([])
  })

  test('§7: a Retry-After of ten minutes is honoured where the time given allows it, and ends the polling where it does not', async () => {
    gateway.faults.push(() => busy(600))
    const startMs = clock.nowMs()
    expect((await poll([target(gateway.admit())], { timeoutMs: 3_600_000 })).error).toBeUndefined()
    expect(clock.nowMs() - startMs).toBeGreaterThanOrEqual(600_000)
    gateway.faults.push(() => busy(600))
    expect((await poll([target(gateway.admit())], { timeoutMs: 60_000 })).error).toMatchObject({
      code: 'no_status',
      meta: { exitCode: 75, hint: 'retry in 600 seconds' },
    })
  })

  test('a call that never comes back is given up when the time is over', async () => {
    gateway.faults.push(() => new Promise<Response>(() => undefined))
    const hanging = { ...gateway }
    hanging.fetch = (input, init) =>
      Promise.race([
        gateway.fetch(input, init),
        new Promise<Response>((_, reject) =>
          init?.signal?.addEventListener('abort', () => reject(init.signal?.reason)),
        ),
      ])
    const client = createGatewayClient({ fetch: hanging.fetch, baseUrl: gateway.url, clock })
    const { error } = await clock.drive(
      pollCandidates(
        { ports: { clock, random: seededRandom(1) }, gateway: client },
        [target(gateway.admit())],
        { timeoutMs: 5_000 },
      ),
    )
    expect(error?.meta.exitCode).toBe(75)
  })

  test('an item of a batch that gets no answer is asked for again', async () => {
    const targets = [1, 2, 3].map(() => target(gateway.admit({ lifeMs: 1_000 })))
    let left = 2
    gateway.alter = (result, id) => {
      if (id !== targets[1]?.candidateId || left-- <= 0) return result
      return left === 1
        ? undefined
        : { candidate_id: id, status_code: 503, error: { code: 'server_busy', detail: 'busy' } }
    }
    expect((await poll(targets)).candidates.map(({ status }) => status)).toEqual([
      'executed',
      'executed',
      'executed',
    ])
  })

  test('a batch answer about nobody is no answer', async () => {
    const targets = [1, 2].map(() => target(gateway.admit({ lifeMs: 1_000 })))
    gateway.alter = () => undefined
    const waits: PollWait[] = []
    const { error } = await poll(targets, {
      timeoutMs: 2_000,
      onWait: (event) => waits.push(event),
    })
    expect(error?.meta.exitCode).toBe(75)
    expect(waits.map(({ kind }) => kind)).toEqual(['trouble', 'trouble', 'trouble'])
  })
})

test('a candidate only known by its id is asked by the batch route; where the journal holds it, its question is known and its end journaled', async () => {
  const stranger = gateway.admit({ lifeMs: 1_000 })
  const { candidates, error } = await poll([{ candidateId: stranger }])
  expect(error).toBeUndefined()
  expect(candidates[0]).not.toHaveProperty('question_id')
  expect(gateway.looks.single).toEqual([])
  expect((await poll([{ candidateId: stranger.replace(/.$/, 'f') }])).error).toMatchObject({
    code: 'candidate_not_found',
  })

  const world = makeWorld()
  const run = world.run()
  const accepted = await world.drive(submitIntent(run.parts, run.intent))
  if (accepted.error) throw accepted.error
  clock = world.clock
  const told = statusGateway(clock)
  gateway = { ...told, questionId: accepted.questionId }
  const ids = [
    told.admit({ lifeMs: 1_000, failure: failure('permit_expired', false) }),
    told.admit({ lifeMs: 1_000 }),
  ]
  expect(ids[0]).toBe(accepted.candidateId)
  await poll(
    ids.map((candidateId) => ({ candidateId })),
    {},
    run.journal,
  )
  const one = (await clock.drive(world.run().journal.load())).byCandidate(accepted.candidateId)
  expect(one && stateOf(one, clock.nowMs())).toMatchObject({
    kind: 'closed',
    reason: 'failed',
    code: 'permit_expired',
  })
})

test('what was just sent is not asked for at once where there are many', async () => {
  const startMs = clock.nowMs()
  const seen: number[] = []
  const targets = Array.from({ length: 40 }, () => target(gateway.admit()))
  await poll(targets, { onLook: () => seen.push(clock.nowMs() - startMs) })
  expect(seen[0]).toBeGreaterThanOrEqual(3_000)
})
