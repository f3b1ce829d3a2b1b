/**
 * The gateway's view of the chain, kept up to date by looking at the head and following logs.
 * Admission reads it from memory (contract §2); pipeline and executor take heads from it. What is
 * unknown or old is a fault, and faults close everything that depends on it (R16).
 */
import { createRoundReader, type RegistryEntry, type RoundReader } from '../../chain/questions.js'
import type { Contracts } from '../../chain/round.js'
import {
  type Address,
  type BlockHeader,
  type Chain,
  ChainError,
  type ChainLog,
  type Clock,
  type Hex,
} from '../../ports.js'
import type { Ledger } from '../ledger/ledger.js'
import type { ChainView, Question } from './chain-view.js'
import { createFirstReads } from './first-reads.js'
import { createTrail } from './head-history.js'
import { followedAddresses, followedTopics, type LogMeaning, meaningOf } from './logs.js'
import { createSpentNonces } from './nonces.js'
import { createQuestionReader } from './question-reads.js'
import { createQuestionBook, rememberedQuestions } from './questions.js'
import { createWallets, orUnavailable } from './wallets.js'

/** Looks may fail for so long before that is told: one answer that does not come is no news. */
const failingMs = 10_000
/** A question seen for the first time is read within this (contract §2). */
const firstReadMs = 3_000
/**
 * Beyond this many missed blocks, every question is due: nodes bound the range of logs they look
 * through.
 */
const followedBlocks = 128n
/**
 * Questions read at one look; what else is due waits for the next one, or is read when somebody
 * asks for it.
 */
const readsPerLook = 64
/** The next head waits for the reads of this one no longer than this. */
const readsMs = 3_000
const forgetEveryMs = 60_000
const leastIntervalMs = 250
/**
 * What fails for good, slots and nonces too, is judged in finalized state (R14, R15): there is no
 * counting of blocks instead.
 */
const noFinality =
  'the node tells no finalized block, which the gateway needs whatever chain.confirmations says: use a node that answers the block tag "finalized"'

export interface ViewConfig {
  readonly maxHeadAgeSeconds: number
  /** The question registry: questions.json, and trusted slugs as entries of their own. */
  readonly entries: readonly RegistryEntry[]
}

export interface ViewPorts {
  readonly clock: Clock
  readonly chain: Chain
}

export interface Heads {
  readonly latest: BlockHeader
  /** The newest block that cannot be undone (the `finalized` tag). */
  readonly finalized: BlockHeader
}

/** The view, alive. */
export interface LiveView extends ChainView {
  /**
   * Looks once and then goes on looking until `stop`. Resolves after the first look, whatever came
   * of it.
   */
  start(): Promise<void>
  stop(): Promise<void>
  /** One look at the chain. What goes wrong shows in `faults`. */
  poll(): Promise<void>
  /** The newest heads whose logs have been followed; `undefined` before the first look. */
  heads(): Heads | undefined
  /** Questions in memory, and those of them that may have changed and wait to be read. */
  counts(): { readonly known: number; readonly due: number }
  /**
   * Why looks have failed for a while, though the state is not too old yet; `undefined` where they
   * have not.
   */
  failing(): string | undefined
  /** Somebody read another state of a question than the view shows: it is read again. */
  doubt(questionId: Hex): void
  /** Called after each look that found a new latest or finalized block. */
  onHead(listener: () => void): () => void
  readonly rounds: RoundReader
  entry(questionId: Hex): RegistryEntry | undefined
  /** An operator's change of the registry holds from now on. */
  setEntry(entry: RegistryEntry): void
  removeEntry(questionId: Hex): void
  /** Adds what a read of Permit2's bitmap showed at a block, by its hash. */
  noteNonces(owner: Address, word: bigint, bitmap: bigint, at: Hex): void
}

type ViewLedger = Pick<Ledger, 'info' | 'allowlist' | 'finalized' | 'active'>

