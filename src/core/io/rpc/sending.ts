/** A signed transaction goes to every node of the chain (robustness §3). */
import { ChainError, type Hex } from '../../ports.js'
import type { Router } from './router.js'
import { Bytes32, lower } from './shapes.js'

type Outcome = { readonly hash: Hex } | { readonly error: ChainError }

/**
 * Resolves with the hash. One node's acceptance is enough; else what says most about the
 * transaction wins: a node that holds it, then a definite refusal, and only then "unknown". Nodes
 * aside are handed it too, for its reach, but are not waited for, and of their refusals none
 * counts, nor does an acceptance of a nonce that the others say is used; those on another chain get
 * nothing. Rejects with `ChainError`.
 */
export async function sendToAll(router: Router, raw: Hex): Promise<Hex> {
  const { table } = router
  const contradiction = table.conflict()
  if (contradiction) throw new ChainError('unavailable', contradiction.why)
  const takers = table.takers()
  if (takers.length === 0) throw new ChainError('unavailable', table.whyNone())
  const trusted = table.order().filter((index) => takers.includes(index))
  const submit = async (index: number): Promise<Outcome> => {
    const outcome = await router.hand(index, { method: 'eth_sendRawTransaction', params: [raw] })
    if (outcome instanceof ChainError) return { error: outcome }
    const hash = Bytes32.safeParse(outcome)
    if (hash.success) return { hash: lower(hash.data) }
    return {
      error: new ChainError(
        'unavailable',
        'eth_sendRawTransaction: the node answered without a hash',
      ),
    }
  }
  const fromTrusted = Promise.all(trusted.map(submit))
  const fromOthers = Promise.all(takers.filter((index) => !trusted.includes(index)).map(submit))
  const sound = await fromTrusted
  const accepted = sound.find((outcome) => 'hash' in outcome)
  if (accepted) return accepted.hash
  const errors = sound.flatMap((outcome) => ('error' in outcome ? [outcome.error] : []))
  const telling = mostTelling(errors)
  // A node aside may be stuck at a block before that nonce was used.
  if (telling?.kind === 'already_known' || telling?.kind === 'nonce_too_low') throw telling
  const late = await fromOthers
  const acceptedLate = late.find((outcome) => 'hash' in outcome)
  if (acceptedLate) return acceptedLate.hash
  throw (
    telling ??
    late.flatMap((outcome) => ('error' in outcome ? [outcome.error] : []))[0] ??
    new ChainError('unavailable', table.whyNone())
  )
}

function mostTelling(errors: readonly ChainError[]): ChainError | undefined {
  const ranked = [
    'already_known',
    'replacement_underpriced',
    'unavailable',
    'nonce_too_low',
  ] as const
  return (
    ranked
      .map((kind) => errors.find((error) => error.kind === kind))
      .find((error) => error !== undefined) ?? errors[0]
  )
}
