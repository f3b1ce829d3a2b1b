/** Kept up to date by looking at the head and following logs; what is old is a fault (R16). */
import { encodeFunctionData } from 'viem'
import { eip1271MagicValue, erc1271Abi } from '#chain/contracts'
import {
  changedImplementations,
  changedText,
  implementationsOf,
  oracleVersion,
} from '#chain/implementations'
import type { RegistryEntry } from '#chain/questions'
import { unlessRefused } from '#chain/reading'
import { type Chain, ChainError, type Clock, type Hex } from '#ports'
import { boundedCache } from '#protocol/bounded-cache'
import { UnavailableError } from '#protocol/errors'
import { nonceBit } from '#protocol/permit'
import { pick } from '#protocol/pick'
import type { Address } from '#protocol/schema'
import type { Ledger, LedgerEvent } from '../ledger/ledger.js'
import {
  addSpent,
  type ChainView,
  type CodeWatch,
  keysOf,
  knownHead,
  lookAtHead,
  newViewState,
  pinsOf,
  readsPerLook,
  spentBits,
  type ViewState,
  viewFaults,
} from './state.js'

export async function pause(clock: Clock, ms: number, signal: AbortSignal) {
  try {
    await clock.sleep(ms, signal)
  } catch (error) {
    if (!signal.aborted) throw error
  }
}

export async function within<T>(
  clock: Clock,
  limitMs: number,
  work: (signal: AbortSignal) => Promise<T>,
  late: () => Error = () =>
    new ChainError('unavailable', `the node did not respond within ${limitMs} ms`),
): Promise<T> {
  const over = new AbortController()
  const overdue = clock.sleep(limitMs, over.signal).then(() => {
    throw late()
  })
  try {
    return await Promise.race([work(over.signal), overdue])
  } finally {
    over.abort()
  }
}

/** Contract §2. */
const waitedMs = 3_000

/** A chain that gives no answer is a reason to come back later, not a verdict (R16). */
export const orUnavailable = <T>(clock: Clock, what: string, work: () => Promise<T>) =>
  within(clock, waitedMs, work).catch((error: unknown) => {
    throw new UnavailableError('state_unavailable', `${what} cannot be read from the chain now`, {
      httpStatus: 503,
      retryAfterMs: 2_000,
      cause: chainFailure(error),
      hint: 'wait, then retry the same request',
    })
  })

/** A bug is thrown on: it has to end the process. */
export function chainFailure(error: unknown): ChainError {
  if (error instanceof ChainError) return error
  throw error
}

export function singleFlight<K, T>(
  running: Map<K, Promise<T>>,
  key: K,
  work: () => Promise<T>,
): Promise<T> {
  const promise = running.get(key) ?? work().finally(() => running.delete(key))
  running.set(key, promise)
  return promise
}

const walletCallGas = 3_000_000n
const refreshAfterMs = 60_000
const idleRefreshAfterMs = 240_000
const staleAfterMs = 300_000
const refreshAtOnce = 100
const rememberedWallets = 10_000
const rereadMs = 500

/** As Permit2 reads it: the magic value and zeros. A refusal in whatever form is an answer: no. */
export async function walletAccepts(
  chain: Chain,
  to: Address,
  digest: Hex,
  signature: Hex,
  at?: bigint,
) {
  const args = [digest, signature] as const
  const data = encodeFunctionData({ abi: erc1271Abi, functionName: 'isValidSignature', args })
  try {
    const answer = await chain.call({ to, data, gas: walletCallGas }, at)
    return answer.slice(0, 66) === `${eip1271MagicValue}${'0'.repeat(56)}`
  } catch (error) {
    if (error instanceof ChainError && error.kind === 'reverted') return false
    throw error
  }
}

