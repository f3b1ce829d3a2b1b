import { once } from 'node:events'
import { request as httpRequest } from 'node:http'
import { connect, type Socket } from 'node:net'
import { setImmediate } from 'node:timers/promises'
import { fetch } from 'undici'
import { createBudget } from '#gateway/front/budget'
import { budgetLimits } from '#gateway/gateway'
import { type ChainReadings, followLedger } from '#gateway/status/health'
import { createStatus } from '#host/status'
import { listenAdmin } from '#io/serving/admin-listener'
import { listen, socketSettings } from '#io/serving/listener'
import { createRequestLog } from '#io/serving/logs'
import { listenMetrics } from '#io/serving/looks'
import type { RequestRecord } from '#protocol/call'
import { deferred } from '#support/deferred'
import { makeQuestion, signedBody, signedItem } from '#support/fake-view'
import {
  codeOf,
  openFront,
  slowStore,
  statusParts,
  testConfig,
  testHash,
  testRandom,
} from '#support/front'
import { exchangeRaw } from '#support/raw-http'
import { quietStatus } from '#support/status-document'

const here = { host: '127.0.0.1', port: 0 }
const empty = { status: 200, headers: { 'content-type': 'application/json' }, body: '{}' }

const first = makeQuestion('first', { slug: 'first-question' })

test('robustness §6: a caller that is still sending gets its 413 instead of a reset', async () => {
  const front = await openFront()
  const listener = await listen({ ...here, handler: front.gateway.answer })
  onTestFinished(() => listener.close(0))
  for (const body of [
    Buffer.alloc(3_000_000, 0x20),
    (async function* () {
      for (let part = 0; part < 60; part += 1) yield Buffer.alloc(50_000, 0x20)
    })(),
  ]) {
    const response = await fetch(`${listener.url}/propose/batch`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body,
      duplex: 'half',
    })
    expect([
      response.status,
      ((await response.json()) as { error: { code: string } }).error.code,
    ]).toEqual([413, 'payload_too_large'])
  }
})

test('robustness §4, §6: a caller that goes on sending after its head was refused is read for a while, so that the answer is not overtaken', async () => {
  const { promise: told, resolve: refused } = deferred()
  const listener = await listen({
    ...here,
    handler: async () => empty,
    onRefused: () => refused(),
  })
  let accepted: Socket | undefined
  listener.server.on('connection', (socket: Socket) => {
    accepted = socket
  })
  const caller = connect({ host: '127.0.0.1', port: listener.port, allowHalfOpen: true })
  onTestFinished(async () => {
    caller.destroy()
    await listener.close(0)
  })
  const much = 'a'.repeat(20_000)
  caller.write(`GET /healthz HTTP/1.1\r\nHost: a\r\nX-A: ${much}`)
  await told
  caller.write(much)
  await expect
    .poll(() => accepted?.bytesRead, { timeout: 20_000, interval: 5 })
    .toBeGreaterThan(2 * much.length)
  expect(accepted?.destroyed).toBe(false)
  let text = ''
  for await (const part of caller) text += part
  expect(text).toMatch(/^HTTP\/1\.1 431 /)
})

test('robustness §5: of pipelined calls one is begun in a round, so that other connections come in between', async () => {
  const order: string[] = []
  const listener = await listen({
    ...here,
    handler: async ({ target }) => {
      order.push(target)
      return empty
    },
  })
  const open = () => connect({ host: '127.0.0.1', port: listener.port })
  const [many, one] = [open(), open()]
  onTestFinished(async () => {
    many.destroy()
    one.destroy()
    await listener.close(0)
  })
  const call = (path: string) => `GET ${path} HTTP/1.1\r\nHost: a\r\n\r\n`
  for (const socket of [many, one]) socket.write(call('/first'))
  await expect.poll(() => order.length).toBe(2)
  many.write(call('/many').repeat(30))
  one.write(call('/one'))
  await expect.poll(() => order.length).toBe(33)
  expect(order.indexOf('/one')).toBeLessThan(6)
})

