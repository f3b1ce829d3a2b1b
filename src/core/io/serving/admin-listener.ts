/** The operator's listener: loopback only, looks only (contract §2, §6). */
import { createServer, type IncomingMessage } from 'node:http'
import type { AddressInfo } from 'node:net'
import { Counter, Gauge, Registry } from 'prom-client'
import type { GatewayGauges, RequestCount } from '../../protocol/call.js'
import { commonHeaders, refusalBody, refuse } from '../../protocol/refusal.js'
import { serverSettings } from './listener.js'

export interface AdminOptions {
  /** 0 takes a free one. */
  readonly port: number
  readonly readiness: () => readonly string[]
  readonly requestCounts: () => readonly RequestCount[]
  readonly gauges: () => GatewayGauges
}

export interface AdminListener {
  readonly url: string
  readonly port: number
  close(): Promise<void>
}

/** Any other name in Host means that a browser was led here by a foreign page's DNS (contract §6). */
const loopbackHost = /^(localhost|127(\.\d{1,3}){3}|\[::1\])(:\d{1,5})?$/i

interface AdminAnswer {
  readonly status: number
  readonly body: string
  readonly headers?: Readonly<Record<string, string>>
}

/** Listens on 127.0.0.1. Rejects with node's error where the port cannot be had. */
export async function listenAdmin(options: AdminOptions): Promise<AdminListener> {
  const metrics = registry(options)
  const server = createServer({ ...serverSettings }, (incoming, response) => {
    answer(options, metrics, incoming).then(
      ({ status, body, headers }) => {
        response.writeHead(status, { ...commonHeaders, ...headers })
        response.end(body)
      },
      (error: unknown) => {
        response.destroy()
        throw error
      },
    )
  })
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject)
    server.listen({ host: '127.0.0.1', port: options.port }, () => {
      server.off('error', reject)
      resolve()
    })
  })
  const { port } = server.address() as AddressInfo
  return {
    url: `http://127.0.0.1:${port}`,
    port,
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve())
        server.closeAllConnections()
      }),
  }
}

function registry({ readiness, requestCounts, gauges }: AdminOptions): Registry {
  const metrics = new Registry()
  new Counter({
    name: 'proposer_http_requests_total',
    help: 'Calls answered, by route template, method and status',
    labelNames: ['route', 'method', 'status'],
    registers: [metrics],
    collect() {
      this.reset()
      for (const { route, method, status, count } of requestCounts()) this.inc({ route, method, status }, count)
    },
  })
  new Gauge({
    name: 'proposer_ready',
    help: '1 while /readyz answers 200',
    registers: [metrics],
    collect() {
      this.set(readiness().length === 0 ? 1 : 0)
    },
  })
  const gauge = (name: string, help: string, value: (now: GatewayGauges) => number) =>
    new Gauge({
      name,
      help,
      registers: [metrics],
      collect() {
        this.set(value(gauges()))
      },
    })
  gauge('proposer_budget_limit_items', 'Items all clients together may spend in a window', ({ budget }) => budget.limitItems)
  gauge('proposer_budget_client_limit_items', 'Items one client address may spend in a window', ({ budget }) => budget.perClientLimitItems)
  gauge('proposer_budget_spent_items', 'Items spent in the window that is open, refused ones too', ({ budget }) => budget.spentItems)
  gauge('proposer_budget_clients', 'Client addresses whose windows are remembered', ({ budget }) => budget.clients)
  gauge('proposer_executor_open_slots', 'Executor nonces whose end is not final yet', ({ openSlots }) => openSlots)
  new Gauge({
    name: 'proposer_queue_candidates',
    help: 'Active candidates by stage',
    labelNames: ['stage'],
    registers: [metrics],
    collect() {
      for (const [stage, count] of Object.entries(gauges().queue)) this.set({ stage }, count)
    },
  })
  return metrics
}

async function answer(options: AdminOptions, metrics: Registry, incoming: IncomingMessage): Promise<AdminAnswer> {
  const { host } = incoming.headers
  if (host === undefined || !loopbackHost.test(host)) return refused('bad_request', 'the admin listener answers to loopback names only')
  const known = incoming.url === '/healthz' || incoming.url === '/readyz' || incoming.url === '/metrics'
  if (!known) return refused('route_not_found', 'the admin listener has /healthz, /readyz and /metrics')
  if (incoming.method !== 'GET') return { ...refused('method_not_allowed', 'this route takes GET only'), headers: { allow: 'GET' } }
  switch (incoming.url) {
    case '/metrics':
      return { status: 200, body: await metrics.metrics(), headers: { 'content-type': metrics.contentType } }
    case '/readyz': {
      const reasons = options.readiness()
      return { status: reasons.length === 0 ? 200 : 503, body: JSON.stringify({ ready: reasons.length === 0, reasons }) }
    }
    default:
      return { status: 200, body: '{"status":"ok"}' }
  }
}

function refused(code: Parameters<typeof refuse>[0], detail: string): AdminAnswer {
  const refusal = refuse(code, detail)
  return { status: refusal.status, body: refusalBody(refusal) }
}
