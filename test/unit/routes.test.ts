import * as z from 'zod/mini'
import { createBudget } from '#gateway/front/budget'
import { gateLimits, lineLimits } from '#gateway/front/line'
import { budgetLimits, gatewayLimits } from '#gateway/gateway'
import { BodyError } from '#protocol/call'
import { openApiDocument } from '#protocol/openapi'
import { Acknowledgement, BatchSubmitAnswer, CandidateStatus, Eligibility } from '#protocol/schema'
import { recoverWithNoble } from '#protocol/signature'
import { version } from '#protocol/words'
import { failed } from '#support/candidates'
import { advanced, makeQuestion, makeWallet, signedBody, signedItem } from '#support/fake-view'
import { codeOf, openFront, rawCall, slowStore, type TestFront, testConfig } from '#support/front'

const first = makeQuestion('first', { slug: 'first-question' })
/** The same shape without room for additions. */
const strict = <S extends z.core.$ZodShape>({ shape }: z.ZodMiniObject<S>) => z.strictObject(shape)
const idOf = async (response: Response) => Acknowledgement.parse(await response.json()).candidate_id

async function admit(front: TestFront, wallet = front.wallets[0]): Promise<string> {
  return idOf(
    await front.post(`/v1/proposals/${first.questionId}`, await signedBody(wallet, first)),
  )
}

test('§4.1 rule 1: eligibility is true for a listed wallet, false for unknown, disabled and while admission is off', async () => {
  const front = await openFront()
  const ask = async (address: string) =>
    strict(Eligibility).parse(
      await (await front.get(`/v1/proposals/eligibility/${address}`)).json(),
    )
  const listed = front.wallets[0].address
  expect(await ask(listed)).toEqual({ version, address: listed, eligible: true })
  expect((await ask(makeWallet().address)).eligible).toBe(false)
  expect((await ask(`0x${'0'.repeat(40)}`)).eligible).toBe(false)
  await front.ledger.commit([{ kind: 'admission.set', enabled: false, reason: 'test' }])
  expect((await ask(listed)).eligible).toBe(false)
  await front.ledger.commit([
    { kind: 'admission.set', enabled: true, reason: 'test' },
    { kind: 'allowlist.set', address: listed, allowed: false, reason: 'test' },
  ])
  expect((await ask(listed)).eligible).toBe(false)
})

test('§4.1 rule 2: signing data asks for no eligibility and keeps no state', async () => {
  const front = await openFront()
  const { signature, ...body } = await signedBody(makeWallet(), first)
  const path = `/v1/proposals/${first.questionId}/signing-data`
  expect((await front.post(path, body)).status).toBe(200)
  expect(front.ledger.active()).toHaveLength(0)
  expect(await codeOf(await front.post(path, { ...body, signature }))).toBe('schema_violation')
  front.view.offline = true
  const unread = await front.post(path.replace(first.questionId, 'unknown-slug'), body)
  expect([unread.status, await codeOf(unread)]).toEqual([503, 'state_unavailable'])
})

test('§4.1 rule 4: a status is answered from the store alone; what the chain must be asked for is 503 without one', async () => {
  const front = await openFront()
  const id = await admit(front)
  const at = async (identifier: string) => {
    const response = await front.get(`/v1/proposals/${identifier}/status/${id}`)
    return [response.status, await codeOf(response)]
  }
  front.view.offline = true
  expect((await front.get(`/v1/proposals/${first.questionId}/status/${id}`)).status).toBe(200)
  expect(await at(makeQuestion('elsewhere').questionId)).toEqual([404, 'candidate_not_found'])
  expect(await at('unknown-slug')).toEqual([503, 'state_unavailable'])
})

test('contract §5: can_resubmit says whether a new submission for this question would be admitted now', async () => {
  const front = await openFront()
  const id = await admit(front)
  await front.ledger.commit([
    { kind: 'candidate.progress', id, progress: failed('permit_expired', false, 'expired') },
  ])
  const canResubmit = async () => {
    const status = CandidateStatus.parse(
      await (await front.get(`/v1/proposals/${first.questionId}/status/${id}`)).json(),
    )
    expect(status.failure).toMatchObject({
      code: 'permit_expired',
      retryable: false,
      next_action: 'sign_new_authorization',
    })
    return status.failure?.can_resubmit
  }
  expect(await canResubmit()).toBe(true)
  front.view.put(makeQuestion('first', { slug: 'first-question', state: 'proposed' }))
  expect(await canResubmit()).toBe(false)
  front.view.put(advanced(first, '1799999999'))
  expect(await canResubmit()).toBe(true)
  front.view.faultList.push('head too old')
  expect(await canResubmit()).toBe(false)
  front.view.faultList.length = 0
  await front.ledger.commit([{ kind: 'admission.set', enabled: false, reason: 'test' }])
  expect(await canResubmit()).toBe(false)
  await front.ledger.commit([{ kind: 'admission.set', enabled: true, reason: 'test' }])
  front.view.put(first)
  await admit(front)
  expect(await canResubmit()).toBe(false)
})

