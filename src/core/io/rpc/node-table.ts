/**
 * What is known of each RPC node, and which of them may be believed (R16). A node that is on
 * another chain, behind the others, in the minority about a final block, or out of order is set
 * aside and probed until it is sound again. Plain bookkeeping: asks nobody.
 */
import type { Clock, Random } from '../../ports.js'

/** One node as operators see it; `index` is its place in the configuration, from 0. */
export interface NodeHealth {
  readonly index: number
  readonly state: 'healthy' | 'aside'
  /** Why it is aside, or what is wrong with it so far. Carries no URL (R5). */
  readonly why?: string
  /** The newest block that it told. */
  readonly headNumber?: bigint
  /** HTTP requests to it, batches counting one, by whether an answer came that could be read. */
  readonly requests: { readonly answered: number; readonly unanswered: number }
}

export interface NodeTableOptions {
  readonly clock: Pick<Clock, 'monotonicMs'>
  readonly random: Pick<Random, 'bytes'>
  readonly expectedChainId: number | undefined
  /** A node that is further behind the best one is set aside. */
  readonly maxLagBlocks: number
  /** So is one whose newest block is that much older than the best one's, where blocks are slow. */
  readonly maxLagSeconds: number | undefined
}

/** `silent` shows nothing but silence; the others are evidence against the node. */
export type AsideKind = 'silent' | 'behind' | 'elsewhere' | 'contradicted'

export interface NodeTable {
  readonly count: number
  /** The nodes that may be asked, in order of preference. */
  order(): readonly number[]
  /** Nodes that may be handed transactions: all but those on another chain. */
  takers(): readonly number[]
  prefer(index: number): void
  /**
   * A request to it came to its end; counted only, what it means for the node is said by the
   * others.
   */
  asked(index: number, outcome: 'answered' | 'unanswered'): void
  /** It gave a useful answer. */
  answered(index: number): void
  /** It gave none: in a row, that sets it aside. */
  failed(index: number, why: string): void
  /** It is on another chain: no read and no send goes there. */
  elsewhere(index: number, chainId: number): void
  setAside(index: number, kind: AsideKind, why: string): void
  /** It was looked at and found sound. */
  comeBack(index: number): void
  told(index: number, head: { readonly number: bigint; readonly timestamp: bigint }): void
  /** Sets the node aside where its head is too far behind that of another; whether it did. */
  setAsideIfBehind(index: number): boolean
  isHealthy(index: number): boolean
  /** Nodes aside whose time to be looked at has come; their next time is set by this. */
  takeDue(): readonly number[]
  /**
   * Between whom there is a contradiction that nobody can decide: until it is gone no node is
   * believed.
   */
  conflict(): { readonly members: readonly number[]; readonly why: string } | undefined
  setConflict(members: readonly number[], why: string): void
  /**
   * These were compared and agree; ends a conflict whose members are all among them, or aside for a
   * reason of their own.
   */
  agreed(compared: readonly number[]): void
  /** The one other chain that every node is on, where that is so. */
  otherChainId(): number | undefined
  /** Why no node can be asked, naming nodes by number. */
  whyNone(): string
  name(index: number): string
  health(): readonly NodeHealth[]
}

/** Failures in a row that set a node aside; the first already makes reads prefer another. */
const failuresAtMost = 2
/**
 * First pause before a node aside is looked at, and the longest; doubled each time in vain, with
 * jitter.
 */
const firstPauseMs = 500
const longestPauseMs = 10_000
/** A node that falls out again sooner than this goes on with the pause it had. */
const steadyMs = 60_000
/**
 * What a node told of its head counts against others for so long: a chain that was really set back
 * must not stop everything.
 */
const headCountsMs = 30_000

interface Node {
  readonly index: number
  aside: { readonly kind: AsideKind; readonly why: string } | undefined
  otherChainId: number | undefined
  failures: number
  lastFailure: string | undefined
  pauseMs: number
  probeAtMs: number
  backAtMs: number
  head:
    | { readonly number: bigint; readonly timestamp: bigint; readonly toldAtMs: number }
    | undefined
  requests: { answered: number; unanswered: number }
}

/**
 * `count` nodes, all taken for healthy until shown otherwise. Source: R16, domain §8 (lag),
 * robustness §3.
 */
