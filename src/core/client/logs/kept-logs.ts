/** Facts of logs, read once: those of final blocks are kept in the home folder (domain §10). */
import * as z from 'zod/mini'
import { type LogFilter, logRanges } from '#chain/log-ranges'
import { latestBlock, unlessRefused } from '#chain/reading'
import { type BlockHeader, type Chain, ChainError, type ChainLog, type Files } from '#ports'
import { jsonOf } from '#protocol/capped'
import { Bytes32 } from '#protocol/schema'
import { joinPath, makeDurableDir, publishText } from '#storage/durable'
import { errorCode } from '#storage/failures'

const rangesBetweenSaves = 64
const mostTurns = 3

export interface KeptParts {
  readonly chain: Chain
  readonly files: Files
  readonly home: string
  readonly signal?: AbortSignal | undefined
  readonly onProgress?: ((block: bigint, head: bigint) => void) | undefined
  readonly onNote?: ((text: string) => void) | undefined
}

/** The facts of a key are a file. */
export interface KeptSource<K, F> {
  readonly folder: string
  readonly shape: z.ZodMiniType<F>
  nameOf(key: K): string
  filterOf(keys: readonly K[]): LogFilter
  factOf(log: ChainLog): F | undefined
  keyOf(fact: F): K
  /** The first block that is wanted; `kept`: that of the file. Facts before it are dropped. */
  startOf(key: K, kept: bigint | undefined, head: BlockHeader): Promise<bigint>
}

const cursorOf = <F>(shape: z.ZodMiniType<F>) =>
  z.object({
    format: z.literal(1),
    from: z.int(),
    to: z.int(),
    hash: Bytes32,
    facts: z.array(shape),
  })

/** What is known of a key; the blocks `from` up to `next` are final, those before `kept` in the file. */
interface Reel<K, F> {
  readonly key: K
  readonly from: bigint
  next: bigint
  kept: bigint
  readonly final: F[]
  readonly tail: F[]
}

export async function readKept<K, F extends { readonly block: number }>(
  parts: KeptParts,
  source: KeptSource<K, F>,
  keys: readonly K[],
) {
  const { chain } = parts
  for (let turn = 1; turn <= mostTurns; turn++) {
    const head = await latestBlock(chain)
    const reels = await Promise.all(keys.map((key) => openReel(parts, source, key, head)))
    // On a node that knows no finalized block all is read again the next time.
    const final = (await unlessRefused(chain.block('finalized')))?.number ?? -1n
    await readOn(parts, source, reels, final, head.number)
    if ((await chain.block(head.number))?.hash !== head.hash) continue
    const of = reels.map(({ key, ...reel }) => {
      const keep = async () => {
        if (reel.next > reel.from) await save(parts, source, { key, ...reel })
      }
      return [key, { ...reel, keep }] as const
    })
    return { head, of: new Map(of) }
  }
  throw new ChainError('unavailable', 'the newest blocks changed while their logs were read')
}

async function readOn<K, F extends { readonly block: number }>(
  parts: KeptParts,
  source: KeptSource<K, F>,
  reels: readonly Reel<K, F>[],
  final: bigint,
  to: bigint,
) {
  let from = to + 1n
  for (const { next } of reels) if (next < from) from = next
  const saveAll = async () => {
    for (const reel of reels) if (reel.next > reel.kept) await save(parts, source, reel)
  }
  const filter = source.filterOf(reels.map(({ key }) => key))
  let ranges = 0
  for await (const range of logRanges(parts.chain, filter, { from, to }, parts.signal)) {
    parts.onProgress?.(range.to, to)
    const facts = range.logs.flatMap((log) => source.factOf(log) ?? [])
    const end = range.to < final ? range.to : final
    for (const reel of reels) {
      for (const fact of facts)
        if (source.keyOf(fact) === reel.key && BigInt(fact.block) >= reel.next)
          (BigInt(fact.block) <= final ? reel.final : reel.tail).push(fact)
      if (end >= reel.next) reel.next = end + 1n
    }
    if (++ranges % rangesBetweenSaves === 0) await saveAll()
  }
  await saveAll()
}

async function openReel<K, F extends { readonly block: number }>(
  parts: KeptParts,
  source: KeptSource<K, F>,
  key: K,
  head: BlockHeader,
): Promise<Reel<K, F>> {
  const file = await load(parts, source, key)
  const from = await source.startOf(key, file?.from, head)
  // A file serves where the start lies in its blocks or at their end.
  const isUsed = file !== undefined && file.from <= from && from <= file.next
  const final = isUsed ? file.final.filter(({ block }) => block >= from) : []
  const next = isUsed ? file.next : from
  return { key, from, next, kept: next, final, tail: [] }
}

async function load<K, F>(parts: KeptParts, source: KeptSource<K, F>, key: K) {
  const path = joinPath(joinPath(parts.home, source.folder), source.nameOf(key))
  if (!(await parts.files.exists(path))) return undefined
  const text = new TextDecoder().decode(await parts.files.read(path))
  const { data } = cursorOf(source.shape).safeParse(jsonOf(text))
  if (data === undefined) {
    parts.onNote?.(`${path} is damaged: the logs are read again`)
    return undefined
  }
  const { from, to, facts: final } = data
  if ((await parts.chain.block(BigInt(to)))?.hash !== data.hash) return undefined
  return { from: BigInt(from), next: BigInt(to) + 1n, final }
}

/** With the hash of its last block. */
async function save<K, F extends { readonly block: number }>(
  { chain, files, home, onNote }: KeptParts,
  source: KeptSource<K, F>,
  reel: Reel<K, F>,
) {
  const header = await chain.block(reel.next - 1n)
  if (header === null) throw new ChainError('unavailable', 'the node lost a block it had')
  const { from, next, final: facts } = reel
  reel.kept = next
  const to = Number(next - 1n)
  const cursor = { format: 1, from: Number(from), to, hash: header.hash, facts }
  const folder = joinPath(home, source.folder)
  try {
    await makeDurableDir(files, folder)
    await publishText(files, folder, source.nameOf(reel.key), JSON.stringify(cursor))
  } catch (error) {
    onNote?.(
      `${folder} cannot be written (${errorCode(error) ?? 'failed'}): the next run reads these logs again`,
    )
  }
}