test('contract §9: round_advanced says to sign anew where the new round is already open, else to wait for one', async () => {
  const front = await openFront()
  const id = await admit(front)
  await front.ledger.commit([
    { kind: 'candidate.progress', id, progress: failed('round_advanced', false, 'a new round') },
  ])
  const advice = async () => {
    const status = CandidateStatus.parse(
      await (await front.get(`/v1/proposals/${first.questionId}/status/${id}`)).json(),
    )
    return [status.failure?.next_action, status.failure?.can_resubmit]
  }
  front.view.put(advanced(first, '1799999999'))
  expect(await advice()).toEqual(['sign_new_authorization', true])
  front.view.put(
    advanced(makeQuestion('first', { slug: 'first-question', state: 'proposed' }), '1799999999'),
  )
  expect(await advice()).toEqual(['wait_for_new_round', false])
  front.view.put(
    advanced(makeQuestion('first', { slug: 'first-question', paused: true }), '1799999999'),
  )
  expect(await advice()).toEqual(['wait_for_new_round', false])
  front.view.faultList.push('head too old')
  expect(await advice()).toEqual(['wait_for_new_round', false])
})

test('R17: a wallet whose failed proposals fill its bytes of the day adds nothing more to the store; a replay is answered as it is', async () => {
  const front = await openFront({
    config: { admission: { stored_bytes_per_wallet: 1_000 } },
    wallets: 2,
  })
  const [wallet, other] = front.wallets
  const body = await signedBody(wallet, first)
  const path = `/v1/proposals/${first.questionId}`
  const id = await idOf(await front.post(path, body))
  await front.ledger.commit([
    {
      kind: 'candidate.progress',
      id,
      progress: failed('insufficient_balance', true, 'too little'),
    },
  ])
  const replayed = await front.post(path, body)
  expect([replayed.status, await idOf(replayed)]).toEqual([200, id])
  expect(front.ledger.byId(id)?.status).toBe('failed')
  const refused = await front.post(path, await signedBody(wallet, first, 'p2', { nonce: '77' }))
  expect([refused.status, await codeOf(refused)]).toEqual([403, 'proposer_not_eligible'])
  if (other === undefined) throw new Error('there are two wallets')
  expect(await admit(front, other)).not.toBe(id)
})

