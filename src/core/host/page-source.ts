/**
 * What the operator's page shows of a hosted gateway, as plain JSON data: no address but those of
 * candidates, no RPC URL, no secret (R5).
 */
import { coinText, explorerOf } from '../chain/profiles.js'
import { ceilingsOf, type GatewayConfig } from '../gateway/config.js'
import { gasCeilingsOf, standingsOf } from '../gateway/executor/wallet-gas.js'
import type { PageSource } from '../page/admin-page-events.js'
import type { Clock } from '../ports.js'
import { instant } from '../protocol/candidate.js'
import type { ClusterVitals, ExecutorVitals, QueueStage } from '../protocol/vitals.js'
import type { HostedGateway } from './gateway-host.js'
import type { StatusSnapshot } from './snapshot.js'
import type { Trend } from './trend.js'

/** The page's content from now on, until it is stopped. Throws nothing. */
export function pageOf(
  clock: Clock,
  config: GatewayConfig,
  version: string,
  { followRecent, executor, ledger }: Pick<HostedGateway, 'followRecent' | 'executor' | 'ledger'>,
  snapshot: () => StatusSnapshot,
  trend: Pick<Trend, 'data'>,
): PageSource & { stop(): void } {
  const started_at = instant(clock.nowMs())
  const { rows, failures, detail, stop } = followRecent()
  return {
    figures: () => ({
      version,
      started_at,
      explorer: explorerOf(config.chain.id) ?? null,
      executor_address: executor ?? null,
      paused: pausedBy(config, ledger),
      ...figures(config, clock.nowMs(), snapshot()),
      ceilings: ceilingsOf(config),
      wallets: walletsJson(config, ledger, clock.nowMs()),
    }),
    trend: trend.data,
    candidates: rows,
    failures,
    candidate: detail,
    stop,
  }
}

/** Wallets that cost gas for nothing in the last 24 hours, and what follows from it. */
const walletsJson = (config: GatewayConfig, ledger: HostedGateway['ledger'], nowMs: number) =>
  standingsOf(ledger, gasCeilingsOf(config), nowMs / 1000).map((standing) => ({
    address: standing.wallet,
    failures: standing.failures,
    failed_gas: String(standing.failedGas),
    alone: standing.isAlone,
    state: standing.state,
    until: standing.state === 'sends' ? null : instant(standing.untilSeconds * 1000),
  }))

/** Why nobody is admitted; null while somebody may be. */
function pausedBy({ admission }: GatewayConfig, ledger: HostedGateway['ledger']) {
  if (!admission.enabled) return { since: null, why: 'admission.enabled is false in gateway.json' }
  const decision = ledger.admissionDecision
  if (ledger.admissionSwitch) return null
  const { atMs, reason, by } = decision ?? {}
  const why = [...(by === undefined ? [] : [`by ${by}`]), ...(reason ? [reason] : [])].join(': ')
  return { since: atMs === undefined ? null : instant(atMs), why }
}

function figures(
  { chain, budget }: GatewayConfig,
  nowMs: number,
  { url, reasons, gauges, vitals, lastMinute }: StatusSnapshot,
) {
  const { oldestSeconds, head, questions, code, store, cluster } = vitals
  const { limitItems, perClientLimitItems, spentItems, endsInMs, clients } = gauges.budget
  const stage = (name: QueueStage) => ({
    count: gauges.queue[name],
    oldest_seconds: Math.floor(oldestSeconds[name]),
  })
  return {
    url: url ?? null,
    ready: reasons.length === 0,
    reasons,
    admission_enabled: vitals.admissionEnabled,
    queue: {
      received: stage('received'),
      validated: stage('validated'),
      selected: stage('selected'),
    },
    budget: {
      window_seconds: budget.window_seconds,
      global_items: limitItems,
      per_ip_items: perClientLimitItems,
      spent_items: spentItems,
      // By the second, so that it stays the same as long as the window does.
      window_ends_at:
        endsInMs === 0 ? null : instant(Math.round((nowMs + endsInMs) / 1_000) * 1_000),
      clients,
    },
    last_minute: lastMinute,
    chain: {
      id: chain.id,
      head: digits(head?.number),
      head_age_seconds: wholeSeconds(head?.ageSeconds),
      max_head_age_seconds: chain.max_head_age_seconds,
      questions_known: questions.known,
      questions_due: questions.due,
      changed_contracts: code.changed,
      oracles: code.oracles,
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
    store: { full: store.isFull, failed: store.isFailed },
    ...(cluster && { cluster: clusterJson(cluster) }),
  }
}

const clusterJson = ({ leads, leader, epoch, lagRecords, gateways }: ClusterVitals) => ({
  leads,
  leader: leader ?? null,
  epoch,
  lag_records: lagRecords,
  gateways,
})

const digits = (value: bigint | undefined) => (value === undefined ? null : String(value))
const wholeSeconds = (seconds: number | undefined) =>
  seconds === undefined ? null : Math.floor(seconds)

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
