/**
 * `proposer.operator-status/1`: how a served gateway stands, from memory; live view, page and
 * commands show it. No RPC URL, no secret (R5).
 */
import * as z from 'zod/mini'
import { coinText, explorerOf } from '#chain/profiles'
import { ceilingsOf, type GatewayConfig } from '#gateway/config'
import { gasCeilingsOf, standingsOf } from '#gateway/executor/wallet-gas'
import { instant } from '#protocol/candidate'
import type { ExecutorVitals, QueueStage } from '#protocol/vitals'
import type { Activity } from './activity.js'
import type { HostedGateway } from './gateway-host.js'

const Digits = z.nullable(z.string())
const Count = z.nullable(z.number())
const Stage = z.object({ count: z.number(), oldest_seconds: z.number() })
const RpcCounts = z.object({
  requests: z.number(),
  methods: z.object({
    heads: z.number(),
    logs: z.number(),
    contracts: z.number(),
    state: z.number(),
    transactions: z.number(),
  }),
})

/** Later versions may tell more; what has a default, a gateway of an earlier one does not tell. */
const Status = z.object({
  version: z.string(),
  started_at: z.string(),
  explorer: Digits,
  executor_address: Digits,
  /** Why nobody is admitted; null while somebody may be. */
  paused: z.nullable(z.object({ since: Digits, why: z.string() })),
  url: Digits,
  ready: z.boolean(),
  reasons: z.array(z.string()),
  admission_enabled: z.boolean(),
  queue: z.object({ received: Stage, validated: Stage, selected: Stage }),
  budget: z.object({
    window_seconds: z.number(),
    global_items: z.number(),
    per_ip_items: z.number(),
    spent_items: z.number(),
    /** By the second, so that it stays the same as long as the window does. */
    window_ends_at: Digits,
    clients: z.number(),
  }),
  last_minute: z.object({
    fine: z.number(),
    refused: z.number(),
    limited: z.number(),
    failed: z.number(),
    admitted: z.number(),
  }),
  chain: z.object({
    id: z.number(),
    head: Digits,
    head_age_seconds: Count,
    max_head_age_seconds: z.number(),
    questions_known: z.number(),
    questions_due: z.number(),
    changed_contracts: z._default(z.number(), 0),
    oracles: z._default(z.array(z.object({ address: z.string(), version: z.number() })), []),
  }),
  nodes: z.array(
    z.object({
      node: z.number(),
      healthy: z.boolean(),
      head: Digits,
      head_age_seconds: Count,
      unanswered: z.number(),
    }),
  ),
  rpc: z.optional(z.object({ total: RpcCounts })),
  executor: z.nullable(
    z.object({
      balance_wei: Digits,
      balance_text: Digits,
      pays_for: Count,
      highest_nonce: z.number(),
      gap_latest: Count,
      gap_finalized: Count,
      open_slots: z.number(),
      newest_hash: Digits,
    }),
  ),
  store: z.object({ full: z.boolean(), failed: z.boolean() }),
  cluster: z.optional(
    z.object({
      leads: z.boolean(),
      leader: Digits,
      epoch: z.number(),
      lag_records: z.number(),
      gateways: z.number(),
    }),
  ),
  /** What one caller or wallet can cost at most, by name. */
  ceilings: z._default(z.record(z.string(), z.number()), {}),
  /** Wallets that cost gas for nothing in the last 24 hours, and what follows from it. */
  wallets: z._default(
    z.array(
      z.object({
        address: z.string(),
        failures: z.number(),
        failed_gas: z.string(),
        alone: z.boolean(),
        state: z.string(),
        until: Digits,
      }),
    ),
    [],
  ),
  admin_url: Digits,
  /** The newest last: lines of the state log. */
  changes: z.array(z.looseObject({ at: z.string(), event: z.string() })),
})
export type StatusDocument = z.infer<typeof Status>

export const parseStatus = (document: unknown): StatusDocument | undefined =>
  Status.safeParse(document).data

/** Stays as long as the process does. */
export type FixedStatus = Pick<StatusDocument, 'version' | 'started_at'>

