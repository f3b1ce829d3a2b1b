/**
 * What admission works from without an RPC round trip (contract §2), and which of it a new head makes
 * due (contract §9, domain §3–§5, §10). Unknown state fails closed (R16); all of it is bounded (R17).
 */
import { decodeEventLog } from 'viem'
import { oracleAbi, oracleV3Abi, permit2Abi, topics } from '#chain/contracts'
import { type ChangedImplementation, type Implementations, proxiesOf } from '#chain/implementations'
import { createRoundReader, managedRequestId, type RegistryEntry } from '#chain/questions'
import { lowercase } from '#chain/reading'
import { type Contracts, domainOf, type Round, roundRef } from '#chain/round'
import {
  type BlockHeader,
  type Chain,
  ChainError,
  type ChainLog,
  type Clock,
  type Hex,
} from '#ports'
import { boundedCache } from '#protocol/bounded-cache'
import type { RoundRef } from '#protocol/candidate'
import type { Address } from '#protocol/schema'
import { type WitnessRequest, type WitnessRound, witnessRound } from '#protocol/witness'
import { isQuestionId } from '#protocol/words'
import type { Ledger } from '../ledger/ledger.js'

export interface Question {
  readonly questionId: Hex
  readonly slug: string | undefined
  readonly round: Round
  readonly ref: RoundRef
  readonly witness: WitnessRound
}

export interface Held {
  question: Question
  keys: readonly string[]
  readAt: number
  askedAtMs: number
}

const missMs = 10_000
const rememberedMisses = 10_000
export const rememberedQuestions = 20_000
const rememberedChanges = 50_000
/** A question that is over takes no proposals for good: it is forgotten where nobody asks. */
const keepEndedMs = 600_000

export const keysOf = (questionId: Hex, request: RegistryEntry['request']): readonly string[] =>
  request ? [questionId, managedRequestId(request), request.requester] : [questionId]

/** By id, request or requester the number of the last change; the oldest leave first. */
function createChanges() {
  const dirtyAt = new Map<string, number>()
  let [count, allDirtyAt] = [0, 0]
  return {
    count: () => count,
    isDirty: (keys: readonly string[], readAt: number) =>
      readAt < allDirtyAt || keys.some((key) => readAt < (dirtyAt.get(key) ?? 0)),
    add(keys: Iterable<string> | 'all') {
      count += 1
      if (keys === 'all') allDirtyAt = count
      else
        for (const key of keys) {
          dirtyAt.delete(key)
          dirtyAt.set(key, count)
          const [oldest] = dirtyAt
          if (oldest === undefined || dirtyAt.size <= rememberedChanges) continue
          dirtyAt.delete(oldest[0])
          allDirtyAt = Math.max(allDirtyAt, oldest[1])
        }
    },
  }
}

function createEntries(registry: readonly RegistryEntry[]) {
  const entries = new Map<Hex, RegistryEntry & Pick<Held, 'keys'>>()
  const slugs = new Map<string, Hex>()
  const remove = (questionId: Hex) => {
    entries.delete(questionId)
    for (const [slug, owner] of slugs) if (owner === questionId) slugs.delete(slug)
  }
  const set = (entry: RegistryEntry) => {
    const { questionId, slug, request } = entry
    entries.set(questionId, { ...entry, keys: keysOf(questionId, request) })
    if (slug !== undefined) slugs.set(slug, questionId)
  }
  for (const entry of registry) set(entry)
  const idOf = (identifier: string) =>
    isQuestionId(identifier) ? identifier : slugs.get(identifier)
  return { entries, remove, set, idOf }
}

