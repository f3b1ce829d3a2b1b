/** New blocks as nodes announce them, where the configuration names such nodes. */
import type { GatewayConfig } from '../gateway/config.js'
import type { LiveView } from '../gateway/view/view.js'
import type { Closers } from '../io/closers.js'
import type { Machine } from '../ports.js'
import type { HeadsVitals } from '../protocol/vitals.js'

/**
 * The view looks sooner for what is announced, until the closers close. How the subscription stands;
 * `undefined` without `chain.ws_urls`.
 */
export async function announceHeads(
  { clock, random }: Pick<Machine, 'clock' | 'random'>,
  { chain: { ws_urls: urls, id, max_head_age_seconds: maxHeadAgeSeconds } }: GatewayConfig,
  { announce }: Pick<LiveView, 'announce'>,
  closers: Closers,
): Promise<(() => HeadsVitals) | undefined> {
  if (urls === undefined) return undefined
  const { followHeads } = await import('../io/rpc/heads-socket.js')
  const mostSilenceMs = maxHeadAgeSeconds * 1_000
  const options = { chainId: id, onHead: announce, mostSilenceMs, clock, random }
  const { now, close } = followHeads(urls, options)
  closers.add(close)
  return now
}
