/** Contract §2. No label holds an id, an address or a URL (R5). */
import { Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from 'prom-client'
import type { RequestCount } from '#protocol/call'
import { failures } from '#protocol/codes'
import type { StatusDocument } from '#protocol/status-document'
import { lifeStages, type Observation, signings, slotEnds } from '#protocol/vitals'

export interface MetricsParts {
  readonly status: () => StatusDocument
  readonly requestCounts: () => readonly RequestCount[]
  readonly meters: ReturnType<typeof createMeters>
  readonly storeBytes: () => Promise<number>
  readonly droppedLines: () => number
  readonly openSlots: () => number
  readonly nodes: () => readonly {
    readonly index: number
    readonly requests: Readonly<Record<'answered' | 'unanswered', number>>
  }[]
}

const stageBucketsSeconds = [0.01, 0.05, 0.25, 1, 2.5, 5, 10, 20, 40, 60, 120, 300, 900, 3_600]
const syncBucketsSeconds = [
  0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1,
]
/** A fifth of a millisecond on one machine, 100 to a standby far away. */
const statementBucketsSeconds = [
  0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5,
]
const weiPerEther = 1e18

type Observers = {
  [Kind in Observation['kind']]: (seen: Extract<Observation, { kind: Kind }>) => unknown
}

export function createMeters({ isShared = false } = {}) {
  const registry = new Registry()
  collectDefaultMetrics({ register: registry, prefix: 'proposer_' })
  for (const what of ['resources', 'handles', 'requests'])
    registry.removeSingleMetric(`proposer_nodejs_active_${what}_total`)
  const histogram = (name: string, help: string, buckets: number[], labelNames: string[] = []) =>
    new Histogram({ name, help, buckets, labelNames, registers: [registry] })
  const counter = (name: string, help: string, labelNames: string[] = []) =>
    new Counter({ name, help, labelNames, registers: [registry] })
  const stages = histogram(
    'proposer_stage_seconds',
    'Time from the previous stage to this one',
    stageBucketsSeconds,
    ['stage'],
  )
  const lives = histogram(
    'proposer_execution_seconds',
    'Time of executed candidates from received to executed',
    stageBucketsSeconds,
  )
  const ended = counter(
    'proposer_candidates_ended_total',
    'Candidates that ended, by outcome and failure code; executed ones once that is final',
    ['outcome', 'code'],
  )
  const signed = counter(
    'proposer_executor_signed_total',
    'Transactions signed: the first of a nonce, its fee bumps, those with fewer proposals, renewals, and cancels',
    ['as'],
  )
  const settled = counter(
    'proposer_executor_transactions_total',
    'Executor nonces settled in finalized state, by how they ended; foreign is a transaction that is not ours',
    ['end'],
  )
  const syncs = histogram(
    'proposer_store_sync_seconds',
    'Time the disk took to make a write durable',
    syncBucketsSeconds,
  )
  const written = counter('proposer_store_written_bytes_total', 'Bytes written to the store')
  const calls = counter(
    'proposer_rpc_calls_total',
    'Calls to the chain, over all nodes, by method and outcome',
    ['method', 'outcome'],
  )
  const shared = isShared
    ? {
        appended: histogram(
          'proposer_store_append_seconds',
          'Time the database took to commit a group of records, including retries',
          statementBucketsSeconds,
        ),
        charged: histogram(
          'proposer_store_charge_seconds',
          'Time the database took to charge the rate limit',
          statementBucketsSeconds,
        ),
        retried: counter(
          'proposer_store_retries_total',
          'Transactions of the store that were retried',
        ),
        fenced: counter(
          'proposer_store_fences_total',
          'Writes refused because another gateway leads',
        ),
      }
    : undefined
  // What has not happened yet is 0, not absent.
  for (const stage of lifeStages.slice(1)) stages.zero({ stage })
  ended.inc({ outcome: 'executed', code: 'none' }, 0)
  for (const code of Object.keys(failures)) ended.inc({ outcome: 'failed', code }, 0)
  for (const as of signings) signed.inc({ as }, 0)
  for (const end of slotEnds) settled.inc({ end }, 0)
  const on: Observers = {
    stage: ({ stage, seconds }) => stages.observe({ stage }, seconds),
    ended({ outcome, code, seconds }) {
      ended.inc({ outcome, code })
      if (outcome === 'executed') lives.observe(seconds)
    },
    signed: ({ as }) => signed.inc({ as }),
    settled: ({ end }) => settled.inc({ end }),
    synced: ({ seconds }) => syncs.observe(seconds),
    written: ({ bytes }) => written.inc(bytes),
    rpc: ({ method, outcome }) => calls.inc({ method, outcome }),
    appended: ({ seconds }) => shared?.appended.observe(seconds),
    charged: ({ seconds }) => shared?.charged.observe(seconds),
    retried: () => shared?.retried.inc(),
    fenced: () => shared?.fenced.inc(),
  }
  return {
    registry,
    isShared,
    observe: (observation: Observation) =>
      void (on[observation.kind] as (seen: Observation) => unknown)(observation),
  }
}

type Figure = number | null | undefined
/** With a label, figures by its values. */
type GaugeRow = readonly [
  name: string,
  help: string,
  value: (
    status: StatusDocument,
    parts: MetricsParts,
  ) => Figure | Promise<Figure> | readonly (readonly [string, Figure])[],
  label?: string,
]

const toNumber = (digits: string | null | undefined, unit = 1) =>
  typeof digits === 'string' ? Number(digits) / unit : undefined
const byNode =
  (value: (node: StatusDocument['nodes'][number]) => Figure) =>
  ({ nodes }: StatusDocument) =>
    nodes.map((node) => [String(node.node), value(node)] as const)
const byStage =
  (value: keyof StatusDocument['queue']['received']) =>
  ({ queue }: StatusDocument) =>
    Object.entries(queue).map(([stage, of]) => [stage, of[value]] as const)
const byPosition = 'by its place in chain.rpc_urls'

const ownGauges: readonly GaugeRow[] = [
  ['proposer_ready', '1 while /readyz answers 200', ({ ready }) => Number(ready)],
  [
    'proposer_budget_limit_items',
    'Items that all clients together may spend in a window',
    ({ budget }) => budget.global_items,
  ],
  [
    'proposer_budget_client_limit_items',
    'Items that one client address may spend in a window',
    ({ budget }) => budget.per_ip_items,
  ],
  [
    'proposer_budget_spent_items',
    'Items spent in the open window, including refused ones',
    ({ budget }) => budget.spent_items,
  ],
  [
    'proposer_budget_clients',
    'Client addresses whose windows are remembered',
    ({ budget }) => budget.clients,
  ],
  [
    'proposer_executor_open_slots',
    'Executor nonces whose end is not final yet',
    (_, { openSlots }) => openSlots(),
  ],
  ['proposer_queue_candidates', 'Active candidates by stage', byStage('count'), 'stage'],
  [
    'proposer_queue_oldest_seconds',
    'Longest current stay in each stage of the queue; 0 if it is empty',
    byStage('oldest_seconds'),
    'stage',
  ],
  [
    'proposer_chain_head_number',
    'The newest block whose logs were followed',
    ({ chain }) => toNumber(chain.head),
  ],
  [
    'proposer_chain_head_age_seconds',
    'Age of that block by its own time',
    ({ chain }) => chain.head_age_seconds,
  ],
  [
    'proposer_rpc_node_healthy',
    `1 for an RPC node in use, 0 while it is set aside, ${byPosition}`,
    byNode(({ healthy }) => Number(healthy)),
    'node',
  ],
  [
    'proposer_rpc_node_head_number',
    `The newest block that an RPC node reported, ${byPosition}`,
    byNode(({ head }) => toNumber(head)),
    'node',
  ],
  [
    'proposer_rpc_node_head_age_seconds',
    `Time since an RPC node first reported its newest block, ${byPosition}`,
    byNode((node) => node.head_age_seconds),
    'node',
  ],
  [
    'proposer_view_questions',
    'Questions held in memory (known), and those waiting to be read again (due)',
    ({ chain }) => [
      ['known', chain.questions_known],
      ['due', chain.questions_due],
    ],
    'state',
  ],
  [
    'proposer_changed_contracts',
    'Pinned contracts whose code differs from the pinned code: while there is one, nothing is admitted or sent',
    ({ chain }) => chain.changed_contracts,
  ],
  [
    'proposer_executor_nonce_gap',
    'Nonces bound and not used yet, at the head and in finalized state, as last read',
    ({ executor }) => [
      ['latest', executor?.gap_latest],
      ['finalized', executor?.gap_finalized],
    ],
    'at',
  ],
  [
    'proposer_executor_balance_ether',
    "What the executor held when the pipeline last read it, in the chain's coin (10^18 wei)",
    ({ executor }) => toNumber(executor?.balance_wei, weiPerEther),
  ],
  [
    'proposer_executor_paid_proposals',
    'Approximate number of single proposals that this balance pays for at the gas price of the head',
    ({ executor }) => executor?.pays_for,
  ],
  [
    'proposer_admission_enabled',
    '0 while admission is closed, by `operator pause` or by admission.enabled',
    (status) => Number(status.admission_enabled),
  ],
  [
    'proposer_store_bytes',
    'Size of the store on disk',
    (_, { storeBytes }) => storeBytes().catch(() => undefined),
  ],
  [
    'proposer_store_full',
    '1 while the disk of the store is full',
    ({ store }) => Number(store.full),
  ],
  [
    'proposer_store_failed',
    '1 once the store no longer accepts writes',
    ({ store }) => Number(store.failed),
  ],
]

const sharedGauges: readonly GaugeRow[] = [
  [
    'proposer_store_leader',
    '1 while this gateway leads; over all gateways of a store the sum is 1',
    ({ cluster }) => cluster && Number(cluster.leads),
  ],
  [
    'proposer_store_epoch',
    'The newest epoch: it grows with each leader',
    ({ cluster }) => cluster?.epoch,
  ],
  [
    'proposer_store_lag_records',
    'Records of the store that this gateway has not read yet',
    ({ cluster }) => cluster?.lag_records,
  ],
  [
    'proposer_store_gateways',
    'Gateways heard of within 30 seconds',
    ({ cluster }) => cluster?.gateways,
  ],
]

type CounterRow = readonly [
  name: string,
  help: string,
  labels: readonly string[],
  counts: (parts: MetricsParts) => readonly (readonly [Record<string, string | number>, number])[],
]

const counters: readonly CounterRow[] = [
  [
    'proposer_http_requests_total',
    'Calls answered, by route template, method and status',
    ['route', 'method', 'status'],
    ({ requestCounts }) => requestCounts().map(({ count, ...labels }) => [labels, count]),
  ],
  [
    'proposer_rpc_node_requests_total',
    `HTTP requests to an RPC node, a batch of calls being one, by whether its response was readable, ${byPosition}`,
    ['node', 'outcome'],
    ({ nodes }) =>
      nodes().flatMap(({ index, requests }) =>
        Object.entries(requests).map(([outcome, count]) => [{ node: index + 1, outcome }, count]),
      ),
  ],
  [
    'proposer_rpc_methods_total',
    'JSON-RPC methods asked of all RPC nodes, each call of a batch counted, by class: what a hosted node bills',
    ['class'],
    ({ status }) =>
      Object.entries(status().rpc?.total.methods ?? {}).map(([kind, n]) => [{ class: kind }, n]),
  ],
  [
    'proposer_log_lines_dropped_total',
    'Log lines dropped because stderr was not drained',
    [],
    ({ droppedLines }) => [[{}, droppedLines()]],
  ],
]

export function createMetrics(given: MetricsParts) {
  const { registry, isShared } = given.meters
  const registers = [registry]
  const parts = { ...given, status: onceATurn(given.status) }
  for (const [name, help, labelNames, counts] of counters)
    new Counter({
      name,
      help,
      labelNames,
      registers,
      collect() {
        this.reset()
        for (const [values, count] of counts(parts)) this.inc(values, count)
      },
    })
  for (const [name, help, value, label] of [...ownGauges, ...(isShared ? sharedGauges : [])])
    new Gauge({
      name,
      help,
      labelNames: label === undefined ? [] : [label],
      registers,
      async collect() {
        const now = await value(parts.status(), parts)
        if (typeof now === 'number') return this.set(now)
        this.reset()
        if (!now || label === undefined) return this.remove()
        for (const [key, figure] of now)
          if (typeof figure === 'number') this.set({ [label]: key }, figure)
      },
    })
  return registry
}

/** All figures of a scrape are of one moment. */
function onceATurn<T extends object>(read: () => T) {
  let held: T | undefined
  return () => {
    if (held === undefined) queueMicrotask(() => (held = undefined))
    held ??= read()
    return held
  }
}
