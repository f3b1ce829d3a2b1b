/**
 * A look at several nodes at once: the chain they are on, how far they are, and whether they tell
 * the same of a block that cannot change. What comes of it is in the node table.
 */
import type { ChainError, Hex } from '../../ports.js'
import type { NodeTable } from './node-table.js'
import { blockTag, Header, lower } from './shapes.js'
import type { RpcCall } from './transport.js'

/**
 * Exchanges with one node; the table has been told what came of it. `undefined` where the node gave
 * no answer.
 */
export type LookAt = (
  index: number,
  calls: readonly RpcCall[],
) => Promise<readonly (unknown | ChainError)[] | undefined>

interface Seen {
  readonly index: number
  /** Absent where the node knows no finalized block. */
  readonly finalized: { readonly number: bigint; readonly hash: Hex } | undefined
}

const blockCall = (at: 'latest' | 'finalized' | bigint): RpcCall => ({
  method: 'eth_getBlockByNumber',
  params: [blockTag(at), false],
})

/**
 * Looks at these nodes and brings the table up to date: who is behind, who contradicts the others,
 * who is sound (again). With a strict majority the minority is set aside; without one nobody is
 * believed, because picking a side would be guessing. Never rejects.
 */
export async function survey(
  table: NodeTable,
  indices: readonly number[],
  lookAt: LookAt,
): Promise<void> {
  const looked = await Promise.all(indices.map((index) => look(table, index, lookAt)))
  const current = looked.flatMap((seen) =>
    seen && !table.setAsideIfBehind(seen.index) ? [seen] : [],
  )
  const comparable = current.flatMap(({ index, finalized }) =>
    finalized ? [{ index, finalized }] : [],
  )
  // Nothing to compare, nothing against it.
  for (const { index, finalized } of current) if (!finalized) table.comeBack(index)
  const [height] = comparable
    .map(({ finalized }) => finalized.number)
    .sort((a, b) => (a < b ? -1 : 1))
  if (height === undefined) return
  const told = await Promise.all(
    comparable.map(async ({ index, finalized }) => {
      return {
        index,
        hash:
          finalized.number === height ? finalized.hash : await hashAt(table, index, height, lookAt),
      }
    }),
  )
  const groups = new Map<Hex, number[]>()
  for (const { index, hash } of told)
    if (hash) groups.set(hash, [...(groups.get(hash) ?? []), index])
  const compared = [...groups.values()].flat().sort((a, b) => a - b)
  const agreeing = [...groups.values()].find((group) => group.length * 2 > compared.length)
  if (agreeing === undefined) {
    const names = compared.map((index) => index + 1).join(' and ')
    table.setConflict(
      compared,
      `RPC nodes ${names} of ${table.count} disagree about the final block ${height}`,
    )
    return
  }
  for (const index of compared) {
    if (agreeing.includes(index)) table.comeBack(index)
    else
      table.setAside(
        index,
        'contradicted',
        `its block ${height} is another than that of the other nodes`,
      )
  }
  table.agreed(compared)
}

async function look(table: NodeTable, index: number, lookAt: LookAt): Promise<Seen | undefined> {
  const outcomes = await lookAt(index, [blockCall('latest'), blockCall('finalized')])
  if (outcomes === undefined) return undefined
  const latest = Header.safeParse(outcomes[0])
  if (!latest.success) {
    table.failed(index, 'it tells no latest block')
    return undefined
  }
  const head = { number: BigInt(latest.data.number), timestamp: BigInt(latest.data.timestamp) }
  const finalized = Header.safeParse(outcomes[1])
  if (!finalized.success) {
    table.told(index, head)
    return { index, finalized: undefined }
  }
  const final = { number: BigInt(finalized.data.number), hash: lower(finalized.data.hash) }
  if (final.number > head.number) {
    table.failed(
      index,
      `its final block ${final.number} is newer than its newest block ${head.number}`,
    )
    return undefined
  }
  table.told(index, head)
  return { index, finalized: final }
}

async function hashAt(
  table: NodeTable,
  index: number,
  height: bigint,
  lookAt: LookAt,
): Promise<Hex | undefined> {
  const outcomes = await lookAt(index, [blockCall(height)])
  if (outcomes === undefined) return undefined
  const header = Header.safeParse(outcomes[0])
  if (header.success && BigInt(header.data.number) === height) return lower(header.data.hash)
  table.failed(index, `it does not tell block ${height}, which it calls final`)
  return undefined
}
