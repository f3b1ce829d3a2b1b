import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { performance } from 'node:perf_hooks'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { openRpcProxy, type RpcProxy, type Weather } from '../support/rpc-proxy.js'

const seen: string[] = []
const node = createServer(async (request, response) => {
  const chunks: Buffer[] = []
  for await (const chunk of request) chunks.push(chunk)
  const text = Buffer.concat(chunks).toString()
  seen.push(text)
  const answer = ({ id, method }: { id: number; method: string }) => ({ id, result: method })
  const body = JSON.parse(text)
  response.end(JSON.stringify(Array.isArray(body) ? body.map(answer) : answer(body)))
})
let upstream: string
beforeAll(async () => {
  await new Promise<void>((resolve) => node.listen(0, '127.0.0.1', resolve))
  upstream = `http://127.0.0.1:${(node.address() as AddressInfo).port}`
})
afterAll(() => {
  node.closeAllConnections()
  node.close()
})

const call = (method: string, ...params: string[]) => ({ jsonrpc: '2.0', id: 7, method, params })
const post = async ({ url }: RpcProxy, body: unknown): Promise<unknown> =>
  (await fetch(url, { method: 'POST', body: JSON.stringify(body) })).json()

async function behind(weather: Weather, work: (proxy: RpcProxy) => Promise<void>): Promise<void> {
  const proxy = await openRpcProxy(upstream, weather)
  seen.length = 0
  await work(proxy).finally(() => proxy.close())
}

test('single calls and batches pass as they are, and are counted by request and by method', async () => {
  await behind({ delayMs: 2, jitterMs: 2 }, async (proxy) => {
    const batch = [call('eth_chainId'), call('eth_call'), call('eth_call')]
    expect(await post(proxy, call('eth_chainId'))).toEqual({ id: 7, result: 'eth_chainId' })
    expect(await post(proxy, batch)).toEqual(
      batch.map(({ id, method }) => ({ id, result: method })),
    )
    expect(seen).toEqual([JSON.stringify(call('eth_chainId')), JSON.stringify(batch)])
    expect(proxy.requests).toEqual({ all: 2, lost: 0, late: 0 })
    expect(Object.fromEntries(proxy.methods)).toEqual({ eth_chainId: 2, eth_call: 2 })
  })
})

test('a lost request is cut, in turn before and after the node saw it; what it sent counts as reached only then', async () => {
  await behind({ lostShare: 1 }, async (proxy) => {
    const sent = (raw: string) => post(proxy, call('eth_sendRawTransaction', raw))
    await expect(sent('0x01')).rejects.toThrow(TypeError)
    expect([seen.length, [...proxy.reached.keys()]]).toEqual([0, []])
    await expect(sent('0x01')).rejects.toThrow(TypeError)
    expect([seen.length, [...proxy.reached.keys()]]).toEqual([1, ['0x01']])
    proxy.change({})
    const first = proxy.reached.get('0x01')
    await sent('0x01')
    expect(proxy.reached.get('0x01')).toBe(first)
    expect(proxy.handed).toEqual(['0x01', '0x01', '0x01'])
    expect(proxy.requests).toEqual({ all: 3, lost: 2, late: 0 })
  })
})

test('a late answer comes no earlier than it is told to; a delay counts there and back', async () => {
  await behind({ delayMs: 40, lateShare: 1, lateMs: 60 }, async (proxy) => {
    const begun = performance.now()
    await post(proxy, call('eth_sendRawTransaction', '0x02'))
    const answered = performance.now()
    const reached = proxy.reached.get('0x02') ?? 0
    // A timer may fire a millisecond early.
    expect(reached - begun).toBeGreaterThan(18)
    expect(answered - reached).toBeGreaterThan(78)
    expect(proxy.requests).toEqual({ all: 1, lost: 0, late: 1 })
  })
})

test('one seed, one weather', async () => {
  const lossesOf = async (seed: number) => {
    const losses: boolean[] = []
    await behind({ lostShare: 0.3, seed }, async (proxy) => {
      for (let n = 0; n < 40; n += 1)
        losses.push(
          await post(proxy, call('eth_chainId')).then(
            () => false,
            () => true,
          ),
        )
    })
    return losses
  }
  const first = await lossesOf(1)
  expect(first.filter(Boolean).length).toBeGreaterThan(3)
  expect(await lossesOf(1)).toEqual(first)
  expect(await lossesOf(2)).not.toEqual(first)
})
