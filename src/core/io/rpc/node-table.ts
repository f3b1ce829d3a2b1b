/**
 * Which RPC nodes may be believed (R16). One on another chain, behind the others, in the minority
 * about a final block, or out of order is out of rotation until it is found sound again.
 */
import type { Clock, Random } from '#ports'

export interface NodeHealth {
  readonly index: number
  readonly state: 'healthy' | 'aside'
  readonly why?: string
  readonly headNumber?: bigint
  readonly requests: { readonly answered: number; readonly unanswered: number }
}

export interface NodeTableOptions {
  readonly clock: Pick<Clock, 'monotonicMs'>
  readonly random: Pick<Random, 'bytes'>
  readonly expectedChainId: number | undefined
  readonly maxLagSeconds: number | undefined
}

/** `silent` is no evidence against the node. */
type Fault = 'silent' | 'behind' | 'elsewhere' | 'contradicted'

interface Node {
  readonly index: number
  out: { readonly fault: Fault; readonly why: string } | undefined
  otherChainId: number | undefined
  failures: number
  lastFailure: string | undefined
  pauseMs: number
  probeAtMs: number
  backAtMs: number
  head:
    | { readonly number: bigint; readonly timestamp: bigint; readonly seenAtMs: number }
    | undefined
  readonly requests: { answered: number; unanswered: number }
}

export interface NodeTable extends NodeTableOptions {
  readonly nodes: readonly Node[]
  preferred: number
  /** Until it is gone no node is believed. */
  conflict: { readonly members: readonly number[]; readonly why: string } | undefined
}

const mostLagBlocks = 3n
const failuresAtMost = 2
const firstPauseMs = 500
const longestPauseMs = 10_000
/** One that falls out sooner goes on with the pause it had. */
const steadyMs = 60_000
/** A chain that was set back must not stop everything. */
const headCountsMs = 30_000

export function createNodeTable(count: number, options: NodeTableOptions): NodeTable {
  const nodes = Array.from({ length: count }, (_, index) => ({
    index,
    out: undefined,
    otherChainId: undefined,
    failures: 0,
    lastFailure: undefined,
    pauseMs: firstPauseMs,
    probeAtMs: 0,
    backAtMs: Number.NEGATIVE_INFINITY,
    head: undefined,
    requests: { answered: 0, unanswered: 0 },
  }))
  return { ...options, nodes, preferred: 0, conflict: undefined }
}

export function nodeAt({ nodes }: NodeTable, index: number) {
  const node = nodes[index]
  if (node === undefined) throw new RangeError(`no RPC node ${index}`)
  return node
}

export function rotation({ nodes, preferred }: NodeTable) {
  const count = nodes.length
  // The only node is asked whatever it did (R16).
  return nodes
    .filter(({ out }) => count === 1 || out === undefined)
    .map(({ index }) => index)
    .sort((a, b) => ((a - preferred + count) % count) - ((b - preferred + count) % count))
}

export const takers = ({ nodes }: NodeTable) =>
  nodes.filter(({ otherChainId }) => otherChainId === undefined).map(({ index }) => index)

const jittered = ({ random }: NodeTable, ms: number) => ms * (0.5 + (random.bytes(1)[0] ?? 0) / 512)

export function takeOut(table: NodeTable, index: number, fault: Fault, why: string) {
  const node = nodeAt(table, index)
  const nowMs = table.clock.monotonicMs()
  if (node.out === undefined) {
    if (nowMs - node.backAtMs > steadyMs) node.pauseMs = firstPauseMs
    node.probeAtMs = nowMs + jittered(table, node.pauseMs)
  }
  node.out = { fault, why }
  if (index === table.preferred) table.preferred = rotation(table)[0] ?? table.preferred
}

