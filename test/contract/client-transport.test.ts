import { type AddressInfo, createServer, type Server, type Socket } from 'node:net'
import { setTimeout } from 'node:timers/promises'
import { createServer as createTlsServer } from 'node:tls'
import { gzipSync } from 'node:zlib'
import { createGatewayClient } from '#client/gateway/gateway-client'
import { systemClock } from '#io/clock'
import { createHttp } from '#io/http'
import { TransportError } from '#ports'
import { version } from '#protocol/words'

const questionId = `0x${'1'.repeat(64)}`
const ack = JSON.stringify({
  version,
  candidate_id: '00000000-0000-4000-8000-000000000001',
  status: 'received',
  received_at: '2026-11-20T05:38:00.000Z',
  status_url: '/x',
})
const whole = (status: string, body: string, headers = '') =>
  `HTTP/1.1 ${status}\r\ncontent-type: application/json\r\n${headers}content-length: ${body.length}\r\n\r\n${body}`

const selfSigned = {
  key: `-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQglQAbWroveEYjyWD4
Ct+cMJw1VoduKL3aqCRcNQ9u4eahRANCAASLhh0mT+ZsfjQ6lIR3JJeruh+hnd/C
AOjMzi4Gq1BX6xPSGDggH6gJCCJJRzTM3yD2DCCA6VgSqbmUr1XD5OId
-----END PRIVATE KEY-----`,
  cert: `-----BEGIN CERTIFICATE-----
MIIBnDCCAUGgAwIBAgIUMvoOcY7iPbWfY99NYd+ZydMJ1yIwCgYIKoZIzj0EAwIw
FDESMBAGA1UEAwwJbG9jYWxob3N0MCAXDTI2MTEyNDA1MTgwN1oYDzIxMjYxMDMx
MDUxODA3WjAUMRIwEAYDVQQDDAlsb2NhbGhvc3QwWTATBgcqhkjOPQIBBggqhkjO
PQMBBwNCAASLhh0mT+ZsfjQ6lIR3JJeruh+hnd/CAOjMzi4Gq1BX6xPSGDggH6gJ
CCJJRzTM3yD2DCCA6VgSqbmUr1XD5OIdo28wbTAdBgNVHQ4EFgQUiR0eIN7xH4Xd
kfaqI9koE3SHozEwHwYDVR0jBBgwFoAUiR0eIN7xH4XdkfaqI9koE3SHozEwDwYD
VR0TAQH/BAUwAwEB/zAaBgNVHREEEzARgglsb2NhbGhvc3SHBH8AAAEwCgYIKoZI
zj0EAwIDSQAwRgIhAPm+nDUZkNtjcb6QEzihyXVEAaXrw41KxHUZEe11KqByAiEA
i/ZYZBAtpY712ge43zz2bsAG6JfYtRjXUMwvugI/Qi8=
-----END CERTIFICATE-----`,
}

const cleanups: (() => Promise<void> | void)[] = []
afterEach(async () => {
  for (const cleanup of cleanups.splice(0)) await cleanup()
})