test('R23: closing answers what is in flight and takes no new connection', async () => {
  const store = slowStore()
  const front = await openFront({ log: store.log })
  const inFlight = store.hold()
  const listener = await listen({ ...here, handler: front.gateway.answer })
  const body = JSON.stringify({ proposals: [await signedItem(front.wallets[0], first)] })
  const answered = fetch(`${listener.url}/propose/batch`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body,
  })
  await inFlight
  const closed = listener.close(60_000)
  await expect.poll(() => listener.server.listening).toBe(false)
  await expect(fetch(`${listener.url}/healthz`)).rejects.toThrow()
  store.release()
  const response = await answered
  expect([response.status, response.headers.get('connection')]).toEqual([200, 'close'])
  await closed
})

test.each([0, 200])(
  'R23: what accepted connections have sent is read and answered, after %i ms of serving on',
  async (serveMs) => {
    const listener = await listen({ ...here, handler: async () => empty })
    const call = 'GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n'
    const told = Array.from({ length: 20 }, () => '')
    const sockets = told.map((_, at) => {
      const socket = connect({ host: '127.0.0.1', port: listener.port })
      socket.setEncoding('latin1').on('data', (part) => {
        told[at] = `${told[at]}${part}`
      })
      socket.on('error', ({ message }) => {
        told[at] = `${told[at]}${message}`
      })
      socket.write(call)
      return socket
    })
    const answers = (count: number) =>
      told.every((text) => text.match(/HTTP\/1\.1 200 /g)?.length === count)
    await expect.poll(() => answers(1)).toBe(true)
    // Nothing of this has been read when the end comes; of two calls the second is the last.
    for (const socket of sockets) socket.write(call.repeat(2))
    const closed = listener.close(1_000, serveMs)
    await Promise.all(sockets.map((socket) => once(socket, 'close')))
    expect(
      told.filter((text) => !/200 [\s\S]*200 [\s\S]*200 [\s\S]*connection: close/i.test(text)),
    ).toEqual([])
    expect(told.join('').match(/connection: close/gi)).toHaveLength(20)
    await closed
  },
)

test('R23: what is not answered when the time is up is cut', async () => {
  const { promise: arrived, resolve: arrive } = deferred()
  const listener = await listen({
    ...here,
    handler: () => {
      arrive()
      return new Promise(() => {})
    },
  })
  const cut = new Promise<string | undefined>((resolve) => {
    const call = httpRequest(`${listener.url}/healthz`)
    call.on('error', (error: NodeJS.ErrnoException) => resolve(error.code))
    call.end()
  })
  await arrived
  await listener.close(10)
  expect(await cut).toBe('ECONNRESET')
})

test('an address that is taken is refused with its code', async () => {
  const listener = await listen({ ...here, handler: async () => empty })
  onTestFinished(() => listener.close(0))
  await expect(
    listen({ host: '127.0.0.1', port: listener.port, handler: async () => empty }),
  ).rejects.toMatchObject({
    code: 'EADDRINUSE',
  })
})

test('contract §2: a body that breaks off is charged one item', async () => {
  const front = await openFront()
  const { promise: arrived, resolve: arrive } = deferred()
  const listener = await listen({
    ...here,
    handler: (call) => {
      arrive()
      return front.gateway.answer(call)
    },
  })
  onTestFinished(() => listener.close(0))
  const socket = connect({ host: '127.0.0.1', port: listener.port })
  socket.write(
    'POST /propose/batch HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 10\r\n\r\n{',
  )
  await arrived
  socket.destroy()
  await front.gateway.drain()
  expect(front.records).toMatchObject([{ route: '/propose/batch', status: 408, items: 1 }])
})

test('R17: calls of one connection are answered one after the other, so that a caller who reads nothing holds one answer', async () => {
  let running = 0
  let most = 0
  const listener = await listen({
    ...here,
    handler: async () => {
      running += 1
      most = Math.max(most, running)
      await setImmediate()
      running -= 1
      return empty
    },
  })
  onTestFinished(() => listener.close(0))
  const closing = 'GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n'
  const answer = await exchangeRaw(
    listener.port,
    `${'GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n'.repeat(20)}${closing}`,
    {
      untilClosed: true,
    },
  )
  expect(answer.text.match(/HTTP\/1\.1 200/g)).toHaveLength(21)
  expect(most).toBe(1)
})

