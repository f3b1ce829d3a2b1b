/**
 * `proposer.operator-status/1`: how a served gateway stands, as its admin listener tells it and the
 * operator's commands read it.
 */
import * as z from 'zod/mini'
import type { Hex } from '../ports.js'
import { instant } from '../protocol/candidate.js'
import type { StatusSnapshot } from './snapshot.js'

/** The page's figures, and what only the live view shows. */
export const statusDocument = (
  figures: object,
  { adminUrl, changes }: StatusSnapshot,
): Readonly<Record<string, unknown>> => ({
  ...figures,
  admin_url: adminUrl ?? null,
  changes: changes.map(({ atMs, line }) => ({ at: instant(atMs), ...line })),
})

const Stage = z.object({ count: z.number(), oldest_seconds: z.number() })
const Digits = z.nullable(z.string())
const Count = z.nullable(z.number())

const Methods = z.object({
  heads: z.number(),
  logs: z.number(),
  contracts: z.number(),
  state: z.number(),
  transactions: z.number(),
})
const RpcCountsJson = z.object({ requests: z.number(), methods: Methods })

/** What is read of the document; later versions may tell more. */
const Status = z.object({
  url: z.nullable(z.string()),
  admin_url: z.nullable(z.string()),
  reasons: z.array(z.string()),
  admission_enabled: z.boolean(),
  queue: z.object({ received: Stage, validated: Stage, selected: Stage }),
  budget: z.object({
    global_items: z.number(),
    per_ip_items: z.number(),
    spent_items: z.number(),
    window_ends_at: z.nullable(z.string()),
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
    head: Digits,
    head_age_seconds: Count,
    questions_known: z.number(),
    questions_due: z.number(),
    // A gateway of an earlier version tells neither.
    changed_contracts: z._default(z.number(), 0),
    oracles: z._default(z.array(z.object({ address: z.string(), version: z.number() })), []),
  }),
  nodes: z.array(
    z.object({ node: z.number(), healthy: z.boolean(), head: Digits, head_age_seconds: Count }),
  ),
  // A gateway of an earlier version tells nothing of it.
  rpc: z.optional(
    z.object({
      total: RpcCountsJson,
    }),
  ),
  executor: z.nullable(
    z.object({
      balance_wei: Digits,
      pays_for: Count,
      highest_nonce: z.number(),
      open_slots: z.number(),
      newest_hash: Digits,
    }),
  ),
  store: z.object({ full: z.boolean(), failed: z.boolean() }),
  // A gateway of an earlier version has fewer.
  ceilings: z._default(z.record(z.string(), z.number()), {}),
  wallets: z._default(
    z.array(
      z.object({ address: z.string(), state: z.string(), until: Digits, failed_gas: z.string() }),
    ),
    [],
  ),
  cluster: z.optional(
    z.object({
      leads: z.boolean(),
      leader: Digits,
      epoch: z.number(),
      lag_records: z.number(),
      gateways: z.number(),
    }),
  ),
  changes: z.array(z.looseObject({ at: z.string(), event: z.string() })),
})

/** The document as `serve` itself has it; `undefined` for what is none. `nowMs` by this clock. */
export function readStatusDocument(document: unknown, nowMs: number): StatusSnapshot | undefined {
  const { data } = Status.safeParse(document)
  if (data === undefined) return undefined
  const { queue, budget, chain, executor, cluster, store } = data
  const each = <T>(read: (stage: z.infer<typeof Stage>) => T) => ({
    received: read(queue.received),
    validated: read(queue.validated),
    selected: read(queue.selected),
  })
  const { window_ends_at: ends } = budget
  return {
    url: data.url ?? undefined,
    adminUrl: data.admin_url ?? undefined,
    reasons: data.reasons,
    gauges: {
      budget: {
        limitItems: budget.global_items,
        perClientLimitItems: budget.per_ip_items,
        spentItems: budget.spent_items,
        endsInMs: ends === null ? 0 : Math.max(0, Date.parse(ends) - nowMs),
        clients: budget.clients,
      },
      queue: each(({ count }) => count),
      openSlots: executor?.open_slots ?? 0,
    },
    vitals: {
      oldestSeconds: each(({ oldest_seconds }) => oldest_seconds),
      head:
        chain.head === null
          ? undefined
          : { number: BigInt(chain.head), ageSeconds: chain.head_age_seconds ?? 0 },
      nodes: data.nodes.map(({ node, healthy, head, head_age_seconds }) => ({
        node,
        isHealthy: healthy,
        headNumber: bigint(head),
        headAgeSeconds: head_age_seconds ?? undefined,
        requests: { answered: 0, unanswered: 0 },
      })),
      rpc: data.rpc?.total,
      questions: { known: chain.questions_known, due: chain.questions_due },
      code: {
        changed: chain.changed_contracts,
        oracles: chain.oracles.map(({ address, version }) => ({
          address: address as Hex,
          version: version === 3 ? 3 : 2,
        })),
      },
      executor:
        executor === null
          ? undefined
          : {
              openSlots: executor.open_slots,
              highestNonce: executor.highest_nonce,
              nonceGap: { latest: undefined, finalized: undefined },
              balanceWei: bigint(executor.balance_wei),
              paidProposals: executor.pays_for ?? undefined,
              newestHash: (executor.newest_hash ?? undefined) as Hex | undefined,
            },
      store: { isFull: store.full, isFailed: store.failed },
      cluster: cluster && {
        leads: cluster.leads,
        leader: cluster.leader ?? undefined,
        epoch: cluster.epoch,
        lagRecords: cluster.lag_records,
        gateways: cluster.gateways,
      },
      admissionEnabled: data.admission_enabled,
    },
    lastMinute: data.last_minute,
    ceilings: data.ceilings,
    wallets: data.wallets,
    changes: data.changes.map(({ at, ...line }) => ({ atMs: Date.parse(at), line })),
  }
}

const bigint = (digits: string | null) => (digits === null ? undefined : BigInt(digits))
