/**
 * The facts of a span of time, read once: what lies in final blocks is kept in the home folder, and
 * the next run reads the blocks behind it (domain §10).
 */
import * as z from 'zod/mini'
import { type LogFilter, logRanges } from '../../chain/log-ranges.js'
import { firstBlockFrom } from '../../chain/propose.js'
import type { Contracts } from '../../chain/round.js'
import { type BlockHeader, type Chain, ChainError, type Files, type Hash } from '../../ports.js'
import { jsonOf } from '../../protocol/capped.js'
import { Bytes32 } from '../../protocol/schema.js'
import { joinPath, makeDurableDir, publishText } from '../../storage/durable.js'
import { errorCode } from '../../storage/failures.js'
import { Fact, factFilter, factOf } from './facts.js'

/** Facts of the blocks `from` to `to`, whose last one has this hash. */
const Cursor = z.object({
  format: z.literal(1),
  from: z.int(),
  to: z.int(),
  hash: Bytes32,
  facts: z.array(Fact),
})
type Cursor = z.infer<typeof Cursor>
type Unkept = Pick<Cursor, 'from' | 'to' | 'facts'>

/** Where a node knows no finalized block: no reorganisation of Polygon has gone so deep. */
const depthTakenAsFinal = 256n
/** Beyond this, facts before the span that is asked for are dropped. */
const mostFacts = 20_000
const rangesBetweenSaves = 64
/** A head that moves under our feet so often is the node's fault. */
const mostTails = 3

export interface ScanParts {
  readonly chain: Chain
  readonly contracts: Contracts
  readonly files: Files
  readonly hash: Hash
  readonly home: string
  readonly signal?: AbortSignal | undefined
  readonly onProgress?: (block: bigint, head: bigint) => void
  readonly onNote?: (text: string) => void
}

export interface Scanned {
  readonly facts: readonly Fact[]
  /** First block of the span that was asked for; beyond the head where it holds no block. */
  readonly from: bigint
  readonly head: BlockHeader
}

/**
 * The facts of all blocks since a time in Unix seconds, up to the head. Rejects with `ChainError`,
 * and with the signal's reason. No fault of the disk stops it.
 */
export async function scanFacts(parts: ScanParts, sinceSeconds: bigint): Promise<Scanned> {
  const { chain } = parts
  let head = await headOf(chain)
  const from = await firstBlockFrom(chain, sinceSeconds, head)
  if (from === undefined) return { facts: [], from: head.number + 1n, head }
  const store = cursorStore(parts)
  const final = await finalNumber(chain, head)
  const kept = await finalFacts(parts, store, from, final)
  const next = BigInt((kept?.to ?? Number(from) - 1) + 1)
  for (let tail = 1; ; tail++) {
    const facts: Fact[] = []
    for await (const found of readFacts(parts, { from: next, to: head.number }, head.number))
      facts.push(...found.facts)
    const now = await chain.block(head.number)
    if (now?.hash === head.hash) return { facts: [...(kept?.facts ?? []), ...facts], from, head }
    if (tail === mostTails)
      throw new ChainError('unavailable', 'the newest blocks changed while their logs were read')
    head = await headOf(chain)
  }
}

async function headOf(chain: Chain): Promise<BlockHeader> {
  const head = await chain.block('latest')
  if (head === null) throw new ChainError('unavailable', 'the node knows no latest block')
  return head
}

async function finalNumber(chain: Chain, head: BlockHeader): Promise<bigint> {
  const final = await chain.block('finalized').catch((error: unknown) => {
    if (error instanceof ChainError && error.kind === 'refused') return null
    throw error
  })
  return final?.number ?? head.number - depthTakenAsFinal
}

/** What the cursor covers, and the final blocks behind and before it that it lacks. */
async function finalFacts(
  parts: ScanParts,
  store: ReturnType<typeof cursorStore>,
  from: bigint,
  final: bigint,
): Promise<Cursor | undefined> {
  let kept = await store.load()
  // A gap would be read for nothing, where nobody asks for what lies before it.
  if (kept !== undefined && from > BigInt(kept.to) + 1n) kept = undefined
  if (kept !== undefined && from < BigInt(kept.from)) {
    const before: Fact[] = []
    const span = { from, to: BigInt(kept.from) - 1n }
    for await (const { facts } of readFacts(parts, span, final)) before.push(...facts)
    kept = { ...kept, from: Number(from), facts: [...before, ...kept.facts] }
    await store.save(kept, from)
  }
  const span = { from: kept === undefined ? from : BigInt(kept.to) + 1n, to: final }
  const facts = [...(kept?.facts ?? [])]
  let ranges = 0
  for await (const found of readFacts(parts, span, final)) {
    facts.push(...found.facts)
    if (found.to !== final && ++ranges % rangesBetweenSaves !== 0) continue
    kept = await store.save({ from: kept?.from ?? Number(from), to: Number(found.to), facts }, from)
  }
  return kept
}

async function* readFacts(
  { chain, contracts, signal, onProgress }: ScanParts,
  span: { readonly from: bigint; readonly to: bigint },
  head: bigint,
): AsyncGenerator<{ readonly to: bigint; readonly facts: readonly Fact[] }> {
  const filter: LogFilter = factFilter(contracts)
  for await (const { to, logs } of logRanges(chain, filter, span, signal)) {
    onProgress?.(to, head)
    yield { to, facts: logs.flatMap((log) => factOf(log, contracts) ?? []) }
  }
}

/** The cursor's file. What cannot be read or written costs reading the logs again. */
function cursorStore({ chain, contracts, files, hash, home, onNote }: ScanParts) {
  const folder = joinPath(home, 'questions')
  const { chainId, oracles, requesters } = contracts
  const pins = hash.sha256(JSON.stringify([oracles, requesters])).slice(0, 16)
  const name = `${chainId}-${pins}.json`
  return {
    /** `undefined` where there is none, or one of another chain. */
    async load(): Promise<Cursor | undefined> {
      const path = joinPath(folder, name)
      if (!(await files.exists(path))) return undefined
      const parsed = Cursor.safeParse(jsonOf(new TextDecoder().decode(await files.read(path))))
      if (!parsed.success) {
        onNote?.(`${path} is damaged: the logs are read again`)
        return undefined
      }
      const header = await chain.block(BigInt(parsed.data.to))
      return header?.hash === parsed.data.hash ? parsed.data : undefined
    },
    /** Keeps it with the hash of its last block, and without facts that nobody asks for. */
    async save(cursor: Unkept, from: bigint): Promise<Cursor> {
      const header = await chain.block(BigInt(cursor.to))
      if (header === null) throw new ChainError('unavailable', 'the node lost a block it had')
      const isLong = cursor.facts.length > mostFacts && from > BigInt(cursor.from)
      const kept: Cursor = {
        format: 1,
        ...cursor,
        hash: header.hash,
        ...(isLong && {
          from: Number(from),
          facts: cursor.facts.filter(({ block }) => block >= Number(from)),
        }),
      }
      try {
        await makeDurableDir(files, folder)
        await publishText(files, folder, name, JSON.stringify(kept))
      } catch (error) {
        onNote?.(
          `${folder} cannot be written (${errorCode(error) ?? 'failed'}): the next run reads these logs again`,
        )
      }
      return kept
    },
  }
}
