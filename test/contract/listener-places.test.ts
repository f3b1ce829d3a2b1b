import { connect, type Socket } from 'node:net'
import { type Listener, type ListenOptions, listen, socketSettings } from '#io/serving/listener'
import type { Answered, RequestRecord } from '#protocol/call'
import { exchangeRaw } from '#support/raw-http'

const done: Answered = { status: 200, headers: { 'content-type': 'application/json' }, body: '{}' }
const call = 'GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n'

let listener: Listener
const sockets: Socket[] = []
const refused: RequestRecord[] = []
afterEach(async () => {
  for (const socket of sockets.splice(0)) socket.destroy()
  refused.length = 0
  await listener.close(0)
})

async function open(
  places: number,
  handler: () => Promise<Answered> = async () => done,
  more: Pick<ListenOptions, 'perAddress' | 'addressKey'> = {},
) {
  listener = await listen({
    host: '0.0.0.0',
    port: 0,
    places,
    handler,
    ...more,
    onRefused: (record) => refused.push(record),
  })
}
function connected(from = '127.0.0.1') {
  const socket = connect({ host: '127.0.0.1', port: listener.port, localAddress: from })
  sockets.push(socket)
  const told = { text: '', closed: false }
  socket
    .on('error', () => undefined)
    .on('close', () => {
      told.closed = true
    })
  socket.setEncoding('latin1').on('data', (part) => {
    told.text += part
  })
  return { socket, told, call: () => socket.write(call) }
}
async function placed(from?: string) {
  const one = connected(from)
  one.call()
  await expect.poll(() => one.told.text, { interval: 2 }).toMatch(/^HTTP\/1\.1 200 /)
  return one
}

describe('R17: connections beyond the most allowed', () => {
  test('are answered 503 in the form of any refusal, with Retry-After and Connection: close, and closed', async () => {
    await open(2)
    const kept = [await placed(), await placed()]
    const answers = await Promise.all(
      [1, 2, 3, 4, 5, 6].map(() => exchangeRaw(listener.port, call)),
    )
    for (const { status, code, closed, headers, body } of answers) {
      expect([status, code, closed]).toEqual([503, 'server_busy', true])
      expect(headers).toMatchObject({
        connection: 'close',
        'content-type': 'application/json',
        'cache-control': 'no-store',
        'retry-after': expect.stringMatching(/^[123]$/),
      })
      expect(JSON.parse(body).error.detail).toBe(
        `all 2 connections are taken; nothing was committed; retry in ${headers['retry-after']} seconds`,
      )
    }
    expect(new Set(answers.map(({ headers }) => headers['retry-after'])).size).toBe(3)
    expect(refused.map(({ status, code }) => [status, code])).toEqual(
      answers.map(() => [503, 'server_busy']),
    )
    expect(kept.map(({ told }) => told.closed)).toEqual([false, false])
  })

  test('a large submission is read away, so that no reset overtakes its answer', async () => {
    await open(1)
    await placed()
    const body = 'x'.repeat(2_000_000)
    const answer = await exchangeRaw(
      listener.port,
      `POST /propose/batch HTTP/1.1\r\nHost: a\r\nContent-Length: ${body.length}\r\n\r\n${body}`,
    )
    expect([answer.status, answer.code]).toEqual([503, 'server_busy'])
  })

  test('one that says nothing is answered and closed too', async () => {
    await open(1)
    await placed()
    const { told } = connected()
    await expect.poll(() => told.closed, { timeout: 10_000 }).toBe(true)
    expect(told.text).toMatch(/^HTTP\/1\.1 503 /)
  })

  test('a place that is free again is taken by whoever comes next', async () => {
    await open(1)
    const { socket } = await placed()
    expect((await exchangeRaw(listener.port, call)).status).toBe(503)
    socket.destroy()
    await expect
      .poll(async () => (await exchangeRaw(listener.port, call)).status, { interval: 5 })
      .toBe(200)
  })

  test('are refused so many a second, cut beyond that, and bounded themselves', async () => {
    await open(1)
    await placed()
    const many = Array.from({ length: 250 }, () => connected())
    for (const one of many) one.call()
    await expect
      .poll(() => many.filter(({ told }) => told.closed).length, { timeout: 20_000 })
      .toBe(250)
    const answered = many.filter(({ told }) => told.text !== '')
    for (const { told } of answered) expect(told.text).toMatch(/^HTTP\/1\.1 503 /)
    expect(answered.length).toBeGreaterThanOrEqual(100)
    expect(listener.server.maxConnections).toBe(1 + 3_072)
    expect(socketSettings.places).toBe(1_024)
  })

  test('closing answers those that wait for their refusal, and keeps nobody', async () => {
    await open(1)
    await placed()
    const silent = connected()
    await expect
      .poll(() => new Promise((tell) => listener.server.getConnections((_, n) => tell(n))))
      .toBe(2)
    await listener.close(0)
    await expect.poll(() => silent.told.closed).toBe(true)
    expect(silent.told.text).toMatch(/^HTTP\/1\.1 503 /)
  })
})

test('R17: has no more than its own, although places are free, and one network counts as one address', async () => {
  const addressKey = (address: string) => address.split('.').slice(0, 3).join('.')
  await open(4, undefined, { perAddress: 2, addressKey })
  const first = await placed('127.0.0.1')
  await placed('127.0.0.2')
  const third = connected('127.0.0.3')
  third.call()
  await expect.poll(() => third.told.text).toMatch(/^HTTP\/1\.1 503 /)
  expect(third.told.text).toContain('all 4 connections are taken, or the 2 of one address;')
  expect((await placed('127.0.1.1')).told.closed).toBe(false)
  first.socket.destroy()
  await expect
    .poll(async () => {
      const again = connected('127.0.0.3')
      again.call()
      await expect.poll(() => again.told.text).toMatch(/^HTTP/)
      return again.told.text.slice(9, 12)
    })
    .toBe('200')
})