describe('charging', () => {
  const budget = { budget: { per_ip_items: 10, global_items: 100 } }

  test('§8 rule 2: single calls cost one item, batch calls their entries, and every charged answer says so', async () => {
    const front = await openFront({ config: budget })
    const left = (response: Response) => Number(response.headers.get('ratelimit-remaining'))
    expect(left(await front.get(front.eligibility))).toBe(9)
    expect(
      left(await front.post('/propose/batch/signing-data', { identifiers: ['a', 'b', 'c'] })),
    ).toBe(6)
    expect(left(await front.post('/propose/batch/status', { candidate_ids: [] }))).toBe(5)
    const refused = await front.get('/v1/proposals/eligibility/0x12')
    expect([
      refused.status,
      left(refused),
      refused.headers.get('ratelimit-limit'),
      refused.headers.get('ratelimit-reset'),
    ]).toEqual([400, 4, '10', '60'])
    expect(left(await front.post('/v1/proposals/first-question', '{"a":'))).toBe(3)
  })

  test('contract §2: unknown routes, 405, health, readiness and OpenAPI are free', async () => {
    const front = await openFront({ config: budget })
    for (const path of ['/healthz', '/readyz', '/openapi.json', '/nowhere', '/v1/proposals/a']) {
      const response = await front.get(path)
      expect(response.headers.get('ratelimit-limit')).toBeNull()
    }
    const paid = await front.get(front.eligibility)
    expect(paid.headers.get('ratelimit-remaining')).toBe('9')
  })

  test('R18, R19: 101 entries cost 101 and are refused by the budget before their schema is looked at', async () => {
    const front = await openFront({ config: { budget: { per_ip_items: 100, global_items: 1000 } } })
    const call = { identifiers: Array.from({ length: 101 }, () => 5) }
    const refused = await front.post('/propose/batch/signing-data', call)
    expect([refused.status, await codeOf(refused.clone())]).toEqual([429, 'rate_limited'])
    expect(refused.headers.get('retry-after')).toBe('60')
    expect(((await refused.json()) as { error: { detail: string } }).error.detail).toContain(
      'retry in 60 seconds',
    )
    front.clock.monotonic += 59_001
    const again = await front.get(front.eligibility)
    expect([again.status, again.headers.get('retry-after')]).toEqual([429, '1'])
    front.clock.monotonic += 999
    expect((await front.get(front.eligibility)).status).toBe(200)
  })

  test.each([
    ['one call of 1,001 entries', 1, Array.from({ length: 1_001 }, () => 5)],
    ['1,100 calls', 1_100, [5]],
  ])(
    '§8 rule 4: %s from one address leaves the others their windows',
    async (_, calls, identifiers) => {
      const budget = createBudget(budgetLimits(testConfig({ budget: {} })))
      const front = await openFront({ config: { budget: {} }, parts: { budget } })
      for (let call = 0; call < calls; call += 1)
        await front.post('/propose/batch/signing-data', { identifiers })
      const path = front.eligibility
      expect((await front.get(path)).status).toBe(429)
      expect(budget.spentByAll(front.clock.monotonic)).toBe(calls === 1 ? 100 : 120)
      const others = Array.from({ length: 7 }, (_one, index) => `192.0.2.${index + 2}`)
      for (const address of others)
        for (let call = 0; call < 120; call += 1) {
          const call = rawCall({ target: path, method: 'GET', address })
          expect((await front.gateway.answer(call)).status).toBe(200)
        }
    },
  )

  test('robustness §4: a spent budget is seen before a byte of the body is read', async () => {
    const front = await openFront({ config: { budget: { per_ip_items: 1, global_items: 100 } } })
    await front.get(front.eligibility)
    let read = false
    const readBody = async () => {
      read = true
      return new Uint8Array()
    }
    const response = await front.gateway.answer(
      rawCall(
        { target: '/v1/proposals/first-question', readBody },
        { 'content-type': 'application/json' },
      ),
    )
    expect([response.status, read]).toEqual([429, false])
  })

  test('contract §6: in process no budget is charged', async () => {
    const front = await openFront({ config: { budget: { per_ip_items: 1, global_items: 1 } } })
    for (let call = 0; call < 3; call += 1) {
      const request = new Request(
        `http://local/v1/proposals/eligibility/${front.wallets[0].address}`,
      )
      const response = await front.gateway.handle(request, { charged: false })
      expect([response.status, response.headers.get('ratelimit-limit')]).toEqual([200, null])
    }
  })

  test('robustness §5: clients behind a trusted proxy have budgets of their own', async () => {
    const front = await openFront({
      config: { ...budget, proxy: { trusted_cidrs: ['192.0.2.0/24'] } },
    })
    const path = front.eligibility
    const left = async (forwarded: string) =>
      (await front.get(path, { 'x-forwarded-for': forwarded })).headers.get('ratelimit-remaining')
    expect([
      await left('203.0.113.1'),
      await left('203.0.113.1'),
      await left('203.0.113.2'),
    ]).toEqual(['9', '8', '9'])
  })
})

test('R23, contract §2: while draining new calls are 503 server_busy, those in flight end, and readiness says so', async () => {
  const store = slowStore()
  const front = await openFront({ log: store.log })
  void store.hold()
  const inFlight = front.post('/propose/batch', {
    proposals: [await signedItem(front.wallets[0], first)],
  })
  let drained = false
  const draining = front.gateway.drain().then(() => {
    drained = true
  })
  const refused = await front.get(front.eligibility)
  expect([refused.status, await codeOf(refused), refused.headers.get('retry-after')]).toEqual([
    503,
    'server_busy',
    expect.stringMatching(/^[123]$/),
  ])
  expect((await front.get('/readyz')).status).toBe(503)
  expect((await front.get('/healthz')).status).toBe(200)
  expect(drained).toBe(false)
  store.release()
  expect((await inFlight).status).toBe(200)
  await draining
  expect(drained).toBe(true)
})