export function createQuestionBook(
  contracts: Contracts,
  clock: Clock,
  registry: readonly RegistryEntry[],
) {
  const { entries, idOf, ...named } = createEntries(registry)
  const held = boundedCache<Hex, Held>(rememberedQuestions)
  const misses = boundedCache<Hex, { readonly untilMs: number; readonly readAt: number }>(
    rememberedMisses,
  )
  const changes = createChanges()
  const { isDirty } = changes
  const isDue = ({ keys, readAt }: Held) => isDirty(keys, readAt)
  let cleanAt = -1
  const hasDue = () => {
    if (cleanAt === changes.count()) return false
    for (const one of held.values()) if (isDue(one)) return true
    cleanAt = changes.count()
    return false
  }
  const remove = (questionId: Hex) => {
    named.remove(questionId)
    held.delete(questionId)
  }
  return {
    ...{ entries, held, idOf, isDirty, changes: changes.count, hasDue, remove },
    set(entry: RegistryEntry) {
      remove(entry.questionId)
      named.set(entry)
      misses.delete(entry.questionId)
    },
    recall(questionId: Hex): Question | undefined {
      const found = held.get(questionId)
      if (found === undefined) return undefined
      found.askedAtMs = clock.monotonicMs()
      return isDue(found) ? undefined : found.question
    },
    keep(round: Round, readAt: number): Question {
      const { questionId, token } = round
      const witness = witnessRound(domainOf(contracts), round, token.address)
      const ref = roundRef(contracts, questionId, round, witness.ancillaryHash)
      const question = { questionId, slug: entries.get(questionId)?.slug, round, ref, witness }
      const newest = { question, keys: keysOf(questionId, round), readAt }
      const known = held.peek(questionId)
      if (known) Object.assign(known, newest)
      else held.set(questionId, { ...newest, askedAtMs: clock.monotonicMs() })
      misses.delete(questionId)
      return question
    },
    noteMiss(questionId: Hex, readAt: number) {
      held.delete(questionId)
      misses.set(questionId, { untilMs: clock.monotonicMs() + missMs, readAt })
    },
    isMiss(questionId: Hex) {
      const miss = misses.get(questionId)
      if (miss === undefined || clock.monotonicMs() >= miss.untilMs) return false
      return !isDirty(entries.get(questionId)?.keys ?? [questionId], miss.readAt)
    },
    note(news: ReadonlySet<string> | 'all'): readonly Hex[] {
      // A reporter's event names one id of up to ten that share a request (domain §10).
      const sharing = (key: string) => [key, ...(held.peek(key as Hex)?.keys.slice(1, 2) ?? [])]
      const changed = news === 'all' ? news : new Set([...news].flatMap(sharing))
      changes.add(changed)
      if (changed === 'all' || changed.size === 0) return []
      return [...entries.values()].flatMap(({ questionId, keys }) =>
        !held.has(questionId) && keys.some((key) => changed.has(key)) ? questionId : [],
      )
    },
    doubt(questionId: Hex) {
      const found = held.peek(questionId)
      if (found) changes.add([found.keys[1] ?? questionId])
    },
    countDue: () => [...held.values()].filter(isDue).length,
    dueFirst(count: number, needed: ReadonlySet<Hex>, skip: (questionId: Hex) => boolean) {
      const chosen = new Set<Hex>()
      for (const questionIds of hasDue() ? [needed, held.keys()] : [])
        for (const questionId of questionIds) {
          if (chosen.size >= count) break
          const found = held.peek(questionId)
          if (found && isDue(found) && !skip(questionId)) chosen.add(questionId)
        }
      return [...chosen]
    },
    forgetEnded(needed: ReadonlySet<Hex>) {
      const untilMs = clock.monotonicMs() - keepEndedMs
      // The oracle never takes such a round back to requested (domain §4, States).
      const isOver = ({ round: { state } }: Question) => state === 'resolved' || state === 'settled'
      for (const [questionId, { question, askedAtMs }] of [...held.entries()])
        if (isOver(question) && askedAtMs <= untilMs && !needed.has(questionId))
          held.delete(questionId)
    },
  }
}

/** What waits for the chain throws `state_unavailable` after 3 s. */
export interface ChainView {
  faults(): readonly string[]
  /** The later of wall clock and head time, rounded up (contract §2). */
  nowSeconds(): bigint
  /** By id or slug; `undefined` also while it may have changed. */
  known(identifier: string): Question | undefined
  /** Misses are remembered ≤ 10 s. */
  question(identifier: string): Promise<Question | undefined>
  readAhead(identifiers: readonly string[]): void
  nonceKnownUsed(owner: Address, nonce: bigint): boolean
  /** Wallet or EIP-7702; read at most every 500 ms. */
  hasCode(account: Address): Promise<boolean>
  knownCode(account: Address): boolean | undefined
  /** EIP-1271 `isValidSignature` by eth_call, 3M gas. */
  authorizes(wallet: Address, digest: Hex, signature: Hex): Promise<boolean>
}

