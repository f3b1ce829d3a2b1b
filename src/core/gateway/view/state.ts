/**
 * What admission works from without an RPC round trip (contract §2): questions, spent nonces, and
 * which of them a log makes due (domain §3–§5). Unknown state fails closed (R16); all of it is
 * bounded (R17).
 */
import { decodeEventLog } from 'viem'
import { oracleAbi, oracleV3Abi, permit2Abi, topics } from '#chain/contracts'
import { type ChangedImplementation, type Implementations, proxiesOf } from '#chain/implementations'
import { createRoundReader, managedRequestId, type RegistryEntry } from '#chain/questions'
import { lowercase } from '#chain/reading'
import { type Contracts, domainOf, type Round, roundRef } from '#chain/round'
import type { BlockHeader, Chain, ChainLog, Clock, Hex } from '#ports'
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

/** What waits for the chain throws `state_unavailable` after 3 s. */
export interface ChainView {
  faults(): readonly string[]
  /** The later of wall clock and head time, rounded up (contract §2). */
  nowSeconds(): bigint
  /** By id or slug; `undefined` also while it may have changed. */
  known(identifier: string): Question | undefined
  /**
   * Misses are remembered ≤ 10 s. `slug_unavailable`: it is not known which question the slug
   * names.
   */
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

export const followedTopics: readonly Hex[] = [
  topics.requestPrice,
  topics.proposePrice,
  topics.disputePrice,
  topics.settle,
  ...managedFirst,
  ...ofVersion3,
  topics.upgraded,
  topics.questionInitialized,
  topics.questionReset,
  topics.questionPaused,
  topics.questionUnpaused,
  topics.questionFlagged,
  topics.questionUnflagged,
  topics.questionResolved,
  topics.requestRegistered,
  topics.requestInitialized,
  topics.requestRerequested,
  topics.requestResolved,
  topics.unorderedNonceInvalidation,
]

/** Of tokens those alone whose proxies are pinned: a busy token is in the bloom of every block. */
export function followedAddresses(
  { oracles, requesters, permit2 }: Contracts,
  pins: Implementations = {},
): Address[] {
  const asking = requesters.map(({ address }) => address)
  return [...new Set([...oracles, ...asking, permit2, ...proxiesOf(pins)])]
}

/** What logs change: questions by their ids, managed ids (domain §4) and requesters, and nonces. */
export interface LogMeaning {
  readonly changed: ReadonlySet<string>
  readonly isUpgrade: boolean
  readonly invalidated: readonly {
    readonly owner: Address
    readonly word: bigint
    readonly mask: bigint
  }[]
}

/** Each may carry the text of a question. */
const readAtOnce = 8

export async function meaningOf(
  logs: readonly ChainLog[],
  { oracles, requesters, permit2 }: Contracts,
  turn: () => Promise<void>,
): Promise<LogMeaning> {
  const changed = new Set<string>()
  let isUpgrade = false
  const invalidated: LogMeaning['invalidated'][number][] = []
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
    } else if (requesters.some(({ address }) => address === log.address)) {
      // Of every followed event of a requester (domain §5.1, §5.2).
      changed.add(first)
    }
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
  const eventName = 'UnorderedNonceInvalidation'
  const { owner, word, mask } = decodeEventLog({
    ...{ abi: permit2Abi, eventName },
    ...decodable(log),
  } as const).args
  return { owner: lowercase(owner), word, mask }
}

/** Contract §2. */
const missMs = 10_000
const rememberedMisses = 10_000
const rememberedQuestions = 20_000
const rememberedChanges = 50_000
/** A question that is over takes no proposals for good: it is forgotten where nobody asks. */
const keepEndedMs = 600_000

export interface Held {
  question: Question
  /** What changes of it are named by. */
  keys: readonly string[]
  /** The number of changes that were known when it was read; -1 where it is doubted. */
  readAt: number
  askedAtMs: number
}

/** Trusted slugs are entries of their own; later ones add to earlier ones. */
function newQuestionBook(contracts: Contracts, clock: Clock, registry: readonly RegistryEntry[]) {
  const book = {
    contracts,
    clock,
    entries: new Map<Hex, RegistryEntry & Pick<Held, 'keys'>>(),
    slugs: new Map<string, Hex>(),
    held: boundedCache<Hex, Held>(rememberedQuestions),
    misses: boundedCache<Hex, { readonly untilMs: number; readonly readAt: number }>(
      rememberedMisses,
    ),
    /** Numbers changes, by the head or by an operator. */
    changes: 0,
    /** By id, request or requester the last change; the oldest leave first. */
    dirtyAt: new Map<string, number>(),
    /** What was read before this change is due, whatever it is. */
    allDirtyAt: 0,
    /** Nothing was due after this change. */
    cleanAt: -1,
  }
  for (const entry of registry) enter(book, entry)
  return book
}

