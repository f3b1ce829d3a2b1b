import { feesFor } from '#gateway/executor/transaction'
import type { Ledger } from '#gateway/ledger/ledger'
import type { LedgerHealth } from '#gateway/status/health'
import type { CodeWatch, Heads } from '#gateway/view/state'
import type { NodeHealth, RpcChain } from '#io/rpc/rpc'
import type { Chain, Clock } from '#ports'
import type { Address } from '#protocol/schema'
import type { ClusterVitals, NodeVitals, RpcCounts, StateLine, Vitals } from '#protocol/vitals'
import type { ChainReadings } from './instrumented-ports.js'

export interface HealthParts {
  readonly clock: Clock
  readonly chainId: number
  readonly maxFeeGwei: number
  readonly ledger: Pick<Ledger, 'slots' | 'highestNonce' | 'isFull' | 'failed' | 'admissionEnabled'>
  readonly following: LedgerHealth
  readonly heads: () => Heads | undefined
  readonly questions: () => Vitals['questions']
  readonly code: () => Readonly<Pick<CodeWatch, 'changed' | 'versions'>>
  readonly readings: ChainReadings
  readonly executor: Address | undefined
  readonly nodes: () => readonly NodeHealth[]
  readonly rpc?: (() => RpcCounts) | undefined
  readonly cluster?: (() => ClusterVitals | undefined) | undefined
  readonly ledEpoch?: (() => number | undefined) | undefined
  readonly onState?: ((line: StateLine) => void) | undefined
}

export interface Health {
  now(): Vitals
  /** To be called every second or so: a change becomes a line of the state log. */
  look(reasons: readonly string[]): void
}

/** Before one was mined (domain §8: measured and computed). */
const usualGas = 425_000n

export function nodesOf(chain: Chain): () => readonly NodeHealth[] {
  return 'nodes' in chain ? (chain as RpcChain).nodes : () => []
}

export const usageOf = (chain: Chain): (() => RpcCounts) | undefined =>
  'usage' in chain ? (chain as RpcChain).usage : undefined

export function createHealth(parts: HealthParts): Health {
  const { clock, ledger, following, readings, executor } = parts
  const seen = new Map<
    number,
    {
      readonly isHealthy: boolean
      readonly headNumber: bigint | undefined
      readonly headAtMs: number
    }
  >()
  let wasReady: boolean | undefined
  let led: number | undefined
  const lookAtCode = codeTeller(parts)

  const nodes = (): readonly NodeVitals[] =>
    parts.nodes().map(({ index, state, headNumber, requests }) => {
      const isHealthy = state === 'healthy'
      const before = seen.get(index)
      const nowMs = clock.monotonicMs()
      const headAtMs =
        before !== undefined && before.headNumber === headNumber ? before.headAtMs : nowMs
      seen.set(index, { isHealthy, headNumber, headAtMs })
      const node = index + 1
      if ((before?.isHealthy ?? true) !== isHealthy)
        parts.onState?.({ event: isHealthy ? 'rpc.back' : 'rpc.aside', node })
      const headAgeSeconds = headNumber === undefined ? undefined : (nowMs - headAtMs) / 1000
      return { node, isHealthy, headNumber, headAgeSeconds, requests }
    })

  const executorNow = (address: Address) => {
    const openSlots = ledger.slots().filter((slot) => slot.executor === address).length
    const highestNonce = ledger.highestNonce(address)
    // Without an open slot all that was ever bound is final.
    const gap = (next: number | undefined) =>
      openSlots === 0 ? 0 : next === undefined ? undefined : Math.max(0, highestNonce + 1 - next)
    const { balanceWei } = readings
    return {
      openSlots,
      highestNonce,
      nonceGap: { latest: gap(readings.nonceLatest), finalized: gap(readings.nonceFinalized) },
      balanceWei,
      paidProposals: balanceWei === undefined ? undefined : paidProposals(balanceWei),
      newestHash: following.newestHash(),
    }
  }

  const paidProposals = (balanceWei: bigint): number | undefined => {
    const head = parts.heads()?.latest
    const { tipWei } = readings
    if (head === undefined || tipWei === undefined) return undefined
    const ceilingWei = BigInt(Math.floor(parts.maxFeeGwei * 1e9))
    // Dearer than the ceiling: what it would cost if it were sent.
    const paidTipWei =
      feesFor(parts.chainId, head, tipWei, ceilingWei, { kind: 'propose' })?.maxPriorityFeePerGas ??
      tipWei
    const costWei = (following.gasPerProposal() ?? usualGas) * (head.baseFeePerGas + paidTipWei)
    return costWei === 0n ? undefined : Number(balanceWei / costWei)
  }

  return {
    now() {
      const latest = parts.heads()?.latest
      return {
        oldestSeconds: following.oldestSeconds(),
        head: latest && {
          number: latest.number,
          ageSeconds: Math.max(0, clock.nowMs() / 1000 - Number(latest.timestamp)),
        },
        nodes: nodes(),
        rpc: parts.rpc?.(),
        questions: parts.questions(),
        code: {
          changed: parts.code().changed.length,
          oracles: [...parts.code().versions].map(([address, version]) => ({ address, version })),
        },
        executor: executor === undefined ? undefined : executorNow(executor),
        store: { isFull: ledger.isFull, isFailed: ledger.failed !== undefined },
        cluster: parts.cluster?.(),
        admissionEnabled: ledger.admissionEnabled,
      }
    },
    look(reasons) {
      nodes()
      lookAtCode()
      const leads = parts.ledEpoch?.()
      if (leads !== undefined && leads !== led)
        parts.onState?.({ event: 'lease.taken', epoch: leads })
      else if (led !== undefined && leads !== led)
        parts.onState?.({ event: 'lease.ended', epoch: led })
      led = leads
      const isReady = reasons.length === 0
      if (isReady === wasReady) return
      // Before the first readiness the gateway is starting, which is no change.
      if (isReady || wasReady !== undefined)
        parts.onState?.({ event: isReady ? 'ready' : 'not_ready', reasons: reasons.length })
      wasReady = isReady
    },
  }
}

/** One line for each contract that runs other code, and for each other code. */
function codeTeller({ code, onState }: Pick<HealthParts, 'code' | 'onState'>) {
  let told = new Set<string>()
  return () => {
    const before = told
    told = new Set()
    for (const { address, pinned, now } of code().changed) {
      const key = `${address} ${now.implementation} ${now.code_hash}`
      told.add(key)
      if (before.has(key)) continue
      const runs = { pinned: pinned.implementation, runs: now.implementation }
      onState?.({ event: 'implementation.changed', contract: address, ...runs })
    }
  }
}
