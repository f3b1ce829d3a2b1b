/**
 * What admission works from without an RPC round trip (contract §2), and which of it a log makes due
 * (domain §3–§5). Unknown state fails closed (R16); all of it is bounded (R17).
 */
import { decodeEventLog } from 'viem'
import { oracleAbi, oracleV3Abi, permit2Abi, topics } from '#chain/contracts'
import type { ChangedImplementation, Implementations } from '#chain/implementations'
import { createRoundReader, managedRequestId, type RegistryEntry } from '#chain/questions'
import { lowercase } from '#chain/reading'
import type { Contracts } from '#chain/round'
import {
  type BlockHeader,
  type Chain,
  ChainError,
  type ChainLog,
  type Clock,
  type Hex,
} from '#ports'
import { boundedCache } from '#protocol/bounded-cache'
import type { Address } from '#protocol/schema'
import type { WitnessRequest } from '#protocol/witness'
import type { Ledger } from '../ledger/ledger.js'
import { createQuestionBook, type Question, rememberedQuestions } from './questions.js'

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

interface ViewConfig {
  readonly maxHeadAgeSeconds: number
  readonly entries: readonly RegistryEntry[]
  readonly implementations?: Implementations | undefined
  readonly waits?: (() => boolean) | undefined
}

/** `lost`: the head before is undone (R14) or too far back; nothing read before is certain. */
export type News = Awaited<ReturnType<typeof meaningOf>> | 'lost'

interface ViewPorts {
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