type QuestionBook = ReturnType<typeof newQuestionBook>

export const keysOf = (questionId: Hex, request: RegistryEntry['request']): readonly string[] =>
  request ? [questionId, managedRequestId(request), request.requester] : [questionId]

/** A change that came after `readAt` names one of the keys. */
export const isDirty = (
  { dirtyAt, allDirtyAt }: QuestionBook,
  keys: readonly string[],
  readAt: number,
) => readAt < allDirtyAt || keys.some((key) => readAt < (dirtyAt.get(key) ?? 0))

function markDirty(book: QuestionBook, key: string) {
  const { dirtyAt, changes } = book
  dirtyAt.delete(key)
  dirtyAt.set(key, changes)
  const [oldest] = dirtyAt
  if (oldest === undefined || dirtyAt.size <= rememberedChanges) return
  dirtyAt.delete(oldest[0])
  book.allDirtyAt = Math.max(book.allDirtyAt, oldest[1])
}

/** Ids of the registry that are changed and not held. */
export function noteNews(book: QuestionBook, news: News): readonly Hex[] {
  book.changes += 1
  if (news === 'lost') {
    book.allDirtyAt = book.changes
    return []
  }
  // A reporter's event names one id of up to ten that share a request (domain §10).
  const shared = [...news.changed].flatMap((key) => book.held.peek(key as Hex)?.keys[1] ?? [])
  const changed = new Set([...news.changed, ...shared])
  for (const key of changed) markDirty(book, key)
  if (changed.size === 0) return []
  return [...book.entries.values()]
    .filter(
      (entry) => !book.held.has(entry.questionId) && entry.keys.some((key) => changed.has(key)),
    )
    .map(({ questionId }) => questionId)
}

function enter(book: QuestionBook, entry: RegistryEntry) {
  const { questionId, slug } = entry
  const known = book.entries.get(questionId)
  const request = known?.request ?? entry.request
  book.entries.set(questionId, {
    questionId,
    slug: known?.slug ?? slug,
    requester: known?.requester ?? entry.requester,
    request,
    keys: keysOf(questionId, request),
  })
  if (slug !== undefined) book.slugs.set(slug, questionId)
}

export function questionIdOf({ slugs }: QuestionBook, identifier: string): Hex | undefined {
  return isQuestionId(identifier) ? identifier : slugs.get(identifier)
}

export function setEntry(book: QuestionBook, entry: RegistryEntry) {
  removeEntry(book, entry.questionId)
  enter(book, entry)
  book.misses.delete(entry.questionId)
}

export function removeEntry(book: QuestionBook, questionId: Hex) {
  book.entries.delete(questionId)
  for (const [slug, owner] of book.slugs) if (owner === questionId) book.slugs.delete(slug)
  book.held.delete(questionId)
}

export function recallQuestion(book: QuestionBook, questionId: Hex): Question | undefined {
  const found = book.held.get(questionId)
  if (found === undefined) return undefined
  found.askedAtMs = book.clock.monotonicMs()
  return isDue(book, found) ? undefined : found.question
}

const isDue = (book: QuestionBook, { keys, readAt }: Held) => isDirty(book, keys, readAt)

export function keepQuestion(book: QuestionBook, round: Round, readAt: number): Question {
  const { contracts, entries, held, misses, clock } = book
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
}

/** Somebody read another state: it is read again, with all that share its request. */
export function doubtQuestion(book: QuestionBook, questionId: Hex) {
  const found = book.held.peek(questionId)
  if (found === undefined) return
  book.changes += 1
  markDirty(book, found.keys[1] ?? questionId)
}

export const countDue = (book: QuestionBook) =>
  [...book.held.values()].filter((one) => isDue(book, one)).length

export function hasDue(book: QuestionBook) {
  if (book.cleanAt === book.changes) return false
  for (const one of book.held.values()) if (isDue(book, one)) return true
  book.cleanAt = book.changes
  return false
}

/** Needed ones first, then those asked for last. */
export function dueFirst(
  book: QuestionBook,
  count: number,
  needed: ReadonlySet<Hex>,
  skip: (questionId: Hex) => boolean,
): Hex[] {
  const chosen = new Set<Hex>()
  for (const questionIds of hasDue(book) ? [needed, book.held.keys()] : [])
    for (const questionId of questionIds) {
      if (chosen.size >= count) break
      const found = book.held.peek(questionId)
      if (found && isDue(book, found) && !skip(questionId)) chosen.add(questionId)
    }
  return [...chosen]
}

