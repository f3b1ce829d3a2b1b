/** A signed transaction goes to every node of the chain (robustness §3). */
import { ChainError, type Hex } from '../../ports.js'
import { rotation, takers, whyNone } from './node-table.js'
import { hand, type Router } from './router.js'
import { HashHex } from './shapes.js'

/** What says most about a transaction, the most telling first. */
const ranks = ['already_known', 'replacement_underpriced', 'unavailable', 'nonce_too_low'] as const

/**
 * Resolves with the hash. One node's acceptance is enough. Else what says most about the
 * transaction wins: a node that holds it, then a definite refusal, and only then "unknown". Nodes
 * out of rotation are handed it too, for its reach, but are not waited for. Of their refusals none
 * counts, nor does an acceptance of a nonce that the others say is used; those on another chain get
 * nothing. Rejects with `ChainError`.
 */
export async function sendToAll(router: Router, raw: Hex): Promise<Hex> {
  const { table } = router
  const all = takers(table)
  if (table.conflict || all.length === 0) throw new ChainError('unavailable', whyNone(table))
  const trusted = rotation(table).filter((index) => all.includes(index))
  const submit = async (index: number): Promise<Hex | ChainError> => {
    const outcome = await hand(router, index, { method: 'eth_sendRawTransaction', params: [raw] })
    if (outcome instanceof ChainError) return outcome
    const why = 'eth_sendRawTransaction: the node answered without a hash'
    return HashHex.safeParse(outcome).data ?? new ChainError('unavailable', why)
  }
  const fromTrusted = Promise.all(trusted.map(submit))
  const fromOthers = Promise.all(all.filter((index) => !trusted.includes(index)).map(submit))
  const sound = sorted(await fromTrusted)
  if (sound.hash) return sound.hash
  const error =
    ranks.map((kind) => sound.errors.find((one) => one.kind === kind)).find(Boolean) ??
    sound.errors[0]
  // A node out of rotation may be stuck at a block before that nonce was used.
  if (error?.kind === 'already_known' || error?.kind === 'nonce_too_low') throw error
  const late = sorted(await fromOthers)
  if (late.hash) return late.hash
  throw error ?? late.errors[0] ?? new ChainError('unavailable', whyNone(table))
}

/** The first acceptance, and the errors in order. */
const sorted = (outcomes: readonly (Hex | ChainError)[]) => ({
  hash: outcomes.find((one): one is Hex => typeof one === 'string'),
  errors: outcomes.filter((one) => one instanceof ChainError),
})
