/**
 * Which logs of nodes are believed, and when a block's own bloom says that there are none (R14,
 * R16).
 */
import { LRUCache } from 'lru-cache'
import { ChainError, type ChainLog, type Hex } from '#ports'
import { keccak } from '#protocol/keccak'
import { fromHex } from '#protocol/witness'
import { lowercase } from '#protocol/words'
import { takeOut } from './node-table.js'
import { ask, askNode, blockRead, othersThan, type Read, type Router } from './router.js'
import { isMissingState } from './rpc-errors.js'
import { blockTag, type Header, headerOfBlock, logsWithin, type WireLogFilter } from './shapes.js'

const rememberedBlooms = 64

interface BlockBloom {
  readonly hash: Hex
  readonly bloom: Hex | undefined
  /** Some nodes give zeros for every block. */
  readonly isMeant: boolean
}

export interface BlockBlooms {
  readonly byNumber: LRUCache<bigint, BlockBloom>
  areFalse: boolean
}

interface Reader {
  readonly router: Router
  readonly blooms: BlockBlooms
}

export const newBlockBlooms = (): BlockBlooms => ({
  byNumber: new LRUCache({ max: rememberedBlooms }),
  areFalse: false,
})

export function noteBloom({ byNumber }: BlockBlooms, header: Header) {
  const text = lowercase(header.logsBloom ?? '')
  const bloom = /^0x[0-9a-f]{512}$/.test(text) ? text : undefined
  const isMeant = header.gasUsed === 0n || (bloom !== undefined && !/^0x0*$/.test(bloom))
  byNumber.set(header.number, { hash: header.hash, bloom, isMeant })
}

export async function logsOf(reader: Reader, filter: WireLogFilter) {
  const { toBlock, blockHash } = filter
  const { blooms } = reader
  if (blockHash === undefined) return askedLogs(reader, filter)
  const known = blooms.byNumber.peek(toBlock)
  if (known?.hash === blockHash && known.isMeant && isExcluded(reader, filter)) return []
  try {
    return await askedLogs(reader, filter)
  } catch (error) {
    if (!(error instanceof ChainError) || error.kind !== 'refused') throw error
    // Not every node takes a hash. The header is read after the logs, so that those of one
    // branch are not taken for another's.
    const { blockHash: _, ...range } = filter
    const found = await askedLogs(reader, range)
    const { result } = await ask(reader.router, blockRead(toBlock, headerOfBlock(toBlock)))
    if (result?.hash === blockHash && found.every((log) => log.blockHash === blockHash))
      return found
    const why = `the node changed its block ${toBlock} while its logs were read`
    throw new ChainError('unavailable', why)
  }
}

async function askedLogs(reader: Reader, filter: WireLogFilter) {
  const { fromBlock, toBlock, addresses, topics, blockHash } = filter
  const { router, blooms } = reader
  const { table } = router
  const blocks =
    blockHash === undefined
      ? { fromBlock: blockTag(fromBlock), toBlock: blockTag(toBlock) }
      : { blockHash }
  const read: Read<ChainLog[]> = {
    method: 'eth_getLogs',
    params: [{ ...blocks, address: addresses, ...(topics && { topics }) }],
    shape: logsWithin(filter),
  }
  const { result, index } = await ask(router, read)
  blooms.areFalse ||= result.some(
    (log) =>
      blooms.byNumber.peek(log.blockNumber)?.hash === log.blockHash && !mayExist(reader, log),
  )
  if (result.length > 0 || isExcluded(reader, filter)) return result
  for (const other of othersThan(router, index)) {
    const found = await secondLook(router, other, toBlock, read)
    if (found === undefined) continue
    if (found.length === 0) return []
    const range = `blocks ${fromBlock} to ${toBlock}`
    if (!found.every((log) => mayExist(reader, log))) {
      const names = `RPC nodes ${index + 1} and ${other + 1} of ${table.nodes.length}`
      throw new ChainError('unavailable', `${names} disagree about the logs of ${range}`)
    }
    takeOut(table, index, 'contradicted', `it left out logs of ${range}`)
    table.preferred = other
    return found
  }
  return []
}

function isExcluded({ blooms }: Reader, { fromBlock, toBlock, ...filter }: WireLogFilter) {
  if (blooms.areFalse || toBlock - fromBlock >= BigInt(rememberedBlooms)) return false
  for (let number = fromBlock; number <= toBlock; number += 1n) {
    const bloom = blooms.byNumber.peek(number)?.bloom
    if (bloom === undefined || mayMatch(bloom, filter)) return false
  }
  return true
}

function mayExist({ blooms }: Reader, { blockNumber, blockHash, address, topics }: ChainLog) {
  const known = blooms.byNumber.peek(blockNumber)
  if (known === undefined) return true
  const { hash, bloom } = known
  return (
    hash === blockHash &&
    (bloom === undefined || [address, ...topics].every((part) => mayHold(bloom, part)))
  )
}

async function secondLook(router: Router, index: number, toBlock: bigint, read: Read<ChainLog[]>) {
  try {
    const [header, logs] = await Promise.all([
      askNode(router, index, blockRead(toBlock, headerOfBlock(toBlock))),
      askNode(router, index, read),
    ])
    return header === null ? undefined : logs
  } catch (error) {
    if (error instanceof ChainError && (isMissingState(error) || error.kind !== 'unavailable'))
      return undefined
    throw error
  }
}

/** Yellow paper §4.3.1. */
const bloomBytes = 256

export function mayHold(bloom: Hex, addressOrTopic: Hex) {
  const bits = bloom.length === 2 + 2 * bloomBytes ? fromHex(bloom) : undefined
  if (bits === undefined) return true
  const digest = keccak(fromHex(addressOrTopic))
  return [0, 2, 4].every((at) => {
    const bit = (((digest[at] ?? 0) << 8) | (digest[at + 1] ?? 0)) & 2047
    return ((bits[bloomBytes - 1 - (bit >> 3)] ?? 0) & (1 << (bit & 7))) !== 0
  })
}

type Filter = Pick<WireLogFilter, 'addresses' | 'topics'>

export function mayMatch(bloom: Hex, { addresses, topics = [] }: Filter) {
  return [addresses, ...topics].every((wanted) => {
    const any = typeof wanted === 'string' ? [wanted] : (wanted ?? [])
    return any.length === 0 || any.some((one) => mayHold(bloom, one))
  })
}
