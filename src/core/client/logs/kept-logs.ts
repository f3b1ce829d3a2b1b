/**
 * Facts that logs tell, read once: what lies in final blocks is kept in the home folder, and the
 * next run reads the blocks behind it (domain §10).
 */
import * as z from 'zod/mini'
import { type LogFilter, logRanges } from '../../chain/log-ranges.js'
import { type BlockHeader, type Chain, ChainError, type ChainLog, type Files } from '../../ports.js'
import { jsonOf } from '../../protocol/capped.js'
import { Bytes32 } from '../../protocol/schema.js'
import { joinPath, makeDurableDir, publishText } from '../../storage/durable.js'
import { errorCode } from '../../storage/failures.js'

/** Where a node knows no finalized block: no reorganisation of Polygon has gone so deep. */
const depthTakenAsFinal = 256n
const rangesBetweenSaves = 64
/** A head that moves under our feet so often is the node's fault. */
const mostTails = 3

export interface KeptParts {
  readonly chain: Chain
  readonly files: Files
  readonly home: string
  readonly signal?: AbortSignal | undefined
  readonly onProgress?: ((block: bigint, head: bigint) => void) | undefined
  readonly onNote?: ((text: string) => void) | undefined
}

/** The first block that is read. `since`: the time in Unix seconds that it was looked up for. */
export interface Start {
  readonly from: bigint
  readonly since?: bigint | undefined
}

interface Fact {
  readonly block: number
}

/** What is read. Facts have a key each, and the facts of a key a file. */
export interface KeptSource<K, F> {
  /** Of the files, in the home folder. */
  readonly folder: string
  readonly shape: z.ZodMiniType<F>
  nameOf(key: K): string
  filterOf(keys: readonly K[]): LogFilter
  factOf(log: ChainLog): F | undefined
  keyOf(fact: F): K
  /** `kept`: where the file begins. A start behind its end leaves it aside. */
  startOf(key: K, kept: Start | undefined, head: BlockHeader): Promise<Start>
  /** Beyond this, facts before the start are dropped. */
  readonly mostFacts?: number
}

/** The facts of one key: `final` ones, which are kept, and those of the blocks behind. */
export interface KeptFacts<F> extends Start {
  readonly final: readonly F[]
  readonly tail: readonly F[]
  /** Keeps other versions of the final facts. */
  replace(final: readonly F[]): Promise<void>
}

export interface KeptLogs<K, F> {
  readonly head: BlockHeader
  readonly of: ReadonlyMap<K, KeptFacts<F>>
}

/** Facts of the blocks `from` to `to`, whose last one has this hash. */
const cursorOf = <F>(shape: z.ZodMiniType<F>) =>
  z.object({
    format: z.literal(1),
    from: z.int(),
    to: z.int(),
    hash: Bytes32,
    since: z.optional(z.int()),
    facts: z.array(shape),
  })

/** The final facts of one key, of the blocks `from` up to `next`. */
interface Reel<K, F> {
  readonly key: K
  from: bigint
  since: bigint | undefined
  next: bigint
  final: F[]
}

interface Reading<K, F> {
  readonly parts: KeptParts
  readonly source: KeptSource<K, F>
  readonly head: BlockHeader
}

/**
 * The facts of all keys from their starts up to the head, several keys in one question where they
 * need the same blocks. Rejects with `ChainError`, and with the signal's reason. No fault of the
 * disk stops it.
 */
export async function readKept<K, F extends Fact>(
  parts: KeptParts,
  source: KeptSource<K, F>,
  keys: readonly K[],
): Promise<KeptLogs<K, F>> {
  const { chain } = parts
  const reading = { parts, source, head: await headOf(chain) }
  const final = await finalNumber(chain, reading.head)
  const reels: Reel<K, F>[] = []
  const starts = new Map<K, Start>()
  for (const key of keys) {
    const kept = await load(reading, key)
    const start = await source.startOf(key, kept, reading.head)
    starts.set(key, start)
    const { from, since } = start
    // A gap would be read for nothing, where nobody asks for what lies before it.
    const isUsed = kept !== undefined && from <= kept.next
    const reel = isUsed ? kept : { key, from, since, next: from, final: [] }
    if (from < reel.from) await readBefore(reading, reel, start)
    reels.push(reel)
  }
  const keep = (reel: Reel<K, F>) => save(reading, reel, starts.get(reel.key)?.from ?? reel.from)
  await readFinal(reading, reels, final, keep)
  const { head, tail } = await readTail(reading, reels)
  const factsOf = (reel: Reel<K, F>): KeptFacts<F> => ({
    ...(starts.get(reel.key) ?? reel),
    final: reel.final,
    tail: tail.filter((fact) => isOf(reading, reel, fact) && BigInt(fact.block) >= reel.next),
    async replace(changed) {
      if (reel.next > reel.from) await keep({ ...reel, final: [...changed] })
    },
  })
  return { head, of: new Map(reels.map((reel) => [reel.key, factsOf(reel)])) }
}

const isOf = <K, F>({ source }: Reading<K, F>, { key }: Reel<K, F>, fact: F) =>
  source.keyOf(fact) === key

async function headOf(chain: Chain): Promise<BlockHeader> {
  const head = await chain.block('latest')
  if (head === null) throw new ChainError('unavailable', 'the node has no latest block')
  return head
}

async function finalNumber(chain: Chain, head: BlockHeader): Promise<bigint> {
  const final = await chain.block('finalized').catch((error: unknown) => {
    if (error instanceof ChainError && error.kind === 'refused') return null
    throw error
  })
  return final?.number ?? head.number - depthTakenAsFinal
}

