/**
 * The gateway's view of the chain, kept up to date by looking at the head and following logs. Admission reads it from memory (contract
 * §2); pipeline and executor take heads from it. What is unknown or old is a fault, and faults close everything that depends on it (R16).
 */
import pLimit from 'p-limit'
import { createRoundReader, type RegistryEntry, type RoundReader } from '../../chain/questions.js'
import type { Contracts } from '../../chain/round.js'
import { type Address, type BlockHeader, type Chain, ChainError, type ChainLog, type Clock, type Hex } from '../../ports.js'
import type { Ledger } from '../ledger/ledger.js'
import type { ChainView, Question } from './chain-view.js'
import { within } from './deadline.js'
import { followedAddresses, followedTopics, type LogMeaning, meaningOf } from './logs.js'
import { createSpentNonces } from './nonces.js'
import { createQuestionBook, rememberedQuestions } from './questions.js'
import { createWallets, orUnavailable } from './wallets.js'

/** A question seen for the first time is read within this (contract §2). */
const firstReadMs = 3_000
/** Blocks whose hashes are kept to find where a reorganisation begins. */
const rememberedBlocks = 256
/** Beyond this many missed blocks, reading every question again is quicker than reading the logs. */
const followedBlocks = 128n
const parallelReads = 16

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
  /** Looks once and then goes on looking until `stop`. Resolves after the first look, whatever came of it. */
  start(): Promise<void>
  stop(): Promise<void>
  /** One look at the chain. What goes wrong shows in `faults`. */
  poll(): Promise<void>
  /** The newest heads whose logs have been followed; `undefined` before the first look. */
  heads(): Heads | undefined
  /** Called after each look that found a new latest or finalized block. */
  onHead(listener: () => void): () => void
  readonly rounds: RoundReader
  entry(questionId: Hex): RegistryEntry | undefined
  /** Adds what a read of Permit2's bitmap showed. */
  noteNonces(owner: Address, word: bigint, bitmap: bigint): void
}

type ViewLedger = Pick<Ledger, 'info' | 'allowlist' | 'finalized' | 'active'>

