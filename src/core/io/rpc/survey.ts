import type { ChainError, Hex } from '#ports'
import {
  comeBack,
  type NodeTable,
  noteAgreement,
  noteFailure,
  noteHead,
  takeOut,
  takeOutIfBehind,
} from './node-table.js'
import { blockTag, Header } from './shapes.js'
import type { RpcCall } from './transport.js'

type Look = (
  index: number,
  calls: readonly RpcCall[],
) => Promise<readonly (unknown | ChainError)[] | undefined>

const blockCall = (at: 'latest' | 'finalized' | bigint) => ({
  method: 'eth_getBlockByNumber',
  params: [blockTag(at), false],
})

/** Without a strict majority nobody is believed: picking a side would be guessing. */
export async function survey(table: NodeTable, indices: readonly number[], look: Look) {
  const surveyed = await Promise.all(indices.map((index) => headsOf(table, index, look)))
  const current = surveyed.filter((seen) => seen && !takeOutIfBehind(table, seen.index))
  const comparable: { index: number; finalized: Header }[] = []
  for (const seen of current) {
    if (seen?.finalized) comparable.push({ index: seen.index, finalized: seen.finalized })
    else if (seen) comeBack(table, seen.index)
  }
  const [height] = comparable
    .map(({ finalized }) => finalized.number)
    .sort((a, b) => (a < b ? -1 : 1))
  if (height === undefined) return
  const groups = new Map<Hex, number[]>()
  await Promise.all(
    comparable.map(async ({ index, finalized }) => {
      const hash =
        finalized.number === height ? finalized.hash : await hashAt(table, index, height, look)
      if (hash) groups.set(hash, [...(groups.get(hash) ?? []), index])
    }),
  )
  const compared = [...groups.values()].flat().sort((a, b) => a - b)
  const majority = [...groups.values()].find((group) => group.length * 2 > compared.length)
  if (majority === undefined) {
    const names = compared.map((index) => index + 1).join(' and ')
    const why = `RPC nodes ${names} of ${table.nodes.length} disagree about the final block ${height}`
    table.conflict = { members: compared, why }
    return
  }
  for (const index of compared) {
    const why = `its block ${height} differs from that of the other nodes`
    if (majority.includes(index)) comeBack(table, index)
    else takeOut(table, index, 'contradicted', why)
  }
  noteAgreement(table, compared)
}

async function headsOf(table: NodeTable, index: number, look: Look) {
  const outcomes = await look(index, [blockCall('latest'), blockCall('finalized')])
  if (outcomes === undefined) return undefined
  const [latest, finalized] = outcomes.map((outcome) => Header.safeParse(outcome).data)
  if (latest === undefined) {
    noteFailure(table, index, 'it has no latest block')
    return undefined
  }
  if (finalized !== undefined && finalized.number > latest.number) {
    const why = `its final block ${finalized.number} is newer than its newest block ${latest.number}`
    noteFailure(table, index, why)
    return undefined
  }
  noteHead(table, index, latest)
  return { index, finalized }
}

async function hashAt(table: NodeTable, index: number, height: bigint, look: Look) {
  const outcomes = await look(index, [blockCall(height)])
  if (outcomes === undefined) return undefined
  const header = Header.safeParse(outcomes[0])
  if (header.success && header.data.number === height) return header.data.hash
  noteFailure(table, index, `it does not report block ${height}, which it calls final`)
  return undefined
}