async function* factRanges<K, F>(
  { parts, source, head }: Reading<K, F>,
  reels: readonly Reel<K, F>[],
  span: { readonly from: bigint; readonly to: bigint },
): AsyncGenerator<{ readonly to: bigint; readonly facts: readonly F[] }> {
  const filter = source.filterOf(reels.map(({ key }) => key))
  for await (const { to, logs } of logRanges(parts.chain, filter, span, parts.signal)) {
    parts.onProgress?.(to, head.number)
    yield { to, facts: logs.flatMap((log) => source.factOf(log) ?? []) }
  }
}

/** The first blocks that are not read yet, ascending, each once. */
const nextsOf = (reels: readonly { readonly next: bigint }[]) =>
  [...new Set(reels.map(({ next }) => next))].sort((a, b) => (a < b ? -1 : 1))

/** The blocks before a file, where its start has come to lie further back. */
async function readBefore<K, F extends Fact>(
  reading: Reading<K, F>,
  reel: Reel<K, F>,
  { from, since }: Start,
): Promise<void> {
  const before: F[] = []
  const span = { from, to: reel.from - 1n }
  for await (const { facts } of factRanges(reading, [reel], span)) before.push(...facts)
  Object.assign(reel, { from, since, final: [...before, ...reel.final] })
  await save(reading, reel, from)
}

/** What the files lack of the final blocks. Who is furthest behind is read until the others meet. */
async function readFinal<K, F>(
  reading: Reading<K, F>,
  reels: readonly Reel<K, F>[],
  final: bigint,
  keep: (reel: Reel<K, F>) => Promise<void>,
): Promise<void> {
  for (;;) {
    const behind = reels.filter(({ next }) => next <= final)
    const [from, meeting = final + 1n] = nextsOf(behind)
    if (from === undefined) return
    const together = behind.filter(({ next }) => next === from)
    const span = { from, to: meeting - 1n }
    let ranges = 0
    for await (const { to, facts } of factRanges(reading, together, span)) {
      for (const reel of together) {
        reel.next = to + 1n
        reel.final.push(...facts.filter((fact) => isOf(reading, reel, fact)))
      }
      if (to === span.to || ++ranges % rangesBetweenSaves === 0)
        for (const reel of together) await keep(reel)
    }
  }
}

/** Blocks that may still go: read again each time, and as of one head. */
async function readTail<K, F>(
  reading: Reading<K, F>,
  reels: readonly Reel<K, F>[],
): Promise<{ readonly head: BlockHeader; readonly tail: readonly F[] }> {
  const { chain } = reading.parts
  let { head } = reading
  for (let turn = 1; ; turn++) {
    const [from = head.number + 1n] = nextsOf(reels)
    const tail: F[] = []
    const span = { from, to: head.number }
    for await (const { facts } of factRanges({ ...reading, head }, reels, span)) tail.push(...facts)
    const now = await chain.block(head.number)
    if (now?.hash === head.hash) return { head, tail }
    if (turn === mostTails)
      throw new ChainError('unavailable', 'the newest blocks changed while their logs were read')
    head = await headOf(chain)
  }
}

const folderOf = <K, F>({ parts, source }: Reading<K, F>) => joinPath(parts.home, source.folder)

/** `undefined` where there is none, or one of another chain; what is damaged is read again. */
async function load<K, F>(reading: Reading<K, F>, key: K): Promise<Reel<K, F> | undefined> {
  const { parts, source } = reading
  const path = joinPath(folderOf(reading), source.nameOf(key))
  if (!(await parts.files.exists(path))) return undefined
  const text = new TextDecoder().decode(await parts.files.read(path))
  const parsed = cursorOf(source.shape).safeParse(jsonOf(text))
  if (!parsed.success) {
    parts.onNote?.(`${path} is damaged: the logs are read again`)
    return undefined
  }
  const { from, to, hash, since, facts } = parsed.data
  const header = await parts.chain.block(BigInt(to))
  if (header?.hash !== hash) return undefined
  return {
    ...{ key, from: BigInt(from), next: BigInt(to) + 1n, final: facts },
    since: since === undefined ? undefined : BigInt(since),
  }
}

/** Keeps it with the hash of its last block, and without facts that nobody asks for. */
async function save<K, F extends Fact>(
  reading: Reading<K, F>,
  reel: Reel<K, F>,
  asked: bigint,
): Promise<void> {
  const { parts, source } = reading
  const to = reel.next - 1n
  const header = await parts.chain.block(to)
  if (header === null) throw new ChainError('unavailable', 'the node lost a block it had')
  if (reel.final.length > (source.mostFacts ?? Infinity) && asked > reel.from) {
    reel.from = asked
    reel.final = reel.final.filter(({ block }) => block >= Number(asked))
  }
  const { from, since, final: facts } = reel
  const cursor: z.infer<ReturnType<typeof cursorOf<F>>> = {
    format: 1,
    ...{ from: Number(from), to: Number(to), hash: header.hash },
    ...(since === undefined ? {} : { since: Number(since) }),
    facts,
  }
  const folder = folderOf(reading)
  try {
    await makeDurableDir(parts.files, folder)
    await publishText(parts.files, folder, source.nameOf(reel.key), JSON.stringify(cursor))
  } catch (error) {
    parts.onNote?.(
      `${folder} cannot be written (${errorCode(error) ?? 'failed'}): the next run reads these logs again`,
    )
  }
}
