/**
 * Slugs that no registry has (domain §5.4). The response is a hint: the chain confirms or refuses
 * the id as one that a caller gave. Bounded in memory, rate and time (R17).
 */

import { type Clock, type Hex, type SlugLookUp, SlugLookUpError } from '#ports'
import { boundedCache } from '#protocol/bounded-cache'
import { UnavailableError } from '#protocol/errors'
import { isQuestionId } from '#protocol/words'
import type { ChainView } from './chain-view.js'
import { orUnavailable, singleFlight, within } from './time-limits.js'

/** Look-up and first read together (contract §2). */
const firstReadMs = 3_000
const lookUpMs = 1_500
/** Contract §2. Also how long after a failure a known slug is left alone. */
const missMs = 10_000
const freshMs = 60_000
const heldMs = 600_000
const rememberedSlugs = 20_000
const rememberedMisses = 10_000
const lookUpsAtOnce = 32
/** Gamma takes about 300 per 10 s from one address (domain §5.4); others may share ours. */
const windowMs = 10_000
const lookUpsPerWindow = 250

export interface Slugs {
  known(slug: string): Hex | undefined
  /** A known one keeps its meaning while it cannot be looked up. */
  idOf(slug: string): Promise<Hex | undefined>
  /** A miss, and kept no longer than one. */
  unconfirmed(slug: string): void
}

interface Meaning {
  readonly questionId: Hex
  refreshAtMs: number
  waitsFromMs: number
}

export function createSlugs(clock: Clock, lookUp: SlugLookUp): Slugs {
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
      if (questionId === undefined) misses.set(slug, nowMs + missMs)
      else
        meanings.set(slug, {
          questionId,
          refreshAtMs: nowMs + freshMs,
          waitsFromMs: nowMs + heldMs,
        })
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
    if (nowMs >= meaning.refreshAtMs) {
      // Not awaited; a bug has to end the process.
      void askOnce(slug).catch((error: unknown) => {
        if (!(error instanceof UnavailableError)) throw error
      })
    }
    return meaning.questionId
  }
  return {
    known,
    async idOf(slug) {
      const questionId = known(slug)
      if (questionId !== undefined) return questionId
      const isMiss = clock.monotonicMs() < (misses.get(slug) ?? Number.NEGATIVE_INFINITY)
      return isMiss ? undefined : askOnce(slug)
    },
    unconfirmed(slug) {
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

/** The registry's own slugs have the last word. */
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
      return orUnavailable(
        within(clock, firstReadMs, () => lookedUp(identifier)),
        `the question of the slug ${identifier}`,
      )
    },
  }
}