test('R17: a connection that sends more calls ahead than may wait is cut, and none of those that waited is carried out', async () => {
  let calls = 0
  const listener = await listen({
    ...here,
    handler: () => {
      calls += 1
      return new Promise(() => {})
    },
  })
  onTestFinished(() => listener.close(0))
  const ahead = 'GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n'.repeat(socketSettings.waitingCalls + 2)
  await expect(exchangeRaw(listener.port, ahead)).rejects.toThrow('no answer')
  expect(calls).toBe(1)
})

test('R17: hundreds of callers that send their bodies slowly do not keep others out', async () => {
  const front = await openFront()
  let arrived = 0
  const listener = await listen({
    ...here,
    handler: (call) => {
      arrived += 1
      return front.gateway.answer(call)
    },
  })
  const head =
    'POST /propose/batch HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 2000000\r\n\r\n{'
  const slow = Array.from({ length: 300 }, () =>
    exchangeRaw(listener.port, head).catch(() => undefined),
  )
  onTestFinished(async () => {
    await listener.close(0)
    await Promise.all(slow)
  })
  await expect.poll(() => arrived, { timeout: 20_000 }).toBe(300)
  const response = await fetch(`${listener.url}/propose/batch/status`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: '{"candidate_ids":["00000000-0000-4000-8000-000000000000"]}',
  })
  expect(response.status).toBe(200)
})

test('contract §9: metrics, health and readiness under any name of the host, and nothing else', async () => {
  const front = await openFront()
  const admin = await listenAdmin({ ...statusParts(front.gateway), port: 0 })
  const scraped = await listenMetrics({
    ...here,
    reasons: front.gateway.readiness,
    metrics: admin.metrics,
  })
  const port = Number(new URL(scraped.url).port)
  const ask = (target: string, method = 'GET', more = '') =>
    exchangeRaw(
      port,
      `${method} ${target} HTTP/1.1\r\nHost: gateway.internal:${port}\r\n${more}Connection: close\r\n\r\n`,
    )
  try {
    const read = async (url: string) => {
      const response = await fetch(url)
      return [response.status, await response.text()]
    }
    const metrics = [200, expect.stringContaining('proposer_ready 1')]
    expect(await read(`${scraped.url}/metrics`)).toEqual(metrics)
    expect(await read(`${admin.url}/metrics`)).toEqual(metrics)
    expect((await ask('/metrics')).status).toBe(200)
    expect(await read(`${scraped.url}/healthz`)).toEqual([200, '{"status":"ok"}'])
    front.view.faultList.push('head too old: “PLANTED”')
    expect(await read(`${scraped.url}/readyz`)).toEqual([
      503,
      '{"ready":false,"reasons":["head too old"]}',
    ])
    for (const path of [
      '/',
      '/operator/events',
      '/operator/budget',
      '/operator/status',
      '/operator/pause',
      '/openapi.json',
      '/v1/proposals/eligibility/0x',
      '/metrics/',
      '/metrics?x=1',
    ])
      expect((await ask(path)).status, path).toBe(404)
    for (const method of ['POST', 'PUT', 'DELETE', 'HEAD'])
      expect((await ask('/metrics', method, 'Content-Length: 0\r\n')).status, method).toBe(405)
    expect((await ask('/operator/pause', 'POST', 'Content-Length: 9999999\r\n')).status).toBe(404)
  } finally {
    await scraped.close()
    await admin.close()
  }
  await expect(fetch(scraped.url)).rejects.toThrow()
})