export function isMiss(book: QuestionBook, questionId: Hex) {
  const { misses, entries, clock } = book
  const miss = misses.get(questionId)
  if (miss === undefined || clock.monotonicMs() >= miss.untilMs) return false
  return !isDirty(book, entries.get(questionId)?.keys ?? [questionId], miss.readAt)
}

export function noteMiss({ held, misses, clock }: QuestionBook, questionId: Hex, readAt: number) {
  held.delete(questionId)
  misses.set(questionId, { untilMs: clock.monotonicMs() + missMs, readAt })
}

/** The oracle never takes such a round back to requested (domain §4, States). */
const isOver = ({ round }: Question) => round.state === 'resolved' || round.state === 'settled'

export function forgetEnded({ held, clock }: QuestionBook, needed: ReadonlySet<Hex>) {
  const untilMs = clock.monotonicMs() - keepEndedMs
  const over = [...held.entries()].filter(
    ([questionId, { question, askedAtMs }]) =>
      isOver(question) && askedAtMs <= untilMs && !needed.has(questionId),
  )
  for (const [questionId] of over) held.delete(questionId)
}

export type CodeWatch = ReturnType<typeof newCodeWatch>

const newCodeWatch = () => ({
  changed: [] as readonly ChangedImplementation[],
  versions: new Map() as ReadonlyMap<Address, 2 | 3>,
  isKnown: false,
  isDue: true,
  /** A log told of an upgrade that has not been looked at. */
  isSuspect: false,
  lookedAtMs: Number.NEGATIVE_INFINITY,
  lookedAt: undefined as string | undefined,
})

/** What else is due waits for the next look. */
export const readsPerLook = 64
const rememberedWords = 50_000
const rememberedHeads = 256

export interface Heads {
  readonly latest: BlockHeader
  /** The newest block that cannot be undone (the `finalized` tag). */
  readonly finalized: BlockHeader
}

export interface ViewConfig {
  readonly maxHeadAgeSeconds: number
  readonly entries: readonly RegistryEntry[]
  readonly implementations?: Implementations | undefined
  /** While nobody waits, the chain is looked at once a block. */
  readonly waits?: (() => boolean) | undefined
}

/** `lost`: the head before is undone (R14) or too far back; nothing read before is certain. */
export type News = LogMeaning | 'lost'

export interface ViewPorts {
  readonly clock: Clock
  readonly chain: Chain
  readonly turn?: (() => Promise<void>) | undefined
}

export type ViewState = ReturnType<typeof newViewState>

export function newViewState(
  { clock, chain, turn = async () => undefined }: ViewPorts,
  contracts: Contracts,
  ledger: Pick<Ledger, 'info' | 'allowlist' | 'finalized' | 'active' | 'implementations'>,
  { maxHeadAgeSeconds, entries, implementations = {}, waits = () => true }: ViewConfig,
) {
  const book = newQuestionBook(contracts, clock, entries)
  const nowMs = clock.monotonicMs()
  return {
    clock,
    chain,
    turn,
    contracts,
    ledger,
    maxHeadAgeSeconds,
    rounds: createRoundReader(chain, contracts),
    book,
    hashes: boundedCache<bigint, Hex>(rememberedHeads),
    spent: boundedCache<string, bigint>(rememberedWords),
    unread: new Set([...book.entries.keys()].slice(0, rememberedQuestions)),
    reading: new Map<Hex, Promise<Question | undefined>>(),
    firstReads: new Map<Hex, Promise<Question | undefined>>(),
    headListeners: new Set<() => void>(),
    implementations,
    waits,
    code: newCodeWatch(),
    heads: undefined as Heads | undefined,
    newestFinalized: undefined as bigint | undefined,
    advancedAtMs: nowMs,
    wrongChain: undefined as string | undefined,
    isIdentified: false,
    lastFailure: undefined as string | undefined,
    lookedAtMs: nowMs,
    /** How many looks have begun, and which of them showed the heads last. */
    looks: { begun: 0, shown: 0 },
    sleeper: new AbortController(),
    isCalled: false,
    wholeLookAtMs: Number.NEGATIVE_INFINITY,
    forgotAtMs: nowMs,
    readsLeft: readsPerLook,
  }
}

export function callForLook(state: ViewState) {
  state.isCalled = true
  state.sleeper.abort()
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
  const newest = state.newestFinalized ?? 0n
  const final = stored > newest ? stored : newest
  if (heads.latest.number < final)
    found.push(`the node's head ${heads.latest.number} is below block ${final}, which was final`)
  return found
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
