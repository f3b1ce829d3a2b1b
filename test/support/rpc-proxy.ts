/**
 * A proxy on loopback before an honest JSON-RPC node: as far away as a hosted one, with requests
 * that are lost or answered late (robustness §7.3). It counts what it is asked.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { type Serve, serveHttp } from './http-server.js'
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

interface RpcCall {
  readonly method: string
  readonly params: readonly unknown[]
}

export async function openRpcProxy(upstream: string, weather: Weather = {}) {
  let nextFate = fates(weather)
  const handed: string[] = []
  const reached = new Map<string, number>()
  const methods = new Map<string, number>()
  const requests = { all: 0, lost: 0, late: 0 }

  const serve: Serve = async (_request, text, response) => {
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
    // A timer of 0 ms is one of 1 ms.
    if (fate.onewayMs > 0) await sleep(fate.onewayMs)
    if (fate.lost === 'before') return response.destroy()
    for (const raw of raws) if (!reached.has(raw)) reached.set(raw, performance.now())
    const headers = { 'content-type': 'application/json' }
    const answer = await fetch(upstream, { method: 'POST', headers, body: text })
    const told = await answer.text()
    const backMs = fate.onewayMs + fate.lateMs
    if (backMs > 0) await sleep(backMs)
    if (fate.lost === 'after') return response.destroy()
    return response.writeHead(answer.status, headers).end(told)
  }

  return {
    ...(await serveHttp(serve)),
    change(next: Weather) {
      nextFate = fates(next)
    },
    handed,
    reached,
    requests,
    methods,
  }
}
