/** Slugs that no registry has (domain §5.4), looked up with bounds on memory, rate and time (R17). */
import { type Clock, type Hex, type SlugLookUp, SlugLookUpError } from '#ports'
import { boundedCache } from '#protocol/bounded-cache'
import { UnavailableError } from '#protocol/errors'
import type { ChainView } from './state.js'
import { type LiveView, orUnavailable, singleFlight, within } from './view.js'

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

export function namedBySlugs<View extends ChainView & Pick<LiveView, 'idOf'>>(
  view: View,
  slugs: Slugs,
  clock: Clock,
): View {
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
      if (view.idOf(identifier) !== undefined) return view.known(identifier)
      const questionId = slugs.known(identifier)
      return questionId === undefined ? undefined : view.known(questionId)
    },
    question(identifier) {
      if (view.idOf(identifier) !== undefined) return view.question(identifier)
      return orUnavailable(clock, `the question of the slug ${identifier}`, () =>
        lookedUp(identifier),
      )
    },
  }
}