test('R17: bodies share one memory; what does not fit is 503, and room comes back', async () => {
  const front = await openFront()
  const send = (bytes: number, client = 1, during = async () => undefined as unknown) =>
    front.gateway.answer(
      rawCall(
        {
          address: `192.0.2.${client}`,
          target: '/propose/batch',
          readBody: async ({ reserve }) => {
            if (!reserve(bytes)) throw new BodyError('no_room')
            await during()
            return new TextEncoder().encode('{}')
          },
        },
        { 'content-type': 'application/json' },
      ),
    )
  const share = gatewayLimits.clientBodyBytes
  expect((await send(share + 1)).status).toBe(503)
  // a client that fills its own share shuts out itself alone, until its body has been answered
  const holding = await send(share, 1, async () => {
    expect((await send(1, 1)).status).toBe(503)
    expect(
      (
        await send(share, 2, () =>
          send(share, 3, () =>
            send(share, 4, async () => {
              expect((await send(1, 5)).status).toBe(503)
            }),
          ),
        )
      ).status,
    ).toBe(422)
  })
  expect(holding.status).toBe(422)
  expect((await send(share)).status).toBe(422)
})

describe('robustness §5: calls that wait', () => {
  const { targetMs, intervalMs } = lineLimits
  const waiting = async () => {
    let unreadMs = 0
    const yieldToEvents = () => new Promise<void>((resolve) => setImmediate(resolve))
    const front = await openFront({ parts: { unreadMs: () => unreadMs, yieldToEvents } })
    const path = front.eligibility
    return {
      front,
      async look(waitedMs: number, headers = {}) {
        unreadMs = waitedMs
        const answer = await front.get(path, headers)
        return [answer.status, answer.status === 200 ? undefined : await codeOf(answer)]
      },
      set(waitedMs: number) {
        unreadMs = waitedMs
      },
    }
  }
  const served = [200, undefined]
  const shed = [503, 'server_busy']

  test('one pause sheds nothing; where calls go on to wait, those that waited too long, and no other', async () => {
    const { front, look } = await waiting()
    expect(await look(60_000)).toEqual(served)
    front.clock.monotonic += intervalMs
    expect(await look(targetMs)).toEqual(shed)
    expect(await look(targetMs - 1)).toEqual(served)
    expect(await look(targetMs)).toEqual(served)
    expect((await front.get('/healthz')).status).toBe(200)
  })

  test('calls that are free or match no route wait in the line of their client, and are never shed', async () => {
    const { front, look, set } = await waiting()
    const order: string[] = []
    const ask = async (target: string, address: string) => {
      const call = rawCall({ target, method: 'GET', address })
      const { status } = await front.gateway.answer(call)
      order.push(address)
      return status
    }
    const first = ask('/healthz', '192.0.2.9')
    front.clock.monotonic += 10 * gateLimits.roundMs
    const free = ['/healthz', '/nowhere', '/readyz']
    const flood = Array.from({ length: 300 }, (_, at) => ask(free[at % 3] ?? '', '192.0.2.9'))
    const honest = ask(front.eligibility, '192.0.2.8')
    expect([await first, await honest]).toEqual([200, 200])
    expect(new Set(await Promise.all(flood))).toEqual(new Set([200, 404]))
    expect(order.indexOf('192.0.2.8')).toBeLessThanOrEqual(gateLimits.callsPerRound)
    await look(targetMs)
    front.clock.monotonic += intervalMs
    set(targetMs)
    for (const path of free) expect((await front.get(path)).status).not.toBe(503)
  })

  test('what is shed has not been admitted: the same payload is admitted afterwards, once', async () => {
    const { front, look, set } = await waiting()
    const path = `/v1/proposals/${first.questionId}`
    const body = await signedBody(front.wallets[0], first)
    await look(targetMs)
    front.clock.monotonic += intervalMs
    set(targetMs)
    const refused = await front.post(path, body)
    expect([refused.status, await codeOf(refused)]).toEqual(shed)
    expect(front.ledger.active()).toHaveLength(0)
    set(0)
    expect((await front.post(path, body)).status).toBe(202)
    expect((await front.post(path, body)).status).toBe(200)
    expect(front.ledger.active()).toHaveLength(1)
  })

  test('a replay goes before new admissions: it waits in no line of theirs', async () => {
    let isBehind = false
    const held: (() => void)[] = []
    const front = await openFront({
      wallets: 2,
      parts: {
        yieldToEvents: () =>
          isBehind ? new Promise<void>((go) => held.push(go)) : Promise.resolve(),
        recover(...asked) {
          front.clock.monotonic += 1
          return recoverWithNoble(...asked)
        },
      },
    })
    const path = `/v1/proposals/${first.questionId}`
    const known = await signedBody(front.wallets[0], first)
    expect((await front.post(path, known)).status).toBe(202)
    isBehind = true
    const items = await Promise.all(
      [0, 1].map((n) =>
        signedItem(front.wallets[1] ?? front.wallets[0], first, 'p2', { nonce: String(40 + n) }),
      ),
    )
    const batch = front.post('/propose/batch', { proposals: items })
    expect((await front.post(path, known)).status).toBe(200)
    isBehind = false
    for (const go of held) go()
    expect((await batch).status).toBe(200)
  })

  test('who is refused at once comes back at different times, and is told the same twice', async () => {
    const { front, set, look } = await waiting()
    await look(targetMs)
    front.clock.monotonic += intervalMs
    set(targetMs)
    const counts = new Map<string, number>()
    for (let n = 0; n < 300; n += 1) {
      const answer = await front.get(front.eligibility, {})
      if (answer.status === 429) break
      const after = answer.headers.get('retry-after') ?? ''
      expect(await answer.text()).toContain(`nothing was committed; retry in ${after} seconds`)
      counts.set(after, (counts.get(after) ?? 0) + 1)
    }
    expect([...counts.keys()].sort()).toEqual(['1', '2', '3'])
  })
})

