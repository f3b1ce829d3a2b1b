/**
 * A proxy on loopback before an honest JSON-RPC node: as far away as a hosted one, with requests
 * that are lost or answered late, and with lies (robustness §7.3). It counts what it is asked.
 * `npm run bench` measures through it too, so it starts nothing and asserts nothing.
 */
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { performance } from 'node:perf_hooks'
import { setTimeout as sleep } from 'node:timers/promises'
import {
  askedFor,
  type Frozen,
  lyingAnswer,
  type RpcAnswer,
  type RpcCall,
  type RpcHeader,
  type RpcLie,
} from './rpc-lies.js'
import { seeded } from './sim-files.js'

export interface Weather {
  readonly delayMs?: number
  readonly jitterMs?: number
  readonly lostShare?: number
  readonly lateShare?: number
  readonly lateMs?: number
  readonly seed?: number
}

export type RpcProxy = Awaited<ReturnType<typeof openRpcProxy>>

interface Fate {
  readonly onewayMs: number
  readonly lost: 'before' | 'after' | undefined
  readonly lateMs: number
}

function fates(weather: Weather): () => Fate {
  const { delayMs = 0, jitterMs = 0, lostShare = 0, lateShare = 0, lateMs = 3_000 } = weather
  const random = seeded(weather.seed ?? 1)
  let losses = 0
  return () => {
    const [jitter, loss, lateness] = [random(), random(), random()]
    const isLost = loss < lostShare
    if (isLost) losses += 1
    return {
      onewayMs: (delayMs + jitter * jitterMs) / 2,
      lost: isLost ? (losses % 2 === 1 ? 'before' : 'after') : undefined,
      lateMs: lateness < lateShare ? lateMs : 0,
    }
  }
}

function nodeAt(upstream: string) {
  const relay = async (text: string): Promise<{ status: number; text: string }> => {
    const headers = { 'content-type': 'application/json' }
    const response = await fetch(upstream, { method: 'POST', headers, body: text })
    return { status: response.status, text: await response.text() }
  }
  const exchange = async (calls: readonly RpcCall[]): Promise<RpcAnswer[]> => {
    const asked = calls.map((call) => ({ jsonrpc: '2.0', ...call }))
    return JSON.parse((await relay(JSON.stringify(asked))).text)
  }
  const header = async (tag: string): Promise<RpcHeader> => {
    const [answer] = await exchange([
      { id: 1, method: 'eth_getBlockByNumber', params: [tag, false] },
    ])
    return answer?.result as RpcHeader
  }
  return { relay, exchange, header }
}

const wholeBody = async (request: IncomingMessage): Promise<string> => {
  const chunks: Buffer[] = []
  for await (const chunk of request) chunks.push(chunk)
  return Buffer.concat(chunks).toString()
}

export async function openRpcProxy(upstream: string, weather: Weather = {}) {
  const node = nodeAt(upstream)
  let nextFate = fates(weather)
  let lie: RpcLie | undefined
  let frozen: Frozen | undefined
  const handed: string[] = []
  const reached = new Map<string, number>()
  const methods = new Map<string, number>()
  const requests = { all: 0, lost: 0, late: 0 }

  const lyingAnswers = async (calls: readonly RpcCall[]): Promise<RpcAnswer[]> => {
    const stale = lie === 'a head that stands still' ? frozen : undefined
    const turned = askedFor(calls, stale)
    const forwarded = turned.filter((one): one is RpcCall => 'method' in one)
    const told = forwarded.length > 0 ? await node.exchange(forwarded) : []
    const isForging = lie === 'another final block'
    const final = isForging ? BigInt((await node.header('finalized')).number) : 0n
    return turned.map((one) => {
      if (!('method' in one)) return one
      const answer = told.find(({ id }) => id === one.id) ?? { id: one.id, result: null }
      return lyingAnswer(lie, one, answer, { stale, final })
    })
  }

  const answer = async (
    text: string,
    body: RpcCall | readonly RpcCall[],
    response: ServerResponse,
  ): Promise<() => void> => {
    response.setHeader('content-type', 'application/json')
    if (lie === undefined) {
      const { status, text: told } = await node.relay(text)
      return () => response.writeHead(status).end(told)
    }
    const plain = (status: number, type: string, told: string) => () =>
      response.writeHead(status, { 'content-type': type }).end(told)
    if (lie === 'HTTP 429') return plain(429, 'text/plain', 'slow down')
    if (lie === 'an HTML page') return plain(200, 'text/html', '<html>maintenance</html>')
    const isBatch = Array.isArray(body)
    const answers = await lyingAnswers(isBatch ? body : [body as RpcCall])
    const told = answers.map((one) => ({ jsonrpc: '2.0', ...one }))
    const whole = JSON.stringify(isBatch ? told : told[0])
    const isCut = lie === 'JSON that is cut off'
    return () => response.end(isCut ? whole.slice(0, whole.length >> 1) : whole)
  }

  const serve = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    const text = await wholeBody(request)
    const body = JSON.parse(text) as RpcCall | readonly RpcCall[]
    const fate = nextFate()
    requests.all += 1
    if (fate.lost !== undefined) requests.lost += 1
    else if (fate.lateMs > 0) requests.late += 1
    const raws: string[] = []
    for (const { method, params } of [body].flat() as RpcCall[]) {
      methods.set(method, (methods.get(method) ?? 0) + 1)
      if (method === 'eth_sendRawTransaction') raws.push(String(params[0]))
    }
    handed.push(...raws)
    if (lie === 'silence') return
    // A timer of 0 ms is one of 1 ms.
    if (fate.onewayMs > 0) await sleep(fate.onewayMs)
    if (fate.lost === 'before') return void response.destroy()
    for (const raw of raws) if (!reached.has(raw)) reached.set(raw, performance.now())
    const tell = await answer(text, body, response)
    const backMs = fate.onewayMs + fate.lateMs
    if (backMs > 0) await sleep(backMs)
    if (fate.lost === 'after') return void response.destroy()
    tell()
  }

  const server = createServer((request, response) => {
    serve(request, response).catch(() => response.destroy())
  })
  server.keepAliveTimeout = 60_000
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    async tell(next: RpcLie | undefined) {
      if (next === 'a head that stands still')
        frozen = { latest: await node.header('latest'), finalized: await node.header('finalized') }
      lie = next
    },
    change(next: Weather) {
      nextFate = fates(next)
    },
    handed,
    reached,
    requests,
    methods,
    async close() {
      server.closeAllConnections()
      await new Promise((resolve) => server.close(resolve))
    },
  }
}
