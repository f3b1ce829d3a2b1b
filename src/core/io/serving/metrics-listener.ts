/**
 * The listener for scrapers on other hosts: metrics, health and readiness, and nothing else
 * (contract §9). What acts or tells of candidates stays with the admin listener on loopback.
 */
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import type { Registry } from 'prom-client'
import { withoutNodeWords } from '../../protocol/node-words.js'
import { commonHeaders } from '../../protocol/refusal.js'
import { linger, restIsLarge } from './incoming-body.js'
import { serverSettings } from './listener.js'
import { bindServer, closeServer, healthLooks, type LookListener, refused } from './looks.js'

export interface MetricsOptions {
  readonly host: string
  /** 0 takes a free one. */
  readonly port: number
  readonly reasons: () => readonly string[]
  readonly metrics: Registry
}

/** Scrapers are few. */
const mostConnections = 64

/**
 * Listens for GETs alone; what nodes said is left out of `/readyz`, as on the public port (R5).
 * Rejects with node's error where the port cannot be had.
 */
export async function listenMetrics(options: MetricsOptions): Promise<LookListener> {
  const { host, port, reasons, metrics } = options
  const looks = new Map(healthLooks(() => reasons().map(withoutNodeWords), metrics))
  const names = [...looks.keys()].join(', ')
  const server = createServer({ ...serverSettings }, async (incoming, response) => {
    // Whoever has gone needs no response.
    response.on('error', () => undefined)
    const look = looks.get(incoming.url ?? '')
    const isGet = incoming.method === 'GET'
    const { status, body, headers } =
      look === undefined
        ? refused(404, 'route_not_found', `this listener has ${names}`)
        : isGet
          ? await look()
          : refused(405, 'method_not_allowed', 'this route accepts GET only')
    const close = restIsLarge(incoming)
    response.writeHead(status, {
      ...commonHeaders,
      ...headers,
      ...(look && !isGet && { allow: 'GET' }),
      ...(close && { connection: 'close' }),
    })
    if (close) await linger(incoming)
    response.end(body)
  })
  server.maxConnections = mostConnections
  await bindServer(server, host, port)
  const { port: bound } = server.address() as AddressInfo
  const shown = host.includes(':') ? `[${host}]` : host
  return { url: `http://${shown}:${bound}`, close: () => closeServer(server) }
}
