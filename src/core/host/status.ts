/** How a served gateway stands, from memory. No RPC URL, no secret (R5). */
import { coinText, explorerOf } from '#chain/profiles'
import { ceilingsOf, type GatewayConfig, isRecord } from '#gateway/config'
import { gasCeilingsOf, standingsOf } from '#gateway/executor/state'
import type { Budget } from '#gateway/front/budget'
import type { Ledger } from '#gateway/ledger/ledger'
import type { ChainReadings, followLedger } from '#gateway/status/health'
import { gasPrice, usualGas } from '#gateway/status/health'
import type { LiveView } from '#gateway/view/view'
import type { NodeHealth, RpcChain } from '#io/rpc/rpc'
import type { Chain, Clock } from '#ports'
import { instant } from '#protocol/candidate'
import { pick } from '#protocol/pick'
import type { Address } from '#protocol/schema'
import type { StatusDocument } from '#protocol/status-document'
import type { RpcCounts, StateLine } from '#protocol/vitals'
import type { HeldStore } from './held-store.js'

export interface StatusParts {
  readonly clock: Clock
  readonly config: GatewayConfig
  readonly ledger: Ledger
  readonly following: ReturnType<typeof followLedger>
  readonly view: Pick<LiveView, 'heads' | 'counts' | 'code'>
  readonly readiness: () => readonly string[]
  readonly budget: Pick<Budget, 'spentByAll' | 'endsInMs' | 'clients'>
  readonly readings: ChainReadings
  readonly executor: Address | undefined
  readonly nodes: () => readonly NodeHealth[]
  readonly rpc?: (() => RpcCounts) | undefined
  readonly cluster?: Omit<NonNullable<HeldStore['cluster']>, 'id'> | undefined
  readonly onState?: ((line: StateLine) => void) | undefined
}

type Around = Pick<
  StatusDocument,
  'version' | 'started_at' | 'url' | 'last_minute' | 'admin_url' | 'changes'
>

export function nodesOf(chain: Chain): () => readonly NodeHealth[] {
  return 'nodes' in chain ? (chain as RpcChain).nodes : () => []
}

export function createStatus(parts: StatusParts) {
  const { clock, config, ledger, following, view, budget, executor, onState } = parts
  const { chain } = config
  const nodes = nodesTeller(parts)
  let wasReady: boolean | undefined
  let led: number | undefined
  const lookAtCode = codeTeller(parts)

  return {
    now({ version, started_at, url, last_minute, admin_url, changes }: Around): StatusDocument {
      const nowMs = clock.nowMs()
      const latest = view.heads()?.latest
      const reasons = [...parts.readiness()]
      const endsInMs = budget.endsInMs(clock.monotonicMs())
      const { known, due } = view.counts()
      const { changed, versions } = view.code()
      const total = parts.rpc?.()
      const cluster = parts.cluster?.standing()
      return {
        version,
        started_at,
        explorer: explorerOf(chain.id) ?? null,
        executor_address: executor ?? null,
        paused: pausedBy(config, ledger),
        url,
        ready: reasons.length === 0,
        reasons,
        admission_enabled: ledger.admissionEnabled,
        queue: following.queue(),
        budget: {
          ...pick(config.budget, 'window_seconds', 'global_items', 'per_ip_items'),
          spent_items: budget.spentByAll(clock.monotonicMs()),
          window_ends_at:
            endsInMs === 0 ? null : instant(Math.round((nowMs + endsInMs) / 1_000) * 1_000),
          clients: budget.clients,
        },
        last_minute,
        chain: {
          id: chain.id,
          head: digits(latest?.number),
          head_age_seconds: latest ? Math.max(0, nowMs / 1000 - Number(latest.timestamp)) : null,
          max_head_age_seconds: chain.max_head_age_seconds,
          questions_known: known,
          questions_due: due,
          changed_contracts: changed.length,
          oracles: [...versions].map(([address, version]) => ({ address, version })),
        },
        nodes: nodes(),
        ...(total && { rpc: { total } }),
        executor: executor === undefined ? null : executorNow(parts, executor),
        store: { full: ledger.isFull, failed: ledger.failed !== undefined },
        ...(cluster && { cluster }),
        ceilings: ceilingsOf(config),
        wallets: standingsOf(ledger, gasCeilingsOf(config), nowMs / 1000).map((standing) => ({
          address: standing.wallet,
          failures: standing.failures,
          failed_gas: String(standing.failedGas),
          alone: standing.isAlone,
          state: standing.state,
          until: standing.state === 'sends' ? null : instant(standing.untilSeconds * 1000),
        })),
        admin_url,
        changes,
      }
    },
    /** Every second: a change becomes a line of the state log. */
    look(reasons: readonly string[]) {
      nodes()
      lookAtCode()
      const leads = parts.cluster?.epoch()
      if (leads !== led && leads !== undefined) onState?.({ event: 'lease.taken', epoch: leads })
      else if (leads !== led && led !== undefined) onState?.({ event: 'lease.ended', epoch: led })
      led = leads
      const isReady = reasons.length === 0
      if (isReady === wasReady) return
      // Before the first readiness the gateway is starting, which is no change.
      if (isReady || wasReady !== undefined)
        onState?.({ event: isReady ? 'ready' : 'not_ready', reasons: reasons.length })
      wasReady = isReady
    },
  }
}