export function createNodeTable(count: number, options: NodeTableOptions): NodeTable {
  const { clock, random, expectedChainId, maxLagBlocks, maxLagSeconds } = options
  const nodes: Node[] = Array.from({ length: count }, (_, index) => ({
    index,
    aside: undefined,
    otherChainId: undefined,
    failures: 0,
    lastFailure: undefined,
    pauseMs: firstPauseMs,
    probeAtMs: 0,
    backAtMs: Number.NEGATIVE_INFINITY,
    head: undefined,
    requests: { answered: 0, unanswered: 0 },
  }))
  let preferred = 0
  let conflict: { readonly members: readonly number[]; readonly why: string } | undefined

  const at = (index: number): Node => {
    const node = nodes[index]
    if (node === undefined) throw new RangeError(`no RPC node ${index}`)
    return node
  }
  const jittered = (ms: number) => ms * (0.5 + (random.bytes(1)[0] ?? 0) / 512)
  const order = () => {
    // With one node there is no other to believe instead: it is asked whatever it did, but for
    // another chain's facts (R16).
    const usable = count === 1 ? nodes : nodes.filter(({ aside }) => aside === undefined)
    return usable
      .map(({ index }) => index)
      .sort((a, b) => ((a - preferred + count) % count) - ((b - preferred + count) % count))
  }
  const setAside = (index: number, kind: AsideKind, why: string) => {
    const node = at(index)
    const nowMs = clock.monotonicMs()
    if (node.aside === undefined) {
      if (nowMs - node.backAtMs > steadyMs) node.pauseMs = firstPauseMs
      node.probeAtMs = nowMs + jittered(node.pauseMs)
    }
    node.aside = { kind, why }
    if (index === preferred) preferred = order()[0] ?? preferred
  }
  const comeBack = (index: number) => {
    const node = at(index)
    if (node.aside !== undefined) node.backAtMs = clock.monotonicMs()
    node.aside = undefined
    node.otherChainId = undefined
    node.failures = 0
    node.lastFailure = undefined
  }
  const name = (index: number) => `RPC node ${index + 1} of ${count}`

  return {
    count,
    order,
    takers: () =>
      nodes.filter(({ otherChainId }) => otherChainId === undefined).map(({ index }) => index),
    prefer(index) {
      preferred = index
    },
    asked(index, outcome) {
      at(index).requests[outcome] += 1
    },
    answered(index) {
      if (count === 1) comeBack(index)
      else at(index).failures = 0
    },
    failed(index, why) {
      const node = at(index)
      node.failures += 1
      node.lastFailure = why
      // A reason that says more than silence stays.
      if (node.failures >= failuresAtMost && (node.aside?.kind ?? 'silent') === 'silent')
        setAside(index, 'silent', why)
    },
    elsewhere(index, chainId) {
      at(index).otherChainId = chainId
      setAside(index, 'elsewhere', `it is on chain ${chainId}, not on ${expectedChainId}`)
    },
    setAside,
    comeBack,
    told(index, { number, timestamp }) {
      at(index).head = { number, timestamp, toldAtMs: clock.monotonicMs() }
    },
    setAsideIfBehind(index) {
      const own = at(index).head
      if (own === undefined) return false
      const nowMs = clock.monotonicMs()
      for (const { index: other, head } of nodes) {
        if (
          other === index ||
          head === undefined ||
          nowMs - head.toldAtMs > headCountsMs ||
          at(other).otherChainId !== undefined
        )
          continue
        const blocks = head.number - own.number
        const seconds = head.timestamp - own.timestamp
        if (blocks <= 0n) continue
        if (
          blocks <= BigInt(maxLagBlocks) &&
          (maxLagSeconds === undefined || seconds <= BigInt(maxLagSeconds))
        )
          continue
        setAside(
          index,
          'behind',
          `its newest block ${own.number} is ${blocks} blocks and ${seconds} s behind that of node ${other + 1}`,
        )
        return true
      }
      return false
    },
    isHealthy: (index) => at(index).aside === undefined,
    takeDue() {
      const nowMs = clock.monotonicMs()
      const due = nodes.filter(({ aside, probeAtMs }) => aside !== undefined && probeAtMs <= nowMs)
      for (const node of due) {
        node.pauseMs = Math.min(longestPauseMs, node.pauseMs * 2)
        node.probeAtMs = nowMs + jittered(node.pauseMs)
      }
      return due.map(({ index }) => index)
    },
    conflict: () => conflict,
    setConflict(members, why) {
      conflict = { members, why }
    },
    agreed(compared) {
      if (
        conflict?.members.every(
          (index) => compared.includes(index) || (at(index).aside?.kind ?? 'silent') !== 'silent',
        )
      )
        conflict = undefined
    },
    otherChainId() {
      const [first] = nodes
      return nodes.every(({ otherChainId }) => otherChainId !== undefined)
        ? first?.otherChainId
        : undefined
    },
    whyNone() {
      if (conflict) return conflict.why
      const reasons = nodes.map(
        ({ index, aside, lastFailure }) =>
          `${index + 1}: ${aside?.why ?? lastFailure ?? 'no answer'}`,
      )
      return `no RPC node of ${count} can be believed (${reasons.join('; ')})`
    },
    name,
    health: () =>
      nodes.map(({ index, aside, lastFailure, failures, head, requests }) => {
        const contradicted = conflict?.members.includes(index) ? conflict.why : undefined
        const why = aside?.why ?? contradicted ?? (failures > 0 ? lastFailure : undefined)
        const state = aside === undefined && contradicted === undefined ? 'healthy' : 'aside'
        return {
          index,
          state,
          requests: { ...requests },
          ...(why === undefined ? {} : { why }),
          ...(head === undefined ? {} : { headNumber: head.number }),
        }
      }),
  }
}
