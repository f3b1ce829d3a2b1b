/**
 * What is looked up for a call, bounded in memory, rate and time (R17): code at an address and what
 * it says of a signature (domain §3.3), and slugs that no registry has (domain §5.4).
 */
import { encodeFunctionData } from 'viem'
import { eip1271MagicValue, erc1271Abi } from '#chain/contracts'
import {
  type Chain,
  ChainError,
  type Clock,
  type Hex,
  type SlugLookUp,
  SlugLookUpError,
} from '#ports'
import { boundedCache } from '#protocol/bounded-cache'
import { UnavailableError } from '#protocol/errors'
import type { Address } from '#protocol/schema'
import { isQuestionId } from '#protocol/words'
import type { ChainView } from './state.js'

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

const lookUpMs = 1_500
const missMs = 10_000
const freshMs = 60_000
const heldMs = 600_000
const rememberedSlugs = 20_000
const rememberedMisses = 10_000
const lookUpsAtOnce = 32
/** Gamma takes about 300 per 10 s from one address (domain §5.4); others may share ours. */
const windowMs = 10_000
const lookUpsPerWindow = 250

export type Slugs = ReturnType<typeof createSlugs>

interface Meaning {
  readonly questionId: Hex
  refreshAtMs: number
  waitsFromMs: number
}

export function createSlugs(clock: Clock, lookUp: SlugLookUp) {
  const meanings = boundedCache<string, Meaning>(rememberedSlugs)
  const misses = boundedCache<string, number>(rememberedMisses)
  const running = new Map<string, Promise<Hex | undefined>>()
  const begun: number[] = []
  let pausedUntilMs = Number.NEGATIVE_INFINITY

  const admit = () => {
    const nowMs = clock.monotonicMs()
    while (begun[0] !== undefined && nowMs - begun[0] >= windowMs) begun.shift()
    if (nowMs < pausedUntilMs) throw new SlugLookUpError('the slug source is rate-limiting')
    if (running.size >= lookUpsAtOnce || begun.length >= lookUpsPerWindow)
      throw new SlugLookUpError('too many slugs are being looked up')
    begun.push(nowMs)
  }
  const ask = async (slug: string): Promise<Hex | undefined> => {
    try {
      admit()
      const late = () => new SlugLookUpError('timed out')
      const questionId = await within(clock, lookUpMs, (signal) => lookUp(slug, signal), late)
      const nowMs = clock.monotonicMs()
      meanings.delete(slug)
      misses.delete(slug)
      const [refreshAtMs, waitsFromMs] = [nowMs + freshMs, nowMs + heldMs]
      if (questionId === undefined) misses.set(slug, nowMs + missMs)
      else meanings.set(slug, { questionId, refreshAtMs, waitsFromMs })
      return questionId
    } catch (error) {
      if (!(error instanceof SlugLookUpError)) throw error
      const nowMs = clock.monotonicMs()
      if (error.retryAfterMs !== undefined) pausedUntilMs = nowMs + error.retryAfterMs
      const meaning = meanings.get(slug)
      if (meaning === undefined) throw unavailable(slug, error)
      meaning.refreshAtMs = nowMs + missMs
      meaning.waitsFromMs = Math.max(meaning.waitsFromMs, nowMs + missMs)
      return meaning.questionId
    }
  }
  const askOnce = (slug: string) => singleFlight(running, slug, () => ask(slug))
  const known = (slug: string): Hex | undefined => {
    const meaning = meanings.peek(slug)
    const nowMs = clock.monotonicMs()
    if (meaning === undefined || nowMs >= meaning.waitsFromMs) return undefined
    if (nowMs >= meaning.refreshAtMs)
      void askOnce(slug).catch((error: unknown) => {
        if (!(error instanceof UnavailableError)) throw error
      })
    return meaning.questionId
  }
  return {
    known,
    async idOf(slug: string) {
      const questionId = known(slug)
      if (questionId !== undefined) return questionId
      const isMiss = clock.monotonicMs() < (misses.get(slug) ?? Number.NEGATIVE_INFINITY)
      return isMiss ? undefined : askOnce(slug)
    },
    unconfirmed(slug: string) {
      const meaning = meanings.get(slug)
      if (meaning === undefined) return
      const untilMs = clock.monotonicMs() + missMs
      meaning.refreshAtMs = Math.min(meaning.refreshAtMs, untilMs)
      meaning.waitsFromMs = Math.min(meaning.waitsFromMs, untilMs)
    },
  }
}

function unavailable(slug: string, cause: SlugLookUpError) {
  const detail = `slug ${slug} cannot be looked up now: ${cause.message}`
  return new UnavailableError('slug_unavailable', detail, {
    httpStatus: 503,
    retryAfterMs: 2_000,
    cause,
    hint: 'wait, then retry the same request, or give the question id',
  })
}

export function namedBySlugs<View extends ChainView>(
  view: View,
  slugs: Slugs,
  registered: ReadonlySet<string>,
  clock: Clock,
): View {
  const isRegistered = (identifier: string) =>
    isQuestionId(identifier) || registered.has(identifier)
  const lookedUp = async (slug: string) => {
    const questionId = await slugs.idOf(slug)
    if (questionId === undefined) return undefined
    const question = view.known(questionId) ?? (await view.question(questionId))
    if (question === undefined) slugs.unconfirmed(slug)
    return question
  }
  return {
    ...view,
    known(identifier) {
      if (isRegistered(identifier)) return view.known(identifier)
      const questionId = slugs.known(identifier)
      return questionId === undefined ? undefined : view.known(questionId)
    },
    question(identifier) {
      if (isRegistered(identifier)) return view.question(identifier)
      return orUnavailable(clock, `the question of the slug ${identifier}`, () =>
        lookedUp(identifier),
      )
    },
  }
}
