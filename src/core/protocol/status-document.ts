/** `proposer.operator-status/1` */
import * as z from 'zod/mini'
import { rpcClasses } from './vitals.js'

const Digits = z.nullable(z.string())
const Count = z.nullable(z.number())
const numbers = <Name extends string>(...names: readonly Name[]) =>
  z.object(
    Object.fromEntries(names.map((name) => [name, z.number()])) as Record<Name, z.ZodMiniNumber>,
  )
const Stage = numbers('count', 'oldest_seconds')

/** What has a default, a gateway of an earlier version does not tell. */
const Status = z.object({
  version: z.string(),
  started_at: z.string(),
  explorer: Digits,
  executor_address: Digits,
  /** Null while somebody may be admitted. */
  paused: z.nullable(z.object({ since: Digits, why: z.string() })),
  url: Digits,
  ready: z.boolean(),
  reasons: z.array(z.string()),
  admission_enabled: z.boolean(),
  /** Of the candidate that has been there for longest. */
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
  last_minute: numbers('fine', 'refused', 'limited', 'failed', 'admitted'),
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
      /** Since it first reported its newest block. */
      head_age_seconds: Count,
      unanswered: z.number(),
    }),
  ),
  rpc: z.optional(
    z.object({ total: z.object({ requests: z.number(), methods: numbers(...rpcClasses) }) }),
  ),
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
  /** As this one last heard. */
  cluster: z.optional(
    z.object({
      leads: z.boolean(),
      leader: Digits,
      epoch: z.number(),
      lag_records: z.number(),
      gateways: z.number(),
    }),
  ),
  /** What one caller or wallet can cost at most. */
  ceilings: z._default(z.record(z.string(), z.number()), {}),
  /** That cost gas for nothing in the last 24 hours. */
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
  /** The newest last. */
  changes: z.array(z.looseObject({ at: z.string(), event: z.string() })),
})
export type StatusDocument = z.infer<typeof Status>

export const parseStatus = (document: unknown): StatusDocument | undefined =>
  Status.safeParse(document).data