export function comeBack(table: NodeTable, index: number) {
  const node = nodeAt(table, index)
  if (node.out !== undefined) node.backAtMs = table.clock.monotonicMs()
  Object.assign(node, {
    out: undefined,
    otherChainId: undefined,
    failures: 0,
    lastFailure: undefined,
  } satisfies Partial<Node>)
}

export function noteResponse(table: NodeTable, index: number) {
  if (table.nodes.length === 1) comeBack(table, index)
  else nodeAt(table, index).failures = 0
}

export function noteFailure(table: NodeTable, index: number, why: string) {
  const node = nodeAt(table, index)
  node.failures += 1
  node.lastFailure = why
  if (node.failures >= failuresAtMost && (node.out?.fault ?? 'silent') === 'silent')
    takeOut(table, index, 'silent', why)
}

export function isElsewhere(table: NodeTable, index: number, chainId: number) {
  const why = `it is on chain ${chainId}, not on ${table.expectedChainId}`
  nodeAt(table, index).otherChainId = chainId
  takeOut(table, index, 'elsewhere', why)
  return why
}

export function noteHead(
  table: NodeTable,
  index: number,
  { number, timestamp }: { number: bigint; timestamp: bigint },
) {
  nodeAt(table, index).head = { number, timestamp, seenAtMs: table.clock.monotonicMs() }
}

export function takeOutIfBehind(table: NodeTable, index: number) {
  const own = nodeAt(table, index).head
  if (own === undefined) return false
  const { maxLagSeconds } = table
  const nowMs = table.clock.monotonicMs()
  for (const { index: other, head, otherChainId } of table.nodes) {
    if (other === index || head === undefined || otherChainId !== undefined) continue
    const blocks = head.number - own.number
    const seconds = head.timestamp - own.timestamp
    const isFar =
      blocks > mostLagBlocks || (maxLagSeconds !== undefined && seconds > BigInt(maxLagSeconds))
    if (blocks <= 0n || !isFar || nowMs - head.seenAtMs > headCountsMs) continue
    const why = `its newest block ${own.number} is ${blocks} blocks and ${seconds} s behind that of node ${other + 1}`
    takeOut(table, index, 'behind', why)
    return true
  }
  return false
}

export function takeDue(table: NodeTable) {
  const nowMs = table.clock.monotonicMs()
  const due = table.nodes.filter(({ out, probeAtMs }) => out !== undefined && probeAtMs <= nowMs)
  for (const node of due) {
    node.pauseMs = Math.min(longestPauseMs, node.pauseMs * 2)
    node.probeAtMs = nowMs + jittered(table, node.pauseMs)
  }
  return due.map(({ index }) => index)
}

export function noteAgreement(table: NodeTable, compared: readonly number[]) {
  const isSettled = (index: number) =>
    compared.includes(index) || (nodeAt(table, index).out?.fault ?? 'silent') !== 'silent'
  if (table.conflict?.members.every(isSettled)) table.conflict = undefined
}

export const otherChainId = (table: NodeTable) =>
  takers(table).length === 0 ? table.nodes[0]?.otherChainId : undefined

export function whyNone({ conflict, nodes }: NodeTable) {
  if (conflict) return conflict.why
  const reasons = nodes.map(
    ({ index, out, lastFailure }) => `${index + 1}: ${out?.why ?? lastFailure ?? 'no response'}`,
  )
  return `no RPC node of ${nodes.length} can be used (${reasons.join('; ')})`
}

export const healthOf = ({ nodes, conflict }: NodeTable): readonly NodeHealth[] =>
  nodes.map(({ index, out, lastFailure, failures, head, requests }) => {
    const contradicted = conflict?.members.includes(index) ? conflict.why : undefined
    const why = out?.why ?? contradicted ?? (failures > 0 ? lastFailure : undefined)
    return {
      index,
      state: out === undefined && contradicted === undefined ? 'healthy' : 'aside',
      requests: { ...requests },
      ...(why !== undefined && { why }),
      ...(head !== undefined && { headNumber: head.number }),
    }
  })
