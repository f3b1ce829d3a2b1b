/** Gamma, Polymarket's public market API (domain §5.4). */
import * as z from 'zod/mini'
import { type Fetch, type HttpAnswer, type Markets, type SlugLookUp, SlugLookUpError } from '#ports'
import { jsonOf, readCapped } from '#protocol/capped'
import { networkFault } from '#protocol/network-words'
import { lowercase } from '#protocol/words'

const maxAnswerBytes = 1024 * 1024
const maxListBytes = 16 * maxAnswerBytes
const maxRetryAfterSeconds = 60
const retryAfterSeconds = 5

const Id = z.pipe(
  z.nullish(z.union([z.string().check(z.regex(/^0x[0-9a-fA-F]{64}$/)), z.literal('')])),
  z.transform((text) => (text ? lowercase(text) : undefined)),
)

const MaybeText = z.pipe(
  z.nullish(z.string()),
  z.transform((text) => text || undefined),
)

const Odd = <T extends z.ZodMiniType>(shape: T) => z.catch(z.optional(shape), undefined)

const GammaMarket = z.object({
  slug: z.string(),
  question: MaybeText,
  negRisk: z.nullish(z.boolean()),
  questionID: Id,
  negRiskRequestID: Id,
  endDate: MaybeText,
  umaResolutionStatus: MaybeText,
  umaResolutionStatuses: MaybeText,
  closed: Odd(z.boolean()),
  gameStartTime: Odd(z.string()),
  outcomePrices: Odd(z.union([z.string(), z.array(z.unknown())])),
})
const GammaList = z.array(z.unknown())
const GammaEvent = z.object({ markets: GammaList })

const badMarket = 'the response is not the market of this slug'

/** Anything but 200 with this slug, or 404, is a failure, not a miss. */
export function gammaLookUp(fetch: Fetch, url: string): SlugLookUp {
  const { market } = gammaMarkets(fetch, url)
  return async (slug, signal) => (await market(slug, signal))?.questionId
}

export function gammaMarkets(fetch: Fetch, url: string): Markets {
  const base = url.replace(/\/+$/, '')
  const listAt = async (query: URLSearchParams, signal: AbortSignal) => {
    const text = await textAt(fetch, `${base}/markets?${query}`, signal, maxListBytes)
    const list = GammaList.safeParse(text === undefined ? undefined : jsonOf(text))
    if (list.success) return list.data
    throw new SlugLookUpError('the response is not a list of markets')
  }
  return {
    async market(slug, signal) {
      const text = await textAt(fetch, `${base}/markets/slug/${encodeURIComponent(slug)}`, signal)
      if (text === undefined) return undefined
      const market = marketOf(jsonOf(text))
      if (market?.slug !== slug) throw new SlugLookUpError(badMarket)
      return market
    },
    async event(slug, signal) {
      const path = `${base}/events/slug/${encodeURIComponent(slug)}`
      const text = await textAt(fetch, path, signal, maxListBytes)
      if (text === undefined) return undefined
      const event = GammaEvent.safeParse(jsonOf(text))
      if (!event.success) throw new SlugLookUpError('the response is not the event of this slug')
      return marketsIn(event.data.markets)
    },
    async page({ endsAfter, endsBefore, offset, limit }, signal) {
      const query = new URLSearchParams({
        closed: 'false',
        order: 'endDate',
        ascending: 'true',
        end_date_min: endsAfter,
        ...(endsBefore === undefined ? {} : { end_date_max: endsBefore }),
        offset: String(offset),
        limit: String(limit),
      })
      const list = await listAt(query, signal)
      return { markets: marketsIn(list), isLast: list.length < limit }
    },
    async byQuestions(questionIds, signal) {
      const asked = questionIds.map((id): [string, string] => ['question_ids', id])
      const found = await Promise.all(
        // Gamma leaves closed ones out unless they are asked for, and then it has no others.
        [false, true].map(async (closed) => {
          const query = new URLSearchParams([...asked, ['limit', String(questionIds.length)]])
          if (closed) query.set('closed', 'true')
          return marketsIn(await listAt(query, signal))
        }),
      )
      return found
        .flat()
        .filter(({ questionId: id }) => id !== undefined && questionIds.includes(id))
    },
  }
}

const marketsIn = (list: readonly unknown[]) => list.flatMap((one) => marketOf(one) ?? [])

function marketOf(json: unknown) {
  const market = GammaMarket.safeParse(json)
  if (!market.success) return undefined
  const { slug, question, negRisk, questionID, negRiskRequestID, endDate, ...status } = market.data
  const { closed, gameStartTime, outcomePrices } = market.data
  const statuses = z.array(z.string()).safeParse(jsonOf(status.umaResolutionStatuses ?? ''))
  return {
    slug,
    title: question ?? slug,
    questionId: negRisk === true ? negRiskRequestID : questionID,
    endsAt: endDate,
    status: status.umaResolutionStatus,
    statuses: statuses.success ? statuses.data : [],
    closed,
    gameStartsAt: instantOf(gameStartTime),
    prices: pricesOf(outcomePrices),
  }
}

/** `2025-10-24 23:00:00+00`, as a database writes it. */
function instantOf(text: string | undefined) {
  const ms = Date.parse((text ?? '').replace(' ', 'T').replace(/([+-]\d\d)$/, '$1:00'))
  return Number.isNaN(ms) ? undefined : new Date(ms).toISOString()
}

/** Domain §5.3: the first is p2. */
function pricesOf(given: string | readonly unknown[] | undefined) {
  const list = typeof given === 'string' ? jsonOf(given) : given
  if (!Array.isArray(list) || list.length !== 2) return undefined
  const [p2 = Number.NaN, p1 = Number.NaN] = list.map((one) =>
    typeof one === 'number' || (typeof one === 'string' && one.trim() !== '')
      ? Number(one)
      : Number.NaN,
  )
  return p1 >= 0 && p1 <= 1 && p2 >= 0 && p2 <= 1 ? { p2, p1 } : undefined
}

async function textAt(fetch: Fetch, url: string, signal: AbortSignal, maxBytes = maxAnswerBytes) {
  try {
    const { status, body, headers } = await fetch(url, {
      headers: { accept: 'application/json' },
      redirect: 'manual',
      credentials: 'omit',
      signal,
    })
    if (status === 200) {
      const text = await readCapped(body, maxBytes)
      if (text !== undefined) return text
      throw new SlugLookUpError(`the response is over ${maxBytes} bytes`)
    }
    body?.cancel().catch(() => undefined)
    if (status === 404) return undefined
    throw new SlugLookUpError(
      `status ${status}`,
      status === 429 ? retryAfterMs(headers) : undefined,
    )
  } catch (error) {
    if (error instanceof SlugLookUpError) throw error
    if (signal.aborted) throw new SlugLookUpError('timed out')
    // Its message may name the address (R5).
    throw new SlugLookUpError(networkFault(error))
  }
}

function retryAfterMs(headers: HttpAnswer['headers']) {
  const text = headers.get('retry-after') ?? ''
  const seconds = /^\d{1,6}$/.test(text)
    ? Math.min(Number(text), maxRetryAfterSeconds)
    : retryAfterSeconds
  return 1000 * seconds
}