const requestAbi = [...oracleAbi, ...oracleV3Abi] as const
/** Domain §10. Of RequestRulesUpdated no more is known than its requester. */
const ofVersion3: readonly Hex[] = [
  topics.rewardUpdated,
  topics.bondUpdated,
  topics.customLivenessUpdated,
  topics.requestRulesUpdated,
]

const managedFirst: readonly Hex[] = [
  topics.customBondSet,
  topics.customLivenessSet,
  topics.customProposerWhitelistSet,
]

/** Those of payouts and of what the executor sent change no question and no nonce. */
const unfollowed: readonly Hex[] = [
  topics.proposalExecuted,
  topics.payoutDeferred,
  topics.claimedDeferredPayout,
]
export const followedTopics = Object.values(topics).filter((topic) => !unfollowed.includes(topic))

const readAtOnce = 8

/** What logs change: questions by their ids, managed ids (domain §4) and requesters, and nonces. */
export async function meaningOf(
  logs: readonly ChainLog[],
  { oracles, requesters, permit2 }: Contracts,
  turn: () => Promise<void>,
) {
  const changed = new Set<string>()
  let isUpgrade = false
  const invalidated: ReturnType<typeof invalidationOf>[] = []
  for (const [index, log] of logs.entries()) {
    if (index > 0 && index % readAtOnce === 0) await turn()
    const [kind, first] = log.topics
    if (kind === undefined || first === undefined) continue
    if (kind === topics.upgraded) isUpgrade = true
    else if (log.address === permit2) {
      const found = ifDecoded(() => invalidationOf(log))
      if (found) invalidated.push(found)
    } else if (oracles.includes(log.address)) {
      const id = managedFirst.includes(kind) ? first : ifDecoded(() => managedIdOf(log))
      if (id) changed.add(id)
      else if (ofVersion3.includes(kind)) changed.add(`0x${first.slice(26)}`)
    } else if (requesters.some(({ address }) => address === log.address)) changed.add(first)
  }
  return { changed, invalidated, isUpgrade }
}

function ifDecoded<T>(decode: () => T) {
  try {
    return decode()
  } catch {
    return undefined
  }
}

const decodable = ({ data, topics: found }: ChainLog) =>
  ({ data, topics: found as [Hex, ...Hex[]] }) as const

function managedIdOf(log: ChainLog) {
  const { args } = decodeEventLog({ abi: requestAbi, ...decodable(log) })
  const { requester, identifier, ancillaryData } = args as Pick<
    WitnessRequest,
    'requester' | 'identifier' | 'ancillaryData'
  >
  return managedRequestId({ requester: lowercase(requester), identifier, ancillaryData })
}

function invalidationOf(log: ChainLog) {
  const event = { abi: permit2Abi, eventName: 'UnorderedNonceInvalidation' } as const
  const { owner, word, mask } = decodeEventLog({ ...event, ...decodable(log) }).args
  return { owner: lowercase(owner), word, mask }
}

export type CodeWatch = ReturnType<typeof newCodeWatch>

const newCodeWatch = () => ({
  changed: [] as readonly ChangedImplementation[],
  versions: new Map() as ReadonlyMap<Address, 2 | 3>,
  isDue: true,
  isSuspect: false,
  lookedAtMs: Number.NEGATIVE_INFINITY,
  lookedAt: undefined as Hex | undefined,
})

export const readsPerLook = 64
const rememberedWords = 50_000
const rememberedHeads = 256

export interface Heads {
  readonly latest: BlockHeader
  readonly finalized: BlockHeader
}

/** `lost`: the head before is undone (R14) or too far back; nothing read before is certain. */
export type News = Awaited<ReturnType<typeof meaningOf>> | 'lost'

export type ViewState = ReturnType<typeof newViewState>

