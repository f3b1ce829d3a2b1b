/**
 * `-v`: requests and responses on stderr. No headers, no credentials of a URL, and of long hex,
 * which may be a signature, only the beginning (R5).
 */
import type { Clock, Fetch } from '#ports'
import { readCapped } from '#protocol/capped'
import { type Conceal, concealing } from '#protocol/url-secrets'
import { publicUrl, visible } from './render.js'

const [shownCharacters, readBytes] = [2_000, 1024 * 1024]

type Tell = (line: string) => void
/** `others`: URLs whose credentials are not shown either, whoever repeats them. */
export const tracedFetch =
  (fetch: Fetch, clock: Clock, tell: Tell, others: readonly string[] = []): Fetch =>
  async (input, init) => {
    const { place, conceal } = placeOf(String(input), others)
    const shown = (body: unknown) =>
      safe(typeof body === 'string' ? body : JSON.stringify(body), conceal)
    tell(`> ${init?.method ?? 'GET'} ${place} ${shown(init?.body ?? '')}`)
    const startMs = clock.monotonicMs()
    const since = () => `in ${Math.round(clock.monotonicMs() - startMs)} ms`
    try {
      const { status, headers, body } = await fetch(input, init)
      const [seen, rest] = body?.tee() ?? [null, null]
      const text = await readCapped(seen, readBytes).catch(() => undefined)
      tell(`< ${status} ${since()} ${shown(text ?? '(not read)')}`)
      return { status, headers, body: rest }
    } catch (error) {
      const name = error instanceof Error && 'code' in error ? String(error.code) : 'unknown'
      tell(`< failed ${since()}: ${shown(name)}`)
      throw error
    }
  }

const route =
  /^(.*)(\/(?:v1\/proposals|propose\/batch).*|\/(?:healthz|readyz|openapi\.json)|\/(?:markets|events)\/slug\/[^/?]+|\/markets\?[^/]*)$/

function placeOf(href: string, others: readonly string[]) {
  const [, base = href, path = ''] = route.exec(href) ?? []
  return { place: `${publicUrl(base)}${path}`, conceal: concealing([base, ...others]) }
}

function safe(text: string, conceal: Conceal) {
  const told = conceal(text).replace(/(0x)?([0-9a-f]{65,})/gi, (whole, prefix = '', hex = '') =>
    // A nonce has up to 78 digits, and is no secret.
    prefix === '' && /^\d{1,78}$/.test(hex)
      ? whole
      : `${prefix}${hex.slice(0, 8)}…(${Math.ceil(hex.length / 2)} bytes)`,
  )
  return visible(
    told.length > shownCharacters
      ? `${told.slice(0, shownCharacters)}… (${told.length} characters)`
      : told,
  )
}
