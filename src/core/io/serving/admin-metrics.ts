/** What the admin listener measures, as Prometheus reads it (contract §2). */
import { Counter, Gauge, Registry } from 'prom-client'
import type { GatewayGauges, RequestCount } from '../../protocol/call.js'

export interface MetricsParts {
  readonly readiness: () => readonly string[]
  readonly requestCounts: () => readonly RequestCount[]
  readonly gauges: () => GatewayGauges
}

/** A registry whose figures are gathered at each asking. */
export function createMetrics({ readiness, requestCounts, gauges }: MetricsParts): Registry {
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