export function newViewState(
  {
    clock,
    chain,
    turn = async () => undefined,
  }: { readonly clock: Clock; readonly chain: Chain; readonly turn?: () => Promise<void> },
  contracts: Contracts,
  ledger: Pick<Ledger, 'info' | 'allowlist' | 'finalized' | 'active' | 'implementations'>,
  {
    maxHeadAgeSeconds,
    entries,
    implementations = {},
    waits = () => true,
  }: {
    readonly maxHeadAgeSeconds: number
    readonly entries: readonly RegistryEntry[]
    readonly implementations?: Implementations | undefined
    readonly waits?: () => boolean
  },
) {
  const book = createQuestionBook(contracts, clock, entries)
  const nowMs = clock.monotonicMs()
  return {
    ...{ clock, chain, turn, contracts, ledger, maxHeadAgeSeconds, book, implementations, waits },
    rounds: createRoundReader(chain, contracts),
    hashes: boundedCache<bigint, Hex>(rememberedHeads),
    spent: boundedCache<string, bigint>(rememberedWords),
    unread: new Set([...book.entries.keys()].slice(0, rememberedQuestions)),
    reading: new Map<Hex, Promise<Question | undefined>>(),
    firstReads: new Map<Hex, Promise<Question | undefined>>(),
    headListeners: new Set<() => void>(),
    code: newCodeWatch(),
    heads: undefined as Heads | undefined,
    advancedAtMs: nowMs,
    wrongChain: undefined as string | undefined,
    isIdentified: false,
    lastFailure: undefined as string | undefined,
    lookedAtMs: nowMs,
    looks: { begun: 0, shown: 0 },
    sleeper: new AbortController(),
    isCalled: false,
    wholeLookAtMs: Number.NEGATIVE_INFINITY,
    forgotAtMs: nowMs,
    readsLeft: readsPerLook,
  }
}

export function viewFaults(state: ViewState) {
  const { wrongChain, lastFailure, heads, clock, maxHeadAgeSeconds } = state
  if (wrongChain !== undefined) return [wrongChain]
  const because = lastFailure === undefined ? '' : ` (${lastFailure})`
  if (heads === undefined) return [`the chain has not been read yet${because}`]
  const found: string[] = []
  const ageSeconds = Math.floor(clock.nowMs() / 1000) - Number(heads.latest.timestamp)
  const idleSeconds = Math.floor((clock.monotonicMs() - state.advancedAtMs) / 1000)
  const oldest = Math.max(ageSeconds, idleSeconds)
  if (oldest > maxHeadAgeSeconds)
    found.push(
      `the newest block is ${oldest} s old, more than the ${maxHeadAgeSeconds} s allowed${because}`,
    )
  const stored = state.ledger.finalized?.number ?? 0n
  const newest = heads.finalized.number
  const final = stored > newest ? stored : newest
  if (heads.latest.number < final)
    found.push(`the node's head ${heads.latest.number} is below block ${final}, which was final`)
  return found
}

export function knownHead(state: ViewState): BlockHeader {
  const [fault] = viewFaults(state)
  if (state.heads && fault === undefined) return state.heads.latest
  throw new ChainError('unavailable', fault ?? 'the chain has not been read yet')
}

/** In hex: decimal digits of so large a number cost more than the look-up. */
const wordKey = (owner: Hex, word: bigint) => `${owner}|${word.toString(16)}`

export function spentBits({ spent }: ViewState, owner: Hex, word: bigint) {
  return spent.get(wordKey(owner, word)) ?? 0n
}

export function addSpent(state: ViewState, owner: Hex, word: bigint, mask: bigint) {
  if (mask === 0n) return
  state.spent.set(wordKey(owner, word), spentBits(state, owner, word) | mask)
}

export const pinsOf = ({
  implementations,
  ledger,
}: Pick<ViewState, 'implementations' | 'ledger'>): Implementations => ({
  ...implementations,
  ...Object.fromEntries(ledger.implementations),
})

/** Beyond so many missed blocks everything is due: nodes bound the range of logs. */
const followedBlocks = 128n
/** What fails for good is judged in finalized state (R14, R15). */
const noFinality =
  'the node reports no finalized block, which the gateway requires: use a node that supports the block tag "finalized"'

const wholeLookMs = 30_000

