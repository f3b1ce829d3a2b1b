import type { ChangedImplementation, Implementations } from '#chain/implementations'
import { createRoundReader, type RegistryEntry } from '#chain/questions'
import type { Contracts } from '#chain/round'
import type { BlockHeader, Chain, Clock, Hex } from '#ports'
import { boundedCache } from '#protocol/bounded-cache'
import type { Address } from '#protocol/schema'
import type { Ledger } from '../ledger/ledger.js'
import type { Question } from './chain-view.js'
import type { LogMeaning } from './logs.js'
import { newQuestionBook, rememberedQuestions } from './questions.js'

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
    readers: new Set<News[]>(),
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
