/**
 * `-v`: requests and responses on stderr. No headers, no credentials of a URL, and of long hex,
 * which may be a signature, only the beginning (R5).
 */
import type { Chain, Clock, Fetch, Ports } from '#ports'
import { readCapped } from '#protocol/capped'
import { type Conceal, concealing } from '#protocol/url-secrets'
import { publicUrl, visible } from './render.js'

/** How much of a body is shown, in characters, and read for it, in bytes. */
const [shownCharacters, readBytes] = [2_000, 1024 * 1024]

type Tell = (line: string) => void
type Stopwatch = Pick<Clock, 'monotonicMs'>

const since = (clock: Stopwatch, startMs: number) =>
  `${Math.round(clock.monotonicMs() - startMs)} ms`

/** `others`: URLs whose credentials are not shown either, whoever repeats them. */
export const tracedFetch =
  (fetch: Fetch, clock: Stopwatch, tell: Tell, others: readonly string[] = []): Fetch =>
  async (input, init) => {
    const { href, method } = { href: String(input), method: init?.method ?? 'GET' }
    const { place, conceal } = placeOf(href, others)
    const shown = (body: unknown) => safe(body, conceal)
    tell(`> ${method} ${place} ${shown(init?.body ?? '')}`)
    const startMs = clock.monotonicMs()
    try {
      const response = await fetch(input, init)
      const body = await readCapped(response.clone().body, readBytes).catch(() => undefined)
      tell(`< ${response.status} in ${since(clock, startMs)} ${shown(body ?? '(not read)')}`)
      return response
    } catch (error) {
      tell(`< failed in ${since(clock, startMs)}: ${shown(nameOf(error))}`)
      throw error
    }
  }

export function tracedEdges<Edges extends Ports['edges']>(
  edges: Edges,
  clock: Stopwatch,
  tell: Tell,
) {
  return {
    ...edges,
    fetch: async () => tracedFetch(await edges.fetch(), clock, tell),
    chain: async (urls: readonly string[], expected?: Parameters<Edges['chain']>[1]) => {
      const chain = await edges.chain(urls, expected)
      const conceal = concealing(urls)
      const place = urls.map(publicUrl).join(', ')
      return new Proxy(chain, {
        get(target, name, receiver) {
          const method: unknown = Reflect.get(target, name, receiver)
          if (typeof method !== 'function') return method
          return (...args: unknown[]) => {
            const startMs = clock.monotonicMs()
            const outcome: unknown = method.apply(target, args)
            if (!(outcome instanceof Promise)) return outcome
            tell(`> RPC ${place} ${String(name)} ${safe(args, conceal)}`)
            return outcome.then(
              (value: unknown) => {
                tell(`< ${String(name)} in ${since(clock, startMs)} ${safe(value, conceal)}`)
                return value
              },
              (error: unknown) => {
                const text = error instanceof Error ? error.message : nameOf(error)
                tell(`< ${String(name)} failed in ${since(clock, startMs)}: ${safe(text, conceal)}`)
                throw error
              },
            )
          }
        },
      }) as Chain
    },
  }
}

const route =
  /^(.*)(\/(?:v1\/proposals|propose\/batch).*|\/(?:healthz|readyz|openapi\.json)|\/(?:markets|events)\/slug\/[^/?]+|\/markets\?[^/]*)$/

function placeOf(href: string, others: readonly string[]) {
  const [, base = href, path = ''] = route.exec(href) ?? []
  return { place: `${publicUrl(base)}${path}`, conceal: concealing([base, ...others]) }
}

function safe(value: unknown, conceal: Conceal) {
  const text =
    typeof value === 'string'
      ? value
      : JSON.stringify(value, (_, one: unknown) => (typeof one === 'bigint' ? String(one) : one))
  const told = conceal(text ?? '').replace(
    /(0x)?([0-9a-f]{65,})/gi,
    (whole, prefix = '', hex = '') =>
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

const nameOf = (error: unknown) =>
  error instanceof Error && 'code' in error ? String(error.code) : 'unknown'
