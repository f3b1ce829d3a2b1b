/**
 * What the admin listener measures, as Prometheus reads it (contract §2). What happens is counted
 * as it happens; what is the case is gathered when somebody asks, from memory: a look asks no node.
 * No label holds an id, an address or a URL (R5).
 */
import { Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from 'prom-client'
import type { GatewayGauges, RequestCount } from '../../protocol/call.js'
import { failures } from '../../protocol/candidate.js'
import type { ExecutorVitals, Observation, Vitals } from '../../protocol/vitals.js'

/** Counts what happens, from before the gateway is open. */
export interface Meters {
  readonly registry: Registry
  observe(observation: Observation): void
}

/** The process around a gateway. */
export interface HostFigures {
  readonly vitals: () => Vitals
  /** Size of the store's folder; `undefined` where it cannot be told. */
  readonly storeBytes: () => Promise<number | undefined>
  /** Log lines lost because the sink took none. */
  readonly droppedLines: () => number
}

export interface MetricsParts {
  readonly readiness: () => readonly string[]
  readonly requestCounts: () => readonly RequestCount[]
  readonly gauges: () => GatewayGauges
  readonly host?: HostFigures
  readonly meters?: Meters
}

/** From a commit to a permit's hour; blocks come every two seconds. */
const stageBucketsSeconds = [0.01, 0.05, 0.25, 1, 2.5, 5, 10, 20, 40, 60, 120, 300, 900, 3_600]
const syncBucketsSeconds = [
  0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1,
]
const weiPerEther = 1e18

/**
 * A new registry with the figures of this process in it, and what feeds its counters. Throws
 * nothing.
 */
export function createMeters(): Meters {
  const registry = new Registry()
  const registers = [registry]
  collectDefaultMetrics({ register: registry, prefix: 'proposer_' })
  const stages = new Histogram({
    name: 'proposer_stage_seconds',
    help: 'How long candidates took from the stage before to this one',
    labelNames: ['stage'],
    buckets: stageBucketsSeconds,
    registers,
  })
  for (const stage of ['validated', 'selected', 'submitted', 'confirmed', 'executed'])
    stages.zero({ stage })
  const lives = new Histogram({
    name: 'proposer_execution_seconds',
    help: 'How long executed candidates took from received to executed',
    buckets: stageBucketsSeconds,
    registers,
  })
  const ended = new Counter({
    name: 'proposer_candidates_ended_total',
    help: 'Candidates that came to their end, by outcome and failure code; executed ones once that is final',
    labelNames: ['outcome', 'code'],
    registers,
  })
  ended.inc({ outcome: 'executed', code: 'none' }, 0)
  for (const code of Object.keys(failures)) ended.inc({ outcome: 'failed', code }, 0)
  const signed = new Counter({
    name: 'proposer_executor_signed_total',
    help: 'Transactions signed: the first of a nonce, its fee bumps, those with fewer proposals, those made anew, and cancels',
    labelNames: ['as'],
    registers,
  })
  for (const as of ['first', 'fee_bump', 'trim', 'anew', 'cancel']) signed.inc({ as }, 0)
  const settled = new Counter({
    name: 'proposer_executor_transactions_total',
    help: 'Executor nonces settled in finalized state, by how they ended; foreign is a transaction that is not ours',
    labelNames: ['end'],
    registers,
  })
  for (const end of ['executed', 'reverted', 'cancelled', 'foreign']) settled.inc({ end }, 0)
  const syncs = new Histogram({
    name: 'proposer_store_sync_seconds',
    help: 'How long the disk took to make a write durable',
    buckets: syncBucketsSeconds,
    registers,
  })
  const written = new Counter({
    name: 'proposer_store_written_bytes_total',
    help: 'Bytes written to the store',
    registers,
  })
  const calls = new Counter({
    name: 'proposer_rpc_calls_total',
    help: 'Calls to the chain, over all nodes, by method and outcome',
    labelNames: ['method', 'outcome'],
    registers,
  })
  return {
    registry,
    observe(observation) {
      switch (observation.kind) {
        case 'stage':
          stages.observe({ stage: observation.stage }, observation.seconds)
          return
        case 'ended':
          ended.inc({ outcome: observation.outcome, code: observation.code })
          if (observation.outcome === 'executed') lives.observe(observation.seconds)
          return
        case 'signed':
          signed.inc({ as: observation.as })
          return
        case 'settled':
          settled.inc({ end: observation.end })
          return
        case 'synced':
          syncs.observe(observation.seconds)
          return
        case 'written':
          written.inc(observation.bytes)
          return
        case 'rpc':
          calls.inc({ method: observation.method, outcome: observation.outcome })
          return
      }
    },
  }
}

/**
 * The registry of `meters`, or a new one, with the figures that are gathered at each asking. Throws
 * nothing.
 */
export function createMetrics({
  readiness,
  requestCounts,
  gauges,
  host,
  meters,
}: MetricsParts): Registry {
  const metrics = meters?.registry ?? new Registry()
  new Counter({
    name: 'proposer_http_requests_total',
    help: 'Calls answered, by route template, method and status',
    labelNames: ['route', 'method', 'status'],
    registers: [metrics],
    collect() {
      this.reset()
      for (const { route, method, status, count } of requestCounts())
        this.inc({ route, method, status }, count)
    },
  })
  const put = gaugesIn(metrics)
  put('proposer_ready', '1 while /readyz answers 200', () => (readiness().length === 0 ? 1 : 0))
  const gauge = (name: string, help: string, value: (now: GatewayGauges) => number) =>
    put(name, help, () => value(gauges()))
  gauge(
    'proposer_budget_limit_items',
    'Items all clients together may spend in a window',
    ({ budget }) => budget.limitItems,
  )
  gauge(
    'proposer_budget_client_limit_items',
    'Items one client address may spend in a window',
    ({ budget }) => budget.perClientLimitItems,
  )
  gauge(
    'proposer_budget_spent_items',
    'Items spent in the window that is open, refused ones too',
    ({ budget }) => budget.spentItems,
  )
  gauge(
    'proposer_budget_clients',
    'Client addresses whose windows are remembered',
    ({ budget }) => budget.clients,
  )
  gauge(
    'proposer_executor_open_slots',
    'Executor nonces whose end is not final yet',
    ({ openSlots }) => openSlots,
  )
  put.by('proposer_queue_candidates', 'Active candidates by stage', 'stage', () =>
    Object.entries(gauges().queue),
  )
  if (host) hostGauges(put, host, metrics)
  return metrics
}

type Put = ReturnType<typeof gaugesIn>

/** Registers gauges; a figure that is not known now is left out rather than told as 0. */
function gaugesIn(metrics: Registry) {
  const put = (
    name: string,
    help: string,
    value: () => number | undefined | Promise<number | undefined>,
  ) =>
    new Gauge({
      name,
      help,
      registers: [metrics],
      async collect() {
        const now = await value()
        if (now === undefined) this.remove()
        else this.set(now)
      },
    })
  const by = (
    name: string,
    help: string,
    label: string,
    values: () => readonly (readonly [string, number | undefined])[],
  ) =>
    new Gauge({
      name,
      help,
      labelNames: [label],
      registers: [metrics],
      collect() {
        this.reset()
        for (const [key, value] of values())
          if (value !== undefined) this.set({ [label]: key }, value)
      },
    })
  return Object.assign(put, { by })
}

function hostGauges(
  put: Put,
  { vitals, storeBytes, droppedLines }: HostFigures,
  metrics: Registry,
): void {
  put.by(
    'proposer_queue_oldest_seconds',
    'Age of the longest stay in each stage of the queue; 0 where it is empty',
    'stage',
    () => Object.entries(vitals().oldestSeconds),
  )
  put('proposer_chain_head_number', 'The newest block whose logs were followed', () =>
    toNumber(vitals().head?.number),
  )
  put(
    'proposer_chain_head_age_seconds',
    'Age of that block by its own time',
    () => vitals().head?.ageSeconds,
  )
  const nodes = (value: (one: Vitals['nodes'][number]) => number | undefined) => () =>
    vitals().nodes.map((one) => [String(one.node), value(one)] as const)
  const place = 'by its place in chain.rpc_urls'
  put.by(
    'proposer_rpc_node_healthy',
    `1 for an RPC node that is asked, 0 while it is set aside, ${place}`,
    'node',
    nodes(({ isHealthy }) => (isHealthy ? 1 : 0)),
  )
  put.by(
    'proposer_rpc_node_head_number',
    `The newest block that an RPC node told, ${place}`,
    'node',
    nodes(({ headNumber }) => toNumber(headNumber)),
  )
  put.by(
    'proposer_rpc_node_head_age_seconds',
    `Since an RPC node first told its newest block, ${place}`,
    'node',
    nodes(({ headAgeSeconds }) => headAgeSeconds),
  )
  new Counter({
    name: 'proposer_rpc_node_requests_total',
    help: `HTTP requests to an RPC node, a batch of calls being one, by whether it gave an answer that could be read, ${place}`,
    labelNames: ['node', 'outcome'],
    registers: [metrics],
    collect() {
      this.reset()
      for (const { node, requests } of vitals().nodes)
        for (const [outcome, count] of Object.entries(requests))
          this.inc({ node: String(node), outcome }, count)
    },
  })
  put.by(
    'proposer_view_questions',
    'Questions held in memory (known), and those of them that wait to be read again (due)',
    'state',
    () => Object.entries(vitals().questions),
  )
  const executor = (value: (one: ExecutorVitals) => number | undefined) => () => {
    const one = vitals().executor
    return one && value(one)
  }
  put.by(
    'proposer_executor_nonce_gap',
    'Nonces bound and not used yet, at the head and in finalized state, as last read',
    'at',
    () => Object.entries(vitals().executor?.nonceGap ?? {}),
  )
  put(
    'proposer_executor_balance_ether',
    "What the executor held when the pipeline last read it, in the chain's coin (10^18 wei)",
    executor(({ balanceWei }) =>
      balanceWei === undefined ? undefined : Number(balanceWei) / weiPerEther,
    ),
  )
  put(
    'proposer_executor_paid_proposals',
    'About so many single proposals that balance pays for at the gas price of the head',
    executor(({ paidProposals }) => paidProposals),
  )
  put(
    'proposer_admission_enabled',
    '0 while nobody is admitted, by `operator pause` or by admission.enabled',
    () => (vitals().admissionEnabled ? 1 : 0),
  )
  put('proposer_store_bytes', 'Size of the store on disk', storeBytes)
  put('proposer_store_full', '1 while the disk of the store is full', () =>
    vitals().store.isFull ? 1 : 0,
  )
  put('proposer_store_failed', '1 once the store takes no writes any more', () =>
    vitals().store.isFailed ? 1 : 0,
  )
  new Counter({
    name: 'proposer_log_lines_dropped_total',
    help: 'Log lines lost because nobody took them',
    registers: [metrics],
    collect() {
      this.reset()
      this.inc(droppedLines())
    },
  })
}

const toNumber = (value: bigint | undefined): number | undefined =>
  value === undefined ? undefined : Number(value)