async function serve(
  onRequest: (socket: Socket, request: string) => void,
  onConnect?: (socket: Socket) => void,
) {
  const sockets = new Set<Socket>()
  const requests: string[] = []
  const server: Server = createServer((socket) => {
    sockets.add(socket)
    socket.on('error', () => undefined)
    onConnect?.(socket)
    let text = ''
    socket.on('data', (chunk) => {
      text += chunk.toString('latin1')
      const head = text.indexOf('\r\n\r\n')
      const length = Number(/content-length: (\d+)/i.exec(text)?.[1] ?? 0)
      if (head < 0 || text.length < head + 4 + length) return
      const request = text
      text = ''
      requests.push(request)
      onRequest(socket, request)
    })
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const address = server.address()
  if (address === null || typeof address === 'string') throw new Error('no port')
  cleanups.push(() => {
    for (const socket of sockets) socket.destroy()
    return new Promise<void>((resolve) => server.close(() => resolve()))
  })
  return { url: `http://127.0.0.1:${address.port}`, requests, sockets, port: address.port }
}

function clientFor(url: string, options: Parameters<typeof createHttp>[0] = {}) {
  const http = createHttp(options)
  cleanups.push(() => http.close())
  return createGatewayClient({ fetch: http.fetch, baseUrl: url, clock: systemClock })
}

const submitTo = async (onRequest: (socket: Socket, request: string) => void) => {
  const server = await serve(onRequest)
  return clientFor(server.url).submit(questionId, '{"a":1}')
}

test('R7: a whole answer is accepted', async () => {
  expect(await submitTo((socket) => socket.end(whole('202 Accepted', ack)))).toMatchObject({
    kind: 'accepted',
    httpStatus: 202,
  })
})

test('R7: one in gzip, which nobody asked for, is read; cut, it is uncertain', async () => {
  const head =
    'HTTP/1.1 202 Accepted\r\ncontent-type: application/json\r\ncontent-encoding: gzip\r\n\r\n'
  const body = gzipSync(ack)
  const answer = (bytes: Uint8Array) =>
    submitTo((socket) => socket.end(Buffer.concat([Buffer.from(head), bytes])))
  expect(await answer(body)).toMatchObject({ kind: 'accepted' })
  expect(await answer(body.subarray(0, -9))).toMatchObject({ kind: 'uncertain' })
})

test('R7: nobody listens: deferred', async () => {
  const server = await serve(() => undefined)
  await cleanups.pop()?.()
  expect(await clientFor(server.url).submit(questionId, '{}')).toMatchObject({
    kind: 'deferred',
    code: 'no_connection',
  })
})

test('R7: a name that does not resolve: deferred', async () => {
  const http = createHttp()
  cleanups.push(() => http.close())
  const failure = await http
    .fetch('https://name.invalid/', { method: 'POST', body: '{}' })
    .catch((error: unknown) => error)
  expect(failure).toBeInstanceOf(TransportError)
  expect(failure).toMatchObject({ phase: 'connect' })
  expect(String(failure)).not.toContain('name.invalid')
})

/** Nobody asked for it (RFC 9110 §15.2). */
const go = 'HTTP/1.1 100 Continue\r\n\r\n'
const answersAfterIt: readonly (readonly string[])[] = [
  [go, whole('202 Accepted', ack)],
  [`${go}${go}${whole('202 Accepted', ack)}`],
  ['HTTP/1.1 100 Continue\r\nx-hint: a\r\n', `\r\n${whole('202 Accepted', ack)}`],
  [...`${go}${whole('202 Accepted', ack)}`],
]
test.each(answersAfterIt)('R7: an unasked 100 Continue is passed over, %#', async (...each) => {
  const answer = await submitTo(async (socket) => {
    socket.setNoDelay(true)
    for (const part of each) {
      socket.write(part)
      await setTimeout(each.length > 9 ? 1 : 20)
    }
    socket.end()
  })
  expect(answer).toMatchObject({ kind: 'accepted', httpStatus: 202 })
})

test('R7: it is so before each answer of a connection that is kept; a body that reads like it stays whole', async () => {
  const body = JSON.stringify({ text: go })
  const server = await serve(async (socket) => {
    socket.write(go)
    const answer = whole('200 OK', body)
    const at = answer.indexOf('HTTP/1.1 100')
    socket.write(answer.slice(0, at))
    await setTimeout(20)
    socket.write(answer.slice(at))
  })
  const http = createHttp()
  cleanups.push(() => http.close())
  for (let call = 0; call < 3; call++)
    expect(await new Response((await http.fetch(server.url)).body).text()).toBe(body)
  expect(server.sockets.size).toBeLessThan(3)
})

test('R7: a TLS handshake that fails: deferred', async () => {
  const server = await serve(
    () => undefined,
    (socket) => socket.end('this is not TLS\r\n'),
  )
  const client = clientFor(`https://127.0.0.1:${server.port}`)
  expect(await client.submit(questionId, '{}')).toMatchObject({
    kind: 'deferred',
    code: 'no_connection',
  })
})

test('R7: a certificate that nobody vouches for: deferred, by a code of its own, for it stays so', async () => {
  const server = createTlsServer(selfSigned, () => undefined)
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  cleanups.push(() => new Promise<void>((resolve) => void server.close(() => resolve())))
  const { port } = server.address() as AddressInfo
  expect(await clientFor(`https://127.0.0.1:${port}`).submit(questionId, '{}')).toMatchObject({
    kind: 'deferred',
    code: 'certificate_not_accepted',
    detail: 'no connection to the gateway (DEPTH_ZERO_SELF_SIGNED_CERT)',
  })
})

const endingWith = (text: string) => (socket: Socket) => void socket.end(text)
const padding = `x-padding: ${'a'.repeat(17 * 1024)}\r\n`
test.each<[string, (socket: Socket) => void]>([
  ['a reset after the request', (socket) => void socket.resetAndDestroy()],
  ['an end without an answer', endingWith('')],
  ['a 100 Continue alone', endingWith(go)],
  ['half of one', endingWith(go.slice(0, 15))],
  ['headers over 16 KiB', endingWith(whole('202 Accepted', ack, padding))],
  ['what is no HTTP', endingWith('SSH-2.0-OpenSSH\r\n')],
  ['an impossible status', endingWith('HTTP/1.1 999 What\r\ncontent-length: 0\r\n\r\n')],
  ['no content', endingWith('HTTP/1.1 204 No Content\r\n\r\n')],
])('R7: %s: uncertain', async (_what, answers) => {
  expect(await submitTo(answers)).toMatchObject({ kind: 'uncertain' })
})

test('R7: an answer cut at any byte: uncertain', async () => {
  const text = whole('202 Accepted', ack)
  const body = text.indexOf('\r\n\r\n') + 4
  const cuts = [1, 8, 12, 20, body - 3, body, body + 1, body + 40, text.length - 1]
  const answers = await Promise.all(
    cuts.map((cut) => submitTo((socket) => socket.end(text.slice(0, cut)))),
  )
  expect(answers.map(({ kind }) => kind)).toEqual(cuts.map(() => 'uncertain'))
})

test.each([301, 302, 303, 307, 308])(
  'R21: a %i is not followed and the body goes nowhere else',
  async (status) => {
    const other = await serve((socket) => socket.end(whole('202 Accepted', ack)))
    const answer = await submitTo((socket) =>
      socket.end(
        `HTTP/1.1 ${status} Moved\r\nlocation: ${other.url}/v1/proposals/${questionId}\r\ncontent-length: 0\r\n\r\n`,
      ),
    )
    expect(answer).toMatchObject({ kind: 'uncertain', httpStatus: status })
    expect(other.requests).toHaveLength(0)
  },
)

test('R7: an answer that never ends is cut at its cap: uncertain', async () => {
  const answer = await submitTo((socket) => {
    socket.write(
      'HTTP/1.1 202 Accepted\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n',
    )
    const chunk = `4000\r\n${' '.repeat(0x4000)}\r\n`
    const more = () => {
      if (!socket.destroyed) socket.write(chunk, () => setImmediate(more))
    }
    more()
  })
  expect(answer).toMatchObject({ kind: 'uncertain', httpStatus: 202 })
})

test('R7: no answer in time: uncertain', async () => {
  const server = await serve(() => undefined)
  expect(await clientFor(server.url, { attemptMs: 150 }).submit(questionId, '{}')).toMatchObject({
    kind: 'uncertain',
  })
})

test("R7: a body that stalls is uncertain once the attempt's time is over", async () => {
  const server = await serve((socket) =>
    socket.write(
      'HTTP/1.1 202 Accepted\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n{',
    ),
  )
  expect(await clientFor(server.url, { attemptMs: 150 }).submit(questionId, '{}')).toMatchObject({
    kind: 'uncertain',
    httpStatus: 202,
  })
})

describe('stopping', () => {
  test('before the connection stands: deferred, and nothing was sent', async () => {
    const server = await serve(() => undefined)
    const stop = new AbortController()
    const calling = clientFor(`https://127.0.0.1:${server.port}`).submit(questionId, '{}', {
      signal: stop.signal,
    })
    while (server.sockets.size === 0) await systemClock.sleep(5)
    stop.abort(new Error('enough'))
    expect(await calling).toMatchObject({ kind: 'deferred', code: 'not_sent' })
    expect(server.requests).toHaveLength(0)
  })

  test('after the request has left: uncertain', async () => {
    const stop = new AbortController()
    const server = await serve(() => stop.abort(new Error('enough')))
    expect(
      await clientFor(server.url).submit(questionId, '{}', { signal: stop.signal }),
    ).toMatchObject({ kind: 'uncertain' })
  })

  test('a signal that has fired already: deferred, without a connection', async () => {
    const server = await serve(() => undefined)
    const answer = await clientFor(server.url).submit(questionId, '{}', {
      signal: AbortSignal.abort(new Error('enough')),
    })
    expect(answer).toMatchObject({ kind: 'deferred' })
    expect(server.sockets.size).toBe(0)
  })
})

test('identity encoding, exact bytes, and a fresh socket for every submission', async () => {
  const server = await serve((socket) => socket.write(whole('202 Accepted', ack)))
  const client = clientFor(server.url)
  const body = '{ "odd":  "spacing\\u0041" }'
  await client.submit(questionId, body)
  await client.submit(questionId, body)
  expect(server.sockets.size).toBe(2)
  for (const request of server.requests) {
    expect(request).toMatch(/accept-encoding: identity\r\n/i)
    expect(request).toMatch(/connection: close\r\n/i)
    expect(request.slice(request.indexOf('\r\n\r\n') + 4)).toBe(body)
    expect(request.startsWith(`POST /v1/proposals/${questionId} HTTP/1.1\r\n`)).toBe(true)
  }
})

test('no proxy is taken from the environment', async () => {
  const proxy = await serve((socket) => socket.end(whole('202 Accepted', ack)))
  const server = await serve((socket) => socket.end(whole('202 Accepted', ack)))
  const before = { HTTP_PROXY: process.env.HTTP_PROXY, http_proxy: process.env.http_proxy }
  Object.assign(process.env, { HTTP_PROXY: proxy.url, http_proxy: proxy.url })
  try {
    await clientFor(server.url).submit(questionId, '{}')
  } finally {
    for (const [name, value] of Object.entries(before)) {
      if (value === undefined) delete process.env[name]
      else process.env[name] = value
    }
  }
  expect(proxy.requests).toHaveLength(0)
  expect(server.requests).toHaveLength(1)
})

test('an unreadable CA file is a usage error', () => {
  expect(() => createHttp({ caFile: '/nonexistent/ca.pem' })).toThrow(
    expect.objectContaining({ code: 'ca_unreadable' }),
  )
})