/** Source: contract §2, robustness R14, R16, R17. */
export function createChainView(ports: ViewPorts, contracts: Contracts, ledger: ViewLedger, config: ViewConfig): LiveView {
  const { clock, chain } = ports
  const rounds = createRoundReader(chain, contracts)
  const wallets = createWallets(chain, clock)
  const spent = createSpentNonces()
  const book = createQuestionBook(contracts, clock, config.entries)
  const asked = new Map<Hex, Promise<Question | undefined>>()
  /** Read while a newer block came in: read again at the next look. */
  const due = new Set<Hex>()
  const listeners = new Set<() => void>()
  const seen = new Map<bigint, Hex>()
  let heads: Heads | undefined
  let newestFinalized: bigint | undefined
  let advancedAtMs = clock.monotonicMs()
  let wrongChain: string | undefined
  let identified = false
  let lastFailure: string | undefined
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
      found.push(`the newest block is ${oldest} s old, more than the ${config.maxHeadAgeSeconds} s allowed${because}`)
    }
    const floor = mark()
    if (floor !== undefined && heads.latest.number < floor) {
      found.push(`the node's head ${heads.latest.number} is below block ${floor}, which was final`)
    }
    return found
  }

  const readFirst = async (questionId: Hex): Promise<Question | undefined> => {
    const at = heads?.latest.number
    if (at === undefined || faults().length > 0) throw new ChainError('unavailable', faults()[0] ?? 'the chain has not been read yet')
    const round = await rounds.read(questionId, book.entry(questionId), at)
    const moved = heads?.latest.number !== at
    if (round === undefined) {
      // A log of the blocks in between may have named it.
      if (!moved) book.noteMiss(questionId)
      return undefined
    }
    if (moved) due.add(questionId)
    return book.keep(round)
  }

  const question = async (identifier: string): Promise<Question | undefined> => {
    const questionId = book.idOf(identifier)
    if (questionId === undefined) return undefined
    const known = book.get(questionId)
    if (known) return known
    if (book.isMiss(questionId)) return undefined
    let reading = asked.get(questionId)
    if (reading === undefined) {
      reading = readFirst(questionId).finally(() => asked.delete(questionId))
      asked.set(questionId, reading)
    }
    return orUnavailable(within(clock, firstReadMs, reading), `about question ${questionId}`)
  }

  const noteMeaning = (meaning: LogMeaning) => {
    for (const { owner, word, mask } of meaning.invalidated) spent.add(owner, word, mask)
    if (meaning.executed.length === 0) return
    // SignedProposer names no nonce; a proposal with a candidate's proposer, round and price has spent that candidate's.
    for (const { proposer, round, price, nonce } of ledger.active()) {
      const ours = meaning.executed.some(
        (done) =>
          done.proposer === proposer &&
          done.oracle === round.oracle &&
          done.requester === round.requester &&
          done.identifier === round.identifier &&
          done.timestamp === round.timestamp &&
          done.price === price,
      )
      if (ours) spent.add(proposer, BigInt(nonce) >> 8n, 1n << (BigInt(nonce) & 0xffn))
    }
  }

  const readAgain = async (ids: ReadonlySet<Hex>, at: bigint) => {
    const limit = pLimit(parallelReads)
    await Promise.all(
      [...ids].map((id) =>
        limit(async () => {
          const round = await rounds.read(id, book.entry(id), at)
          if (round) book.keep(round)
          else book.drop(id)
          due.delete(id)
        }),
      ),
    )
  }

  /** Logs of a range; a node that refuses a range because it holds too much is asked for halves. */
  const logsOf = async (fromBlock: bigint, toBlock: bigint): Promise<readonly ChainLog[]> => {
    try {
      return await chain.logs({ fromBlock, toBlock, addresses: followedAddresses(contracts), topics: [followedTopics] })
    } catch (error) {
      if (!(error instanceof ChainError) || error.kind !== 'refused' || fromBlock === toBlock) throw error
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

  const look = async () => {
    const [chainId, latest, finalized] = await Promise.all([chain.chainId(), chain.block('latest'), chain.block('finalized')])
    wrongChain = chainId === contracts.chainId ? undefined : `the node is on chain ${chainId}, not on ${contracts.chainId}`
    if (wrongChain !== undefined) return
    await identify()
    if (wrongChain !== undefined) return
    if (latest === null) throw new ChainError('unavailable', 'the node knows no latest block')
    if (finalized === null) throw new ChainError('unavailable', 'the node knows no finalized block')
    const before = heads
    // Another node that is a few blocks behind shows an old head; going back to it would undo what is known.
    if (before !== undefined && latest.number < before.latest.number && seen.get(latest.number) === latest.hash) return
    await follow(before?.latest, latest)
    remembered(latest)
    const changed = before === undefined || before.latest.hash !== latest.hash || before.finalized.hash !== finalized.hash
    if (before?.latest.hash !== latest.hash) advancedAtMs = clock.monotonicMs()
    const steady = before !== undefined && finalized.number < before.finalized.number ? before.finalized : finalized
    heads = { latest, finalized: steady }
    newestFinalized = steady.number
    if (changed) for (const listener of listeners) listener()
  }

  const follow = async (from: BlockHeader | undefined, to: BlockHeader) => {
    if (from === undefined || from.hash === to.hash) {
      await readAgain(new Set(due), to.number)
      return
    }
    const continued = to.number > from.number && (to.parentHash === from.hash || (await chain.block(from.number))?.hash === from.hash)
    if (!continued || to.number - from.number > followedBlocks) {
      // A reorganisation (R14), or too long an absence: nothing learnt from logs is certain, so every question is read again.
      seen.clear()
      spent.clear()
      book.forgetMisses()
      await readAgain(new Set(book.ids()), to.number)
      return
    }
    const meaning = meaningOf(await logsOf(from.number + 1n, to.number), contracts)
    noteMeaning(meaning)
    await readAgain(new Set([...due, ...book.affected(meaning)]), to.number)
  }
  const remembered = (header: BlockHeader) => {
    seen.set(header.number, header.hash)
    const [oldest] = seen.keys()
    if (seen.size > rememberedBlocks && oldest !== undefined) seen.delete(oldest)
  }

  const poll = async () => {
    try {
      await look()
      await wallets.refresh(ledger.allowlist)
      lastFailure = undefined
    } catch (error) {
      if (!(error instanceof ChainError)) throw error
      // Heads stay where they are; should it last, their age becomes the fault (R16).
      lastFailure = error.message
    }
  }

  let blockMs: number | undefined
  let measuredFrom: BlockHeader | undefined
  /** Half a block time, so that a new block is seen soon; measured, because chains differ and Polygon's will change (domain §8). */
  const intervalMs = () => {
    if (heads === undefined) return 500
    measuredFrom ??= heads.latest
    const blocks = heads.latest.number - measuredFrom.number
    if (blocks >= 4n) blockMs = Number(((heads.latest.timestamp - measuredFrom.timestamp) * 1000n) / blocks)
    if (blocks > 64n || blocks < 0n) measuredFrom = heads.latest
    return blockMs === undefined ? 500 : Math.min(2_000, Math.max(250, blockMs / 2))
  }

  /** Registry questions are read ahead, so that their first use waits for nothing. */
  const preload = async (signal: AbortSignal) => {
    const limit = pLimit(4)
    const ids = [...book.registered()].slice(0, rememberedQuestions)
    await Promise.all(
      ids.map((id) =>
        limit(async () => {
          if (signal.aborted || book.get(id) || heads === undefined) return
          await readFirst(id).catch((error: unknown) => {
            // Whoever asks for it reads it then.
            if (!(error instanceof ChainError)) throw error
          })
        }),
      ),
    )
  }

  return {
    faults,
    nowSeconds() {
      const wall = BigInt(Math.floor(clock.nowMs() / 1000))
      const head = heads?.latest.timestamp ?? 0n
      return head > wall ? head : wall
    },
    known(identifier) {
      const questionId = book.idOf(identifier)
      return questionId === undefined ? undefined : book.get(questionId)
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
      // Not awaited and not caught: a failure that is no ChainError is a bug and has to end the process.
      loop = (async () => {
        void preload(controller.signal)
        while (!controller.signal.aborted) {
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
    onHead(listener) {
      listeners.add(listener)
      return () => listeners.delete(listener)
    },
    rounds,
    entry: book.entry,
    noteNonces: spent.add,
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
