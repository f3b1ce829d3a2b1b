/** Facts of logs, read once: those of final blocks are kept in the home folder (domain §10). */
import * as z from 'zod/mini'
import { type LogFilter, logRanges } from '#chain/log-ranges'
import { latestBlock } from '#chain/reading'
import { type BlockHeader, type Chain, ChainError, type ChainLog, type Files } from '#ports'
import { jsonOf } from '#protocol/capped'
import { Bytes32 } from '#protocol/schema'
import { joinPath, makeDurableDir, publishText } from '#storage/durable'
import { errorCode } from '#storage/failures'

/** Where a node knows no finalized block: no reorganisation of Polygon has gone so deep. */
const depthTakenAsFinal = 256n
const rangesBetweenSaves = 64
/** A head that moves under our feet so often is the node's fault. */
const mostTurns = 3

export interface KeptParts {
  readonly chain: Chain
  readonly files: Files
  readonly home: string
  readonly signal?: AbortSignal | undefined
  readonly onProgress?: ((block: bigint, head: bigint) => void) | undefined
  readonly onNote?: ((text: string) => void) | undefined
}

export interface Start {
  readonly from: bigint
  readonly since?: bigint | undefined
}

interface Fact {
  readonly block: number
}

/** The facts of a key are a file. */
export interface KeptSource<K, F> {
  readonly folder: string
  readonly shape: z.ZodMiniType<F>
  nameOf(key: K): string
  filterOf(keys: readonly K[]): LogFilter
  factOf(log: ChainLog): F | undefined
  keyOf(fact: F): K
  startOf(key: K, kept: Start | undefined, head: BlockHeader): Promise<Start>
  /** Beyond it, facts before the start are dropped. */
  readonly mostFacts?: number
}

const cursorOf = <F>(shape: z.ZodMiniType<F>) =>
  z.object({
    format: z.literal(1),
    from: z.int(),
    to: z.int(),
    hash: Bytes32,
    since: z.optional(z.int()),
    facts: z.array(shape),
  })

interface Reel<K, F> {
  readonly key: K
  readonly start: Start
  from: bigint
  readonly since: bigint | undefined
  next: bigint
  final: F[]
  readonly tail: F[]
}

export async function readKept<K, F extends Fact>(
  parts: KeptParts,
  source: KeptSource<K, F>,
  keys: readonly K[],
) {
  const { chain } = parts
  for (let turn = 1; turn <= mostTurns; turn++) {
    const head = await latestBlock(chain)
    const reels: Reel<K, F>[] = []
    for (const key of keys) {
      const kept = await load(parts, source, key)
      const start = await source.startOf(key, kept, head)
      const { from, since } = start
      // A file serves where the start lies in its blocks or at their end.
      const isUsed = kept !== undefined && kept.from <= from && from <= kept.next
      reels.push({
        ...{ key, start, tail: [] },
        ...(isUsed ? kept : { from, since, next: from, final: [] }),
      })
    }
    await readOn(parts, source, reels, await finalNumber(chain, head), head.number)
    if ((await chain.block(head.number))?.hash !== head.hash) continue
    const factsOf = (reel: Reel<K, F>) => ({
      ...reel.start,
      ...{ final: reel.final, tail: reel.tail },
      async replace(changed: readonly F[]) {
        if (reel.next > reel.from) await save(parts, source, { ...reel, final: [...changed] })
      },
    })
    return { head, of: new Map(reels.map((reel) => [reel.key, factsOf(reel)])) }
  }
  throw new ChainError('unavailable', 'the newest blocks changed while their logs were read')
}

async function finalNumber(chain: Chain, head: BlockHeader) {
  const final = await chain.block('finalized').catch((error: unknown) => {
    if (error instanceof ChainError && error.kind === 'refused') return null
    throw error
  })
  return final?.number ?? head.number - depthTakenAsFinal
}

async function readOn<K, F extends Fact>(
  parts: KeptParts,
  source: KeptSource<K, F>,
  reels: readonly Reel<K, F>[],
  final: bigint,
  head: bigint,
) {
  const begun = new Map(reels.map((reel) => [reel, reel.next]))
  const from = [...begun.values()].reduce((least, one) => (one < least ? one : least), head + 1n)
  const saveAll = async () => {
    for (const [reel, next] of begun) if (reel.next > next) await save(parts, source, reel)
  }
  const filter = source.filterOf(reels.map(({ key }) => key))
  let ranges = 0
  for await (const { to, logs } of logRanges(
    parts.chain,
    filter,
    { from, to: head },
    parts.signal,
  )) {
    parts.onProgress?.(to, head)
    const facts = logs.flatMap((log) => source.factOf(log) ?? [])
    for (const reel of reels) {
      for (const fact of facts)
        if (source.keyOf(fact) === reel.key && BigInt(fact.block) >= reel.next)
          (BigInt(fact.block) <= final ? reel.final : reel.tail).push(fact)
      const until = to < final ? to : final
      if (until >= reel.next) reel.next = until + 1n
    }
    if (++ranges % rangesBetweenSaves === 0) await saveAll()
  }
  await saveAll()
}

async function load<K, F>(parts: KeptParts, source: KeptSource<K, F>, key: K) {
  const path = joinPath(joinPath(parts.home, source.folder), source.nameOf(key))
  if (!(await parts.files.exists(path))) return undefined
  const text = new TextDecoder().decode(await parts.files.read(path))
  const parsed = cursorOf(source.shape).safeParse(jsonOf(text))
  if (!parsed.success) {
    parts.onNote?.(`${path} is damaged: the logs are read again`)
    return undefined
  }
  const { from, to, hash, since, facts: final } = parsed.data
  const header = await parts.chain.block(BigInt(to))
  if (header?.hash !== hash) return undefined
  return {
    ...{ from: BigInt(from), next: BigInt(to) + 1n, final },
    since: since === undefined ? undefined : BigInt(since),
  }
}

/** With the hash of its last block. */
async function save<K, F extends Fact>(
  { chain, files, home, onNote }: KeptParts,
  source: KeptSource<K, F>,
  reel: Reel<K, F>,
) {
  const to = reel.next - 1n
  const header = await chain.block(to)
  if (header === null) throw new ChainError('unavailable', 'the node lost a block it had')
  const asked = reel.start.from
  if (reel.final.length > (source.mostFacts ?? Infinity) && asked > reel.from) {
    reel.from = asked
    reel.final = reel.final.filter(({ block }) => block >= Number(asked))
  }
  const { from, since, final: facts } = reel
  const cursor = {
    format: 1,
    ...{ from: Number(from), to: Number(to), hash: header.hash },
    ...(since === undefined ? {} : { since: Number(since) }),
    facts,
  }
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