export function createWallets(chain: Chain, clock: Clock) {
  const codes = boundedCache<Address, { readonly has: boolean; readonly atMs: number }>(
    rememberedWallets,
  )
  const reading = new Map<Address, Promise<boolean>>()
  const knownCode = (account: Address, limitMs = staleAfterMs) => {
    const found = codes.peek(account)
    return found && clock.monotonicMs() - found.atMs < limitMs ? found.has : undefined
  }
  const readCode = async (account: Address) => {
    const has = (await chain.code(account)) !== '0x'
    codes.set(account, { has, atMs: clock.monotonicMs() })
    return has
  }
  const reread = async (account: Address) => {
    const readAtMs = codes.peek(account)?.atMs ?? Number.NEGATIVE_INFINITY
    const waitMs = readAtMs + rereadMs - clock.monotonicMs()
    if (waitMs > 0) await clock.sleep(waitMs)
    return readCode(account)
  }
  return {
    knownCode: (account: Address) => knownCode(account),
    hasCode: (account: Address) =>
      orUnavailable(clock, `the code at ${account}`, () =>
        singleFlight(reading, account, () => reread(account)),
      ),
    authorizes: (wallet: Address, digest: Hex, signature: Hex) =>
      orUnavailable(clock, `the signature check of the wallet ${wallet}`, () =>
        walletAccepts(chain, wallet, digest, signature),
      ),
    async refresh(accounts: Iterable<Address>, isIdle: boolean) {
      const limitMs = isIdle ? idleRefreshAfterMs : refreshAfterMs
      const due = [...accounts].filter((account) => knownCode(account, limitMs) === undefined)
      const next = due.slice(0, refreshAtOnce)
      await Promise.all(next.map((account) => readCode(account).catch(chainFailure)))
    },
  }
}

const everyMs = 60_000

export async function watchCode(state: ViewState) {
  const { code, chain, clock } = state
  const at = state.heads?.latest
  if (at === undefined) return
  const isOld = clock.monotonicMs() - code.lookedAtMs >= everyMs
  const mayBeBack = code.changed.length > 0 && code.lookedAt !== at.hash
  if (!code.isDue && !isOld && !mayBeBack) return
  const isWhole = code.isDue
  code.isDue = false
  try {
    const pins = pinsOf(state)
    const slotsOnly = !isWhole && code.changed.length === 0
    const changed = await changedImplementations(chain, pins, at.number, { slotsOnly })
    if (isWhole) code.versions = await versionsOf(state, at.number)
    Object.assign(code, { changed, lookedAt: at.hash, lookedAtMs: clock.monotonicMs() })
    if (!code.isDue) code.isSuspect = false
  } catch (error) {
    code.isDue ||= isWhole
    throw error
  }
}

async function versionsOf({ chain, contracts }: ViewState, at: bigint) {
  const found = await Promise.all(
    contracts.oracles.map(async (oracle) => {
      const version = await unlessRefused(oracleVersion(chain, oracle, at))
      return version === undefined ? [] : ([[oracle, version]] as const)
    }),
  )
  return new Map(found.flat())
}

export function codeFaults(state: ViewState) {
  const { changed, lookedAt, isSuspect } = state.code
  if (Object.keys(pinsOf(state)).length === 0) return []
  if (lookedAt === undefined) return ['the code of the pinned contracts has not been read yet']
  if (changed.length > 0)
    return changed.map((one) => `${changedText(one)}: the operator must pin it again`)
  return isSuspect ? ['a pinned contract was upgraded: its new code is being read'] : []
}

export async function codeNow(state: ViewState) {
  const { chain, contracts } = state
  const { number } = knownHead(state)
  const pinned = Object.keys(pinsOf(state)) as Address[]
  return implementationsOf(chain, [...contracts.oracles, ...contracts.tokens, ...pinned], number)
}

const failingMs = 10_000
const forgetEveryMs = 60_000
const leastIntervalMs = 250
/** While something is awaited, and while nothing is: a block of Polygon (domain §8). */
const [waitingMs, idleMs] = [500, 2_000]

/** An executed candidate is active until that is final. */
export const awaited =
  ({ active, slots }: Pick<Ledger, 'active' | 'slots'>) =>
  () =>
    active().length > 0 || slots().length > 0

export type LiveView = ReturnType<typeof createChainView>

type Wallets = ReturnType<typeof createWallets>

async function poll(state: ViewState, wallets: Wallets) {
  const begun = ++state.looks.begun
  try {
    const isNews = await lookAtHead(state)
    state.looks.shown = begun
    await watchCode(state)
    const due = catchUp(state).finally(() => {
      if (isNews) for (const listener of state.headListeners) listener()
    })
    await Promise.all([due, wallets.refresh(state.ledger.allowlist, !state.waits())])
    state.lastFailure = undefined
    state.lookedAtMs = state.clock.monotonicMs()
  } catch (error) {
    state.lastFailure = chainFailure(error).message
  }
}

async function catchUp(state: ViewState) {
  const { book, clock, ledger } = state
  state.readsLeft = readsPerLook
  if (viewFaults(state).length > 0) return
  const forgets = clock.monotonicMs() - state.forgotAtMs >= forgetEveryMs
  if (!forgets && !book.hasDue()) return
  const needed = new Set(ledger.active().map(({ round }) => round.questionId))
  if (forgets) {
    state.forgotAtMs = clock.monotonicMs()
    book.forgetEnded(needed)
  }
  const next = book.dueFirst(readsPerLook, needed, (id) => state.reading.has(id))
  state.readsLeft -= next.length
  const failure = await readSome(state, next)
  if (failure) throw failure
}