test('contract §2, §6: health, readiness and metrics on loopback names only, and nothing else', async () => {
  const budget = createBudget(budgetLimits(testConfig()))
  const front = await openFront({ parts: { budget } })
  const { clock, config, ledger, gateway } = front
  const { now } = createStatus({
    ...{ clock, config, ledger, budget, following: followLedger({ clock, ledger }) },
    view: {
      heads: () => undefined,
      counts: () => ({ known: 0, due: 0 }),
      code: () => ({ changed: [], versions: new Map() }),
    },
    readiness: gateway.readiness,
    readings: {} as ChainReadings,
    executor: undefined,
    nodes: () => [],
  })
  await front.get('/healthz')
  await front.get('/nowhere')
  const status = () => now(quietStatus)
  const admin = await listenAdmin({ ...statusParts(gateway), status, port: 0 })
  const ask = (target: string, host = 'localhost', method = 'GET') =>
    exchangeRaw(
      admin.port,
      `${method} ${target} HTTP/1.1\r\nHost: ${host}\r\nConnection: close\r\n\r\n`,
    )
  onTestFinished(() => admin.close())
  expect(admin.url).toBe(`http://127.0.0.1:${admin.port}`)
  const metrics = await (await fetch(`${admin.url}/metrics`)).text()
  expect(metrics).toContain(
    'proposer_http_requests_total{route="/healthz",method="GET",status="200"} 1',
  )
  expect(metrics).toContain(
    'proposer_http_requests_total{route="unmatched",method="GET",status="404"} 1',
  )
  expect(metrics).toContain('proposer_ready 1')
  expect(metrics).toContain('proposer_budget_spent_items 0')
  expect(metrics).toContain('proposer_queue_candidates{stage="received"} 0')
  const [wallet] = front.wallets
  const body = await signedBody(wallet, first)
  expect((await front.post(`/v1/proposals/${first.questionId}`, body)).status).toBe(202)
  const after = await (await fetch(`${admin.url}/metrics`)).text()
  expect(after).toContain('proposer_budget_spent_items 1\n')
  expect(after).toContain('proposer_budget_limit_items 1000')
  expect(after).toContain('proposer_queue_candidates{stage="received"} 1')
  expect(after).toContain('proposer_executor_open_slots 0')
  front.view.faultList.push('head too old')
  expect(await (await fetch(`${admin.url}/metrics`)).text()).toContain('proposer_ready 0')
  const readiness = await fetch(`${admin.url}/readyz`)
  expect([readiness.status, await readiness.json()]).toEqual([
    503,
    { ready: false, reasons: ['head too old'] },
  ])
  for (const host of ['127.0.0.1', `localhost:${admin.port}`, '[::1]:1', 'LOCALHOST'])
    expect((await ask('/healthz', host)).status).toBe(200)
  for (const host of [
    'evil.example',
    'localhost.evil.example',
    '127.0.0.1.evil.example',
    '192.0.2.1',
    '[::2]',
  ]) {
    expect([host, (await ask('/healthz', host)).status]).toEqual([host, 400])
  }
  expect((await ask('/healthz', 'localhost', 'POST')).status).toBe(405)
  expect((await ask('/nowhere')).status).toBe(404)
  expect((await ask('/v1/proposals/eligibility/x')).status).toBe(404)
})

test.each([
  [64, {}],
  [2, { connections: 2 }],
])(
  'robustness §5: %i connections are served, what comes above them is closed',
  async (most, limit) => {
    const front = await openFront()
    const admin = await listenAdmin({ ...statusParts(front.gateway), port: 0, ...limit })
    const open = () => connect({ host: '127.0.0.1', port: admin.port })
    const held = Array.from({ length: most }, open)
    onTestFinished(async () => {
      for (const socket of held) socket.destroy()
      await admin.close()
    })
    await Promise.all(held.map((socket) => once(socket, 'connect')))
    const above = open()
    above.on('error', () => undefined)
    await once(above.resume(), 'close')
    const [one] = held
    one?.write('GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n')
    expect(String(await once(one as Socket, 'data'))).toContain('200 OK')
  },
)

const record: RequestRecord = {
  requestId: '00000000-0000-4000-8000-000000000000',
  method: 'POST',
  route: '/propose/batch',
  status: 200,
  code: undefined,
  durationMs: 1.23456,
  items: 3,
  client: '192.0.2.1',
  bug: undefined,
}

