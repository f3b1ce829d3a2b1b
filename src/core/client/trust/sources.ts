/** Where the contexts of questions come from: a node, a gateway, or both. */
import type { Chain, Clock } from '../../ports.js'
import type { GatewayClient } from '../gateway/gateway-client.js'
import { type ContextSource, chainContexts, rulesUnknown, withDirect } from './context.js'
import type { QuestionContext, Trust } from './trust.js'

export interface SourceParts {
  readonly trust: Trust
  readonly clock: Clock
  readonly chain: Chain | undefined
  readonly gateway?: (() => Promise<GatewayClient>) | undefined
}

/**
 * From the chain where there is a node, free of the rate limit; else, and for questions of kind
 * `direct`, from the gateway. Rejects as `gateway` does where there is neither.
 */
export async function contextsFrom({
  trust,
  clock,
  chain,
  gateway,
}: SourceParts): Promise<ContextSource> {
  const fromGateway = async (open: () => Promise<GatewayClient>) => {
    const { gatewayContexts } = await import('./gateway-contexts.js')
    return gatewayContexts(await open(), trust, clock)
  }
  if (chain === undefined) {
    if (gateway === undefined) throw new Error('contexts come from a node or a gateway')
    return withoutRules(await fromGateway(gateway))
  }
  const own = chainContexts(chain, trust, clock)
  return gateway === undefined ? own : withDirect(chain, trust, own, () => fromGateway(gateway))
}

export const noNodeForRules = rulesUnknown('clarifications are read from a node (--rpc-url)')

const withoutRules = (source: ContextSource): ContextSource => ({
  async contexts(identifiers, options) {
    const results = await source.contexts(identifiers, options)
    return results.map((one) =>
      one.error === undefined ? { ...one, notes: [...one.notes, noNodeForRules] } : one,
    )
  },
})

/** The context of one identifier. */
export async function contextFrom(
  source: ContextSource,
  identifier: string,
  { signal, note }: { readonly signal: AbortSignal; note(text: string): void },
): Promise<QuestionContext> {
  const [result] = await source.contexts([identifier], { signal })
  if (result === undefined) throw new Error('a source answered no context for an identifier')
  if (result.error) throw result.error
  for (const text of result.notes) note(text)
  return result.context
}
