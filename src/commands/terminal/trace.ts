/**
 * `-v` and PROPOSER_DEBUG: requests and responses on stderr. No headers, no credentials of a URL,
 * and of long hex, which may be a signature or a transaction, only the beginning (R5).
 */
import type { Chain, Clock, Fetch, Ports } from '../../core/ports.js'
import { readCapped } from '../../core/protocol/capped.js'
import { type Conceal, concealing } from '../../core/protocol/url-secrets.js'
import { publicUrl, visible } from './render.js'

/** How much of a body is shown, in characters, and read for it, in bytes. */
const [shownCharacters, readBytes] = [2_000, 1024 * 1024]

/** The same edges, telling `tell` a line for each request and each response. */
export function tracedEdges<Edges extends Ports['edges']>(
  edges: Edges,
  clock: Pick<Clock, 'monotonicMs'>,
  tell: (line: string) => void,
): Edges {
  const since = (startMs: number) => `${Math.round(clock.monotonicMs() - startMs)} ms`
  return {
    ...edges,
    fetch: async () => {
      const fetch = await edges.fetch()
      const traced: Fetch = async (input, init) => {
        const { href, method } = { href: String(input), method: init?.method ?? 'GET' }
        const { place, conceal } = gatewayPlace(href)
        const shown = (body: unknown) => safe(body, conceal)
        tell(`> ${method} ${place} ${shown(init?.body ?? '')}`)
        const startMs = clock.monotonicMs()
        try {
          const response = await fetch(input, init)
          const body = await readCapped(response.clone().body, readBytes).catch(() => undefined)
          tell(`< ${response.status} in ${since(startMs)} ${shown(body ?? '(not read)')}`)
          return response
        } catch (error) {
          tell(`< failed in ${since(startMs)}: ${shown(nameOf(error))}`)
          throw error
        }
      }
      return traced
    },
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
                tell(`< ${String(name)} in ${since(startMs)} ${safe(value, conceal)}`)
                return value
              },
              (error: unknown) => {
                const text = error instanceof Error ? error.message : nameOf(error)
                tell(`< ${String(name)} failed in ${since(startMs)}: ${safe(text, conceal)}`)
                throw error
              },
            )
          }
        },
      }) as Chain
    },
  }
}

/** Host and route of a call. What stands before the route may be a key, and is not repeated. */
function gatewayPlace(href: string): { readonly place: string; readonly conceal: Conceal } {
  const starts = ['/v1/proposals', '/propose/batch'].map((route) => href.lastIndexOf(route))
  const at = Math.max(...starts)
  const base = at < 0 ? href : href.slice(0, at)
  return {
    place: `${publicUrl(base)}${at < 0 ? '' : href.slice(at)}`,
    conceal: concealing([base]),
  }
}

/** Text of outside or ours as one line of a terminal, without what must not be shown. */
function safe(value: unknown, conceal: Conceal): string {
  const text =
    typeof value === 'string'
      ? value
      : JSON.stringify(value, (_, one: unknown) => (typeof one === 'bigint' ? String(one) : one))
  const told = conceal(text ?? '').replace(
    /(0x)?([0-9a-f]{65,})/gi,
    (_, prefix = '', hex = '') =>
      `${prefix}${hex.slice(0, 8)}…(${Math.ceil(hex.length / 2)} bytes)`,
  )
  return visible(
    told.length > shownCharacters
      ? `${told.slice(0, shownCharacters)}… (${told.length} characters)`
      : told,
  )
}

const nameOf = (error: unknown) =>
  error instanceof Error && 'code' in error ? String(error.code) : 'unknown'