function nodesTeller({ clock, nodes, onState }: StatusParts) {
  const seen = new Map<number, { healthy: boolean; head: string | null; headAtMs: number }>()
  return () =>
    nodes().map(({ index, state, headNumber, requests: { unanswered } }) => {
      const [node, healthy, head] = [index + 1, state === 'healthy', digits(headNumber)]
      const before = seen.get(node)
      const nowMs = clock.monotonicMs()
      const headAtMs = before?.head === head ? before.headAtMs : nowMs
      seen.set(node, { healthy, head, headAtMs })
      if ((before?.healthy ?? true) !== healthy)
        onState?.({ event: healthy ? 'rpc.back' : 'rpc.aside', node })
      const head_age_seconds = head === null ? null : (nowMs - headAtMs) / 1000
      return { node, healthy, head, head_age_seconds, unanswered }
    })
}

function executorNow(parts: StatusParts, address: Address) {
  const { config, ledger, following, readings } = parts
  const open_slots = ledger.slots().filter((slot) => slot.executor === address).length
  const highest_nonce = ledger.highestNonce(address)
  // Without an open slot all that was ever bound is final.
  const gap = (next: number | undefined) =>
    open_slots === 0 ? 0 : next === undefined ? null : Math.max(0, highest_nonce + 1 - next)
  const { balanceWei, nonceLatest, nonceFinalized } = readings
  return {
    balance_wei: digits(balanceWei),
    balance_text: balanceWei === undefined ? null : coinText(balanceWei, config.chain.id),
    pays_for: balanceWei === undefined ? null : paidProposals(parts, balanceWei),
    highest_nonce,
    gap_latest: gap(nonceLatest),
    gap_finalized: gap(nonceFinalized),
    open_slots,
    newest_hash: following.newestHash() ?? null,
  }
}

function paidProposals(
  { config, following, view, readings: { tipWei } }: StatusParts,
  balanceWei: bigint,
) {
  const head = view.heads()?.latest
  if (head === undefined || tipWei === undefined) return null
  const { priceWei } = gasPrice(config.chain.id, head, tipWei, config.executor.max_fee_gwei)
  const costWei = (following.gasPerProposal() ?? usualGas) * priceWei
  return costWei === 0n ? null : Number(balanceWei / costWei)
}

/** One line for each contract that runs other code, and for each other code. */
function codeTeller({ view, onState }: Pick<StatusParts, 'view' | 'onState'>) {
  let told = new Set<string>()
  return () => {
    const before = told
    told = new Set()
    for (const { address, pinned, now } of view.code().changed) {
      const key = `${address} ${now.implementation} ${now.code_hash}`
      told.add(key)
      if (before.has(key)) continue
      const runs = { pinned: pinned.implementation, runs: now.implementation }
      onState?.({ event: 'implementation.changed', contract: address, ...runs })
    }
  }
}

function pausedBy({ admission }: GatewayConfig, ledger: Ledger) {
  if (!admission.enabled) return { since: null, why: 'admission.enabled is false in gateway.json' }
  if (ledger.admissionSwitch) return null
  const { atMs, reason, by } = ledger.admissionDecision ?? {}
  const why = [by && `by ${by}`, reason].filter(Boolean).join(': ')
  return { since: atMs === undefined ? null : instant(atMs), why }
}

const digits = (value: bigint | undefined) => (value === undefined ? null : String(value))

const whole = (value: unknown) =>
  typeof value === 'number' ? Math.floor(value) : isRecord(value) ? inWholeSeconds(value) : value

/** An age that is shown changes once a second. */
export const inWholeSeconds = (shown: object): object =>
  Array.isArray(shown)
    ? shown.map(whole)
    : Object.fromEntries(Object.entries(shown).map(([key, value]) => [key, whole(value)]))