async function prefetch(state: ViewState) {
  const { unread, book } = state
  if (unread.size === 0 || viewFaults(state).length > 0) return
  const next: Hex[] = []
  for (const questionId of unread) {
    if (next.length >= state.readsLeft) break
    unread.delete(questionId)
    if (!book.held.has(questionId)) next.push(questionId)
  }
  const failure = await readSome(state, next)
  if (failure?.kind !== 'unavailable') return
  for (const questionId of next)
    if (!book.held.has(questionId) && !book.isMiss(questionId)) unread.add(questionId)
}

function createLooks(state: ViewState, wallets: Wallets) {
  const { clock, book } = state
  let running: AbortController | undefined
  let [startedMs, endedMs] = [clock.monotonicMs(), clock.monotonicMs()]
  let isHasty = false
  const look = async () => {
    startedMs = clock.monotonicMs()
    await poll(state, wallets)
    endedMs = clock.monotonicMs()
  }
  const untilDue = async (signal: AbortSignal) => {
    while (!signal.aborted) {
      isHasty = state.waits()
      const waits = isHasty || state.unread.size > 0 || state.heads === undefined
      const usualMs = startedMs + (waits ? waitingMs : idleMs)
      const soonestMs = endedMs + leastIntervalMs
      const dueMs = state.isCalled
        ? startedMs + leastIntervalMs
        : Math.max(soonestMs, book.hasDue() ? 0 : usualMs)
      const leftMs = dueMs - clock.monotonicMs()
      if (leftMs <= 0) break
      state.sleeper = new AbortController()
      await pause(clock, leftMs, AbortSignal.any([signal, state.sleeper.signal]))
      if (!state.sleeper.signal.aborted) break
    }
    state.isCalled = false
  }
  const follow = async (signal: AbortSignal) => {
    while (!signal.aborted) {
      await prefetch(state)
      await untilDue(signal)
      if (!signal.aborted) await look()
    }
  }
  let loop: Promise<void> | undefined
  return {
    async start() {
      if (running) return
      running = new AbortController()
      const { signal } = running
      await look()
      // Not awaited and not caught: a bug has to end the process.
      loop = follow(signal)
    },
    async stop() {
      running?.abort()
      running = undefined
      await loop
    },
    hasten() {
      if (!isHasty && state.waits()) state.sleeper.abort()
    },
  }
}

export function createChainView(...parts: Parameters<typeof newViewState>) {
  const state = newViewState(...parts)
  const { book, chain, clock } = state
  const wallets = createWallets(chain, clock)
  const known = (identifier: string) => {
    const questionId = book.idOf(identifier)
    return questionId && book.recall(questionId)
  }
  const chainView: ChainView = {
    faults: () => [...viewFaults(state), ...codeFaults(state)],
    nowSeconds() {
      // Rounded up, a comparison with whole seconds is one in milliseconds.
      const wall = BigInt(Math.ceil(clock.nowMs() / 1000))
      const head = state.heads?.latest.timestamp ?? 0n
      return head > wall ? head : wall
    },
    known,
    async question(identifier) {
      const questionId = book.idOf(identifier)
      if (questionId === undefined) return undefined
      return (
        known(questionId) ??
        orUnavailable(clock, `question ${questionId}`, () => readFirst(state, questionId))
      )
    },
    readAhead(identifiers) {
      for (const identifier of identifiers) {
        const questionId = book.idOf(identifier)
        if (questionId !== undefined && known(questionId) === undefined)
          void readFirst(state, questionId).catch(chainFailure)
      }
    },
    nonceKnownUsed(owner, nonce) {
      const { word, mask } = nonceBit(nonce)
      return (spentBits(state, owner, word) & mask) !== 0n
    },
    ...pick(wallets, 'hasCode', 'knownCode', 'authorizes'),
  }
  const setEntry = (entry: RegistryEntry) => {
    book.set(entry)
    state.unread.add(entry.questionId)
    state.sleeper.abort()
  }
  const pinned = () => {
    state.code.isDue = true
    callForLook(state)
  }
  const { start, stop, hasten } = createLooks(state, wallets)
  return {
    ...chainView,
    ...{ start, stop, setEntry, removeEntry: book.remove, pinned },
    /** By id or the slug of the registry. */
    idOf: book.idOf,
    poll: () => poll(state, wallets),
    heads: () => state.heads,
    looks: (): Readonly<ViewState['looks']> => state.looks,
    codeFaults: () => codeFaults(state),
    code: (): Readonly<Pick<CodeWatch, 'changed' | 'versions'>> => state.code,
    codeNow: () => codeNow(state),
    pins: () => pinsOf(state),
    /** What the ledger writes is looked at sooner; its registry and pins hold at once. */
    follow(events: readonly LedgerEvent[]) {
      hasten()
      for (const event of events) {
        if (event.kind === 'question.set') setEntry(event.entry)
        else if (event.kind === 'question.removed') book.remove(event.questionId)
        else if (event.kind === 'implementation.set') pinned()
      }
    },
    counts: () => ({ known: book.held.size, due: book.countDue() }),
    failing: () =>
      clock.monotonicMs() - state.lookedAtMs < failingMs ? undefined : state.lastFailure,
    doubt(questionId: Hex) {
      book.doubt(questionId)
      state.sleeper.abort()
    },
    onHead(listener: () => void) {
      state.headListeners.add(listener)
      return () => state.headListeners.delete(listener)
    },
    rounds: state.rounds,
    entry: (questionId: Hex) => book.entries.get(questionId),
    peek: (questionId: Hex) => book.held.peek(questionId)?.question,
    noteNonces(owner: Address, word: bigint, bitmap: bigint, at: Hex) {
      if (at === state.heads?.latest.hash || at === state.heads?.finalized.hash)
        addSpent(state, owner, word, bitmap)
    },
  }
}