test('robustness §5: a client with few calls in flight finds a place where another has taken all', async () => {
  const store = slowStore()
  const front = await openFront({
    log: store.log,
    config: { proxy: { trusted_cidrs: ['192.0.2.1'] } },
  })
  void store.hold()
  const item = await signedItem(front.wallets[0], first)
  const send = (client: string) =>
    front.post('/propose/batch', { proposals: [item] }, { 'x-forwarded-for': client })
  const taken = Array.from({ length: gatewayLimits.callsInFlight }, () => send('203.0.113.1'))
  expect((await send('203.0.113.1')).status).toBe(503)
  const few = Array.from({ length: gatewayLimits.fewInFlight }, () => send('203.0.113.2'))
  expect((await send('203.0.113.2')).status).toBe(503)
  store.release()
  for (const answer of await Promise.all([...taken, ...few])) expect(answer.status).toBe(200)
})

test('robustness §4: a bug of ours is 500 with the request id only, and its message is nowhere', async () => {
  const front = await openFront()
  front.view.known = () => {
    throw new TypeError('canary')
  }
  const single = await front.post(
    `/v1/proposals/${first.questionId}`,
    await signedBody(front.wallets[0], first),
  )
  const text = await single.text()
  expect([single.status, text.includes('internal_error'), text.includes('canary')]).toEqual([
    500,
    true,
    false,
  ])
  const batch = await front.post('/propose/batch', {
    proposals: [await signedItem(front.wallets[0], first)],
  })
  expect(BatchSubmitAnswer.parse(await batch.json()).results[0]).toMatchObject({
    status_code: 500,
    error: { code: 'internal_error' },
  })
  const [record] = front.records
  expect(text).toContain(record?.requestId)
  expect(record).toMatchObject({
    status: 500,
    code: 'internal_error',
    bug: { name: 'TypeError' },
  })
  expect(front.records[1]).toMatchObject({ status: 200, bug: { name: 'TypeError' } })
  expect(JSON.stringify(front.records)).not.toContain('canary')
})

test('contract §2: calls without a peer are answered, and charged to one client that has no name', async () => {
  const { gateway, wallets } = await openFront({
    config: { budget: { per_ip_items: 1, global_items: 10 } },
  })
  const ask = () =>
    gateway.handle(
      new Request(`http://gateway.test/v1/proposals/eligibility/${wallets[0].address}`),
    )
  expect([(await ask()).status, (await ask()).status]).toEqual([200, 429])
})

test('contract §2: readiness names what is missing in view and pipeline', async () => {
  const front = await openFront({
    parts: { pipeline: { faults: () => ['the executor has no role'] } },
  })
  front.view.faultList.push('head too old')
  const response = await front.get('/readyz')
  expect([response.status, await response.json()]).toEqual([
    503,
    { ready: false, reasons: ['head too old', 'the executor has no role'] },
  ])
  expect(front.gateway.readiness()).toEqual(['head too old', 'the executor has no role'])
})