/** Source: contract §2, robustness R14, R16, R17. */
export function createChainView(
  ports: ViewPorts,
  contracts: Contracts,
  ledger: ViewLedger,
  config: ViewConfig,
): LiveView {
  const { clock, chain } = ports
  const rounds = createRoundReader(chain, contracts)
  const wallets = createWallets(chain, clock)
  const spent = createSpentNonces()
  const book = createQuestionBook(contracts, clock, config.entries)
  const trail = createTrail()
  const reader = createQuestionReader({ clock, rounds, book, trail, head: () => heads?.latest })
  /** Registry questions that nobody has read yet. */
  const ahead = new Set<Hex>([...book.registered()].slice(0, rememberedQuestions))
  const listeners = new Set<() => void>()
  let heads: Heads | undefined
  let newestFinalized: bigint | undefined
  let advancedAtMs = clock.monotonicMs()
  let wrongChain: string | undefined
  let identified = false
  let lastFailure: string | undefined
  let lookedAtMs = clock.monotonicMs()
  let forgotAtMs = clock.monotonicMs()
  let running: AbortController | undefined
  let loop: Promise<void> = Promise.resolve()

  const mark = () => {
    const stored = ledger.finalized?.number
    if (stored === undefined || newestFinalized === undefined) return stored ?? newestFinalized
    return stored > newestFinalized ? stored : newestFinalized
  }

  const faults = (): readonly string[] => {
    if (wrongChain !== undefined) return [wrongChain]
    const because = lastFailure === undefined ? '' : ` (${lastFailure})`
    if (heads === undefined) return [`the chain has not been read yet${because}`]
    const found: string[] = []
    const ageSeconds = Math.floor(clock.nowMs() / 1000) - Number(heads.latest.timestamp)
    const idleSeconds = Math.floor((clock.monotonicMs() - advancedAtMs) / 1000)
    const oldest = Math.max(ageSeconds, idleSeconds)
    if (oldest > config.maxHeadAgeSeconds) {
      found.push(
        `the newest block is ${oldest} s old, more than the ${config.maxHeadAgeSeconds} s allowed${because}`,
      )
    }
    const floor = mark()
    if (floor !== undefined && heads.latest.number < floor) {
      found.push(`the node's head ${heads.latest.number} is below block ${floor}, which was final`)
    }
    return found
  }

  const onHead = (listener: () => void) => {
    listeners.add(listener)
    return () => listeners.delete(listener)
  }

  const readOne = async (questionId: Hex) => {
    const [fault] = faults()
    if (fault !== undefined) throw new ChainError('unavailable', fault)
    return reader.read(questionId)
  }

  const firstReads = createFirstReads(
    { clock, chain, read: readOne, headNumber: () => heads?.latest.number ?? 0n, onHead },
    firstReadMs,
  )

  const question = async (identifier: string): Promise<Question | undefined> => {
    const questionId = book.idOf(identifier)
    if (questionId === undefined) return undefined
    const known = book.ask(questionId)
    if (known) return known
    // A miss that a first read notes is not final before that read ends.
    if (book.isMiss(questionId) && !firstReads.isReading(questionId)) return undefined
    return orUnavailable(firstReads.read(questionId), `about question ${questionId}`)
  }

  const noteMeaning = (meaning: LogMeaning) => {
    for (const { owner, word, mask } of meaning.invalidated) spent.add(owner, word, mask)
  }

  /** Logs of a range; a node that refuses a range because it holds too much is asked for halves. */
  const logsOf = async (fromBlock: bigint, toBlock: bigint): Promise<readonly ChainLog[]> => {
    try {
      return await chain.logs({
        fromBlock,
        toBlock,
        addresses: followedAddresses(contracts),
        topics: [followedTopics],
      })
    } catch (error) {
      if (!(error instanceof ChainError) || error.kind !== 'refused' || fromBlock === toBlock)
        throw error
      const middle = (fromBlock + toBlock) / 2n
      return [...(await logsOf(fromBlock, middle)), ...(await logsOf(middle + 1n, toBlock))]
    }
  }

  const identify = async () => {
    if (identified) return
    const { info } = ledger
    if (info) {
      const genesis = await chain.block(0n)
      // A node without old headers cannot tell; the chain id and the finalized mark still do.
      if (genesis !== null && genesis.hash !== info.genesisHash) {
        wrongChain = `the node's chain begins with block ${genesis.hash}, the store's with ${info.genesisHash}`
        return
      }
    }
    identified = true
  }

  /**
   * `null` also where the node says, in whatever words, that it knows no such tag or has no such
   * block yet.
   */
  const finalizedBlock = async (): Promise<BlockHeader | null> => {
    try {
      return await chain.block('finalized')
    } catch (error) {
      if (
        error instanceof ChainError &&
        (error.kind === 'refused' || /block not found|unknown block/i.test(error.message))
      )
        return null
      throw error
    }
  }

  /** Whether there is a new latest or finalized block. */
  const look = async (): Promise<boolean> => {
    const [chainId, latest, finalized] = await Promise.all([
      chain.chainId(),
      chain.block('latest'),
      finalizedBlock(),
    ])
    wrongChain =
      chainId === contracts.chainId
        ? undefined
        : `the node is on chain ${chainId}, not on ${contracts.chainId}`
    if (wrongChain !== undefined) return false
    await identify()
    if (wrongChain !== undefined) return false
    if (latest === null) throw new ChainError('unavailable', 'the node knows no latest block')
    if (finalized === null) throw new ChainError('unavailable', noFinality)
    const before = heads
    // Another node that is a few blocks behind shows an old head; going back to it would undo what
    // is known.
    if (
      before !== undefined &&
      latest.number < before.latest.number &&
      trail.hashAt(latest.number) === latest.hash
    )
      return false
    const isNew = before?.latest.hash !== latest.hash
    if (isNew) {
      const news = before && (await newsSince(before.latest, latest))
      // From here to the heads nothing waits: whoever reads a question meanwhile sees all of this
      // or nothing.
      apply(news, latest)
      advancedAtMs = clock.monotonicMs()
    }
    const steady =
      before !== undefined && finalized.number < before.finalized.number
        ? before.finalized
        : finalized
    heads = { latest, finalized: steady }
    newestFinalized = steady.number
    return isNew || before?.finalized.hash !== finalized.hash
  }

  /**
   * What a new head brings: logs since a block that stays, or `lost` where what logs said before is
   * not certain and cannot be made so.
   */
  type News = { readonly since: bigint; readonly meaning: LogMeaning } | 'lost'

  const newsSince = async (from: BlockHeader, to: BlockHeader): Promise<News> => {
    const distance = to.number - from.number
    if (distance > followedBlocks) return 'lost'
    if (distance === 1n) {
      if (to.parentHash === from.hash) return followed(from.number, to)
    } else if (distance > 1n) {
      const [stays, news] = await Promise.all([chain.block(from.number), followed(from.number, to)])
      if (stays?.hash === from.hash) return news
    }
    // A reorganisation (R14): only what the undone blocks had changed and what the new ones change
    // is uncertain.
    const fork = await trail.fork(async (number) => (await chain.block(number))?.hash)
    if (fork === undefined || to.number - fork.number > followedBlocks) return 'lost'
    if (fork.number >= to.number || (distance === 1n && fork.number === from.number)) {
      throw new ChainError(
        'unavailable',
        `the node's head ${to.number} is not on the chain that it shows`,
      )
    }
    return followed(fork.number, to)
  }

  const followed = async (since: bigint, to: BlockHeader): Promise<News> => {
    const logs = await logsOf(since + 1n, to.number)
    // Asked after the logs: those of one branch under the head of another would leave a gap that
    // nobody sees.
    if ((await chain.block(to.number))?.hash !== to.hash)
      throw new ChainError(
        'unavailable',
        `the node changed its block ${to.number} while its logs were read`,
      )
    return { since, meaning: meaningOf(logs, contracts) }
  }

  const apply = (news: News | undefined, latest: BlockHeader) => {
    if (news === undefined || news === 'lost') {
      trail.clear()
      spent.clear()
      book.forgetMisses()
      book.markAllDue()
      trail.add(latest, { named: new Set(), managed: new Set() })
      return
    }
    if (heads !== undefined && news.since !== heads.latest.number) {
      spent.clear()
      book.forgetMisses()
      book.markDue(book.affected(trail.undo(news.since)))
    }
    noteMeaning(news.meaning)
    const changed = book.affected(news.meaning)
    book.markDue(changed)
    // A registered question that has just come into being is read ahead too.
    for (const questionId of changed) if (!book.holds(questionId)) ahead.add(questionId)
    trail.add(latest, news.meaning)
  }

  let left = readsPerLook
  /** Reads a part of what is due. Throws `ChainError`: what could not be read stays due. */
  const catchUp = async () => {
    left = readsPerLook
    if (faults().length > 0) return
    const forgets = clock.monotonicMs() - forgotAtMs >= forgetEveryMs
    if (book.dueCount === 0 && !forgets) return
    const needed = new Set(ledger.active().map(({ round }) => round.questionId))
    if (forgets) {
      forgotAtMs = clock.monotonicMs()
      book.forgetEnded((questionId) => needed.has(questionId))
    }
    const next = book.dueFirst(
      readsPerLook,
      (questionId) => needed.has(questionId),
      reader.isReading,
    )
    left -= next.length
    const failure = await reader.readSome(next, readsMs)
    if (failure) throw failure
  }

  /**
   * Registry questions are read ahead, so that their first use waits for nothing; as many at a time
   * as what was due leaves room for.
   */
  const readAhead = async () => {
    if (ahead.size === 0 || faults().length > 0) return
    const next: Hex[] = []
    for (const questionId of ahead) {
      if (next.length >= left) break
      ahead.delete(questionId)
      if (!book.holds(questionId)) next.push(questionId)
    }
    const failure = await reader.readSome(next, readsMs)
    // One that a contract refused is read when somebody asks for it; a chain that did not answer is
    // asked for all of them again.
    if (failure?.kind !== 'unavailable') return
    for (const questionId of next)
      if (!book.holds(questionId) && !book.isMiss(questionId)) ahead.add(questionId)
  }

  const poll = async () => {
    try {
      const isNews = await look()
      const reads = catchUp().finally(() => {
        if (isNews) for (const listener of listeners) listener()
      })
      await Promise.all([reads, wallets.refresh(ledger.allowlist)])
      lastFailure = undefined
      lookedAtMs = clock.monotonicMs()
    } catch (error) {
      if (!(error instanceof ChainError)) throw error
      // Heads that stay where they are become the fault by their age (R16); questions that could
      // not be read stay due.
      lastFailure = error.message
    }
  }

  let blockMs: number | undefined
  let measuredFrom: BlockHeader | undefined
  /**
   * Half a block time, so that a new block is seen soon; measured, because chains differ and
   * Polygon's will change (domain §8). Sooner while something is due: else more logs a look than
   * reads would leave ever more behind.
   */
  const intervalMs = () => {
    if (heads === undefined) return 500
    if (book.dueCount > 0) return leastIntervalMs
    measuredFrom ??= heads.latest
    const blocks = heads.latest.number - measuredFrom.number
    if (blocks >= 4n)
      blockMs = Number(((heads.latest.timestamp - measuredFrom.timestamp) * 1000n) / blocks)
    if (blocks > 64n || blocks < 0n) measuredFrom = heads.latest
    return blockMs === undefined ? 500 : Math.min(2_000, Math.max(leastIntervalMs, blockMs / 2))
  }

  return {
    faults,
    nowSeconds() {
      // Deadlines are whole seconds: rounded up, a comparison with them is one in milliseconds.
      const [wall, head] = [BigInt(Math.ceil(clock.nowMs() / 1000)), heads?.latest.timestamp ?? 0n]
      return head > wall ? head : wall
    },
    known(identifier) {
      const questionId = book.idOf(identifier)
      return questionId === undefined ? undefined : book.ask(questionId)
    },
    question,
    nonceKnownUsed: (owner, nonce) => spent.has(owner, nonce),
    hasCode: wallets.hasCode,
    knownCode: wallets.known,
    authorizes: wallets.authorizes,
    async start() {
      if (running) return
      const controller = new AbortController()
      running = controller
      await poll()
      // Not awaited and not caught: a failure that is no ChainError is a bug and has to end the
      // process.
      loop = (async () => {
        while (!controller.signal.aborted) {
          await readAhead()
          await pause(clock, intervalMs(), controller.signal)
          if (!controller.signal.aborted) await poll()
        }
      })()
    },
    async stop() {
      running?.abort()
      running = undefined
      await loop
    },
    poll,
    heads: () => heads,
    counts: () => ({ known: book.heldCount, due: book.dueCount }),
    failing: () => (clock.monotonicMs() - lookedAtMs < failingMs ? undefined : lastFailure),
    doubt: (questionId) => book.markDue([questionId]),
    onHead,
    rounds,
    entry: book.entry,
    setEntry(entry) {
      book.setEntry(entry)
      ahead.add(entry.questionId)
    },
    removeEntry: book.removeEntry,
    noteNonces(owner, word, bitmap, at) {
      // What was read of a block that has been undone meanwhile, or of one that is not followed
      // yet, is no knowledge.
      if (at === heads?.latest.hash || at === heads?.finalized.hash) spent.add(owner, word, bitmap)
    },
  }
}

/** Sleeps until the time or the signal, whichever comes first. */
export async function pause(clock: Clock, ms: number, signal: AbortSignal): Promise<void> {
  try {
    await clock.sleep(ms, signal)
  } catch (error) {
    // Being woken is what the signal is for.
    if (!signal.aborted) throw error
  }
}
