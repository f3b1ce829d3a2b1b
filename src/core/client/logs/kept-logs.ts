/** Facts of logs, read once: of final blocks they are kept in the home folder (domain §10). */
import * as z from 'zod/mini'
import { type LogFilter, logRanges } from '#chain/log-ranges'
import { latestBlock, unlessRefused } from '#chain/reading'
import { type BlockHeader, type Chain, ChainError, type ChainLog } from '#ports'
import { Bytes32 } from '#protocol/schema'
import { type KeptName, type KeptPlace, readKeptFile, writeKeptFile } from '#storage/kept-file'

const rangesBetweenSaves = 64
const mostTurns = 3

export interface KeptParts extends KeptPlace {
  readonly chain: Chain
  readonly signal?: AbortSignal | undefined
  readonly onProgress?: ((block: bigint, head: bigint) => void) | undefined
}

export interface KeptSource<F> {
  readonly shape: z.ZodMiniType<F>
  readonly filter: LogFilter
  fileOf(key: string): KeptName
  factOf(log: ChainLog): F | undefined
  keyOf(fact: F): string
  /** The first block wanted, before which facts are dropped; `kept`: that of the file. */
  startOf(key: string, kept: bigint | undefined, head: BlockHeader): Promise<bigint>
}

/** `keep` writes the files again, with what was added to their facts. */
export async function readKept<F extends { readonly block: number }>(
  parts: KeptParts,
  { shape, filter, fileOf, factOf, keyOf, startOf }: KeptSource<F>,
  keys: readonly string[],
) {
  const { chain, onProgress, signal } = parts
  const place = { format: z.literal(1), from: z.int(), to: z.int(), hash: Bytes32 }
  const File = z.object({ ...place, facts: z.array(shape) })

  /** Blocks `from` up to `next` are final, those before `kept` in the file. */
  type Reel = Awaited<ReturnType<typeof openReel>>

  async function openReel(key: string, head: BlockHeader) {
    const kept = await readKeptFile(parts, fileOf(key), File, 'the logs are read again')
    const last = kept && (await chain.block(BigInt(kept.to)))
    const file = last?.hash === kept?.hash ? kept : undefined
    const from = await startOf(key, file && BigInt(file.from), head)
    // It serves where the start lies in its blocks or at their end.
    const used = file && file.from <= from && from <= file.to + 1 ? file : undefined
    const facts = used?.facts.filter(({ block }) => block >= from) ?? []
    const next = used ? BigInt(used.to + 1) : from
    return { key, from, next, kept: next, facts }
  }

  async function saveAll(reels: readonly Reel[]) {
    for (const reel of reels) {
      const { key, from, next } = reel
      if (next === from) continue
      const last = await chain.block(next - 1n)
      if (last === null) throw new ChainError('unavailable', 'the node lost a block it had')
      const facts = reel.facts.filter(({ block }) => block < next)
      const blocks = { from: Number(from), to: Number(last.number), hash: last.hash }
      const then = 'the next run reads these logs again'
      await writeKeptFile(parts, fileOf(key), { format: 1, ...blocks, facts }, then)
      reel.kept = next
    }
  }

  async function readOn(reels: readonly Reel[], final: bigint, to: bigint) {
    let from = to + 1n
    for (const { next } of reels) if (next < from) from = next
    const saveNews = () => saveAll(reels.filter(({ next, kept }) => next > kept))
    let ranges = 0
    for await (const range of logRanges(chain, filter, { from, to }, signal)) {
      onProgress?.(range.to, to)
      const found = range.logs.flatMap((log) => factOf(log) ?? [])
      const end = range.to < final ? range.to : final
      for (const reel of reels) {
        const { key, facts, next } = reel
        for (const one of found) if (keyOf(one) === key && one.block >= next) facts.push(one)
        if (end >= next) reel.next = end + 1n
      }
      if (++ranges % rangesBetweenSaves === 0) await saveNews()
    }
    // Final blocks stand, whether or not the newest does.
    await saveNews()
  }

  for (let turn = 1; turn <= mostTurns; turn++) {
    const head = await latestBlock(chain)
    const reels = await Promise.all(keys.map((key) => openReel(key, head)))
    // Where the node knows none, all is read again the next time.
    const final = (await unlessRefused(chain.block('finalized')))?.number ?? -1n
    await readOn(reels, final, head.number)
    if ((await chain.block(head.number))?.hash !== head.hash) continue
    const facts = reels.flatMap((reel) => reel.facts)
    return { head, facts, starts: reels.map(({ from }) => from), keep: () => saveAll(reels) }
  }
  throw new ChainError('unavailable', 'the newest blocks changed while their logs were read')
}