test('robustness §5: every answer is JSON, not stored and not sniffed', async () => {
  const front = await openFront()
  for (const path of ['/healthz', '/nowhere', front.eligibility, '/v1/proposals/x/status/y']) {
    const { headers } = await front.get(path)
    expect([
      headers.get('content-type'),
      headers.get('cache-control'),
      headers.get('x-content-type-options'),
    ]).toEqual(['application/json', 'no-store', 'nosniff'])
  }
})

test('§1: browser origins need configuration; preflight is free of charge', async () => {
  const front = await openFront({
    config: { cors: { origins: ['https://app.example'] }, budget: { per_ip_items: 5 } },
  })
  const ask = (method: string, origin: string, path: string) =>
    front.gateway.handle(new Request('http://gateway.test/', { headers: { origin } }), {
      address: '192.0.2.1',
      target: path,
      method,
    })
  const preflight = await ask('OPTIONS', 'https://app.example', '/propose/batch')
  expect([
    preflight.status,
    preflight.headers.get('access-control-allow-origin'),
    preflight.headers.get('access-control-allow-methods'),
  ]).toEqual([204, 'https://app.example', 'POST'])
  expect(preflight.headers.get('ratelimit-limit')).toBeNull()
  expect((await ask('OPTIONS', 'https://evil.example', '/propose/batch')).status).toBe(405)
  expect((await ask('OPTIONS', 'https://app.example', '/nowhere')).status).toBe(404)
  const path = front.eligibility
  const allowed = await ask('GET', 'https://app.example', path)
  expect([allowed.headers.get('access-control-allow-origin'), allowed.headers.get('vary')]).toEqual(
    ['https://app.example', 'Origin'],
  )
  expect(
    (await ask('GET', 'https://evil.example', path)).headers.get('access-control-allow-origin'),
  ).toBeNull()
  const closed = await openFront()
  const without = await closed.gateway.handle(
    new Request('http://gateway.test/', { headers: { origin: 'https://app.example' } }),
    {
      target: '/propose/batch',
      method: 'OPTIONS',
    },
  )
  expect([
    without.status,
    without.headers.get('allow'),
    without.headers.get('access-control-allow-origin'),
  ]).toEqual([405, 'POST', null])
})

test('contract §2: calls are counted by route template, method and status', async () => {
  const front = await openFront()
  await front.get('/healthz')
  await front.get('/healthz')
  await front.get(front.eligibility)
  await front.get('/secret-canary')
  await front.gateway.handle(new Request('http://gateway.test/'), {
    target: '/healthz',
    method: 'BREW',
  })
  expect(front.gateway.requestCounts()).toEqual([
    { route: '/healthz', method: 'GET', status: 200, count: 2 },
    { route: '/v1/proposals/eligibility/{address}', method: 'GET', status: 200, count: 1 },
    { route: 'unmatched', method: 'GET', status: 404, count: 1 },
    { route: '/healthz', method: 'OTHER', status: 405, count: 1 },
  ])
})

test('contract §2: OpenAPI lists exactly the routes that are served, with the methods they take', async () => {
  const front = await openFront()
  const document = (await (await front.get('/openapi.json')).json()) as ReturnType<
    typeof openApiDocument
  >
  expect(document).toEqual(JSON.parse(JSON.stringify(openApiDocument())))
  expect(document.openapi).toBe('3.1.0')
  const example: Record<string, string> = {
    address: `0x${'1'.repeat(40)}`,
    identifier: 'a-slug',
    candidate_id: '00000000-0000-4000-8000-000000000000',
  }
  for (const [path, methods] of Object.entries(document.paths)) {
    const target = path.replaceAll(/\{(\w+)\}/g, (_, name: string) => example[name] ?? name)
    const wrong = await front.gateway.handle(new Request('http://gateway.test/'), {
      target,
      method: 'DELETE',
    })
    expect([path, wrong.status, wrong.headers.get('allow')?.toLowerCase()]).toEqual([
      path,
      405,
      Object.keys(methods).join(', '),
    ])
  }
  const served = new Set(front.gateway.requestCounts().map(({ route }) => route))
  expect(served).toEqual(new Set(Object.keys(document.paths)))
  const references = JSON.stringify(document).match(/#\/components\/schemas\/\w+/g) ?? []
  for (const reference of new Set(references))
    expect(document.components.schemas).toHaveProperty(reference.split('/').at(-1) ?? '')
})
