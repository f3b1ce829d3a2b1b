/** New blocks by WebSocket, from nodes that are honest, broken, lying or silent. */
import { createServer, type Server } from 'node:net'
import { afterEach, describe, expect, test, vi } from 'vitest'
import { systemClock, systemRandom } from '../../src/core/io/clock.js'
import { followHeads, type HeadsOptions, tryHeads } from '../../src/core/io/rpc/heads-socket.js'
import { type HeadsServerOptions, startHeadsServer } from '../support/heads-server.js'

const chainId = 31_337
const ends: (() => unknown)[] = []
afterEach(async () => {
  for (const end of ends.splice(0).reverse()) await end()
})

async function node(options: Partial<HeadsServerOptions> = {}) {
  const server = await startHeadsServer({ chainId, ...options })
  ends.push(server.close)
  return server
}

/** Follows the nodes; a second of waiting takes two milliseconds. */
function follow(urls: readonly string[], options: Partial<HeadsOptions> = {}) {
  const heads: bigint[] = []
  const socket = followHeads(urls, {
    chainId,
    onHead: (number) => heads.push(number),
    mostSilenceMs: 60_000,
    clock: systemClock,
    random: systemRandom,
    secondMs: 2,
    ...options,
  })
  ends.push(socket.close)
  return { heads, socket }
}

/** All that was said before has been heard. */
const heard = (
  server: Awaited<ReturnType<typeof node>>,
  heads: readonly bigint[],
  last: bigint,
) => {
  server.announce(last)
  return vi.waitFor(() => expect(heads.at(-1)).toBe(last))
}

test('each block that a node announces is told of', async () => {
  const server = await node()
  const { heads, socket } = follow([server.url])
  await server.subscribed(1)
  for (const number of [7n, 8n, 9n]) server.announce(number)
  await heard(server, heads, 10n)
  expect(heads).toEqual([7n, 8n, 9n, 10n])
  expect(server.asked).toEqual(['eth_chainId', 'eth_subscribe'])
  expect(socket.now()).toMatchObject({ isConnected: true, failure: undefined })
})

test('R5: user and password of a URL become a header; a path and a query stay in the URL', async () => {
  const server = await node()
  follow([`${server.url.replace('//', '//user:pass%21@')}/v2/key?k=v`])
  await server.subscribed(1)
  expect(server.opened).toEqual([
    {
      path: '/v2/key?k=v',
      authorization: `Basic ${Buffer.from('user:pass!').toString('base64')}`,
    },
  ])
})

describe('what is wrong is not told of', () => {
  test.each([
    ['no JSON', '{"jsonrpc"'],
    ['an empty text', ''],
    ['a list', '[[[[1]]]]'],
    ['another subscription', headOf('"0x1"', '0xbeef')],
    ['no number', headOf('null')],
    ['a negative number', headOf('"-0x1"')],
    ['a decimal', headOf('"12"')],
    ['a leading zero', headOf('"0x01"')],
    ['more than eight bytes', headOf('"0x10000000000000000"')],
    ['a number of JSON', headOf('12')],
  ])('%s', async (_, text) => {
    const server = await node()
    const { heads } = follow([server.url])
    await server.subscribed(1)
    server.say(text)
    await heard(server, heads, 5n)
    expect(heads).toEqual([5n])
    expect(server.opened).toHaveLength(1)
  })

  test('R17: a message of 10 MB ends the connection, and another one is opened', async () => {
    const server = await node()
    const { heads } = follow([server.url])
    await server.subscribed(1)
    server.say(headOf('"0x1"').padEnd(10_000_000))
    await server.subscribed(2)
    await heard(server, heads, 5n)
    expect(heads).toEqual([5n])
  })

  test('R17: so do messages without end', async () => {
    const server = await node()
    const { heads } = follow([server.url])
    await server.subscribed(1)
    for (let n = 0; n < 1_000; n += 1) server.announce(BigInt(n))
    await server.subscribed(2)
    expect(heads.length).toBeLessThanOrEqual(600)
  })
})

function headOf(number: string, subscription = '0xf00d'): string {
  return `{"jsonrpc":"2.0","method":"eth_subscription","params":{"subscription":"${subscription}","result":{"number":${number}}}}`
}

describe('who does not announce is left', () => {
  test('a node that closes after each connection is tried again, and the next one with it', async () => {
    const [first, second] = [await node(), await node()]
    const { heads, socket } = follow([first.url, second.url])
    await first.subscribed(1)
    first.cut()
    await second.subscribed(1)
    await heard(second, heads, 3n)
    second.cut()
    await first.subscribed(2)
    expect(socket.now().failure).toMatch(/^connection (lost|closed)$/)
    await heard(first, heads, 4n)
    expect(socket.now().failure).toBeUndefined()
  })

  test('a node that takes the subscription and is silent', async () => {
    const [silent, other] = [await node(), await node()]
    const { heads } = follow([silent.url, other.url], { mostSilenceMs: 40 })
    await other.subscribed(1)
    await heard(other, heads, 3n)
    expect(silent.opened.length).toBeGreaterThan(0)
  })

  test('a node that says the same number for ever', async () => {
    const [stuck, other] = [await node(), await node()]
    follow([stuck.url, other.url], { mostSilenceMs: 100 })
    await stuck.subscribed(1)
    const saying = setInterval(() => stuck.announce(7n), 20)
    ends.push(() => clearInterval(saying))
    await other.subscribed(1)
  })

  test('once it is closed, nothing is opened any more, and no connection stays', async () => {
    const server = await node()
    const { socket } = follow([server.url])
    await server.subscribed(1)
    socket.close()
    await vi.waitFor(() => expect(server.open()).toBe(0))
    expect(socket.now().isConnected).toBe(false)
    expect(server.opened).toHaveLength(1)
  })
})

describe('a try says why there is no subscription', () => {
  test('a node that gives one', async () => {
    const server = await node()
    await tryHeads(server.url, chainId)
    await vi.waitFor(() => expect(server.open()).toBe(0))
  })

  const refusing = { error: 'canary' }
  test.each([
    ['on another chain', { chainId: 1 }, 'it is on another chain, not on 31337'],
    [
      'without subscriptions',
      {
        answer: ({ method }: { method: string }) =>
          method === 'eth_chainId' ? '0x7a69' : refusing,
      },
      'it refuses eth_subscribe',
    ],
  ])('a node %s', async (_, options, why) => {
    const server = await node(options)
    await expect(tryHeads(server.url, chainId)).rejects.toThrow(why)
  })

  test('nobody who listens', async () => {
    const gone = await startHeadsServer({ chainId })
    await gone.close()
    await expect(tryHeads(`${gone.url}/canary`, chainId)).rejects.toThrow(
      /^connection refused \(ECONNREFUSED\)$/,
    )
  })

  test('a server that speaks HTTP only', async () => {
    const server: Server = createServer((socket) => {
      socket.once('data', () =>
        socket.end('HTTP/1.1 404 Not Found\r\ncontent-length: 6\r\n\r\ncanary'),
      )
    })
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
    ends.push(() => server.close())
    const address = server.address()
    const port = typeof address === 'object' ? address?.port : 0
    await expect(tryHeads(`ws://127.0.0.1:${port}`, chainId)).rejects.toThrow(
      /^it does not accept WebSocket connections$/,
    )
  })
})