export async function lookAtHead(state: ViewState) {
  const { chain, contracts, heads: before, clock } = state
  const atMs = clock.monotonicMs()
  const isWhole =
    before === undefined ||
    state.wrongChain !== undefined ||
    state.waits() ||
    atMs - state.wholeLookAtMs >= wholeLookMs
  const [told, latest, final] = await Promise.all([
    isWhole ? chain.chainId() : undefined,
    chain.block('latest'),
    isWhole ? finalizedBlock(state) : before?.finalized,
  ])
  // A node on another chain knows no block of ours.
  const chainId = told ?? (latest === null ? await chain.chainId() : undefined)
  if (chainId !== undefined)
    state.wrongChain =
      chainId === contracts.chainId
        ? await otherGenesis(state)
        : `the node is on chain ${chainId}, not on ${contracts.chainId}`
  if (state.wrongChain !== undefined) return false
  const finalized = final ?? null
  if (latest === null) throw new ChainError('unavailable', 'the node has no latest block')
  if (finalized === null) throw new ChainError('unavailable', noFinality)
  if (isWhole) state.wholeLookAtMs = atMs
  // Another node that is behind shows an old head; going back would undo what is known.
  if (
    before !== undefined &&
    latest.number < before.latest.number &&
    state.hashes.get(latest.number) === latest.hash
  )
    return false
  const isNew = before?.latest.hash !== latest.hash
  if (isNew) {
    const news = before ? await newsSince(state, before.latest, latest) : 'lost'
    // Nothing waits from here to the heads: who reads meanwhile sees all of this or nothing.
    applyNews(state, news, latest)
    state.advancedAtMs = clock.monotonicMs()
  }
  const isBehind = before !== undefined && finalized.number < before.finalized.number
  const steady = isBehind ? before.finalized : finalized
  state.heads = { latest, finalized: steady }
  return isNew || before?.finalized.hash !== finalized.hash
}

async function otherGenesis(state: ViewState) {
  const { info } = state.ledger
  if (state.isIdentified) return undefined
  const genesis = info ? await state.chain.block(0n) : null
  if (info && genesis && genesis.hash !== info.genesisHash)
    return `the node's chain begins with block ${genesis.hash}, and the store's with ${info.genesisHash}`
  state.isIdentified = true
  return undefined
}

const finalizedBlock = ({ chain }: ViewState) =>
  chain.block('finalized').catch((error: unknown) => {
    const isUnknown =
      error instanceof ChainError &&
      (error.kind === 'refused' || /block not found|unknown block/i.test(error.message))
    if (isUnknown) return null
    throw error
  })

async function newsSince(state: ViewState, from: BlockHeader, to: BlockHeader): Promise<News> {
  const { chain, contracts } = state
  const distance = to.number - from.number
  if (distance < 1n || distance > followedBlocks) return 'lost'
  const isNext = distance === 1n
  if (isNext && to.parentHash !== from.hash) return 'lost'
  const logs = await logsOf(state, from.number + 1n, to.number, isNext ? to.hash : undefined)
  if (!isNext) {
    // Read after the logs: those of one branch under the head of another would leave a gap.
    const [first, last] = await Promise.all([chain.block(from.number), chain.block(to.number)])
    if (first?.hash !== from.hash) return 'lost'
    if (last?.hash !== to.hash)
      throw new ChainError(
        'unavailable',
        `the node changed its block ${to.number} while its logs were read`,
      )
  }
  return meaningOf(logs, contracts, state.turn)
}

/** A range that a node refuses may be too long for it: it is asked for in halves. */
async function logsOf(
  state: ViewState,
  fromBlock: bigint,
  toBlock: bigint,
  blockHash?: Hex,
): Promise<readonly ChainLog[]> {
  const { oracles, requesters, permit2 } = state.contracts
  const asking = requesters.map(({ address }) => address)
  // Of tokens those alone whose proxies are pinned: a busy token is in the bloom of every block.
  const followed = [...oracles, ...asking, permit2, ...proxiesOf(pinsOf(state))]
  const addresses = [...new Set(followed)]
  const filter = { fromBlock, toBlock, addresses, topics: [followedTopics] }
  try {
    return await state.chain.logs(blockHash ? { ...filter, blockHash } : filter)
  } catch (error) {
    if (!(error instanceof ChainError) || error.kind !== 'refused' || fromBlock === toBlock)
      throw error
    const middle = (fromBlock + toBlock) / 2n
    const first = await logsOf(state, fromBlock, middle)
    return [...first, ...(await logsOf(state, middle + 1n, toBlock))]
  }
}

function applyNews(state: ViewState, news: News, { number, hash }: BlockHeader) {
  const { book, hashes, spent, code } = state
  for (const questionId of book.note(news === 'lost' ? 'all' : news.changed))
    state.unread.add(questionId)
  if (news === 'lost') {
    spent.clear()
    hashes.clear()
    code.isDue = true
  } else {
    if (news.isUpgrade) code.isDue = code.isSuspect = true
    for (const { owner, word, mask } of news.invalidated) addSpent(state, owner, word, mask)
  }
  hashes.set(number, hash)
}
