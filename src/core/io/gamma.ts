/** Gamma, Polymarket's public market API, asked for the question of a slug (domain §5.4). */
import * as z from 'zod/mini'
import { type Fetch, type SlugLookUp, SlugLookUpError, TransportError } from '../ports.js'
import { jsonOf, readCapped } from '../protocol/capped.js'
import { lowercase } from '../protocol/words.js'

/** A market is some ten kilobytes, with all its events some hundred. */
const maxAnswerBytes = 1024 * 1024
/** How long a 429 is respected: what it says up to a minute, else this. */
const maxRetryAfterSeconds = 60
const retryAfterSeconds = 5

/** Markets without a question of the oracle leave the ids out, or say `null` or `""`. */
const Id = z.pipe(
  z.nullish(z.union([z.string().check(z.regex(/^0x[0-9a-fA-F]{64}$/)), z.literal('')])),
  z.transform((text) => (text ? lowercase(text) : undefined)),
)

/** The little of a market that matters here; everything else may be as it likes. */
const Market = z.object({
  slug: z.string(),
  negRisk: z.nullish(z.boolean()),
  questionID: Id,
  negRiskRequestID: Id,
})

/**
 * Look-ups by `GET <url>/markets/slug/<slug>`. `url`: base URL without query; where it may point is
 * the configuration's part. `fetch` is one that follows no redirect. The id is the adapter's:
 * `questionID`, or for neg-risk markets `negRiskRequestID`. Answers that are no market of this
 * slug, over 1 MiB, or with another status than 200 and 404 are failures, not misses.
 */
export function gammaLookUp(fetch: Fetch, url: string): SlugLookUp {
  const base = url.replace(/\/+$/, '')
  return async (slug, signal) => {
    const text = await textAt(fetch, `${base}/markets/slug/${encodeURIComponent(slug)}`, signal)
    if (text === undefined) return undefined
    const market = Market.safeParse(jsonOf(text))
    if (!market.success || market.data.slug !== slug)
      throw new SlugLookUpError('the answer is not the market of this slug')
    return market.data.negRisk === true ? market.data.negRiskRequestID : market.data.questionID
  }
}

/** `undefined` for 404. */
async function textAt(fetch: Fetch, url: string, signal: AbortSignal): Promise<string | undefined> {
  try {
    const { status, body, headers } = await fetch(url, {
      headers: { accept: 'application/json' },
      redirect: 'manual',
      credentials: 'omit',
      signal,
    })
    if (status === 200) {
      const text = await readCapped(body, maxAnswerBytes)
      if (text !== undefined) return text
      throw new SlugLookUpError(`the answer is over ${maxAnswerBytes} bytes`)
    }
    // The connection may be gone already, and nobody wants this body.
    body?.cancel().catch(() => undefined)
    if (status === 404) return undefined
    throw new SlugLookUpError(
      `the answer has status ${status}`,
      status === 429 ? retryAfterMs(headers) : undefined,
    )
  } catch (error) {
    if (error instanceof SlugLookUpError) throw error
    if (signal.aborted) throw new SlugLookUpError('no answer came in time')
    // Whatever else breaks an exchange; its message may name the address (R5).
    throw new SlugLookUpError(
      `no answer came${error instanceof TransportError ? ` (${error.code})` : ''}`,
    )
  }
}

function retryAfterMs(headers: Headers): number {
  const text = headers.get('retry-after') ?? ''
  const seconds = /^\d{1,6}$/.test(text)
    ? Math.min(Number(text), maxRetryAfterSeconds)
    : retryAfterSeconds
  return 1000 * seconds
}