test('robustness §5: one JSON line per call of fixed fields, the client hashed alike within a process only', () => {
  const lines: string[] = []
  const sink = { write: (line: string) => lines.push(line) }
  const log = createRequestLog({ hash: testHash, random: testRandom, sink })
  log.write(record)
  log.write({
    ...record,
    method: 'GET\n{"forged":1}',
    bug: {
      name: 'x'.repeat(10_000),
      frames: Array.from({ length: 6 }, () => 'y'.repeat(10_000)),
    },
  })
  createRequestLog({ hash: testHash, random: testRandom, sink }).write(record)
  const [line = '', bug = '', other = ''] = lines
  const parsed = JSON.parse(line) as Record<string, unknown>
  expect(Object.keys(parsed)).toEqual([
    'level',
    'severity',
    'time',
    'message',
    'request_id',
    'method',
    'route',
    'status',
    'ms',
    'items',
    'client',
    'event',
  ])
  expect(parsed).toMatchObject({
    method: 'POST',
    route: '/propose/batch',
    status: 200,
    ms: 1.23,
    items: 3,
  })
  expect(line).not.toContain('192.0.2.1')
  expect(JSON.parse(bug)).toMatchObject({ method: 'OTHER', client: parsed.client })
  expect((JSON.parse(other) as Record<string, unknown>).client).not.toBe(parsed.client)
  for (const each of lines)
    expect([each.endsWith('\n'), each.split('\n').length, each.length <= 4096]).toEqual([
      true,
      2,
      true,
    ])
})

test('robustness §5: calls that cost nothing cannot fill a disk: beyond 60 of a client and 1,200 of all they are counted', () => {
  vi.useFakeTimers()
  onTestFinished(() => {
    vi.useRealTimers()
  })
  const lines: Record<string, unknown>[] = []
  const sink = { write: (line: string) => lines.push(JSON.parse(line)) }
  const log = createRequestLog({ hash: testHash, random: testRandom, sink })
  const free = { route: 'unmatched', status: 404, code: 'route_not_found', items: 0 } as const
  const overBudget = { status: 429, code: 'rate_limited', items: 1 } as const
  for (let at = 0; at < 100; at += 1) {
    log.write({ ...record, ...(at % 2 === 0 ? free : overBudget) })
    log.write(record)
    log.write({ ...record, status: 500, bug: { name: 'Error', frames: [] } })
  }
  expect(lines.filter(({ status }) => status === 404 || status === 429)).toHaveLength(60)
  expect(lines).toHaveLength(260)
  log.write({ ...record, ...free, client: '192.0.2.2' })
  expect(lines).toHaveLength(261)
  vi.advanceTimersByTime(60_000)
  const { client } = lines[0] ?? {}
  expect(lines.slice(261)).toMatchObject([{ event: 'more_requests', client, calls: 40 }])

  const clients = Array.from({ length: 1_500 }, (_, at) => `198.51.100.${at}`)
  for (const each of [...clients, ...clients]) log.write({ ...record, ...free, client: each })
  expect(lines).toHaveLength(262 + 1_200)
  log.end()
  const more = lines.slice(262 + 1_200)
  expect(more).toHaveLength(1_201)
  expect(more.at(-1)).toMatchObject({ event: 'more_requests', calls: 600 })
  expect(more.at(-1)).not.toHaveProperty('client')
  expect(vi.getTimerCount()).toBe(0)
})

test('robustness §5: the log is told of every call that was answered', async () => {
  const front = await openFront()
  await front.get('/nowhere')
  expect(await codeOf(await front.post('/propose/batch', { proposals: 5 }))).toBe(
    'schema_violation',
  )
  expect(front.records).toMatchObject([
    { route: 'unmatched', method: 'GET', status: 404, code: 'route_not_found', items: 0 },
    {
      route: '/propose/batch',
      method: 'POST',
      status: 422,
      code: 'schema_violation',
      items: 1,
      client: '192.0.2.1',
    },
  ])
})
