/**
 * What the operator's page shows of a hosted gateway, as plain JSON data: no address but those of
 * candidates, no RPC URL, no secret (R5).
 */
import type { GatewayConfig } from '../../core/gateway/config.js'
import type { PageSource } from '../../core/page/admin-page-events.js'
import { instant } from '../../core/protocol/candidate.js'
import type { ExecutorVitals, QueueStage, Vitals } from '../../core/protocol/vitals.js'
import type { Context } from '../terminal/context.js'
import { programVersion } from '../terminal/version.js'
import type { HostedGateway } from './gateway-host.js'
import type { MinuteCounts } from './live-status.js'

interface PageParts {
  /** Where callers reach the gateway; `undefined` until it listens. */
  frontUrl(): string | undefined
  lastMinute(): MinuteCounts
}

/** The page's content from now on, until it is stopped. Throws nothing. */
export function pageOf(
  { clock }: Pick<Context, 'clock'>,
  { chain, budget }: GatewayConfig,
  hosted: Pick<HostedGateway, 'gateway' | 'vitals' | 'followRecent'>,
  { frontUrl, lastMinute }: PageParts,
): PageSource & { stop(): void } {
  const startedAt = instant(clock.nowMs())
  const recent = hosted.followRecent()
  return {
    figures() {
      const reasons = hosted.gateway.readiness()
      const gauges = hosted.gateway.gauges()
      const { oldestSeconds, head, nodes, questions, executor, store, admissionEnabled }: Vitals =
        hosted.vitals()
      const stage = (name: QueueStage) => ({
        count: gauges.queue[name],
        oldest_seconds: Math.floor(oldestSeconds[name]),
      })
      return {
        version: programVersion,
        started_at: startedAt,
        url: frontUrl() ?? null,
        ready: reasons.length === 0,
        reasons,
        admission_enabled: admissionEnabled,
        queue: {
          received: stage('received'),
          validated: stage('validated'),
          selected: stage('selected'),
        },
        budget: {
          window_seconds: budget.window_seconds,
          global_items: gauges.budget.limitItems,
          per_ip_items: gauges.budget.perClientLimitItems,
          spent_items: gauges.budget.spentItems,
          // By the second, so that it stays the same as long as the window does.
          window_ends_at:
            gauges.budget.endsInMs === 0
              ? null
              : instant(Math.round((clock.nowMs() + gauges.budget.endsInMs) / 1_000) * 1_000),
          clients: gauges.budget.clients,
        },
        last_minute: lastMinute(),
        chain: {
          id: chain.id,
          head: head === undefined ? null : String(head.number),
          head_age_seconds: wholeSeconds(head?.ageSeconds),
          max_head_age_seconds: chain.max_head_age_seconds,
          questions_known: questions.known,
          questions_due: questions.due,
        },
        nodes: nodes.map(({ node, isHealthy, headNumber, headAgeSeconds, requests }) => ({
          node,
          healthy: isHealthy,
          head: headNumber === undefined ? null : String(headNumber),
          head_age_seconds: wholeSeconds(headAgeSeconds),
          unanswered: requests.unanswered,
        })),
        executor: executor === undefined ? null : executorJson(executor),
        store: { full: store.isFull, failed: store.isFailed },
      }
    },
    candidates: recent.rows,
    candidate: recent.detail,
    stop: recent.stop,
  }
}

const wholeSeconds = (seconds: number | undefined) =>
  seconds === undefined ? null : Math.floor(seconds)

const executorJson = ({
  balanceWei,
  paidProposals,
  highestNonce,
  nonceGap,
  openSlots,
  newestHash,
}: ExecutorVitals) => ({
  balance_wei: balanceWei === undefined ? null : String(balanceWei),
  pays_for: paidProposals ?? null,
  highest_nonce: highestNonce,
  gap_latest: nonceGap.latest ?? null,
  gap_finalized: nonceGap.finalized ?? null,
  open_slots: openSlots,
  newest_hash: newestHash ?? null,
})