export function statusOf(
  config: GatewayConfig,
  fixed: FixedStatus,
  { gateway, vitals: vitalsNow, executor, ledger }: StatusSource,
  activity: Pick<Activity, 'lastMinute' | 'changes'>,
  {
    url,
    adminUrl,
    nowMs,
  }: { url: string | undefined; adminUrl: string | undefined; nowMs: number },
): StatusDocument {
  const { chain } = config
  const reasons = gateway.readiness()
  const { queue, budget } = gateway.gauges()
  const vitals = vitalsNow()
  const { head, questions, cluster } = vitals
  const stage = (name: QueueStage) => ({
    count: queue[name],
    oldest_seconds: Math.floor(vitals.oldestSeconds[name]),
  })
  const endsAt = Math.round((nowMs + budget.endsInMs) / 1_000) * 1_000
  return {
    ...fixed,
    explorer: explorerOf(chain.id) ?? null,
    executor_address: executor ?? null,
    paused: pausedBy(config, ledger),
    url: url ?? null,
    ready: reasons.length === 0,
    reasons: [...reasons],
    admission_enabled: vitals.admissionEnabled,
    queue: {
      received: stage('received'),
      validated: stage('validated'),
      selected: stage('selected'),
    },
    budget: {
      window_seconds: config.budget.window_seconds,
      global_items: budget.limitItems,
      per_ip_items: budget.perClientLimitItems,
      spent_items: budget.spentItems,
      window_ends_at: budget.endsInMs === 0 ? null : instant(endsAt),
      clients: budget.clients,
    },
    last_minute: activity.lastMinute(),
    chain: {
      id: chain.id,
      head: digits(head?.number),
      head_age_seconds: wholeSeconds(head?.ageSeconds),
      max_head_age_seconds: chain.max_head_age_seconds,
      questions_known: questions.known,
      questions_due: questions.due,
      changed_contracts: vitals.code.changed,
      oracles: [...vitals.code.oracles],
    },
    nodes: vitals.nodes.map(({ node, isHealthy, headNumber, headAgeSeconds, requests }) => ({
      node,
      healthy: isHealthy,
      head: digits(headNumber),
      head_age_seconds: wholeSeconds(headAgeSeconds),
      unanswered: requests.unanswered,
    })),
    ...(vitals.rpc && { rpc: { total: vitals.rpc } }),
    executor: vitals.executor === undefined ? null : executorJson(chain.id, vitals.executor),
    store: { full: vitals.store.isFull, failed: vitals.store.isFailed },
    ...(cluster && {
      cluster: {
        leads: cluster.leads,
        leader: cluster.leader ?? null,
        epoch: cluster.epoch,
        lag_records: cluster.lagRecords,
        gateways: cluster.gateways,
      },
    }),
    ceilings: ceilingsOf(config),
    wallets: standingsOf(ledger, gasCeilingsOf(config), nowMs / 1000).map((standing) => ({
      address: standing.wallet,
      failures: standing.failures,
      failed_gas: String(standing.failedGas),
      alone: standing.isAlone,
      state: standing.state,
      until: standing.state === 'sends' ? null : instant(standing.untilSeconds * 1000),
    })),
    admin_url: adminUrl ?? null,
    changes: activity.changes().map(({ atMs, line }) => ({ at: instant(atMs), ...line })),
  }
}

type StatusSource = Pick<HostedGateway, 'executor' | 'ledger' | 'vitals'> & {
  readonly gateway: Pick<HostedGateway['gateway'], 'readiness' | 'gauges'>
}

function pausedBy({ admission }: GatewayConfig, ledger: HostedGateway['ledger']) {
  if (!admission.enabled) return { since: null, why: 'admission.enabled is false in gateway.json' }
  if (ledger.admissionSwitch) return null
  const { atMs, reason, by } = ledger.admissionDecision ?? {}
  const why = [...(by === undefined ? [] : [`by ${by}`]), ...(reason ? [reason] : [])].join(': ')
  return { since: atMs === undefined ? null : instant(atMs), why }
}

const executorJson = (chainId: number, executor: ExecutorVitals) => ({
  balance_wei: digits(executor.balanceWei),
  balance_text: executor.balanceWei === undefined ? null : coinText(executor.balanceWei, chainId),
  pays_for: executor.paidProposals ?? null,
  highest_nonce: executor.highestNonce,
  gap_latest: executor.nonceGap.latest ?? null,
  gap_finalized: executor.nonceGap.finalized ?? null,
  open_slots: executor.openSlots,
  newest_hash: executor.newestHash ?? null,
})

const digits = (value: bigint | undefined) => (value === undefined ? null : String(value))
const wholeSeconds = (seconds: number | undefined) =>
  seconds === undefined ? null : Math.floor(seconds)
