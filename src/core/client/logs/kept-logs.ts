/** Facts of logs, read once: those of final blocks are kept in the home folder (domain §10). */
import * as z from 'zod/mini'
import { type LogFilter, logRanges } from '#chain/log-ranges'
import { latestBlock, unlessRefused } from '#chain/reading'
import { type BlockHeader, type Chain, ChainError, type ChainLog } from '#ports'
import { Bytes32 } from '#protocol/schema'
import { type KeptPlace, readKeptFile, writeKeptFile } from './kept-file.js'

const rangesBetweenSaves = 64
const mostTurns = 3

export interface KeptParts extends KeptPlace {
  readonly chain: Chain
  readonly signal?: AbortSignal | undefined
  readonly onProgress?: ((block: bigint, head: bigint) => void) | undefined
}

export interface KeptSource<F> {
  readonly folder: string
  readonly shape: z.ZodMiniType<F>
  readonly filter: LogFilter
  nameOf(key: string): string
  factOf(log: ChainLog): F | undefined
  keyOf(fact: F): string
  /** The first block that is wanted; `kept`: that of the file. Facts before it are dropped. */
  startOf(key: string, kept: bigint | undefined, head: BlockHeader): Promise<bigint>
}

/** Blocks `from` up to `next` are final, those before `kept` in the file. */
interface Reel<F> {
  readonly key: string
  readonly from: bigint
  next: bigint
  kept: bigint
  readonly final: F[]
  readonly tail: F[]
}

/** A reel for each key; `keep` writes them again, with what was added to their facts. */
export async function readKept<F extends { readonly block: number }>(
  parts: KeptParts,
  source: KeptSource<F>,
  keys: readonly string[],
) {
  const { chain, onProgress, signal } = parts
  const fileOf = (key: string) => [source.folder, source.nameOf(key)] as const
  const place = { format: z.literal(1), from: z.int(), to: z.int(), hash: Bytes32 }
  const File = z.object({ ...place, facts: z.array(source.shape) })

  async function openReel(key: string, head: BlockHeader) {
    const kept = await readKeptFile(parts, fileOf(key), File, 'the logs are read again')
    const last = kept && (await chain.block(BigInt(kept.to)))
    const file = last?.hash === kept?.hash ? kept : undefined
    const from = await source.startOf(key, file && BigInt(file.from), head)
    // A file serves where the start lies in its blocks or at their end.
    const isUsed = file !== undefined && file.from <= from && from <= file.to + 1
    const final = isUsed ? file.facts.filter(({ block }) => block >= from) : []
    const next = isUsed ? BigInt(file.to + 1) : from
    return { key, from, next, kept: next, final, tail: [] }
  }

  async function saveAll(reels: readonly Reel<F>[]) {
    for (const reel of reels.filter((one) => one.next > one.from)) {
      const { key, from, next, final: facts } = reel
      const last = await chain.block(next - 1n)
      if (last === null) throw new ChainError('unavailable', 'the node lost a block it had')
      const { number: to, hash } = last
      const file = { format: 1, from: Number(from), to: Number(to), hash, facts }
      await writeKeptFile(parts, fileOf(key), file, 'the next run reads these logs again')
      reel.kept = next
    }
  }

  async function readOn(reels: readonly Reel<F>[], final: bigint, to: bigint) {
    let from = to + 1n
    for (const { next } of reels) if (next < from) from = next
    const saveRead = () => saveAll(reels.filter((one) => one.next > one.kept))
    let ranges = 0
    for await (const range of logRanges(chain, source.filter, { from, to }, signal)) {
      onProgress?.(range.to, to)
      const facts = range.logs.flatMap((log) => source.factOf(log) ?? [])
      const end = range.to < final ? range.to : final
      for (const reel of reels) {
        for (const fact of facts)
          if (source.keyOf(fact) === reel.key && fact.block >= reel.next)
            (fact.block <= final ? reel.final : reel.tail).push(fact)
        if (end >= reel.next) reel.next = end + 1n
      }
      if (++ranges % rangesBetweenSaves === 0) await saveRead()
    }
    // Final blocks stand, whether or not the newest does.
    await saveRead()
  }

  for (let turn = 1; turn <= mostTurns; turn++) {
    const head = await latestBlock(chain)
    const reels = await Promise.all(keys.map((key) => openReel(key, head)))
    // On a node that knows no finalized block all is read again the next time.
    const final = (await unlessRefused(chain.block('finalized')))?.number ?? -1n
    await readOn(reels, final, head.number)
    if ((await chain.block(head.number))?.hash !== head.hash) continue
    return { head, reels, keep: () => saveAll(reels) }
  }
  throw new ChainError('unavailable', 'the newest blocks changed while their logs were read')
}