const tries = 4
const readAtOnce = 64
const readMs = 3_000

const read = (state: ViewState, questionId: Hex) =>
  singleFlight(state.reading, questionId, () => readNow(state, questionId))

async function readNow(state: ViewState, questionId: Hex) {
  const { book, rounds } = state
  for (let tried = 0; tried < tries; tried += 1) {
    const entry = book.entries.get(questionId)
    const { number } = knownHead(state)
    const changes = book.changes()
    const round = await rounds.read(questionId, entry, number)
    const isOld = book.isDirty(keysOf(questionId, round ?? entry?.request), changes)
    if (isOld || book.entries.get(questionId) !== entry) continue
    if (round) return book.keep(round, changes)
    book.noteMiss(questionId, changes)
    return undefined
  }
  const detail = `the chain advanced each time question ${questionId} was read`
  throw new ChainError('unavailable', detail)
}

/** For a limited time; late reads go on by themselves. Resolves to the first failure. */
async function readSome(state: ViewState, questionIds: readonly Hex[]) {
  const readOne = (questionId: Hex) =>
    read(state, questionId).then(
      () => [],
      (error: unknown) => [chainFailure(error)],
    )
  const readAll = async (signal: AbortSignal) => {
    const failures: ChainError[] = []
    for (let at = 0; at < questionIds.length && !signal.aborted; at += readAtOnce) {
      const part = questionIds.slice(at, at + readAtOnce)
      failures.push(...(await Promise.all(part.map(readOne))).flat())
      if (failures[0]?.kind === 'unavailable') break
    }
    return failures[0]
  }
  return within(state.clock, readMs, readAll).catch(chainFailure)
}

async function readFirst(state: ViewState, questionId: Hex) {
  // A miss that a first read notes is not final before that read ends.
  if (state.book.isMiss(questionId) && !state.firstReads.has(questionId)) return undefined
  return singleFlight(state.firstReads, questionId, () => readTwice(state, questionId))
}

function callForLook(state: ViewState) {
  state.isCalled = true
  state.sleeper.abort()
}

/** It may be younger than the followed head: that head is waited for. */
async function readTwice(state: ViewState, questionId: Hex) {
  const headNumber = () => state.heads?.latest.number ?? 0n
  const found = await read(state, questionId)
  const seen = headNumber()
  if (found !== undefined) return found
  const newest = await state.chain.block('latest')
  if (newest === null || newest.number <= seen) return undefined
  callForLook(state)
  await within(state.clock, readMs, (signal) => headReached(state, newest.number, signal))
  return read(state, questionId)
}

function headReached(state: ViewState, number: bigint, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const look = () => {
      if ((state.heads?.latest.number ?? 0n) >= number) resolve()
    }
    state.headListeners.add(look)
    signal.addEventListener('abort', () => state.headListeners.delete(look))
    look()
  })
}
